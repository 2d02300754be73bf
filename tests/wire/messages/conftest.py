"""Shapes as data, and the few tools every test of the Messages wire needs."""

import json
import random
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mustcall.core.origin import Value
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event
from mustcall.wire.codec import Provenance
from mustcall.wire.messages import MessagesCodec
from mustcall.wire.sse import SseDecoder

DATA = Path(__file__).parent / "data"


def _load(name: str) -> dict[str, dict[str, Any]]:
    return json.loads((DATA / name).read_text())


REQUESTS = _load("requests.json")
REPLIES = _load("replies.json")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give every test that asks for a shape each recorded one."""
    for name, shapes in (("request_shape", REQUESTS), ("reply_shape", REPLIES)):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, shapes.values(), ids=shapes.keys())


@pytest.fixture
def shapes() -> dict[str, dict[str, Any]]:
    """The recorded requests by name."""
    return json.loads(json.dumps(REQUESTS))


@pytest.fixture
def reply_shapes() -> dict[str, dict[str, Any]]:
    """The recorded replies by name."""
    return json.loads(json.dumps(REPLIES))


@pytest.fixture(scope="session")
def codec() -> MessagesCodec:
    """The codec under test."""
    return MessagesCodec()


def _bare(value: Any) -> Any:
    if isinstance(value, Value):
        changes = {name: _bare(getattr(value, name)) for name in value.__struct_fields__ if name != "origin"}
        return msgspec.structs.replace(value, **{**changes, "origin": None})
    if isinstance(value, tuple):
        return tuple(_bare(item) for item in cast("tuple[Any, ...]", value))  # whatever a canonical value holds
    return value


@pytest.fixture(scope="session")
def bare() -> Callable[[Any], Any]:
    """Strip every origin from a canonical value."""
    return _bare


def _sse(events: Iterable[dict[str, Any]], *, names: bool = True) -> bytes:
    """Write events as an Anthropic server does."""
    lines: list[str] = []
    for event in events:
        if names:
            lines.append(f"event: {event['type']}\n")
        lines.append("data: " + json.dumps(event, ensure_ascii=False) + "\n\n")
    return "".join(lines).encode()


@pytest.fixture(scope="session")
def sse() -> Callable[..., bytes]:
    """Write events as an Anthropic server does."""
    return _sse


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def _native_events(reply: dict[str, Any], size: int = 4) -> list[dict[str, Any]]:
    """Stream a whole reply the way Anthropic does, written by hand and apart from our encoder."""
    head: dict[str, Any] = {**reply, "content": [], "stop_reason": None, "stop_sequence": None}
    head["usage"] = {**reply["usage"], "output_tokens": 1}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}, {"type": "ping"}]
    for index, block in enumerate(reply["content"]):
        deltas: list[dict[str, Any]] = []
        start = dict(block)
        match block["type"]:
            case "text":
                start["text"] = ""
                cited = start.pop("citations", [])
                deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"], size)]
                deltas += [{"type": "citations_delta", "citation": citation} for citation in cited]
            case "thinking":
                start |= {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"], size)]
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            case "tool_use" | "server_tool_use":
                start["input"] = {}
                text = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
                deltas = [{"type": "input_json_delta", "partial_json": ""}]
                deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(text, size)]
            case _:
                pass
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": reply["stop_reason"], "stop_sequence": reply["stop_sequence"]}
    if "stop_details" in reply:
        delta["stop_details"] = reply["stop_details"]
    events.append(
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": reply["usage"]["output_tokens"]}}
    )
    events.append({"type": "message_stop"})
    return events


@pytest.fixture(scope="session")
def native_events() -> Callable[..., list[dict[str, Any]]]:
    """Stream a whole reply the way Anthropic does."""
    return _native_events


def _decode(chunks: Iterable[bytes], provenance: Provenance | None = None) -> list[Event]:
    decoder = MessagesCodec().stream_decoder(provenance or Provenance(issuer="up", token="tok"))
    frames = SseDecoder()
    events = [out for chunk in chunks for frame in frames.feed(chunk) for out in decoder.feed(frame)]
    events += [out for frame in frames.close() for out in decoder.feed(frame)]
    return events + decoder.close()


@pytest.fixture(scope="session")
def decode_stream() -> Callable[..., list[Event]]:
    """Decode a stream given as chunks."""
    return _decode


def _assemble(events: Iterable[Event]) -> Reply:
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    assert assembler.ended
    return assembler.reply()


@pytest.fixture(scope="session")
def assemble() -> Callable[[Iterable[Event]], Reply]:
    """Fold events into a reply."""
    return _assemble


def _split(data: bytes, seed: int) -> list[bytes]:
    generator = random.Random(seed)
    chunks: list[bytes] = []
    while data:
        size = generator.randint(1, 40)
        chunks.append(data[:size])
        data = data[size:]
    return chunks


@pytest.fixture(scope="session")
def split() -> Callable[[bytes, int], list[bytes]]:
    """Cut bytes at random places."""
    return _split


def _memory_of(step: Callable[[], object]) -> int:
    """Return the bytes a step takes at its peak, at best of a few: a list that grows takes more now and then."""
    peaks: list[int] = []
    tracemalloc.start()
    try:
        for _ in range(5):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            step()
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    return min(peaks)


@pytest.fixture(scope="session")
def memory_of() -> Callable[[Callable[[], object]], int]:
    """Measure a step without a clock: work that grows with the stream shows in what it builds."""
    return _memory_of
