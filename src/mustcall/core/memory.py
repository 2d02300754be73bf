"""How much memory JSON takes once it is read: nothing is kept by the bytes it was written in.

`[]` is two bytes and takes 64; one emoji makes a text of a megabyte take four.
"""

from collections.abc import Sequence
from sys import getsizeof
from typing import Any

import msgspec

__all__ = ["TOO_MANY", "Weighed", "footprint", "weigh", "weigh_structure"]

#: What a text or a number takes beside its characters.
_LEAF = 56
#: A value of more values than this is not weighed.
TOO_MANY = 16_384


class Weighed(msgspec.Struct, frozen=True, gc=False):
    """What a JSON value takes: the bytes of its texts and numbers, and those of its objects and arrays."""

    texts: int
    structure: int
    #: Its commas, brackets and braces, as they would be counted without those in texts (`core.elements`).
    signs: int
    #: Whether a text in it is not ASCII: it holds its UTF-8 as well once it was written.
    wide: bool


def weigh(value: Any) -> Weighed | None:
    """Return what a JSON value takes; None if it holds too many values."""
    texts = structure = signs = 0
    wide = False
    left = TOO_MANY
    waiting: list[Any] = [[value]]
    root = True
    for one in waiting:
        if root:
            root = False
        else:
            count = len(one)
            left -= count
            if left < 0:
                return None
            signs += count or 1
            structure += getsizeof(one)
        # The types are JSON's own, and this is done for each value of each new message.
        inner = one
        kind = one.__class__
        if kind is dict:
            texts += sum(map(getsizeof, one))
            wide = wide or not all(map(str.isascii, one))
            inner = one.values()
        for each in inner:
            kind = each.__class__
            if kind is str:
                texts += getsizeof(each)
                wide = wide or not each.isascii()
            elif kind is dict or kind is list:
                waiting.append(each)
            else:
                texts += getsizeof(each)
    return Weighed(texts, structure, signs, wide)


def weigh_structure(value: dict[str, Any] | list[Any]) -> int | None:
    """Return the bytes of a JSON value without those of its characters; None if it holds too many values."""
    size, left, waiting = 0, TOO_MANY, [value]
    for one in waiting:
        count = len(one)
        left -= count
        if left < 0:
            return None
        size += getsizeof(one) + _LEAF * count
        inner = one.values() if isinstance(one, dict) else one
        waiting += [each for each in inner if isinstance(each, dict | list)]
    return size


def footprint(value: object) -> int:
    """Return about how many bytes a value of ours takes, with all that it holds; what it holds twice counts twice.

    A value that holds many others is estimated from its JSON, rather too high: this is asked on the loop, and walking
    through 20,000 values takes as many microseconds.
    """
    size, left = 0, _WALKED
    waiting: list[Any] = [value]
    for one in waiting:
        size += getsizeof(one)
        if one.__class__ not in _LEAVES:
            inner = _members(one)
            left -= len(inner)
            if left < 0:
                return _estimate(value)
            waiting += inner
    return size


def _estimate(value: object) -> int:
    """Return what a value takes by what its JSON takes, at least about; signs in texts are taken for structure."""
    written = msgspec.json.encode(value, enc_hook=repr)
    texts = len(written) * (1 if written.isascii() else _WIDEST)
    return texts + sum(written.count(sign) * size for sign, size in _SIGNS.items())


def _members(value: Any) -> Sequence[Any]:
    kind = value.__class__
    if kind is dict:
        return [*value, *value.values()]
    if kind in _HOLDERS:
        return tuple(value)
    return msgspec.structs.astuple(value) if isinstance(value, msgspec.Struct) else ()


#: So many values are walked through at most.
_WALKED = 2048
#: What stands for each sign of JSON: a text has two quotes, a value of an array or object a comma.
_SIGNS = {b'"': _LEAF // 2, b",": 36, b":": 64, b"{": 192, b"[": 64}
#: What a character takes at most where one of them is not ASCII, its UTF-8 included.
_WIDEST = 5
_LEAVES = frozenset({str, bytes, int, float, bool, type(None)})
_HOLDERS = frozenset({tuple, list, set, frozenset})
