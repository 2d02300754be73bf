"""What a run tells whoever keeps it, and takes back to go on: plain values, and the keeper's side of the bargain.

A moment is what is new since the moment before, and where the run stands. A run that goes on is its moments laid one
after another; nothing is decided a second time, so settings may change in between. Where moments are kept, and how, is
not known here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from mustcall.core.errors import MustcallError
from mustcall.core.message import Message
from mustcall.core.parts import ToolCall
from mustcall.core.reply import Reply, Usage
from mustcall.engine.records import TurnRecord
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.tooling.outcomes import ExecutedCall
from mustcall.engine.tooling.running import Executed
from mustcall.policy.limits.budget import Charge
from mustcall.policy.reply.repeated_calls import Loop

__all__ = ["Checkpoint", "ModelTurn", "Recovered", "RunKeeper", "RunStanding"]


class RunStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run stands besides its lists."""

    number: int = 0
    usage: Usage = Usage()
    usage_by: Mapping[str, Usage] = {}
    text: str = ""
    hops: int = 0
    closing: bool = False
    spent: bool = False
    #: What was paid, where a budget counts it.
    charge: Charge | None = None
    reminder: str | None = None
    plainly: bool = False
    notice: str | None = None
    #: The required step that the answer before left out.
    owed: str | None = None
    response_id: str | None = None
    kept: int = 0


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose model has spoken. `pending` are the calls it made, of which the first `allowed` may be run."""

    standing: RunStanding
    messages: tuple[Message, ...] = ()
    calls: tuple[ExecutedCall, ...] = ()
    steps: tuple[TurnRecord, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    allowed: int = 0
    loop: Loop | None = None


class ModelTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A model's turn in the middle of a step."""

    reply: Reply
    usage: Usage
    record: TurnRecord | None = None


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a run that goes on: of its last step also the calls that are done, and those that had begun."""

    moments: tuple[Checkpoint, ...] = ()
    done: Mapping[int, Executed] = {}
    begun: frozenset[int] = frozenset()


class RunKeeper(Protocol):
    """Keeps a run. What it cannot keep it raises as a `LedgerError`, and the run stops."""

    @property
    def run_id(self) -> str:
        """The run's name."""
        ...

    def recall(self, number: int) -> ModelTurn | None:
        """Return the next model's turn of a step, if it was taken before the run was interrupted."""
        ...

    async def before_model(self) -> None:
        """Write what is not yet written: a model is about to be asked."""
        ...

    def took(self, taken: ModelTurn) -> None:
        """Take note of a model's turn; it is written with what follows from it."""
        ...

    def owes(self, number: int) -> bool:
        """Tell whether a step has no moment yet."""
        ...

    def mark(self, moment: Checkpoint) -> None:
        """Take note of a step that made no calls; it is written before a model is asked again."""
        ...

    async def intend(self, moment: Checkpoint, at_once: Sequence[int]) -> None:
        """Write a step that makes calls, with the intent of those that begin at once, all in one."""
        ...

    async def begin(self, index: int) -> None:
        """Write the intent of a call if it is not written yet; return only while the run is still ours."""
        ...

    async def finish(self, index: int, executed: Executed) -> None:
        """Write what became of a call."""
        ...

    async def end(self, moment: Checkpoint, result: RunResult[Any]) -> RunResult[Any]:
        """Write the end and return the result as it will be returned ever after."""
        ...

    async def fail(self, moment: Checkpoint, result: RunResult[Any], error: MustcallError) -> None:
        """Write the end of a run that failed, or leave it to be gone on with if the failure may pass."""
        ...
