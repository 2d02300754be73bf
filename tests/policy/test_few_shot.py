"""Requests for models that follow examples: what is asked, and what of the conversation stays."""

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall, ToolResult
from mustcall.core.request import OutputFormat, OutputKind, Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.engine.turns import make_turn_state
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile, Protocol, SchemaTarget
from mustcall.policy.facts.wording import Wording
from mustcall.policy.request.attempt_request import shape
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.plan import RungKind, make_plan

SMALL = Profile(
    protocol=Protocol.PROMPT,
    schema_output=True,
    constrain_first=True,
    bounded_schemas=True,
    worked_examples=True,
    words_choose=True,
    arguments_from_message=True,
)
WORDS = Wording()


def tool(name: str, description: str, parameter: str) -> Tool:
    """Return a tool with one string."""
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    return Tool(name=name, description=description, parameters=schema)


WEATHER = tool("get_weather", "Get the weather of a city.", "city")
TIMER = tool("set_timer", "Set a timer.", "minutes")


def said(role: Role, text: str) -> Message:
    """Return a turn of text."""
    return Message(role=role, parts=(Text(text=text),))


def asking(*messages: Message, choice: ChoiceMode | None = None, output: OutputFormat | None = None) -> Request:
    """Return a request with both tools on offer."""
    return Request(
        model="m",
        messages=messages,
        tools=(WEATHER, TIMER),
        tool_choice=ToolChoice(mode=choice) if choice else None,
        output=output,
    )


def rungs(request: Request) -> list[RungKind]:
    """Return the kinds of rungs a request may climb."""
    demand = Demand(choice=request.tool_choice)
    return [rung.kind for rung in make_plan(request, demand, SMALL, Controls()).rungs]


QUESTION = said(Role.USER, "What is the weather in Oslo?")
CALL = Message(role=Role.ASSISTANT, parts=(ToolCall(id="c1", name="get_weather", arguments_json='{"city":"Oslo"}'),))
RESULT = Message(role=Role.TOOL, parts=(ToolResult(call_id="c1", content=(Text(text='{"sky":"rain","high":7}'),)),))


def test_the_words_decide_between_a_call_and_an_answer() -> None:
    """A message about a tool is asked for its call first, another one for an answer, and so is one with its result."""
    assert rungs(asking(QUESTION)) == [RungKind.SCHEMA, RungKind.ANSWER]
    assert rungs(asking(said(Role.USER, "Hello!"))) == [RungKind.ANSWER]
    assert rungs(asking(QUESTION, CALL, RESULT)) == [RungKind.ANSWER]
    assert rungs(asking(QUESTION, choice=ChoiceMode.NONE)) == [RungKind.ANSWER]
    assert rungs(asking(said(Role.USER, "Hello!"), choice=ChoiceMode.REQUIRED)) == [RungKind.SCHEMA, RungKind.TEXT]


def shaped(request: Request) -> tuple[Request, AdaptationLog]:
    """Return the first attempt's request and what is reported of it."""
    log = AdaptationLog()
    plan = make_plan(request, Demand(choice=request.tool_choice), SMALL, Controls())
    return shape(request, plan, plan.rungs[0], (), profile=SMALL, wording=WORDS, log=log).request, log


def texts(request: Request) -> list[tuple[Role, str]]:
    """Return the turns of a request as text."""
    return [
        (message.role, "".join(part.text for part in message.parts if isinstance(part, Text)))
        for message in request.messages
    ]


def test_a_call_by_example() -> None:
    """Instruction and examples come first, the tools that are meant stand beside the message, the rest between."""
    request, log = shaped(
        asking(said(Role.SYSTEM, "Be kind."), said(Role.USER, "Hi"), said(Role.ASSISTANT, "Hello"), QUESTION)
    )
    turns = texts(request)
    assert turns[0] == (Role.SYSTEM, f"{WORDS.call_worked}\n\nBe kind.")
    assert [role for role, _ in turns[1:5]] == [Role.USER, Role.ASSISTANT] * 2
    assert "\n- play_song: Play a song. Arguments: title (string)\n" in turns[1][1]
    assert "Arguments: restaurant (string), guests (integer)\n" in turns[3][1]
    assert turns[5:7] == [(Role.USER, "Hi"), (Role.ASSISTANT, "Hello")]
    listed = "- get_weather: Get the weather of a city. Arguments: city (string)"
    assert turns[7] == (Role.USER, f"Tools:\n{listed}\nMessage: What is the weather in Oslo?")
    assert request.tools == ()
    assert request.output is not None
    assert request.output.schema is not None
    arguments = request.output.schema["properties"]["arguments"]
    assert arguments["properties"]["city"]["enum"] == ["weather", "Oslo", "weather in Oslo", "Hi"]
    kinds = {entry.kind for entry in log.entries}
    assert {AdaptationKind.TOOL_DROPPED, AdaptationKind.TOOL_RESHAPED, AdaptationKind.SCHEMA_REDUCED} <= kinds


def test_the_same_history_gives_the_same_prefix() -> None:
    """What comes before the message does not depend on it, so that it stays cached."""
    one, _ = shaped(asking(QUESTION))
    other, _ = shaped(asking(said(Role.USER, "Set a timer for 5 minutes")))
    assert one.messages[:-1] == other.messages[:-1]


def test_an_answer_from_a_result() -> None:
    """A result is told in plain words, and the answer asked for; nothing is on offer."""
    request, log = shaped(asking(QUESTION, CALL, RESULT))
    assert texts(request) == [
        (Role.USER, "What is the weather in Oslo?"),
        (Role.ASSISTANT, "I looked it up with get_weather. The result is:\nsky: rain, high: 7"),
        (Role.USER, WORDS.answer_worked),
    ]
    assert request.tools == ()
    assert AdaptationKind.TOOL_DROPPED in {entry.kind for entry in log.entries}


def test_an_answer_without_results_keeps_the_conversation() -> None:
    """Where nothing was called the messages are the caller's own."""
    original = asking(said(Role.USER, "Hello!"))
    request, _ = shaped(original)
    assert request.messages is original.messages


def test_structured_answers_get_limits() -> None:
    """A schema without limits gets some, and that is reported; the caller's own is what the answer is checked by."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    output = OutputFormat(kind=OutputKind.SCHEMA, schema=schema)
    request, log = shaped(asking(said(Role.USER, "Hello!"), output=output))
    assert request.output is not None
    assert request.output.schema is not None
    assert request.output.schema["properties"]["city"] == {"type": "string", "maxLength": 200}
    assert AdaptationKind.SCHEMA_REDUCED in {entry.kind for entry in log.entries}


INEXPRESSIBLE = ErrorInfo(
    message="the grammar engine cannot express this schema: too long", status=400, code="invalid_schema"
)


def test_a_schema_that_cannot_be_expressed() -> None:
    """It is asked again in the narrowest form, then the next rung is taken; nothing is learnt for other schemas."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "minLength": 9000}}, "required": ["x"]}
    write = Tool(name="write", description="Write a text.", parameters=schema)
    request = Request(
        model="m",
        messages=(said(Role.USER, "Write a text."),),
        tools=(write,),
        tool_choice=ToolChoice(mode=ChoiceMode.REQUIRED),
    )
    turn_state = make_turn_state(request, SMALL, "local", controls=Controls(), wording=WORDS)
    first = turn_state.shaped().request
    again, lesson = turn_state.refused(INEXPRESSIBLE)
    assert (again, lesson) == (True, None)
    assert turn_state.profile.schema_target is SchemaTarget.GEMINI
    assert turn_state.rung.kind is RungKind.SCHEMA
    assert turn_state.shaped().request != first
