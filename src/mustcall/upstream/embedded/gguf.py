"""What a model file says of itself, without loading it: whether its chat template has a place for tools.

A GGUF file begins with its metadata: a count, then keys with typed values. Values are passed over by their size; only
the template is read. Nothing is believed: a file that is cut off or lies about its sizes has no template.
"""

import mmap
import struct
from functools import lru_cache
from pathlib import Path

__all__ = ["takes_tools"]

_MAGIC = b"GGUF"
_TEMPLATE = b"tokenizer.chat_template"
_STRING, _ARRAY = 8, 9
#: The size of every other type of value, by its number.
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_COUNT = struct.Struct("<Q")
_TYPE = struct.Struct("<I")
_MOST_KEYS = 100_000


@lru_cache(maxsize=64)
def takes_tools(path: Path) -> bool:
    """Tell whether the chat template in a model file has a place for tools; llama.cpp drops them where it has not."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return b"tools" in _template(data)
    except (OSError, ValueError, struct.error, KeyError, OverflowError, RecursionError):
        return False


def _template(data: mmap.mmap) -> bytes:
    """Return the chat template, empty if there is none; raise `struct.error` or `KeyError` for a broken file."""
    if data[:4] != _MAGIC:
        return b""
    (keys,) = _COUNT.unpack_from(data, 16)
    place = 24
    for _ in range(min(keys, _MOST_KEYS)):
        key, place = _read_string(data, place)
        (kind,) = _TYPE.unpack_from(data, place)
        place += _TYPE.size
        if key == _TEMPLATE and kind == _STRING:
            return _read_string(data, place)[0]
        place = _behind(data, place, kind)
    return b""


def _read_string(data: mmap.mmap, place: int) -> tuple[bytes, int]:
    (size,) = _COUNT.unpack_from(data, place)
    place += _COUNT.size
    return data[place : place + size], place + size


def _behind(data: mmap.mmap, place: int, kind: int) -> int:
    """Return where a value ends."""
    if kind == _STRING:
        (size,) = _COUNT.unpack_from(data, place)
        return place + _COUNT.size + size
    if kind != _ARRAY:
        return place + _SIZES[kind]
    (inner,) = _TYPE.unpack_from(data, place)
    (count,) = _COUNT.unpack_from(data, place + _TYPE.size)
    place += _TYPE.size + _COUNT.size
    if inner in _SIZES:
        return place + count * _SIZES[inner]
    for _ in range(count):  # one that lies runs out of the file, which raises
        place = _behind(data, place, inner)
    return place
