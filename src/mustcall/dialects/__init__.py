"""Tool calls written as text: finding them while they stream, and writing them.

Pure: no clock, no randomness, no I/O. `Scanner` reads, `parse` reads a whole text, `Prompt` writes, `DIALECTS` is the
catalogue. The events' contract is in `events.py`, the machine in `scan.py`, the formats in `families/`.
"""

from mustcall.dialects.catalogue import DIALECTS, find_dialect, forget, known, register
from mustcall.dialects.collect import Parsed, collect, parse
from mustcall.dialects.dialect import Dialect, Opener, Standing, WrittenCall
from mustcall.dialects.events import (
    ArgumentDelta,
    CallEnd,
    CallStart,
    LateReasoningEnd,
    Malformed,
    Reason,
    ScanEvent,
    ScannedReasoning,
    ScannedText,
)
from mustcall.dialects.prompt import Prompt, SystemText
from mustcall.dialects.scanner import Scanner, is_plain

__all__ = [
    "DIALECTS",
    "ArgumentDelta",
    "CallEnd",
    "CallStart",
    "Dialect",
    "LateReasoningEnd",
    "Malformed",
    "Opener",
    "Parsed",
    "Prompt",
    "Reason",
    "ScanEvent",
    "ScannedReasoning",
    "ScannedText",
    "Scanner",
    "Standing",
    "SystemText",
    "WrittenCall",
    "collect",
    "find_dialect",
    "forget",
    "is_plain",
    "known",
    "parse",
    "register",
]
