"""The whole of a scan as one value: what the events of a finished reply add up to.

`parse` is for text that is already complete (logs, tests, the command line). It decides one thing the stream cannot: a
reasoning section whose end came without its start takes the text before it along.
"""

from collections.abc import Iterable
from typing import Literal, assert_never

import msgspec

from mustcall.core.tools import Tool
from mustcall.dialects.dialect import Dialect
from mustcall.dialects.events import (
    ArgumentDelta,
    CallEnd,
    CallStart,
    LateReasoningEnd,
    Malformed,
    ScanEvent,
    ScannedReasoning,
    ScannedText,
)
from mustcall.dialects.scanner import Scanner

__all__ = ["Parsed", "collect", "parse"]


class Parsed(msgspec.Struct, frozen=True):
    """What a reply held. `reasoned` are the calls found inside reasoning: reported, never made."""

    calls: tuple[CallEnd, ...]
    text: str
    reasoning: str
    malformed: tuple[Malformed, ...]
    reasoned: tuple[CallEnd, ...]


def collect(events: Iterable[ScanEvent]) -> Parsed:
    """Add up the events of one scan."""
    calls: list[CallEnd] = []
    reasoned: list[CallEnd] = []
    texts: list[str] = []
    thoughts: list[str] = []
    malformed: list[Malformed] = []
    for event in events:
        match event:
            case ScannedText():
                texts.append(event.text)
            case ScannedReasoning():
                thoughts.append(event.text)
            case CallEnd():
                (reasoned if event.in_reasoning else calls).append(event)
            case Malformed():
                malformed.append(event)
            case LateReasoningEnd():
                thoughts.extend(texts)
                texts.clear()
                reasoned += [msgspec.structs.replace(call, in_reasoning=True) for call in calls]
                calls.clear()
                malformed = [msgspec.structs.replace(report, in_reasoning=True) for report in malformed]
            case CallStart() | ArgumentDelta():
                pass
            case _:
                assert_never(event)
    return Parsed(tuple(calls), "".join(texts), "".join(thoughts), tuple(malformed), tuple(reasoned))


def parse(
    pieces: Iterable[str],
    *,
    dialects: Literal["auto"] | Iterable[str | Dialect] = "auto",
    tools: Iterable[Tool] | None = None,
    loose: bool = False,
    reasoning: Literal["marked", "opened", "noted", "separated"] = "marked",
    alone: Literal["reply", "anywhere", "never"] = "reply",
) -> Parsed:
    """Scan a complete reply, given in one or more pieces. How it is cut makes no difference."""
    scanner = Scanner(dialects=dialects, tools=tools, loose=loose, reasoning=reasoning, alone=alone)
    events: list[ScanEvent] = []
    for piece in pieces:
        events.extend(scanner.feed(piece))
    events.extend(scanner.close())
    return collect(events)
