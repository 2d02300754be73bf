"""What a run is made of before it begins: its settings, who listens, and what one step sends."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mustcall.core.request import Request
from mustcall.engine.agent.events import RunEvent
from mustcall.engine.agent.hooking import AfterStep, BeforeStep
from mustcall.engine.agent.options import Options
from mustcall.engine.answers.answering import Answering
from mustcall.engine.spending.budget_account import Metering
from mustcall.engine.tooling.definition import Approve
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.compaction import Compaction
from mustcall.policy.reply.unbacked_claims import Claims
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.retry import Clock

__all__ = ["Emit", "Hook", "RunSettings", "StepRequest"]

Hook = Callable[[RunEvent], Awaitable[None] | None]
"""Sees every event of a run. What it raises is logged; it never ends the run."""

Emit = Callable[[RunEvent], Awaitable[None]]


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one run."""

    endpoint: Endpoint
    model: str
    clock: Clock
    controls: Controls
    wording: Wording = Wording()
    instructions: str | None = None
    options: Options = Options()
    max_steps: int = 10
    concurrency: int = 8
    timeout: float = 600.0
    approve: Approve | None = None
    stateful: bool = False
    stream: bool = False
    #: Whether a structured answer is told as it is written.
    partial: bool = False
    hooks: tuple[Hook, ...] = ()
    answering: Answering | None = None
    metering: Metering | None = None
    session: str | None = None
    #: What tools, approvals and rules depend on.
    deps: Any = None
    #: The tools that must have succeeded before the run may answer.
    required: tuple[str, ...] = ()
    compaction: Compaction | None = None
    before: tuple[BeforeStep, ...] = ()
    after: tuple[AfterStep, ...] = ()
    claims: Claims = Claims.OFF
    #: Whether answers are held against the results of the calls before them, and whether the model is a small one.
    compares: bool = False
    small: bool = False


class StepRequest(msgspec.Struct, frozen=True):
    """What one step sends. `capped`: nothing may be called in it (rule 109).

    `due`: because all hops are used, and the answer can be enforced only without tools; the run is not cut short by it.
    """

    request: Request
    controls: Controls
    capped: bool = False
    due: bool = False
