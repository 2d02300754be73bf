"""What a store is to the ledger: something that runs programs, within a time limit, or says quickly that it cannot."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from mustcall.ledger.stores.program import Program

__all__ = ["LedgerStore", "Maker"]

T = TypeVar("T")

#: Makes a program anew for each try. Its argument says that the answer to an earlier try was lost.
Maker = Callable[[bool], Program[T]]


class LedgerStore(Protocol):
    """One database. Everything it raises is a `LedgerError`, or what the program itself raised."""

    @property
    def kind(self) -> str:
        """`sqlite` or `postgres`."""
        ...

    @property
    def place(self) -> str:
        """Where it is, without secrets: for messages."""
        ...

    @property
    def threaded(self) -> bool:
        """Whether programs run in a thread of their own rather than on the loop."""
        ...

    async def open(self) -> None:
        """Open it and bring its tables up to date."""
        ...

    async def close(self) -> None:
        """Finish what is under way, within a time limit, and close it."""
        ...

    async def write(self, make: Maker[T], *, limit: float) -> T:
        """Run a program that writes, in one transaction; when this returns, what it wrote survives a power cut."""
        ...

    async def read(self, make: Maker[T], *, limit: float) -> T:
        """Run a program that only reads."""
        ...

    async def problems(self) -> list[str]:
        """Check the database itself; return what is wrong with it."""
        ...

    async def shrink(self) -> None:
        """Give room that removal left back to the system, as far as that is cheap."""
        ...
