"""Contract 3: same wire in and out, what came in goes out, unknown fields and bytes included."""

import json
import socket
import threading
from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.testing import Call, Raw, RawStream, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import post

TOOL = {"type": "object", "properties": {"q": {"type": "string"}}, "x-vendor": [1, None]}

#: Bodies as real clients send them, with everything a canonical request has no word for.
SHAPES: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]},
                {"role": "developer", "content": "d"},
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "parsed": None,
                    "reasoning_content": "",
                    "provider_specific_fields": {"a": 1},
                    "tool_calls": [
                        {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "name": "f", "content": [{"type": "text", "text": "r"}]},
                {"role": "system", "content": "late"},
                {"role": "user", "content": "again"},
            ],
            "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search_preview"}],
            "tool_choice": "auto",
            "parallel_tool_calls": False,
            "max_completion_tokens": 5,
            "stop": ["Observation:"],
            "thinking": {"type": "enabled"},
            "n": 2,
            "logit_bias": {"50256": -100},
            "big": 123456789012345678901234567890,
            "exact": 1.0,
            "unknown": {"nested": [True, None, "\u2028"]},
        },
    ],
    "responses": [
        {"model": "m", "input": "hi"},
        {
            "model": "m",
            "input": [
                {"role": "developer", "content": "d", "id": "msg_1"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}], "id": "msg_2"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
                {"type": "function_call", "call_id": "c1", "name": "spawn", "namespace": "ns", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}]},
                {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": "ok"},
                {"type": "something_new", "x": 1},
            ],
            "tools": [
                {
                    "type": "namespace",
                    "name": "ns",
                    "tools": [{"type": "function", "name": "spawn", "parameters": TOOL}],
                },
                {
                    "type": "custom",
                    "name": "apply_patch",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "s"},
                },
                {"type": "tool_search", "execution": "client"},
            ],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "previous_response_id": "resp_1",
            "client_metadata": {"a": "b"},
            "text": {"format": {"type": "text"}, "verbosity": "low"},
            "reasoning": {"effort": "high", "summary": "auto", "context": "new"},
        },
    ],
    "messages": [
        {"model": "m", "max_tokens": 900, "messages": [{"role": "user", "content": "hi"}]},
        {
            "model": "m",
            "max_tokens": 32000,
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: a=b", "cache_control": {"type": "ephemeral"}}
            ],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "u", "citations": None}]},
                {"role": "system", "content": [{"type": "text", "text": "s"}], "output_config": {"effort": "low"}},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "t", "signature": "c2ln"},
                        {
                            "type": "tool_use",
                            "id": "t1",
                            "name": "ToolSearch",
                            "input": {"q": "x"},
                            "caller": {"type": "direct"},
                        },
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "t1",
                            "content": [{"type": "tool_reference", "tool_name": "WebFetch"}],
                        },
                        {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    ],
                },
            ],
            "tools": [
                {"name": "ToolSearch", "input_schema": TOOL, "eager_input_streaming": True},
                {"name": "WebFetch", "input_schema": TOOL, "defer_loading": True},
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
            ],
            "thinking": {"type": "adaptive", "display": "omitted"},
            "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
            "metadata": {"user_id": '{"device":"x"}'},
        },
    ],
}
#: Replies with parts no version of the gateway knows.
REPLIES: dict[str, dict[str, Any]] = {
    "chat": {"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "new": 1}]},
    "responses": {"id": "x", "object": "response", "status": "completed", "output": [{"type": "new_item"}]},
    "messages": {"id": "x", "type": "message", "role": "assistant", "content": [{"type": "new"}], "usage": {}},
}
#: The tool that streamed turns call, as each wire offers it.
OFFERS: dict[str, dict[str, Any]] = {
    "chat": {"type": "function", "function": {"name": "f", "parameters": TOOL}},
    "responses": {"type": "function", "name": "f", "parameters": TOOL},
    "messages": {"name": "f", "input_schema": TOOL},
}
#: What breaks the contract, or is mended on the way, and passes all the same where the protocol is `off`.
ODD: dict[str, dict[str, Any]] = {
    "chat": {
        **SHAPES["chat"][1],
        "messages": [*SHAPES["chat"][1]["messages"], {"role": "user", "content": ""}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    },
    "responses": {
        "model": "m",
        "input": [{"type": "function_call_output", "call_id": "lost", "output": "r"}],
        "tools": [OFFERS["responses"]],
        "tool_choice": {"type": "function", "name": "f"},
    },
    "messages": {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": '<invoke name="f">'}],
        "tools": [OFFERS["messages"]],
        "tool_choice": {"type": "tool", "name": "f"},
    },
}
EMPTY: dict[str, dict[str, Any]] = {
    "chat": {"id": "x", "choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "new": 1}]},
    "responses": {"id": "x", "object": "response", "status": "completed", "output": []},
    "messages": {"id": "x", "type": "message", "role": "assistant", "content": [], "usage": {}},
}
OFF = OperatorSettings(controls=Controls(protocol=Protocol.OFF))
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
CASES = [(wire, number) for wire, shapes in SHAPES.items() for number in range(len(shapes))]


@pytest.mark.parametrize(("wire", "number"), CASES)
def test_request_reaches_the_upstream_unchanged(wire: str, number: int) -> None:
    """Rule 112: the very bytes of the body, unknown fields included."""
    sent = json.dumps(SHAPES[wire][number], indent=1).encode()
    with ScriptedUpstream([Turn(Say("ok"))]) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = post(gateway.url + PATHS[wire], sent)
        assert answer.status == 200
        assert upstream.requests[0].raw == sent


@pytest.mark.parametrize("wire", SHAPES)
def test_alias_changes_the_model_and_nothing_else(wire: str) -> None:
    """Rule 112: minus routing, the body that arrives is the body that was sent; big numbers keep their digits."""
    shape = SHAPES[wire][1]
    with (
        ScriptedUpstream([Turn(Say("ok"))]) as upstream,
        RunningGateway(f"a:{wire}={upstream.base_url}") as gateway,
    ):
        answer = post(gateway.url + PATHS[wire], {**shape, "model": "a/real-name"})
        assert answer.status == 200
        assert json.loads(upstream.requests[0].raw) == {**shape, "model": "real-name"}


@pytest.mark.parametrize("wire", SHAPES)
def test_reply_comes_back_unchanged(wire: str) -> None:
    """Rule 112: the reply's bytes, with fields of tomorrow in it."""
    reply = REPLIES[wire]
    body = json.dumps({**reply, "future": [1.0, 12345678901234567890123]}, indent=2).encode()
    with (
        ScriptedUpstream([Raw(200, body)]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
    ):
        answer = post(gateway.url + PATHS[wire], SHAPES[wire][0])
    assert (answer.status, answer.body) == (200, body)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("wire", SHAPES)
def test_error_comes_back_unchanged(wire: str) -> None:
    """Rule 112: an upstream's own error keeps its status, its body and its advice."""
    body = b'{"type":"error","error":{"type":"teapot","message":"short and stout","extra":1},"request_id":"req_9"}'
    raw = Raw(418, body, {"content-type": "application/json", "x-should-retry": "false", "request-id": "req_9"})
    with ScriptedUpstream([raw]) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = post(gateway.url + PATHS[wire], SHAPES[wire][0])
        assert len(upstream.requests) == 1
    assert (answer.status, answer.body) == (418, body)
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["request-id"] == "req_9"


@pytest.mark.parametrize("wire", SHAPES)
@pytest.mark.parametrize("chunking", [None, 1, 7])
def test_stream_comes_back_unchanged(wire: str, chunking: int | None) -> None:
    """Rule 112: a stream's bytes are forwarded as they are, whatever the chunking."""
    request = {**SHAPES[wire][0], "stream": True, "tools": [OFFERS[wire]]}
    turn = Turn(Say("Ünïcödé text "), Call("f", {"q": "x"}), id="fixed")
    with (
        ScriptedUpstream([turn], chunking=chunking) as upstream,
        ScriptedUpstream([turn], chunking=chunking) as twin,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
    ):
        through = post(gateway.url + PATHS[wire], request)
        direct = post(twin.url + PATHS[wire], request)
    assert through.headers["content-type"].startswith("text/event-stream")
    assert through.body == direct.body
    assert len(through.body) > 300


@pytest.mark.parametrize("wire", SHAPES)
def test_off_passes_odd_requests_and_empty_replies(wire: str) -> None:
    """Rule 70: under `off` nothing is mended, forced, judged or tried again; bytes in are bytes out."""
    sent = json.dumps(ODD[wire], indent=1).encode()
    body = json.dumps(EMPTY[wire], indent=2).encode()
    with (
        ScriptedUpstream([Raw(200, body)]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", operator=OFF) as gateway,
    ):
        answer = post(gateway.url + PATHS[wire], sent)
        assert [request.raw for request in upstream.requests] == [sent]
    assert (answer.status, answer.body) == (200, body)
    assert answer.headers["x-mustcall-protocol"] == "off"


@pytest.mark.parametrize("wire", SHAPES)
@pytest.mark.parametrize("chunking", [None, 1, 7])
def test_off_passes_streams_of_unoffered_calls(wire: str, chunking: int | None) -> None:
    """Rule 70: under `off` a stream's bytes pass, a call of a tool nobody offered included."""
    request = {**SHAPES[wire][0], "stream": True}
    turn = Turn(Say("Ünïcödé text "), Call("f", {"q": "x"}), id="fixed")
    with (
        ScriptedUpstream([turn], chunking=chunking) as upstream,
        ScriptedUpstream([turn], chunking=chunking) as twin,
        RunningGateway(f"{wire}={upstream.base_url}", operator=OFF) as gateway,
    ):
        through = post(gateway.url + PATHS[wire], request)
        direct = post(twin.url + PATHS[wire], request)
        assert len(upstream.requests) == 1
    assert through.body == direct.body
    assert len(through.body) > 300


@pytest.mark.parametrize("wire", SHAPES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_force_that_works_passes_unchanged(wire: str, stream: bool) -> None:
    """Rules 30, 112: a demand on a model that obeys it is sent as is, and the bytes of its call come back as is."""
    choices = {"chat": "required", "responses": "required", "messages": {"type": "any"}}
    request = {
        **SHAPES[wire][0],
        "model": "gpt-4o",
        "tools": [OFFERS[wire]],
        "tool_choice": choices[wire],
        **({"stream": True} if stream else {}),
    }
    sent = json.dumps(request, indent=1).encode()
    turn = Turn(Call("f", {"q": "x"}), id="fixed")
    with (
        ScriptedUpstream([turn]) as upstream,
        ScriptedUpstream([turn]) as twin,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
    ):
        through = post(gateway.url + PATHS[wire], sent)
        direct = post(twin.url + PATHS[wire], sent)
        assert [one.raw for one in upstream.requests] == [sent]
    assert (through.status, through.body) == (200, direct.body)


#: What every chunk has beside its choices.
CHUNK: dict[str, Any] = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def test_events_are_forwarded_without_waiting() -> None:
    """Rule 113: each event reaches the client before the upstream writes the next one."""
    release = [threading.Event() for _ in range(3)]
    deltas = [{"role": "assistant", "content": "0"}, {"content": "1"}, {"content": "2"}]
    events = [
        b"data: " + json.dumps(CHUNK | {"choices": [{"index": 0, "delta": d}]}).encode() + b"\n\n" for d in deltas
    ]
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for gate, event in zip(release, events, strict=True):
                connection.sendall(event)
                assert gate.wait(180)
            connection.sendall(b"data: [DONE]\n\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with (
            RunningGateway(f"chat=http://127.0.0.1:{listener.getsockname()[1]}/v1") as gateway,
            socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as client,
        ):
            client.settimeout(180)
            body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}'
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b"
                % (len(body), body)
            )
            received = b""
            for gate, event in zip(release, events, strict=True):
                while event not in received:
                    piece = client.recv(65536)
                    assert piece, "the gateway closed the connection"
                    received += piece
                gate.set()
            while b"data: [DONE]\n\n" not in received:
                received += client.recv(65536)
            assert b"error" not in received
    finally:
        for gate in release:
            gate.set()
        thread.join(10)
        listener.close()


def test_query_and_provider_headers_travel_on_the_same_wire() -> None:
    """wires.md 1.2: `?beta=true`, the version and all beta names reach a Messages upstream; either key form does."""
    headers = {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "a-2026-01-01,b-2026-02-02",
        "authorization": "Bearer sk-caller",
    }
    with (
        ScriptedUpstream([Turn(Say("ok"))]) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
    ):
        post(gateway.url + "/v1/messages?beta=true", SHAPES["messages"][0], headers)
        got = upstream.requests[0]
    assert got.query == {"beta": "true"}
    assert {name: got.headers[name] for name in headers} == headers
    assert "x-api-key" not in got.headers


def test_raw_stream_without_final_blank_line() -> None:
    """A server that hangs up right after the last line has sent the whole stream."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    body = b"data: " + json.dumps(CHUNK | {"choices": [choice]}).encode() + b"\n\ndata: [DONE]"
    with (
        ScriptedUpstream([RawStream([body])]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        answer = post(gateway.url + PATHS["chat"], {**SHAPES["chat"][0], "stream": True})
    assert answer.body.startswith(body[:-12])
    assert b"error" not in answer.body
