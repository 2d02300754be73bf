"""Rule 144: a typed model failure does not start a storm of retries, whoever asks and however often."""

import json
from functools import cached_property
from typing import Any

import anthropic
import openai
import pytest

from mustcall.core.errors import EmptyReply, ForceUnmet, MustcallError, UpstreamGarbage, UpstreamUnavailable
from mustcall.core.origin import Wire
from mustcall.gateway.connections.repeated_failures import Failures, RequestIdentity
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Answer, Cut, Fail, Hang, Reset, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from mustcall.testing.transport import FakeClock
from support.gated import KEYS, PATHS, Listener, events_of
from support.http import post
from support.sending import with_steps

WIRES = tuple(PATHS)
STATUS = {"chat": 422, "responses": 400, "messages": 502}
TYPES = {"chat": "invalid_request_error", "responses": "invalid_request_error", "messages": "api_error"}
wires = pytest.mark.parametrize("wire", WIRES)
streaming = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
EMPTY = Turn(Say(" "))
HELLO = Turn(Say("Hello there."))
FAULTS: dict[str, Answer] = {"status": Fail(503, "busy"), "reset": Reset(HELLO), "cut": Cut(HELLO, after=60)}
ASKED = RequestIdentity(Wire.CHAT, "", {"authorization": "Bearer a"}, b"{}")


def asking(wire: str, *, stream: bool = False, words: str = "hi") -> dict[str, Any]:
    """A request that asks for words."""
    said = words if wire == "responses" else [{"role": "user", "content": words}]
    body: dict[str, Any] = {"model": "m", "input" if wire == "responses" else "messages": said}
    room = {"max_tokens": 500} if wire == "messages" else {"store": False} if wire == "responses" else {}
    return body | room | ({"stream": True} if stream else {})


def emptied(wire: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """What is sent for a request that is answered with nothing: itself, and twice with a reminder."""
    again = with_steps(Wire(wire), body, Wording().empty)
    return [body, again, again]


# --- what a failure looks like ----------------------------------------------------------------------------------------


@streaming
@wires
def test_the_status_is_one_that_clients_do_not_retry(wire: str, stream: bool) -> None:
    """Rule 144: chat 422, responses 400, messages 502, always with `x-should-retry: false` and the error's own code."""
    with ScriptedUpstream([EMPTY] * 9) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        got = post(gateway.url + PATHS[wire], asking(wire, stream=stream), KEYS)
        assert [request.body for request in upstream.requests] == emptied(wire, asking(wire, stream=stream))
    assert (got.status, got.headers["x-should-retry"]) == (STATUS[wire], "false")
    assert got.json["error"]["type"] == TYPES[wire]
    assert got.json["error"]["message"].startswith("EmptyReply: ")
    assert got.headers["x-mustcall-outcome"] == "failure"


@wires
def test_the_last_event_is_one_that_clients_do_not_retry(wire: str) -> None:
    """Rule 144: in a stream that has begun, Responses fail with `invalid_prompt`, others with no server's error."""
    body = asking(wire, stream=True)
    with (
        ScriptedUpstream([Hang(EMPTY, head=True), *[EMPTY] * 8]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.02) as gateway,
        Listener(gateway.url, wire, body, {"x-mustcall-hold": "true"}) as client,
    ):
        client.wait_for_bytes(1)
        upstream.release()
        last = events_of(client.read_rest())[-1]
        assert [request.body for request in upstream.requests] == emptied(wire, body)
    error = last["response"]["error"] if wire == "responses" else last["error"]
    if wire == "responses":
        assert (last["type"], error["code"]) == ("response.failed", "invalid_prompt")
    else:
        assert error["type"] == TYPES[wire]
    assert error["message"].startswith("EmptyReply: ")


@wires
def test_official_sdks_ask_once(wire: str) -> None:
    """Rule 144: SDKs with their usual retries send a request that the model fails once; ours are three calls."""
    with ScriptedUpstream([EMPTY] * 20) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as caught:
            ask_by_sdk(wire, gateway)
        assert [request.body for request in upstream.requests] == emptied(wire, asking(wire))
    assert caught.value.status_code == STATUS[wire]


def ask_by_sdk(wire: str, gateway: RunningGateway) -> None:
    """Ask with an official SDK that retries as often as it does by itself."""
    if wire == "messages":
        with anthropic.Anthropic(base_url=gateway.url, api_key="k") as claude:
            claude.messages.create(model="m", max_tokens=500, messages=[{"role": "user", "content": "hi"}])
        return
    with openai.OpenAI(base_url=gateway.base_url, api_key="k") as client:
        if wire == "chat":
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        else:
            client.responses.create(model="m", input="hi", store=False)


# --- the same request again -------------------------------------------------------------------------------------------


@streaming
@wires
def test_the_same_request_is_answered_from_memory(wire: str, stream: bool) -> None:
    """Rule 144: for 60 s the same bytes get the same failure without an upstream call; then they are sent again."""
    clock = FakeClock()
    body = asking(wire, stream=stream)
    with (
        ScriptedUpstream([EMPTY] * 9) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", clock=clock) as gateway,
    ):
        url = gateway.url + PATHS[wire]
        first = post(url, body, KEYS)
        clock.advance(30)
        again = post(url, body, KEYS)
        assert [request.body for request in upstream.requests] == emptied(wire, body)
        clock.advance(31)
        post(url, body, KEYS)
        assert [request.body for request in upstream.requests] == emptied(wire, body) * 2
    assert (again.status, again.headers["x-should-retry"]) == (STATUS[wire], "false")
    assert again.json["error"]["message"] == first.json["error"]["message"]
    remembered = {"request_id": first.headers["x-mustcall-request-id"], "seconds_ago": 30.0}
    assert again.json["error"]["details"] == {**first.json["error"]["details"], "remembered": remembered}
    assert (again.headers["x-mustcall-outcome"], again.headers["x-mustcall-attempts"]) == ("failure", "0")
    assert again.headers["x-mustcall-adaptations"] == "reported:remembered"


@wires
def test_a_failure_in_a_stream_is_remembered(wire: str) -> None:
    """Rule 144: also where the first answer had begun, so that its failure was an event."""
    body = asking(wire, stream=True)
    with (
        ScriptedUpstream([Hang(EMPTY, head=True), *[EMPTY] * 8]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.02) as gateway,
    ):
        held = {"x-mustcall-hold": "true"}
        with Listener(gateway.url, wire, body, held) as client:
            client.wait_for_bytes(1)
            upstream.release()
            client.read_rest()
        again = post(gateway.url + PATHS[wire], json.dumps(body).encode(), {**KEYS, **held})
        assert again.status == STATUS[wire]
        assert [request.body for request in upstream.requests] == emptied(wire, body)


@pytest.mark.parametrize(
    ("changed", "headers"),
    [
        ({"temperature": 0.5}, {}),
        ({}, {"authorization": "Bearer sk-other"}),
        ({}, {"x-mustcall-hold": "true"}),
        ({}, {"x-mustcall-remember-failures": "0"}),
        ({}, {"openai-beta": "something"}),
    ],
    ids=["other body", "other key", "other controls", "switched off by the caller", "other provider header"],
)
def test_another_request_is_sent(changed: dict[str, Any], headers: dict[str, str]) -> None:
    """Rule 144: only the same bytes of the same key with the same meaning are answered from memory."""
    key = {"authorization": "Bearer sk-test"}
    with ScriptedUpstream([EMPTY] * 9) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        url = gateway.url + PATHS["chat"]
        post(url, asking("chat"), key)
        post(url, asking("chat") | changed, key | headers)
        sent = emptied("chat", asking("chat")) + emptied("chat", asking("chat") | changed)
        assert [request.body for request in upstream.requests] == sent


def test_success_is_not_remembered() -> None:
    """Rule 144: nothing but failures is."""
    with ScriptedUpstream([Turn(Say("Yes."))] * 2) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        for _ in range(2):
            assert post(gateway.url + PATHS["chat"], asking("chat"), KEYS).status == 200
        assert len(upstream.requests) == 2


# --- transport faults -------------------------------------------------------------------------------------------------


@streaming
@wires
def test_tries_of_a_client_are_not_multiplied_by_ours(wire: str, stream: bool) -> None:
    """Rule 144: a refused first request is tried three times; the same one again once, and still goes through."""
    busy = Fail(503, "busy")
    with (
        ScriptedUpstream([busy] * 4 + [Turn(Say("Yes."))]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", clock=FakeClock()) as gateway,
    ):
        seen: list[tuple[int, int]] = []
        for _ in range(3):
            status = post(gateway.url + PATHS[wire], asking(wire, stream=stream), KEYS).status
            seen.append((status, len(upstream.requests)))
        assert [request.body for request in upstream.requests] == [asking(wire, stream=stream)] * 5
    assert seen == [(503, 3), (503, 4), (200, 5)]


@pytest.mark.parametrize(
    "headers", [{"x-stainless-retry-count": "1"}, {"user-agent": "codex_cli_rs/0.60.0"}], ids=["count", "agent"]
)
@pytest.mark.parametrize("fault", FAULTS)
@streaming
@wires
def test_a_client_known_to_try_again_gets_one_call(
    wire: str, stream: bool, fault: str, headers: dict[str, str]
) -> None:
    """Rule 144: what a client does by itself is not done here as well, whatever broke on the way."""
    with (
        ScriptedUpstream([FAULTS[fault]] * 6) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", clock=FakeClock()) as gateway,
    ):
        for sent in (1, 2):
            assert post(gateway.url + PATHS[wire], asking(wire, stream=stream), KEYS | headers).status >= 500
            assert len(upstream.requests) == sent


def test_an_sdk_and_a_persistent_fault() -> None:
    """Rule 144: the official SDK's two retries add to ours, five calls in all in place of nine."""
    with (
        ScriptedUpstream([Fail(503, "busy", headers={"retry-after": "0"})] * 9) as upstream,
        RunningGateway(f"chat={upstream.base_url}", clock=FakeClock()) as gateway,
        openai.OpenAI(base_url=gateway.base_url, api_key="k", max_retries=2) as client,
    ):
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert [request.body for request in upstream.requests] == [asking("chat")] * 5


# --- the memory itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (EmptyReply("nothing"), True),
        (ForceUnmet("no call", details={"a": 1}), True),
        (UpstreamUnavailable("reset"), False),
        (UpstreamGarbage("what?"), False),
        (MustcallError("ours"), None),
    ],
)
def test_what_is_remembered(error: MustcallError, final: bool | None) -> None:
    """Rule 144: a model's failure for its answer, a fault on the way for the count of tries, nothing else."""
    failures = Failures()
    failures.note(ASKED, error, "req_1", None, 0.0)
    known = failures.find(ASKED, 59.9, 60.0)
    assert failures.find(ASKED, 60.0, 60.0) is None
    again = known.again(2.5) if known is not None else None
    assert ((again is not None) if known is not None else None) is final
    if again is not None:
        assert type(again) is type(error)
        assert again.message == error.message
        assert again.details == {**(error.details or {}), "remembered": {"request_id": "req_1", "seconds_ago": 2.5}}
        assert "remembered" not in (error.details or {})


def test_the_memory_is_bounded() -> None:
    """Rule 144: the oldest failures go first, and old ones go with the next that comes."""
    failures = Failures(most=3)
    bodies = [b"%d" % number for number in range(5)]
    for number, body in enumerate(bodies):
        failures.note(RequestIdentity(Wire.CHAT, "", {}, body), EmptyReply("x"), "r", None, float(number))
    found = [failures.find(RequestIdentity(Wire.CHAT, "", {}, body), 5.0, 60.0) is not None for body in bodies]
    assert found == [False, False, True, True, True]
    failures.note(RequestIdentity(Wire.CHAT, "", {}, b"late"), EmptyReply("x"), "r", None, 10_000.0)
    assert len(failures) == 1


def test_lengths_nobody_failed_with_are_not_digested() -> None:
    """Rule 112: a healthy request pays one lookup."""
    failures = Failures()
    failures.note(ASKED, EmptyReply("x"), "r", None, 0.0)

    class Untouched(RequestIdentity, frozen=True):
        @cached_property
        def digest(self) -> bytes:
            raise AssertionError("a digest was made")

    assert failures.find(Untouched(Wire.CHAT, "", {}, b"another length"), 0.0, 60.0) is None
