"""What a strict client of Responses reads: a response announced, its items by index, and all of it again at the end.

The SDKs refuse a stream that does not begin with `response.created`, an item that changes its identity, content before
its item; Codex acts on `output_item.done` alone, others on the last event's output, the AI SDK on deltas, and on
responses and calls that are complete. So these must agree, and their numbers must rise. Unknown
events, items and contents are theirs to ignore, as long as they have a type.

Cost: one typed decode for each event, and one for each item in it.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from mustcall.wire.framing import Framing
from mustcall.wire.reading import Count, Given, read
from mustcall.wire.regularity.responses_bodies import (
    MESSAGE,
    REASONING,
    TYPED,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    ReasoningItem,
    ResponsesBody,
    ResponsesContent,
    ResponsesSummary,
    identity_of,
    input_of,
    is_content,
    is_ended,
    read_item,
    read_output,
    speaks,
)
from mustcall.wire.sse import SseEvent

__all__ = ["ResponsesRegularity"]


class _Lifecycle(msgspec.Struct, gc=False):
    type: Given
    response: ResponsesBody
    sequence_number: Count | None = None


class _FailedResponse(msgspec.Struct, gc=False):
    id: Given
    status: Literal["failed"]
    error: "_Problem"
    output: list[msgspec.Raw] = []


class _Problem(msgspec.Struct, gc=False):
    code: Given
    message: Given


class _Failed(msgspec.Struct, gc=False):
    type: Literal["response.failed"]
    response: _FailedResponse
    sequence_number: Count | None = None


class _Error(msgspec.Struct, gc=False):
    type: Literal["error"]
    code: Given
    message: Given
    error: None = None
    sequence_number: Count | None = None


class _ItemEvent(msgspec.Struct, gc=False):
    type: Given
    output_index: Count
    item: msgspec.Raw
    sequence_number: Count | None = None


class _PartEvent(msgspec.Struct, gc=False):
    type: Given
    item_id: str
    output_index: Count
    part: ResponsesContent
    content_index: Count
    sequence_number: Count | None = None


class _SummaryPart(msgspec.Struct, gc=False):
    type: Given
    item_id: str
    output_index: Count
    part: ResponsesSummary
    summary_index: Count
    sequence_number: Count | None = None


class _Place(msgspec.Struct, gc=False):
    """An event about a text: a delta has `delta`, the last word has the text under one of the other names."""

    type: Given
    item_id: str
    output_index: Count
    content_index: Count | None = None
    summary_index: Count | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    input: str | None = None
    sequence_number: Count | None = None


_lifecycle = msgspec.json.Decoder(_Lifecycle)
_failed = msgspec.json.Decoder(_Failed)
_error = msgspec.json.Decoder(_Error)
_item_event = msgspec.json.Decoder(_ItemEvent)
_part_event = msgspec.json.Decoder(_PartEvent)
_summary_part = msgspec.json.Decoder(_SummaryPart)
_place = msgspec.json.Decoder(_Place)

#: Events about a text: the item they belong to, the field that has it, and the number that says which text it is.
_TEXTS = {
    "response.output_text.delta": (MESSAGE, "delta", "content_index"),
    "response.output_text.done": (MESSAGE, "text", "content_index"),
    "response.refusal.delta": (MESSAGE, "delta", "content_index"),
    "response.refusal.done": (MESSAGE, "refusal", "content_index"),
    "response.reasoning_text.delta": (REASONING, "delta", "content_index"),
    "response.reasoning_text.done": (REASONING, "text", "content_index"),
    "response.reasoning_summary_text.delta": (REASONING, "delta", "summary_index"),
    "response.reasoning_summary_text.done": (REASONING, "text", "summary_index"),
    "response.function_call_arguments.delta": ("function_call", "delta", None),
    "response.function_call_arguments.done": ("function_call", "arguments", None),
    "response.custom_tool_call_input.delta": ("custom_tool_call", "delta", None),
    "response.custom_tool_call_input.done": ("custom_tool_call", "input", None),
}
#: The content part an event's text belongs to.
_CONTENTS = {"response.output_text": "output_text", "response.refusal": "refusal"}


class _Progress:
    """One item: who it is, the contents it has, the input that was streamed, whether it spoke and is done."""

    __slots__ = ("contents", "done", "final", "identity", "pieces", "spoke")

    def __init__(self, identity: tuple[str, str | None, str, str]) -> None:
        self.identity = identity
        self.contents: list[str] = []
        self.pieces: list[str] = []
        self.final: str | None = None
        #: Whether a delta of its text was seen: of those that follow not every one is shown.
        self.spoke = False
        self.done = False

    @property
    def kind(self) -> str:
        return self.identity[0]


class ResponsesRegularity:
    """One stream."""

    __slots__ = ("_ended", "_framing", "_id", "_ids", "_items", "_marked", "_number", "_unsettled")

    def __init__(self) -> None:
        self._framing = Framing()
        self._id: str | None = None
        self._items: list[_Progress] = []
        self._ids: set[str] = set()
        self._unsettled: set[_Progress] = set()
        self._ended = False
        self._marked = False
        self._number = -1

    @property
    def names(self) -> Sequence[str]:
        """The id of each item, by its index; empty where it has none."""
        return [item.identity[1] or "" for item in self._items]

    @property
    def settled(self) -> bool:
        """Whether no item is between two events that mean one thing together."""
        return not self._unsettled

    @property
    def complete(self) -> bool:
        """Whether the response's last event came."""
        return self._ended

    def takes(self, block: bytes, events: list[SseEvent]) -> bool:
        """Tell whether these bytes can be forwarded after all before."""
        return self._framing.takes(block) and all(map(self._takes, events))

    def _takes(self, event: SseEvent) -> bool:
        if self._ended:
            # Some servers add OpenAI's end mark of the other wire, where clients stop reading.
            once, self._marked = not self._marked, True
            return once and event.data == b"[DONE]"
        kind = event.name
        if not kind:
            typed = read(TYPED, event.data)
            if typed is None:
                return False
            kind = typed.type
        if self._id is None and kind != "response.created":
            return False
        match kind:
            case _ if kind in _TEXTS:
                return self._takes_text(kind, event.data)
            case "response.created" | "response.in_progress" | "response.queued":
                return self._takes_lifecycle(kind, event.data)
            case "response.output_item.added":
                return self._takes_added(event.data)
            case "response.output_item.done":
                return self._takes_done(event.data)
            case "response.content_part.added" | "response.content_part.done":
                return self._takes_part(kind, event.data)
            case "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done":
                return self._takes_summary(kind, event.data)
            case "response.completed" | "response.incomplete":
                return self._takes_end(kind, event.data)
            case "response.failed":
                self._ended = True
                failed = read(_failed, event.data)
                return failed is not None and failed.response.id == self._id and self._rises(failed.sequence_number)
            case "error":
                self._ended = True
                error = read(_error, event.data)
                return error is not None and self._rises(error.sequence_number)
            case _:
                typed = read(TYPED, event.data)
                if typed is None or typed.type != kind:
                    return False
                return typed.sequence_number is None or self._rises(typed.sequence_number)

    def _rises(self, number: int | None) -> bool:
        """Take an event's number; tell whether it is behind the last one."""
        last, self._number = self._number, -1 if number is None else number
        return self._number > last

    def _takes_lifecycle(self, kind: str, data: bytes) -> bool:
        event = read(_lifecycle, data)
        if event is None or event.type != kind or not self._rises(event.sequence_number):
            return False
        response = event.response
        if response.created_at is None or response.model is None:
            return False
        if kind == "response.created":
            known, self._id = self._id, response.id
            return known is None and not response.output
        return response.id == self._id and not response.output

    def _takes_end(self, kind: str, data: bytes) -> bool:
        self._ended = True
        event = read(_lifecycle, data)
        if event is None or event.type != kind or event.response.id != self._id:
            return False
        response = event.response
        if not self._rises(event.sequence_number):
            return False
        items = read_output(response)
        if items is None or not is_ended(response) or f"response.{response.status}" != kind:
            return False
        return len(items) == len(self._items) and all(
            known.done and known.identity == identity_of(*item) and known.final in (None, input_of(item[1]))
            for known, item in zip(self._items, items, strict=True)
        )

    def _takes_added(self, data: bytes) -> bool:
        event = read(_item_event, data)
        if event is None or event.type != "response.output_item.added" or event.output_index != len(self._items):
            return False
        found = read_item(event.item)
        if found is None or not self._rises(event.sequence_number):
            return False
        _, item = found
        if isinstance(item, FunctionCallItem | CustomCallItem) and item.id is None:
            return False
        if item.id in self._ids:  # clients take two items of one id for a contradiction
            return False
        if item.id:
            self._ids.add(item.id)
        known = _Progress(identity_of(*found))
        self._items.append(known)
        if isinstance(item, MessageItem):
            self._unsettled.add(known)  # until its content says what it is
            return not item.content
        # What an item has when it is announced would be read twice: its deltas bring it again.
        return not input_of(item) and not (isinstance(item, ReasoningItem) and (item.summary or item.content))

    def _takes_done(self, data: bytes) -> bool:
        event = read(_item_event, data)
        if event is None or event.type != "response.output_item.done" or event.output_index >= len(self._items):
            return False
        known, found = self._items[event.output_index], read_item(event.item)
        if (
            found is None
            or known.done
            or known.identity != identity_of(*found)
            or not self._rises(event.sequence_number)
        ):
            return False
        known.done = True
        self._unsettled.discard(known)
        _, item = found
        if isinstance(item, MessageItem):
            said_so = known.spoke or not any(map(speaks, item.content))
            return said_so and [part.type for part in item.content] == known.contents
        if isinstance(item, FunctionCallItem | CustomCallItem) and item.status is None:
            return False
        if isinstance(item, ReasoningItem) and not known.spoke and any(text.text for text in item.summary):
            return False
        said = input_of(item)
        return said is None or said == self._said(known)

    def _said(self, known: _Progress) -> str:
        if known.final is None:
            known.final = "".join(known.pieces)
        return known.final

    def _takes_part(self, kind: str, data: bytes) -> bool:
        event = read(_part_event, data)
        if event is None or event.type != kind or not is_content(event.part):
            return False
        if not self._rises(event.sequence_number):
            return False
        known = self._find(event.output_index, event.item_id)
        if known is None:
            return False
        if known.kind != MESSAGE:
            return True
        if kind == "response.content_part.done":
            self._settle(known, done=False)
            return event.content_index < len(known.contents)
        known.contents.append(event.part.type)
        self._settle(known, done=True)
        words = event.part.refusal if event.part.type == "refusal" else event.part.text
        return event.content_index == len(known.contents) - 1 and bytes(words) in (b"", b'""')

    def _takes_summary(self, kind: str, data: bytes) -> bool:
        event = read(_summary_part, data)
        if event is None or event.type != kind or not self._rises(event.sequence_number):
            return False
        known = self._find(event.output_index, event.item_id)
        if known is None or known.kind != REASONING:
            return False
        self._settle(known, done=False)
        return True

    def _takes_text(self, kind: str, data: bytes) -> bool:
        event = read(_place, data)
        owner, field, number = _TEXTS[kind]
        if event is None or event.type != kind or not self._rises(event.sequence_number):
            return False
        known = self._find(event.output_index, event.item_id)
        text: str | None = getattr(event, field)
        if known is None or known.kind != owner or text is None:
            return False
        self._settle(known, done=field == "delta")
        known.spoke = known.spoke or field == "delta"
        if text and not known.spoke:  # there are clients that read deltas alone
            return False
        if number is not None:
            place: int | None = getattr(event, number)
            if owner == MESSAGE and place is not None:
                content = _CONTENTS[kind.rpartition(".")[0]]
                return place < len(known.contents) and known.contents[place] == content
            return place is not None
        if field == "delta":
            known.pieces.append(text)
            return known.final is None
        return text == self._said(known)

    def _settle(self, known: _Progress, *, done: bool) -> None:
        if done:
            self._unsettled.discard(known)
        else:
            self._unsettled.add(known)

    def _find(self, index: int, item_id: str) -> _Progress | None:
        """Return the item an event is about, if it is open and the event calls it by its id."""
        if index >= len(self._items):
            return None
        known = self._items[index]
        return known if not known.done and known.identity[1] in (None, item_id) else None
