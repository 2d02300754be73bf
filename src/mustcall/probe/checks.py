"""What a reply must show: small judges that cells are made of, each a function of values.

A reply that is no 200 is judged here once for all cells: a 4xx is refused, a 5xx or a broken connection crashed, a rate
limit that did not end unmeasured.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Literal, cast

from mustcall.core.errors import ErrorInfo, ModelError, UpstreamTimeout
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import Reasoning, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, Tool, functions_of
from mustcall.dialects import CallEnd, parse
from mustcall.policy.failures.rejection import Rejection, classify_rejection
from mustcall.policy.schema.validation import Unreadable, describe_problems, problems_in, read_json
from mustcall.probe.values import CellFinding, Outcome, Owner, Script, Seen, Send

__all__ = [
    "arguments_of",
    "calls_in_text",
    "crashed",
    "fault",
    "fits",
    "held",
    "is_model_failure",
    "missed",
    "raw_calls",
    "said",
    "single",
    "still_thinking",
    "thoughts",
    "unmeasured",
]

_MODEL_FAILURES = frozenset(word for kind in ModelError.__subclasses__() for word in (kind.code, kind.__name__))
_RATE_LIMITED = frozenset({429, 529})
_ALONE: dict[ChoiceMode, Literal["reply", "anywhere"]] = {ChoiceMode.NONE: "reply", ChoiceMode.AUTO: "reply"}


def held(note: str = "") -> CellFinding:
    """It was done."""
    return CellFinding(outcome=Outcome.HELD, note=note)


def missed(note: str, owner: Owner | None = None) -> CellFinding:
    """It was answered and not done."""
    return CellFinding(outcome=Outcome.NOT_DONE, note=note, owner=owner)


def unmeasured(note: str) -> CellFinding:
    """Nothing was learnt."""
    return CellFinding(outcome=Outcome.UNMEASURED, note=note)


def crashed(note: str, owner: Owner) -> CellFinding:
    """No whole answer came."""
    return CellFinding(outcome=Outcome.CRASHED, note=note, owner=owner)


def fault(seen: Seen) -> CellFinding | None:
    """Return what an exchange without a reply came to; None for one with a reply."""
    if seen.answered:
        return None
    error = seen.error
    said_so = f": {error.message.splitlines()[0][:120]}" if error is not None and error.message.strip() else ""
    if seen.status in _RATE_LIMITED:
        return unmeasured(f"HTTP {seen.status}, a rate limit that did not end")
    if seen.status == 503 and "retry-after" in seen.headers:
        return unmeasured("HTTP 503, overloaded for longer than was waited")
    if seen.broken == UpstreamTimeout.code and not seen.status:
        return unmeasured(f"no answer began in time{said_so}")  # a slow machine, as far as anybody can tell
    if seen.broken:
        return crashed(f"{seen.broken}{said_so}", Owner.TRANSPORT)
    if error is not None and classify_rejection(error) is Rejection.GENERATION:
        return crashed(f"HTTP {seen.status}, it could not read what its model wrote{said_so}", Owner.PARSER)
    owner = Owner.MODEL if error is not None and is_model_failure(error) else Owner.SERVER
    if seen.status >= 500:
        return crashed(f"HTTP {seen.status}{said_so}", owner)
    if seen.status >= 400:
        return CellFinding(outcome=Outcome.REFUSED, note=f"HTTP {seen.status}{said_so}", owner=owner)
    return crashed(f"HTTP {seen.status} without a reply{said_so}", Owner.SERVER)


def is_model_failure(error: ErrorInfo) -> bool:
    """Tell whether a gateway like ours says that its model failed, by code or by the first word of its message."""
    return bool({error.code, error.message.partition(":")[0]} & _MODEL_FAILURES)


def single(make: Callable[[int], Request], check: Callable[[Request, Reply], CellFinding], **fields: Any) -> Script:
    """Return the script of one request whose reply is checked; `fields` are put into its body."""

    def script(number: int) -> Generator[tuple[Send, ...], tuple[Seen, ...], CellFinding]:
        request = make(number)
        (seen,) = yield (Send(request=request, fields=dict(fields)),)
        bad = fault(seen)
        if bad is not None or seen.reply is None:
            return bad or unmeasured("no reply")
        return _blamed(check(request, seen.reply), request, seen.reply)

    return script


def _blamed(finding: CellFinding, request: Request, reply: Reply) -> CellFinding:
    """Return a failure as the parser's where the reply has no call and its text holds one."""
    if finding.outcome is not Outcome.NOT_DONE or finding.owner is not None or reply.calls:
        return finding
    written = calls_in_text(request, reply)
    return missed(f"the call came as text ({written[0].dialect})", Owner.PARSER) if written else finding


def said(reply: Reply) -> str:
    """Return the text of a reply."""
    return "".join(part.text for part in reply.parts if isinstance(part, Text))


def thoughts(reply: Reply) -> tuple[Reasoning, ...]:
    """Return the reasoning of a reply."""
    return tuple(part for part in reply.parts if isinstance(part, Reasoning))


def still_thinking(reply: Reply) -> CellFinding | None:
    """Return that nothing was learnt where the tokens ran out before the model was done with reasoning."""
    cut = reply.finish is FinishReason.LENGTH and bool(thoughts(reply)) and not said(reply).strip()
    return unmeasured("the model was still reasoning when its tokens ran out") if cut else None


def calls_in_text(request: Request, reply: Reply) -> tuple[CallEnd, ...]:
    """Return the calls of offered tools that stand in the text or the reasoning of a reply, by our dialects.

    JSON without markup of its own is read as turns read it: any under a forced choice, else what is the whole reply.
    """
    tools = functions_of(request.tools)
    if not tools:
        return ()
    mode = request.tool_choice.mode if request.tool_choice is not None else ChoiceMode.AUTO
    alone = _ALONE.get(mode, "anywhere")
    texts = [said(reply), *(thought.text for thought in thoughts(reply))]
    found = [parse([text], tools=tools, alone=alone) for text in texts if text.strip()]
    return tuple(call for each in found for call in (*each.calls, *each.reasoned))


def arguments_of(call: ToolCall) -> JsonObject | None:
    """Return the arguments of a call, None where they are no JSON object."""
    try:
        value = read_json(call.arguments_json)
    except Unreadable:
        return None
    return cast("JsonObject", value) if isinstance(value, dict) else None


def fits(tool: Tool, arguments: JsonObject | None) -> str:
    """Return how arguments break the schema of a tool; empty where they fit."""
    if arguments is None:
        return "the arguments are no JSON object"
    problems = problems_in(tool.parameters or {}, arguments)
    return describe_problems(problems) if problems else ""


def raw_calls(wire: Wire, documents: Sequence[JsonObject]) -> list[tuple[str, str]]:
    """Return id and name of each call as they came, before any codec mends them; streamed ones by where they begin."""
    found: list[tuple[str, str]] = []
    for document in documents:
        for item in _call_items(wire, document):
            name = item.get("name")
            if isinstance(name, str) and name:
                key = item.get("call_id") if wire is Wire.RESPONSES else item.get("id")
                found.append((key if isinstance(key, str) else "", name))
    return found


def _call_items(wire: Wire, document: JsonObject) -> list[JsonObject]:
    """Return what of a document begins a call, flattened to `id` and `name`."""
    match wire:
        case Wire.CHAT:
            items: list[JsonObject] = []
            for choice in _objects(document.get("choices")):
                message = choice.get("message") or choice.get("delta")
                items += [
                    {"id": call.get("id"), "name": _object(call.get("function")).get("name")}
                    for call in _objects(_object(message).get("tool_calls"))
                ]
            return items
        case Wire.RESPONSES:
            if document.get("type") == "response.output_item.added":
                output = [document.get("item")]
            else:
                output = cast("list[Any]", document["output"]) if isinstance(document.get("output"), list) else []
            return [item for item in _objects(output) if item.get("type") == "function_call"]
        case Wire.MESSAGES:
            if document.get("type") == "content_block_start":
                blocks = [document.get("content_block")]
            else:
                blocks = cast("list[Any]", document["content"]) if isinstance(document.get("content"), list) else []
            return [block for block in _objects(blocks) if block.get("type") == "tool_use"]


def _object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _objects(value: object) -> list[JsonObject]:
    return (
        [cast("JsonObject", item) for item in cast("list[Any]", value) if isinstance(item, dict)]
        if isinstance(value, list)
        else []
    )
