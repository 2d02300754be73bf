"""Lines for the operator's terminal."""

import io
import sys

import pytest

from mustcall.telemetry.console import tell


class _Full(io.StringIO):
    def flush(self) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("err", [False, True])
def test_a_line_that_cannot_be_written_raises_nothing(monkeypatch: pytest.MonkeyPatch, *, err: bool) -> None:
    """Whoever tells the operator something goes on, whatever became of the stream; the other one is not used."""
    full, other = _Full(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", full if err else other)
    monkeypatch.setattr(sys, "stdout", other if err else full)
    tell("a note", err=err)
    assert full.getvalue() == "a note\n"
    assert not other.getvalue()
