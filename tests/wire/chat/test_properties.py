"""Laws of the chat codec over generated values: stability, chunking, and hostile input."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import InvalidRequest, UpstreamGarbage, UpstreamRejected
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Audio, File, Image, OpaqueState, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Ended, Event, Failed
from mustcall.core.streams.unroll import unroll
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.wire.chat import ChatCodec
from mustcall.wire.codec import Provenance, ReplyStamp, Target
from mustcall.wire.sse import SseEvent

_CODEC = ChatCodec()
_STAMP = ReplyStamp(token="t", created=9)
_shared = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

_text = st.text(max_size=12)
_some = st.text(min_size=1, max_size=12)
_name = st.from_regex(r"[a-zA-Z0-9_-]{1,12}", fullmatch=True)
_object = st.dictionaries(_text, st.none() | st.integers() | _text, max_size=3)
_base64 = st.sampled_from(["", "AAAA", "QQ=="])


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _few(strategy: st.SearchStrategy[Any], most: int = 3, least: int = 0) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(strategy, min_size=least, max_size=most).map(tuple)


_media: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=_text),
    st.builds(Image, data=_base64, media_type=st.just("image/png"), detail=_maybe(st.just("low"))),
    st.builds(Image, url=_text.map("https://x/{}".format), detail=_maybe(st.just("high"))),
    st.builds(Audio, data=_base64, format=st.sampled_from(["wav", "mp3"])),
    st.builds(File, data=_base64, media_type=st.just("application/pdf"), name=_maybe(_text)),
)


def _thoughts(
    issuer: str, fields: tuple[str, ...] = ("reasoning_content", "reasoning")
) -> st.SearchStrategy[Reasoning]:
    def build(text: str, field: str, details: list[Any]) -> Reasoning:
        data: dict[str, Any] = {"field": field, "details": details} if details else {"field": field}
        return Reasoning(text=text, state=OpaqueState(Wire.CHAT, data, issuer))

    return st.builds(build, _some, st.sampled_from(fields), st.lists(_object, max_size=2))


_calls: st.SearchStrategy[tuple[ToolCall, ...]] = st.lists(
    st.builds(ToolCall, id=_name, name=_name, arguments_json=_text), max_size=3, unique_by=lambda call: call.id
).map(tuple)


def _assistant(
    issuer: str = "", fields: tuple[str, ...] = ("reasoning_content", "reasoning")
) -> st.SearchStrategy[Any]:
    """Parts of an assistant message in the order chat has for them."""
    return st.tuples(
        _few(_thoughts(issuer, fields), 1),
        _few(st.builds(Text, text=_some), 1),
        _few(st.builds(Refusal, text=_some), 1),
        _calls,
    ).map(lambda groups: tuple(part for group in groups for part in group))


def _tool_turn(parts: tuple[Part, ...], text: str) -> tuple[Message, ...]:
    result = ToolResult(call_id="c", content=(Text(text=text),))
    return Message(role=Role.ASSISTANT, parts=parts), Message(role=Role.TOOL, parts=(result,))


_turns: st.SearchStrategy[tuple[Message, ...]] = st.one_of(
    st.builds(Message, role=st.sampled_from([Role.SYSTEM, Role.USER]), parts=_few(_media, least=1)).map(lambda m: (m,)),
    st.builds(_tool_turn, _assistant().filter(bool), _text),
)
_tool = st.builds(Tool, name=_name, description=_maybe(_text), parameters=_maybe(_object), strict=_maybe(st.booleans()))
_choice = st.one_of(
    st.builds(ToolChoice, mode=st.sampled_from([ChoiceMode.NONE, ChoiceMode.AUTO, ChoiceMode.REQUIRED])),
    st.builds(ToolChoice, mode=st.just(ChoiceMode.NAMED), name=_name),
    st.builds(ToolChoice, mode=st.sampled_from([ChoiceMode.AUTO, ChoiceMode.REQUIRED]), allowed=_few(_name)),
)
_output = st.one_of(
    st.builds(OutputFormat, kind=st.sampled_from([OutputKind.TEXT, OutputKind.JSON])),
    st.builds(
        OutputFormat,
        kind=st.just(OutputKind.SCHEMA),
        schema=_object,
        name=_some,
        description=_maybe(_text),
        strict=_maybe(st.booleans()),
    ),
)
_effort = st.sampled_from(
    [ReasoningConfig(effort="low"), ReasoningConfig(mode=ReasoningMode.DISABLED, effort="none"), None]
)


@st.composite
def _requests(draw: st.DrawFn) -> Request:
    tools = draw(_few(_tool))
    choice = draw(_maybe(_choice)) if tools else None
    if choice is not None and choice.allowed is not None:
        choice = choice.evolve(allowed=tuple(tool.name for tool in tools))
    stream = draw(st.booleans())
    return Request(
        model=draw(_text),
        messages=tuple(message for turn in draw(_few(_turns)) for message in turn),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=draw(_maybe(st.booleans())) if tools else None,
        max_tokens=draw(_maybe(st.integers(0))),
        temperature=draw(_maybe(st.floats(0, 2))),
        top_p=draw(_maybe(st.floats(0, 1))),
        stop=draw(_few(_text)),
        reasoning=draw(_effort),
        output=draw(_maybe(_output)),
        stream=stream,
        stream_usage=stream,
    )


@_shared
@given(request=_requests())
def test_requests_are_stable(request: Request, bare: Callable[[Any], Any]) -> None:
    """Laws: a canonical request without origin, written and read, is itself; nothing is reported."""
    log = AdaptationLog()
    body = msgspec.json.encode(_CODEC.encode_request(request, Target(issuer="up"), log))
    assert bare(_CODEC.decode_request(body)) == request
    assert log.entries == ()
    assert _CODEC.peek(body).model == request.model


@_shared
@given(request=_requests())
def test_a_read_request_is_written_as_it_was(request: Request) -> None:
    """Laws: encode after decode is the identity, whole and with a new message at the tail."""
    body = _CODEC.encode_request(request, Target(issuer="up"), AdaptationLog())
    read = _CODEC.decode_request(msgspec.json.encode(body))
    assert _CODEC.encode_request(read, Target(), AdaptationLog()) == body
    tail = Message(role=Role.USER, parts=(Text(text="r"),))
    longer = _CODEC.encode_request(read.evolve(messages=(*read.messages, tail)), Target(), AdaptationLog())
    assert longer == {**body, "messages": [*body["messages"], {"role": "user", "content": "r"}]}


_usage = st.builds(
    Usage,
    input_tokens=st.integers(0, 9),
    output_tokens=st.integers(0, 9),
    cached_tokens=st.integers(0, 9),
    cache_write_tokens=st.integers(0, 9),
    reasoning_tokens=st.integers(0, 9),
)
_reported = st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER])


def _replies(fields: tuple[str, ...] = ("reasoning_content", "reasoning")) -> st.SearchStrategy[Reply]:
    def build(parts: tuple[Part, ...], reported: FinishReason, usage: Usage | None) -> Reply:
        return Reply(id="chatcmpl-t", model="m", parts=parts, finish=derive_finish(reported, parts), usage=usage)

    return st.builds(build, _assistant("up", fields), _reported, _maybe(_usage))


_CALLER = Request(model="m", messages=(), stream=True, stream_usage=True)


@_shared
@given(reply=_replies())
def test_replies_are_stable(reply: Reply, bare: Callable[[Any], Any]) -> None:
    """Laws: a canonical reply, written and read, is itself; read again and written, the body is the same."""
    log = AdaptationLog()
    body = _CODEC.encode_reply(reply, _CALLER, _STAMP, log)
    read = _CODEC.decode_reply(msgspec.json.encode(body), Provenance(issuer="up"))
    assert bare(read).evolve(reported_finish=None) == reply
    assert log.entries == ()
    assert _CODEC.encode_reply(read, _CALLER, _STAMP, log) == body


@_shared
@given(reply=_replies(("reasoning_content",)), data=st.data())
def test_streams_are_stable_at_any_cut(
    reply: Reply,
    data: st.DataObject,
    read_stream: Callable[..., list[Event]],
    assemble: Callable[[list[Event]], Assembler],
    bare: Callable[[Any], Any],
) -> None:
    """Laws: a streamed reply, cut anywhere and read, is itself, and every cut gives the same events."""
    encoder = _CODEC.stream_encoder(_CALLER, _STAMP, AdaptationLog())
    stream = b"".join(encoder.feed(event) for event in unroll(reply))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in itertools.pairwise([0, *cuts, len(stream)])]
    events = read_stream(*pieces)
    assert events == read_stream(stream)
    assert bare(assemble(events).reply()).evolve(reported_finish=None) == reply.evolve(id="chatcmpl-t")


_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_KEYS = {
    "request": (
        "model",
        "messages",
        "tools",
        "tool_choice",
        "stop",
        "stream",
        "stream_options",
        "response_format",
        "max_tokens",
    ),
    "message": ("role", "content", "tool_calls", "tool_call_id", "refusal", "reasoning_content", "reasoning_details"),
    "choice": ("index", "message", "delta", "finish_reason"),
    "reply": ("id", "model", "created", "choices", "usage", "error"),
    "call": ("index", "id", "type", "function", "custom"),
    "function": ("name", "arguments", "input", "parameters", "description", "strict", "format"),
    "usage": ("prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"),
    "part": ("type", "text", "image_url", "file", "input_audio", "refusal", "function", "custom"),
}
_WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "tool",
        "system",
        "text",
        "image_url",
        "file",
        "input_audio",
        "refusal",
        "function",
        "custom",
        "auto",
        "json_schema",
        "stop",
        "tool_calls",
        "reasoning.encrypted",
        "mc1.e30=",
        "f",
        "{}",
    ]
)


def _almost(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keyed = [st.dictionaries(st.sampled_from(keys), inner, max_size=5) for keys in _KEYS.values()]
    return st.one_of(st.lists(inner, max_size=3), *keyed)


#: Values that use the wire's own words in all the wrong places.
_near: st.SearchStrategy[Any] = st.recursive(
    _WORDS | st.none() | st.integers(0, 2) | st.booleans(), _almost, max_leaves=25
)
_hostile = _json | _near


def _completed_request(fields: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "x"}], **fields}


def _completed_reply(message: dict[str, Any], finish: str) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish}]}


@settings(_shared, max_examples=150)
@given(value=_hostile | st.dictionaries(st.sampled_from(_KEYS["request"]), _near, max_size=4).map(_completed_request))
def test_hostile_requests(value: Any) -> None:
    """Must show: any JSON value as a request raises only our error, or is written back exactly."""
    body = json.dumps(value).encode()
    try:
        request = _CODEC.decode_request(body)
    except InvalidRequest as error:
        assert error.status == 400  # noqa: PT017  the point is that no other error comes
        return
    log = AdaptationLog()
    written = _CODEC.encode_request(request, Target(), log)
    if not log.entries:
        assert written == value
    rebuilt = _CODEC.encode_request(request.evolve(model="other"), Target(), log)
    assert rebuilt["model"] == "other"


@settings(_shared, max_examples=150)
@given(
    value=_hostile
    | st.builds(
        _completed_reply,
        st.dictionaries(st.sampled_from(_KEYS["message"]), _near, max_size=4),
        _WORDS,
    )
)
def test_hostile_replies(value: Any) -> None:
    """Must show: any JSON value as a reply raises only our errors, or can be written for the caller."""
    try:
        reply = _CODEC.decode_reply(json.dumps(value).encode(), Provenance(token="t"))
    except (UpstreamGarbage, UpstreamRejected):
        return
    assert _CODEC.encode_reply(reply, _CALLER, _STAMP, AdaptationLog()) == value
    rewritten = _CODEC.encode_reply(reply.evolve(id="x"), _CALLER, _STAMP, AdaptationLog())
    assert rewritten["choices"][0]["finish_reason"] in ("stop", "tool_calls", "length", "content_filter")
    encoder = _CODEC.stream_encoder(_CALLER, _STAMP, AdaptationLog())
    assert b"".join(encoder.feed(event) for event in unroll(reply)).endswith(b"data: [DONE]\n\n")


@settings(_shared, max_examples=150)
@given(
    values=st.lists(
        _hostile
        | st.dictionaries(st.sampled_from(_KEYS["message"]), _near, max_size=3).map(
            lambda delta: {"choices": [{"index": 0, "delta": delta}]}
        )
        | st.lists(st.dictionaries(st.sampled_from(_KEYS["call"]), _near, max_size=4), max_size=3).map(
            lambda calls: {"choices": [{"index": 0, "delta": {"tool_calls": calls}}]}
        ),
        max_size=5,
    )
)
def test_hostile_streams(values: list[Any]) -> None:
    """Must show: any chunks end in exactly one `Ended` or `Failed`, well ordered, assembled or failed by our errors."""
    decoder = _CODEC.stream_decoder(Provenance(token="t"))
    events = [event for value in values for event in decoder.feed(SseEvent("", json.dumps(value).encode()))]
    events += decoder.feed(SseEvent("", b"[DONE]")) + decoder.close()
    assert [isinstance(event, Ended | Failed) for event in events].count(True) == 1
    assert isinstance(events[-1], Ended | Failed)
    assembler, encoder = Assembler(), _CODEC.stream_encoder(_CALLER, _STAMP, AdaptationLog())
    for event in events:
        assembler.feed(event)
        encoder.feed(event)
    if isinstance(events[-1], Failed):
        with pytest.raises(UpstreamRejected):
            assembler.reply()
    else:
        assert assembler.reply().model is not None


def _says_nothing(body: bytes) -> bool:
    """Tell random bytes from ones that happen to be a request, a reply or an event: those have one of these words."""
    return not any(word in body for word in (b"model", b"choices", b"\\u"))


@_shared
@given(body=st.binary(max_size=80).filter(_says_nothing))
def test_hostile_bytes(body: bytes) -> None:
    """Must show: any bytes anywhere raise only our errors."""
    with pytest.raises(InvalidRequest):
        _CODEC.peek(body)
    with pytest.raises(InvalidRequest):
        _CODEC.decode_request(body)
    with pytest.raises((UpstreamGarbage, UpstreamRejected)):
        _CODEC.decode_reply(body, Provenance())
    events = _CODEC.stream_decoder(Provenance()).feed(SseEvent("", body))
    assert isinstance(_CODEC.closes(SseEvent("", body)), bool)
    assert len(events) >= 1


@pytest.mark.parametrize(
    "field",
    [
        b'"seed":123456789012345678901234567890',
        b'"seed":-0.0',
        b'"seed":1.0',
        b'"seed":1e22',
        b'"seed":5e-324',
        b'"seed":"\\u0000\\u2028\\ud83d\\ude00"',
        b'"seed":' + b'{"a":[' * 200 + b"1" + b"]}" * 200,
    ],
    ids=["big integer", "minus zero", "whole float", "exponent", "smallest float", "escapes", "nesting"],
)
def test_edges_of_json_survive_a_change(field: bytes) -> None:
    """Identity law: values at JSON's edges go through the rebuild exactly, compared as exact numbers."""
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],' + field + b"}"
    request = _CODEC.decode_request(body)
    written = msgspec.json.encode(_CODEC.encode_request(request.evolve(model="n"), Target(), AdaptationLog()))
    before, after = json.loads(body), json.loads(written)
    assert after["model"] == "n"
    assert repr(after["seed"]) == repr(before["seed"])


@pytest.mark.parametrize("field", [b'"seed":1e400', b'"user":"\\ud800"', b'"user":"\xff"', b'"x":' + b"[" * 100_000])
def test_edges_of_json_that_are_refused(field: bytes) -> None:
    """Identity law: what cannot be kept exactly is refused as the caller's error, not altered."""
    with pytest.raises(InvalidRequest, match=r"not valid JSON|nested too deeply"):
        _CODEC.decode_request(b'{"model":"m","messages":[],' + field + b"}")


def test_double_keys_count_once() -> None:
    """Identity law: of a key given twice the last counts, as with every JSON reader; JSON equality cannot see it."""
    body = b'{"model":"a","model":"b","messages":[]}'
    assert _CODEC.decode_request(body).model == _CODEC.peek(body).model == json.loads(body)["model"] == "b"
