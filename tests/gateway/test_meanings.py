"""Meanings that clients act on by themselves: they must survive the crossing. Each was seen with a real client."""

from typing import Any

import pytest

from mustcall.testing import Fail, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import post
from support.sdk import Ask, Failure, ask

WIRES = ("chat", "responses", "messages")
WORDS = {
    "openai": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
}


@pytest.mark.parametrize("caller_wire", WIRES)
@pytest.mark.parametrize("upstream_wire", WIRES)
@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_prompts_that_do_not_fit(caller_wire: str, upstream_wire: str, words: str, stream: bool) -> None:
    """Rule 111: overflow is not retried, and is told in the words clients of each wire compact their history on."""
    with (
        ScriptedUpstream([Fail(400, WORDS[words])]) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(), stream=stream)
        assert len(upstream.requests) == 1
    assert isinstance(seen, Failure)
    assert WORDS[words] in seen.message
    if caller_wire == "messages" and upstream_wire != "messages":
        assert seen.message.lower().count("prompt is too long") == 1
    if caller_wire != upstream_wire:
        assert seen.status == (None if stream and caller_wire == "responses" else 400)


def test_overflow_reaches_a_responses_stream_as_its_event() -> None:
    """Codex compacts only on `response.failed` with this code, in a stream."""
    with (
        ScriptedUpstream([Fail(400, WORDS["anthropic"])]) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
    ):
        answer = post(gateway.url + "/v1/responses", {"model": "m", "input": "hi", "stream": True})
    assert answer.status == 200
    assert b"event: response.created" in answer.body
    assert b"event: response.failed" in answer.body
    assert b'"code":"context_length_exceeded"' in answer.body


@pytest.mark.parametrize("upstream_wire", ["chat", "messages"])
def test_references_to_state_nobody_keeps(upstream_wire: str) -> None:
    """A reference to a call is refused with the fix; one to a message is left out, with a note."""
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "hi"},
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "content": "go on"},
    ]
    call: list[dict[str, Any]] = [
        {"type": "item_reference", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        url = gateway.url + "/v1/responses"
        fine = post(url, {"model": "m", "input": items})
        assert fine.status == 200
        assert "part_dropped:item_reference" in fine.headers["x-mustcall-adaptations"]
        assert fine.json["store"] is False
        refused = post(url, {"model": "m", "input": items + call})
        assert refused.status == 400
        assert "'fc_1'" in refused.json["error"]["message"]
        assert "store: false" in refused.json["error"]["message"]
        chained = post(url, {"model": "m", "input": "hi", "previous_response_id": "resp_1"})
        assert (chained.status, chained.json["error"]["code"]) == (400, "previous_response_not_found")
        assert len(upstream.requests) == 1


def test_verbosity_crosses_to_chat() -> None:
    """`text.verbosity` of Responses is `verbosity` of chat."""
    with ScriptedUpstream([Turn(Say("ok"))]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        post(gateway.url + "/v1/responses", {"model": "m", "input": "hi", "text": {"verbosity": "low"}})
        assert upstream.requests[0].body["verbosity"] == "low"
