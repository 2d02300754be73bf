"""The bytes that surround the text of a stream's text deltas, so that a run of them is read without parsing each.

Within one reply the deltas of a text differ in nothing but the text, and on some servers in a sequence number before
it and a padding after it. One delta that a strict decoder has read is the stencil for those that follow: bytes that
are equal everywhere but in those places mean the same. What fits is as regular as the delta it was made from; what
does not is no worse off, it is parsed as ever.

Cost: linear in the bytes, nearly all of it in C (split, join and map, no step of Python for a delta); a fraction of
decoding each event.
"""

import re
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import lt
from typing import NamedTuple

import msgspec

__all__ = ["DeltaTemplate", "TextRun"]

_BORDER = b"\n\n"
_PROBE = "a b-c"
_ANCHOR = 12
#: Bytes up to which what is in the holes of a block is first taken for that of one delta.
_SHORT = 256
_NUMBER = re.compile(rb'"sequence_number": ?(?=(\d+)[,}])')
_PADDING = re.compile(rb'"obfuscation": ?"(?=([A-Za-z0-9]*)")')
#: No server counts further, and numbers are compared.
_DIGITS = 15
_QUOTE, _BACKSLASH = b'"\\'
_ZERO = b"0"[0]
_string = msgspec.json.Decoder(str)


class TextRun(NamedTuple):
    """What text deltas that follow each other say together, where their bytes end, and how many they are.

    `number` is that of the last one, where they are numbered.
    """

    text: str
    end: int
    deltas: int
    number: int | None = None


class DeltaTemplate:
    """What a text delta looks like in one stream: fixed bytes with holes for number, text and padding."""

    __slots__ = ("_after", "_anchor", "_before", "_end", "_fixed", "_head", "_lead", "_plain", "_tail", "number")

    def __init__(
        self, head: bytes, before: bytes | None, after: bytes | None, tail: bytes, number: int | None = None
    ) -> None:
        """Take the fixed bytes: up to the first hole, from number to text, from text to padding, up to the end."""
        #: The number of the last delta; those that follow have higher ones.
        self.number = number
        # Deltas are told apart by the last bytes before the first hole: searching for long strings is slow.
        self._head, self._lead, self._anchor = head, head[:-_ANCHOR], head[-_ANCHOR:]
        self._before = before
        self._after = after
        self._tail = tail
        #: Bytes before the first hole and after the last.
        self._fixed = len(head) + len(tail)
        #: Whether the text is the only hole.
        self._plain = before is None and after is None
        #: What stands between the last hole of a delta and the anchor of the next one.
        self._end = tail + self._lead

    @classmethod
    def of(cls, event: bytes, text: str, read: Callable[[bytes], str | None]) -> "DeltaTemplate | None":
        """Return the stencil of an event that was read as this text; `read` reads an event's text, strictly.

        None where the place of the text is not certain: the next delta will do as well.
        """
        written = msgspec.json.encode(text)
        place = event.find(written)
        if not text or place < 0 or event.find(written, place + 1) >= 0 or b"\r" in event or b"\0" in event:
            return None
        if text == _PROBE:  # trying it out would tell nothing
            return None
        if event.find(_BORDER) != len(event) - len(_BORDER):
            return None
        start, end = place + 1, place + len(written) - 1
        number, padding = _NUMBER.search(event, 0, start), _PADDING.search(event, end)
        head, before, count = event[:start], None, None
        if number is not None:
            if len(number[1]) > _DIGITS:
                return None
            head, before, count = event[: number.start(1)], event[number.end(1) : start], int(number[1])
        after, tail = None, event[end:]
        if padding is not None:
            after, tail = event[end : padding.start(1)], event[padding.end(1) :]
        anchor = head[-_ANCHOR:]
        if len(head) <= _ANCHOR or event.find(anchor) != len(head) - _ANCHOR or event.find(anchor, len(head)) >= 0:
            return None  # what stands twice in a delta does not tell deltas apart
        sample = (head, b"" if before is None else b"0" + before, _PROBE.encode(), after + b"x" if after else b"", tail)
        return cls(head, before, after, tail, count) if read(b"".join(sample)) == _PROBE else None

    def run(self, block: bytes, start: int) -> TextRun | None:
        """Return all deltas that follow each other from `start` on; None for none."""
        head, end = self._head, self._end
        if not block.startswith(head, start):
            return None
        if not start and 0 <= len(block) - self._fixed < _SHORT and block.endswith(self._tail):
            only = self._only(block)
            if only is not None:
                return only
        start += len(head)
        parts = block[start:].split(self._anchor)
        # All but the last delta of a run are followed by the head of the next one; the last is made to look like them.
        last = parts[-1]
        parts[-1] = last[: last.find(_BORDER) + len(_BORDER)] + self._lead
        size = sum(map(len, parts))
        inner = [*map(bytes.removesuffix, parts, repeat(end))]
        holes = b"".join(inner)
        if size != len(holes) + len(end) * len(parts):
            parts = self._first_run(parts)
            size = sum(map(len, parts))
            inner = [*map(bytes.removesuffix, parts, repeat(end))]
            holes = b"".join(inner)
        if not parts:
            return None
        text, number = (_joined(inner, holes), None) if self._plain else self._filled(inner)
        if text is None:
            return None
        count = len(parts)
        return TextRun(text, start + size + _ANCHOR * (count - 1) - len(self._lead), count, number)

    def _only(self, block: bytes) -> TextRun | None:
        """Return a block that is one delta without escapes; None where that cannot be told so easily."""
        text = block[len(self._head) : len(block) - len(self._tail)]
        count = None
        if not self._plain:
            if self._before is not None:
                number, mark, rest = text.partition(self._before[:1])
                text = rest.removeprefix(self._before[1:])
                if not mark or len(text) + len(self._before) != len(rest) + 1:
                    return None
                if not number.isdigit() or (number[0] == _ZERO and len(number) > 1) or len(number) > _DIGITS:
                    return None
                count = int(number)
                if self.number is not None and count <= self.number:
                    return None
            if self._after is not None:
                rest, mark, padding = text.rpartition(self._after[-1:])
                text = rest.removesuffix(self._after[:-1])
                if not mark or len(text) + len(self._after) != len(rest) + 1 or (padding and not padding.isalnum()):
                    return None
        if _QUOTE in text or _BACKSLASH in text or not text.isascii():
            return None
        said = text.decode()
        return TextRun(said, len(block), 1, count) if said.isprintable() else None

    def _first_run(self, parts: list[bytes]) -> list[bytes]:
        """Return the parts up to the first that is no delta of this form, or is followed by another event."""
        end = self._end
        count = [part.endswith(end) for part in parts].index(False)
        run, broken = parts[:count], parts[count]
        whole = broken[: broken.find(_BORDER) + len(_BORDER)] + self._lead
        return [*run, whole] if whole.endswith(end) else run

    def _filled(self, parts: Sequence[bytes]) -> tuple[str | None, int | None]:
        """Return what the texts say together, None unless what is in the other holes belongs there; the last number."""
        texts: Sequence[bytes] | None = parts
        last = None
        if self._before is not None:
            mark = self._before[:1]
            numbers, marks, rests = zip(*map(bytes.partition, parts, repeat(mark)), strict=True)
            last = _last_rising(numbers, -1 if self.number is None else self.number)
            if last is None or marks.count(mark) != len(marks):
                return None, None
            texts = _without(rests, bytes.removeprefix, self._before[1:])
        if self._after is not None and texts is not None:
            mark = self._after[-1:]
            rests, marks, paddings = zip(*map(bytes.rpartition, texts, repeat(mark)), strict=True)
            padding = b"".join(paddings)
            if marks.count(mark) != len(marks) or (padding and not padding.isalnum()):
                return None, None
            texts = _without(rests, bytes.removesuffix, self._after[:-1])
        return (None if texts is None else _joined(texts, b"".join(texts))), last


def _last_rising(written: Sequence[bytes], above: int) -> int | None:
    """Return the last of numbers of which each is higher than the one before it, and the first than `above`; or None.

    They are written as JSON has them. Those of one length are in the order of their digits, which is seen in C.
    """
    lengths = [*map(len, written)]
    if not b"".join(written).isdigit() or not 0 < lengths[0] <= lengths[-1] <= _DIGITS:
        return None
    start = 0
    for length in range(lengths[0], lengths[-1] + 1):
        end = start + lengths.count(length)
        same = written[start:end]
        if lengths[start:end] != [length] * len(same) or not all(map(lt, same, same[1:])):
            return None
        if same and length > 1 and same[0][0] == _ZERO:
            return None
        start = end
    return int(written[-1]) if start == len(written) and int(written[0]) > above else None


def _without(parts: Sequence[bytes], remove: Callable[[bytes, bytes], bytes], fixed: bytes) -> Sequence[bytes] | None:
    """Return the parts without the bytes that each must have there; None if one has not."""
    left = [*map(remove, parts, repeat(fixed))]
    return left if sum(map(len, parts)) == sum(map(len, left)) + len(fixed) * len(parts) else None


def _joined(texts: Sequence[bytes], whole: bytes) -> str | None:
    """Return the text that JSON strings say together; None unless each of them is one by itself."""
    if whole.isascii():
        text = whole.decode()
        if _QUOTE not in whole and text.isprintable():
            if _BACKSLASH not in whole:
                return text
            if whole.find(b"\\u") < 0 and b"\0".join([*texts, b""]).find(b"\\\0") < 0:
                # No escape reaches over the end of its text, so they can be read at once.
                texts = [whole]
    try:
        return "".join([_string.decode(b'"%b"' % text) for text in texts])
    except (msgspec.DecodeError, ValueError):
        return None
