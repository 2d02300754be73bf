"""What the tests of the Responses wire share: the codec, streams made from whole replies, values without origin."""

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from mustcall.core.origin import Value
from mustcall.core.reply import Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event
from mustcall.wire.codec import Provenance
from mustcall.wire.responses import ResponsesCodec
from mustcall.wire.sse import SseDecoder


def _strip(value: Any) -> Any:
    """Return the value with every origin removed, at any depth."""
    if isinstance(value, Value):
        fields = {name: _strip(getattr(value, name)) for name in value.__struct_fields__ if name != "origin"}
        return type(value)(**fields)
    if isinstance(value, tuple):
        return tuple(_strip(item) for item in value)
    return value


def _sse(events: Iterable[dict[str, Any]]) -> bytes:
    """Write events as a server sends them."""
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode()) for event in events
    )


def _read(stream: bytes, cuts: Iterable[int] = ()) -> list[Event]:
    """Decode a stream cut at the given places."""
    sse, decoder = SseDecoder(), ResponsesCodec().stream_decoder(Provenance(issuer="up", token="t"))
    edges = [0, *sorted(cuts), len(stream)]
    events: list[Event] = []
    for start, end in pairwise(edges):
        for event in sse.feed(stream[start:end]):
            events += decoder.feed(event)
    for event in sse.close():
        events += decoder.feed(event)
    return events + decoder.close()


def _assemble(events: Iterable[Event]) -> Reply:
    """Fold events into a reply."""
    assembler = Assembler()
    for event in events:
        assembler.feed(event)
    return assembler.reply()


def _content_events(place: dict[str, Any], number: int, content: dict[str, Any]) -> list[dict[str, Any]]:
    place = {**place, "content_index": number}
    key = "refusal" if content["type"] == "refusal" else "text"
    word = "refusal" if key == "refusal" else "output_text"
    half = len(content[key]) // 2
    return [
        {"type": "response.content_part.added", **place, "part": {**content, key: "", "annotations": []}},
        {"type": f"response.{word}.delta", **place, "delta": content[key][:half]},
        {"type": f"response.{word}.delta", **place, "delta": content[key][half:]},
        {"type": f"response.{word}.done", **place, key: content[key]},
        {"type": "response.content_part.done", **place, "part": content},
    ]


def _item_events(number: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    place = {"item_id": item["id"], "output_index": number}
    events: list[dict[str, Any]] = []
    added: dict[str, Any] = dict(item)
    match item["type"]:
        case "message":
            added.update(content=[], status="in_progress")
            for index, content in enumerate(item["content"]):
                events += _content_events(place, index, content)
        case "reasoning":
            added = {"id": item["id"], "type": "reasoning", "summary": list[Any]()}
            for index, part in enumerate(item["summary"]):
                at = {**place, "summary_index": index}
                empty = {"type": "summary_text", "text": ""}
                events += [
                    {"type": "response.reasoning_summary_part.added", **at, "part": empty},
                    {"type": "response.reasoning_summary_text.delta", **at, "delta": part["text"]},
                    {"type": "response.reasoning_summary_text.done", **at, "text": part["text"]},
                    {"type": "response.reasoning_summary_part.done", **at, "part": part},
                ]
            for index, part in enumerate(item.get("content") or ()):
                at = {**place, "content_index": index}
                events += [
                    {"type": "response.reasoning_text.delta", **at, "delta": part["text"]},
                    {"type": "response.reasoning_text.done", **at, "text": part["text"]},
                ]
        case "function_call":
            added.update(arguments="", status="in_progress")
            word, text = "function_call_arguments", item["arguments"]
            events += [
                {"type": f"response.{word}.delta", **place, "delta": text[:1]},
                {"type": f"response.{word}.delta", **place, "delta": text[1:]},
                {"type": f"response.{word}.done", **place, "arguments": text},
            ]
        case "custom_tool_call":
            added.update(input="", status="in_progress")
            events += [
                {"type": "response.custom_tool_call_input.delta", **place, "delta": item["input"]},
                {"type": "response.custom_tool_call_input.done", **place, "input": item["input"]},
            ]
        case _:
            added.update(status="in_progress")
            events.append({"type": "response.web_search_call.searching", **place})
    return [
        {"type": "response.output_item.added", "output_index": number, "item": added},
        *events,
        {"type": "response.output_item.done", "output_index": number, "item": item},
    ]


def _stream_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events with which a server streams this response."""
    begun: dict[str, Any] = {**reply, "status": "in_progress", "output": [], "usage": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for number, item in enumerate(reply["output"]):
        events += _item_events(number, item)
    events.append({"type": f"response.{reply['status']}", "response": reply})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


@pytest.fixture
def codec() -> ResponsesCodec:
    """Return the codec."""
    return ResponsesCodec()


@pytest.fixture(scope="session")
def strip() -> Callable[[Any], Any]:
    """Return a function that removes origins."""
    return _strip


@pytest.fixture(scope="session")
def sse() -> Callable[[Iterable[dict[str, Any]]], bytes]:
    """Return a writer of server-sent events."""
    return _sse


@pytest.fixture(scope="session")
def read() -> Callable[..., list[Event]]:
    """Return a reader of streams."""
    return _read


@pytest.fixture(scope="session")
def assemble() -> Callable[[Iterable[Event]], Reply]:
    """Return the fold of events into a reply."""
    return _assemble


@pytest.fixture(scope="session")
def stream_of() -> Callable[[dict[str, Any]], list[dict[str, Any]]]:
    """Return a maker of the event sequence of a whole response."""
    return _stream_of


@pytest.fixture(scope="session")
def body() -> Callable[[Any], bytes]:
    """Return the JSON writer."""
    return msgspec.json.encode
