"""A model made of a few rules that does what it is asked: what an honest server answers with. Pure.

It calls the tool that a message is about, or the one that is demanded, with arguments that fit its schema; it reads
results, counts, remembers words and keeps to limits. It knows nothing of wires.
"""

import math
import re
from collections.abc import Callable, Sequence

import msgspec

from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Image, Reasoning, Text, ToolCall, ToolResult
from mustcall.core.reply import Usage
from mustcall.core.request import OutputKind, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, Tool, functions_of
from mustcall.testing.placeholder import make_value
from mustcall.testing.script import Call, Say, Think, Turn, TurnPart

__all__ = ["CHARACTERS", "answer_turn", "asked_text", "cut_turn", "is_reasoning", "prompt_tokens"]

#: Characters of a token.
CHARACTERS = 4
#: Words of a tool's name that say nothing about what it is for.
_VERBS = frozenset({"get", "set", "add", "open", "save", "to", "the", "up", "look"})
_LONG_TEXT = 1_500
_NUMBERS = {"two hundred": 200, "1400": 1400}
#: Words that demand a call.
_DEMAND = re.compile(r"call it now|Call at least one tool now|with a tool call and nothing else|tool call is required")


def answer_turn(request: Request, earlier: Sequence[Message] = ()) -> Turn:
    """Return what is said to a request; `earlier` is the conversation a stored response goes on from."""
    parts: list[TurnPart] = []
    if is_reasoning(request):
        parts.append(Think("I look at what is asked and at what is on offer."))
    calls = _calls(request)
    parts += calls or [Say(_text(request, earlier))]
    turn = Turn(*parts)
    if not calls and request.stop:
        turn = _stopped(turn, request.stop)
    return cut_turn(request, turn)


def is_reasoning(request: Request) -> bool:
    """Tell whether the request asks for reasoning."""
    config = request.reasoning
    if config is None or config.mode is ReasoningMode.DISABLED:
        return False
    return config.effort != "none"


def asked_text(request: Request) -> str:
    """Return the last words of the user: all that was said since the model spoke."""
    asked: list[str] = []
    for message in request.messages:
        if message.role is Role.ASSISTANT:
            asked.clear()
        elif message.role is Role.USER:
            asked.append(_said(message))
    return "\n".join(text for text in asked if text)


def prompt_tokens(request: Request, earlier: Sequence[Message] = ()) -> int:
    """Return the tokens of a prompt: its texts, calls, results and tools."""
    length = 0
    for message in (*earlier, *request.messages, *((request.system,) if request.system is not None else ())):
        for part in message.parts:
            match part:
                case ToolCall():
                    length += len(part.name) + len(part.arguments_json)
                case ToolResult():
                    length += sum(len(one.text) for one in part.content if isinstance(one, Text))
                case Text() | Reasoning():
                    length += len(part.text)
                case _:
                    length += CHARACTERS
    tools = functions_of(request.tools)
    length += sum(len(tool.name) + len(tool.description or "") + _written(tool.parameters) for tool in tools)
    return 8 + length // CHARACTERS


def _written(schema: JsonObject | None) -> int:
    return len(msgspec.json.encode(schema)) if schema else 0


# --- what is said -------------------------------------------------------------------------------------------------


def _said(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))


def _results(request: Request) -> list[ToolResult]:
    """Return the results behind the last words of the user."""
    found: list[ToolResult] = []
    for message in request.messages:
        if message.role is Role.USER and any(isinstance(part, Text) for part in message.parts):
            found.clear()
        found += [part for part in message.parts if isinstance(part, ToolResult)]
    return found


def _text(request: Request, earlier: Sequence[Message]) -> str:
    output = request.output
    if output is not None and output.kind is OutputKind.SCHEMA and output.schema is not None:
        made = make_value(output.schema, _picker(asked_text(request), _places(asked_text(request))[0]))
        return msgspec.json.encode(made).decode()
    results = _results(request)
    if results:
        told = [one.text if isinstance(one, Text) else "an image" for result in results for one in result.content
                if isinstance(one, Text | Image)]  # fmt: skip
        return f"The tools say: {'; '.join(told)}."
    asked = asked_text(request)
    every = "\n".join(_said(message) for message in (*earlier, *request.messages))
    counted = re.search(r"[Cc]ount from (\d+) to (\d+)", asked)
    if counted is not None:
        return "\n".join(str(number) for number in range(int(counted[1]), int(counted[2]) + 1))
    password = re.search(r"password is (\S+)\.", every)
    if password is not None and "password?" in asked:
        return password[1]
    remembered = re.search(r"the word (\w+)", every)
    if remembered is not None:
        return "OK" if "Reply with OK" in asked else remembered[1]
    if "long story" in asked:
        return "Once upon a time there was a river. " * (_LONG_TEXT // 36)
    return "That is easily said: it is a fine thing, and there is much to like about it."


def _stopped(turn: Turn, stops: Sequence[str]) -> Turn:
    """Return the turn with its text ended before the first stop sequence."""
    text = "".join(part.text for part in turn.parts if isinstance(part, Say))
    found = min(((text.find(stop), stop) for stop in stops if stop in text), default=None)
    if found is None:
        return turn
    others = [part for part in turn.parts if not isinstance(part, Say)]
    return Turn(*others, Say(text[: found[0]]), stop_sequence=found[1])


def cut_turn(request: Request, turn: Turn, limit: int | None = None) -> Turn:
    """Return the turn as far as the limit of tokens lets it be said, with its usage."""
    most = request.max_tokens if limit is None else limit
    left = math.inf if most is None else most * CHARACTERS
    kept: list[TurnPart] = []
    thought = used = 0
    for part in turn.parts:
        said = _length(part)
        if used + said > left:
            kept += _shortened(part, int(left) - used)
            used = int(left)
            turn = Turn(*kept, finish="length")
            break
        used += said
        thought += said if isinstance(part, Think) else 0
        kept.append(part)
    usage = Usage(
        input_tokens=prompt_tokens(request),
        output_tokens=max(1, math.ceil(used / CHARACTERS)),
        reasoning_tokens=math.ceil(thought / CHARACTERS),
    )
    return Turn(*kept, finish=turn.finish, stop_sequence=turn.stop_sequence, usage=usage)


def _length(part: TurnPart) -> int:
    if isinstance(part, Call):
        arguments = part.arguments
        return len(part.name) + len(arguments if isinstance(arguments, str) else msgspec.json.encode(arguments))
    return len(part.text)


def _shortened(part: TurnPart, most: int) -> list[TurnPart]:
    """Return what of a part fits into so many characters."""
    match part:
        case Say():
            return [Say(part.text[:most])] if most > 0 else []
        case Call(arguments=dict() as arguments):
            written = msgspec.json.encode(arguments).decode()
            return [Call(part.name, written[: most - len(part.name)])] if most > len(part.name) else []
        case _:
            return []


# --- what is called -----------------------------------------------------------------------------------------------


def _calls(request: Request) -> list[Call]:
    """Return the calls that a request is answered with; none where it is answered in words."""
    tools, choice = functions_of(request.tools), request.tool_choice
    mode = choice.mode if choice is not None else ChoiceMode.AUTO
    if not tools or mode is ChoiceMode.NONE or _results(request):
        return []
    asked = asked_text(request)
    if mode is ChoiceMode.NAMED and choice is not None:
        chosen = next((tool for tool in tools if tool.name == choice.name), None)
    elif mode is ChoiceMode.REQUIRED or _DEMAND.search(asked):
        chosen = _about(tools, asked) or tools[0]
    else:
        chosen = None if request.output is not None else _about(tools, asked)
    if chosen is None:
        return []
    places = _places(asked)
    several = places if request.parallel_tool_calls is not False and mode is ChoiceMode.AUTO else places[:1]
    return [_call(chosen, asked, place) for place in several]


def _places(asked: str) -> list[str]:
    return re.findall(r"\b(?:in|city) ([A-Z]\w+)", asked) or ["here"]


def _about(tools: Sequence[Tool], asked: str) -> Tool | None:
    """Return the tool that a message names, else the first whose subject it mentions."""
    named = [tool for tool in tools if re.search(rf"\b{re.escape(tool.name)}\b", asked)]
    if named:
        return max(named, key=lambda tool: len(tool.name))
    words = set(re.findall(r"[a-z]+", asked.lower()))
    for tool in tools:
        subject = set(re.findall(r"[a-z]+", tool.name.lower())) - _VERBS
        if subject and subject <= words:
            return tool
    return None


def _call(tool: Tool, asked: str, place: str) -> Call:
    schema = tool.parameters or {}
    made: JsonObject = make_value(schema, _picker(asked, place)) if schema.get("properties") else {}
    return Call(tool.name, made)


def _picker(asked: str, place: str) -> Callable[[str], str]:
    """Return what gives the text of a string of some name: the place, what is quoted behind a colon, or a note."""

    def pick(name: str) -> str:
        if name == "city":
            return place
        for words, count in _NUMBERS.items():
            if words in asked:
                return "amber " * count
        _, colon, quoted = asked.partition(": ")
        return quoted.partition("\n")[0] if colon else "a note"

    return pick
