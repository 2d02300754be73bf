"""tools/setup where it must fail: which package, which platform, which Python, and what to do; nothing else."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = rf"{sys.platform} \S+, Python 3\.\d+\.\d+"


def wheel(folder: Path, name: str, tag: str) -> str:
    """Make a wheel that holds nothing; return the line of a lock for it."""
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but the set-up, an environment that is made already, and a package index in a folder."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "setup", tmp_path / "tools")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / ".venv"], check=True)  # noqa: S603
    (tmp_path / "wheels").mkdir()
    # uv has no environment variable for this.
    (tmp_path / "uv.toml").write_text("no-index = true\n", encoding="utf-8")
    return tmp_path


def set_up(checkout: Path, purpose: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up with no index but the folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    # The environment of these tests has uv, whether or not the machine does; without one it would need pip.
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    offline = {"UV_FIND_LINKS": str(checkout / "wheels"), "PYTHON": sys.executable}
    return subprocess.run(  # noqa: S603
        ["sh", "tools/setup", purpose],  # noqa: S607
        cwd=checkout,
        env={**kept, **offline, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(checkout / "wheels")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_missing_wheel_is_named_with_platform_and_python(checkout: Path) -> None:
    """What fails is the package, where it fails is the platform and the Python; then what to do, in five lines."""
    lock = wheel(checkout / "wheels", "here", "py3-none-any") + wheel(checkout / "wheels", "away", "cp311-cp311-win32")
    (checkout / "requirements-dev.lock").write_text(lock, encoding="utf-8")
    done = set_up(checkout, "dev")
    said = done.stderr.splitlines()
    assert done.returncode == 1
    assert re.fullmatch(rf"set-up failed: away has no wheel for {PYTHON}\.", said[1]), done.stderr
    assert "PYTHON=" in said[2]
    assert said[-1] == "All output: .venv/setup.log"
    assert len(said) == 5
    assert done.stdout == ""
    assert not list((checkout / ".venv").glob(".ready-*"))


def test_an_engine_without_a_wheel_is_left_out(checkout: Path) -> None:
    """Where only the embedded model has no engine, running is set up without it, and one sentence says so."""
    lock = wheel(checkout / "wheels", "here", "py3-none-any") + wheel(
        checkout / "wheels", "xllamacpp", "cp311-cp311-win32"
    )
    (checkout / "requirements.lock").write_text(lock, encoding="utf-8")
    done = set_up(checkout, "run")
    assert re.search(rf"the embedded model cannot run here: .*xllamacpp.* no wheel for {PYTHON}\.", done.stderr)
    assert "--upstream" in done.stderr
    assert [path.name for path in (checkout / ".venv").rglob("here-1.0.dist-info")] == ["here-1.0.dist-info"]
    # The checkout of this test is no package, so the step after the lock fails, and says so.
    assert done.returncode == 1
    assert "The installer's last words:" in done.stderr


def test_the_installers_output_goes_into_a_file(checkout: Path) -> None:
    """Whatever an installer prints goes into a file; the terminal has its last words without the warnings."""
    (checkout / "requirements-dev.lock").write_text("not a requirement ===\n", encoding="utf-8")
    done = set_up(checkout, "dev")
    assert done.returncode == 1
    assert re.search(rf"set-up failed on {PYTHON}\. The installer's last words:", done.stderr)
    assert not [line for line in done.stderr.splitlines() if line.strip().lower().startswith("warning")]
    assert len(done.stderr.splitlines()) < 20


def test_an_unknown_purpose_is_refused() -> None:
    """A wrong word is answered with the right ones."""
    done = subprocess.run(["sh", ROOT / "tools" / "setup", "all"], capture_output=True, text=True, check=False)  # noqa: S603, S607
    assert (done.returncode, done.stderr) == (2, "tools/setup takes run or dev, not all\n")
