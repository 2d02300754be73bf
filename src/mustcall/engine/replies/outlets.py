"""Where a turn's reply goes as it comes: into bytes of a wire (`engine.replies.delivery`), or to a reader of events.

The turn decides what may be seen and when; what is made of it is the outlet's. `shown` is what went out, and the turn
goes on from it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from mustcall.core.errors import ErrorInfo, MustcallError
from mustcall.core.streams.events import Event
from mustcall.policy.reply.gate import Released

__all__ = ["WHOLE", "Heard", "Outlet", "P"]

P = TypeVar("P", bytes, "tuple[Event, ...]")


class Outlet(Protocol[P]):
    """Takes what may be seen of a reply, in order, and returns what its reader gets."""

    #: What is returned where nothing goes out.
    nothing: P
    #: Whether its reader takes the accepted reply as a whole, so that nothing goes out before.
    waits: bool
    shown: Released

    @property
    def begun(self) -> bool:
        """Whether something went out after which an error cannot be raised any more."""
        ...

    @property
    def written(self) -> bool:
        """Whether something went out in another form than it came: the upstream's own bytes cannot follow."""
        ...

    def named_by(self, names: Callable[[], Sequence[str]]) -> None:
        """Take where the ids are known under which items go out as bytes."""
        ...

    def forward(self, block: bytes, events: list[Event]) -> P:
        """Take bytes as they came; `events` are what they mean."""
        ...

    def forward_one(self, block: bytes, event: Event) -> P:
        """Do as `forward` for whole lines that mean one event."""
        ...

    def write(self, events: Iterable[Event]) -> P:
        """Take events that are not to go out as they came."""
        ...

    def joined(self, pieces: Sequence[P]) -> P:
        """Return what went out together."""
        ...

    def tells(self, error: ErrorInfo) -> bool:
        """Tell whether this error is no exception even where nothing went out."""
        ...

    async def ready(self) -> None:
        """Prepare `fail` beside the loop, where much went out before."""
        ...

    def fail(self, error: MustcallError) -> P:
        """End with an error, after something went out."""
        ...


class _InProcess:
    """A reader in the same process: every error is raised, whatever went out, and no ids are needed."""

    begun = False

    def named_by(self, names: Callable[[], Sequence[str]]) -> None:
        """Take nothing: no bytes go out that others could follow."""

    def tells(self, error: ErrorInfo) -> bool:
        """Tell that every error is raised."""
        del error
        return False

    async def ready(self) -> None:
        """Prepare nothing: an error is raised."""


class Heard(_InProcess):
    """Hands events on as they are: for a reader in the same process."""

    nothing: tuple[Event, ...] = ()
    waits = False
    written = True

    def __init__(self) -> None:
        self.shown = Released()

    def forward(self, block: bytes, events: list[Event]) -> tuple[Event, ...]:
        """Return the events."""
        del block
        return self.write(events)

    def forward_one(self, block: bytes, event: Event) -> tuple[Event, ...]:
        """Return the event."""
        del block
        return self.write((event,))

    def write(self, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return the events."""
        taken = tuple(events)
        self.shown.record(taken)
        return taken

    def joined(self, pieces: Sequence[tuple[Event, ...]]) -> tuple[Event, ...]:
        """Return all of them, in order."""
        return tuple(event for piece in pieces for event in piece)

    def fail(self, error: MustcallError) -> tuple[Event, ...]:
        """Raise the error."""
        raise error


class _Whole(_InProcess):
    """Lets nothing out but the bytes of a reply that is accepted as it came: for a reader of the whole reply.

    It keeps nothing, so that one serves every turn.
    """

    nothing = b""
    waits = True
    written = False
    shown = Released()

    def forward(self, block: bytes, events: list[Event]) -> bytes:
        """Return the reply's own bytes."""
        del events
        return block

    def forward_one(self, block: bytes, event: Event) -> bytes:
        """Return the reply's own bytes."""
        del event
        return block

    def write(self, events: Iterable[Event]) -> bytes:
        """Let nothing out: the reader takes the reply."""
        del events
        return b""

    def joined(self, pieces: Sequence[bytes]) -> bytes:
        """Return what went out together."""
        return b"".join(pieces)

    def fail(self, error: MustcallError) -> bytes:
        """Raise the error."""
        raise error


WHOLE = _Whole()
