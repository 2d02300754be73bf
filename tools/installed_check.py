"""Installs a built wheel or sdist into an environment of its own and uses it as a person would (`make dist`, CI).

Nothing of the checkout is on the path: what is tested is what will be published. Runs on every system with nothing but
Python; the packages it depends on come from the index that pip is configured with.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

_ASK = {
    "model": "demo",
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
    "tool_choice": "required",
}


def main() -> None:
    """Install, check, and say which file it was."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=["whl", "tar.gz"], default="whl")
    chosen = parser.parse_args()
    found = sorted(chosen.folder.glob(f"mustcall-*.{chosen.kind}"))
    if len(found) != 1:
        sys.exit(f"{chosen.folder} must hold one mustcall-*.{chosen.kind}, not {len(found)}")
    with tempfile.TemporaryDirectory(prefix="mustcall-installed-", ignore_cleanup_errors=True) as folder:
        check(found[0].resolve(), Path(folder))
    print(f"ok: {found[0].name} on {sys.platform}, Python {sys.version.split()[0]}")


def check(distribution: Path, folder: Path) -> None:
    """Check one distribution in a new environment."""
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    python, mustcall = programs / "python", programs / "mustcall"
    _run(folder, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", distribution)
    where = _run(folder, python, "-c", "import mustcall; print(mustcall.__file__)").strip()
    if not Path(where).is_relative_to((folder / "env").resolve()) and not Path(where).is_relative_to(folder / "env"):
        sys.exit(f"the package under test is {where}, which is not the installed one")
    version = re.search(r"mustcall-([^-]+?)(?:-py3|\.tar)", distribution.name)
    shown = _run(folder, mustcall, "--version")
    if version is None or version[1] not in shown:
        sys.exit(f"{distribution.name} says it is {shown!r}")
    told = subprocess.run(  # noqa: S603  the installed command
        [mustcall, "serve"], cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False
    )
    if told.returncode != 2 or "mustcall[local]" not in told.stderr or told.stderr.count("\n") != 1:
        sys.exit(f"without the engine `mustcall serve` must name the extra in one line, not: {told.stderr}")
    _check_server(folder, mustcall)


def _check_server(folder: Path, mustcall: Path) -> None:
    """Start the demo, as printed in the README, and make the forced call it offers."""
    process = subprocess.Popen(  # noqa: S603  the installed command
        [mustcall, "serve", "--demo", "--port", "0"],
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    printed = ""
    try:
        for line in process.stdout:
            printed += line
            if "Ctrl-C" in line:
                break
        url = re.search(r"http://127\.0\.0\.1:\d+", printed)
        if url is None:
            sys.exit(f"the server did not start: {printed}")
        request = urllib.request.Request(  # noqa: S310  loopback
            f"{url[0]}/v1/chat/completions", json.dumps(_ASK).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310  loopback
            made = json.load(reply)["choices"][0]["message"]["tool_calls"]
        if made[0]["function"]["name"] != "get_weather":
            sys.exit(f"the forced call was {made}")
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment without this machine's settings, weights and state."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTCALL_", "PYTHON"))}
    kept.pop("DATABASE_URL", None)
    return {**kept, "MUSTCALL_CACHE": str(folder / "cache"), "MUSTCALL_LEDGER": "off"}


def _run(folder: Path, *words: str | Path) -> str:
    done = subprocess.run(  # noqa: S603  the environment's own programs
        words, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
