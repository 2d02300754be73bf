"""Install the pinned clients into a folder, once: npm packages and Python environments, each client apart.

A folder is ready when its marker names the very packages that are wanted; anything else is installed anew.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from clientmatrix.adapters import NODE, Client
from clientmatrix.processes import end_group, wait_until

_SCRIPTS = Path(__file__).parent / "scripts"
_LIMIT = 600


class InstallError(Exception):
    """A client could not be installed; the text is what the installer said last."""


def default_cache() -> Path:
    """Where clients are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mustcall" / "clients"


def install(cache: Path, client: Client) -> Path:
    """Make sure that the client is there; return its folder."""
    if client.runtime == "node":
        _install_npm(cache / NODE[0], NODE[1], None)
        _install_npm(cache / client.folder, client.packages, cache / NODE[0])
    else:
        _install_python(cache / client.folder, client.packages)
    for script in _SCRIPTS.iterdir():
        if script.is_file():
            shutil.copy(script, cache / client.folder)
    return cache / client.folder


def _install_npm(folder: Path, packages: tuple[str, ...], node: Path | None) -> None:
    if _is_ready(folder, packages):
        return
    (folder / "package.json").write_text('{"private": true}\n')
    path = os.environ["PATH"] if node is None else f"{node / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    argv = ["npm", "install", "--no-audit", "--no-fund", "--save-exact", *packages]
    _carry_out(argv, folder, os.environ | {"PATH": path})
    _mark(folder, packages)


def _install_python(folder: Path, packages: tuple[str, ...]) -> None:
    if _is_ready(folder, packages):
        return
    _carry_out([sys.executable, "-m", "venv", str(folder)], folder, dict(os.environ))
    argv = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *packages]
    _carry_out(argv, folder, dict(os.environ))
    _mark(folder, packages)


def _is_ready(folder: Path, packages: tuple[str, ...]) -> bool:
    marker = folder / "ready"
    if marker.is_file() and marker.read_text() == " ".join(packages):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return False


def _mark(folder: Path, packages: tuple[str, ...]) -> None:
    (folder / "ready").write_text(" ".join(packages))


def _carry_out(argv: list[str], folder: Path, env: dict[str, str]) -> None:
    log = folder / "install.log"
    try:
        with log.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - the pinned installer commands of this file
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
    except OSError as error:
        raise InstallError(f"{argv[0]}: {error}") from error
    try:
        over = wait_until(lambda: process.poll() is not None, _LIMIT)
    finally:
        end_group(process)
    if not over:
        raise InstallError(f"{' '.join(argv[:2])} in {folder.name}: still running after {_LIMIT} s")
    if process.returncode:
        said = log.read_text(errors="replace").strip()[-800:]
        raise InstallError(f"{' '.join(argv[:2])} in {folder.name}: {said}")
