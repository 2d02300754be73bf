"""`tools/breaks.py`: breaks fit the sources, only an assertion of a named test counts, and nothing is left behind."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "breaks.py"
SOURCE = "def most(value: int) -> int:\n    return min(value, 3)\n"
TESTS = '''\
import os, time
from pathlib import Path

import pytest

from mustcall.limits import most


def test_most():
    """Rule 1: 3 at most."""
    assert most(9) == 3


@pytest.mark.parametrize("value", [1, 9])
def test_cases(value):
    """Rule 1: 3 at most."""
    assert most(value) <= 3


def test_little():
    """Rule 1: little stays as it is."""
    assert most(1) == 1


def test_raises():
    """Rule 1: 3 at most."""
    {3: "three"}[most(9)]


def test_skipped():
    """Rule 1: not here."""
    pytest.skip("not here")


def test_wrong():
    """Rule 1: fails anyway."""
    assert most(9) == 5


def test_other():
    """Rule 2: another rule."""
    assert most(9) == 3


def test_hangs():
    """Rule 1: hangs when broken."""
    if most(9) != 3:
        Path(os.environ["STARTED"]).write_text(str(os.getpid()))
        time.sleep(600)
'''


#: Of the plugins of pytest only the one that the tool's own options need: the others take longer than the tests.
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "-p xdist.plugin"}


def entry(test: str, find: str = "min(value, 3)", put: str = "min(value, 4)", rule: int = 1) -> str:
    """One break of the data file."""
    return (
        f'[[break]]\nrule = {rule}\nfile = "limits.py"\nfind = "{find}"\nput = "{put}"\n'
        f'broken = "4 at most."\ntests = ["tests/test_limits.py::{test}"]\n'
    )


@pytest.fixture
def breaks() -> ModuleType:
    """The tool, imported."""
    spec = importlib.util.spec_from_file_location("tools_breaks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tools_breaks"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A repository of one module and its tests."""
    root = tmp_path / "house"
    for folder in ("src/mustcall", "tests", "docs"):
        (root / folder).mkdir(parents=True)
    (root / "src" / "mustcall" / "__init__.py").touch()
    (root / "src" / "mustcall" / "limits.py").write_text(SOURCE, encoding="utf-8")
    (root / "tests" / "test_limits.py").write_text(TESTS, encoding="utf-8")
    (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return root


def write(house: Path, *entries: str) -> None:
    """Write the data file."""
    (house / "docs" / "breaks.toml").write_text("\n".join(entries), encoding="utf-8")


def run(house: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tool on a repository."""
    return subprocess.run(  # noqa: S603  our own script
        [sys.executable, str(SCRIPT), "--root", str(house), *options],
        env=os.environ | PLAIN,
        capture_output=True,
        text=True,
        check=False,
    )


# --- the breaks of this repository -----------------------------------------------------------------------------------


def test_every_break_fits(breaks: ModuleType) -> None:
    """Rule 118: each break's text is in the sources once, and each named test exists and names the rule."""
    assert list(breaks.faults(ROOT, breaks.read(ROOT), breaks.rulebook.proofs(ROOT))) == []


def test_every_break_was_noticed(breaks: ModuleType) -> None:
    """Rule 118: at least 75 rules have a break, and no break is known that its tests did not notice."""
    everything, seen = breaks.read(ROOT), breaks.load_seen(ROOT)
    assert len({one.rule for one in everything}) >= 75
    assert [one.rule for one in everything if one.key not in seen or seen[one.key].outcome != "noticed"] == []


def test_the_page_of_breaks_is_up_to_date(breaks: ModuleType) -> None:
    """Rule 118: docs/breaks.md is what the data and the last results say (`make docs`)."""
    assert (ROOT / "docs" / "breaks.md").read_text(encoding="utf-8") == breaks.draw(ROOT)


# --- the tool --------------------------------------------------------------------------------------------------------


def test_only_an_assertion_counts(house: Path) -> None:
    """A test must pass on unchanged sources and fail by an assertion on broken ones; else the status is 1."""
    expected = [
        ("test_most", "min(value, 4)", "noticed", "AssertionError: assert 4 == 3"),
        ("test_cases", "min(value, 4)", "noticed", "AssertionError: assert 4 <= 3"),
        ("test_cases[1]", "min(value, 4)", "unnoticed", ""),
        ("test_little", "min(value, 4)", "unnoticed", ""),
        ("test_raises", "min(value, 4)", "raised", "KeyError: 4"),
        ("test_most", "nowhere(value)", "raised", "NameError: name 'nowhere'"),
        ("test_most", "min(value", "error", "E "),
        ("test_skipped", "min(value, 4)", "skipped", ""),
        ("test_wrong", "min(value, 4)", "fails anyway", ""),
    ]
    write(house, *(entry(test, put=put) for test, put, _, _ in expected))
    done = run(house, "--json")
    seen = json.loads(done.stdout)
    assert [result["outcome"] for result in seen] == [outcome for _, _, outcome, _ in expected]
    assert all(result["said"].startswith(said) for result, (*_, said) in zip(seen, expected, strict=True))
    assert done.returncode == 1
    assert (house / "src" / "mustcall" / "limits.py").read_text(encoding="utf-8") == SOURCE


def test_one_rule_and_the_table(house: Path) -> None:
    """`--rule` chooses, the table says what is broken and which test failed, and results can be kept."""
    write(house, entry("test_other", rule=2), entry("test_little"))
    done = run(house, "--rule", "2", "--save")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0].split()[:2] == ["2", "noticed"]
    assert "1 of 1 breaks of 1 rules noticed" in done.stdout
    (kept,) = json.loads((house / "docs" / "breaks.json").read_text(encoding="utf-8"))
    assert (kept["rule"], kept["outcome"]) == (2, "noticed")
    page = (house / "docs" / "breaks.md").read_text(encoding="utf-8")
    assert f"| noticed, {kept['date']} |" in page
    assert "| not run since it was written |" in page
    assert "2 breaks of 2 rules; all breaks noticed: 1 rules" in page


def test_a_result_belongs_to_its_break(house: Path, breaks: ModuleType) -> None:
    """A break that was changed after it was seen has no result."""
    write(house, entry("test_most"))
    assert run(house, "--save").returncode == 0
    write(house, entry("test_most", put="min(value, 5)"))
    (one,) = breaks.read(house)
    assert one.key not in breaks.load_seen(house)


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (entry("test_most"), ""),
        (entry("test_cases[9]"), ""),
        (entry("test_most", find="max(value, 3)"), "0 times instead of once"),
        (entry("test_most", find="value"), "2 times instead of once"),
        (entry("test_most", put="min(value, 3)"), "the break changes nothing"),
        (entry("test_nowhere"), "there is no test tests/test_limits.py::test_nowhere that names the rule"),
        (entry("test_other"), "there is no test tests/test_limits.py::test_other that names the rule"),
        (entry("test_most").replace("4 at most.", ""), "a break needs a sentence and a test"),
    ],
)
def test_what_no_longer_fits_is_found(breaks: ModuleType, house: Path, written: str, fault: str) -> None:
    """A text that is not found once and a test that does not name the rule are said."""
    write(house, written)
    found = list(breaks.faults(house, breaks.read(house), breaks.rulebook.proofs(house)))
    assert len(found) == bool(fault)
    assert fault in "".join(found)


def test_checking_runs_nothing(house: Path) -> None:
    """`--check` and `--new` run no test where none is needed, and the status says whether all is well."""
    write(house, entry("test_hangs"))
    assert run(house, "--check").returncode == 0
    write(house, entry("test_hangs", find="max(value, 3)"))
    done = run(house, "--check")
    assert (done.returncode, "0 times instead of once" in done.stdout) == (1, True)
    assert run(house, "--rule", "7").returncode == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "end"])
def test_an_interrupt_leaves_nothing_behind(house: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, and the wish to end, end the tests that run and remove the copies."""
    write(house, entry("test_hangs"))
    started, temporary = tmp_path / "started", tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(  # noqa: S603  our own script
        [sys.executable, str(SCRIPT), "--root", str(house)],
        env=os.environ | PLAIN | {"TMPDIR": str(temporary), "STARTED": str(started)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not (started.exists() and started.read_text(encoding="utf-8")):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 130
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text(encoding="utf-8")), 0)
    assert (house / "src" / "mustcall" / "limits.py").read_text(encoding="utf-8") == SOURCE
