"""Answers that several models make together: one proposes, some criticise, one concludes."""

from mustcall.engine.coordinating.coordinate import coordinate, coordinate_sync
from mustcall.engine.coordinating.envelopes import Critique, Proposal, RoleKind, Synthesis
from mustcall.engine.coordinating.events import CoordinateEvent, RoleFinished, RoleProgress, RoleStarted
from mustcall.engine.coordinating.members import Participant
from mustcall.engine.coordinating.results import CoordinateResult, InnerCall, InnerStatus, RoleRun, WorkerTools

__all__ = [
    "CoordinateEvent",
    "CoordinateResult",
    "Critique",
    "InnerCall",
    "InnerStatus",
    "Participant",
    "Proposal",
    "RoleFinished",
    "RoleKind",
    "RoleProgress",
    "RoleRun",
    "RoleStarted",
    "Synthesis",
    "WorkerTools",
    "coordinate",
    "coordinate_sync",
]
