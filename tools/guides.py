"""Follows the guides for real clients: writes the files that a page shows, runs its commands, and looks at the gateway.

    python tools/guides.py               # all
    python tools/guides.py codex ai-sdk  # some

The clients are those of tools/clients.py, installed into its cache. Each runs in a home of its own against a gateway
with a scripted model; the page's address is replaced by that gateway's. A guide holds if the command ends with status 0
and the gateway answered it. Guides of LangGraph and llama.cpp run their Python.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from mustcall.testing import Answer, Recorded, Say, ScriptedUpstream, Turn, demo_turn
from mustcall.testing.gateway import RunningGateway

_ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(_ROOT / "tools"))

from clientmatrix.adapters import CLIENTS  # noqa: E402
from clientmatrix.installing import default_cache, install  # noqa: E402

#: Clients of guides that are not in the matrix; where they run and what they print is not read there.
_OTHERS = (replace(CLIENTS[0], name="continue", folder="continue", packages=("@continuedev/cli@1.5.47",)),)
_ADDRESS = "http://127.0.0.1:8484"
_LIMIT = 120
_FILE = re.compile(r'```\w+ title="([^"]+)"\n(.*?)```', re.DOTALL)
_SHELL = re.compile(r"```sh\n(.*?)```", re.DOTALL)
_PYTHON = re.compile(r"<!-- needs: [^>]+-->\n```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)
#: Kept from contacting other hosts, as the guides say.
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}


class _Guide(NamedTuple):
    """A page: the client of the matrix that it is about, or the Python packages, and how its command begins."""

    client: str = ""
    packages: tuple[str, ...] = ()
    begins: str = ""
    #: Whether the model calls tools; an agent that asks for a greeting is greeted.
    calls: bool = False


_GUIDES = {
    "claude-code": _Guide("claude-code", begins="ANTHROPIC_BASE_URL="),
    "codex": _Guide("codex", begins="codex exec"),
    "opencode": _Guide("opencode", begins="opencode run"),
    "editors": _Guide("continue", begins="cn "),
    "ai-sdk": _Guide("ai6-chat", begins="node ", calls=True),
    "langgraph": _Guide(packages=("langgraph", "langchain", "langchain-openai"), calls=True),
    "llama-cpp": _Guide(),
}


def _page(name: str) -> str:
    return (_ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")


def _run(command: list[str], folder: Path, home: Path, path: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **_QUIET, "HOME": str(home), "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(  # noqa: S603  our own pages
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )


def _follow_client(name: str, guide: _Guide, url: str) -> str:
    """Write the page's files, run its command; return what went wrong, or nothing."""
    page, cache = _page(name).replace(_ADDRESS, url), default_cache()
    client = next(one for one in (*CLIENTS, *_OTHERS) if one.name == guide.client)
    folder = install(cache, client)
    programs = os.pathsep.join(str(place / "node_modules" / ".bin") for place in (folder, cache / "node"))
    (command,) = [
        line for block in _SHELL.findall(page) for line in block.splitlines() if line.startswith(guide.begins)
    ]
    with tempfile.TemporaryDirectory() as place:
        home, work = Path(place) / "home", Path(place) / "work"
        home.mkdir()
        work.mkdir()
        for title, text in _FILE.findall(page):
            at_home = title.startswith("~/")
            file = home / title[2:] if at_home else folder / title  # a script imports what is installed beside it
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        ran = _run(["bash", "-c", command], folder if guide.begins == "node " else work, home, programs)
    return (
        ""
        if ran.returncode == 0 and ran.stdout.strip()
        else f"{ran.returncode}: {ran.stdout[-500:]}{ran.stderr[-800:]}"
    )


def _follow_python(name: str, guide: _Guide, url: str) -> str:
    """Run the page's Python in an environment with its packages; return what went wrong, or nothing."""
    python = Path(sys.executable)
    if guide.packages:
        place = default_cache() / name
        python = place / "bin" / "python"
        if not python.exists():
            venv.create(place, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *guide.packages], check=True)  # noqa: S603
    for code, printed in _PYTHON.findall(_page(name).replace(_ADDRESS, url)):
        with tempfile.TemporaryDirectory() as place:
            ran = _run([str(python), "-c", code], Path(place), Path.home(), "")
        if ran.returncode or ran.stdout != printed:
            return f"{ran.returncode}: {ran.stdout}{ran.stderr[-800:]}"
    return ""


def _greet(_: Recorded) -> Answer:
    return Turn(Say("Hello."))


def main(arguments: list[str]) -> int:
    """Follow the guides that are named, or all; return how many did not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("guide", nargs="*", metavar="GUIDE", help=f"{', '.join(_GUIDES)}")
    names: list[str] = parser.parse_args(arguments).guide
    if unknown := [name for name in names if name not in _GUIDES]:
        parser.error(f"there is no guide {unknown[0]!r}; there are: {', '.join(_GUIDES)}")
    wrong = 0
    for name in names or list(_GUIDES):
        guide = _GUIDES[name]
        follow: Callable[[str, _Guide, str], str] = _follow_client if guide.client else _follow_python
        with (
            ScriptedUpstream(demo_turn if guide.calls else _greet) as upstream,
            RunningGateway(f"chat={upstream.base_url}") as gateway,
        ):
            problem = follow(name, guide, gateway.url)
            asked = len(upstream.requests)
        if not problem and not asked and name != "llama-cpp":
            problem = "the gateway was not asked"
        wrong += bool(problem)
        print(f"{name}: {problem or 'holds'} ({asked} upstream calls)", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
