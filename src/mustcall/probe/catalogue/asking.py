"""The words and tools that cells are made of. All of it is written here: nothing of a user is ever sent.

Every try of a cell has its own words, chosen by its number, so that tries are no repetitions of one request and the
same number asks the same in every run.
"""

from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Part, Text
from mustcall.core.request import ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice

__all__ = [
    "ADD_NOTE",
    "CITIES",
    "GET_TIME",
    "GET_WEATHER",
    "LIMIT",
    "REASONING_LIMIT",
    "TOPICS",
    "WORDS",
    "ask",
    "assistant",
    "city",
    "define",
    "force",
    "topic",
    "user",
    "word",
]

#: Tokens of a reply: a call takes a fifth of it.
LIMIT = 128
#: Tokens of a reply that may think first.
REASONING_LIMIT = 1024

CITIES = (
    "Oslo", "Rome", "Lima", "Cairo", "Tokyo", "Paris", "Quito", "Dakar", "Delhi", "Berlin", "Madrid", "Lisbon",
    "Vienna", "Prague", "Athens", "Dublin", "Warsaw", "Zagreb", "Nairobi", "Havana", "Bogota", "Seoul", "Hanoi",
    "Riga", "Tunis", "Accra", "Manila", "Ottawa", "Sofia", "Tirana", "Minsk", "Ankara", "Doha", "Muscat", "Lusaka",
    "Harare", "Kigali",
)  # fmt: skip
TOPICS = (
    "cats", "rivers", "bread", "chess", "trains", "winter", "tea", "owls", "maps", "clocks", "bridges", "gardens",
    "books", "snow", "violins", "kites", "lamps", "ships", "apples", "stones", "bees",
)  # fmt: skip
WORDS = (
    "amber", "birch", "cobalt", "dahlia", "ember", "fjord", "garnet", "hazel", "indigo", "jasper", "kelp", "lotus",
    "maple", "nectar", "opal", "pearl", "quartz", "russet", "saffron", "tundra",
)  # fmt: skip


def city(number: int) -> str:
    """Return the city of a try."""
    return CITIES[number % len(CITIES)]


def topic(number: int) -> str:
    """Return the topic of a try."""
    return TOPICS[number % len(TOPICS)]


def word(number: int) -> str:
    """Return the word of a try."""
    return WORDS[number % len(WORDS)]


def define(
    name: str, description: str, properties: JsonObject, *, strict: bool | None = None, defs: JsonObject | None = None
) -> Tool:
    """Return a tool all of whose properties are required; `defs` are the `$defs` of its schema."""
    schema: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **({"$defs": defs} if defs else {}),
    }
    return Tool(name=name, description=description, parameters=schema, strict=strict)


GET_WEATHER = define("get_weather", "Return the current weather in a city.", {"city": {"type": "string"}})
GET_TIME = define("get_time", "Return the current time in a city.", {"city": {"type": "string"}})
ADD_NOTE = define("add_note", "Save a note.", {"text": {"type": "string"}})


def user(*parts: Part | str) -> Message:
    """Return a message of the user."""
    return Message(role=Role.USER, parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))


def assistant(*parts: Part) -> Message:
    """Return a message of the model."""
    return Message(role=Role.ASSISTANT, parts=parts)


def force(name: str | None = None) -> ToolChoice:
    """Return a forced choice: of any tool, or of one."""
    return ToolChoice(mode=ChoiceMode.NAMED, name=name) if name else ToolChoice(mode=ChoiceMode.REQUIRED)


def ask(
    *messages: Message | str,
    tools: tuple[Tool, ...] = (),
    choice: ToolChoice | ChoiceMode | None = None,
    limit: int = LIMIT,
    stream: bool = False,
    reasoning: bool = False,
) -> Request:
    """Return a request; its model is filled in when it is sent."""
    return Request(
        model="",
        messages=tuple(user(message) if isinstance(message, str) else message for message in messages),
        tools=tools,
        tool_choice=ToolChoice(mode=choice) if isinstance(choice, ChoiceMode) else choice,
        max_tokens=max(limit, REASONING_LIMIT) if reasoning else limit,
        stream=stream,
        stream_usage=stream,
        reasoning=ReasoningConfig(mode=ReasoningMode.ENABLED, effort="low") if reasoning else None,
    )
