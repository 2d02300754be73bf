"""Loggers that never fail who uses them (rule 98).

Handlers are the user's: one may write to a disk that is full, or be wrong. What they raise ends here; the request whose
line it was goes on. `lost` counts the lines.
"""

import logging
from typing import Any

__all__ = ["Log", "log_of"]

#: Frames between a caller and the logger: its own call, and `_say`.
_DEPTH = 3


class Log:
    """One logger of the standard library, by the same names for the same levels."""

    __slots__ = ("_logger", "lost")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        #: Lines that a handler failed on.
        self.lost = 0

    def debug(self, message: str, *values: object, exc_info: Any = None) -> None:
        """Tell developers."""
        self._say(logging.DEBUG, message, values, exc_info)

    def info(self, message: str, *values: object, exc_info: Any = None) -> None:
        """Tell whoever wants to know."""
        self._say(logging.INFO, message, values, exc_info)

    def warning(self, message: str, *values: object, exc_info: Any = None) -> None:
        """Tell operators what went wrong and was dealt with."""
        self._say(logging.WARNING, message, values, exc_info)

    def error(self, message: str, *values: object, exc_info: Any = None) -> None:
        """Tell operators what went wrong."""
        self._say(logging.ERROR, message, values, exc_info)

    def exception(self, message: str, *values: object) -> None:
        """Tell operators what went wrong, with the exception that is being handled."""
        self._say(logging.ERROR, message, values, True)

    def _say(self, level: int, message: str, values: tuple[object, ...], exc_info: Any) -> None:
        try:
            self._logger.log(level, message, *values, exc_info=exc_info, stacklevel=_DEPTH)
        except Exception:  # noqa: BLE001  a handler's own code; a line that is lost is no reason to fail
            self.lost += 1


def log_of(name: str) -> Log:
    """Return the log of this name."""
    return Log(logging.getLogger(name))
