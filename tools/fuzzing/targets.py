"""What is fuzzed, one function of bytes for each target, with the bytes to begin with.

A target returns for any input. Errors of the product's own tree are swallowed; any other exception is a finding, and so
is a result that depends on how a stream was cut.
"""

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fuzzing.front import feed_front
from fuzzing.relay import SEEDS, feed_relay
from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.core.streams.assembler import Assembler
from mustcall.core.tools import Tool
from mustcall.dialects.collect import parse
from mustcall.gateway.config.settings import load_settings
from mustcall.ledger.ledger import Ledger
from mustcall.ledger.opening import open_ledger
from mustcall.ledger.stores.migrations import TABLES as LEDGER_TABLES
from mustcall.policy.facts.profile import SchemaTarget
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.schema.tool_schemas import compile_schema
from mustcall.wire.codec import Provenance, ReplyStamp, Target
from mustcall.wire.outline import is_error_body
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder, SseFramer

__all__ = ["TARGETS", "Fuzzed"]

_PROVENANCE = Provenance(issuer="fuzz", token="t")  # noqa: S106  no secret
_STAMP = ReplyStamp(token="t", created=1)  # noqa: S106  no secret
_TARGET = Target(issuer="fuzz", default_max_tokens=99)


class Fuzzed(NamedTuple):
    """One target: what takes the bytes, and what is begun with."""

    take: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _pieces(data: bytes) -> Iterable[bytes]:
    """Cut bytes at places that the first byte chooses."""
    step = data[0] % 17 + 1 if data else 1
    return (data[at : at + step] for at in range(0, len(data), step))


def _sse(data: bytes) -> None:
    whole, cut, framer = SseDecoder(), SseDecoder(), SseFramer()
    try:
        expected = [*whole.feed(data), *whole.close()]
    except MustcallError:
        return
    found = [event for piece in _pieces(data) for event in cut.feed(piece)] + cut.close()
    assert found == expected, "the events depend on how the stream was cut"
    blocks = [framer.feed(piece) for piece in _pieces(data)]
    assert b"".join([*blocks, framer.close()]) == data, "the framer changed the bytes"
    framer.last_events()


def _wire(wire: Wire) -> Callable[[bytes], None]:
    codec = codec_for(wire)

    def take(data: bytes) -> None:
        with suppress(MustcallError):
            request = codec.decode_request(data)
            for other in Wire:
                with suppress(MustcallError, RecursionError):  # where it is written, too deep a body is refused
                    msgspec.json.encode(codec_for(other).encode_request(request, _TARGET, AdaptationLog()))
        with suppress(MustcallError):
            codec.peek(data)
        with suppress(MustcallError):
            codec.decode_reply(data, _PROVENANCE)
        codec.decode_error(500, data)
        is_error_body(data)
        codec.is_regular(data)
        codec.read_regular(data, _PROVENANCE)

    return take


def _request_of(wire: Wire) -> Any:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "input": "hi"}
    return codec_for(wire).decode_request(json.dumps(body).encode())


def _stream(wire: Wire) -> Callable[[bytes], None]:
    codec = codec_for(wire)
    callers = {other: _request_of(other) for other in Wire}

    def read(pieces: Iterable[bytes]) -> Any:
        sse, decoder, assembler = SseDecoder(), codec.stream_decoder(_PROVENANCE), Assembler()
        encoders = [
            codec_for(other).stream_encoder(request, _STAMP, AdaptationLog()) for other, request in callers.items()
        ]
        events = [event for piece in pieces for event in decoder.feed_all(sse.feed(piece))]
        events += decoder.feed_all(sse.close()) + decoder.close()
        for event in events:
            assembler.feed(event)
            for encoder in encoders:
                encoder.feed(event)
        return assembler.reply()

    def outcome(pieces: Iterable[bytes]) -> Any:
        try:
            return read(pieces)
        except MustcallError as error:
            return error.code
        except RecursionError:  # where it is read, too deep a stream is refused
            return "too deep"

    def take(data: bytes) -> None:
        assert outcome([data]) == outcome(_pieces(data)), "the reply depends on how the stream was cut"

    return take


_TOOLS = (
    Tool(name="get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}),
    Tool(name="f", parameters={"type": "object"}),
)


def _dialects(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    step = len(data) % 7 + 1
    for loose in (False, True):
        whole = parse([text], tools=_TOOLS, loose=loose)
        cut = parse((text[at : at + step] for at in range(0, len(text), step)), tools=_TOOLS, loose=loose)
        assert whole == cut, "the calls depend on how the text was cut"
        for call in whole.calls:
            check_arguments(_TOOLS[0], call.arguments)


def _schema(data: bytes) -> None:
    """A schema, and after a line feed the arguments that are held against it."""
    text, _, arguments = data.partition(b"\n")
    try:
        schema = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(schema, dict):
        return
    for target in SchemaTarget:
        for strict in (False, True):
            compile_schema(schema, target, strict=strict)
    check_arguments(Tool(name="f", parameters=schema), arguments.decode("utf-8", "replace"))


def _config(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(data)
        file.flush()
        with suppress(MustcallError):
            load_settings(Path(file.name), environment={"MUSTCALL_LEDGER": "off"})


class _Imports:
    """A ledger that is opened for the first input and stays open."""

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def take(self, data: bytes) -> None:
        if self._ledger is None or self._loop is None:
            self._loop = asyncio.new_event_loop()
            folder = tempfile.mkdtemp(prefix="mustcall-fuzz-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            self._ledger = open_ledger(Path(folder) / "ledger.db")
            self._loop.run_until_complete(self._ledger.open())
        with suppress(MustcallError):
            self._loop.run_until_complete(self._ledger.import_lines(data.splitlines(keepends=True)))


def _fixtures(*names: str) -> tuple[bytes, ...]:
    folder = Path(__file__).resolve().parents[2] / "tests" / "dialects" / "fixtures"
    found: list[bytes] = []
    for path in sorted(folder.glob("*.json")):
        found += [text.encode()[:2_000] for text in _texts(json.loads(path.read_bytes())) if "{" in text or "<" in text]
    return tuple(dict.fromkeys([*(name.encode() for name in names), *found]))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]


_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
_CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [_CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}},
    "stream": True,
}
_CHAT_REPLY = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a", "tool_calls": [_CALL]}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
_MESSAGES = {
    "model": "m",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1", "is_error": True}]},
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "any"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}
_MESSAGES_REPLY = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "thinking", "thinking": "h", "signature": "s"}, {"type": "text", "text": "a"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 1, "output_tokens": 1},
}
_RESPONSES = {
    "model": "m",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "text": {"format": {"type": "json_schema", "name": "r", "schema": {"type": "object"}}},
    "store": False,
}
_RESPONSES_REPLY = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [
        {"type": "message", "id": "i", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
}


def _events(*events: tuple[str, Any]) -> bytes:
    lines = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events]
    return "".join(lines).encode()


def _delta(finish: str | None = None, **delta: Any) -> tuple[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return "", {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def _typed(kind: str, **fields: Any) -> tuple[str, Any]:
    return kind, {"type": kind, **fields}


_STREAMS = {
    Wire.CHAT: _events(
        _delta(role="assistant", content=""),
        _delta(content="a"),
        _delta(tool_calls=[{"index": 0, **_CALL}]),
        _delta("tool_calls"),
    )
    + b"data: [DONE]\n\n",
    Wire.MESSAGES: _events(
        _typed("message_start", message={**_MESSAGES_REPLY, "content": []}),
        _typed("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        _typed("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}),
        _typed("content_block_stop", index=0),
        _typed("content_block_start", index=1, content_block={"type": "tool_use", "id": "t", "name": "f", "input": {}}),
        _typed("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": "{}"}),
        _typed("content_block_stop", index=1),
        _typed("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1}),
        _typed("message_stop"),
    ),
    Wire.RESPONSES: _events(
        _typed("response.created", response={**_RESPONSES_REPLY, "status": "in_progress", "output": []}),
        _typed("response.output_item.added", output_index=0, item={"type": "message", "id": "i", "content": []}),
        _typed(
            "response.content_part.added", output_index=0, content_index=0, part={"type": "output_text", "text": ""}
        ),
        _typed("response.output_text.delta", output_index=0, content_index=0, delta="a"),
        _typed("response.output_item.done", output_index=0, item=_RESPONSES_REPLY["output"]),
        _typed("response.completed", response=_RESPONSES_REPLY),
    ),
}

_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n%b"
_SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"anyOf": [{"type": "string", "pattern": "^a+$"}, {"$ref": "#/$defs/x"}]},
        "b": {"type": "array", "items": {"type": "integer", "minimum": 1}, "uniqueItems": True},
    },
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {
        "x": {"oneOf": [{"const": 1}, {"enum": [None, "y"]}, {"type": "object", "patternProperties": {"^z": {}}}]}
    },
}
_TOML = b"""[server]
port = 8484
client_keys = ["k"]
[[upstream]]
name = "u"
wire = "chat"
base_url = "http://127.0.0.1:1/v1"
[[route]]
model = "gpt-*"
upstream = "u"
[limits]
hosts = ["a"]
[contract]
on_unmet = "error"
[budget]
cost_usd = 5.0
[[grounding]]
name = "g"
triggers = "a|b_*"
tool = "f"
[[profile]]
models = ["m*"]
forced = "always"
[[price]]
model = "m"
input = 0.5
output = 1.5
"""


def _json(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


def _rows() -> tuple[bytes, ...]:
    """Return a line for each table of a ledger, with a value of each kind somewhere."""
    return tuple(
        json.dumps({"table": table, "row": dict.fromkeys(columns, value)}).encode() + b"\n"
        for table, columns in LEDGER_TABLES.items()
        for value in (None, 1, "a")
    )


def _chat_post(value: Any) -> bytes:
    body = json.dumps(value).encode()
    return _POST % (len(body), body)


TARGETS: dict[str, Fuzzed] = {
    "front": Fuzzed(
        feed_front,
        (
            _chat_post(_CHAT),
            _chat_post({**_CHAT, "stream": False}),
            b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"POST /v1/messages HTTP/1.1\r\nhost: [::1]\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
        ),
    ),
    "sse": Fuzzed(_sse, (b"\xef\xbb\xbfdata: a\r\ndata: b\r\n\r\n: c\n\nevent: n\ndata:d\n\n", *_STREAMS.values())),
    "chat": Fuzzed(_wire(Wire.CHAT), _json(_CHAT, _CHAT_REPLY)),
    "messages": Fuzzed(_wire(Wire.MESSAGES), _json(_MESSAGES, _MESSAGES_REPLY)),
    "responses": Fuzzed(_wire(Wire.RESPONSES), _json(_RESPONSES, _RESPONSES_REPLY)),
    "chat-stream": Fuzzed(_stream(Wire.CHAT), (_STREAMS[Wire.CHAT],)),
    "messages-stream": Fuzzed(_stream(Wire.MESSAGES), (_STREAMS[Wire.MESSAGES],)),
    "responses-stream": Fuzzed(_stream(Wire.RESPONSES), (_STREAMS[Wire.RESPONSES],)),
    "relay": Fuzzed(feed_relay, SEEDS),
    "dialects": Fuzzed(_dialects, _fixtures('<tool_call>{"name": "f", "arguments": {}}</tool_call>')),
    "schema": Fuzzed(_schema, (json.dumps(_SCHEMA).encode() + b'\n{"a":"b","b":[0,0],"c":1}',)),
    "config": Fuzzed(_config, (_TOML,)),
    "ledger": Fuzzed(_Imports().take, _rows()),
}
