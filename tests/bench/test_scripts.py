"""The scripts of benchmarks/: they are run by hand, so that here is where it shows that they still can be."""

import gc
import importlib.util
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mustcall.bench.workloads import WORKLOADS

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """Import a script of benchmarks/."""
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_exponent_is_the_power(power: float) -> None:
    """Times that grow with a power of the size have that power as their exponent."""
    sizes = [10, 20, 40, 80]
    assert load("scaling").exponent(sizes, [size**power for size in sizes]) == pytest.approx(power)


@pytest.mark.parametrize(
    ("title", "steps", "names"),
    [
        (
            "tools",
            "tool_steps",
            {"decode chat", "mend history", "compile tools", "plan", "judge a call", "encode messages"},
        ),
        ("argument", "argument_steps", {"decode reply", "judge the call", "scan text, in deltas", "encode reply chat"}),
        ("deltas", "delta_steps", {"decode text", "look for calls in call", "encode call responses"}),
    ],
)
def test_every_step_of_growth_is_measured(
    title: str, steps: str, names: set[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading, mending, planning, judging, scanning and writing run at small sizes and have a line each."""
    scaling = load("scaling")
    ran: list[object] = []

    def run(work: Callable[[], object]) -> float:
        """Run a step once, and say that it takes no longer at any size."""
        ran.append(work())
        return 1.0

    monkeypatch.setattr(scaling, "cpu_of", run)
    scaling.measure(title, 16, getattr(scaling, steps), 1)
    lines = capsys.readouterr().out.splitlines()
    shown = {line[9:34].strip() for line in lines if "exponent" in line}
    assert names <= shown
    assert len(ran) == len(shown) * len(scaling.SHARES)


def test_the_time_of_a_step_is_cpu_time() -> None:
    """A step is run once, without the collector, which goes on afterwards."""
    collected: list[bool] = []
    taken = load("scaling").cpu_of(lambda: collected.append(gc.isenabled()) or sum(range(100_000)))
    assert taken > 0
    assert collected == [False]
    assert gc.isenabled()


def test_what_grows_too_fast_is_missed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is slower than linear is named; one too short to measure is not judged."""
    scaling = load("scaling")

    def told(work: Callable[[], float]) -> float:
        """Take the time that a step says it takes."""
        return work()

    def steps(size: int, _nonce: str) -> Iterator[tuple[str, Callable[[], float]]]:
        yield "slow", lambda: size**2.0
        yield "fair", lambda: size * 1.0
        yield "short", lambda: size**2 / 1e9

    monkeypatch.setattr(scaling, "cpu_of", told)
    missed = scaling.measure("things", 80, steps, 1)
    assert [line.split(" grows")[0] for line in missed] == ["things: slow"]
    assert "small  short" in capsys.readouterr().out


def test_peers_are_set_up_for_the_models_of_the_bench() -> None:
    """Every model that is asked for is one that TensorZero's settings name, with the upstream behind it."""
    peers = load("peers")
    files = peers.settings("http://127.0.0.1:9100/v1")
    models = tomllib.loads(files["tensorzero.toml"])["models"]

    assert {f"bench-{load.reply}" for load in WORKLOADS} <= set(models)
    assert all(one["providers"]["bench"]["api_base"] == "http://127.0.0.1:9100/v1/" for one in models.values())
    assert 'api_base: "http://127.0.0.1:9100/v1"' in files["litellm.yaml"]
    assert {peer.name for peer in peers.PEERS} == {"litellm", "forge", "tensorzero", "sglang-router"}


def test_a_line_is_fitted_over_the_length_of_a_history() -> None:
    """The slope is what a kilobyte more costs; requests too short to show it are left out, and so are odd sessions."""
    sizes = [5_000, 10_000, 200_000, 1_000_000]
    runs = [[(size, 0.5 + size / 1000 * 0.002 * factor) for size in sizes] for factor in (1.0, 1.0, 9.0)]
    for run in runs:
        run[0] = (5_000, 100.0)
    slope, start = load("sessions").fit(runs)
    assert slope == pytest.approx(0.002)
    assert start == pytest.approx(0.5)
