"""examples/: each runs as a reader would run it, on the embedded model, and comes to what it is there to show."""

import re
import runpy
from collections.abc import Generator
from pathlib import Path

import pytest

from support.answered import kept_answers
from support.embedded import small_cache

FOLDER = Path(__file__).parents[2] / "examples"

#: What each example prints, whatever the model says besides.
SHOWN = {
    "grounding": (
        r"What is Hero OS\?\n  looked up: search_hero_docs\(.*Hero OS.*\)",
        r"France\?\n  looked up: nothing",
    ),
    "structured": (r"called: \[\('get_weather', 'ok'\)\]", r"answer: Report\(city='.*', degrees=-?\d+\)"),
    "two_models": (
        r"called: \[\('get_weather', '\{\"city\":\"Oslo\"\}'\)\]",
        r"answer: yes, take one",
        r"'scripted': \d+",
    ),
    "coordinate": (
        r"proposer: \['ok'\], Proposal\(",
        r"critic_1: \[.*\], Critique\(",
        r"synthesizer: \[\], ",
        r"answer: .+",
    ),
    "typed_agent": (
        r"^candle: 4 euros, 40 in stock\n",
        r"get_price\(article='candle'\) +ok: 4 ",
        r"run answered +Quote\(article='candle', euros=4, in_stock=40\)",
    ),
    "prerequisites": (
        r"^transfer: refused \(.*`verify` must succeed first\.\)\nverify: ok .*\ntransfer: ok .*\nwrite_log: ok ",
        r"answer: Paid and logged\.",
    ),
    "compaction": (
        r"step 2: sent whole\nstep 3: 0 messages and 1 results left out",
        r"kept: 4 results\n",
    ),
    "tool_server": (r"called: \[\('count_stock', '\{\"article\":\".+\"\}', '.+: 42 in stock'\)\]",),
    "approval": (r"pay_invoice\(\{\"amount\":20\}\): ok", r"pay_invoice\(\{\"amount\":5000\}\): refused"),
}


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Generator[None]:
    """What the model was asked before is answered from its kept answers."""
    with kept_answers():
        yield


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No example is pointed elsewhere by the environment; the smallest model is the one that is here."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(small_cache(tmp_path)))
    for name in ("", "_MODEL", "_PLANNER", "_PLANNER_MODEL"):
        monkeypatch.delenv(f"MUSTCALL_EXAMPLE{name}", raising=False)


@pytest.mark.parametrize("name", SHOWN)
def test_example(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The example runs by itself and prints what it shows."""
    path = FOLDER / f"{name}.py"
    monkeypatch.setattr("sys.argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    out = capsys.readouterr().out
    for line in SHOWN[name]:
        assert re.search(line, out), out


def test_every_example_is_listed() -> None:
    """The folder's page names each file, and each file has its test or one elsewhere."""
    listed = set(re.findall(r"\]\((\w+)\.py\)", (FOLDER / "README.md").read_text(encoding="utf-8")))
    assert listed == {path.stem for path in FOLDER.glob("*.py")} >= set(SHOWN)
