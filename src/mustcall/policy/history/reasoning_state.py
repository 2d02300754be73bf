"""Which reasoning of earlier turns an upstream is handed back, and how far it binds the history (rules 124, 134).

State is never read and never rewritten: a part is sent as it came, sent as plain text in the upstream's own field, or
left out. State of another known issuer is never sent; state whose maker is not known came from the caller in its
native form and is kept. Each message is decided by itself, so the same history always gives the same prefix.

It knows no wire's spelling; which forms a codec can carry is the codec's business.
"""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.history import Folded, beginning_of
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import OpaqueState, Part, Reasoning, ToolCall
from mustcall.core.request import Request
from mustcall.policy.facts.profile import Profile, ReasoningPolicy, SchemaTarget

__all__ = ["bound_until", "fit_reasoning", "keeps_reasoning", "without_reasoning"]

_Messages = tuple[Message, ...]


class _Fate(Enum):
    """What becomes of one thought."""

    KEPT = "kept"
    FOREIGN = "foreign"
    UNSIGNED = "unsigned"
    PLAIN = "plain"
    RENAMED = "renamed"


_NOTES = {
    _Fate.FOREIGN: (AdaptationKind.STATE_DROPPED, "another upstream's"),
    _Fate.UNSIGNED: (AdaptationKind.STATE_DROPPED, "without the signature this upstream demands"),
    _Fate.PLAIN: (AdaptationKind.FIELD_MAPPED, "sent in this upstream's own field"),
    _Fate.RENAMED: (AdaptationKind.FIELD_MAPPED, "sent in this upstream's own field"),
}

_Fit = Callable[[Reasoning], Reasoning | None]


def fit_reasoning(messages: _Messages, profile: Profile, issuer: str, log: AdaptationLog) -> _Messages:
    """Return the messages with only the reasoning this upstream may get; the same tuple if that is all of it."""
    fates: Counter[_Fate] = Counter()

    def fit(part: Reasoning) -> Reasoning | None:
        fitted, fate = _fitted(part, profile, issuer)
        fates[fate] += 1
        return fitted

    fitted = _each_reasoning(messages, fit)
    if profile.reasoning_history is ReasoningPolicy.DROP and not bound_until(fitted, profile):
        before, fitted = fitted, without_reasoning(fitted)
        if fitted is not before:
            log.add(AdaptationKind.STATE_DROPPED, "reasoning", "this upstream takes no reasoning of earlier turns")
    for fate, (kind, detail) in _NOTES.items():
        if fates[fate]:
            log.add(kind, "reasoning", detail)
    return fitted


class _Taker(msgspec.Struct, frozen=True):
    """Who is handed back reasoning."""

    profile: Profile
    issuer: str

    def mark(self) -> object:
        """Return what stands for all that a thought's fate depends on."""
        return self.profile.reasoning_field, _wants_signatures(self.profile), self.issuer


def keeps_reasoning(request: Request, profile: Profile, issuer: str) -> bool:
    """Tell whether an upstream may get all reasoning of a history as it is."""
    if profile.reasoning_history is ReasoningPolicy.DROP:
        return False
    return _kept.of(beginning_of(request), _Taker(profile, issuer))


def _still_kept(kept: bool, message: Message, taker: _Taker) -> bool:
    return kept and all(
        _fitted(part, taker.profile, taker.issuer)[1] is _Fate.KEPT
        for part in message.parts
        if isinstance(part, Reasoning)
    )


_kept: Folded[bool, _Taker] = Folded(lambda _: True, _still_kept, _Taker.mark)


def without_reasoning(messages: _Messages) -> _Messages:
    """Return the messages without any reasoning; the same tuple if there is none."""
    return _each_reasoning(messages, lambda _: None)


def bound_until(messages: _Messages, profile: Profile) -> int:
    """Return how many messages must not be changed: all up to the end of the last turn with reasoning state."""
    if not profile.prefix_bound:
        return 0
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role is Role.ASSISTANT and any(
            isinstance(part, Reasoning) and part.state is not None for part in message.parts
        ):
            end = index + 1
            while end < len(messages) and messages[end].role is Role.ASSISTANT:
                end += 1
            return end
    return 0


def _fitted(part: Reasoning, profile: Profile, issuer: str) -> tuple[Reasoning | None, _Fate]:
    """Return the part as this upstream may get it, and what became of it."""
    state = part.state
    if state is not None and state.issuer and state.issuer != issuer:
        return _as_plain(part, profile), _Fate.FOREIGN
    if state is None:
        origin = part.origin
        if origin is None or origin.wire is Wire.CHAT:
            return part, _Fate.KEPT
        plain = _as_plain(part, profile)
        if plain is not None:
            return plain, _Fate.PLAIN
        if origin.wire is Wire.MESSAGES and _wants_signatures(profile):
            return None, _Fate.UNSIGNED
        return part, _Fate.KEPT
    field = profile.reasoning_field
    if state.form is Wire.CHAT and field is not None and part.text:
        data = _object(state.data)
        if data.get("field", field) != field:
            # Cerebras refuses `reasoning_content` and takes `reasoning`; others the other way round (observed: code).
            renamed = OpaqueState(state.form, {**data, "field": field}, state.issuer)
            return part.evolve(state=renamed), _Fate.RENAMED
    return part, _Fate.KEPT


def _as_plain(part: Reasoning, profile: Profile) -> Reasoning | None:
    """Return the readable part of a thought, without state, where the upstream has a field for it."""
    text = part.text or "\n\n".join(part.summary)
    if profile.reasoning_field is None or not text.strip():
        return None
    state = OpaqueState(Wire.CHAT, {"field": profile.reasoning_field})
    return part.evolve(text=text, summary=(), state=state, id=None)


def _wants_signatures(profile: Profile) -> bool:
    """Tell Claude's own doors: they refuse thinking without a signature; other Messages servers never sign theirs."""
    return profile.prefix_bound or profile.schema_target is SchemaTarget.ANTHROPIC


def _object(value: Any) -> dict[str, Any]:
    # State went through the caller's hands: only its shape is certain here.
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _each_reasoning(messages: _Messages, fit: _Fit) -> _Messages:
    """Apply a decision to every thought of the assistant's; messages that end up empty by it are left out."""
    out: list[Message] = []
    changed = unlinked = False
    for message in messages:
        if message.role is not Role.ASSISTANT:
            unlinked = False
            out.append(message)
            continue
        fitted, dropped = _fit_message(message, fit)
        unlinked = unlinked or (dropped and _is_item(message))
        if unlinked and fitted is not None:
            fitted = _unlink(fitted)
        changed = changed or fitted is not message
        if fitted is not None:
            out.append(fitted)
    return tuple(out) if changed else messages


def _fit_message(message: Message, fit: _Fit) -> tuple[Message | None, bool]:
    """Return the message with its thoughts fitted (None if nothing is left), and whether one was dropped."""
    parts: list[Part] = []
    changed = dropped = False
    for part in message.parts:
        if isinstance(part, Reasoning):
            fitted = fit(part)
            changed = changed or fitted is not part
            if fitted is None:
                dropped = True
                continue
            parts.append(fitted)
        else:
            parts.append(part)
    if not changed:
        return message, False
    return (message.evolve(parts=tuple(parts)) if parts else None), dropped


def _is_item(message: Message) -> bool:
    return message.origin is not None and message.origin.wire is Wire.RESPONSES


def _unlink(message: Message) -> Message:
    """Return a Responses item without its id.

    An item whose id the server knows is refused without the reasoning item it was made with (observed: issue threads,
    "provided without its required 'reasoning' item"); without an id it is taken as it is.
    """
    parts = tuple(
        part.evolve(item_id=None) if isinstance(part, ToolCall) and part.item_id is not None else part
        for part in message.parts
    )
    origin = message.origin
    if origin is not None and "id" in origin.fields:
        fields = {name: value for name, value in origin.fields.items() if name != "id"}
        return message.evolve(parts=parts, origin=Origin(origin.wire, fields, None, origin.spelling))
    same = all(new is old for new, old in zip(parts, message.parts, strict=True))
    return message if same else message.evolve(parts=parts)
