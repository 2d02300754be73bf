"""Looks through a reply's text as it streams: text stays text, leaked reasoning is reasoning, calls are kept aside.

Events go in as the upstream's codec made them and come out as they may be shown; a text without markup passes as the
very same events. It finds and decides nothing: whether a text call is promoted, discarded or left alone is the
judge's. Each character is scanned once, and a lens that looks for nothing passes everything on.
"""

import msgspec

from mustcall.core.parts import Part, Reasoning, Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Event,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    StateDelta,
)
from mustcall.dialects import (
    CallEnd,
    CallStart,
    LateReasoningEnd,
    Malformed,
    Reason,
    ScanEvent,
    ScannedReasoning,
    ScannedText,
)
from mustcall.policy.scanning.early_end import EarlyEnd
from mustcall.policy.scanning.plain_replies import is_plain
from mustcall.policy.scanning.reasoning_calls import Channel, Musing, Watch, channels_of, draw_out, is_silent
from mustcall.policy.scanning.reply_slots import Slot, SlotKind, TextScan, start_of, without, written
from mustcall.policy.scanning.scan_targets import NOTHING, ScanFindings, ScanTargets

__all__ = ["ReplyScanner", "ScanFindings", "ScanTargets"]

#: How much of a whole text is looked through at once.
_PIECE = 32 * 1024
#: Reports that are no sign of a call: a closer without its opener, a marker that is only mentioned.
_HARMLESS = frozenset({Reason.STRAY_MARKER})


class ReplyScanner:
    """One attempt's look at its text. `token` makes the ids of calls found there."""

    __slots__ = (
        "_calls",
        "_early",
        "_emptied",
        "_late_place",
        "_lookout",
        "_malformed",
        "_mused",
        "_musing",
        "_open",
        "_others",
        "_slots",
        "_streams",
        "_token",
        "_watches",
        "late",
        "marked",
        "touched",
    )

    def __init__(self, lookout: ScanTargets | None, token: str) -> None:
        self._lookout = lookout
        #: None where no call is demanded.
        self._early = None if lookout is None or lookout.demanded is None else EarlyEnd(lookout.demanded)
        self._token = token
        self._slots: list[Slot] = []
        self._open: dict[int, TextScan] = {}
        self._others: dict[int, int] = {}
        self._calls: list[CallEnd] = []
        self._malformed: list[Malformed] = []
        self._streams = True
        # The texts of each reasoning part that is looked at.
        self._watches: dict[int, dict[Channel, Watch]] = {}
        self._musing = Musing()
        # Calls in text that turned out to be reasoning.
        self._mused: list[CallEnd] = []
        # The place of text that went out before it turned out to be reasoning.
        self._late_place: int | None = None
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
        return (
            any(scan.held or not scan.started for scan in self._open.values())
            or any(watch.fed != watch.emitted for texts in self._watches.values() for watch in texts.values())
            or self._musing.pending
        )

    @property
    def ended_open(self) -> bool:
        """Whether a text ended with a complete call whose closing marker had not come."""
        return any(scan.scanner.ended_open for scan in self._open.values())

    @property
    def settles(self) -> bool:
        """Whether a reply may be settled before its end: a call is demanded."""
        return self._early is not None

    @property
    def runs_dry(self) -> bool:
        """Whether a call is demanded and the text went on in nothing but blanks: a small model has said all it will.

        Blanks in a call do not count. What follows them is not looked at.
        """
        return self._early is not None and self._early.dry

    @property
    def settled(self) -> bool:
        """Whether a demanded call is there, and the list of calls it may stand in is over."""
        early = self._early
        if early is None or not early.met:
            return False
        listed = None if early.over else self._calls[-1].listed
        return listed is None or all(scan.scanner.open_list != listed for scan in self._open.values())

    def feed(self, event: Event) -> list[Event]:
        """Take one event and return what may be shown."""
        if self._lookout is None:
            return [event]
        if type(event) is PartTextDelta:
            scan = self._open.get(event.index)
            return self._said([self._moved(event)]) if scan is None else self._text(scan, event.text, event)
        match event:
            case PartTextDelta():
                raise AssertionError("text deltas are the first case")
            case PartStarted(index=index, part=part):
                if isinstance(part, Text):
                    self._slots.append(Slot(SlotKind.TEXT, index))
                    scan = self._open[index] = TextScan(part, len(self._slots) - 1, self._lookout.scanner())
                    return self._text(scan, part.text, None) if part.text else []
                place = self._others[index] = len(self._slots)
                self._slots.append(Slot(SlotKind.OTHER, index))
                if isinstance(part, Reasoning) and not self._musing.over:
                    self._watches[index] = {}
                    texts = list(channels_of(part))
                    begun = PartStarted(place, part.evolve(text="", summary=())) if texts else self._moved(event)
                    out = self._said([begun])
                    for channel, text in texts:
                        out += self._reason(index, channel, text, None)
                    return out
                return self._said([self._moved(event)])
            case PartEnded(index=index, part=part):
                scan = self._open.get(index)
                if scan is not None:
                    return self._end(scan, event, part)
                left = self._end_thought(index, part) if index in self._watches else []
                return [*left, *self._said([self._moved(event)])]
            case PartReasoningDelta(index=index, text=text, summary=channel) if index in self._watches:
                return self._reason(index, channel, text, event)
            case PartReasoningDelta() | ArgumentsDelta() | StateDelta():
                return self._said([self._moved(event)])
            case _:
                return [event]

    def fresh(self) -> "ReplyScanner":
        """Return a lens that has seen nothing yet."""
        return ReplyScanner(self._lookout, self._token)

    def read(self, reply: Reply) -> "ScanFindings":
        """Look through a whole reply."""
        if is_plain(reply, self._lookout):
            return NOTHING
        self._streams = False
        if not all(isinstance(part, Text | Reasoning) for part in reply.parts):
            self._musing.end()
        for index, part in enumerate(reply.parts):
            if isinstance(part, Text) and len(part.text) > _PIECE:
                # In pieces: one search through all of it could not be interrupted.
                self.feed(PartStarted(index, part.evolve(text="")))
                for start in range(0, len(part.text), _PIECE):
                    self.feed(PartTextDelta(index, part.text[start : start + _PIECE]))
            else:
                self.feed(PartStarted(index, part))
            if isinstance(part, Text | Reasoning):
                self.feed(PartEnded(index))
        return self.found(reply)

    def found(self, reply: Reply) -> "ScanFindings":
        """Return what was found in a reply whose events were fed."""
        if not (self.marked or self.touched or self._musing.marks):
            return NOTHING
        promoted = written(self._slots, reply, self._made_id)
        changed = self.marked or self.touched
        found = ScanFindings(
            calls=tuple(self._calls),
            malformed=tuple(self._malformed),
            thought=self.late or self._emptied or any(slot.kind is SlotKind.REASONING for slot in self._slots),
            ended_open=self.ended_open,
            cleaned=without(promoted, self._slots, SlotKind.CALL, SlotKind.DROPPED) if changed else None,
            promoted=without(promoted, self._slots, SlotKind.DROPPED) if changed else None,
            settled=self._early is not None and self._early.met,
            passed=() if self._early is None else tuple(self._early.passed),
        )
        if not (self._musing.marks or self._mused) or self._calls:
            return found
        said = [
            part
            for place, (part, slot) in enumerate(zip(promoted, self._slots, strict=True))
            if slot.kind is not SlotKind.DROPPED and place != self._late_place
        ]
        if not is_silent(said):
            return found
        return self._with_reasoned(found, promoted)

    def _with_reasoned(self, found: ScanFindings, parts: list[Part]) -> ScanFindings:
        """Add the calls in the reasoning of a reply that is nothing else."""
        assert self._lookout is not None, "something was looked for"
        calls, bare = tuple(self._mused), list(parts)
        for (place, channel), shown in self._musing.marks.items():
            part = bare[place]
            assert isinstance(part, Reasoning), "only reasoning is marked"
            read, bare[place] = draw_out(part, channel, shown, self._lookout)
            calls = read or calls
        if not calls:
            return found
        made = tuple(
            ToolCall(id=self._made_id(number), name=call.name, arguments_json=call.arguments)
            for number, call in enumerate(calls)
        )
        kept = without(bare, self._slots, SlotKind.CALL, SlotKind.DROPPED)
        return msgspec.structs.replace(found, reasoned=made, dialect=calls[0].dialect, bare=kept)

    def _made_id(self, number: int) -> str:
        start = "call_" if self._lookout is None else self._lookout.call_start
        return f"{start}{self._token}_{number}"

    def _said(self, out: list[Event], call: int | None = None) -> list[Event]:
        """Return what of these may be shown, and take note of what they say."""
        return self._musing.pass_on(out, call)

    def _reason(self, index: int, channel: Channel, text: str, event: PartReasoningDelta | None) -> list[Event]:
        """Take more of a reasoning part of the upstream's own."""
        texts = self._watches[index]
        watch = texts.get(channel)
        out: list[Event] = []
        if watch is None:
            assert self._lookout is not None, "something is looked for"
            out += self._close_thoughts(index)
            watch = texts[channel] = Watch(self._others[index], channel, self._lookout.watch())
        if watch.closed:
            return self._said([PartReasoningDelta(watch.place, text, channel)])
        watch.fed += len(text)
        found = watch.scanner.feed(text)
        if event is not None and len(found) == 1 and isinstance(found[0], ScannedText) and found[0].text is text:
            watch.emitted += len(text)
            return [*out, *self._said([self._moved(event)])]
        return [*out, *self._show_thought(watch, found)]

    def _show_thought(self, watch: Watch, found: list[ScanEvent]) -> list[Event]:
        out, call = watch.read(found)
        if call is not None and not self._musing.over:
            before = sum(len(event.text) for event in out[:call] if isinstance(event, PartReasoningDelta))
            self._musing.marks.setdefault((watch.place, watch.channel), watch.emitted + before)
        watch.emitted += sum(len(event.text) for event in out if isinstance(event, PartReasoningDelta))
        return self._said(out, call)

    def _end_thought(self, index: int, final: Part | None) -> list[Event]:
        """End a reasoning part: what was held comes out, and what the final word has beyond the deltas."""
        out: list[Event] = []
        for channel, text in channels_of(final):
            watch = self._watches[index].get(channel)
            fed = 0 if watch is None else watch.fed
            if len(text) > fed and not (watch is not None and watch.closed):
                out += self._reason(index, channel, text[fed:], None)
        return [*out, *self._close_thoughts(index)]

    def _close_thoughts(self, index: int) -> list[Event]:
        """End the texts of a reasoning part so far: what was held of them comes out."""
        out: list[Event] = []
        for watch in self._watches[index].values():
            if not watch.closed:
                watch.closed = True
                out += self._show_thought(watch, watch.scanner.close())
        return out

    def _moved(
        self, event: PartStarted | PartEnded | PartTextDelta | PartReasoningDelta | ArgumentsDelta | StateDelta
    ) -> Event:
        """Return an event of another part at the place its part has now."""
        place = self._others.get(event.index, event.index)
        return event if place == event.index else msgspec.structs.replace(event, index=place)

    def _text(self, scan: TextScan, text: str, event: PartTextDelta | None) -> list[Event]:
        scan.fed += len(text)
        early = self._early
        found = scan.scanner.feed(text) if early is None else early.scan(scan.scanner, text)
        if event is not None and not self.touched and scan.started and len(found) == 1:
            only = found[0]
            if isinstance(only, ScannedText) and only.text is text:
                # Most deltas of most replies: text in, the same text out.
                self._slots[scan.place].fragments.append(text)
                shown: list[Event] = [event if scan.place == event.index else PartTextDelta(scan.place, text)]
                return shown if self._musing.over else self._said(shown)
        scan.held += len(text)
        return self._show(scan, found)

    def _show(self, scan: TextScan, found: list[ScanEvent]) -> list[Event]:
        """Take what a scanner found and return what may be shown: nothing from the first sign of a call on."""
        out: list[Event] = []
        ready = 0 if self.marked else None
        mused: int | None = None
        starts: list[int] = []
        early = self._early
        for number, event in enumerate(found):
            starts.append(len(out))
            if early is not None and early.met and not isinstance(event, CallEnd):
                continue
            match event:
                case ScannedText(text=text):
                    scan.held -= len(text)
                    if scan.after_markup and not scan.started:
                        text = text.lstrip("\n")
                    if text:
                        self._begin(scan, SlotKind.TEXT, out)
                        self._slots[scan.place].fragments.append(text)
                        out.append(PartTextDelta(scan.place, text))
                case ScannedReasoning(text=text):
                    self.touched = True
                    self._begin(scan, SlotKind.REASONING, out)
                    self._slots[scan.place].fragments.append(text)
                    out.append(PartReasoningDelta(scan.place, text))
                case CallEnd():
                    if not event.in_reasoning:
                        self.marked = self.touched = True
                        if early is not None and early.take(event, self._calls, self._malformed, self._slots):
                            break
                        self._calls.append(event)
                        self._place(scan, SlotKind.CALL, out)
                        self._slots[scan.place].call = event
                        self._next(scan)
                case Malformed():
                    if not event.in_reasoning and event.reason not in _HARMLESS:
                        self.marked = True
                        self._malformed.append(event)
                case LateReasoningEnd():
                    self._turn_into_reasoning(scan, out)
                case CallStart(in_reasoning=True):
                    if mused is None and not self._muse(scan, out):
                        continue
                    mused = len(out) if mused is None else mused
                case _:
                    if not getattr(event, "in_reasoning", False):
                        self.marked = True
            if self.marked and ready is None:
                ready = starts[start_of(found, number)]
        return self._said(out if ready is None else out[:ready], mused)

    def _muse(self, scan: TextScan, out: list[Event]) -> bool:
        """Take note of a call in a section, where sections are no text."""
        if self._lookout is None or self._lookout.separated or self._musing.over:
            return False
        self.touched = True
        self._begin(scan, SlotKind.REASONING, out)
        self._musing.marks.setdefault((scan.place, None), sum(map(len, self._slots[scan.place].fragments)))
        return True

    def _begin(self, scan: TextScan, kind: SlotKind, out: list[Event]) -> None:
        """Make sure that the part being written is of this kind and has started."""
        self._place(scan, kind, out)
        if not scan.started:
            scan.started = True
            out.append(PartStarted(scan.place, scan.part.evolve(text="") if kind is SlotKind.TEXT else Reasoning()))

    def _place(self, scan: TextScan, kind: SlotKind, out: list[Event]) -> None:
        """Take the slot of this part that is still unused, or the next one after ending the one in use."""
        slot = self._slots[scan.place]
        if slot.kind is kind and (scan.started or kind is not SlotKind.CALL):
            return
        if scan.started:
            out.append(PartEnded(scan.place))
            self._next(scan)
        self._slots[scan.place].kind = kind

    def _next(self, scan: TextScan) -> None:
        """Open a new slot for what follows."""
        self._slots.append(Slot(SlotKind.TEXT, self._slots[scan.place].source))
        scan.place = len(self._slots) - 1
        scan.started = False
        scan.after_markup = True

    def _turn_into_reasoning(self, scan: TextScan, out: list[Event]) -> None:
        """Take the text so far for reasoning, after the fact.

        What has been shown of it stays text for the one who saw it; its part ends here, so that the answer is a part
        of its own, and the reply says what each of them was. Calls in it are none (rule 65).
        """
        separated = self._lookout is not None and self._lookout.separated
        self._mused = [] if separated else self._calls
        self._calls = []
        if not self._streams:
            self._malformed.clear()
        source = self._slots[scan.place].source
        # In a stream that waits for its verdict, text before the first sign of a call went out and cannot end.
        seen = self.marked and self._streams
        for place, slot in enumerate(self._slots):
            if slot.source == source and slot.kind is SlotKind.CALL:
                slot.kind = SlotKind.DROPPED
            elif slot.source == source and slot.kind is SlotKind.TEXT and slot.fragments and not separated:
                if seen:
                    self._late_place, seen = place, False
                else:
                    slot.kind = SlotKind.REASONING
        if separated:
            return
        self.touched = self.late = True
        scan.after_markup = True
        if scan.started:
            out.append(PartEnded(scan.place))
            self._next(scan)

    def _end(self, scan: TextScan, event: PartEnded, final: Part | None) -> list[Event]:
        """End a text part: what was held comes out, and what the final word has beyond the deltas."""
        out: list[Event] = []
        if isinstance(final, Text) and len(final.text) > scan.fed:
            rest = final.text[scan.fed :]
            scan.fed += len(rest)
            scan.held += len(rest)
            out += self._show(
                scan, scan.scanner.feed(rest) if self._early is None else self._early.scan(scan.scanner, rest)
            )
        out += self._show(scan, scan.scanner.close())
        if scan.held and not self.touched:
            self.touched = self._emptied = True
        if self.marked:
            return out  # the rest of this part waits, and with it its end
        ends: list[Event] = []
        if not self.touched:
            if not scan.started:
                scan.started = True
                ends.append(PartStarted(scan.place, scan.part.evolve(text="")))
            ends.append(event if scan.place == event.index else PartEnded(scan.place, final))
        elif scan.started:
            ends.append(PartEnded(scan.place))
        return [*out, *self._said(ends)]
