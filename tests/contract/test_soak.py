"""The long run counts what it ran, and one turn of it can be told in full."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    """The script, as a module."""
    path = Path(__file__).parents[2] / "tools" / "soak.py"
    spec = importlib.util.spec_from_file_location("soak", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("warm", [False, True])
def test_a_shard_is_counted(soak: ModuleType, warm: bool) -> None:
    """Every turn of a shard has an outcome, and shards add up; the contract holds where every call is trusted, too."""
    tally = soak.run_shard(370, 6, warm=warm)  # the sixth is a call that is cut off
    assert tally.violations == []
    assert tally.turns == sum(tally.outcomes.values()) == 6
    assert tally.requests >= 6
    total = soak.Tally()
    total.merge(tally)
    total.merge(tally)
    assert total.turns == 12
    assert total.requests == 2 * tally.requests


def test_a_seed_is_replayed(soak: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """The replay shows what the upstream was asked, what it answered and what the caller got."""
    soak.replay(0)
    told = capsys.readouterr().out
    for part in ("seed 0: chat → chat", "attempt 0:", "upstream request 0:", "answered with:", "the caller got:"):
        assert part in told
