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
    """The ledger did not do its part."""

    code = "ledger_error"
    #: What callers of a gateway are told in place of the message, which names a place that is the operator's business.
    shown: ClassVar[str] = "the ledger cannot be asked"

    def info(self) -> ErrorInfo:
        """Return the error without the ledger's place."""
        told = super().info()
        return msgspec.structs.replace(told, message=self.shown) if self.shown else told


class LedgerUnavailable(LedgerError):
    """The ledger cannot be reached, or did not answer in time. What was written last may or may not be there."""

    code = "ledger_unavailable"
    shown = "the ledger cannot be reached now; try again"
    status = 503
    retryable = True


class LedgerFull(LedgerError):
    """There is no room to write: the disk is full, or the file may not grow."""

    code = "ledger_full"
    shown = "the ledger has no room left"
    status = 503


class LedgerReadOnly(LedgerError):
    """The ledger may be read and not written."""

    code = "ledger_read_only"
    shown = "the ledger cannot be written"
    status = 503


class LedgerMismatch(LedgerError):
    """The ledger was made by a newer version, or by another build."""

    code = "ledger_mismatch"


class LedgerBroken(LedgerError):
    """The file is damaged, or is no ledger."""

    code = "ledger_broken"


class FenceLost(LedgerError):
    """The run belongs to another owner now, or has ended: nothing was written, and nothing more may be done for it."""

    code = "fence_lost"
    shown = ""
    status = 409


class RunBusy(LedgerError):
    """Another process is carrying the run out, and its lease lasts."""

    code = "run_busy"
    shown = ""
    status = 409
    retryable = True


class UnknownRun(LedgerError):
    """There is no run of that name in the ledger."""

    code = "unknown_run"
    shown = ""
    status = 404


class UnknownTurn(LedgerError):
    """There is no turn of that name in the ledger."""

    code = "unknown_turn"
    shown = ""
    status = 404


class ContentsNotKept(LedgerError):
    """The turn is in the ledger, but what was said in it was not kept."""

    code = "contents_not_kept"
    shown = ""
    status = 409


class AlreadyRecorded(LedgerError):
    """The step was written before, by somebody else: who wrote it acts, nobody else does."""

    code = "already_recorded"
    shown = ""
    status = 409
