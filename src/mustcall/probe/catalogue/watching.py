"""Cells that send nothing: what the exchanges of the others show of ids, finish reasons, usage, leaks and waits."""

from mustcall.core.origin import Wire
from mustcall.core.parts import Part, ToolCall, ToolResult
from mustcall.core.reply import FinishReason
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, functions_of
from mustcall.policy.failures.backoff import retry_after
from mustcall.policy.reply.cut_prompt import CHARACTERS_PER_TOKEN
from mustcall.probe.checks import arguments_of, calls_in_text, held, missed, raw_calls, said, thoughts
from mustcall.probe.values import Cell, CellFinding, CellGroup, CellTries, Owner, Seen, Send

__all__ = ["CELLS"]

#: A watching cell is tried as often as there is something to see.
_SEEN = CellTries(10_000, 10_000, 10_000)


def _ids(wire: Wire, _send: Send, seen: Seen) -> CellFinding | None:
    """Every call has an id."""
    if seen.reply is None or not seen.reply.calls:
        return None
    ids = [key for key, _ in raw_calls(wire, seen.documents)]
    return held() if ids and all(ids) else missed("a call without an id")


def _distinct_ids(wire: Wire, _send: Send, seen: Seen) -> CellFinding | None:
    """Of several calls in one reply each has an id of its own. One call alone tells nothing of it."""
    ids = [key for key, _ in raw_calls(wire, seen.documents)] if seen.reply is not None else []
    if len(ids) < 2 or not all(ids):
        return None
    return held() if len(set(ids)) == len(ids) else missed(f"two calls with the id {ids[0]!r}")


def _sound(_wire: Wire, send: Send, seen: Seen) -> CellFinding | None:
    """Every call is of a tool on offer, with one JSON object."""
    if seen.reply is None or send.request is None or not seen.reply.calls:
        return None
    if seen.reply.finish is FinishReason.LENGTH:
        return None
    broken = [call for call in seen.reply.calls if arguments_of(call) is None]
    return missed(f"arguments that are no JSON object: {broken[0].arguments_json[:60]!r}") if broken else held()


_CALLS = {Wire.CHAT: "tool_calls", Wire.MESSAGES: "tool_use"}


def _finish(wire: Wire, send: Send, seen: Seen) -> CellFinding | None:
    """The finish reason says calls where there are calls, and only there."""
    reply, word = seen.reply, _CALLS.get(wire)
    if reply is None or word is None or reply.finish in (FinishReason.LENGTH, FinishReason.CONTENT_FILTER):
        return None
    if reply.reported_finish is None:
        return missed("no finish reason")
    # OpenAI itself says `stop` where the call was forced by name.
    choice = send.request.tool_choice if send.request is not None else None
    named = choice is not None and choice.mode is ChoiceMode.NAMED
    if reply.calls:
        fine = reply.reported_finish == word or (wire is Wire.CHAT and named and reply.reported_finish == "stop")
        return held() if fine else missed(f"a call, and the finish is {reply.reported_finish!r}")
    return missed(f"no call, and the finish is {word!r}") if reply.reported_finish == word else held()


def _usage(_wire: Wire, send: Send, seen: Seen) -> CellFinding | None:
    """The usage is there, and near what was sent and received."""
    reply, request = seen.reply, send.request
    if reply is None or request is None:
        return None
    usage = reply.usage
    if usage is None or (usage.input_tokens == 0 and usage.output_tokens == 0):
        return missed("no usage" + (" in the stream, though it was asked for" if seen.streamed else ""))
    sent, came = _prompt_length(request), _reply_length(reply.parts)
    most = 4 * (sent + _beside_text(request)) + 4_000
    if usage.input_tokens < sent // (2 * CHARACTERS_PER_TOKEN) or usage.input_tokens > most:
        return missed(f"{usage.input_tokens} input tokens for {sent} characters")
    limit = request.max_tokens
    if usage.output_tokens < came // (2 * CHARACTERS_PER_TOKEN) or (limit and usage.output_tokens > 2 * limit + 64):
        return missed(f"{usage.output_tokens} output tokens for {came} characters")
    return held()


def _prompt_length(request: Request) -> int:
    return sum(len(getattr(part, "text", "") or "") for message in request.messages for part in message.parts)


def _beside_text(request: Request) -> int:
    """Return the characters of tools, calls and results: templates write them in more words or in fewer."""
    tools = sum(len(tool.description or "") + len(repr(tool.parameters)) for tool in functions_of(request.tools))
    parts = [part for message in request.messages for part in message.parts]
    calls = sum(len(part.arguments_json) for part in parts if isinstance(part, ToolCall))
    return tools + calls + sum(len(repr(part.content)) for part in parts if isinstance(part, ToolResult))


def _reply_length(parts: tuple[Part, ...]) -> int:
    return sum(len(getattr(part, "text", "") or "") + len(getattr(part, "arguments_json", "") or "") for part in parts)


def _leaks(_wire: Wire, send: Send, seen: Seen) -> CellFinding | None:
    """No call stands in the text."""
    reply, request = seen.reply, send.request
    if reply is None or request is None or not functions_of(request.tools):
        return None
    if not said(reply).strip() and not thoughts(reply):
        return held()
    written = calls_in_text(request, reply)
    return missed(f"a call as text, in the dialect {written[0].dialect}", Owner.PARSER) if written else held()


def _waits(_wire: Wire, _send: Send, seen: Seen) -> CellFinding | None:
    """A rate limit says how long to wait."""
    if seen.status not in (429, 503, 529):
        return None
    told = retry_after(seen.headers, 0.0) is not None
    return held() if told else missed(f"HTTP {seen.status} without `retry-after`")


CELLS = (
    Cell(
        id="ids",
        guarantee="ids",
        group=CellGroup.NAMES,
        asks="every call that came",
        wants="an id",
        required=True,
        tries=_SEEN,
        watch=_ids,
        sends=0,
    ),
    Cell(
        id="ids+several",
        guarantee="ids",
        group=CellGroup.NAMES,
        asks="every reply with several calls",
        wants="an id of its own for each",
        required=True,
        tries=_SEEN,
        watch=_distinct_ids,
        sends=0,
    ),
    Cell(
        id="arguments",
        guarantee="arguments",
        group=CellGroup.SCHEMA,
        asks="every call that came",
        wants="arguments that are one JSON object",
        required=True,
        tries=_SEEN,
        watch=_sound,
        sends=0,
    ),
    Cell(
        id="finish",
        guarantee="finish",
        group=CellGroup.HONESTY,
        asks="every reply that came",
        wants="a finish reason that fits its content",
        required=True,
        tries=_SEEN,
        watch=_finish,
        sends=0,
        # Responses reports `completed` with and without calls.
        wires=frozenset({Wire.CHAT, Wire.MESSAGES}),
    ),
    Cell(
        id="usage",
        guarantee="usage",
        group=CellGroup.HONESTY,
        asks="every reply that came",
        wants="token counts that fit what was sent and received",
        tries=_SEEN,
        watch=_usage,
        sends=0,
    ),
    Cell(
        id="leaks",
        guarantee="leaks",
        group=CellGroup.CHOICE,
        asks="every reply to a request with tools",
        wants="no call in the text",
        duty=Owner.PARSER,
        tries=_SEEN,
        watch=_leaks,
        sends=0,
    ),
    Cell(
        id="retry_after",
        guarantee="retry_after",
        group=CellGroup.ERRORS,
        asks="every rate limit that came",
        wants="how long to wait",
        tries=_SEEN,
        watch=_waits,
        sends=0,
    ),
)
