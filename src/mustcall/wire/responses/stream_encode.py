"""Canonical events to Responses stream events: the complete canonical sequence, because each client reads another part.

The OpenAI SDKs build on `added` events and the final output, Codex acts on `output_item.done` alone, the AI SDK wants
deltas (`shared/wires.md` 2). Items may be open side by side, so nothing is held back. An item keeps the id and call
id it was announced with, whatever its final form says: the SDKs refuse an item that changes its identity.
"""

from collections.abc import Sequence
from typing import assert_never

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.origin import JsonObject
from mustcall.core.parts import CallKind, OpaqueState, Part, Reasoning, Refusal, Text, ToolCall, Unknown
from mustcall.core.reply import FinishReason, Usage, derive_finish
from mustcall.core.request import Request
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
from mustcall.wire.caching.encode_cache import tools_as_bytes
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.responses.parts import is_native
from mustcall.wire.responses.reply import (
    distinct,
    encode_item,
    encode_usage,
    finish_fields,
    response_head,
    response_id,
)
from mustcall.wire.responses.stream_failures import failed_error, next_number
from mustcall.wire.sse import encode_event

__all__ = ["ResponsesStreamEncoder"]

_dump = msgspec.json.encode


class _Summary:
    """One summary of a reasoning item."""

    __slots__ = ("number", "streamed")

    def __init__(self, number: int) -> None:
        self.number = number
        self.streamed: list[str] = []


_TEXT_DELTA = encode_event(
    b'{"type":"response.output_text.delta","sequence_number":%d,"item_id":%b,"output_index":%d,'
    b'"content_index":0,"delta":%b,"logprobs":[]}',
    "response.output_text.delta",
)


class _Open:
    """One item on its way. `item` is the form it was announced in, `suffix` what its made ids end in."""

    __slots__ = ("dumped_id", "final", "item", "number", "part", "state", "streamed", "suffix", "summaries", "summary")

    def __init__(self, number: int, suffix: str, part: Part, item: JsonObject) -> None:
        self.number = number
        self.suffix = suffix
        self.part = part
        self.item = item
        self.dumped_id = _dump(item.get("id"))
        self.streamed: list[str] = []
        self.summaries: dict[int | None, _Summary] = {}  # by canonical number; None is another wire's thinking
        self.summary: _Summary | None = None  # the one not yet done
        self.state: OpaqueState | None = None
        self.final: Part | None = None  # the upstream's last word on a call that waits for the finish

    def missing(self, text: str) -> str:
        """Return what a whole text has beyond what was streamed; nothing if they contradict each other."""
        return _beyond(text, self.streamed)


def _beyond(text: str, streamed: list[str]) -> str:
    sent = "".join(streamed)
    return text[len(sent) :] if text.startswith(sent) else ""


class ResponsesStreamEncoder:
    """One stream's state: open items by canonical index, finished ones by output index."""

    __slots__ = (
        "_caller",
        "_done",
        "_finish",
        "_head",
        "_log",
        "_names",
        "_next",
        "_numbers",
        "_open",
        "_out",
        "_parts",
        "_sequence",
        "_stamp",
        "_usage",
        "_used",
    )

    def __init__(self, caller: Request, stamp: ReplyStamp, log: AdaptationLog) -> None:
        self._caller = caller
        self._stamp = stamp
        self._log = log
        self._head: JsonObject | None = None
        self._open: dict[int, _Open] = {}
        self._done: dict[int, JsonObject] = {}
        self._parts: list[Part] = []
        self._names: Sequence[str] = ()
        self._used: set[str] = set()
        self._numbers = 0
        self._next = 0
        self._sequence = 0
        self._usage: Usage | None = None
        self._finish: Finished | None = None
        self._out: list[bytes] = []

    def sign(self) -> bytes:
        """Return a sign of life: an event, because Codex's idle timer does not count comments.

        A stream that has not begun begins with it, because the SDKs refuse any other first event.
        """
        begun = self._head is not None
        head = self._create("", "")
        if begun:
            self._emit("response.in_progress", {"response": head})
        return self._taken()

    def resume(self, events: list[Event], names: Sequence[str], last: bytes) -> None:
        """Take what went out as the upstream's own bytes."""
        self._names = names
        for event in events:
            if isinstance(event, Started):
                self._create(event.id, event.model, announced=True)
            self.feed(event)
        self._names = ()
        self._sequence = next_number(last) or self._sequence

    def feed(self, event: Event) -> bytes:
        """Take one event."""
        match event:
            case PartTextDelta(index=index, text=text) | ArgumentsDelta(index=index, text=text):
                if index in self._open:
                    self._delta(self._open[index], text)
            case PartReasoningDelta(index=index, text=text, summary=summary):
                if index in self._open:
                    self._thinking(self._open[index], summary, text)
            case StateDelta(index=index, state=state):
                if index in self._open:
                    self._open[index].state = state
            case PartStarted(index=index, part=part):
                self._begin(index, part)
            case PartEnded(index=index, part=part):
                if not self._waits(index, part):
                    self._end(index, part)
            case UsageUpdated(usage=usage):
                self._usage = usage
            case Started(id=identifier, model=model):
                self._create(identifier, model)
            case Finished():
                self._finish = event
            case Ended():
                self._complete()
            case Failed(error=error):
                head = self._create("", "")
                response = {**head, "status": "failed", "error": failed_error(error), "output": self._output()}
                self._emit("response.failed", {"response": {**response, "usage": encode_usage(self._usage)}})
            case _:
                assert_never(event)
        return self._taken()

    def _taken(self) -> bytes:
        out = b"".join(self._out)
        self._out.clear()
        return out

    def _emit(self, kind: str, fields: JsonObject) -> None:
        self._out.append(encode_event(_dump({"type": kind, "sequence_number": self._sequence, **fields}), kind))
        self._sequence += 1

    def _about(self, item: _Open, kind: str, fields: JsonObject) -> None:
        self._emit(kind, {"item_id": item.item["id"], "output_index": item.number, **fields})

    # --- the response ---------------------------------------------------------------------------------------------

    def _create(self, identifier: str, model: str, *, announced: bool = False) -> JsonObject:
        """Announce the response, once; one that was announced keeps its id, whatever its form."""
        if self._head is None:
            own = identifier if announced and identifier else response_id(identifier, self._stamp)
            head = response_head(self._caller, own, model or self._caller.model, self._stamp)
            # Repeated in three events, and large: written once.
            if head["tools"]:
                head["tools"] = tools_as_bytes(head["tools"])
            self._head = head
            self._emit("response.created", {"response": head})
            self._emit("response.in_progress", {"response": head})
        return self._head

    def _output(self) -> list[JsonObject]:
        return [self._done[number] for number in sorted(self._done)]

    def _complete(self) -> None:
        head = self._create("", "")
        reason = self._finish.reason if self._finish is not None else FinishReason.UNKNOWN
        for index, opened in tuple(self._open.items()):
            self._end(index, opened.final, cut=reason is FinishReason.LENGTH)
        finish = derive_finish(reason, self._parts)
        refused = any(isinstance(part, Refusal) for part in self._parts)
        result = finish_fields(finish, self._output(), refused=refused)
        kind = "response.incomplete" if result["status"] == "incomplete" else "response.completed"
        self._emit(kind, {"response": {**head, **result, "usage": encode_usage(self._usage)}})

    # --- items ----------------------------------------------------------------------------------------------------

    def _begin(self, index: int, part: Part) -> None:
        self._create("", "")
        self._next = max(self._next, index + 1)
        suffix = f"{self._stamp.token}_{index}"
        form = encode_item(_blank(part), suffix, self._log)
        if form is None:
            return
        item: JsonObject = dict(form)
        match part:
            case Text() | Refusal() | Unknown():
                item.update(status="in_progress", content=[])
            case ToolCall():
                item.update(status="in_progress")
            case _:
                pass
        if self._numbers < len(self._names):
            item["id"] = self._names[self._numbers] or item.get("id")
        item = distinct(item, suffix, self._used)
        opened = self._open[index] = _Open(self._numbers, suffix, part, item)
        self._numbers += 1
        self._emit("response.output_item.added", {"output_index": opened.number, "item": item})
        match part:
            case Text(text=text) | Refusal(text=text):
                self._content(opened, "added", form["content"][0])
                self._delta(opened, text)
            case Unknown():
                self._content(opened, "added", form["content"][0])
            case ToolCall(arguments_json=arguments):
                self._delta(opened, arguments)
            case Reasoning(text=text, summary=summary):
                for number, one in enumerate(summary):
                    self._thinking(opened, number, one)
                if text:
                    self._thinking(opened, None, text)
            case _:
                pass

    def _content(self, item: _Open, what: str, part: JsonObject) -> None:
        self._about(item, f"response.content_part.{what}", {"content_index": 0, "part": part})

    def _delta(self, item: _Open, text: str) -> None:
        if not text:
            return
        item.streamed.append(text)
        match item.part:
            case Text():
                # The most common event of all: only its values are written anew.
                self._out.append(_TEXT_DELTA % (self._sequence, item.dumped_id, item.number, _dump(text)))
                self._sequence += 1
            case Refusal():
                self._about(item, "response.refusal.delta", {"content_index": 0, "delta": text})
            case ToolCall(kind=kind):
                self._about(item, f"response.{_ARGUMENTS[kind]}.delta", {"delta": text})
            case _:
                pass

    def _thinking(self, item: _Open, key: int | None, text: str) -> None:
        if key is None and is_native(item.part):
            if not item.streamed:
                self._content(item, "added", {"type": "reasoning_text", "text": ""})
            item.streamed.append(text)
            self._about(item, "response.reasoning_text.delta", {"content_index": 0, "delta": text})
            return
        summary = item.summaries.get(key)
        if summary is None:
            self._close_summary(item)
            summary = item.summary = item.summaries[key] = _Summary(len(item.summaries))
            part = {"type": "summary_text", "text": ""}
            self._about(item, "response.reasoning_summary_part.added", {"summary_index": summary.number, "part": part})
            if key is None:
                self._log.add(AdaptationKind.PART_RESHAPED, "reasoning", "thinking text shown as a summary")
        if text:
            summary.streamed.append(text)
            fields = {"summary_index": summary.number, "delta": text}
            self._about(item, "response.reasoning_summary_text.delta", fields)

    def _close_summary(self, item: _Open) -> None:
        summary, item.summary = item.summary, None
        if summary is None:
            return
        text = "".join(summary.streamed)
        self._about(item, "response.reasoning_summary_text.done", {"summary_index": summary.number, "text": text})
        part = {"type": "summary_text", "text": text}
        self._about(item, "response.reasoning_summary_part.done", {"summary_index": summary.number, "part": part})

    def _waits(self, index: int, final: Part | None) -> bool:
        """Whether a call must wait for the finish: one that is no JSON object may have been cut by the token limit.

        Clients act on `output_item.done` the moment it comes, so it must not say `completed` for half a call.
        """
        opened = self._open.get(index)
        if opened is None or not isinstance(opened.part, ToolCall) or opened.part.kind is not CallKind.FUNCTION:
            return False
        call = final if isinstance(final, ToolCall) else _grown(opened)
        assert isinstance(call, ToolCall), "a call grows into a call"
        try:
            whole = isinstance(msgspec.json.decode(call.arguments_json), dict)
        except (msgspec.DecodeError, ValueError, RecursionError):
            whole = False
        if not whole:
            opened.final = final
        return not whole

    def _end(self, index: int, final: Part | None, *, cut: bool = False) -> None:
        opened = self._open.pop(index, None)
        if opened is None:
            return
        part = final if final is not None and type(final) is type(opened.part) else _grown(opened)
        if isinstance(part, Reasoning):
            part = self._settle_thinking(opened, part)
        form = encode_item(part, opened.suffix, self._log)
        assert form is not None, "an item that could be announced can be finished"
        item = {**form, **{key: opened.item[key] for key in ("id", "call_id") if key in opened.item}}
        if cut and "status" in item:
            item["status"] = "incomplete"
        match part:
            case Text(text=text):
                self._delta(opened, opened.missing(text))
                self._about(opened, "response.output_text.done", {"content_index": 0, "text": text, "logprobs": []})
                self._content(opened, "done", item["content"][0])
            case Refusal(text=text):
                self._delta(opened, opened.missing(text))
                self._about(opened, "response.refusal.done", {"content_index": 0, "refusal": text})
                self._content(opened, "done", item["content"][0])
            case Unknown():
                self._content(opened, "done", item["content"][0])
            case ToolCall(kind=kind, arguments_json=arguments):
                self._delta(opened, opened.missing(arguments))
                said = {"input": arguments} if kind is CallKind.CUSTOM else {"arguments": arguments, "name": part.name}
                self._about(opened, f"response.{_ARGUMENTS[kind]}.done", said)
            case _:
                pass
        self._emit("response.output_item.done", {"output_index": opened.number, "item": item})
        self._done[opened.number] = item
        self._parts.append(part)

    def _settle_thinking(self, opened: _Open, part: Reasoning) -> Reasoning:
        """Send what no delta brought, close what is open, and return the part as it was shown."""
        native = is_native(part)
        wanted: dict[int | None, str] = dict(enumerate(part.summary))
        if part.text and not native:
            wanted[None] = part.text
        for key, text in wanted.items():
            summary = opened.summaries.get(key)
            if summary is None:
                self._thinking(opened, key, text)
            elif summary is opened.summary:
                missing = _beyond(text, summary.streamed)
                if missing:
                    self._thinking(opened, key, missing)
        self._close_summary(opened)
        if native and part.text:
            missing = opened.missing(part.text)
            if missing:
                self._thinking(opened, None, missing)
            self._about(opened, "response.reasoning_text.done", {"content_index": 0, "text": part.text})
            self._content(opened, "done", {"type": "reasoning_text", "text": part.text})
        if native and part.origin is not None and part.origin.raw is not None:
            return part
        shown = tuple(wanted.get(key, "".join(one.streamed)) for key, one in opened.summaries.items())
        return part.evolve(summary=shown, text=part.text if native else "", state=part.state or opened.state)


_ARGUMENTS = {CallKind.FUNCTION: "function_call_arguments", CallKind.CUSTOM: "custom_tool_call_input"}


def _blank(part: Part) -> Part:
    """Return the part as it is announced: without what deltas will bring."""
    match part:
        case Text() | Refusal():
            return part.evolve(text="")
        case ToolCall():
            return part.evolve(arguments_json="")
        case Reasoning():
            return part.evolve(text="", summary=(), state=None)
        case _:
            return part


def _grown(item: _Open) -> Part:
    """Return the part as its deltas made it."""
    part = item.part
    text = "".join(item.streamed)
    match part:
        case Text() | Refusal():
            return part.evolve(text=text)
        case ToolCall():
            return part.evolve(arguments_json=text)
        case Reasoning():
            summaries = item.summaries
            return part.evolve(
                text=text if is_native(part) else "".join(summaries[None].streamed) if None in summaries else "",
                summary=tuple(
                    "".join(summaries[key].streamed) for key in sorted(k for k in summaries if k is not None)
                ),
                state=item.state or part.state,
            )
        case _:
            return part
