"""Where `mustcall probe --write` puts a profile: the configuration file, or the ledger that replicas share."""

import os
from pathlib import Path

import msgspec

from mustcall.cli.inspecting.tables import on_ledger, where_kept
from mustcall.core.errors import ConfigError
from mustcall.gateway.config.measured_file import write_measured
from mustcall.gateway.config.settings import config_file
from mustcall.gateway.state.measured_profiles import row_of
from mustcall.ledger import Ledger
from mustcall.profiles import MeasuredProfile
from mustcall.upstream.retry import SystemClock

__all__ = ["Keeper", "find_keeper"]


class Keeper(msgspec.Struct, frozen=True):
    """Where a profile goes: a file, or else a ledger."""

    file: Path | None = None
    ledger: str | None = None

    def keep(self, profile: MeasuredProfile, report: bytes) -> str:
        """Write a profile; return what was done, in words."""
        if self.file is not None:
            changed = write_measured(profile, self.file)
            return f"wrote the profile to {self.file}" if changed else f"{self.file} says the same already"
        now = SystemClock().now()
        row = msgspec.structs.replace(row_of(profile, report), at=now, tried=now)

        async def put(ledger: Ledger) -> str:
            await ledger.put_measured(row)
            return f"wrote the profile to the ledger at {ledger.store.place}"

        return on_ledger(self.ledger, put, make=True)


def find_keeper(config: Path | None, ledger: str | None) -> Keeper:
    """Return where to write: a ledger that is named, else the configuration file; raise `ConfigError` for none."""
    if ledger is not None:
        return Keeper(ledger=where_kept(ledger, config))
    file = config_file(config, os.environ)
    if file is None or not file.is_file():
        raise ConfigError(
            f"--write needs a configuration file, and there is no {file or 'mustcall.toml'}; `mustcall init` makes "
            "one, --ledger names a ledger instead, --profile FILE writes a file of its own"
        )
    return Keeper(file=file)
