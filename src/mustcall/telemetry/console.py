"""The log of a process on its standard error: for people on a terminal, for programs elsewhere, unless it is said."""

import logging
import sys
from contextlib import suppress
from typing import Literal

import msgspec

from mustcall.telemetry.requests import LogFormat, RequestLog, as_json, as_text, stamp

__all__ = ["LogLevel", "log_to_stderr", "request_log", "tell"]

LogLevel = Literal["debug", "info", "warning", "error"]

_TEXT = "%(levelname)s %(name)s: %(message)s"


class _Json(logging.Formatter):
    """Writes each line as JSON; `event` is `log`, and `request` for the lines of requests."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "event": "log",
            "at": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(told).decode()


def log_to_stderr(level: LogLevel, form: LogFormat) -> None:
    """Let every logger of the process write to its standard error; our own from this level on, others' warnings."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_TEXT) if _is_text(form) else _Json())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("mustcall").setLevel(level.upper())


def tell(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Write a line for the operator; one that cannot be written (a full disk, a closed pipe) ends nothing."""
    with suppress(OSError):
        print(text, file=sys.stderr if err else sys.stdout, end=end, flush=True)


def request_log(level: LogLevel, form: LogFormat) -> RequestLog | None:
    """Return what writes a line for each request, None where such lines are not wanted."""
    if level not in ("debug", "info"):
        return None
    stream = sys.stderr

    def write(lines: str) -> None:
        stream.write(lines)
        stream.flush()

    return RequestLog(as_text if _is_text(form) else as_json, write)


def _is_text(form: LogFormat) -> bool:
    return form == "text" or (form == "auto" and sys.stderr.isatty())
