"""The file a run keeps its replies in: one line of JSON for the circumstances, then one for each reply, as it comes.

A line is written whole before the next question is asked, so that a run that was stopped, at any moment, goes on from
its file; half a line at the end is what a stopped process left, and is cut off. A file of other circumstances, or one
that another process writes to, is refused. Of two lines about the same question and arm the later one counts.
"""

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.asking.rows import Arm, EvalRow, Form
from mustcall.evals.questions import AskedCall

__all__ = ["ReplyJournal", "RunFacts", "find_unfinished", "read_journal"]


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The circumstances of a run: who was asked what, and how. `started` is ISO 8601.

    `via` is how the mustcall arm was asked: `engine`, `gateway` (one of its own) or the address of one.
    """

    suite: str
    data: str
    sets: tuple[str, ...]
    limit: int | None
    seed: int
    choice: AskedCall | None
    model: str
    upstream: str
    address: str
    upstream_wire: Wire
    wire: Wire
    stream: bool
    via: str
    form: Form
    sampling: Sampling
    planned: int
    version: str
    started: str
    #: A short name for the operator's settings of a turn; empty for the defaults.
    settings: str = ""
    #: The SHA-256 of the model file, where mustcall runs it; empty for an upstream's own model.
    weights: str = ""
    #: The SHA-256 of the ids that were listed with `--questions`, shortened; empty where none were.
    listed: str = ""

    def differences(self, other: "RunFacts") -> list[str]:
        """Say what another run was made with, where it differs; when it was begun does not count."""
        return [
            f"{name} {_shown(name, getattr(other, name))} instead of {_shown(name, getattr(self, name))}"
            for name in self.__struct_fields__
            if name != "started" and getattr(self, name) != getattr(other, name)
        ]


def _shown(name: str, value: object) -> str:
    if name == "weights":
        return f"with the SHA-256 {value}" if value else "that were not recorded"
    return msgspec.json.encode(value).decode()


def read_journal(file: Path) -> tuple[RunFacts, tuple[EvalRow, ...]]:
    """Return what a file holds, the last word on each question and arm; raise `ConfigError` if it is no such file."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    facts, rows, _ = _parse(data, file)
    return facts, _latest(rows)


def _parse(data: bytes, file: Path) -> tuple[RunFacts, list[EvalRow], int]:
    """Return the circumstances, the rows, and the length of what is whole."""
    whole = data.rfind(b"\n") + 1
    lines = data[:whole].splitlines()
    if not lines:
        raise ConfigError(f"{file} is not a file of replies: it has no whole line")
    try:
        facts = msgspec.json.decode(lines[0], type=RunFacts)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not a file of replies: line 1: {error}") from None
    rows: list[EvalRow] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            rows.append(msgspec.json.decode(line, type=EvalRow))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} is damaged at line {number}: {error}") from None
    return facts, rows, whole


def _latest(rows: Iterable[EvalRow]) -> tuple[EvalRow, ...]:
    return tuple({(row.id, row.arm): row for row in rows}.values())


def find_unfinished(directory: Path, facts: RunFacts) -> Path | None:
    """Return the newest file of a directory that holds a run with these facts which can go on, None if there is none.

    A run that another process is at, a complete one, and a file that cannot be read are passed over.
    """
    begun: list[tuple[str, Path]] = []
    for file in directory.glob("*.jsonl"):
        with contextlib.suppress(OSError, ConfigError):
            with file.open("rb") as lines:
                kept, _, _ = _parse(lines.readline(), file)
            if not facts.differences(kept):
                begun.append((kept.started, file))
    for _, file in sorted(begun, reverse=True):
        with contextlib.suppress(OSError, ConfigError), file.open("rb") as data:
            _, rows, _ = _parse(data.read(), file)
            if len(_answered(rows)) < len(Arm) * facts.planned and _claim(data):
                return file
    return None


def _answered(rows: Iterable[EvalRow]) -> tuple[EvalRow, ...]:
    """Return the last word on each question and arm, without those that the upstream itself failed to answer."""
    return tuple(row for row in _latest(rows) if row.fault is None or not row.fault.upstream)


class ReplyJournal:
    """A file that replies are added to; `rows` are those it held when it was opened, `facts` those of its first line.

    What the upstream itself failed to answer is not among the rows, so that it is asked again. While it is open, no
    other process can add to it.
    """

    def __init__(self, file: Path, facts: RunFacts) -> None:
        self.file = file
        self.facts = facts
        self.rows: tuple[EvalRow, ...] = ()
        try:
            self._out = file.open("ab", buffering=0)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
        try:
            self._begin()
        except BaseException as error:
            self._out.close()
            if isinstance(error, OSError):
                raise ConfigError(f"cannot write {file}: {error.strerror}") from None
            raise

    def _begin(self) -> None:
        if not _claim(self._out):
            raise ConfigError(f"another run is writing to {self.file}; wait for it, or name another file with --out")
        data = self.file.read_bytes()
        if b"\n" not in data:  # new, or stopped before the first line was whole
            os.truncate(self.file, 0)
            self._write(msgspec.json.encode(self.facts))
            return
        kept, rows, whole = _parse(data, self.file)
        if differences := self.facts.differences(kept):
            raise ConfigError(
                f"{self.file} holds the replies of another run ({'; '.join(differences)}); name another file with "
                "--out, or remove this one"
            )
        self.facts, self.rows = kept, _answered(rows)
        if whole < len(data):
            os.truncate(self.file, whole)

    @property
    def done(self) -> frozenset[tuple[str, Arm]]:
        """The questions and arms that need not be asked again."""
        return frozenset((row.id, row.arm) for row in self.rows)

    def add(self, row: EvalRow) -> None:
        """Write a reply; raise `ConfigError` where it cannot be written whole, and leave only whole lines."""
        self._write(msgspec.json.encode(row))

    def _write(self, line: bytes) -> None:
        out = self._out
        place = out.seek(0, os.SEEK_END)
        data = memoryview(line + b"\n")
        try:
            while data:
                data = data[out.write(data) or 0 :]
        except OSError as error:
            os.truncate(self.file, place)
            raise ConfigError(
                f"cannot write {self.file}: {error.strerror}; the replies before are kept, and the same command goes "
                "on from there (without --new)"
            ) from None

    def close(self) -> None:
        """Close the file."""
        self._out.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


if sys.platform == "win32":
    import msvcrt

    #: A lock keeps others from reading what it covers, so it covers a byte far behind the end.
    _FAR = 1 << 40

    def _claim(file: IO[bytes]) -> bool:
        """Take a file for this process, until it is closed; tell whether that was possible."""
        place = file.tell()
        try:
            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            file.seek(place)
        return True

else:
    import fcntl

    def _claim(file: IO[bytes]) -> bool:
        """Take a file for this process, until it is closed; tell whether that was possible."""
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True
