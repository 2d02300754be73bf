"""Which passages of a folder of documents are about a question: BM25 over text and Markdown files.

The folder is read when the first question comes, once, and kept: at most 2,000 files, 1 MiB of each, 32 MiB in all,
and what was left out is said with every answer. A passage is some paragraphs under one heading. Hidden files are not
documents, and links that lead out of the folder are not followed.
"""

import math
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from mustcall.core.errors import ToolError
from mustcall.toolkit.builtin.files import plain

__all__ = ["Documents", "Passage"]

_KINDS: Final = frozenset({".md", ".markdown", ".txt", ".rst", ".text", ".adoc"})
_MOST_FILES: Final = 2000
_LARGEST_FILE: Final = 1024 * 1024
_LARGEST_ALL: Final = 32 * 1024 * 1024
_PASSAGE: Final = 900
_MOST_FOUND: Final = 3
#: BM25's usual settings: how soon more of the same word counts less, and how much long passages are held back.
_SATURATION: Final = 1.2
_LENGTH: Final = 0.75

_WORD = re.compile(r"\w+")
_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*#*$")


class Passage(msgspec.Struct, frozen=True):
    """Some paragraphs of a document: its file, the line they begin on and the heading they stand under."""

    file: str
    line: int
    heading: str
    text: str


class _Index(msgspec.Struct):
    passages: list[Passage]
    lengths: list[int]
    postings: dict[str, list[tuple[int, int]]]
    left_out: int


class Documents:
    """A folder of documents that can be asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._lock = threading.Lock()
        self._index: _Index | None = None

    @property
    def folder(self) -> Path:
        """The folder, resolved."""
        return self._folder

    def search(self, query: str, most: int = _MOST_FOUND) -> list[Passage]:
        """Return the passages that are most about the query, best first; raise `ToolError` for one without words."""
        words = set(_words(query[:1000]))
        if not words:
            raise ToolError("the query has no words; write what to look for")
        index = self._read()
        count = len(index.passages)
        mean = sum(index.lengths) / count if count else 0.0
        scores: defaultdict[int, float] = defaultdict(float)
        for word in words:
            postings = index.postings.get(word, [])
            rarity = math.log(1 + (count - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, times in postings:
                held = _SATURATION * (1 - _LENGTH + _LENGTH * index.lengths[number] / mean)
                scores[number] += rarity * times * (_SATURATION + 1) / (times + held)
        best = sorted(scores, key=lambda number: (-scores[number], number))[:most]
        return [index.passages[number] for number in best]

    def answer(self, query: str) -> str:
        """Return the best passages as text, each with its place."""
        found = self.search(query)
        left_out = self._read().left_out
        note = f"\n({left_out} files were left out: too many or too large)" if left_out else ""
        if not found:
            return f"nothing in the documents matches{note}"
        return "\n\n".join(map(_show, found)) + note

    def _read(self) -> _Index:
        with self._lock:
            if self._index is None:
                self._index = _build(self._folder)
            return self._index


def _show(passage: Passage) -> str:
    heading = f" - {passage.heading}" if passage.heading else ""
    return f"[{passage.file}:{passage.line}{heading}]\n{passage.text}"


def _words(text: str) -> Iterator[str]:
    """Return the words of a text as they are compared: lower case, without a plural's or a verb's last letters."""
    for found in _WORD.finditer(text.lower()):
        word = found[0]
        for end in ("ing", "ed", "es", "s"):
            if word.endswith(end) and len(word) - len(end) >= 4:
                word = word[: -len(end)]
                break
        yield word


def _build(folder: Path) -> _Index:
    index = _Index(passages=[], lengths=[], postings={}, left_out=0)
    room = _LARGEST_ALL
    taken = 0
    for path in _files(folder):
        try:
            size = path.stat().st_size
            if taken == _MOST_FILES or size > min(room, _LARGEST_FILE):
                index.left_out += 1
                continue
            text = path.read_bytes()[:_LARGEST_FILE].decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            index.left_out += 1
            continue
        taken += 1
        room -= size
        for passage in _passages(plain(os.fspath(path.relative_to(folder))), text):
            _add(index, passage)
    return index


def _files(folder: Path) -> Iterator[Path]:
    """Return the documents below a folder, in the same order every time."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or path.suffix.lower() not in _KINDS or not path.is_file():
                continue
            if not path.is_symlink() or path.resolve().is_relative_to(folder):
                yield path


def _add(index: _Index, passage: Passage) -> None:
    # What a document and its heading are called says what a passage is about.
    counts = Counter(_words(f"{passage.file} {passage.heading} {passage.text}"))
    number = len(index.passages)
    index.passages.append(passage)
    index.lengths.append(counts.total())
    for word, times in counts.items():
        index.postings.setdefault(word, []).append((number, times))


def _passages(file: str, text: str) -> Iterator[Passage]:
    heading, first, held, size = "", 1, list[str](), 0
    for number, line in _pieces(text):
        title = _HEADING.match(line)
        full = size > _PASSAGE or (size > _PASSAGE / 2 and not line.strip())
        if held and (title or full):
            yield from _passage(file, first, heading, held)
            held, size = [], 0
        if title:
            heading = plain(title[1])[:200]
            continue
        if not held:
            if not line.strip():
                continue
            first = number
        held.append(plain(line, keep="\t"))
        size += len(line) + 1
    yield from _passage(file, first, heading, held)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines with their numbers, long ones in pieces."""
    for number, line in enumerate(text.splitlines(), 1):
        for start in range(0, max(len(line), 1), _PASSAGE):
            yield number, line[start : start + _PASSAGE]


def _passage(file: str, first: int, heading: str, lines: list[str]) -> Iterator[Passage]:
    text = "\n".join(lines).strip()
    if text:
        yield Passage(file, first, heading, text)
