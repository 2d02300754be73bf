"""What each role of a coordinated answer hands over: frozen values, whose schemas the models are held to.

They say what is handed over and how it is quoted to the next role; who is asked, and in which order, is decided
elsewhere.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["ENVELOPES", "Confidence", "Critique", "Envelope", "Proposal", "RoleKind", "Stance", "Synthesis", "as_text"]


class RoleKind(StrEnum):
    """What a model is there for."""

    PROPOSER = "proposer"
    CRITIC = "critic"
    SYNTHESIZER = "synthesizer"


Stance = Literal["agree", "revise", "reject"]
Confidence = Literal["low", "medium", "high"]


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proposed answer."""

    answer: Annotated[str, Meta(min_length=1, description="The proposed answer.")]
    reasons: Annotated[tuple[str, ...], Meta(description="Why, in short sentences.")] = ()
    unsure: Annotated[tuple[str, ...], Meta(description="What is not certain.")] = ()


class Critique(msgspec.Struct, frozen=True, kw_only=True):
    """What a critic says about a proposal."""

    stance: Annotated[Stance, Meta(description="Whether the proposal stands, needs changes, or is wrong.")]
    problems: Annotated[tuple[str, ...], Meta(description="What is wrong or missing.")] = ()
    suggestion: Annotated[str, Meta(description="What would mend it.")] = ""


class Synthesis(msgspec.Struct, frozen=True, kw_only=True):
    """The final answer."""

    answer: Annotated[str, Meta(min_length=1, description="The final answer.")]
    confidence: Annotated[Confidence, Meta(description="How sure it is.")] = "medium"
    open_points: Annotated[tuple[str, ...], Meta(description="What stays disputed or unknown.")] = ()


Envelope = Proposal | Critique | Synthesis

ENVELOPES: dict[RoleKind, type[Proposal] | type[Critique] | type[Synthesis]] = {
    RoleKind.PROPOSER: Proposal,
    RoleKind.CRITIC: Critique,
    RoleKind.SYNTHESIZER: Synthesis,
}


def as_text(envelope: Proposal | Critique) -> str:
    """Return what another role gets to read of it."""
    match envelope:
        case Proposal():
            return "\n".join([envelope.answer, *_list("Reasons", envelope.reasons), *_list("Unsure", envelope.unsure)])
        case Critique():
            suggestion = [f"Suggestion: {envelope.suggestion}"] if envelope.suggestion else []
            return "\n".join([f"Stance: {envelope.stance}", *_list("Problems", envelope.problems), *suggestion])


def _list(title: str, points: Sequence[str]) -> list[str]:
    return [f"{title}:", *(f"- {point}" for point in points)] if points else []
