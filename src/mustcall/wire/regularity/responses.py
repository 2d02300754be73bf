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

from mustcall.wire.regularity.contract import Count, Given, is_utf8, read
from mustcall.wire.regularity.framing import Framing
from mustcall.wire.sse import SseEvent

__all__ = ["ResponsesRegularity", "is_regular_body"]

_MESSAGE, _REASONING = "message", "reasoning"
#: Where a call has its text, by the type of its item.
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}


class _Typed(msgspec.Struct, gc=False):
    type: Given
    sequence_number: Count | None = None


class _Content(msgspec.Struct, gc=False):
    """A content part: text and refusal have their words under their own names."""

    type: Given
    text: msgspec.Raw = msgspec.Raw()
    refusal: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct, gc=False):
    id: Given
    content: list[_Content]
    role: Literal["assistant"] = "assistant"


class _SummaryText(msgspec.Struct, gc=False):
    type: Given
    text: str


class _Reasoning(msgspec.Struct, gc=False):
    id: Given
    summary: list[_SummaryText]
    content: list[_SummaryText] | None = None
    encrypted_content: str | None = None


class _FunctionCall(msgspec.Struct, gc=False):
    call_id: Given
    name: Given
    arguments: str
    id: Given | None = None
    status: str | None = None


class _CustomCall(msgspec.Struct, gc=False):
    call_id: Given
    name: Given
    input: str
    id: Given | None = None
    status: str | None = None


class _Other(msgspec.Struct, gc=False):
    id: str | None = None


_AnyItem = _Message | _Reasoning | _FunctionCall | _CustomCall | _Other
_typed = msgspec.json.Decoder(_Typed)
_text = msgspec.json.Decoder(str)
_message = msgspec.json.Decoder(_Message)
_reasoning = msgspec.json.Decoder(_Reasoning)
_function_call = msgspec.json.Decoder(_FunctionCall)
_custom_call = msgspec.json.Decoder(_CustomCall)
_other = msgspec.json.Decoder(_Other)


def _read_item(data: msgspec.Raw) -> tuple[str, _AnyItem] | None:
    """Return an item's type and the item; None if it is not what its type says."""
    typed = read(_typed, data)
    if typed is None:
        return None
    match typed.type:
        case "message":
            item: _AnyItem | None = read(_message, data)
            if isinstance(item, _Message) and not all(map(_is_content, item.content)):
                return None
        case "reasoning":
            item = read(_reasoning, data)
        case "function_call":
            item = read(_function_call, data)
        case "custom_tool_call":
            item = read(_custom_call, data)
        case _:
            item = read(_other, data)
    return None if item is None else (typed.type, item)


def _is_content(part: _Content) -> bool:
    match part.type:
        case "output_text":
            return read(_text, part.text) is not None
        case "refusal":
            return read(_text, part.refusal) is not None
        case _:
            return True


def _speaks(part: _Content) -> bool:
    """Tell whether a content has words."""
    return bytes(part.refusal if part.type == "refusal" else part.text) not in (b"", b'""')


def _identity(kind: str, item: _AnyItem) -> tuple[str, str | None, str, str]:
    if isinstance(item, _FunctionCall | _CustomCall):
        return kind, item.id, item.call_id, item.name
    return kind, item.id, "", ""


# --- whole replies --------------------------------------------------------------------------------------------------


class _Usage(msgspec.Struct, gc=False):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count


class _Details(msgspec.Struct, gc=False):
    reason: Given


class _Response(msgspec.Struct, gc=False):
    id: Given
    object: Literal["response"]
    status: Literal["completed", "incomplete", "in_progress", "queued"]
    output: list[msgspec.Raw]
    usage: _Usage | None = None
    incomplete_details: _Details | None = None
    error: None = None
    model: str | None = None
    created_at: int | float | None = None


_response = msgspec.json.Decoder(_Response)


def is_regular_body(body: bytes) -> bool:
    """Tell whether a whole reply is written as the wire says."""
    response = read(_response, body)
    return response is not None and is_utf8(body) and _is_ended(response) and _read_output(response) is not None


def _is_ended(response: _Response) -> bool:
    return (response.status == "incomplete") == (response.incomplete_details is not None)


def _read_output(response: _Response) -> list[tuple[str, _AnyItem]] | None:
    """Return the items of a response; None if one is not what its type says, or two have one id."""
    items = [item for item in map(_read_item, response.output) if item is not None]
    ids = [item.call_id for _, item in items if isinstance(item, _FunctionCall | _CustomCall)]
    ids += [item.id for _, item in items if item.id]
    return items if len(items) == len(response.output) and len(set(ids)) == len(ids) else None


# --- streams --------------------------------------------------------------------------------------------------------


class _Lifecycle(msgspec.Struct, gc=False):
    type: Given
    response: _Response
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
    part: _Content
    content_index: Count
    sequence_number: Count | None = None


class _SummaryPart(msgspec.Struct, gc=False):
    type: Given
    item_id: str
    output_index: Count
    part: _SummaryText
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
    "response.output_text.delta": (_MESSAGE, "delta", "content_index"),
    "response.output_text.done": (_MESSAGE, "text", "content_index"),
    "response.refusal.delta": (_MESSAGE, "delta", "content_index"),
    "response.refusal.done": (_MESSAGE, "refusal", "content_index"),
    "response.reasoning_text.delta": (_REASONING, "delta", "content_index"),
    "response.reasoning_text.done": (_REASONING, "text", "content_index"),
    "response.reasoning_summary_text.delta": (_REASONING, "delta", "summary_index"),
    "response.reasoning_summary_text.done": (_REASONING, "text", "summary_index"),
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
            typed = read(_typed, event.data)
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
                typed = read(_typed, event.data)
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
        items = _read_output(response)
        if items is None or not _is_ended(response) or f"response.{response.status}" != kind:
            return False
        return len(items) == len(self._items) and all(
            known.done and known.identity == _identity(*item) and known.final in (None, _input(item[1]))
            for known, item in zip(self._items, items, strict=True)
        )

    def _takes_added(self, data: bytes) -> bool:
        event = read(_item_event, data)
        if event is None or event.type != "response.output_item.added" or event.output_index != len(self._items):
            return False
        found = _read_item(event.item)
        if found is None or not self._rises(event.sequence_number):
            return False
        _, item = found
        if isinstance(item, _FunctionCall | _CustomCall) and item.id is None:
            return False
        if item.id in self._ids:  # clients take two items of one id for a contradiction
            return False
        if item.id:
            self._ids.add(item.id)
        known = _Progress(_identity(*found))
        self._items.append(known)
        if isinstance(item, _Message):
            self._unsettled.add(known)  # until its content says what it is
            return not item.content
        # What an item has when it is announced would be read twice: its deltas bring it again.
        return not _input(item) and not (isinstance(item, _Reasoning) and (item.summary or item.content))

    def _takes_done(self, data: bytes) -> bool:
        event = read(_item_event, data)
        if event is None or event.type != "response.output_item.done" or event.output_index >= len(self._items):
            return False
        known, found = self._items[event.output_index], _read_item(event.item)
        if found is None or known.done or known.identity != _identity(*found) or not self._rises(event.sequence_number):
            return False
        known.done = True
        self._unsettled.discard(known)
        _, item = found
        if isinstance(item, _Message):
            said_so = known.spoke or not any(map(_speaks, item.content))
            return said_so and [part.type for part in item.content] == known.contents
        if isinstance(item, _FunctionCall | _CustomCall) and item.status is None:
            return False
        if isinstance(item, _Reasoning) and not known.spoke and any(text.text for text in item.summary):
            return False
        said = _input(item)
        return said is None or said == self._said(known)

    def _said(self, known: _Progress) -> str:
        if known.final is None:
            known.final = "".join(known.pieces)
        return known.final

    def _takes_part(self, kind: str, data: bytes) -> bool:
        event = read(_part_event, data)
        if event is None or event.type != kind or not _is_content(event.part):
            return False
        if not self._rises(event.sequence_number):
            return False
        known = self._find(event.output_index, event.item_id)
        if known is None:
            return False
        if known.kind != _MESSAGE:
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
        if known is None or known.kind != _REASONING:
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
            if owner == _MESSAGE and place is not None:
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


def _input(item: _AnyItem) -> str | None:
    match item:
        case _FunctionCall(arguments=text) | _CustomCall(input=text):
            return text
        case _:
            return None
