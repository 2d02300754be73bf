"""Run real clients against a scripted model that misbehaves, without and through the gateway; print a table.

Installs pinned clients from npm and PyPI into a cache folder, once. Each cell is one client, one misbehaviour and one
arm: `direct`, `same` (gateway, the client's own wire upstream), `cross` (gateway, another wire upstream). Results are
appended to a file as they come: a run that was stopped goes on where it was. Exit status 1 if a cell through the
gateway is not right, 130 if the run was stopped.

    python tools/clients.py                          # everything; an hour on two cores
    python tools/clients.py --client codex --case good,held
    python tools/clients.py --mustcall ../other/.venv/bin/python --json other.jsonl --html other.html
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent))

from clientmatrix.adapters import CLIENTS
from clientmatrix.cases import CASES
from clientmatrix.cells import prepare, run_cell
from clientmatrix.installing import default_cache
from clientmatrix.pages import LEGEND, draw_changes, draw_summary, draw_text
from clientmatrix.processes import STOPPING, Stopped, stop_on_signals
from clientmatrix.reading import WIRES
from clientmatrix.scoring import ARMS, Cell, End, Planned, plan, read_cell, write_cell
from clientmatrix.webpage import draw_page

_LOOK = 0.2  # seconds between looks at whether the run is stopped


def _choice(known: Sequence[str]) -> Callable[[str], list[str]]:
    def read(text: str) -> list[str]:
        chosen = [
            name for name in known if any(name == part or name.startswith(f"{part}-") for part in text.split(","))
        ]
        unknown = [part for part in text.split(",") if not any(n == part or n.startswith(f"{part}-") for n in known)]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(known)}")
        return chosen

    return read


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names, cases = [c.name for c in CLIENTS], [c.name for c in CASES]
    parser.add_argument(
        "--client", type=_choice(names), default=names, help="only these, by commas; ai5 means all of it"
    )
    parser.add_argument("--case", type=_choice(cases), default=cases, help="only these, by commas")
    parser.add_argument("--wire", type=_choice(WIRES), default=list(WIRES), help="only cells with this upstream wire")
    parser.add_argument("--arm", type=_choice(ARMS), default=list(ARMS), help="only direct, same or cross")
    parser.add_argument("--jobs", type=int, default=2, help="cells at a time [2]")
    parser.add_argument(
        "--mustcall", default=sys.executable, metavar="PYTHON", help="whose gateway: a checkout's python"
    )
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where clients are installed")
    parser.add_argument("--json", type=Path, help="the results, one a line; cells in it are not run again")
    parser.add_argument("--html", type=Path, help="write the page")
    parser.add_argument("--before", type=Path, help="an earlier run's results: say what changed")
    parser.add_argument("--again", action="store_true", help="run cells again that are in the results already")
    parser.add_argument("--patience", type=float, default=1.0, help="multiplies every time limit")
    parser.add_argument("--list", action="store_true", help="print clients and cases, run nothing")
    parser.add_argument("--show", action="store_true", help="print the results that are there, run nothing")
    return parser.parse_args(arguments)


def main() -> int:
    """Run what is asked for."""
    options = read_options()
    stop_on_signals()
    if options.list:
        _print_tables()
        return 0
    # The gateway starts in another folder; a link is not followed, because an environment is known by its own path.
    options.mustcall = str(Path(options.mustcall).absolute()) if "/" in options.mustcall else options.mustcall
    results: Path = options.json or options.cache / "results.jsonl"
    kept = _read(results)
    cells = plan(
        [c for c in CLIENTS if c.name in options.client],
        [c for c in CASES if c.name in options.case],
        options.arm,
        options.wire,
    )
    there = {cell.key for cell in kept if cell.end is not End.BROKEN}
    todo = [] if options.show else [cell for cell in cells if options.again or cell.key not in there]
    try:
        failed = prepare(list({c.client.folder: c.client for c in todo}.values()), options.cache)
    except Stopped:
        print("stopped while clients were installed; the same command goes on from here", file=sys.stderr)
        return 130
    for name, why in failed.items():
        print(f"{name} cannot be installed and is left out: {why}", file=sys.stderr)
    lost = {c.folder for c in CLIENTS if c.name in failed}
    kept += _run_all([c for c in todo if c.client.folder not in lost], options, results)
    if STOPPING.is_set():
        return 130
    wanted = {cell.key for cell in cells}
    shown = [cell for cell in kept if cell.key in wanted]
    print(draw_text(shown), LEGEND, draw_summary(shown), sep="\n\n")
    if options.before:
        print("", draw_changes(_read(options.before), shown), sep="\n")
    if options.html:
        options.html.write_text(draw_page(shown, "Clients under misbehaviour"))
    return int(any(not cell.right and cell.arm != "direct" for cell in {c.key: c for c in shown}.values()))


def _run_all(todo: list[Planned], options: argparse.Namespace, results: Path) -> list[Cell]:
    results.parent.mkdir(parents=True, exist_ok=True)
    done: list[Cell] = []
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool, results.open("a") as out:
        pending = {pool.submit(run_cell, cell, options.cache, options.mustcall, options.patience) for cell in todo}
        while pending and not STOPPING.is_set():
            over, pending = wait(pending, _LOOK, FIRST_COMPLETED)
            for cell in _results(over):
                done.append(cell)
                out.write(json.dumps(write_cell(cell)) + "\n")
                out.flush()
                mark = "right" if cell.right else cell.end.value
                spent = time.monotonic() - began
                print(
                    f"[{len(done)}/{len(todo)} {spent:.0f} s] {cell.client} {cell.case} {cell.arm}: {mark}",
                    f"({cell.calls} calls, {cell.seconds} s)",
                    file=sys.stderr,
                )
        pool.shutdown(wait=True, cancel_futures=True)
    if len(done) < len(todo):
        print(f"stopped after {len(done)} of {len(todo)} cells; the same command goes on from here", file=sys.stderr)
    return done


def _results(over: set[Future[Cell]]) -> list[Cell]:
    """What cells came to; those that were stopped came to nothing."""
    return [future.result() for future in over if not isinstance(future.exception(), Stopped)]


def _read(results: Path) -> list[Cell]:
    if not results.is_file():
        return []
    return [read_cell(json.loads(line)) for line in results.read_text().splitlines() if line.strip()]


def _print_tables() -> None:
    for client in CLIENTS:
        print(f"{client.name:24} {client.packages[0]:42} {client.wire} (other: {client.other})")
    print()
    for case in CASES:
        print(f"{case.name:20} {case.group:10} {', '.join(case.wires):27} {case.says}")


if __name__ == "__main__":
    sys.exit(main())
