"""Server-sent events read from raw bytes, and the text in them put together: what leak checks look at.

A reader of its own, so that the product's is not its own judge.
"""

import json
from collections.abc import Iterator
from typing import Any

__all__ = ["find_disorder", "read_events", "readable"]


def read_events(body: bytes) -> list[tuple[str | None, Any]]:
    """Return each event's name and data: parsed JSON, or the text where it is none. Comments are left out."""
    events: list[tuple[str | None, Any]] = []
    for block in body.decode("utf-8", "replace").replace("\r\n", "\n").split("\n\n"):
        name: str | None = None
        data: list[str] = []
        for line in block.split("\n"):
            word, _, rest = line.partition(":")
            if word == "event":
                name = rest.strip()
            elif word == "data":
                data.append(rest.removeprefix(" "))
        if data:
            text = "\n".join(data)
            try:
                events.append((name, json.loads(text)))
            except ValueError:
                events.append((name, text))
    return events


def readable(body: bytes) -> str:
    """Return the body and, for a stream, every string of its events joined along its path, so that no cut hides it."""
    text = body.decode("utf-8", "replace")
    joined: dict[str, list[str]] = {}
    for _, data in read_events(body):
        for path, value in _strings(data, ""):
            joined.setdefault(path, []).append(value)
    return "\n".join([text, *("".join(values) for values in joined.values())])


def _strings(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, f"{path}/{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner, path)


def find_disorder(wire: str, body: bytes) -> str | None:
    """Return what is wrong with the order of a stream's events: no end, two ends, or anything after an end."""
    events = read_events(body)
    kinds = [_kind(wire, name, data) for name, data in events]
    ends = [at for at, kind in enumerate(kinds) if kind in ("end", "error")]
    if not ends:
        return f"the stream has no end: {len(events)} events, the last {events[-1:]}"
    if ends[0] != len(kinds) - 1:
        return f"events follow the {kinds[ends[0]]}: {events[ends[0] + 1 :][:3]}"
    if wire == "messages" and kinds[-1] == "end" and kinds.count("start") != 1:
        return f"{kinds.count('start')} message_start events"
    return None


def _kind(wire: str, name: str | None, data: Any) -> str:
    if data == "[DONE]":
        return "end" if wire == "chat" else "odd"
    if not isinstance(data, dict):
        return "odd"
    word: Any = data.get("type")
    if wire == "chat":
        return "error" if data.get("error") else "event"
    if word == "error" or name == "error":
        return "error"
    if word in ("message_stop", "response.completed", "response.incomplete"):
        return "end"
    if word == "response.failed":
        return "error"
    return "start" if word == "message_start" else "event"
