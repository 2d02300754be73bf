"""The codec's laws on made-up values: identity, canonical stability, stream equals whole, only our errors."""

import json
from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import CallerError, MustcallError, UpstreamError, UpstreamGarbage
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import File, Image, OpaqueState, Part, Reasoning, Text, ToolCall, ToolReference, ToolResult
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.streams.events import Event
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.wire.codec import Provenance, ReplyStamp, Target
from mustcall.wire.messages import MessagesCodec

CODEC = MessagesCodec()
quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

#: Text as the wire takes it: a block of nothing but blanks is refused there, so the codec leaves it out.
words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
names = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, json_values, max_size=3)
# Arguments of a whole body are JSON written by us, so numbers are spelled our way.
arguments = objects.map(lambda value: msgspec.json.encode(value).decode())

texts = st.builds(Text, text=words)
images = st.one_of(
    st.builds(Image, data=words, media_type=st.just("image/png")),
    st.builds(Image, url=words.map(lambda word: f"https://x/{word}")),
    st.builds(Image, file_id=words),
)
files = st.one_of(
    st.builds(File, data=words, media_type=st.just("application/pdf"), name=st.none() | words),
    st.builds(File, text=words, media_type=st.just("text/plain"), name=st.none() | words),
    st.builds(File, file_id=words),
)
calls = st.builds(ToolCall, id=names, name=names, arguments_json=arguments)
results = st.builds(
    ToolResult,
    call_id=names,
    content=st.lists(texts | images | files | st.builds(ToolReference, name=names), max_size=3).map(tuple),
    is_error=st.booleans(),
)


def _thinking(text: str, signature: str, issuer: str) -> Reasoning:
    data = {"type": "thinking", "thinking": text, "signature": signature}
    return Reasoning(text=text, state=OpaqueState(Wire.MESSAGES, data, issuer))


def _redacted(data: str) -> Reasoning:
    return Reasoning(state=OpaqueState(Wire.MESSAGES, {"type": "redacted_thinking", "data": data}))


def _assistant(thinking: list[Part], others: list[Part]) -> Message:
    return Message(role=Role.ASSISTANT, parts=(*thinking, *others))


signed = st.builds(_thinking, words, names, st.just(""))
assistants = st.builds(
    _assistant,
    st.lists(signed | st.builds(_redacted, names), max_size=2),
    st.lists(texts | calls, min_size=1, max_size=3),
)
users = st.one_of(
    st.lists(texts | images | files, min_size=1, max_size=3).map(
        lambda parts: Message(role=Role.USER, parts=tuple(parts))
    ),
    st.lists(results, min_size=1, max_size=3).map(lambda parts: Message(role=Role.TOOL, parts=tuple(parts))),
)
histories = st.lists(st.tuples(users, assistants), max_size=3).map(lambda pairs: [m for pair in pairs for m in pair])


def _tool(name: str, schema: dict[str, Any], description: str | None, strict: bool | None) -> Tool:
    return Tool(name=name, parameters={**schema, "type": "object"}, description=description, strict=strict)


tools = st.builds(_tool, names, objects, st.none() | words, st.none() | st.booleans())
reasoning = st.one_of(
    st.none(),
    st.builds(
        ReasoningConfig,
        mode=st.just(ReasoningMode.ADAPTIVE),
        effort=st.none() | st.sampled_from(["low", "high"]),
        summary=st.none() | st.sampled_from(["omitted", "summarized"]),
    ),
    st.builds(
        ReasoningConfig,
        mode=st.just(ReasoningMode.ENABLED),
        budget_tokens=st.integers(1024, 8000),
        effort=st.none() | st.just("high"),
    ),
    st.just(ReasoningConfig(mode=ReasoningMode.DISABLED)),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Make requests that the wire can express: tools whenever there is history, no setting it would refuse."""
    messages = (*draw(histories), draw(users))
    offered = tuple(draw(st.lists(tools, min_size=2, max_size=4, unique_by=lambda tool: tool.name)))
    choice = draw(
        st.none()
        | st.sampled_from([ToolChoice(mode=mode) for mode in (ChoiceMode.NONE, ChoiceMode.AUTO, ChoiceMode.REQUIRED)])
        | st.just(ToolChoice(mode=ChoiceMode.NAMED, name=offered[0].name))
    )
    config = draw(reasoning)
    thinks = config is not None and config.mode is not ReasoningMode.DISABLED
    if thinks:
        # Forced choices and loops that began without thinking are refused together with it.
        choice = None
        messages = messages[-1:]
    parallel = None
    if choice is not None and choice.mode is not ChoiceMode.NONE:
        parallel = draw(st.none() | st.booleans())
    return Request(
        model=draw(words),
        messages=messages,
        system=draw(
            st.none()
            | st.lists(texts, min_size=1, max_size=2).map(lambda parts: Message(role=Role.SYSTEM, parts=tuple(parts)))
        ),
        tools=offered,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        max_tokens=draw(st.integers(8001, 100_000)),
        temperature=None if thinks else draw(st.none() | st.floats(0, 1)),
        stop=tuple(draw(st.lists(names, max_size=2))),
        reasoning=config,
        output=draw(st.none() | st.builds(OutputFormat, kind=st.just(OutputKind.SCHEMA), schema=objects)),
        stream=draw(st.booleans()),
        stream_usage=True,
    )


@quick
@given(requests())
def test_canonical_requests_are_stable(request: Request) -> None:
    """A request without origin, encoded and decoded, is itself; nothing was noted."""
    log = AdaptationLog()
    body = json.dumps(CODEC.encode_request(request, Target(), log)).encode()
    decoded = CODEC.decode_request(body)
    assert strip(decoded) == request
    assert log.entries == ()
    assert CODEC.peek(body).model == request.model


def strip(value: Any) -> Any:
    """Strip every origin."""
    if isinstance(value, tuple):
        return tuple(strip(item) for item in cast("tuple[Any, ...]", value))  # whatever a canonical value holds
    if hasattr(value, "origin"):
        fields = {name: strip(getattr(value, name)) for name in value.__struct_fields__}
        return type(value)(**{**fields, "origin": None})
    return value


@quick
@given(requests(), words)
def test_a_change_at_the_tail_keeps_the_prefix(request: Request, reminder: str) -> None:
    """Rule 105: whatever the request, appending a message leaves everything before it JSON-equal."""
    body = CODEC.encode_request(request, Target(), AdaptationLog())
    decoded = CODEC.decode_request(json.dumps(body).encode())
    longer = decoded.evolve(messages=(*decoded.messages, Message(role=Role.USER, parts=(Text(text=reminder),))))
    out = CODEC.encode_request(longer, Target(), AdaptationLog())
    assert out == {**body, "messages": [*body["messages"], {"role": "user", "content": reminder}]}


@quick
@given(requests(), objects)
def test_identity_with_unknown_fields(request: Request, extra: dict[str, Any]) -> None:
    """Encode after decode is the identity, with any unknown fields sprinkled in."""
    unknown = {f"x-{key}": value for key, value in extra.items()}
    body = {**CODEC.encode_request(request, Target(), AdaptationLog()), **unknown}
    for message in body["messages"]:
        message.update(unknown)
    decoded = CODEC.decode_request(json.dumps(body).encode())
    assert CODEC.encode_request(decoded, Target(), AdaptationLog()) == body
    rebuilt = CODEC.encode_request(decoded.evolve(), Target(), AdaptationLog())
    assert rebuilt == body


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Make replies that the wire can express."""
    provider = st.builds(_thinking, words, names, st.just("up"))
    parts = tuple(draw(st.lists(texts | calls | provider, max_size=4)))
    reported = draw(st.sampled_from(["end_turn", "tool_use", "max_tokens", "refusal", "pause_turn"]))
    meaning = {
        "end_turn": FinishReason.STOP,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.LENGTH,
        "refusal": FinishReason.REFUSAL,
        "pause_turn": FinishReason.PAUSE,
    }
    finish = derive_finish(meaning[reported], parts)
    honest = {value: key for key, value in meaning.items()}[finish]
    cached, written, fresh = (draw(st.integers(0, 1000)) for _ in range(3))
    return Reply(
        id="msg_" + draw(names),
        model=draw(words),
        parts=parts,
        finish=finish,
        reported_finish=honest,
        usage=Usage(
            input_tokens=cached + written + fresh,
            cached_tokens=cached,
            cache_write_tokens=written,
            output_tokens=draw(st.integers(0, 1000)),
            reasoning_tokens=draw(st.integers(0, 10)),
        ),
    )


CALLER = Request(model="m", messages=())
UP = Provenance(issuer="up", token="tok")


@quick
@given(replies())
def test_canonical_replies_are_stable(reply: Reply) -> None:
    """A reply without origin, encoded and decoded, is itself."""
    body = CODEC.encode_reply(reply, CALLER, ReplyStamp(token="a", created=1), AdaptationLog())
    assert strip(CODEC.decode_reply(json.dumps(body).encode(), UP)) == normal(reply)


def normal(reply: Reply) -> Reply:
    """Write arguments the one way a whole body gives them."""
    parts = [
        part.evolve(arguments_json=msgspec.json.encode(msgspec.json.decode(part.arguments_json)).decode())
        if isinstance(part, ToolCall)
        else part
        for part in reply.parts
    ]
    return reply.evolve(parts=tuple(parts))


@settings(quick, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(reply=replies(), size=st.integers(1, 9), seed=st.integers(0, 999))
def test_stream_laws(  # noqa: PLR0917  fixtures come by name
    reply: Reply,
    size: int,
    seed: int,
    native_events: Callable[..., list[dict[str, Any]]],
    sse: Callable[..., bytes],
    decode_stream: Callable[..., list[Event]],
    assemble: Callable[[Iterable[Event]], Reply],
    split: Callable[[bytes, int], list[bytes]],
) -> None:
    """A stream, at any piece size and any chunking, decodes to the whole reply; re-encoded, it still does."""
    body = CODEC.encode_reply(reply, CALLER, ReplyStamp(token="a", created=1), AdaptationLog())
    data = sse(native_events(body, size))
    events = decode_stream(split(data, seed))
    assert strip(normal(assemble(events))) == strip(normal(reply))
    encoder = CODEC.stream_encoder(CALLER, ReplyStamp(token="a", created=1), AdaptationLog())
    again = decode_stream([b"".join(encoder.feed(event) for event in events)])
    assert strip(normal(assemble(again))) == strip(normal(reply))


def error_of(read: Callable[[], Any]) -> MustcallError | None:
    """Return the error of our own a reader raised; any other exception passes."""
    try:
        read()
    except MustcallError as error:
        return error
    return None


def _says_nothing(body: bytes) -> bool:
    """Tell random bytes from ones that happen to be a request or a reply: those have one of these words."""
    return not any(word in body for word in (b"model", b"content", b"\\u"))


@quick
@given(st.binary(max_size=60).filter(_says_nothing) | json_values.map(lambda value: json.dumps(value).encode()))
def test_hostile_bodies_raise_only_our_errors(body: bytes) -> None:
    """Random bytes and random JSON are never a request or a reply, and raise the fitting error of ours."""
    assert isinstance(error_of(lambda: CODEC.peek(body)), CallerError)
    assert isinstance(error_of(lambda: CODEC.decode_request(body)), CallerError)
    assert isinstance(error_of(lambda: CODEC.decode_reply(body, UP)), UpstreamError)


mangled = st.sampled_from(
    [None, 5, True, "x", [], {}, [5], {"type": 5}, {"type": "tool_use"}, [{"type": "tool_result"}]]
)
places = st.sampled_from(
    ["messages", "tools", "tool_choice", "system", "thinking", "output_config", "stop_sequences", "max_tokens", "model"]
)


@quick
@given(requests(), places, mangled)
def test_mangled_requests_raise_only_our_errors(request: Request, place: str, value: Any) -> None:
    """A good request with one field mangled is refused by name, or read and written back as it is."""
    body = {**CODEC.encode_request(request, Target(), AdaptationLog()), place: value}
    data = json.dumps(body).encode()
    error = error_of(lambda: CODEC.decode_request(data))
    if error is None:
        assert CODEC.encode_request(CODEC.decode_request(data), Target(), AdaptationLog()) == body
    else:
        assert (error.param or "").startswith(place)


@quick
@given(replies(), st.integers(0, 3), mangled)
def test_mangled_replies_raise_only_our_errors(reply: Reply, place: int, value: Any) -> None:
    """A reply with one block that is none is refused as garbage."""
    body = CODEC.encode_reply(reply, CALLER, ReplyStamp(token="a", created=1), AdaptationLog())
    body["content"].insert(min(place, len(body["content"])), value)
    assert isinstance(error_of(lambda: CODEC.decode_reply(json.dumps(body).encode(), UP)), UpstreamGarbage)
