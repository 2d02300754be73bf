"""Canonical values without origin: written on this wire and read again, they are the same."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import (
    Audio,
    CallKind,
    File,
    Image,
    OpaqueState,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.wire.codec import Provenance, ReplyStamp, Target
from mustcall.wire.responses import ResponsesCodec

WORD = st.text(st.characters(codec="utf-8"), max_size=6)
NAME = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
ID = st.from_regex(r"[a-z0-9_:.]{1,8}", fullmatch=True)
DATA = st.from_regex(r"[A-Za-z0-9+/]{0,8}", fullmatch=True)
MEDIA = st.sampled_from(["image/png", "application/pdf", "image/svg+xml"])
SCHEMA = st.dictionaries(NAME, WORD | st.booleans() | st.none(), max_size=2)
URL = WORD.map(lambda text: f"https://example.com/{text}")
OPTIONAL_WORD = st.none() | WORD

TEXT = st.builds(Text, text=WORD)
IMAGE = (
    st.builds(Image, data=DATA, media_type=MEDIA, detail=OPTIONAL_WORD)
    | st.builds(Image, url=URL)
    | st.builds(Image, file_id=ID)
)
FILE = (
    st.builds(File, data=DATA, media_type=MEDIA, name=OPTIONAL_WORD)
    | st.builds(File, url=URL)
    | st.builds(File, file_id=ID, name=OPTIONAL_WORD)
)
AUDIO = st.builds(Audio, data=DATA, format=st.sampled_from(["wav", "mp3"]))
STATE = st.builds(OpaqueState, form=st.just(Wire.RESPONSES), data=DATA)
REASONING = st.builds(
    Reasoning, text=WORD, summary=st.lists(WORD, max_size=2).map(tuple), state=STATE, id=st.none() | ID
)
CALL = st.builds(
    ToolCall,
    id=ID,
    name=NAME,
    arguments_json=WORD,
    kind=st.sampled_from(CallKind),
    namespace=st.none() | NAME,
    item_id=st.none() | ID,
)
RESULT = st.builds(
    ToolResult, call_id=ID, content=st.lists(TEXT | IMAGE | FILE, max_size=3).map(tuple), kind=st.sampled_from(CallKind)
)


def said(role: Role, part: st.SearchStrategy[Any], most: int = 1) -> st.SearchStrategy[Message]:
    """Return messages that are one item each."""
    return st.builds(Message, role=st.just(role), parts=st.lists(part, min_size=1, max_size=most).map(tuple))


MESSAGE = (
    said(Role.USER, TEXT | IMAGE | FILE | AUDIO, 3)
    | said(Role.SYSTEM, TEXT, 2)
    | said(Role.DEVELOPER, TEXT, 2)
    | said(Role.ASSISTANT, TEXT | st.builds(Refusal, text=WORD), 2)
    | said(Role.ASSISTANT, REASONING)
    | said(Role.ASSISTANT, CALL)
    | said(Role.TOOL, RESULT)
    | st.builds(Message, role=st.sampled_from([Role.USER, Role.ASSISTANT]), parts=st.just(()))
)
FUNCTION = st.builds(
    Tool,
    name=NAME,
    description=OPTIONAL_WORD,
    parameters=st.none() | SCHEMA,
    strict=st.booleans(),
)
CUSTOM = st.builds(Tool, name=NAME, description=OPTIONAL_WORD, kind=st.just(CallKind.CUSTOM), format=st.none() | SCHEMA)


@st.composite
def offers(draw: st.DrawFn) -> tuple[Tool, ...]:
    """Return plain tools and tools in blocks of one namespace each."""
    tools = draw(st.lists(FUNCTION | CUSTOM, max_size=2, unique_by=lambda tool: tool.name))
    for name in draw(st.lists(NAME, max_size=2, unique=True)):
        described = draw(OPTIONAL_WORD)
        nested = draw(st.lists(FUNCTION | CUSTOM, min_size=1, max_size=2, unique_by=lambda tool: tool.name))
        taken = {tool.name for tool in tools}
        nested = [tool for tool in nested if tool.name not in taken]
        tools += [tool.evolve(namespace=name, namespace_description=described) for tool in nested]
    return tuple(tools)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Return any request this wire can express."""
    tools = draw(offers())
    choice = None
    if tools:
        tool = draw(st.sampled_from(tools))
        choice = draw(
            st.none()
            | st.sampled_from([ChoiceMode.NONE, ChoiceMode.AUTO, ChoiceMode.REQUIRED]).map(
                lambda mode: ToolChoice(mode=mode)
            )
            | st.just(ToolChoice(mode=ChoiceMode.NAMED, name=tool.name, namespace=tool.namespace, kind=tool.kind))
        )
        if tool.namespace is None and draw(st.booleans()):
            choice = ToolChoice(mode=ChoiceMode.AUTO, allowed=(tool.name,))
    effort = draw(st.none() | st.sampled_from(["none", "low", "high"]))
    summary = draw(st.none() | st.sampled_from(["auto", "detailed"]))
    mode = ReasoningMode.DISABLED if effort == "none" else None
    reasoning = ReasoningConfig(mode=mode, effort=effort, summary=summary) if effort or summary else None
    stream = draw(st.booleans())
    return Request(
        model=draw(WORD),
        messages=tuple(draw(st.lists(MESSAGE, max_size=4))),
        system=draw(st.none() | st.builds(Message, role=st.just(Role.SYSTEM), parts=st.tuples(TEXT))),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=draw(st.none() | st.booleans()),
        max_tokens=draw(st.none() | st.integers(1, 10_000)),
        temperature=draw(st.none() | st.sampled_from([0.0, 0.5, 1.0])),
        top_p=draw(st.none() | st.sampled_from([0.1, 1.0])),
        reasoning=reasoning,
        output=draw(
            st.none()
            | st.sampled_from([OutputFormat(kind=OutputKind.TEXT), OutputFormat(kind=OutputKind.JSON)])
            | st.builds(
                OutputFormat,
                kind=st.just(OutputKind.SCHEMA),
                schema=SCHEMA,
                name=NAME,
                description=OPTIONAL_WORD,
                strict=st.none() | st.booleans(),
            )
        ),
        stream=stream,
        stream_usage=stream,
        previous_response_id=draw(st.none() | ID),
    )


@settings(max_examples=150, deadline=None)
@given(asked=requests())
def test_requests_are_stable(asked: Request, strip: Callable[[Any], Any]) -> None:
    """A request survives being written and read, up to its origin."""
    codec = ResponsesCodec()
    written = codec.encode_request(asked, Target(), AdaptationLog())
    assert strip(codec.decode_request(msgspec.json.encode(written))) == asked


OUTPUT = TEXT | st.builds(Refusal, text=WORD) | CALL | REASONING.map(lambda part: part.evolve(text=""))


def own_id(part: Any) -> object:
    """Return a part's own id on this wire, or what no other part has."""
    return getattr(part, "item_id", None) or getattr(part, "id", None) or id(part)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Return any reply this wire can express: no two of its items share an id."""
    parts = tuple(draw(st.lists(OUTPUT, max_size=4, unique_by=own_id)))
    reported = draw(st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER]))
    counts = st.integers(0, 99)
    usage = draw(st.none() | st.builds(Usage, input_tokens=counts, output_tokens=counts, cached_tokens=counts))
    return Reply(id="resp_1", model="m", parts=parts, finish=derive_finish(reported, parts), usage=usage)


@settings(max_examples=100, deadline=None)
@given(reply=replies())
def test_replies_are_stable(reply: Reply, strip: Callable[[Any], Any]) -> None:
    """A reply survives being written and read, up to its origin and the ids it did not have."""
    codec = ResponsesCodec()
    caller = Request(model="m", messages=())
    written = codec.encode_reply(reply, caller, ReplyStamp(token="tok", created=7), AdaptationLog())
    back = strip(codec.decode_reply(msgspec.json.encode(written), Provenance()))
    parts: list[Any] = []
    for given_part, part in zip(reply.parts, back.parts, strict=True):
        match given_part, part:
            case ToolCall(item_id=None), ToolCall(item_id=str()):
                parts.append(part.evolve(item_id=None))
            case Reasoning(id=None), Reasoning(id=str()):
                parts.append(part.evolve(id=None))
            case _:
                parts.append(part)
    assert back.evolve(parts=tuple(parts), reported_finish=None) == reply
