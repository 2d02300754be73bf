"""What stands in a folder, and what a text file says: bounded, and only inside the allowed roots.

Names and contents are shown as text that any wire can carry: control characters and undecodable bytes are escaped.
A file is read if it is an ordinary file of text, of at most 2 MiB, some lines at a time, and has this one name only: by
a second one it may lie where it may not be read. What a file is, is asked of the open file.
"""

import heapq
import itertools
import os
import re
import stat
from pathlib import Path
from typing import Final

from mustcall.core.errors import ToolError, ToolRefused
from mustcall.toolkit.builtin.roots import Purpose, Roots
from mustcall.toolkit.builtin.within import opened_within, scanned_within

__all__ = ["list_directory", "plain", "read_file"]

_MOST_ENTRIES: Final = 100
_MOST_SCANNED: Final = 20_000
_LARGEST: Final = 2 * 1024 * 1024
_MOST_CHARACTERS: Final = 3500
_LONGEST_LINE: Final = 1000
_SNIFFED: Final = 8192

#: What breaks a line, steers a terminal, turns the direction of text around, or is no character at all.
_UNPLAIN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")


def list_directory(roots: Roots, path: str) -> str:
    """Return the entries of a folder: a line for the folder, then one for each entry, folders with a slash."""
    root, place = roots.locate(path, Purpose.LIST)
    try:
        with scanned_within(root, place) as entries:
            seen = list(itertools.islice(entries, _MOST_SCANNED))
            shown = heapq.nsmallest(_MOST_ENTRIES, seen, key=lambda entry: entry.name)
            listed = list(map(_entry, shown))
    except OSError as error:
        raise ToolError(_explain(path, error, "a folder")) from None
    count = f"{len(seen)} entries" if len(seen) != 1 else "1 entry"
    if len(seen) == _MOST_SCANNED:
        count = f"{_MOST_SCANNED} entries or more"
    name = plain(os.fspath(place))
    lines = [f"{count} in {name}:" if seen else f"{name} is empty", *listed]
    if len(seen) > len(shown):
        lines.append(f"… and {len(seen) - len(shown)} more")
    return "\n".join(lines)


def read_file(roots: Roots, path: str, first_line: int = 1) -> str:
    """Return some lines of a text file, from `first_line` on, and which ones they are if they are not all."""
    lines = _text(path, _bytes(path, *roots.locate(path, Purpose.READ))).splitlines()
    if not lines:
        return "(the file is empty)"
    if first_line > len(lines):
        raise ToolError(f"{path!r} has {len(lines)} lines; there is no line {first_line}")
    start = max(first_line, 1) - 1
    shown: list[str] = []
    room = _MOST_CHARACTERS
    for line in itertools.islice(lines, start, None):
        cut = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}… ({len(line)} characters)"
        if shown and len(cut) >= room:
            break
        shown.append(plain(cut, keep="\t"))
        room -= len(cut) + 1
    last = start + len(shown)
    if last < len(lines):
        shown.append(f"[lines {start + 1} to {last} of {len(lines)}; first_line={last + 1} reads on]")
    return "\n".join(shown)


def plain(text: str, keep: str = "") -> str:
    """Return text whose control characters, direction overrides and lone surrogates are written as escapes."""
    if text.isprintable():
        return text
    return _UNPLAIN.sub(lambda found: found[0] if found[0] in keep else _escape(found[0]), text)


def _escape(sign: str) -> str:
    return f"\\x{ord(sign):02x}" if ord(sign) < 0x100 else f"\\u{ord(sign):04x}"


def _entry(entry: "os.DirEntry[str]") -> str:
    name = plain(entry.name)
    try:
        if entry.is_symlink():
            return f"{name} (link)"
        if entry.is_dir():
            return f"{name}/"
        return f"{name} ({_size(entry.stat(follow_symlinks=False).st_size)})"
    except OSError:
        return name


def _size(count: int) -> str:
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _bytes(path: str, root: Path, place: Path) -> bytes:
    """Return what a file below a root holds."""
    try:
        with opened_within(root, place) as descriptor:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise ToolError(f"{path!r} is a folder; list_directory shows what is in it")
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{path!r} is not an ordinary file")
            if status.st_nlink > 1:
                raise ToolRefused(f"{path!r} has a second name elsewhere (a hard link), and such files are not read")
            if status.st_size > _LARGEST:
                raise ToolError(f"{path!r} has {_size(status.st_size)}; files of at most {_size(_LARGEST)} are read")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(_LARGEST)
    except OSError as error:
        raise ToolError(_explain(path, error, "a file")) from None


def _text(path: str, data: bytes) -> str:
    if b"\0" not in data[:_SNIFFED]:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
    raise ToolError(f"{path!r} is not UTF-8 text; binary files are not read")


def _explain(path: str, error: OSError, wanted: str) -> str:
    match error:
        case FileNotFoundError():
            return f"there is no {path!r}"
        case NotADirectoryError():
            return f"{path!r} is not {wanted}; read_file reads files"
        case IsADirectoryError():
            return f"{path!r} is a folder; list_directory shows what is in it"
        case PermissionError():
            return f"the system does not let this user open {path!r}"
        case _:
            return f"{path!r} is not {wanted} that can be opened"
