"""What the operator is told of a ledger that fails: one clear line when it begins, one when it is over."""

import time

from mustcall.core.errors import MustcallError
from mustcall.telemetry.logs import log_of

__all__ = ["Notices"]

_log = log_of("mustcall.ledger")


class Notices:
    """Counts failures and says the first of a row. `quiet` is how long another row must wait for its line."""

    def __init__(self, quiet: float = 60.0) -> None:
        self._quiet = quiet
        self._said: dict[str, float] = {}
        self.count = 0

    def failed(self, what: str, error: MustcallError) -> None:
        """Note a failure; say it unless the same was said a moment ago."""
        self.count += 1
        now = time.monotonic()
        if now - self._said.get(what, -self._quiet) >= self._quiet:
            self._said[what] = now
            _log.warning("%s: %s; the gateway continues to serve", what, error.message)

    def over(self, what: str) -> None:
        """Note that it works again; say so if a failure had been said."""
        if self._said.pop(what, None) is not None:
            _log.warning("%s: resolved, the ledger works again", what)
