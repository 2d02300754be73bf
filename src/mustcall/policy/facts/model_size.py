"""How large a model is, by its name: `qwen2.5-coder-0.5b` has half a billion parameters.

Where a name says nothing, nothing is known: a model of unknown size is not taken for a small one.
"""

import re

__all__ = ["billions_in", "is_small"]

#: The number stands by itself: `8x7b` and `e2b` count otherwise.
_SIZE = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,3})?) ?([bm])(?![a-z0-9])")
#: Millions that are a context's tokens, as in `[1m]`.
_CONTEXT = 10
#: Up to here models are seen to restate tool results wrongly.
_SMALL = 4.0


def billions_in(model: str) -> float | None:
    """Return the billions of parameters a model's name says it has, the largest if it names several."""
    found = [(float(size), unit) for size, unit in _SIZE.findall(model.lower())]
    sizes = [size if unit == "b" else size / 1000 for size, unit in found if unit == "b" or size > _CONTEXT]
    return max(sizes, default=None)


def is_small(model: str) -> bool:
    """Tell whether a model is known to be small."""
    size = billions_in(model)
    return size is not None and size <= _SMALL
