"""What a refusal means beside the request it refused, and what of that request is changed then: a table.

The words of a refusal are read in `policy.failures.rejection`; here they are seen together with what was sent. Pure:
when a request is sent again, and without a force that was refused (rule 33), is the turn's (`policy.turn.state`).
"""

import re
from collections.abc import Callable, Sequence

import msgspec

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, Reasoning, ToolCall, ToolResult
from mustcall.core.request import ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode
from mustcall.policy.facts.profile import Profile, ReasoningHabit
from mustcall.policy.failures.rejection import Rejection
from mustcall.policy.history.mended import remove_trailing_assistant

__all__ = ["BROKEN", "MENDS", "RequestMend", "is_about_streams", "meant_by", "one_result_a_turn", "stream_words"]

#: Statuses of a server that breaks on what it is sent. What else it would break on is not known: another way of asking
#: is tried (rule 137).
BROKEN = frozenset({500, 501})
#: Statuses of a request that is refused as it is.
_REFUSED = frozenset({400, 422})
#: What a refusal says that is about the stream: `streaming`, `stream_options`, but not `upstream`.
_STREAM = re.compile(r"(?i)\bstream\w*")
#: The same, of a stream that the caller asked for: a field that was added here may be refused by itself.
_STREAM_ITSELF = re.compile(r"(?i)\bstream(?!_options)\w*")
#: Statuses under which words are about the request, not about load or keys.
_ABOUT_REQUEST = frozenset({400, 404, 405, 406, 415, 422, 500, 501})
#: What a refusal says that is about reasoning.
_REASONING = re.compile(r"(?i)\b(?:thinking|thought|reasoning)")
#: Budgets and efforts are settings of this turn: what is said up to them is not about the reasoning of earlier ones.
_REASONING_SETTING = re.compile(r"(?i)budget|effort")
#: What it says besides where it misses that of earlier turns.
_MISSES = re.compile(r"(?i)\bmiss|\bback\b|must (?:start|begin)|signature|preced|expected|previous|earlier")
_FORCED = (ChoiceMode.REQUIRED, ChoiceMode.NAMED)
_HABITUAL = (ReasoningHabit.DEFAULT, ReasoningHabit.ALWAYS)


class RequestMend(msgspec.Struct, frozen=True):
    """A change to every later request of the turn, and how it is reported."""

    change: Callable[[Request, Profile], Request]
    kind: AdaptationKind
    subject: str
    why: str


def is_about_streams(error: ErrorInfo, sent: Request, *, breaks: bool, wished: bool) -> bool:
    """Tell whether a request that was streamed may be taken whole: the error says so, or the server broke on it.

    `breaks`: a 500 may be the stream's fault. `wished`: the caller asked for the stream.
    """
    if not sent.stream or error.status not in _ABOUT_REQUEST:
        return False
    words = _STREAM_ITSELF if wished else _STREAM
    return (breaks and error.status in BROKEN) or any(map(words.search, (error.message, error.param or "")))


def stream_words(error: ErrorInfo) -> tuple[str, ...]:
    """Return the words by which a refusal is about streams; the field's own name stands in the request, too."""
    return tuple(dict.fromkeys(map(str.lower, _STREAM.findall(error.message)))) or ("stream",)


def meant_by(rejection: Rejection, error: ErrorInfo, sent: Request) -> Rejection:
    """Return what a refusal means beside what was sent: words in no table are read by what they can be about."""
    choice = sent.tool_choice
    if rejection is Rejection.FORCE_UNSUPPORTED and choice is not None and choice.mode not in _FORCED:
        return Rejection.CHOICE_UNSUPPORTED  # nothing was forced: the field itself is refused
    if rejection is not Rejection.OTHER or error.status not in _REFUSED or not _is_about_reasoning(error.message):
        return rejection
    parts = [part for message in sent.messages for part in message.parts]
    if any(isinstance(part, Reasoning) for part in parts):
        return Rejection.REASONING_STATE
    asked = sent.reasoning is not None and sent.reasoning.mode is not ReasoningMode.DISABLED
    called = any(isinstance(part, ToolCall) for part in parts)
    missed = asked and called and _MISSES.search(error.message) is not None
    return Rejection.REASONING_MISSING if missed else rejection


def _is_about_reasoning(message: str) -> bool:
    behind = 0
    for setting in _REASONING_SETTING.finditer(message):
        behind = setting.end()
    return _REASONING.search(message, behind) is not None


def one_result_a_turn(request: Request) -> Request:
    """Return the request with calls that were made together told one after the other, each with its result.

    Calls without a result stay as they are; the same object comes back where no two calls were made together.
    """
    messages: list[Message] = []
    place, changed = 0, False
    while place < len(request.messages):
        message = request.messages[place]
        place += 1
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        if message.role is not Role.ASSISTANT or len(calls) < 2:
            messages.append(message)
            continue
        end = place
        while end < len(request.messages) and _has_results(request.messages[end]):
            end += 1
        told = _in_turns(message, calls, request.messages[place:end])
        messages += told if told is not None else [message, *request.messages[place:end]]
        changed, place = changed or told is not None, end
    return request.evolve(messages=tuple(messages)) if changed else request


def _has_results(message: Message) -> bool:
    return any(isinstance(part, ToolResult) for part in message.parts)


def _in_turns(message: Message, calls: Sequence[ToolCall], answers: Sequence[Message]) -> list[Message] | None:
    """Return calls and results in pairs, then what else the answers say; None where a call has no result."""
    results = {
        part.call_id: (part, answer) for answer in answers for part in answer.parts if isinstance(part, ToolResult)
    }
    if any(call.id not in results for call in calls):
        return None
    said: tuple[Part, ...] = tuple(part for part in message.parts if not isinstance(part, ToolCall))
    told: list[Message] = []
    for number, call in enumerate(calls):
        result, answer = results[call.id]
        told.append(message.evolve(parts=(*said, call) if not number else (call,)))
        told.append(answer.evolve(parts=(result,)))
    for answer in answers:
        rest = tuple(part for part in answer.parts if not isinstance(part, ToolResult))
        if rest:
            told.append(answer.evolve(parts=rest))
    return told


def _without_asking_to_reason(request: Request, profile: Profile) -> Request:
    off = ReasoningConfig(mode=ReasoningMode.DISABLED) if profile.reasoning in _HABITUAL else None
    return request.evolve(reasoning=off)


MENDS: dict[Rejection, RequestMend] = {
    Rejection.PREFILL: RequestMend(
        lambda request, _: remove_trailing_assistant(request),
        AdaptationKind.HISTORY_MENDED,
        "messages",
        "the trailing assistant turn was refused",
    ),
    Rejection.PARALLEL_UNSUPPORTED: RequestMend(
        lambda request, _: request.evolve(parallel_tool_calls=None),
        AdaptationKind.FIELD_DROPPED,
        "parallel_tool_calls",
        "refused; enforced here instead",
    ),
    Rejection.RESULTS_TOGETHER: RequestMend(
        lambda request, _: one_result_a_turn(request),
        AdaptationKind.HISTORY_MENDED,
        "messages",
        "several calls in one turn were refused; they are told one by one",
    ),
    Rejection.REASONING_MISSING: RequestMend(
        _without_asking_to_reason,
        AdaptationKind.REASONING_OFF,
        "reasoning",
        "the upstream wants earlier reasoning back, and it is not there",
    ),
}
