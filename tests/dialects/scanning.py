"""What the dialect tests share: offered tools, ways to cut a text, and events in a form that can be compared."""

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from mustcall.core.tools import Tool
from mustcall.dialects import (
    ArgumentDelta,
    CallEnd,
    Dialect,
    Malformed,
    ScanEvent,
    ScannedReasoning,
    ScannedText,
    Scanner,
)

FIXTURES = Path(__file__).parent / "fixtures"

TOOLS = (
    Tool(
        name="get_weather",
        parameters={
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    ),
    Tool(name="get_time", parameters={"type": "object", "properties": {"zone": {"type": "string"}}}),
    Tool(
        name="search",
        parameters={
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "filter": {
                    "type": "object",
                    "properties": {
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "depth": {
                            "type": "object",
                            "properties": {"max": {"type": "integer"}, "strict": {"type": "boolean"}},
                        },
                    },
                },
                "limit": {"type": ["integer", "null"]},
            },
        },
    ),
    Tool(name="note", parameters={"type": "object", "properties": {"text": {"type": "string"}}}),
    Tool(name="now", parameters={"type": "object", "properties": {}}),
)

Active = Literal["auto"] | Sequence[str | Dialect]


class Fixture(msgspec.Struct, frozen=True):
    """A text and what must come of it: calls, the text that remains, and the reasons reported.

    `dialects` names the dialect of each call where the file's own name does not say it; `mixed` texts hold markup of
    others, too.
    """

    kind: str
    text: str
    calls: list[dict[str, Any]]
    remains: str
    malformed: list[str]
    reasoning: str = ""
    loose: bool = False
    dialects: list[str] = []
    mixed: bool = False


def load(name: str) -> list[Fixture]:
    """Return the fixtures of one file."""
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes(), type=list[Fixture])


def scan(
    pieces: Iterable[str],
    *,
    dialects: Active = "auto",
    tools: Iterable[Tool] | None = TOOLS,
    loose: bool = False,
    reasoning: Literal["marked", "opened", "separated"] = "marked",
    alone: Literal["reply", "anywhere", "never"] = "reply",
) -> list[ScanEvent]:
    """Return the events of one scan, neighbouring fragments joined: what is left does not depend on cuts."""
    scanner = Scanner(dialects=dialects, tools=tools, loose=loose, reasoning=reasoning, alone=alone)
    events: list[ScanEvent] = []
    for piece in pieces:
        events.extend(scanner.feed(piece))
    events.extend(scanner.close())
    return join(events)


def join(events: Iterable[ScanEvent]) -> list[ScanEvent]:
    """Join neighbouring fragments of the same thing."""
    joined: list[ScanEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        match last, event:
            case (ScannedText(), ScannedText()):
                joined[-1] = ScannedText(last.text + event.text)
            case (ScannedReasoning(), ScannedReasoning()):
                joined[-1] = ScannedReasoning(last.text + event.text)
            case (ArgumentDelta(), ArgumentDelta()) if last.index == event.index:
                joined[-1] = ArgumentDelta(last.index, last.text + event.text)
            case _:
                joined.append(event)
    return joined


def cuts(text: str, seed: int = 0) -> Iterator[list[str]]:
    """Yield the text whole, by character, and cut at random places."""
    yield [text]
    yield list(text)
    generator = random.Random(f"{seed}{text}")
    for most in (3, 7, 20):
        pieces: list[str] = []
        position = 0
        while position < len(text):
            size = generator.randint(1, most)
            pieces.append(text[position : position + size])
            position += size
        yield pieces


def calls_of(events: Iterable[ScanEvent]) -> list[dict[str, Any]]:
    """Return the calls that were made, as values."""
    return [
        {"name": event.name, "arguments": json.loads(event.arguments)}
        for event in events
        if isinstance(event, CallEnd) and not event.in_reasoning
    ]


def dialects_of(events: Iterable[ScanEvent]) -> list[str]:
    """Return the dialect of each call that was made."""
    return [event.dialect for event in events if isinstance(event, CallEnd) and not event.in_reasoning]


def text_of(events: Iterable[ScanEvent]) -> str:
    """Return the text that remains."""
    return "".join(event.text for event in events if isinstance(event, ScannedText))


def reasoning_of(events: Iterable[ScanEvent]) -> str:
    """Return the text of the reasoning sections."""
    return "".join(event.text for event in events if isinstance(event, ScannedReasoning))


def reasons_of(events: Iterable[ScanEvent]) -> list[str]:
    """Return why spans were reported as malformed."""
    return [str(event.reason) for event in events if isinstance(event, Malformed)]
