"""`tools/mutate.py`: every change is one that compiles, the sample is fixed, and the sources stay as they are."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = '''\
"""A module."""

__all__ = ["limit"]


def limit(value: int, most: int = 3) -> int:
    """Return the smaller."""
    # a comment with an ä before what follows
    word = "ä" + "b" if value > most and not most == 0 else "c"
    for _ in word:
        continue
    return most if value >= most else value
'''


@pytest.fixture(scope="module")
def mutate() -> ModuleType:
    """The tool, imported."""
    spec = importlib.util.spec_from_file_location("tools_mutate", ROOT / "tools" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tools_mutate"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def house(mutate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one module and one test of it."""
    (tmp_path / "src" / "mustcall" / "policy").mkdir(parents=True)
    for package in ("", "policy"):
        (tmp_path / "src" / "mustcall" / package / "__init__.py").touch()
    (tmp_path / "src" / "mustcall" / "policy" / "limits.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "tests" / "policy").mkdir(parents=True)
    test = "from mustcall.policy.limits import limit\n\n\ndef test_limit():\n    assert limit(9) == 3\n"
    (tmp_path / "tests" / "policy" / "test_limits.py").write_text(test, encoding="utf-8")
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    # Its test needs no plugins, and importing them takes longest.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    return tmp_path


def test_every_change_compiles_and_is_one(mutate: ModuleType, house: Path) -> None:
    """Each mutant is another program, made of the line it names; what documents and exports is left alone."""
    root = house / "src" / "mustcall"
    made = mutate.mutants(root / "policy" / "limits.py", root)
    before = ast.dump(ast.parse(SOURCE))
    programs = {ast.dump(ast.parse(mutate.changed(SOURCE, mutant))) for mutant in made}
    assert len(programs) == len(made) == 16
    assert before not in programs
    assert {mutant.line for mutant in made} == {6, 9, 11, 12}


def test_a_change_is_found_again(mutate: ModuleType, house: Path) -> None:
    """Lines may move; a line that is gone is said to be gone."""
    root = house / "src" / "mustcall"
    mutant = mutate.mutants(root / "policy" / "limits.py", root)[-1]
    assert mutate.changed(f"# moved\n{SOURCE}", mutant) == f"# moved\n{mutate.changed(SOURCE, mutant)}"
    with pytest.raises(LookupError):
        mutate.changed(SOURCE.replace("value >= most", "value >= 1"), mutant)


def test_the_sample_is_fixed_by_its_seed(mutate: ModuleType, house: Path) -> None:
    """The same seed chooses the same changes, another one others."""
    assert house
    assert mutate.chosen("policy", 5, 1) == mutate.chosen("policy", 5, 1) != mutate.chosen("policy", 5, 2)


def test_what_the_tests_notice(mutate: ModuleType, house: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A change that a test sees is killed, another survives; neither reaches the sources, and each copy is mended."""
    root = house / "src" / "mustcall"
    made = mutate.mutants(root / "policy" / "limits.py", root)
    seen = next(mutant for mutant in made if mutant.new == "return None")
    unseen = next(mutant for mutant in made if mutant.new == "''")
    with mutate.Copies(house) as copies:
        mutate.check(copies, "policy", [], 120)
        verdicts = [mutate.judge(copies, mutant, [], 120) for mutant in (seen, unseen)]
        with copies.place() as copy:
            for place in (house, copy):
                assert (place / "src" / "mustcall" / "policy" / "limits.py").read_text(encoding="utf-8") == SOURCE
    assert not copy.exists()
    assert [verdict.outcome for verdict in verdicts] == ["killed", "survived"]
    folder = tmp_path_factory.mktemp("kept")
    assert "policy: 1 of 2 killed (50%, 95% 9% to 91%)" in mutate.report(verdicts)
    mutate.save(folder / "kept.json", verdicts)
    assert mutate.load(folder / "kept.json") == [seen, unseen]


def test_a_change_that_no_conftest_can_import(mutate: ModuleType, house: Path) -> None:
    """A module that cannot be imported is noticed, also where the tests of a folder cannot even be collected."""
    root = house / "src" / "mustcall"
    module = root / "policy" / "limits.py"
    module.write_text(SOURCE + "\n\nUSUAL = limit(1) + 1\n", encoding="utf-8")
    (house / "tests" / "policy" / "conftest.py").write_text("import mustcall.policy.limits\n", encoding="utf-8")
    mutant = next(one for one in mutate.mutants(module, root) if one.new == "return None")
    with mutate.Copies(house) as copies:
        mutate.check(copies, "policy", [], 120)
        assert mutate.judge(copies, mutant, [], 120).outcome == "killed"


def test_tests_that_fail_anyway_measure_nothing(mutate: ModuleType, house: Path) -> None:
    """Before a package is measured its tests must pass on what nobody changed."""
    (house / "tests" / "policy" / "test_limits.py").write_text(
        "def test_limit():\n    assert False\n", encoding="utf-8"
    )
    with mutate.Copies(house) as copies, pytest.raises(SystemExit, match="tests of policy"):
        mutate.check(copies, "policy", [], 120)


def test_the_interval_of_a_share(mutate: ModuleType) -> None:
    """Wilson's interval: 8 of 10 are 49% to 94%; nothing measured says nothing."""
    assert mutate.wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=0.0005)
    assert mutate.wilson(0, 0) == (0.0, 1.0)


def test_changes_can_be_listed() -> None:
    """`--list` runs nothing and names file, line and both forms."""
    done = subprocess.run(  # noqa: S603  our own script
        [sys.executable, str(ROOT / "tools" / "mutate.py"), "core", "--sample", "2", "--list"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 2
    assert all(line.startswith("core/") and " -> " in line for line in done.stdout.splitlines())
