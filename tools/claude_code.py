"""Run Claude Code through `mustcall serve` on a local model server, one small task at a time; keep what was seen.

Needs no network beyond the server: Claude Code's own binary, a Python environment with mustcall, and the address of
a server that speaks Chat Completions (llama.cpp, vLLM, SGLang, Ollama). Each task runs in a fresh folder with a fresh
home. The folder OUT/TASK keeps Claude Code's transcript (`claude.jsonl`), its errors, the gateway's log, the turns as
`mustcall turns list` shows them, and the task's files. `OUT/summary.json` and the last lines printed say which tasks
are right. Exit status 1 if one is not.

    python tools/claude_code.py --server http://127.0.0.1:8080/v1 --claude ./package/claude --out claude-run
    python tools/claude_code.py --server http://127.0.0.1:8080/v1 --claude claude --tools Read --task read

The binary is in the npm package @anthropic-ai/claude-code-linux-x64 (`npm pack`, then `tar xzf`): `package/claude`.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

_START_SECONDS = 60
_STOP_SECONDS = 20

_NOTES = "Meeting on Friday at ten.\nThe plumber's phone number is 555-0142.\nBuy bread.\n"


@dataclass(frozen=True)
class Task:
    """What Claude Code is asked to do, the files it finds, and how to tell that it was done."""

    name: str
    prompt: str
    tools: str
    is_right: Callable[[Path, str], bool]


def _created(folder: Path, _: str) -> bool:
    hello = folder / "hello.txt"
    return hello.is_file() and hello.read_text().strip().strip('"').lower() == "hi"


def _changed(folder: Path, _: str) -> bool:
    return "555-0199" in (folder / "notes.txt").read_text() and "Buy bread." in (folder / "notes.txt").read_text()


TASKS = (
    Task("hello", "Say hello in one short sentence.", "", lambda _, said: bool(said.strip())),
    Task(
        "read",
        "Read notes.txt and tell me the phone number in it.",
        "Read",
        lambda _, said: "555-0142" in said,
    ),
    Task("write", "Create hello.txt with the word hi", "Write", _created),
    Task(
        "edit",
        "In notes.txt, change the phone number 555-0142 to 555-0199. Change nothing else.",
        "Read,Edit",
        _changed,
    ),
    Task(
        "shell",
        "Run the command `wc -l notes.txt` and tell me how many lines the file has.",
        "Bash",
        lambda _, said: "3" in said or "three" in said.lower(),
    ),
)


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the model server's address up to /v1")
    parser.add_argument("--model", default="", help="the model's name there [the first that the server lists]")
    parser.add_argument("--claude", default="claude", help="Claude Code's binary [claude]")
    parser.add_argument("--mustcall", default=sys.executable, metavar="PYTHON", help="a Python that has mustcall")
    parser.add_argument("--out", type=Path, default=Path("claude-run"), help="where to keep what was seen")
    names = [task.name for task in TASKS]
    parser.add_argument("--task", action="append", choices=names, help="only this one; can be given several times")
    parser.add_argument(
        "--tools",
        choices=["task", "all"],
        default="all",
        help="offer all of Claude Code's tools (about 11,400 tokens), or only those that the task needs [all]",
    )
    parser.add_argument("--times", type=int, default=1, help="run each task so often [1]")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for a task [1800]")
    parser.add_argument("--context", type=int, default=32768, help="tokens that the model can read [32768]")
    parser.add_argument("--direct", action="store_true", help="without mustcall: the server must speak Messages")
    return parser.parse_args()


def main() -> int:
    """Run the tasks; print a line for each."""
    options = read_options()
    claude = shutil.which(str(options.claude))
    if claude is None:
        print(f"there is no Claude Code at {options.claude!r}; give --claude PATH", file=sys.stderr)
        return 2
    options.model = options.model or _first_model(options.server)
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for task in TASKS:
        if options.task and task.name not in options.task:
            continue
        for number in range(options.times):
            folder = options.out.absolute() / (task.name if options.times == 1 else f"{task.name}-{number + 1}")
            result = _run(task, folder, Path(claude).absolute(), options)
            results.append(result)
            print(json.dumps(result), flush=True)
            (options.out / "summary.json").write_text(json.dumps(results, indent=1) + "\n")
    right = sum(result["right"] for result in results)
    print(f"{right} of {len(results)} right; model {options.model}, tools: {options.tools}")
    return int(right < len(results))


def _run(task: Task, folder: Path, claude: Path, options: argparse.Namespace) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    home.mkdir()
    (work / "notes.txt").write_text(_NOTES)
    gateway: subprocess.Popen[bytes] | None = None
    base = options.server.removesuffix("/").removesuffix("/v1")
    try:
        if not options.direct:
            port = _free_port()
            base = f"http://127.0.0.1:{port}"
            gateway = _serve(folder, port, options)
            _wait(base, gateway, folder)
        began = time.monotonic()
        ended = _ask(task, folder, claude, base, options)
        seconds = time.monotonic() - began
        if gateway is not None:
            _keep_turns(folder, options)
    finally:
        if gateway is not None:
            gateway.terminate()
            gateway.wait(_STOP_SECONDS)
    said = _last(folder / "claude.jsonl")
    text = str(said.get("result", ""))
    return {
        "task": task.name,
        "right": ended == 0 and not said.get("is_error", True) and task.is_right(work, text),
        "said": text[:300],
        "seconds": round(seconds, 1),
        "turns": said.get("num_turns"),
        "exit": ended,
    }


def _serve(folder: Path, port: int, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    # A slow machine reads the prompt for minutes: every time limit is the task's own.
    limit = options.limit
    settings = folder / "mustcall.toml"
    settings.write_text(
        f'[server]\nport = {port}\nrequest_timeout = {limit}\n\n[ledger]\nplace = "{folder}/ledger.db"\n'
        f'contents = "full"\n\n[[upstream]]\nname = "local"\nwire = "chat"\nbase_url = "{options.server}"\n'
        f'model = "{options.model}"\nread_timeout = {limit}\nidle_timeout = {limit}\n'
    )
    with (folder / "gateway.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603  the Python that was named
            [options.mustcall, "-m", "mustcall", "serve", "--config", str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _ask(task: Task, folder: Path, claude: Path, base: str, options: argparse.Namespace) -> int:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_API_KEY": "local",
        "ANTHROPIC_MODEL": options.model,
        "ANTHROPIC_SMALL_FAST_MODEL": options.model,
        "API_TIMEOUT_MS": str(int(options.limit * 1000)),
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(options.context),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    argv = [str(claude), "-p", task.prompt, "--output-format", "stream-json", "--verbose"]
    if task.tools:
        argv += ["--allowedTools", task.tools]
    if options.tools == "task":
        argv += ["--tools", task.tools]
    with (folder / "claude.jsonl").open("wb") as out, (folder / "claude.err").open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603  the binary that was named
            argv, cwd=folder / "work", env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=errors
        )
        try:
            return process.wait(options.limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return 124


def _keep_turns(folder: Path, options: argparse.Namespace) -> None:
    """Keep what `mustcall turns list` says of the turns."""
    said = subprocess.run(  # noqa: S603  the Python that was named
        [options.mustcall, "-m", "mustcall", "turns", "list", "--json", "--ledger", str(folder / "ledger.db")],
        capture_output=True,
        check=False,
    )
    (folder / "turns.json").write_bytes(said.stdout or said.stderr)


def _last(transcript: Path) -> dict[str, Any]:
    """Return the result at the end of a transcript; empty where there is none."""
    for line in reversed(transcript.read_text(errors="replace").splitlines()):
        try:
            said: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            result = cast("dict[str, Any]", said)  # JSON knows no item type
            if result.get("type") == "result":
                return result
    return {}


def _first_model(server: str) -> str:
    with urllib.request.urlopen(f"{server.rstrip('/')}/models", timeout=_START_SECONDS) as answer:  # noqa: S310  named by the user
        return str(json.load(answer)["data"][0]["id"])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait(base: str, gateway: subprocess.Popen[bytes], folder: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and gateway.poll() is None:
        try:
            with urllib.request.urlopen(f"{base}/health", timeout=5):  # noqa: S310  loopback
                return
        except OSError:
            time.sleep(0.2)
    raise SystemExit(f"the gateway did not start: {(folder / 'gateway.log').read_text()[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())
