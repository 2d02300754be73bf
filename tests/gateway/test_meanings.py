"""Meanings that clients act on by themselves: they must survive the crossing. Each was seen with a real client."""

import json
from typing import Any

import msgspec
import pytest

from mustcall.gateway.config.settings import settings_from_flags
from mustcall.testing import Call, Fail, Raw, RawStream, Recorded, Say, ScriptedUpstream, StreamError, Turn
from mustcall.testing.gateway import RunningGateway
from mustcall.testing.transport import FakeClock
from support.http import post
from support.sdk import Ask, Failure, Seen, ask
from support.sending import carried_from_sdk

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


@pytest.mark.parametrize("caller_wire", WIRES)
@pytest.mark.parametrize("upstream_wire", WIRES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", ["my.tool", "n" * 80, "émoji-🔧", "a b", "tool_call", "final_answer"])
def test_odd_tool_names_come_back_as_offered(caller_wire: str, upstream_wire: str, stream: bool, name: str) -> None:
    """Rule 129, wires.md 1.15: a name an upstream does not take is mapped there and back; no name is special."""
    schema: dict[str, Any] = {"type": "object", "properties": {}}

    def call_it(request: Recorded) -> Turn:
        tool = request.body["tools"][0]
        return Turn(Call(tool.get("function", tool)["name"], {"q": 1}))

    with (
        ScriptedUpstream(call_it, strict=caller_wire != upstream_wire) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(tools=((name, schema),)), stream=stream)
    assert isinstance(seen, Seen)
    assert [(called, arguments) for _, called, arguments in seen.calls] == [(name, {"q": 1})]


@pytest.mark.parametrize("caller_wire", WIRES)
def test_calls_that_contradict_themselves_are_never_delivered(caller_wire: str) -> None:
    """Contract 5: a lost arguments delta makes no call of two halves: the upstream's last word on it is delivered."""
    with ScriptedUpstream(default=Turn(Call("f", {"path": "/etc/hosts", "n": 1}))) as upstream:
        body = post(upstream.url + "/v1/responses", {"model": "m", "input": "hi", "stream": True}).body
    events = body.split(b"\n\n")
    deltas = [number for number, event in enumerate(events) if b"function_call_arguments.delta" in event]
    assert len(deltas) > 1
    del events[deltas[1]]
    with (
        ScriptedUpstream([RawStream([b"\n\n".join(events)])]) as upstream,
        RunningGateway(f"responses={upstream.base_url}") as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(tools=(("f", {"type": "object"}),)), stream=True)
        assert len(upstream.requests) == 1
    assert isinstance(seen, Seen)
    assert [arguments for _, _, arguments in seen.calls] == [{"path": "/etc/hosts", "n": 1}]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_thinking_in_content_parts_is_thinking(stream: bool) -> None:
    """Mistral puts thinking into content parts: it is shown as thinking, never as text."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    content = [thought, {"type": "text", "text": "Yes."}]
    whole: dict[str, Any] = {"id": "x", "model": "m", "choices": [{"index": 0, "finish_reason": "stop"}]}
    if stream:
        whole["choices"] = [{"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": "stop"}]
        answer: Any = RawStream([b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(whole).encode()])
    else:
        whole["choices"][0]["message"] = {"role": "assistant", "content": content}
        answer = Raw(200, json.dumps(whole).encode())
    with ScriptedUpstream([answer]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        seen = ask("messages", gateway.url, Ask(), stream=stream)
    assert isinstance(seen, Seen)
    assert (seen.thinking, seen.text) == ("hm", "Yes.")


@pytest.mark.parametrize("caller_wire", WIRES)
def test_thinking_that_ends_without_a_start_is_thinking(caller_wire: str) -> None:
    """Rule 65: where the prompt opened the section, all before its end is thinking; the marker is never shown."""
    turn = Turn(Say("First I think.\n</think>\n\nThen I answer."))
    with ScriptedUpstream(default=turn) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        whole = ask(caller_wire, gateway.url, Ask(), stream=False)
        streamed = ask(caller_wire, gateway.url, Ask(), stream=True)
        assert len(upstream.requests) == 2
    assert isinstance(whole, Seen)
    assert (whole.thinking, whole.text) == ("First I think.\n", "Then I answer.")
    assert isinstance(streamed, Seen)
    # What had gone out as text before the section ended stays text; how much that is depends on when it came.
    assert (streamed.thinking + streamed.text) == "First I think.\nThen I answer."


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


@pytest.mark.parametrize("upstream_wire", WIRES)
def test_failed_stream_asked_again_in_one_piece(upstream_wire: str) -> None:
    """wires.md 1.7: Claude Code repeats a failed stream as a request without one; it is served."""
    # An error that waiting does not mend, so that the gateway does not try again by itself.
    broke = StreamError(Turn(Say("It is going to rain.")), after=6, message="Your credit balance is too low.")
    script = [broke, Turn(Say("Rain."))]
    with ScriptedUpstream(script) as upstream, RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway:
        broken = ask("messages", gateway.url, Ask(), stream=True)
        assert len(upstream.requests) == 1
        again = ask("messages", gateway.url, Ask(), stream=False)
        assert len(upstream.requests) == 2
    assert isinstance(broken, Failure)
    assert "credit balance" in broken.message
    assert isinstance(again, Seen)
    assert again.text == "Rain."


@pytest.mark.parametrize("caller_wire", WIRES)
@pytest.mark.parametrize("upstream_wire", WIRES)
def test_failed_stream_is_tried_again_while_nothing_was_shown(caller_wire: str, upstream_wire: str) -> None:
    """Rules 41, 111, 135: a stream that breaks before its first word is sent again; the caller sees one reply."""
    script = [StreamError(Turn(Say("It is going to rain.")), after=1, message="broke"), Turn(Say("Rain."))]
    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}", clock=FakeClock()) as gateway,
    ):
        seen = ask(caller_wire, gateway.url, Ask(), stream=True)
        sent = carried_from_sdk(caller_wire, upstream_wire, stream=True)
        assert [request.body for request in upstream.requests] == [sent] * 2
        assert len({bytes(request.raw) for request in upstream.requests}) == 1
    assert isinstance(seen, Seen)
    assert seen.text == "Rain."


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        ("responses", {"input": "hi", "tools": [{"type": "web_search"}], "tool_choice": "required"}),
        (
            "messages",
            {
                "max_tokens": 5,
                "messages": [{"role": "user", "content": "hi"}],
                "tools": [{"name": "later", "input_schema": {"type": "object"}, "defer_loading": True}],
                "tool_choice": {"type": "tool", "name": "later"},
            },
        ),
    ],
)
def test_a_demand_is_never_lost_silently(wire: str, body: dict[str, Any]) -> None:
    """Rule 8: a forced tool that cannot be offered is an error that names it, never a request without the force."""
    with ScriptedUpstream() as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        answer = post(f"{gateway.url}/v1/{wire}", {"model": "m", **body})
        assert answer.status == 400
        assert "tool_choice" in answer.json["error"]["message"]
        assert upstream.requests == []


def test_large_limits_are_clamped() -> None:
    """wires.md 1.4: a limit above the upstream's own is lowered to it, with a note; on the same wire it is not."""
    with ScriptedUpstream(default=Turn(Say("ok"))) as upstream:
        settings = settings_from_flags(f"up:chat={upstream.base_url}")
        endpoint = msgspec.structs.replace(settings.endpoints[0], max_output_tokens=32000)
        with RunningGateway(settings=msgspec.structs.replace(settings, endpoints=(endpoint,))) as gateway:
            messages = [{"role": "user", "content": "hi"}]
            body = {"model": "m", "max_tokens": 262144, "messages": messages}
            answer = post(f"{gateway.url}/v1/messages", body)
            assert "value_clamped:max_tokens" in answer.headers["x-mustcall-adaptations"]
            post(f"{gateway.url}/v1/chat/completions", body)
        assert upstream.requests[0].body["max_completion_tokens"] == 32000
        assert upstream.requests[1].body["max_tokens"] == 262144
