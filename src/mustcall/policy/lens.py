"""Looks through a reply's text as it streams: text stays text, leaked reasoning is reasoning, calls are kept aside.

Events go in as the upstream's codec made them and come out as they may be shown; a text without markup passes as the
very same events. It finds and decides nothing: whether a text call is promoted, discarded or left alone is the
judge's. Each character is scanned once, and a lens that looks for nothing passes everything on.
"""

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Literal

import msgspec

from mustcall.core.events import ArgumentsDelta, Event, PartEnded, PartStarted, ReasoningDelta, StateDelta, TextDelta
from mustcall.core.parts import Part, Reasoning, Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.tools import Tool
from mustcall.dialects import CallEnd, LateReasoningEnd, Malformed, Reason, ScanEvent, Scanner, is_plain
from mustcall.dialects import Reasoning as ScannedReasoning
from mustcall.dialects import Text as ScannedText

__all__ = ["Found", "Lens", "Lookout"]

_AUTO = ("auto",)
#: Reports that are no sign of a call: a closer without its opener, a marker that is only mentioned.
_HARMLESS = frozenset({Reason.STRAY_MARKER})


class Lookout(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for: the tools on offer, the dialects, who separates reasoning, and what a JSON object alone is."""

    tools: tuple[Tool, ...]
    dialects: tuple[str, ...] = ("auto",)
    loose: bool = False
    separated: bool = False
    alone: Literal["reply", "anywhere", "never"] = "reply"
    shown: Callable[[], bool] | None = None
    #: Tells whether a call is one that settles the reply: what follows it is not looked at (rule 137).
    demanded: Callable[[str, str], bool] | None = None

    def scanner(self) -> Scanner:
        """Return a scanner for one text."""
        dialects: Literal["auto"] | Iterable[str] = "auto" if self.dialects == _AUTO else self.dialects
        return Scanner(
            dialects=dialects,
            tools=self.tools,
            loose=self.loose,
            reasoning="separated" if self.separated else "marked",
            alone=self.alone,
            shown=self.shown,
        )

    def is_plain(self, text: str) -> bool:
        """Tell quickly whether there is certainly nothing to find in a whole text."""
        return self.dialects == _AUTO and is_plain(text, tools=self.tools, loose=self.loose)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What the texts of a reply held.

    `cleaned` are the reply's parts without call markup and leaked reasoning, `promoted` the same with the calls in
    their places; both are None where there was nothing to take out. `settled` says that the calls are demanded ones,
    and that nothing behind them was looked at; `passed` is what was found before them.
    """

    calls: tuple[CallEnd, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    thought: bool = False
    ended_open: bool = False
    cleaned: tuple[Part, ...] | None = None
    promoted: tuple[Part, ...] | None = None
    settled: bool = False
    passed: tuple[CallEnd | Malformed, ...] = ()


class _Kind(Enum):
    TEXT = "text"
    REASONING = "reasoning"
    CALL = "call"
    OTHER = "other"
    DROPPED = "dropped"  # a call that was made before the demanded one


class _Settling(Enum):
    """How far a reply is from being settled by a demanded call."""

    OPEN = "open"
    MET = "met"
    OVER = "over"  # met, and what follows is not looked at
    SPOILT = "spoilt"  # a list of calls holds one that is not demanded


class _Slot:
    """One part as it comes out."""

    __slots__ = ("call", "fragments", "kind", "source")

    def __init__(self, kind: _Kind, source: int) -> None:
        self.kind = kind
        self.source = source
        self.fragments: list[str] = []
        self.call: CallEnd | None = None


class _TextScan:
    """One text part as it goes in: its scanner, and the slot its characters go to."""

    __slots__ = ("after_markup", "emitted", "fed", "part", "place", "scanner", "started")

    def __init__(self, part: Text, place: int, scanner: Scanner) -> None:
        self.part = part
        self.place = place
        self.scanner = scanner
        self.started = False
        self.after_markup = False
        self.fed = 0
        self.emitted = 0


class Lens:
    """One attempt's look at its text. `token` makes the ids of calls found there."""

    __slots__ = (
        "_blanks",
        "_calls",
        "_dry",
        "_emptied",
        "_lookout",
        "_malformed",
        "_open",
        "_others",
        "_passed",
        "_settling",
        "_slots",
        "_token",
        "late",
        "marked",
        "touched",
    )

    def __init__(self, lookout: Lookout | None, token: str) -> None:
        self._lookout = lookout
        self._token = token
        self._slots: list[_Slot] = []
        self._open: dict[int, _TextScan] = {}
        self._others: dict[int, int] = {}
        self._calls: list[CallEnd] = []
        self._malformed: list[Malformed] = []
        self._settling = _Settling.OPEN
        self._blanks = 0
        self._dry = False
        self._passed: list[CallEnd | Malformed] = []
        #: Whether something that may be a call was seen in text.
        self.marked = False
        #: Whether what comes out differs from what went in.
        self.touched = False
        #: Whether a reasoning section had nothing in it: its markers are all that was taken out.
        self._emptied = False
        #: Whether a section ended that had no start: the text before it was reasoning.
        self.late = False

    @property
    def pending(self) -> bool:
        """Whether something went in that has not come out: characters, or the start of a text."""
        return any(scan.fed != scan.emitted or not scan.started for scan in self._open.values())

    @property
    def ended_open(self) -> bool:
        """Whether a text ended with a complete call whose closing marker had not come."""
        return any(scan.scanner.ended_open for scan in self._open.values())

    @property
    def runs_dry(self) -> bool:
        """Whether a call is demanded and the text went on in nothing but blanks: a small model has said all it will.

        Blanks in a call do not count. What follows them is not looked at.
        """
        return self._dry

    @property
    def settled(self) -> bool:
        """Whether a demanded call is there, and the list of calls it may stand in is over."""
        if self._settling is not _Settling.MET:
            return self._settling is _Settling.OVER
        listed = self._calls[-1].listed
        return listed is None or all(scan.scanner.open_list != listed for scan in self._open.values())

    def feed(self, event: Event) -> list[Event]:
        """Take one event and return what may be shown."""
        if self._lookout is None:
            return [event]
        if type(event) is TextDelta:
            scan = self._open.get(event.index)
            return [self._moved(event)] if scan is None else self._text(scan, event.text, event)
        match event:
            case TextDelta():
                raise AssertionError("text deltas are the first case")
            case PartStarted(index=index, part=part):
                if isinstance(part, Text):
                    self._slots.append(_Slot(_Kind.TEXT, index))
                    scan = self._open[index] = _TextScan(part, len(self._slots) - 1, self._lookout.scanner())
                    return self._text(scan, part.text, None) if part.text else []
                self._others[index] = len(self._slots)
                self._slots.append(_Slot(_Kind.OTHER, index))
                return [self._moved(event)]
            case PartEnded(index=index, part=part):
                scan = self._open.get(index)
                return [self._moved(event)] if scan is None else self._end(scan, event, part)
            case ReasoningDelta() | ArgumentsDelta() | StateDelta():
                return [self._moved(event)]
            case _:
                return [event]

    def fresh(self) -> "Lens":
        """Return a lens that has seen nothing yet."""
        return Lens(self._lookout, self._token)

    def read(self, reply: Reply) -> "Found":
        """Look through a whole reply."""
        if self._lookout is None or all(
            self._lookout.is_plain(part.text) for part in reply.parts if isinstance(part, Text)
        ):
            return _NOTHING
        for index, part in enumerate(reply.parts):
            self.feed(PartStarted(index, part))
            if isinstance(part, Text):
                self.feed(PartEnded(index))
        return self.found(reply)

    def found(self, reply: Reply) -> "Found":
        """Return what was found in a reply whose events were fed."""
        if not (self.marked or self.touched):
            return _NOTHING
        promoted: list[Part] = []
        numbered = 0
        for slot in self._slots:
            text = "".join(slot.fragments)
            source = reply.parts[slot.source]
            match slot.kind:
                case _Kind.OTHER | _Kind.DROPPED:
                    promoted.append(source)
                case _Kind.CALL:
                    assert slot.call is not None, "a call slot has its call"
                    name, arguments = slot.call.name, slot.call.arguments
                    promoted.append(ToolCall(id=f"call_{self._token}_{numbered}", name=name, arguments=arguments))
                    numbered += 1
                case _Kind.REASONING:
                    promoted.append(Reasoning(text=text))
                case _Kind.TEXT:
                    promoted.append(source.evolve(text=text) if isinstance(source, Text) else source)
        return Found(
            calls=tuple(self._calls),
            malformed=tuple(self._malformed),
            thought=self.late or self._emptied or any(slot.kind is _Kind.REASONING for slot in self._slots),
            ended_open=self.ended_open,
            cleaned=_kept(promoted, self._slots, _Kind.CALL, _Kind.DROPPED),
            promoted=_kept(promoted, self._slots, _Kind.DROPPED),
            settled=self._settling in _AFTER_CALL,
            passed=tuple(self._passed),
        )

    def _moved(
        self, event: PartStarted | PartEnded | TextDelta | ReasoningDelta | ArgumentsDelta | StateDelta
    ) -> Event:
        """Return an event of another part at the place its part has now."""
        place = self._others.get(event.index, event.index)
        return event if place == event.index else msgspec.structs.replace(event, index=place)

    def _text(self, scan: _TextScan, text: str, event: TextDelta | None) -> list[Event]:
        scan.fed += len(text)
        found = self._scanned(scan.scanner, text)
        if event is not None and not self.touched and scan.started and len(found) == 1:
            only = found[0]
            if isinstance(only, ScannedText) and only.text is text:
                # Most deltas of most replies: text in, the same text out.
                scan.emitted += len(text)
                self._slots[scan.place].fragments.append(text)
                return [event if scan.place == event.index else TextDelta(scan.place, text)]
        return self._show(scan, found)

    def _scanned(self, scanner: Scanner, text: str) -> list[ScanEvent]:
        """Return what a piece holds; behind a run of blanks that is too long it is text, wherever it was cut."""
        if self._lookout is None or self._lookout.demanded is None:
            return scanner.feed(text)
        found: list[ScanEvent] = []
        while text and not self._dry:
            most = self._blanks + len(text) - len(text.lstrip())
            run = _BLANKS.search(text) if most < _MOST_BLANKS else None
            if most < _MOST_BLANKS and run is None:
                said = len(text.rstrip())
                self._blanks = len(text) - said + (0 if said else self._blanks)
                return found + scanner.feed(text)
            end = run.end() if run is not None else _MOST_BLANKS - self._blanks
            found += scanner.feed(text[:end])
            text, self._blanks = text[end:], 0
            self._dry = not scanner.in_call
        return [*found, ScannedText(text)] if text else found

    def _show(self, scan: _TextScan, found: list[ScanEvent]) -> list[Event]:
        """Take what a scanner found and return what may be shown: nothing from the first sign of a call on."""
        out: list[Event] = []
        ready = 0 if self.marked else None
        starts: list[int] = []
        for number, event in enumerate(found):
            starts.append(len(out))
            if self._settling in _AFTER_CALL and not isinstance(event, CallEnd):
                continue
            match event:
                case ScannedText(text=text):
                    scan.emitted += len(text)
                    if scan.after_markup and not scan.started:
                        text = text.lstrip("\n")
                    if text:
                        self._begin(scan, _Kind.TEXT, out)
                        self._slots[scan.place].fragments.append(text)
                        out.append(TextDelta(scan.place, text))
                case ScannedReasoning(text=text):
                    self.touched = True
                    self._begin(scan, _Kind.REASONING, out)
                    self._slots[scan.place].fragments.append(text)
                    out.append(ReasoningDelta(scan.place, text))
                case CallEnd():
                    if not event.in_reasoning:
                        self.marked = self.touched = True
                        self._settle(event)
                        if self._settling is _Settling.OVER:
                            break
                        self._calls.append(event)
                        self._place(scan, _Kind.CALL, out)
                        self._slots[scan.place].call = event
                        self._next(scan)
                case Malformed():
                    if not event.in_reasoning and event.reason not in _HARMLESS:
                        self.marked = True
                        self._malformed.append(event)
                case LateReasoningEnd():
                    self._turn_into_reasoning(scan, out)
                case _:
                    if not getattr(event, "in_reasoning", False):
                        self.marked = True
            if self.marked and ready is None:
                ready = starts[_start_of(found, number)]
        return out if ready is None else out[:ready]

    def _settle(self, call: CallEnd) -> None:
        """Take note of a complete call: the first demanded one settles the reply, with the list it stands in."""
        demanded = self._lookout.demanded if self._lookout is not None else None
        if demanded is None or self._settling is _Settling.SPOILT:
            return
        if self._settling is _Settling.OPEN:
            if demanded(call.name, call.arguments):
                self._settling = _Settling.MET
                self._passed = [*self._calls, *self._malformed]
                self._calls.clear()
                self._malformed.clear()
                for slot in self._slots:
                    if slot.kind is _Kind.CALL:
                        slot.kind = _Kind.DROPPED
            elif call.listed is not None:
                self._settling = _Settling.SPOILT
        elif call.listed is None or call.listed != self._calls[-1].listed:
            self._settling = _Settling.OVER
        elif not demanded(call.name, call.arguments):
            self._settling = _Settling.SPOILT

    def _begin(self, scan: _TextScan, kind: _Kind, out: list[Event]) -> None:
        """Make sure that the part being written is of this kind and has started."""
        self._place(scan, kind, out)
        if not scan.started:
            scan.started = True
            out.append(PartStarted(scan.place, scan.part.evolve(text="") if kind is _Kind.TEXT else Reasoning()))

    def _place(self, scan: _TextScan, kind: _Kind, out: list[Event]) -> None:
        """Take the slot of this part that is still unused, or the next one after ending the one in use."""
        slot = self._slots[scan.place]
        if slot.kind is kind and (scan.started or kind is not _Kind.CALL):
            return
        if scan.started:
            out.append(PartEnded(scan.place))
            self._next(scan)
        self._slots[scan.place].kind = kind

    def _next(self, scan: _TextScan) -> None:
        """Open a new slot for what follows."""
        self._slots.append(_Slot(_Kind.TEXT, self._slots[scan.place].source))
        scan.place = len(self._slots) - 1
        scan.started = False
        scan.after_markup = True

    def _turn_into_reasoning(self, scan: _TextScan, out: list[Event]) -> None:
        """Take the text so far for reasoning, after the fact.

        What has been shown of it stays text for the one who saw it; its part ends here, so that the answer is a part
        of its own, and the reply says what each of them was.
        """
        self.touched = self.late = True
        scan.after_markup = True
        if scan.started and not self.marked:
            out.append(PartEnded(scan.place))
            self._slots[scan.place].kind = _Kind.REASONING
            self._next(scan)

    def _end(self, scan: _TextScan, event: PartEnded, final: Part | None) -> list[Event]:
        """End a text part: what was held comes out, and what the final word has beyond the deltas."""
        out: list[Event] = []
        if isinstance(final, Text) and len(final.text) > scan.fed:
            rest = final.text[scan.fed :]
            scan.fed += len(rest)
            out += self._show(scan, self._scanned(scan.scanner, rest))
        out += self._show(scan, scan.scanner.close())
        if scan.fed != scan.emitted and not self.touched:
            self.touched = self._emptied = True
        if self.marked:
            return out  # the rest of this part waits, and with it its end
        if not self.touched:
            if not scan.started:
                scan.started = True
                out.append(PartStarted(scan.place, scan.part.evolve(text="")))
            out.append(event if scan.place == event.index else PartEnded(scan.place, final))
        elif scan.started:
            out.append(PartEnded(scan.place))
        return out


_NOTHING = Found()
#: Blanks behind which nothing more is expected: no model indents so far, and those that ramble write thousands.
_MOST_BLANKS = 40
_BLANKS = re.compile(rf"\s{{{_MOST_BLANKS}}}")
_AFTER_CALL = (_Settling.MET, _Settling.OVER)


def _kept(parts: list[Part], slots: list[_Slot], *without: _Kind) -> tuple[Part, ...]:
    """Return the parts whose slots are of no such kind, without the empty text that a call at the end leaves."""
    kept: list[Part] = []
    called = False
    for part, slot in zip(parts, slots, strict=True):
        called = called or slot.kind is _Kind.CALL
        left_over = called and slot.kind is _Kind.TEXT and not slot.fragments
        if slot.kind not in without and not left_over:
            kept.append(part)
    return tuple(kept)


def _start_of(found: list[ScanEvent], number: int) -> int:
    """Return where the span of a sign begins: a malformed one is reported behind the text it is made of."""
    event = found[number]
    if isinstance(event, Malformed):
        left = len(event.raw)
        while left > 0 and number:
            before = found[number - 1]
            if not isinstance(before, ScannedText):
                break
            number -= 1
            left -= len(before.text)
    return number
