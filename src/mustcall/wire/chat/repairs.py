"""What chat servers send that is not the wire's, and how it is read: the table, and the reading of such chunks.

Every row keeps a reply or a stream from being forwarded as it came. What fits `shape` needs no row. A chunk that does
not fit is read as chunks that do, one for each thing it says: what it means is told in one place, and what comes
before a value that cannot be read is not lost.
"""

from collections.abc import Iterator

from mustcall.core.origin import JsonObject
from mustcall.wire.chat.deltas import odd_words_in, says_words
from mustcall.wire.chat.parts import EXTRA_CONTENT, arguments_text
from mustcall.wire.chat.shape import CallDelta, CallPiece, ChatChunk, ChatDelta, ChoiceDelta, is_failure
from mustcall.wire.codec import WireDeviation
from mustcall.wire.reading import as_object, maybe_object, opt_list, opt_str
from mustcall.wire.sse import SseEvent

__all__ = ["REPAIRS", "ChunkOrder", "mended"]


REPAIRS = {
    # What comes out of order in a stream (`ChunkOrder`); `stream_decode` trusts no order.
    "named": WireDeviation("an event with a name", "by its data; `error` is an error"),
    "after end": WireDeviation("an event after `[DONE]` or an error", "not at all"),
    "no head": WireDeviation("a chunk without id, model, time or kind", "without them", "openai-node promises them"),
    "no role": WireDeviation("a choice that begins without a role", "as the assistant's", "openai-node refuses it"),
    "after finish": WireDeviation("text or calls after the finish reason", "as part of the reply"),
    "call order": WireDeviation("calls on one index, an id or a name in each delta, an id twice", "by `streams.calls`"),
    "misfit": WireDeviation("a chunk of another shape", "by the rows below, in `mended`"),
    # What does not fit the shape of a chunk or of a whole reply (`mended`, `deltas`; `reply` and `parts`).
    "message": WireDeviation("`message` in place of the first delta", "as a delta"),
    "content list": WireDeviation("content as a list", "part by part; `thinking` is reasoning", "Mistral"),
    "arguments": WireDeviation("arguments as an object, or null", "as JSON text, or as no text"),
    "no call id": WireDeviation("a call without id, index or type", "as a function's, under an id of ours"),
    "bytes": WireDeviation("bytes that are no UTF-8 in the head of a chunk of text", "without them"),
    "label": WireDeviation("an id or a model that is no text", "as none"),
    "usage": WireDeviation("usage that is no object, counts that are no numbers", "as none, as 0"),
    "finish": WireDeviation("an empty finish reason", "as an unknown one"),
    "function call": WireDeviation("`function_call`, the form before `tool_calls`", "not at all"),
}


class _Progress:
    """One choice: the kinds of the calls that have begun, their ids, and whether it has finished."""

    __slots__ = ("calls", "finished", "ids")

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.ids: set[str] = set()
        self.finished = False


class ChunkOrder:
    """One stream: which repair its next chunk needs, after all before.

    Clients join the deltas of a call by their index, so one call follows the other, and begins with all that names it.
    """

    __slots__ = ("_choices", "ended", "finished")

    def __init__(self) -> None:
        self._choices: dict[int, _Progress] = {}
        #: Whether the first choice has its finish reason.
        self.finished = False
        #: Whether `[DONE]` or an error came.
        self.ended = False

    def repair(self, event: SseEvent, chunk: ChatChunk | None) -> str:
        """Take the next event, and what it is if it fits; return no name if a strict client reads it as it means."""
        if self.ended or event.name:
            return "after end" if self.ended else "named"
        if chunk is None:
            self.ended = True
            return "" if event.data == b"[DONE]" or is_failure(event.data) else "misfit"
        choices = chunk.choices
        if choices and not (chunk.object and chunk.id and chunk.created is not None and chunk.model is not None):
            return "no head"
        for choice in choices:
            found = self._choice(choice)
            if found:
                return found
        return ""

    def _choice(self, choice: ChoiceDelta) -> str:
        progress = self._choices.get(choice.index)
        delta = choice.delta
        if progress is None:
            progress = self._choices[choice.index] = _Progress()
            if delta.role != "assistant":
                return "no role"
        calls = delta.tool_calls or ()
        if progress.finished and (calls or says_words(delta)):
            return "after finish"
        if choice.finish_reason is not None:
            progress.finished = True
            self.finished = self.finished or choice.index == 0
        return "" if all(_follows(call, progress) for call in calls) else "call order"


def _follows(call: CallDelta, progress: _Progress) -> bool:
    """Tell whether a delta begins the next call with all that belongs there, or goes on with the last one."""
    begun = len(progress.calls)
    if call.index == begun:
        part = call.function if call.type == "function" else call.custom if call.type == "custom" else None
        if part is None or not part.name or not call.id or call.id in progress.ids or call.type is None:
            return False
        progress.calls.append(call.type)
        progress.ids.add(call.id)
        return True
    if not begun or call.index != begun - 1 or call.id:
        return False
    kind = progress.calls[-1]
    part, other = (call.function, call.custom) if kind == "function" else (call.custom, call.function)
    return other is None and call.type in (None, kind) and part is not None and not part.name


_NOTHING = ChatDelta()


def mended(chunk: JsonObject, *, begun: bool) -> Iterator[ChoiceDelta]:
    """Read a chunk that does not fit; raise `ShapeError` at what cannot be read.

    `begun` says that something was said before, so that a whole message would say it again.
    """
    for value in opt_list(chunk, "choices") or ():
        choice = as_object(value)
        if choice.get("index") not in (0, None):
            continue  # further choices have no canonical form; on the same wire they are forwarded as bytes
        delta = maybe_object(choice.get("delta"))
        if delta is None and not begun:
            delta = maybe_object(choice.get("message"))
        for piece in () if delta is None else _pieces(delta):
            begun = begun or piece != _NOTHING
            yield ChoiceDelta(0, piece)
        finish = opt_str(choice, "finish_reason")
        if finish is not None:
            yield ChoiceDelta(0, ChatDelta(), finish)


def _pieces(delta: JsonObject) -> Iterator[ChatDelta]:
    yield from odd_words_in(delta)
    for value in opt_list(delta, "tool_calls") or ():
        yield ChatDelta(tool_calls=[_call(as_object(value))])


def _call(call: JsonObject) -> CallDelta:
    custom = maybe_object(call.get("custom"))
    function = maybe_object(call.get("function")) or {}
    if custom is not None:
        piece = CallPiece(name=opt_str(custom, "name"), input=opt_str(custom, "input"))
    else:
        piece = CallPiece(name=opt_str(function, "name"), arguments=arguments_text(function))
    number = call.get("index")
    return CallDelta(
        index=number if isinstance(number, int) else None,
        id=opt_str(call, "id"),
        function=piece if custom is None else None,
        custom=None if custom is None else piece,
        extra_content=call.get(EXTRA_CONTENT),
    )
