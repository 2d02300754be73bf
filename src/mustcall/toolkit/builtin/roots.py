"""Which files a tool may see: what a path means, and whether it lies inside a folder that was allowed.

Two lists, because they risk different things: under `listable` folders names may be seen, under `readable` ones
contents, too. Contents go to whoever runs the model, so nothing is readable that the person did not choose: the folder
they are working in, and what `--root` names. A path is resolved first - `..`, symbolic links and all - and judged by
where it ends up; it is opened from its root on (`within`), so that what changes meanwhile leads nowhere else. Hidden
files below a root (`.ssh`, `.env`, `.git`) are listed and never read; neither is anything of the kernel's own file
systems. What is outside is refused in the same words whether it is there or not.
"""

import os
import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from mustcall.core.errors import ConfigError, ToolError, ToolRefused

__all__ = ["Purpose", "Roots", "default_roots", "roots_at"]

_LONGEST = 4096
#: Where files are windows into the kernel and into other processes, their environment included.
_KERNEL = ("/proc", "/sys", "/dev")


class Purpose(StrEnum):
    """What a path is wanted for."""

    LIST = "list"
    READ = "read"


class Roots(msgspec.Struct, frozen=True, kw_only=True):
    """The allowed folders, resolved, and the one that relative paths start from."""

    base: Path
    listable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()

    def admit(self, path: str, purpose: Purpose) -> Path:
        """Return where a path leads if that is allowed for the purpose; raise `ToolError` otherwise."""
        return self.locate(path, purpose)[1]

    def locate(self, path: str, purpose: Purpose) -> tuple[Path, Path]:
        """Return where a path leads, behind the root that allows it; raise `ToolError` if none does."""
        if "\0" in path or len(path) > _LONGEST:
            raise ToolError("the path cannot be one: it is too long or holds a NUL character")
        try:
            place = (self.base / path).resolve()
            ends = place.resolve() == place  # behind a loop of links the rest is not resolved
        except (OSError, RuntimeError, ValueError):  # a loop of links, a name too long, text no file system takes
            ends = False
            place = self.base
        if not ends:
            raise ToolError(f"{path!r} leads nowhere")
        roots = self.listable if purpose is Purpose.LIST else self.readable
        inside = [root for root in roots if place.is_relative_to(root)]
        if not inside or any(place.is_relative_to(kernel) for kernel in _KERNEL):
            raise ToolRefused(f"{path!r} is outside what may be {_DONE[purpose]}: {_names(roots)}")
        if purpose is Purpose.READ:
            inside = [root for root in inside if not _is_hidden(place, root)]
            if not inside:
                raise ToolRefused(f"{path!r} is hidden (a name with a leading dot), and hidden files are not read")
        return inside[0], place


_DONE = {Purpose.LIST: "listed", Purpose.READ: "read"}


def default_roots(base: Path | None = None, home: Path | None = None) -> Roots:
    """Return the folders allowed when nobody named any.

    Names may be seen in the current folder, the temporary folder and the home: "list files in /tmp" and "what is in
    $HOME/…" are the first things people ask. Contents only in the current folder, and not even there when it is the
    home itself or lies above it: that would be everything a person owns.
    """
    here = (base or Path.cwd()).resolve()
    own_home = _home() if home is None else home.resolve()
    temporary = {Path(tempfile.gettempdir()).resolve(), *_resolved_if_there("/tmp")}  # noqa: S108  only looked at
    homes = () if own_home is None or own_home == Path(own_home.anchor) else (own_home,)
    exposed = here == Path(here.anchor) or any(one.is_relative_to(here) for one in homes)
    readable = () if exposed else (here,)
    return Roots(base=here, listable=_distinct((here, *sorted(temporary), *homes)), readable=readable)


def roots_at(folders: Sequence[Path], base: Path | None = None) -> Roots:
    """Return roots that are exactly these folders, listed and read; raise `ConfigError` for one that is none."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"--root {os.fspath(folder)!r} is not a folder")
    chosen = _distinct(tuple(folder.resolve() for folder in folders))
    here = (base or Path.cwd()).resolve()
    inside = any(here.is_relative_to(root) for root in chosen)
    return Roots(base=here if inside else chosen[0], listable=chosen, readable=chosen)


def _home() -> Path | None:
    try:
        return Path.home().resolve()
    except (OSError, RuntimeError):  # a user without one
        return None


def _distinct(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(folders))


def _resolved_if_there(path: str) -> tuple[Path, ...]:
    return (Path(path).resolve(),) if Path(path).is_dir() else ()


def _is_hidden(place: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in place.relative_to(root).parts)


def _names(roots: tuple[Path, ...]) -> str:
    return ", ".join(map(os.fspath, roots)) if roots else "nothing; `--root DIR` allows a folder"
