"""Measured profiles in the ledger: how they are written for all replicas, and read from it."""

from collections.abc import Sequence

from mustcall.core.errors import ConfigError
from mustcall.ledger import MeasuredRow
from mustcall.profiles import MeasuredProfile, parse_profile

__all__ = ["profiles_in", "row_of"]


def row_of(profile: MeasuredProfile, report: bytes = b"") -> MeasuredRow:
    """Return a measured profile as the ledger keeps it, with the report that it comes from."""
    return MeasuredRow(
        endpoint=profile.endpoint,
        wire=str(profile.wire),
        model=profile.model,
        upstream=profile.upstream,
        profile=profile.encode(),
        report=report,
    )


def profiles_in(rows: Sequence[MeasuredRow]) -> list[tuple[MeasuredProfile, MeasuredRow]]:
    """Return the profiles of rows; those that nothing was measured of yet, or of another version, are left out."""
    found: list[tuple[MeasuredProfile, MeasuredRow]] = []
    for row in rows:
        try:
            found += [(parse_profile(row.profile, "ledger"), row)] if row.profile else []
        except ConfigError:  # of another version
            continue
    return found
