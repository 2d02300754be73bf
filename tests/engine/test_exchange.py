"""One exchange without a network: what the upstream is sent, what the caller gets, and that nothing else escapes."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from mustcall.core.errors import (
    InvalidRequest,
    MustcallError,
    UpstreamGarbage,
    UpstreamRedirected,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, Text
from mustcall.core.streams.events import Ended, Failed
from mustcall.engine.exchange import OtherForm, StreamedReply
from mustcall.engine.records import TurnProgress
from mustcall.testing import Fail
from mustcall.testing.render import Stamp, build_error
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from mustcall.wire.codec import Provenance
from mustcall.wire.crossing.sealing import SEAL_PREFIX, seal
from mustcall.wire.registry import codec_for
from support.compared import read_raw
from support.exchanging import (
    CROSSINGS,
    PATHS,
    SSE,
    TURN,
    asked,
    assembled,
    carry,
    crossings,
    decoded,
    endpoint,
    events,
    inbound,
    pairs,
    passed,
    said,
    streaming,
    whole,
    wires,
)
from support.sending import carried

# --- what the upstream is sent ----------------------------------------------------------------------------------------


@wires
async def test_same_wire_forwards_bytes(wire: Wire) -> None:
    """Nothing has to change, so nothing does: body, query and provider headers arrive as they came."""
    body = b"  " + json.dumps({"unknown_field": 1.10, **asked(wire)}, indent=3).encode() + b"\n"
    caller = {"anthropic-beta": "b", "openai-project": "p", "x-api-key": "k", "cookie": "c", "user-agent": "agent/1"}
    request = inbound(wire, body, headers=caller, query="beta=true&x=%2F")
    outcome = await carry(request, wire, FakeReply(whole(wire)))
    assert outcome.sent == body
    assert outcome.url == f"http://up.example/v1{PATHS[wire]}?beta=true&x=%2F"
    assert outcome.headers == {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "agent/1",
        "anthropic-beta": "b",
        "openai-project": "p",
        "x-api-key": "k",
        **({"anthropic-version": "2023-06-01"} if wire is Wire.MESSAGES else {}),
    }
    assert (outcome.status, outcome.body, outcome.adaptations) == (200, whole(wire), ())


@wires
async def test_same_wire_forwards_a_streams_bytes(wire: Wire) -> None:
    """The events of a healthy stream are the upstream's own, to the last byte."""
    pieces = events(wire, TURN)
    outcome = await carry(inbound(wire, stream=True), wire, FakeReply(*pieces, headers=SSE))
    assert (outcome.status, outcome.body, outcome.streamed) == (200, b"".join(pieces), True)
    assert outcome.headers["accept"] == "text/event-stream"


@wires
async def test_renamed_model_keeps_every_other_byte(wire: Wire) -> None:
    """Another model's name changes that name and no other value's bytes."""
    rest = json.dumps({key: value for key, value in asked(wire).items() if key != "model"})[1:-1]
    body = f'{{"model": "alias", "big": 123456789012345678901234567890, "number": 1.10, {rest}}}'
    outcome = await carry(inbound(wire, body.encode()), wire, FakeReply(whole(wire)), model='real "one"')
    assert json.loads(outcome.sent) == {**json.loads(body), "model": 'real "one"'}
    assert b'"big":123456789012345678901234567890,"number":1.10,' in outcome.sent
    assert b"alias" not in outcome.sent


@crossings
async def test_another_wire_gets_its_own_request(mine: Wire, theirs: Wire) -> None:
    """Translated: the upstream's path and key form, the caller's meaning, and none of the caller's query."""
    request = inbound(mine, headers={"authorization": "Bearer k", "anthropic-beta": "b"}, query="beta=true")
    outcome = await carry(request, theirs, FakeReply(whole(theirs)), model="renamed")
    assert outcome.url == f"http://up.example/v1{PATHS[theirs]}"
    assert outcome.headers == {
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "mustcall",
        **(
            {"anthropic-version": "2023-06-01", "x-api-key": "k"}
            if theirs is Wire.MESSAGES
            else {"authorization": "Bearer k"}
        ),
    }
    sent = codec_for(theirs).decode_request(outcome.sent)
    assert sent.model == "renamed"
    texts = [part.text for message in sent.messages for part in message.parts if isinstance(part, Text)]
    assert texts == ["hi"]


@pytest.mark.parametrize("body", [b"", b"[]", b"nope", b'{"model":'])
@wires
async def test_renaming_in_what_is_no_object(wire: Wire, body: bytes) -> None:
    """Only our errors: a body that is no JSON object is the caller's fault, with a new model name, too."""
    with pytest.raises(InvalidRequest):
        await carry(inbound(wire, body), wire, model="other")


def with_state(wire: Wire, state: str) -> bytes:
    """A request of this wire that hands reasoning back."""
    user = {"role": "user", "content": "hi"}
    match wire:
        case Wire.CHAT:
            details = [{"type": "reasoning.encrypted", "data": state}]
            assistant = {"role": "assistant", "content": "ok", "reasoning_details": details}
            return json.dumps({"model": "m", "messages": [user, assistant, user]}).encode()
        case Wire.RESPONSES:
            thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": state}
            said_ok = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]}
            return json.dumps({"model": "m", "input": [user, thought, said_ok, user]}).encode()
        case Wire.MESSAGES:
            blocks = [{"type": "thinking", "thinking": "", "signature": state}, {"type": "text", "text": "ok"}]
            assistant = {"role": "assistant", "content": blocks}
            return json.dumps({"model": "m", "max_tokens": 5, "messages": [user, assistant, user]}).encode()


@streaming
@pytest.mark.parametrize("issuer", ["up", "other"])
@pytest.mark.parametrize(("wire", "form"), CROSSINGS)
async def test_sealed_state_is_never_forwarded(wire: Wire, form: Wire, issuer: str, stream: bool) -> None:
    """Rule 124: on the same wire, too, a seal is opened or left out; its bytes never reach an upstream."""
    sealed = seal(OpaqueState(form, "opaque-state", issuer))
    body = with_state(wire, sealed)
    reply = FakeReply(*events(wire), headers=SSE) if stream else FakeReply(whole(wire))
    outcome = await carry(inbound(wire, body, stream=stream), wire, reply)
    assert SEAL_PREFIX.encode() not in outcome.sent
    assert sealed[len(SEAL_PREFIX) :].encode() not in outcome.sent
    assert b'"ok"' in outcome.sent
    assert b"opaque-state" not in outcome.sent


@wires
async def test_native_state_is_forwarded(wire: Wire) -> None:
    """Rule 124: state that was never sealed is none of our business and goes as bytes."""
    body = with_state(wire, "native-state")
    assert (await carry(inbound(wire, body), wire, FakeReply(whole(wire)))).sent == body


@wires
async def test_text_that_looks_sealed_is_text(wire: Wire) -> None:
    """What a user writes is carried, whatever it begins with."""
    body = json.dumps(asked(wire)).replace('"hi"', f'"{SEAL_PREFIX}is my text"').encode()
    outcome = await carry(inbound(wire, body), wire, FakeReply(whole(wire)))
    assert json.loads(outcome.sent) == json.loads(body)


async def test_nothing_is_sent_after_the_deadline() -> None:
    """Rule 97: without time left there is no call."""
    transport, clock = FakeTransport([]), FakeClock()
    with pytest.raises(UpstreamTimeout):
        await passed(inbound(Wire.CHAT), endpoint(Wire.CHAT), transport, clock, deadline=clock.monotonic())
    assert transport.calls == []


@pairs
async def test_retries_send_the_same_bytes(mine: Wire, theirs: Wire) -> None:
    """Rule 111: every attempt is the same call, and the retry is reported."""
    transport = FakeTransport([FakeReply(b"busy", status=503), UpstreamUnavailable("reset"), FakeReply(whole(theirs))])
    answer = await passed(inbound(mine), endpoint(theirs, retries=2), transport)
    least = 16 if theirs is Wire.RESPONSES else 5  # Responses takes no limit below 16
    limit = least if mine is Wire.MESSAGES else None
    bodies = [call.body or b"" for call in transport.calls]
    assert [read_raw(body) for body in bodies] == [carried(mine, theirs, limit=limit, tools=False)] * 3
    assert bodies == [bodies[0]] * 3
    assert [str(entry.kind) for entry in answer.adaptations].count("retried") == 2


# --- errors -----------------------------------------------------------------------------------------------------------


@streaming
@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 529])
@wires
async def test_errors_of_the_same_wire_are_verbatim(wire: Wire, status: int, stream: bool) -> None:
    """The upstream's own words, in its own bytes, with its own status."""
    body = json.dumps(build_error(Fail(status, "no such thing", code="odd"), wire, Stamp(0)), indent=2).encode()
    outcome = await carry(inbound(wire, stream=stream), wire, FakeReply(body, status=status))
    assert (outcome.status, outcome.body, outcome.streamed) == (status, body, False)


@streaming
@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 529])
@crossings
async def test_errors_of_another_wire_are_translated(mine: Wire, theirs: Wire, status: int, stream: bool) -> None:
    """The status and the words stay; the shape is the caller's."""
    body = json.dumps(build_error(Fail(status, "no such thing"), theirs, Stamp(0))).encode()
    outcome = await carry(inbound(mine, stream=stream), theirs, FakeReply(body, status=status))
    assert (outcome.status, outcome.streamed) == (status, False)
    value = json.loads(outcome.body)
    assert value["error"]["message"] == "no such thing"
    assert (value.get("type") == "error") is (mine is Wire.MESSAGES)
    assert ("code" in value["error"]) is (mine is not Wire.MESSAGES)


ODD_ERRORS: dict[str, tuple[bytes, str]] = {
    "html": (b"<html>Bad gateway</html>", "<html>Bad gateway</html>"),
    "nothing": (b"", "HTTP 418"),
    "text": (b"slow down, please", "slow down, please"),
    "half an object": (b'{"error": {"mess', '{"error": {"mess'),
    "a list": (b"[1, 2]", "1"),
    "a message": (b'{"message": "bare words"}', "bare words"),
    "a detail": (b'{"detail": "fastapi words"}', "fastapi words"),
    "not UTF-8": (b"\xff\xfe caf\xe9", "caf"),
}


@streaming
@pytest.mark.parametrize("odd", ODD_ERRORS)
@pairs
async def test_odd_error_bodies_are_wrapped(mine: Wire, theirs: Wire, odd: str, stream: bool) -> None:
    """A body that is no error of any wire becomes one of the caller's, and its words are kept."""
    body, words = ODD_ERRORS[odd]
    outcome = await carry(inbound(mine, stream=stream), theirs, FakeReply(body, status=418))
    assert (outcome.status, outcome.streamed) == (418, False)
    value = json.loads(outcome.body)
    assert words in value["error"]["message"]
    assert (value["error"] if mine is not Wire.MESSAGES else value)["request_id"] == "req_1"


@pairs
async def test_error_body_that_breaks_off(mine: Wire, theirs: Wire) -> None:
    """An error whose body never comes is still that error."""
    broken = FakeReply(b'{"err', UpstreamUnavailable("reset"), status=404)
    outcome = await carry(inbound(mine), theirs, broken)
    assert outcome.status == 404
    assert "404" in json.loads(outcome.body)["error"]["message"]


@streaming
@pairs
async def test_error_in_a_success_is_raised(mine: Wire, theirs: Wire, stream: bool) -> None:
    """An error that came with HTTP 200 is an error."""
    body = json.dumps(build_error(Fail(500, "lost it"), theirs, Stamp(0))).encode()
    with pytest.raises(UpstreamRejected, match="lost it") as caught:
        await carry(inbound(mine, stream=stream), theirs, FakeReply(body))
    assert caught.value.info().status >= 400


@pytest.mark.parametrize("theirs", [Wire.CHAT, Wire.MESSAGES])
async def test_overflow_is_an_event_where_clients_look_for_one(theirs: Wire) -> None:
    """Clients of the Responses wire act on a full context only when the stream says so."""
    message = "prompt is too long: 300000 tokens > 200000 maximum"
    body = json.dumps(build_error(Fail(400, message, code="context_length_exceeded"), theirs, Stamp(0))).encode()
    outcome = await carry(inbound(Wire.RESPONSES, stream=True), theirs, FakeReply(body, status=400))
    assert (outcome.status, outcome.streamed) == (200, True)
    last = decoded(Wire.RESPONSES, outcome.body)[-1]
    assert isinstance(last, Failed)
    assert last.error.code == "context_length_exceeded"
    asked_whole = await carry(inbound(Wire.RESPONSES), theirs, FakeReply(body, status=400))
    assert (asked_whole.status, asked_whole.streamed) == (400, False)


@streaming
@pytest.mark.parametrize("body", [b"", b"<html>Sign in</html>", b"[]", b"{}", b"null", b'{"choices"', b"\xff\xfe"])
@pairs
async def test_success_that_is_no_reply(mine: Wire, theirs: Wire, body: bytes, stream: bool) -> None:
    """A page, an empty body, half an object: garbage, never a reply."""
    with pytest.raises(UpstreamGarbage):
        await carry(inbound(mine, stream=stream), theirs, FakeReply(body))


@streaming
@pairs
async def test_redirect_is_no_reply(mine: Wire, theirs: Wire, stream: bool) -> None:
    """An upstream that has moved is reported, not followed."""
    moved = FakeReply(b"", status=302, headers={"location": "http://elsewhere.example/", "content-type": "text/html"})
    with pytest.raises(UpstreamRedirected, match=r"to http://elsewhere\.example/; redirects"):
        await carry(inbound(mine, stream=stream), theirs, moved)


# --- the other form than was asked for --------------------------------------------------------------------------------


@pairs
async def test_stream_asked_for_and_answered_in_one_piece(mine: Wire, theirs: Wire) -> None:
    """A stream is what the caller gets, complete and in its own events, and the change is reported."""
    request = inbound(mine, json.dumps(asked(mine, stream=True, tools=True)).encode(), stream=True)
    outcome = await carry(request, theirs, FakeReply(whole(theirs, TURN)))
    assert outcome.streamed
    assert "field_mapped" in outcome.adaptations
    reply = assembled(mine, outcome.body)
    assert said(reply) == "It is going to rain."
    assert [call.name for call in reply.calls] == ["weather", "patch"]


@pairs
async def test_one_piece_asked_for_and_answered_as_a_stream(mine: Wire, theirs: Wire) -> None:
    """One piece is what the caller gets, equal to what the stream said."""
    request = inbound(mine, json.dumps(asked(mine, tools=True)).encode())
    outcome = await carry(request, theirs, FakeReply(b"".join(events(theirs, TURN)), headers=SSE))
    assert (outcome.status, outcome.streamed) == (200, False)
    reply = codec_for(mine).decode_reply(outcome.body, Provenance())
    assert said(reply) == "It is going to rain."
    assert [call.name for call in reply.calls] == ["weather", "patch"]


@pairs
async def test_one_piece_asked_for_and_a_stream_cut(mine: Wire, theirs: Wire) -> None:
    """Half a stream is no reply."""
    with pytest.raises(MustcallError) as caught:
        await carry(inbound(mine), theirs, FakeReply(*events(theirs)[:2], headers=SSE))
    assert caught.value.info().code == "upstream_unavailable"


@streaming
@wires
async def test_a_broken_reply_in_the_other_form_is_not_asked_for_again(wire: Wire, stream: bool) -> None:
    """Rules 96, 111: `off` is one exchange; only failures before the answer are retried, and all calls are counted."""
    request = inbound(wire, stream=stream)
    broken = FakeReply(b"no JSON") if stream else FakeReply(*events(wire)[:2], headers=SSE)
    down = FakeReply(b"", status=503, headers={"content-type": "text/plain"})
    transport, progress = (
        FakeTransport([down, down, broken, *[FakeReply(whole(wire)) for _ in range(8)]]),
        TurnProgress(),
    )
    with pytest.raises(MustcallError) as caught:
        await passed(request, endpoint(wire, retries=4), transport, progress=progress)
    assert caught.value.info().code == ("upstream_garbage" if stream else "upstream_unavailable")
    assert [sent.body for sent in transport.calls] == [request.body] * 3
    record = progress.record
    assert record is not None
    assert (record.calls, len(record.attempts)) == (3, 1)
    assert [retry.why for retry in record.attempts[0].retries] == ["HTTP 503", "HTTP 503"]
    assert broken.closed


async def test_an_answer_in_the_other_form_is_given_once() -> None:
    """Rule 96: no call is made in its place."""
    reply = FakeReply(whole(Wire.CHAT))
    answered = OtherForm(reply, ())
    call = UpstreamCall(url="http://up.example/v1", headers={}, body=b"", timeouts=endpoint(Wire.CHAT).timeouts)
    assert await answered.send(call) is reply
    with pytest.raises(UpstreamUnavailable, match="no further call"):
        await answered.send(call)


@pytest.mark.parametrize("kind", ["TEXT/Event-Stream", "text/event-stream;charset=utf-8", " text/event-stream "])
async def test_content_type_in_any_spelling(kind: str) -> None:
    """What is a stream is told from its content type, however it is spelled."""
    reply = FakeReply(*events(Wire.CHAT), headers={"content-type": kind})
    assert (await carry(inbound(Wire.CHAT, stream=True), Wire.CHAT, reply)).body == b"".join(events(Wire.CHAT))


# --- streams that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before", [(), (b"",), (b"data: {",), (b"event: mess",)], ids=["none", "empty", "data", "name"]
)
@pytest.mark.parametrize("failure", [UpstreamTimeout("silence"), UpstreamUnavailable("reset"), None], ids=str)
@pairs
async def test_stream_that_fails_before_its_first_event(
    mine: Wire, theirs: Wire, failure: MustcallError | None, before: tuple[bytes, ...]
) -> None:
    """Nothing was sent, so it is a plain error with a status."""
    pieces = before if failure is None else (*before, failure)
    with pytest.raises(MustcallError) as caught:
        await carry(inbound(mine, stream=True), theirs, FakeReply(*pieces, headers=SSE))
    info = caught.value.info()
    if failure is None:
        assert info.status == 502
    else:
        assert (info.code, info.status, info.message) == (failure.code, failure.status, failure.message)


@pytest.mark.parametrize("failure", [UpstreamTimeout("silence"), UpstreamGarbage("huge"), None], ids=str)
@pairs
async def test_stream_that_fails_later(mine: Wire, theirs: Wire, failure: MustcallError | None) -> None:
    """What came is kept; the last event is the caller's wire's error event, and the reply is never complete."""
    cut = events(theirs)[:-1][:6]  # some of the text
    pieces = cut if failure is None else (*cut, failure)
    outcome = await carry(inbound(mine, stream=True), theirs, FakeReply(*pieces, headers=SSE))
    assert (outcome.status, outcome.streamed) == (200, True)
    seen = decoded(mine, outcome.body)
    assert isinstance(seen[-1], Failed)
    assert not any(isinstance(event, Ended) for event in seen)
    words = "complete" if failure is None else failure.message
    assert words in seen[-1].error.message
    if mine is theirs:
        assert outcome.body.startswith(b"".join(cut))


@wires
async def test_half_an_event_is_never_forwarded(wire: Wire) -> None:
    """A stream cut inside an event ends after the last whole one, and in an error."""
    first, second, *_ = events(wire)
    reply = FakeReply(first + second[:7], UpstreamUnavailable("reset"), headers=SSE)
    outcome = await carry(inbound(wire, stream=True), wire, reply)
    rest = outcome.body.removeprefix(first)
    assert not rest.startswith(second[:7] + b"\n")
    assert rest == codec_for(wire).encode_stream_error(UpstreamUnavailable("reset").info(), "req_1", first)


@wires
async def test_failure_after_the_end_is_no_failure(wire: Wire) -> None:
    """A connection that breaks after the last event has done its work."""
    pieces = events(wire)
    reply = FakeReply(*pieces, UpstreamUnavailable("reset"), headers=SSE)
    assert (await carry(inbound(wire, stream=True), wire, reply)).body == b"".join(pieces)


@wires
async def test_last_event_without_its_blank_line(wire: Wire) -> None:
    """A server that hangs up right after its last line is complete; the line end is added for the caller."""
    stream = b"".join(events(wire))
    outcome = await carry(inbound(wire, stream=True), wire, FakeReply(stream.rstrip(b"\n"), headers=SSE))
    assert isinstance(decoded(wire, outcome.body)[-1], Ended)
    assert outcome.body == stream


@pairs
async def test_caller_that_leaves_closes_the_reply(mine: Wire, theirs: Wire) -> None:
    """Rule 116: giving the stream up gives the upstream's answer up."""
    reply = FakeReply(*events(theirs), headers=SSE)
    answer = await passed(inbound(mine, stream=True), endpoint(theirs), FakeTransport([reply]))
    assert isinstance(answer, StreamedReply)
    assert not reply.closed
    await answer.chunks.aclose()
    assert reply.closed


class Stuck(FakeReply):
    """A reply whose body never comes."""

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Wait for ever."""
        await asyncio.Event().wait()
        yield b""


@streaming
@pytest.mark.parametrize("headers", [{}, SSE], ids=["json", "sse"])
@pairs
async def test_cancelled_exchange_closes_the_reply(
    mine: Wire, theirs: Wire, headers: dict[str, str], stream: bool
) -> None:
    """Rule 116: a task that is cancelled while it waits for the answer gives it up."""
    reply = Stuck(headers=headers)
    task = asyncio.create_task(carry(inbound(mine, stream=stream), theirs, reply))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reply.closed
