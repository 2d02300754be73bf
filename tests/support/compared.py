"""Bodies that know whether they were compared: a test of retries must look at the body of each call (rule 118).

A body counts as compared once it was equal to a whole body that the test wrote: alone, or in a list. A key of it, a
substring or a count is no comparison. What a test has good reason not to compare it says with `leave`.
"""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Body", "Comparing", "check_compared", "forget"]

#: The scripts of the running test that have ended.
_ended: list["Comparing"] = []


def forget() -> None:
    """Forget the scripts of tests before this one, which may have failed."""
    _ended.clear()


def check_compared() -> None:
    """Fail if a request of this test came to several calls and not all of their bodies were compared."""
    for script in _ended:
        script.check()


class Body(dict[str, Any]):
    """A recorded body; being equal to another marks it as compared."""

    __slots__ = ("_compared", "_number")

    def __init__(self, body: dict[str, Any], number: int, compared: set[int]) -> None:
        super().__init__(body)
        self._number = number
        self._compared = compared

    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        if equal is True:
            self._compared.add(self._number)
        return bool(equal)

    def __ne__(self, other: object) -> bool:
        return not super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  as every dict


class Comparing:
    """What of a script's bodies was compared so far."""

    def __init__(self) -> None:
        self._compared: set[int] = set()
        self._left: str | None = None
        self._count = 0
        self._counted: Callable[[], tuple[int, int]] | None = None

    def bodies(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the bodies, each of which notes that it was compared."""
        return [Body(body, number, self._compared) for number, body in enumerate(bodies)]

    def leave(self, why: str) -> None:
        """Leave bodies of this script unlooked at, for a reason."""
        assert why, "a reason is needed"
        self._left = why

    def end(self, calls: int, asked: int) -> None:
        """Note how many calls so many requests came to: where there are more, the test is asked about them later."""
        self._counted = None
        if calls > asked:
            self._count = calls
            if self not in _ended:
                _ended.append(self)

    def watch(self, counted: Callable[[], tuple[int, int]]) -> None:
        """Do as `end` when the test is over, or when `settle` is called: `counted` tells calls and requests."""
        self._counted = counted
        _ended.append(self)

    def settle(self) -> None:
        """Count what is watched now; what a test before this one left is not counted."""
        if self._counted is not None and self in _ended:
            self.end(*self._counted())

    def check(self) -> None:
        """Fail if one of the bodies was not compared."""
        if self._counted is not None:
            self.end(*self._counted())
        missing = [number + 1 for number in range(self._count) if number not in self._compared]
        if missing and self._left is None:
            listed = ", ".join(map(str, missing))
            raise AssertionError(f"rule 118: of {self._count} upstream calls the bodies of {listed} were not compared")
