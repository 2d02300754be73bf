"""Runs go to a file and come back as they were."""

from pathlib import Path

import pytest

from mustcall.bench.report.results import read_run, write_run
from mustcall.bench.workloads import WORKLOADS, BenchPlan
from mustcall.core.errors import ConfigError
from support.benching import whole_run


def test_a_run_survives_its_file(tmp_path: Path) -> None:
    """What `--json` writes is read as the same value."""
    file = tmp_path / "run.json"
    write_run(whole_run(), file)
    assert read_run(file) == whole_run()


@pytest.mark.parametrize("text", ["", "[]", '{"rows": []}'])
def test_other_files_are_no_runs(text: str, tmp_path: Path) -> None:
    """A file that is no run is named, with the command that writes one."""
    file = tmp_path / "other.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"other\.json.*mustcall bench --json"):
        read_run(file)
    with pytest.raises(ConfigError, match="gone"):
        read_run(tmp_path / "gone")


def test_every_connection_makes_as_many_requests() -> None:
    """A run has at least one request per connection, and the same number for each."""
    load = WORKLOADS[0]
    for concurrency in (1, 7, 32, 256):
        for share in (0.001, 0.25, 1.0):
            requests = load.requests_at(concurrency, share)
            assert requests >= concurrency
            assert requests % concurrency == 0


def test_a_quick_plan_is_smaller() -> None:
    """Quick leaves out workloads, concurrency and requests, not rounds."""
    assert set(BenchPlan.quick().workloads) < set(BenchPlan().workloads)
    assert BenchPlan.quick().concurrency < BenchPlan().concurrency
    assert BenchPlan.quick().share < BenchPlan().share
    assert BenchPlan.quick().rounds == BenchPlan().rounds >= 5
