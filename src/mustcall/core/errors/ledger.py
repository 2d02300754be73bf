"""Errors of the ledger: the store of runs, responses and traces did not do its part."""

from typing import ClassVar

import msgspec

from mustcall.core.errors.root import ErrorInfo, MustcallError

__all__ = [
    "AlreadyRecorded",
    "ContentsNotKept",
    "FenceLost",
    "LedgerBroken",
    "LedgerError",
    "LedgerFull",
    "LedgerMismatch",
    "LedgerReadOnly",
    "LedgerUnavailable",
    "RunBusy",
    "UnknownRun",
    "UnknownTurn",
]


class LedgerError(MustcallError):
    """An operation of the ledger failed."""

    code = "ledger_error"
    #: What callers of a gateway are told in place of the message, which names a place that is the operator's business.
    shown: ClassVar[str] = "the ledger cannot be asked"

    def info(self) -> ErrorInfo:
        """Return the error without the address of the ledger."""
        told = super().info()
        return msgspec.structs.replace(told, message=self.shown) if self.shown else told


class LedgerUnavailable(LedgerError):
    """The ledger is unreachable or did not answer in time. The last write may or may not be stored."""

    code = "ledger_unavailable"
    shown = "the ledger cannot be reached now; try again"
    status = 503
    retryable = True


class LedgerFull(LedgerError):
    """The ledger cannot grow: the disk is full, or a size limit is reached."""

    code = "ledger_full"
    shown = "the ledger has no room left"
    status = 503


class LedgerReadOnly(LedgerError):
    """The ledger can be read but not written."""

    code = "ledger_read_only"
    shown = "the ledger cannot be written"
    status = 503


class LedgerMismatch(LedgerError):
    """A newer version or another build created the ledger."""

    code = "ledger_mismatch"


class LedgerBroken(LedgerError):
    """The ledger file is damaged, or is not a ledger."""

    code = "ledger_broken"


class FenceLost(LedgerError):
    """Another process owns the run now, or the run has ended. Nothing was written; stop working on it."""

    code = "fence_lost"
    shown = ""
    status = 409


class RunBusy(LedgerError):
    """Another process executes the run, and its lease has not expired."""

    code = "run_busy"
    shown = ""
    status = 409
    retryable = True


class UnknownRun(LedgerError):
    """The ledger has no run with this id."""

    code = "unknown_run"
    shown = ""
    status = 404


class UnknownTurn(LedgerError):
    """The ledger has no turn with this id."""

    code = "unknown_turn"
    shown = ""
    status = 404


class ContentsNotKept(LedgerError):
    """The ledger has the turn but not its contents: `[ledger] contents` is `none`."""

    code = "contents_not_kept"
    shown = ""
    status = 409


class AlreadyRecorded(LedgerError):
    """Another process already wrote this step of the run. Only the process that wrote it may execute it."""

    code = "already_recorded"
    shown = ""
    status = 409
