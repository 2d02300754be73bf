"""Lines from a person: edited and remembered at a terminal, plain from a pipe.

What was typed is kept across runs in the user's state folder, readable by nobody else.
"""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["LineReader", "state_folder"]

_MOST_REMEMBERED = 1000


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return where mustcall keeps what it remembers: `$MUSTCALL_STATE`, else the user's state folder."""
    env = os.environ if environment is None else environment
    if env.get("MUSTCALL_STATE"):
        return Path(env["MUSTCALL_STATE"])
    base = env.get("XDG_STATE_HOME") or (env.get("LOCALAPPDATA") if sys.platform == "win32" else None)
    return Path(base or Path.home() / ".local" / "state") / "mustcall"


class LineReader:
    """Reads lines from standard input."""

    def __init__(self, sign: str, *, colour: bool = False, folder: Path | None = None) -> None:
        self.interactive = sys.stdin.isatty()
        self._sign = sign
        self._file = (folder or state_folder()) / "history"
        self._remembers = False
        if self.interactive:
            self._begin(colour=colour)

    def read(self) -> str | None:
        """Return the next line without its end; None when there are no more. Raises `KeyboardInterrupt`."""
        if not self.interactive:
            line = sys.stdin.readline()
            return line.rstrip("\r\n") if line else None
        try:
            line = input(self._sign)
        except EOFError:
            return None
        self._keep()
        return line

    def _begin(self, *, colour: bool) -> None:
        try:
            import readline  # noqa: PLC0415  changes what `input` does, and is not everywhere
        except ImportError:
            return
        if colour:
            # Between these marks are characters that take no room: the editor must not count them.
            self._sign = f"\001\033[1;36m\002{self._sign}\001\033[0m\002"
        readline.set_history_length(_MOST_REMEMBERED)
        with contextlib.suppress(OSError):  # nothing is remembered where nothing can be written
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
            self._file.chmod(0o600)
            readline.read_history_file(self._file)
            self._remembers = True

    def _keep(self) -> None:
        """Write down what was typed, at once: a conversation can end in any way."""
        if not self._remembers:
            return
        import readline  # noqa: PLC0415  it is there, or nothing would be remembered

        with contextlib.suppress(OSError):
            readline.write_history_file(self._file)
            self._file.chmod(0o600)
