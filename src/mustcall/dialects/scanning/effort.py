"""How much markup one reply may hold: what bounds the cost of hostile text (rule 68).

Reading is linear, but a marker costs more than a character. So markers are counted, each by about what it costs, and
a reply that has used its share up is only text from there on; the lookout still sees calls in it. Everything counted
stands in the text, so the limits never depend on how it was cut. A reply's reasoning counts with it.
"""

__all__ = ["CALL", "MARK", "SECTION", "ScanEffort"]

MARK = 1
"""The cost of a control token, a piece of code, a quotation or an opener."""

CALL = 10
SECTION = 10

_MOST = 25_000
# After so many lines that looked like a bare call and were none, bare forms are not looked for any more; after so many
# malformed calls nothing is.
_MOST_DECLINED = 1000
_MOST_FAILED = 1000


class ScanEffort:
    """What one reply's markup has cost so far."""

    __slots__ = ("_declined", "_failed", "_left")

    def __init__(self) -> None:
        self._left = _MOST
        self._declined = 0
        self._failed = 0

    def copy(self) -> "ScanEffort":
        """Return the same count, to be gone on with for text that may be read again."""
        copied = ScanEffort()
        copied._left, copied._declined, copied._failed = self._left, self._declined, self._failed
        return copied

    def spend(self, amount: int) -> None:
        """Count markup that was acted on."""
        self._left -= amount

    def decline(self) -> None:
        """Count a line that looked like a bare call and was none."""
        self._declined += 1

    def fail(self) -> None:
        """Count a malformed call."""
        self._failed += 1

    @property
    def spent(self) -> bool:
        """Whether the rest of the reply is text."""
        return self._left <= 0 or self._failed >= _MOST_FAILED

    @property
    def spent_on_bare_forms(self) -> bool:
        """Whether only marked calls are looked for."""
        return self._declined >= _MOST_DECLINED
