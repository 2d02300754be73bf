"""Measures models on llama.cpp's own server, bare and through a gateway: a matrix of each, and one table of all.

`python tools/matrices.py FOLDER --server 135M=http://127.0.0.1:8081/v1 --server 0.5B=http://127.0.0.1:8082/v1` measures
servers that run already; `--model smollm2-135m` starts one. It writes NAME-bare and NAME-gateway as `.json` and
`.html`, and `summary.md`. With `--minutes` it stops in time (exit code 4); the same command goes on from there. A
folder holds matrices of one code and one level only. The ledger of this machine is left alone.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.policy.limits.budget import Price
from mustcall.probe import Level, Prober, ProbeResult, Subject, cells_for, plan_probe, read_result
from mustcall.probe.page import write_page
from mustcall.probe.wording import MARKS, headline, of
from mustcall.testing import LlamaServer, RunningGateway
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.listing import ask_models
from mustcall.upstream.retry import SystemClock
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Timeouts

ROOT = Path(__file__).parents[1]
WAYS = ("bare", "gateway")
NOT_DONE = 4
#: Seconds between two writes of what is known so far.
SAVE_SECONDS = 10.0


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One server to measure: its address, and where its matrices go."""

    name: str
    base_url: str
    folder: Path
    level: Level
    wire: Wire
    ways: tuple[str, ...]
    cells: tuple[str, ...]
    timeout: float

    def file(self, way: str) -> Path:
        """Return the file of a matrix."""
        return self.folder / f"{self.name}-{way}.json"


# --- one matrix ---------------------------------------------------------------------------------------------------


async def measure(task: Task, way: str, base_url: str) -> bool:
    """Measure one matrix, or go on with it; return whether it is complete."""
    file = task.file(way)
    before = read_result(file) if file.exists() else None
    if before is not None and not before.partial:
        print(f"{file.name}: complete", flush=True)
        return True
    transport = SchemeTransport()
    patience = Timeouts(connect=8.0, read=task.timeout, idle=task.timeout)
    endpoint = Endpoint(name=f"{task.name}-{way}", wire=task.wire, base_url=base_url, timeouts=patience)
    try:
        listed = (await ask_models(endpoint, transport, seconds=60.0)).models or ("default",)
        cells = cells_for(task.wire, task.level, None, task.cells)
        price = Price(input=0, output=0)
        plan = plan_probe(cells, task.wire, task.level, price)
        subject = Subject(endpoint=endpoint, model=listed[0], transport=transport, clock=SystemClock(), price=price)
        prober = Prober(subject, plan, before)
        print(f"{file.name}: {plan.words}; {prober.request_budget.requests} requests were made before", flush=True)
        saved = time.monotonic()
        try:
            async with contextlib.aclosing(prober.run()) as changes:
                async for _ in changes:
                    if time.monotonic() - saved > SAVE_SECONDS:
                        saved = time.monotonic()
                        write(file, prober.result)
        finally:
            write(file, prober.result)
            print(f"{file.name}: {headline(prober.result)}", flush=True)
        return not prober.result.partial
    finally:
        await transport.close()


def write(file: Path, result: ProbeResult) -> None:
    """Write a matrix, so that a run that is killed loses seconds."""
    part = file.with_suffix(".part")
    part.write_bytes(result.encode())
    part.replace(file)
    file.with_suffix(".html").write_text(write_page(result), encoding="utf-8")


async def measure_server(task: Task) -> bool:
    """Measure a server in each way; return whether all of it is complete."""
    done = True
    for way in task.ways:
        with contextlib.ExitStack() as stack:
            base_url = task.base_url
            if way == "gateway":
                settings = settings_from_flags(
                    f"chat={base_url}", ledger=LedgerSettings(place=str(task.folder / f"{task.name}.db"))
                )
                base_url = stack.enter_context(RunningGateway(settings=settings)).base_url
            done = await measure(task, way, base_url) and done
    return done


async def measure_all(tasks: Sequence[Task], seconds: float | None) -> bool:
    """Measure all servers, each beside the others, for so long; return whether all of it is complete."""
    try:
        async with asyncio.timeout(seconds):
            return all(await asyncio.gather(*(measure_server(task) for task in tasks)))
    except TimeoutError:
        return False


# --- all of them --------------------------------------------------------------------------------------------------


def code() -> str:
    """Return the digest of the package's source."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "src").rglob("*.py")):
        digest.update(file.relative_to(ROOT).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:12]


def check_folder(folder: Path, made: dict[str, str]) -> None:
    """Note with what a folder is made; leave where it was made with something else."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / "made.json"
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) != made:
        sys.exit(f"{note} says {note.read_text(encoding='utf-8').strip()}, this is {made}; use another folder")
    note.write_text(json.dumps(made) + "\n", encoding="utf-8")


def build_of(base_url: str) -> str:
    """Return what llama.cpp's server says of its version; empty where it does not."""
    with contextlib.suppress(OSError, ValueError):
        with urllib.request.urlopen(base_url.removesuffix("/v1") + "/props", timeout=10) as answer:  # noqa: S310  given
            props: dict[str, Any] = json.load(answer)
        return f"llama.cpp {props.get('build_info', '')}, {Path(props.get('model_path', '')).name}"
    return ""


def summary(folder: Path, made: dict[str, str], servers: Sequence[Task]) -> str:
    """Return one table of all matrices there are: a row for each cell, a column for each matrix."""
    names = [f"{task.name}-{way}" for task in servers for way in task.ways if task.file(way).exists()]
    results = {name: read_result(folder / f"{name}.json") for name in names}
    lines = [f"# Matrices: {made['level']}, {made['wire']} wire, code {made['code']}", ""]
    lines += [f"- {task.name}: {build_of(task.base_url) or task.base_url}" for task in servers]
    lines += [f"- {name}: {result.started}, {result.model}; {headline(result)}" for name, result in results.items()]
    lines += ["", f"| cell | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    cells = {name: {cell.id: cell for cell in result.cells} for name, result in results.items()}
    for each in dict.fromkeys(key for known in cells.values() for key in known):
        found = [known.get(each) for known in cells.values()]
        star = " \\*" if any(cell is not None and cell.required for cell in found) else ""
        words = [
            "" if cell is None else f"{MARKS[cell.verdict]} {of(cell)}" + (f" {cell.owner}" if cell.owner else "")
            for cell in found
        ]
        lines.append(f"| `{each}`{star} | {' | '.join(words)} |")
    lines += ["", "## What was seen where it does not hold", ""]
    for name, result in results.items():
        lines += [
            f"- {name} `{cell.id}` {cell.verdict} {of(cell)} ({cell.owner or 'nobody'}): {cell.note}"
            for cell in result.cells
            if cell.verdict != "held" and (cell.note or cell.measured)
        ]
    return "\n".join(lines) + "\n"


def read_words(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--server", action="append", default=[], metavar="NAME=URL", help="a server that runs")
    parser.add_argument("--model", action="append", default=[], help="a model of the catalogue, or NAME=PATH.gguf")
    parser.add_argument("--level", type=Level, choices=list(Level), default=Level.DEFAULT)
    parser.add_argument("--wire", type=Wire, choices=list(Wire), default=Wire.CHAT)
    parser.add_argument("--way", action="append", choices=WAYS, help="[default: both]")
    parser.add_argument("--cell", action="append", default=[], help="only this cell or guarantee")
    parser.add_argument("--minutes", type=float, help="stop after so long, and go on when called again")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds one answer may take to begin")
    parser.add_argument("--summary", action="store_true", help="only write summary.md again")
    return parser.parse_args(words)


@contextlib.contextmanager
def running(words: argparse.Namespace) -> Generator[list[Task]]:
    """Start the models that are named, and yield every server there is."""
    given = dict(each.split("=", 1) for each in words.server)
    with contextlib.ExitStack() as stack:
        for each in words.model:
            name, _, path = each.rpartition("=")
            if words.summary:
                given[name or path] = ""
            else:
                server = LlamaServer(Path(path) if path.endswith(".gguf") else path)
                given[name or path] = stack.enter_context(server).base_url
        yield [
            Task(
                name=name,
                base_url=url,
                folder=words.folder,
                level=words.level,
                wire=words.wire,
                ways=tuple(words.way or WAYS),
                cells=tuple(words.cell),
                timeout=words.timeout,
            )
            for name, url in given.items()
        ]


def main() -> int:
    """Measure what is asked for; return the exit code."""
    words = read_words()
    made = {"code": code(), "level": str(words.level), "wire": str(words.wire)}
    check_folder(words.folder, made)
    with running(words) as tasks:
        if not tasks:
            sys.exit("name a server (--server NAME=URL) or a model (--model NAME)")
        minutes = words.minutes
        done = words.summary or asyncio.run(measure_all(tasks, None if minutes is None else minutes * 60))
        (words.folder / "summary.md").write_text(summary(words.folder, made, tasks), encoding="utf-8")
    print(f"wrote {words.folder / 'summary.md'}" + ("" if done else "; not complete: call it again"), flush=True)
    return 0 if done else NOT_DONE


if __name__ == "__main__":
    sys.exit(main())
