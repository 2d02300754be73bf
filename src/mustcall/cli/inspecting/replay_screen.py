"""What `replay` and `minimise` draw in a terminal: progress on standard error, the figures on standard output."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from mustcall.cli.inspecting.tables import console, one_line, print_labelled
from mustcall.cli.measuring.progress import counting_bar
from mustcall.evals.report.statistics import Share
from mustcall.replay import ReplaySample, ReplaySummary
from mustcall.replay.parts import Size

__all__ = ["print_summary", "sampling_bar", "searching_bar"]

_EVERY = 10


@contextmanager
def sampling_bar(planned: int) -> Generator[Callable[[ReplaySample], None]]:
    """Show a bar with the time left; where there is no terminal, a line now and then."""
    screen = Console(stderr=True, highlight=False)
    count, served = 0, 0

    def note(sample: ReplaySample) -> str:
        nonlocal count, served
        count, served = count + 1, served + sample.ok
        return f"{sample.arm}: {sample.verdict or sample.error}"

    if not screen.is_terminal:

        def say(sample: ReplaySample) -> None:
            note(sample)
            if count % _EVERY == 0:
                screen.print(f"{count} of {planned} samples; served: {served}")

        yield say
        return
    with counting_bar(screen) as progress:
        task = progress.add_task("sending", total=planned)
        yield lambda sample: progress.update(task, advance=1, description=note(sample))


@contextmanager
def searching_bar(most: int) -> Generator[Callable[[ReplaySample, Size], None]]:
    """Show how many calls are used and how large the candidates are."""
    screen = Console(stderr=True, highlight=False)
    count = 0

    def words(sample: ReplaySample, size: Size) -> str:
        return f"{sample.verdict}: {size.tool_words}, {size.message_words}, {size.bytes / 1000:.1f} kB"

    if not screen.is_terminal:

        def say(sample: ReplaySample, size: Size) -> None:
            nonlocal count
            count += 1
            if count % _EVERY == 0:
                screen.print(f"{count} of {most} calls; {words(sample, size)}")

        yield say
        return
    with counting_bar(screen) as progress:
        task = progress.add_task("asking", total=most)
        yield lambda sample, size: progress.update(task, advance=1, description=words(sample, size))


def print_summary(told: ReplaySummary) -> None:
    """Print what the samples come to."""
    out = console()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("", "served", "95 % interval", "calls", "seconds", "tokens", "cost"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for arm in told.arms:
        cost = f"${arm.cost_usd:.4f}{'+' if arm.estimated else ''}"
        tokens = f"{arm.input_tokens}+{arm.output_tokens}"
        table.add_row(
            str(arm.arm), _counts(arm.ok), _interval(arm.ok), str(arm.calls), f"{arm.seconds:.1f}", tokens, cost
        )
    out.print(table)
    for arm in told.arms:
        for words, count in arm.verdicts.items():
            print_labelled(out, f"{arm.arm:9}{count:4} times ", one_line(words))
    if told.recovered is not None:
        share = told.recovered
        rate = f"recovered: {share.rate:.0%} of turns whose first attempt failed"
        out.print(f"{rate} ({_counts(share)}; 95 % interval {_interval(share)})")
    for line in told.differs:
        print_labelled(out, "", one_line(line))


def _counts(share: Share) -> str:
    return f"{share.hits} of {share.of}"


def _interval(share: Share) -> str:
    return f"{share.low:.0%} to {share.high:.0%}"
