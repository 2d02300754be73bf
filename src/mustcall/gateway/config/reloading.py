"""Reads the configuration again when the operator asks (SIGHUP): a wrong one changes nothing and is one log line.

Decides what takes effect at once and what needs a restart (the address, the ledger, the log, limits of connections and
replies). A hang-up of the terminal is the same signal and means the opposite: it ends the gateway, as it ends every
program that was started there.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.process.notify import notify_ready, notify_reloading
from mustcall.telemetry.console import tell
from mustcall.telemetry.logs import log_of

__all__ = ["Reloader", "keep_fixed", "may_reload"]

S = TypeVar("S", bound=msgspec.Struct)

#: What is read at the start alone: the address, the log, and the limits that connections were made with.
_FIXED_SERVER = ("host", "port", "log_level", "log_format")
_FIXED_LIMITS = (
    *("header_bytes", "header_count", "head_seconds", "body_seconds", "body_bytes_per_second"),
    *("connections", "connections_per_address", "reply_bytes", "reply_elements", "inflate_ratio"),
)

_log = log_of("mustcall.gateway")


def may_reload() -> bool:
    """Tell whether SIGHUP can mean a reload: not on Windows, nor where whoever started us (nohup) turned it off."""
    return sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


class Reloader:
    """How one process comes by new settings. Made when the gateway starts: it looks for a terminal then.

    A `quiet` one belongs to a worker, whose parent has told everybody.
    """

    def __init__(self, reread: Callable[[], Settings], *, quiet: bool = False) -> None:
        self._reread = reread
        self._quiet = quiet
        self._had_terminal = _has_terminal()

    @property
    def hung_up(self) -> bool:
        """Whether the signal means that the terminal is gone, not that the configuration has changed."""
        return self._had_terminal and not _has_terminal()

    def read(self, current: Settings) -> Settings | None:
        """Return the settings to go on with; None, and a line in the log, where the new ones are wrong."""
        if self._quiet:
            return self._reread()
        notify_reloading()
        try:
            new = self._reread()
        except ConfigError as error:
            _log.error("reload refused, the configuration stays as it was: %s", error.message)
            notify_ready("reload refused, the configuration stays as it was")
            return None
        kept, fixed = keep_fixed(current, new)
        later = f"; a restart is needed for: {', '.join(fixed)}" if fixed else ""
        said = f"configuration reloaded: {len(kept.endpoints)} upstreams, {len(kept.routes)} routes{later}"
        tell(said)
        if fixed:
            _log.warning("the configuration is reloaded, but a restart is needed for: %s", ", ".join(fixed))
        notify_ready(said)
        return kept


def keep_fixed(current: Settings, new: Settings) -> tuple[Settings, list[str]]:
    """Return new settings with what only a restart can change kept as it is, and the names of what differs."""
    server, fixed = _keep(current.server, new.server, _FIXED_SERVER)
    limits, fixed_limits = _keep(current.limits, new.limits, _FIXED_LIMITS)
    fixed += [f"limits.{name}" for name in fixed_limits]
    if new.ledger != current.ledger:
        fixed.append("ledger")
    return msgspec.structs.replace(new, server=server, limits=limits, ledger=current.ledger), fixed


def _keep(current: S, new: S, names: Sequence[str]) -> tuple[S, list[str]]:
    """Return a section with these settings as they are, and the names of those that differ."""
    kept = {name: getattr(current, name) for name in names if getattr(new, name) != getattr(current, name)}
    return msgspec.structs.replace(new, **kept), list(kept)


def _has_terminal() -> bool:
    """Tell whether the process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
