"""The history as an upstream can take it, mended in a fixed order (rules 100-105, 124, 134).

Reasoning is fitted to the upstream (`reasoning_state`), leftover markup goes (`leftover_markup`), empty assistant turns
go, calls and results are paired (`pairing`), empty user turns get a word, and the request ends on a turn the model may
answer. The same history always gives the same result, mending twice is mending once, and a request that needs nothing
comes back as the same object, so that it is forwarded byte for byte.

Where reasoning is bound to everything before it, nothing up to the end of the last turn that carries it is changed;
what would have been mended there is reported. The exceptions are what no upstream may ever get: another issuer's
state, and unsigned thoughts where signatures are demanded.

It knows nothing of the current demand, of names and ids (`names`), or of how a wire spells any of this.
"""

from typing import Any

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import ProviderItem, Reasoning, Refusal, Text, ToolCall
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.policy.facts.profile import Profile
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.in_order import order_of
from mustcall.policy.history.leftover_markup import is_unmarked, strip_markup
from mustcall.policy.history.pairing import pair_results
from mustcall.policy.history.reasoning_state import bound_until, fit_reasoning, keeps_reasoning, without_reasoning

__all__ = ["drop_reasoning", "mend_history", "needs_tools", "offer_stubs", "remove_trailing_assistant"]


_WORDING = Wording()
_Messages = tuple[Message, ...]

#: Fields of an assistant message that are no content of their own; any other one with a value may be (`audio`).
_INERT_FIELDS = frozenset({"name", "id", "status", "phase", "annotations"})


def mend_history(
    request: Request, profile: Profile, issuer: str, log: AdaptationLog, wording: Wording = _WORDING
) -> Request:
    """Return the request with a history this upstream takes; the same object if it has one already."""
    if _is_clean(request, profile, issuer):
        return request
    stubs = _stubs(request.messages) if profile.history_needs_tools and not request.tools else ()
    messages = request.messages
    bound = 0
    if not all(map(_is_users, messages)):
        messages = fit_reasoning(messages, profile, issuer, log)
        bound = bound_until(messages, profile)
        messages = strip_markup(messages, request.tools or stubs, profile, bound, log)
        messages = _without_empty_assistants(messages, profile, bound, log)
        messages = pair_results(messages, bound, log, kept_by_server=_is_kept_by_server(request), wording=wording)
    messages = _with_words(messages, bound, log, wording)
    messages = _ending_on_user(messages, request, profile, log, wording)
    changes: dict[str, Any] = {} if messages is request.messages else {"messages": messages}
    if stubs:
        changes |= _offering(stubs, log)
    return request.evolve(**changes) if changes else request


def offer_stubs(request: Request, profile: Profile, log: AdaptationLog) -> Request:
    """Return a request that has lost its tools with stubs for those its history calls, where it may not have none."""
    stubs = _stubs(request.messages) if needs_tools(request, profile) and not request.tools else ()
    return request.evolve(**_offering(stubs, log)) if stubs else request


def needs_tools(request: Request, profile: Profile) -> bool:
    """Tell whether a history with calls may not be sent without tools (rule 104): Messages says so of itself."""
    return profile.history_needs_tools or (request.origin is not None and request.origin.wire is Wire.MESSAGES)


def _offering(stubs: tuple[Tool, ...], log: AdaptationLog) -> dict[str, Any]:
    names = ", ".join(stub.name for stub in stubs)
    log.add(AdaptationKind.TOOL_ADDED, names, "this upstream refuses tool history without tools")
    return {"tools": stubs, "tool_choice": ToolChoice(mode=ChoiceMode.NONE)}


def _is_clean(request: Request, profile: Profile, issuer: str) -> bool:
    """Tell cheaply whether a history needs nothing; of one that does not say so by itself nothing is told."""
    order = order_of(request)
    if order.talk is not None:
        return True
    if not order.kept or order.unsaid or not (order.ends or profile.prefill):
        return False
    if order.thinks and not keeps_reasoning(request, profile, issuer):
        return False
    if order.names and profile.history_needs_tools and not request.tools:
        return False
    return not order.marked or is_unmarked(request, profile)


def _is_users(message: Message) -> bool:
    """Tell whether a message holds nothing of the model's or its tools'."""
    if message.role is Role.ASSISTANT or message.role is Role.TOOL:
        return False
    return all(isinstance(part, Text) for part in message.parts)


def remove_trailing_assistant(request: Request, wording: Wording = _WORDING) -> Request:
    """Return the request without the assistant turn it ends on; the same object if it ends on another (rule 100)."""
    messages = request.messages
    end = len(messages)
    while end and messages[end - 1].role is Role.ASSISTANT:
        end -= 1
    if end == len(messages):
        return request
    return request.evolve(messages=messages[:end] or (_user(wording.continue_turn),))


def drop_reasoning(request: Request) -> Request:
    """Return the request without any reasoning of earlier turns; the same object if it carries none (rule 124).

    What is left may need mending again: nothing binds its history any more.
    """
    messages = without_reasoning(request.messages)
    return request if messages is request.messages else request.evolve(messages=messages)


def _is_kept_by_server(request: Request) -> bool:
    """Tell whether part of the conversation is not in the request but kept by the server."""
    origin = request.origin
    return request.previous_response_id is not None or (
        origin is not None and origin.wire is Wire.RESPONSES and origin.fields.get("conversation") is not None
    )


# --- empty turns (rule 103) ---------------------------------------------------------------------------------------


def _without_empty_assistants(messages: _Messages, profile: Profile, bound: int, log: AdaptationLog) -> _Messages:
    """Drop assistant turns that say nothing: blank ones, and ones of nothing but reasoning where that is no answer."""
    out: list[Message] = []
    dropped = left = 0
    changed = False
    index = 0
    while index < len(messages):
        end = index
        while end < len(messages) and messages[end].role is Role.ASSISTANT:
            end += 1
        if end == index:
            out.append(messages[index])
            index += 1
            continue
        run = messages[index:end]
        says = any(not _is_blank(message) and not _only_reasons(message) for message in run)
        for place, message in enumerate(run, index):
            empty = _is_blank(message) or (not says and not profile.reasoning_only_final and _only_reasons(message))
            if place < bound:
                left += empty
                out.append(message)
            elif empty:
                dropped += 1
            else:
                kept = _without_blank_blocks(message)
                changed = changed or kept is not message
                out.append(kept)
        index = end
    if left:
        log.add(AdaptationKind.REPORTED, "history", f"{left} empty assistant turns that reasoning is bound to")
    if dropped:
        log.add(AdaptationKind.HISTORY_MENDED, "assistant", f"{dropped} empty turns dropped")
    elif changed:
        log.add(AdaptationKind.HISTORY_MENDED, "assistant", "blank text beside other content dropped")
    return tuple(out) if dropped or changed else messages


def _with_words(messages: _Messages, bound: int, log: AdaptationLog, wording: Wording) -> _Messages:
    """Give user turns without content a word; tool messages are untouched."""
    out: list[Message] = []
    filled = left = 0
    changed = False
    for index, message in enumerate(messages):
        mended = message
        if message.role is Role.USER:
            if all(isinstance(part, Text) and not part.text.strip() for part in message.parts):
                mended = message.evolve(parts=(Text(text=wording.empty_user),))
                filled += index >= bound
            else:
                mended = _without_blank_blocks(message)
        if mended is not message and index < bound:
            left += 1
            mended = message
        changed = changed or mended is not message
        out.append(mended)
    if left:
        log.add(AdaptationKind.REPORTED, "history", f"{left} user turns with blank text that reasoning is bound to")
    if filled:
        log.add(AdaptationKind.HISTORY_MENDED, "user", f"{filled} empty turns filled in")
    elif changed:
        log.add(AdaptationKind.HISTORY_MENDED, "user", "blank text beside other content dropped")
    return tuple(out) if changed else messages


def _is_blank(message: Message) -> bool:
    """Tell whether a message says nothing at all, its unknown fields included."""
    return all(isinstance(part, Text | Refusal) and not part.text.strip() for part in message.parts) and not (
        _has_other_content(message)
    )


def _only_reasons(message: Message) -> bool:
    """Tell whether a message holds reasoning and nothing else that is not blank."""
    return any(isinstance(part, Reasoning) for part in message.parts) and (
        not _has_other_content(message)
        and all(
            isinstance(part, Reasoning) or (isinstance(part, Text | Refusal) and not part.text.strip())
            for part in message.parts
        )
    )


def _has_other_content(message: Message) -> bool:
    origin = message.origin
    return origin is not None and any(value and name not in _INERT_FIELDS for name, value in origin.fields.items())


def _without_blank_blocks(message: Message) -> Message:
    """Return a message of the Messages wire, which refuses blank text blocks, without those beside other content."""
    if message.origin is None or message.origin.wire is not Wire.MESSAGES:
        return message
    parts = tuple(part for part in message.parts if not (isinstance(part, Text) and not part.text.strip()))
    return message if len(parts) == len(message.parts) or not parts else message.evolve(parts=parts)


# --- the end of the history (rule 100) ----------------------------------------------------------------------------


def _ending_on_user(
    messages: _Messages, request: Request, profile: Profile, log: AdaptationLog, wording: Wording
) -> _Messages:
    """Append a minimal user turn where the history ends on the assistant and the model takes no prefill."""
    if not messages:
        if not request.messages:
            return messages
        log.add(AdaptationKind.HISTORY_MENDED, "user", "a turn added: nothing else was left")
        return (_user(wording.continue_turn),)
    if profile.prefill or not _ends_on_assistant(messages):
        return messages
    log.add(AdaptationKind.HISTORY_MENDED, "user", "a turn added: this model continues no assistant turn")
    return (*messages, _user(wording.continue_turn))


def _ends_on_assistant(messages: _Messages) -> bool:
    for message in reversed(messages):
        if message.role is Role.SYSTEM and message.origin is not None and message.origin.wire is Wire.MESSAGES:
            continue  # the Messages wire looks through them
        if message.role is not Role.ASSISTANT:
            return False
        # The provider's own item at the end is its turn to go on with (a paused turn), or its tool's output.
        return not (message.parts and isinstance(message.parts[-1], ProviderItem))
    return False


def _user(text: str) -> Message:
    return Message(role=Role.USER, parts=(Text(text=text),))


# --- tools for the history (rule 104) -----------------------------------------------------------------------------


def _stubs(messages: _Messages) -> tuple[Tool, ...]:
    """Return one stub for each tool the history calls, on the wire its calls came from.

    Where the history goes to another wire, `wire.crossing.offer` makes them.
    """
    stubs: dict[tuple[str | None, str], Tool] = {}
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall) and (part.namespace, part.name) not in stubs:
                stubs[part.namespace, part.name] = Tool(
                    name=part.name,
                    namespace=part.namespace,
                    parameters={"type": "object", "properties": {}},
                    origin=None if part.origin is None else Origin(part.origin.wire),
                )
    return tuple(stubs.values())
