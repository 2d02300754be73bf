"""A gateway with a ledger, for tests of what callers believe the server keeps."""

from pathlib import Path
from typing import Any

from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.testing import RunningGateway

__all__ = ["gateway_with_ledger"]


def gateway_with_ledger(place: str | Path, *upstreams: str, **ledger: Any) -> RunningGateway:
    """Return a gateway that keeps its state at a place."""
    settings = LedgerSettings(place=str(place), **ledger)
    return RunningGateway(settings=settings_from_flags(*upstreams, ledger=settings))
