"""JSON values that are bent in one place, to see what a reader makes of them."""

from collections.abc import Iterator
from typing import Any, cast

__all__ = ["places"]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a JSON value, with each of its keys."""
    match value:
        case dict():
            items: list[tuple[Any, Any]] = list(cast("dict[str, Any]", value).items())
        case list():
            items = list(enumerate(cast("list[Any]", value)))
        case _:
            items = []
    for key, inner in items:
        yield value, key
        yield from places(inner)
