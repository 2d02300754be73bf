"""Errors that are kept for later, without the frames they came through: those hold all that was read there."""

from typing import TypeVar

from mustcall.core.errors import MustcallError

__all__ = ["without_frames"]

E = TypeVar("E", bound=MustcallError)


def without_frames(error: E) -> E:
    """Return an error, and what caused it, without their frames."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            waiting += (each.__cause__, each.__context__)
    return error
