"""How much memory JSON takes once it is read: nothing is kept by the bytes it was written in.

`[]` is two bytes and takes 64; one emoji makes a text of a megabyte take four.
"""

import sys
from itertools import chain
from operator import methodcaller
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
        waiting += [each for each in inner if isinstance(each, (dict, list))]
    return size


def footprint(value: object) -> int:
    """Return about how many bytes a value of ours takes, with all that it holds; what it holds twice counts twice.

    One of very many values is said to take more than there is. This is asked on the loop, so values are looked at a
    level at a time, nearly all of it in C.
    """
    size, left = getsizeof(value), _WALKED
    level: list[Any] = [value]
    while level:
        objects = [one for one in level if one.__class__ is dict]
        members: list[Any] = [*chain.from_iterable(objects), *chain.from_iterable(map(_values_of, objects))]
        if len(objects) < len(level):
            members += [member for one in level if one.__class__ in _HOLDERS for member in one]
            structs = [one for one in level if isinstance(one, msgspec.Struct)]
            members += chain.from_iterable(map(msgspec.structs.astuple, structs))
        left -= len(members)
        if left < 0:
            return sys.maxsize
        size += sum(map(getsizeof, members))
        level = [member for member in members if member.__class__ not in _LEAVES]
    return size


#: So many values are looked at at most: those of over four megabytes, and about ten milliseconds.
_WALKED = 65_536
_values_of = methodcaller("values")
_LEAVES = frozenset({str, bytes, int, float, bool, type(None)})
_HOLDERS = frozenset({tuple, list, set, frozenset})
