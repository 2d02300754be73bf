"""Takes what is left of calls out of the texts around them, so that no markup reaches the caller (rules 52, 137)."""

from collections.abc import Sequence

from mustcall.core.parts import Part, Text

__all__ = ["cut_lines", "cut_off"]


def cut_off(parts: tuple[Part, ...], spans: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts, each text only up to the first of these spans in it; an emptied part keeps its place.

    A span ends where it could not be read any further, so what follows it may be its rest. The spans are given in
    order and looked for from the end: each character is looked at once, and what is quoted before them stays.
    """
    left = list(spans)
    kept: list[Part] = []
    for part in reversed(parts):
        if not left or not isinstance(part, Text):
            kept.append(part)
            continue
        end = len(part.text)
        while left and (start := part.text.rfind(left[-1], 0, end)) >= 0:
            left.pop()
            end = start
        kept.append(part if end == len(part.text) else part.evolve(text=part.text[:end]))
    return tuple(reversed(kept))


def cut_lines(parts: Sequence[Part], signs: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts, each text only up to the line that one of these signs of a call stands in.

    For text before a demanded call: where a call in an unknown form ends is not known, and nothing behind it is needed.
    """
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, Text):
            starts = [at for sign in signs if (at := part.text.find(sign)) >= 0]
            if starts:
                kept.append(part.evolve(text=part.text[: part.text.rfind("\n", 0, min(starts)) + 1]))
                continue
        kept.append(part)
    return tuple(kept)
