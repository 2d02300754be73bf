"""Answers that several models make together: one proposes, some criticise, one concludes."""

from mustcall.engine.coordinating.coordinate import coordinate, coordinate_sync
from mustcall.engine.coordinating.envelopes import Confidence, Critique, Proposal, RoleKind, Stance, Synthesis
from mustcall.engine.coordinating.events import CoordinateEvent, RoleFinished, RoleProgress, RoleStarted
from mustcall.engine.coordinating.members import Participant
from mustcall.engine.coordinating.results import CoordinateResult, InnerCall, RoleRun, WorkerTools

__all__ = [
    "Confidence",
    "CoordinateEvent",
    "CoordinateResult",
    "Critique",
    "InnerCall",
    "Participant",
    "Proposal",
    "RoleFinished",
    "RoleKind",
    "RoleProgress",
    "RoleRun",
    "RoleStarted",
    "Stance",
    "Synthesis",
    "WorkerTools",
    "coordinate",
    "coordinate_sync",
]
