"""A Messages stream, read into canonical events.

Believes the content and mistrusts the frame around it: a block may never start, start twice under one index, never
stop, or bring its input whole; deltas may name an index nobody opened. Each block is rebuilt as the JSON it would be
in a whole reply and read by the same reader, so a streamed reply equals the whole one by construction (the arguments
of a call stay the text that was streamed). Errors never leave as exceptions: they become `Failed`.

Cost is linear: fragments are kept in lists and joined once, when their block ends.
"""

from typing import Any, Literal

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.parts import Part, Reasoning, Text
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
    StateDelta,
    UsageUpdated,
)
from mustcall.wire.codec import Provenance
from mustcall.wire.messages.blocks import dump_input, read_block
from mustcall.wire.messages.errors import error_from_value
from mustcall.wire.messages.inputs import parse_object
from mustcall.wire.messages.reply import finish_reason, read_usage
from mustcall.wire.reading import ShapeError, as_list, as_object, decode_json, maybe_object, read
from mustcall.wire.sse import SseEvent

__all__ = ["MessagesStreamDecoder"]

_WIRE = Wire.MESSAGES
_TERMINATOR = b"[DONE]"  # some servers add OpenAI's end mark
_DELTA_BLOCKS = {"text_delta": "text", "thinking_delta": "thinking"}
_EMPTY_BLOCKS: dict[str, JsonObject] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class _Block:
    """One content block under construction."""

    __slots__ = ("citations", "closed", "fragments", "index", "kind", "signature", "start")

    def __init__(self, index: int, start: JsonObject) -> None:
        self.index = index
        self.start = start
        self.kind: str = start["type"]
        self.fragments: list[str] = []
        self.citations: list[Any] = []
        self.signature: str | None = None
        self.closed = False


class _PlainText(msgspec.Struct, gc=False):
    type: Literal["text_delta"]
    text: str


class _PlainDelta(msgspec.Struct, gc=False):
    """A delta of nothing but text: by far the most common event, read in C and without a dict."""

    type: Literal["content_block_delta"]
    index: int
    delta: _PlainText


_plain = msgspec.json.Decoder(_PlainDelta)
_TEXT_HEAD = b"event: content_block_delta\ndata: "
_plain_run = msgspec.json.Decoder(list[_PlainDelta])


class MessagesStreamDecoder:
    """Server-sent events in, canonical events out."""

    __slots__ = (
        "_blocks",
        "_closed",
        "_count",
        "_done",
        "_fresh",
        "_opened",
        "_provenance",
        "_reported",
        "_started",
        "_stop",
        "_usage",
        "_written",
    )

    def __init__(self, provenance: Provenance) -> None:
        self._provenance = provenance
        self._blocks: dict[int, _Block] = {}
        self._closed: set[int] = set()
        self._opened: dict[str, list[_Block]] = {}  # by kind; closed ones are taken off when they are on top
        self._fresh = 0  # above every index ever used
        self._count = 0
        self._usage: JsonObject = {}
        self._reported: str | None = None
        self._stop: str | None = None
        self._started = False
        self._done = False
        self._written: _Block | None = None  # what was peeled last

    def feed(self, event: SseEvent) -> list[Event]:
        """Take one event; nothing comes out after `Ended` or `Failed`."""
        if self._done or event.data.strip() == _TERMINATOR:
            return []
        if event.name == "content_block_delta":
            try:
                plain = _plain.decode(event.data)
            except (msgspec.DecodeError, ValueError, RecursionError):
                pass  # anything but text, or a text that is not quite so: read below with all care
            else:
                block = self._blocks.get(plain.index)
                if block is not None and block.kind == "text":
                    events: list[Event] = []
                    self._grow(block, plain.delta.text, events)
                    return events
        try:
            return self._take(as_object(decode_json(event.data)), event.name)
        except ShapeError as error:
            return self._fail(_garbage(f"the upstream's stream cannot be read: {error}"))

    def feed_all(self, events: list[SseEvent]) -> list[Event]:
        """Take events that arrived together; runs of plain text are read in one step."""
        out: list[Event] = []
        run: list[SseEvent] = []
        for event in events:
            if event.name == "content_block_delta":
                run.append(event)
                continue
            if run:
                out.extend(self._take_run(run))
                run = []
            out.extend(self.feed(event))
        if run:
            out.extend(self._take_run(run))
        return out

    def peel(self, event: bytes) -> tuple[int, str] | None:
        """Read one delta of nothing but text."""
        if self._done or not event.startswith(_TEXT_HEAD) or event.find(b"\n", len(_TEXT_HEAD)) != len(event) - 2:
            return None
        delta = read(_plain, memoryview(event)[len(_TEXT_HEAD) : -2])
        block = self._blocks.get(delta.index) if delta is not None else None
        if delta is None or block is None or block.kind != "text" or not delta.delta.text:
            return None
        self._written = block
        return block.index, delta.delta.text

    def take_text(self, index: int, text: str) -> PartTextDelta:
        """Take the text of such deltas."""
        assert self._written is not None, "an event was peeled before"
        self._written.fragments.append(text)
        return PartTextDelta(index, text)

    def _take_run(self, run: list[SseEvent]) -> list[Event]:
        """Read deltas that follow each other: in one step if all are text of one block, else one by one."""
        if len(run) > 1 and not self._done:
            try:
                deltas = _plain_run.decode(b"[%b]" % b",".join([event.data for event in run]))
            except (msgspec.DecodeError, ValueError, RecursionError):
                deltas = []
            index = deltas[0].index if len(deltas) == len(run) else -1
            block = self._blocks.get(index)
            if block is not None and block.kind == "text" and all(delta.index == index for delta in deltas):
                events: list[Event] = []
                self._grow(block, "".join([delta.delta.text for delta in deltas]), events)
                return events
        return [event for one in run for event in self.feed(one)]

    def close(self) -> list[Event]:
        """Take the end of the bytes; a stop reason makes a reply complete even without `message_stop`."""
        if self._done:
            return []
        if self._reported is not None:
            return self._end()
        self._done = True
        message = "the upstream's stream was cut before the reply was complete"
        return [Failed(ErrorInfo(message=message, status=502, code="upstream_unavailable"))]

    def _take(self, value: JsonObject, name: str) -> list[Event]:
        kind = value.get("type")
        match kind if isinstance(kind, str) else name:
            case "content_block_delta":
                return self._delta(value)
            case "content_block_start":
                return self._block_start(value)
            case "content_block_stop":
                return self._block_stop(value)
            case "message_start":
                return self._message_start(value)
            case "message_delta":
                return self._message_delta(value)
            case "message_stop":
                return self._end()
            case "error":
                return self._fail(error_from_value(value), value)
            case _:
                if kind is None and value.get("error"):
                    return self._fail(error_from_value(value), value)
                return []  # pings, and events of versions to come

    def _fail(self, error: ErrorInfo, raw: Any = None) -> list[Event]:
        self._done = True
        return [Failed(error, raw)]

    def _message_start(self, value: JsonObject) -> list[Event]:
        message = maybe_object(value.get("message")) or {}
        events: list[Event] = []
        if not self._started:
            self._started = True
            own_id, model = message.get("id"), message.get("model")
            events.append(
                Started(
                    own_id if isinstance(own_id, str) and own_id else f"msg_{self._provenance.token}",
                    model if isinstance(model, str) else "",
                )
            )
        events.extend(self._merge_usage(message))
        return events

    def _begin(self, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            events.append(Started(f"msg_{self._provenance.token}", ""))

    def _merge_usage(self, holder: JsonObject) -> list[Event]:
        """Lay new counts over the old ones: they are totals, and absent ones stay as they were."""
        usage = maybe_object(holder.get("usage"))
        if not usage:
            return []
        self._usage = {**self._usage, **{key: count for key, count in usage.items() if count is not None}}
        return [UsageUpdated(read_usage(self._usage))]

    def _message_delta(self, value: JsonObject) -> list[Event]:
        events: list[Event] = []
        self._begin(events)
        delta = maybe_object(value.get("delta")) or {}
        reported, stop = delta.get("stop_reason"), delta.get("stop_sequence")
        if isinstance(reported, str):
            self._reported = reported
        if isinstance(stop, str):
            self._stop = stop
        events.extend(self._merge_usage(value))
        return events

    def _block_start(self, value: JsonObject) -> list[Event]:
        start = maybe_object(value.get("content_block"))
        kind = None if start is None else start.get("type")
        if start is None or not isinstance(kind, str):
            raise ShapeError("an object with a type", value.get("content_block"), "content_block")
        index = value.get("index")
        number = index if isinstance(index, int) else self._fresh
        events: list[Event] = []
        self._begin(events)
        old = self._blocks.get(number)
        if old is not None:
            if old.start == start and not old.fragments:
                return events  # the same event twice
            self._close(number, old, events)  # a new block under an index still open: the old one is over
        self._open(number, start, events)
        return events

    def _open(self, number: int, start: JsonObject, events: list[Event]) -> _Block:
        block = _Block(self._count, start)
        self._count += 1
        self._blocks[number] = block
        self._opened.setdefault(block.kind, []).append(block)
        self._fresh = max(self._fresh, number + 1)
        self._closed.discard(number)
        events.append(PartStarted(block.index, self._first_form(block)))
        if block.kind == "text":
            self._grow(block, start.get("text"), events)
        elif block.kind == "thinking":
            self._grow(block, start.get("thinking"), events)
        return block

    def _first_form(self, block: _Block) -> Part:
        """Return what is known of a part when it starts: its kind and, for a call, id and name."""
        match block.kind:
            case "text":
                return Text(text="")
            case "thinking":
                return Reasoning()
            case "tool_use":
                # Read without its input, which usually comes in deltas, and without a claim to be the exact form.
                call = self._read({**block.start, "input": None}, block)
                return call.evolve()
            case _:
                return self._read(block.start, block)

    def _read(self, value: JsonObject, block: _Block) -> Part:
        return read_block(value, self._provenance.issuer, f"toolu_{self._provenance.token}_{block.index}")

    def _grow(self, block: _Block, text: Any, events: list[Event]) -> None:
        if not isinstance(text, str) or not text:
            return
        block.fragments.append(text)
        if block.kind == "text":
            events.append(PartTextDelta(block.index, text))
        elif block.kind == "thinking":
            events.append(PartReasoningDelta(block.index, text))
        elif block.kind == "tool_use":
            events.append(ArgumentsDelta(block.index, text))

    def _delta(self, value: JsonObject) -> list[Event]:
        delta = maybe_object(value.get("delta"))
        if delta is None:
            return []
        events: list[Event] = []
        self._begin(events)
        kind, index = delta.get("type"), value.get("index")
        number = index if isinstance(index, int) else None
        match kind:
            case "text_delta" | "thinking_delta":
                block = self._block_for(number, _DELTA_BLOCKS[kind], events)
                if block is not None:
                    self._grow(block, delta.get("text" if kind == "text_delta" else "thinking"), events)
            case "input_json_delta":
                block = self._input_block(number)
                if block is not None:
                    partial = delta.get("partial_json")
                    self._grow(block, dump_input(partial), events)
            case "signature_delta":
                block = self._latest(number, "thinking")
                signature = delta.get("signature")
                if block is not None and isinstance(signature, str):
                    block.signature = signature
            case "citations_delta":
                block = self._latest(number, "text")
                if block is not None:
                    block.citations.append(delta.get("citation"))
            case _:
                pass
        return events

    def _block_for(self, number: int | None, kind: str, events: list[Event]) -> _Block | None:
        """Return the open block a text belongs to, opening one that never started; None for one that is over."""
        if number is None:
            found = self._latest(None, kind)
            if found is not None:
                return found
            number = self._fresh
        block = self._blocks.get(number)
        if block is not None:
            if block.kind == kind:
                return block
            self._close(number, block, events)
        elif number in self._closed:
            return None
        return self._open(number, _EMPTY_BLOCKS[kind], events)

    def _input_block(self, number: int | None) -> _Block | None:
        if number is not None and number in self._closed:
            return None  # a late delta: the call is complete
        block = self._blocks.get(number) if number is not None else None
        if block is not None and block.kind.endswith("tool_use"):
            return block
        return self._latest(None, "tool_use")

    def _latest(self, number: int | None, kind: str) -> _Block | None:
        """Return the open block of this index if it is of this kind, else the last opened one that is."""
        if number is not None and number in self._closed:
            return None
        block = self._blocks.get(number) if number is not None else None
        if block is not None and block.kind == kind:
            return block
        opened = self._opened.get(kind, [])
        while opened and opened[-1].closed:
            opened.pop()
        return opened[-1] if opened else None

    def _block_stop(self, value: JsonObject) -> list[Event]:
        events: list[Event] = []
        index = value.get("index")
        block = self._blocks.get(index) if isinstance(index, int) else None
        if isinstance(index, int) and block is not None:
            self._close(index, block, events)
        return events

    def _close(self, number: int, block: _Block, events: list[Event]) -> None:
        """End a block: say what only its end tells, then its final form."""
        del self._blocks[number]
        block.closed = True
        self._closed.add(number)
        if block.kind == "tool_use" and not block.fragments:
            # No deltas: the input came whole with the start, `{}` included.
            self._grow(block, dump_input(block.start.get("input")), events)
        part = self._final(block)
        if isinstance(part, Reasoning) and part.state is not None and block.kind == "thinking":
            events.append(StateDelta(block.index, part.state))
        events.append(PartEnded(block.index, part))

    def _final(self, block: _Block) -> Part:
        """Read the block as it would stand in a whole reply."""
        text = "".join(block.fragments)
        value = dict(block.start)
        if block.kind == "text":
            value["text"] = text
            if block.citations:
                known = value.get("citations")
                value["citations"] = [*(as_list(known) if isinstance(known, list) else []), *block.citations]
        elif block.kind == "thinking":
            value["thinking"] = text
            if block.signature is not None:
                value["signature"] = block.signature
        elif block.fragments:
            found = parse_object(text)
            if block.kind != "tool_use":
                value["input"] = found if found is not None else text
            else:
                value["input"] = found
                call = self._read(value, block)
                # The arguments stay as the model wrote them; the exact form is only known if they could be read.
                exact = Origin(_WIRE, call.fields_for(_WIRE), value if found is not None else None)
                return msgspec.structs.replace(call, arguments_json=text, origin=exact)
        return self._read(value, block)

    def _end(self) -> list[Event]:
        events: list[Event] = []
        self._begin(events)
        for number, block in sorted(self._blocks.items(), key=lambda item: item[1].index):
            self._close(number, block, events)
        events.append(Finished(finish_reason(self._reported), self._reported, self._stop))
        events.append(Ended())
        self._done = True
        return events


def _garbage(message: str) -> ErrorInfo:
    return ErrorInfo(message=message, status=502, code="upstream_garbage")
