"""How many values a JSON text holds, counted before it is read and in steps, so that others get their turn.

A reader of JSON makes an object of each value and cannot be stopped: 63 MB of `[],` are 21 million. Most texts are
cleared by counting three characters; only where those are too many are strings told from structure. The count is an
upper bound by one comma, bracket and brace each, whatever the text is; nothing is refused or read here.
"""

from collections.abc import Generator

__all__ = ["UNCOUNTED", "count_elements", "signs_of"]

#: Texts up to this size need no counting: as many values as fit into them are few.
UNCOUNTED = 128 * 1024

#: How many bytes are looked at in one step: less than 10 ms, whatever they are.
_STEP = 512 * 1024
_EXACT_STEP = 32 * 1024


def count_elements(body: bytes, most: int) -> Generator[None, None, int]:
    """Return a bound on the values of a JSON text, exact enough to compare with `most`; yield between steps."""
    if len(body) <= UNCOUNTED:
        return 0
    bound = 0
    for start in range(0, len(body), _STEP):
        bound += signs_of(body[start : start + _STEP])
        yield
    if bound <= most:
        return bound
    count, start, inside = 0, 0, False
    while start < len(body) and count <= most:
        end = start + _EXACT_STEP
        piece = body[start:end]
        # A backslash that may escape what follows must not end the piece.
        while piece.endswith(b"\\") and end < len(body):
            end += 1
            piece = body[start:end]
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        count += sum(map(signs_of, parts[int(inside) :: 2]))
        inside ^= len(parts) % 2 == 0
        start = end
        yield
    return count


def signs_of(piece: bytes) -> int:
    """Return the commas, brackets and braces of a text, which is at most one less than its values."""
    return piece.count(b",") + piece.count(b"[") + piece.count(b"{")
