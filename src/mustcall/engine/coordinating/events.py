"""What happens while an answer is coordinated, as it happens: frozen values for a callback.

Each role's work begins with `RoleStarted` and ends with `RoleFinished`, a failed one included; between them come the
events of its agent, as `RoleProgress`. Critics work side by side, so that their events mix.
"""

from collections.abc import Awaitable, Callable

import msgspec

from mustcall.engine.agent.events import RunEvent
from mustcall.engine.coordinating.envelopes import RoleKind
from mustcall.engine.coordinating.results import RoleRun

__all__ = ["CoordinateEvent", "OnEvent", "RoleFinished", "RoleProgress", "RoleStarted"]


class RoleStarted(msgspec.Struct, frozen=True, tag="role_started"):
    """A role begins its work."""

    role: RoleKind
    name: str
    model: str
    round: int


class RoleProgress(msgspec.Struct, frozen=True, tag="role_progress"):
    """Something happened in a role's work."""

    name: str
    round: int
    event: RunEvent


class RoleFinished(msgspec.Struct, frozen=True, tag="role_finished"):
    """A role's work is over."""

    run: RoleRun


CoordinateEvent = RoleStarted | RoleProgress | RoleFinished

OnEvent = Callable[[CoordinateEvent], Awaitable[None] | None]
"""Sees every event. What it raises is logged; it never ends the run."""
