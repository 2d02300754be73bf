"""CPU cost of the dialect scanner, read against its targets.

    python benchmarks/dialects.py            every dialect, calls up to 1 MB
    python benchmarks/dialects.py --quick    calls up to 100 kB, hostile texts of 100 kB with fewer repeats

Figures are CPU time of this process: the best of a few runs, since other work on the machine can only add to it. What
must hold on any machine are the ratios: doubling the input at most 2.2 times the time, judged for every doubling that
takes long enough to be compared. A run makes over 1,500 of those comparisons; one that misses is looked at again a
little later, with twice as many runs, up to three times.
"""

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from mustcall.core.tools import Tool
from mustcall.dialects import DIALECTS, Dialect, Scanner, Standing, WrittenCall
from mustcall.dialects.reasoning import CONTROLS, QUOTATIONS, RESULTS, SECTIONS

DELTA = 4
TOOLS = (Tool(name="write_file", parameters={"type": "object", "properties": {"text": {"type": "string"}}}),)
LINE = 'Lorem ipsum dolor sit amet, "consectetur" (adipiscing) elit; see [1] and a < b.\n'
PROSE = "The quick brown fox jumps over the lazy dog, as it does (see *notes*), and goes on to [2] the hills. "
RATIO = 2.2
#: Seconds before each look at one comparison. Other work on a machine comes in bursts; growth does not go away.
WAITS = (0, 2, 10, 30)
# What takes less cannot be compared: the clock and the collector would decide.
FLOOR = 0.004


def pieces_of(text: str) -> list[str]:
    """Cut a text as a server streams it."""
    return [text[start : start + DELTA] for start in range(0, len(text), DELTA)]


def cpu(run: Callable[[], object], repeats: int = 3) -> float:
    """Return the best CPU time of a few runs."""
    best = float("inf")
    # The collector runs when the process as a whole has made enough objects; its share would fall on some runs only.
    gc.disable()
    for _ in range(repeats):
        begin = time.process_time()
        run()
        best = min(best, time.process_time() - begin)
    gc.enable()
    return best


def growth(small: Callable[[], object], large: Callable[[], object], repeats: int) -> float:
    """Return how much longer the large one takes: the best of each, in turns; what misses is looked at again later."""
    ratio = 0.0
    for wait in WAITS:
        time.sleep(wait)
        pairs = [(cpu(small, 1), cpu(large, 1)) for _ in range(repeats)]
        ratio = min(large for _, large in pairs) / max(min(small for small, _ in pairs), 1e-9)
        if ratio <= RATIO:
            break
        repeats *= 2
    return ratio


def worst_doubling(make: Callable[[int], Callable[[], object]], sizes: list[int], repeats: int) -> tuple[float, int]:
    """Return the worst ratio between neighbours of a series of doubled sizes, and the size it was seen at."""
    runs = [make(size) for size in sizes]
    worst, where = 0.0, 0
    for size, small, large in zip(sizes[1:], runs, runs[1:], strict=False):
        if cpu(small, 1) >= FLOOR:
            ratio = growth(small, large, repeats)
            if ratio > worst:
                worst, where = ratio, size
    return worst, where


def feed(
    pieces: Iterable[str],
    dialects: Sequence[str | Dialect] | None = None,
    *,
    loose: bool = True,
    tools: Sequence[Tool] = TOOLS,
) -> None:
    """Scan the pieces and drop the events, as a consumer that keeps up would."""
    scanner = Scanner(dialects=dialects or "auto", tools=tools, loose=loose)
    for piece in pieces:
        scanner.feed(piece)
    scanner.close()


def median_delta(text: str, dialects: Sequence[str | Dialect] | None = None) -> float:
    """Return the median time of one delta, in microseconds."""
    scanner = Scanner(dialects=dialects or "auto", tools=TOOLS, loose=True)
    times: list[int] = []
    for piece in pieces_of(text):
        begin = time.perf_counter_ns()
        scanner.feed(piece)
        times.append(time.perf_counter_ns() - begin)
    scanner.close()
    return statistics.median(times) / 1000


def call_of(dialect: Dialect, size: int) -> str:
    """Return one call in this dialect whose argument has about this size."""
    text = (LINE * (size // len(LINE) + 1))[:size]
    return dialect.render([WrittenCall("write_file", {"text": text})])


def report(label: str, figure: str, *, holds: bool) -> bool:
    """Print one line and whether it holds."""
    print(f"{'ok  ' if holds else 'MISS'} {label:46} {figure}", flush=True)
    return holds


def prose() -> bool:
    """Plain text: whole, and in deltas."""
    text = (PROSE * 12 + "\n\n") * 1000
    rate = len(text) / cpu(lambda: feed([text])) / 1e6
    fine = report("prose, whole text", f"{rate:.0f} MB/s (target 20)", holds=rate >= 20)
    delta = median_delta(text[:400_000])
    return report("prose, median delta", f"{delta:.2f} us (target 5)", holds=delta < 5) and fine


def reply() -> bool:
    """A typical reply of 4 kB: prose, reasoning and two calls."""
    hermes = DIALECTS[0]
    call = hermes.render([WrittenCall("write_file", {"text": LINE * 12})] * 2)
    text = f"<think>{PROSE * 6}</think>\n{PROSE * 6}\n{call}\n{PROSE * 4}"
    text = (text + PROSE * 10)[:4096]
    spent = cpu(lambda: feed([text]), repeats=20) * 1000
    return report("a reply of 4 kB, whole", f"{spent:.3f} ms (target 1)", holds=spent < 1)


def calls(top: int) -> bool:
    """One call in every dialect, alone and among all: cost per delta, and what doubling the size costs."""
    fine = True
    for dialect in DIALECTS:
        together = [dialect, *(other for other in DIALECTS if other.standing is Standing.AUTO)]
        for label, active, most in (("", [dialect], top), (" in auto", together, top // 4)):

            def make(size: int, dialect: Dialect = dialect, active: Sequence[Dialect] = active) -> Callable[[], None]:
                pieces = pieces_of(call_of(dialect, size))
                return lambda: feed(pieces, active)

            sizes = [most // 8, most // 4, most // 2, most]
            worst, where = worst_doubling(make, sizes, 5)
            each = [1e6 * DELTA * cpu(make(size), 1) / size for size in (1_000, 10_000, most)]
            middle = median_delta(call_of(dialect, 40_000), active)
            figure = " ".join(f"{figure:5.2f}" for figure in each)
            fine &= report(
                f"call in {dialect.name}{label}",
                f"{figure} us/delta at 1 kB, 10 kB, {most // 1000} kB, median {middle:.2f}; "
                f"doubling at most x{worst:.2f} (to {where // 1000} kB)",
                holds=worst <= RATIO and middle < 10,
            )
    return fine


def many_parameters() -> bool:
    """Calls with many parameters, of a tool that declares them and of one that declares others: cost per parameter."""
    fine = True
    for label, declared, key in (("declared", 300, "declared_{}"), ("undeclared", 100, "unknown_{}")):
        properties = {f"declared_{number}": {"type": "string"} for number in range(declared)}
        tools = (Tool(name="wide", parameters={"type": "object", "properties": properties}),)
        worst = [0.0, ""]
        for dialect in DIALECTS:
            spent: list[float] = []
            for count in (100, 300):
                arguments = {key.format(number): "v" for number in range(count)}
                pieces = pieces_of(dialect.render([WrittenCall("wide", arguments)]))
                active = [dialect, *(other for other in DIALECTS if other.standing is Standing.AUTO)]
                spent.append(cpu(lambda p=pieces, a=active, t=tools: feed(p, a, tools=t)) / count)
            worst = max(worst, [max(spent) * 1e6, f"{dialect.name} (x{spent[1] / spent[0]:.2f} from 100 to 300)"])
        fine &= report(
            f"calls with 100 and 300 {label} parameters",
            f"at most {worst[0]:.0f} us/parameter (target 200), in {worst[1]}",
            holds=float(worst[0]) < 200,
        )
    return fine


def _feeder(pieces: list[str]) -> Callable[[], None]:
    return lambda: feed(pieces)


def hostile_units() -> list[str]:
    """Return short texts that are all markup: markers of every kind, their beginnings, and what looks like them."""
    openers = {opener.marker for dialect in DIALECTS for opener in dialect.openers}
    closers = {closer for dialect in DIALECTS for closer in dialect.closers}
    sections = {marker for section in SECTIONS for marker in (section.opener, *section.closers)}
    others = {control.marker for control in CONTROLS} | RESULTS.keys() | QUOTATIONS.keys()
    units = ["[a, {", '[{"name": "', "[write_file(", "<x:", '\n{"name": "write_file", ', "`", "~", "\n[a(", " ", "\n"]
    units += [
        " to=a<",
        "to=functions.write_file<|message|>",
        "<|im_start|>assistant",
        "\ufeff",
        "\nTool: write_file(a ",
    ]
    units += ["\nAction: write_file\nAction Input: a", '\n{"name":"write_file","parameters":{"type":']
    units += ["`a\n", "\n```\n` ", "`\n", "\n\n`a", "`` ` ", "``a\n", "~~~\n", "<think></think>", '"<tool_call>\n']
    units += [
        '<tool_call>{"name":"write_file","arguments":{}}',
        '<tool_call>{"name":"x","arguments":{}}',
        "@write_file{",
    ]
    markers = sorted(openers | closers | sections | others)
    units += [marker[:-1] for marker in markers if len(marker) > 2]
    units += markers
    units += ["\n" + marker for marker in markers]
    return list(dict.fromkeys(units))


def hostile(top: int, repeats: int, pairs: int) -> bool:
    """Repeated markup: time must grow with the length, whole and in deltas, and stay below a bound."""
    units = hostile_units()
    sizes = [repeats // 4, repeats // 2, repeats]
    doubled = [0.0, ""]
    slowest = [0.0, ""]
    for unit in units:
        for cut in (False, True):

            def make(size: int, unit: str = unit, *, cut: bool = cut) -> Callable[[], None]:
                text = unit * size
                return _feeder(pieces_of(text) if cut else [text])

            ratio, _ = worst_doubling(make, sizes, pairs)
            doubled = max(doubled, [ratio, f"{unit!r}{' in deltas' if cut else ''}"])
        spent = cpu(_feeder([(unit * (top // len(unit) + 1))[:top]]), 1)
        slowest = max(slowest, [spent, repr(unit)])
    fine = report(
        f"{len(units)} hostile texts, {sizes[0]} .. {sizes[-1]} repeats",
        f"doubling at most x{doubled[0]:.2f}, at {doubled[1]}",
        holds=float(doubled[0]) <= RATIO,
    )
    # Not scaled to 1 MB: what markup may cost is bounded, so a shorter text costs more for each character.
    seconds = float(slowest[0])
    label = f"{len(units)} hostile texts of {top // 1000} kB, whole"
    return report(label, f"slowest {seconds:.2f} s (target 1), {slowest[1]}", holds=seconds < 1) and fine


def main() -> int:
    """Run everything; the exit status says whether all targets were met."""
    parser = argparse.ArgumentParser(description="What the dialect scanner costs, read against its targets.")
    parser.add_argument("--quick", action="store_true", help="calls up to 100 kB, and fewer repeats of hostile texts")
    top, repeats, pairs = (100_000, 800, 5) if parser.parse_args().quick else (1_000_000, 6000, 5)
    feed(["warm up"])
    results = [prose(), reply(), many_parameters(), hostile(top, repeats, pairs), calls(top)]
    print("all targets met" if all(results) else "some targets missed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
