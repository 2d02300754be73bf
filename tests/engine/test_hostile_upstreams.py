"""Whatever an upstream sends, only our errors leave an exchange."""

import asyncio
import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mustcall.core.errors import (
    ErrorInfo,
    MustcallError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.origin import Wire
from mustcall.core.streams.events import Ended, Failed
from mustcall.engine.exchange import Inbound
from mustcall.testing.transport import FakeReply
from mustcall.wire.registry import codec_for
from support.exchanging import SSE, TURN, asked, carry, decoded, events, inbound, pairs, streaming, whole

# --- hostile upstreams: only our errors, whatever the bytes -----------------------------------------------------------

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([2**70, -1.5, 1e300])
    | st.text(max_size=3)
    | st.sampled_from(["stop", "tool_calls", "text", "message", "function_call", "tool_use", "weather", "patch", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["type", "text", "index", "id", "error", "message", "delta", "content", "usage"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=4,
)


def _replace_somewhere(draw: st.DrawFn, value: Any) -> Any:
    """Return the value with one place in it replaced or removed."""
    if isinstance(value, (dict, list)) and value and draw(st.integers(0, 4)):
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        changed: Any = value.copy()
        if draw(st.integers(0, 4)):
            changed[key] = _replace_somewhere(draw, changed[key])
        else:
            del changed[key]
        return changed
    return draw(JSON_VALUES)


@st.composite
def bodies(draw: st.DrawFn, wire: Wire) -> bytes:
    """Bytes, JSON, or a reply of this wire that is wrong in a place or two."""
    kind = draw(st.sampled_from(["bytes", "json", "reply", "reply", "reply", "reply"]))
    if kind == "bytes":
        return draw(st.binary(max_size=30))
    if kind == "json":
        return json.dumps(draw(JSON_VALUES)).encode()
    value = json.loads(whole(wire, TURN))
    for _ in range(draw(st.integers(1, 3))):
        value = _replace_somewhere(draw, value)
    return json.dumps(value).encode()


def _mangled(draw: st.DrawFn, event: bytes) -> bytes:
    """Return an event with one place of its data replaced."""
    head, mark, data = event.partition(b"data: ")
    try:
        value = json.loads(data)
    except ValueError:
        return event
    return head + mark + json.dumps(_replace_somewhere(draw, value)).encode() + b"\n\n"


@st.composite
def chunk_lists(draw: st.DrawFn, wire: Wire) -> list[bytes | MustcallError]:
    """Bytes, or a stream of this wire: mangled, shuffled, cut anywhere, with or without a failure at its end."""
    if not draw(st.integers(0, 4)):
        pieces: list[bytes | MustcallError] = [*draw(st.lists(st.binary(max_size=20), max_size=4))]
    else:
        stream = events(wire, TURN)
        for _ in range(draw(st.integers(0, 3))):
            at = draw(st.integers(0, len(stream) - 1))
            match draw(st.sampled_from(["mangle", "mangle", "mangle", "drop", "repeat", "swap", "noise"])):
                case "drop" if len(stream) > 1:
                    del stream[at]
                case "repeat":
                    stream.insert(at, stream[at])
                case "swap":
                    stream[at], stream[0] = stream[0], stream[at]
                case "noise":
                    stream.insert(at, draw(st.binary(max_size=10)) + b"\n\n")
                case _:
                    stream[at] = _mangled(draw, stream[at])
        joined = b"".join(stream)
        cuts = sorted(draw(st.lists(st.integers(0, len(joined)), max_size=4)))
        end = draw(st.sampled_from([len(joined), len(joined), *cuts]))
        borders = [0, *(cut for cut in cuts if cut < end), end]
        pieces = [joined[one:two] for one, two in pairwise(borders)]
    if draw(st.booleans()):
        pieces.append(draw(st.sampled_from([UpstreamUnavailable("reset"), UpstreamTimeout("silence")])))
    return pieces


def top_level(body: bytes) -> dict[str, msgspec.Raw]:
    """Read an object's own fields: what is nested in them may be too deep for any reader."""
    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])


async def check_only_our_errors(request: Inbound, theirs: Wire, reply: FakeReply) -> None:
    """Make the exchange: its answer is the caller's wire's, or its failure is ours and can be told on that wire."""
    mine = codec_for(request.wire)
    try:
        outcome = await carry(request, theirs, reply)
    except MustcallError as error:
        info: ErrorInfo = error.info()
        assert 400 <= info.status <= 599
        assert json.loads(msgspec.json.encode(mine.encode_error(info, "req_1")))["error"]["message"]
        return
    if outcome.streamed:
        assert outcome.body
        assert isinstance(decoded(request.wire, outcome.body)[-1], Ended | Failed)
    elif outcome.status < 400:
        assert top_level(outcome.body)
    else:
        assert "error" in top_level(outcome.body)


def deep(before: bytes, depth: int, after: bytes) -> bytes:
    """A body with a value nested this deeply in it."""
    return before + b"[" * depth + b"]" * depth + after


def critical_depths() -> range:
    """The depths around the one that can just be read here: a little further down the stack it cannot be written."""
    least, most = 1, 1 << 17
    while most - least > 1:
        middle = (least + most) // 2
        try:
            msgspec.json.decode(deep(b"", middle, b""))
        except RecursionError:
            most = middle
        else:
            least = middle
    return range(max(least - 60, 1), least + 3)


DEEP_REPLIES = {
    Wire.CHAT: (
        b'{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"x","annotations":',
        b"}}]}",
    ),
    Wire.RESPONSES: (b'{"output":[{"type":"web_search_call","id":"w","status":"completed","action":', b"}]}"),
    Wire.MESSAGES: (
        b'{"stop_reason":"end_turn","content":[{"type":"server_tool_use","id":"x","name":"f","input":{"a":',
        b"}}]}",
    ),
}


@streaming
@pairs
async def test_deeply_nested_replies(mine: Wire, theirs: Wire, stream: bool) -> None:
    """A reply that can just be read but not be written is the upstream's garbage, not our crash."""
    before, after = DEEP_REPLIES[theirs]
    statuses: set[int] = set()
    for depth in critical_depths():
        try:  # what comes back may be too deep to be read here
            outcome = await carry(inbound(mine, stream=stream), theirs, FakeReply(deep(before, depth, after)))
        except MustcallError as error:
            statuses.add(error.info().status)
        else:
            statuses.add(outcome.status)
    assert 200 in statuses
    assert statuses <= {200, 502}


@pairs
async def test_deeply_nested_errors(mine: Wire, theirs: Wire) -> None:
    """The same for an error: its status stays, however odd its body."""
    for depth in critical_depths():
        for before, after in ((b"", b""), (b'{"error":', b"}"), (b'{"error":{"message":"x","details":{"a":', b"}}}")):
            reply = FakeReply(deep(before, depth, after), status=400)
            assert (await carry(inbound(mine), theirs, reply)).status == 400


hostile = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pairs
@hostile
@given(data=st.data())
def test_any_body(mine: Wire, theirs: Wire, data: st.DataObject) -> None:
    """Whatever an upstream answers in one piece, with whatever status: a reply, an error body, or our own error."""
    stream = data.draw(st.booleans(), "stream")
    body = data.draw(bodies(theirs), "body")
    status = data.draw(st.sampled_from([200, 200, 200, 201, 302, 400, 500]), "status")
    request = inbound(mine, json.dumps(asked(mine, stream=stream, tools=True)).encode(), stream=stream)
    asyncio.run(check_only_our_errors(request, theirs, FakeReply(body, status=status)))


@pairs
@hostile
@given(data=st.data())
def test_any_chunks(mine: Wire, theirs: Wire, data: st.DataObject) -> None:
    """Whatever an upstream streams: a stream that ends as streams do, a whole reply, or our own error."""
    stream = data.draw(st.booleans(), "stream")
    pieces = data.draw(chunk_lists(theirs), "pieces")
    request = inbound(mine, json.dumps(asked(mine, stream=stream, tools=True)).encode(), stream=stream)
    asyncio.run(check_only_our_errors(request, theirs, FakeReply(*pieces, headers=SSE)))
