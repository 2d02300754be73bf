"""The chat wire's bodies around the engine, without a model."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.upstream.embedded.bodies import (
    Assembly,
    EngineRequest,
    HttpFault,
    Stamped,
    error_body,
    fault_of,
    read_request,
    spelt_out,
)
from mustcall.upstream.embedded.engine import EngineRefused
from mustcall.wire.registry import codec_for

CODEC = codec_for(Wire.CHAT)
MESSAGES = [{"role": "user", "content": "hi"}]


def asked(**fields: object) -> dict[str, object]:
    """Return the engine's body of a request with these fields."""
    read = read_request(json.dumps({"messages": MESSAGES, **fields}).encode())
    assert isinstance(read, EngineRequest)
    return json.loads(read.body)


def test_what_the_engine_is_asked() -> None:
    """Known fields pass, limits come in both spellings, and everything is streamed so that it can be given up."""
    body = asked(model="m", temperature=0.7, max_completion_tokens=7, id_slot=3, lora=[1], user="u")
    assert body["temperature"] == 0.7
    assert body["max_tokens"] == 7
    assert body["stream"] is True
    assert body["return_progress"] is True
    assert {"model", "id_slot", "lora", "user"}.isdisjoint(body)
    assert asked()["max_tokens"] == 1024


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": "x"}', b'{"messages": []}', b"[" * 100_000])
def test_bad_bodies_are_faults(body: bytes) -> None:
    """What is no request is a 400 in the wire's own shape."""
    fault = read_request(body)
    assert isinstance(fault, HttpFault)
    info = CODEC.decode_error(fault.status, error_body(fault))
    assert info.status == 400
    assert info.code == "invalid_request"


@pytest.mark.parametrize(
    ("refused", "status", "code"),
    [
        (
            EngineRefused("request (9 tokens) exceeds the available context size (8 tokens)", {"code": 400}),
            400,
            "context_length_exceeded",
        ),
        (EngineRefused("JSON schema error at #: unrecognized type alien"), 400, "invalid_schema"),
        (EngineRefused("failed to parse grammar"), 400, "invalid_schema"),
        (
            EngineRefused('Failed to parse messages: Missing \'role\' in message: {"content":"my grammar"}'),
            400,
            "invalid_request",
        ),
        (EngineRefused("image input is not supported"), 400, "invalid_request"),
        (EngineRefused("shut down", {"code": 503}), 503, "server_error"),
    ],
)
def test_refusals_in_the_words_of_the_wire(refused: EngineRefused, status: int, code: str) -> None:
    """Each refusal of the engine has a status and a code the gateway knows."""
    fault = fault_of(refused, 8)
    info = CODEC.decode_error(fault.status, error_body(fault))
    assert (info.status, info.code) == (status, code)


def chunk(delta: object, finish: str | None = None, **more: object) -> dict[str, Any]:
    """Return a piece as llama.cpp makes it."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c1", "created": 5, "model": "/secret/path.gguf", "choices": [choice], **more}


PIECES: list[dict[str, Any]] = [
    chunk({"role": "assistant", "content": None}, prompt_progress={"processed": 0}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk(
        {"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a"'}}]}
    ),
    chunk({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
    chunk({}, "tool_calls"),
    {"id": "c1", "created": 5, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
]


def test_pieces_put_together() -> None:
    """A whole answer has the texts, the calls, the finish and the usage, under the model's name."""
    assembly = Assembly("m")
    for piece in PIECES:
        assembly.add(piece)
    body = json.loads(assembly.body())
    message = body["choices"][0]["message"]
    assert message["content"] == "Hello"
    assert message["tool_calls"] == [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    ]
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["usage"]["total_tokens"] == 5
    assert body["model"] == "m"


@pytest.mark.parametrize("usage", [False, True])
def test_pieces_as_events(usage: bool) -> None:
    """Events carry the role once, never a path of this machine, and usage only where it is asked for."""
    writer = Stamped("m", usage=usage)
    events = [writer.event(piece) for piece in PIECES]
    assert events[0] == b""
    stream = b"".join(events)
    assert stream.count(b'"role"') == 1
    assert b"secret" not in stream
    assert (b"total_tokens" in stream) is usage


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"^\d{4}-\d\d$", "^[0-9]{4}-[0-9][0-9]$"),
        (r"^[\d.]{1,9}\s\w$", "^[0-9.]{1,9}[ ][_A-Za-z0-9]$"),
        (r"^\\d$", r"^\\d$"),
        ("^[a-z]+$", "^[a-z]+$"),
        (r"^\w+$", None),
        (r"^\d{2,}$", None),
        (r"^[*+]\d$", "^[*+][0-9]$"),
        (r"^\d[^\s]{1,5}$", None),
        (r"^\d[{,}]$", "^[0-9][{,}]$"),
    ],
)
def test_patterns_are_what_the_grammar_knows(pattern: str, written: str | None) -> None:
    """The engine knows no names of sets: it is given their characters, or no pattern where a text would not end."""
    assert spelt_out(pattern) == written
    schema: dict[str, Any] = {
        "properties": {"pattern": {"type": "string", "pattern": pattern}, "day": {"const": {"pattern": pattern}}}
    }
    told = {"type": "string"} if written is None else {"type": "string", "pattern": written}
    properties = {**schema["properties"], "pattern": told}
    sent = asked(tools=[{"function": {"parameters": schema}}], json_schema={"anyOf": [schema]})
    assert sent["tools"] == [{"function": {"parameters": {"properties": properties}}}]
    assert sent["json_schema"] == {"anyOf": [{"properties": properties}]}


@given(st.from_regex(r"(?:\\[dw]|[ab.]|\[[ab\\d]*\]|\(|\)){0,12}", fullmatch=True), st.text("a0_. -", max_size=4))
def test_a_pattern_means_what_it_meant(pattern: str, text: str) -> None:
    """What a pattern matches, the one with its sets spelt out matches, and nothing else."""
    written = spelt_out(pattern)
    assert written is not None
    try:
        meant = re.compile(pattern, re.ASCII)
    except re.error:
        return
    assert bool(meant.search(text)) == bool(re.search(written, text))


@pytest.mark.parametrize("field", [{"functions": [{"name": "f"}]}, {"function_call": {"name": "f"}}])
def test_the_form_before_tools_is_refused(field: dict[str, Any]) -> None:
    """It was ignored: a forced function came back as prose."""
    fault = read_request(json.dumps({"messages": [{"role": "user", "content": "hi"}], **field}).encode())
    assert isinstance(fault, HttpFault)
    assert (fault.status, fault.code, fault.param) == (400, "unsupported_feature", "functions")
    assert "tools and tool_choice" in fault.message
