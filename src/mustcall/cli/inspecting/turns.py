"""`mustcall turns`: what the gateway's turns came to, and what each attempt of one sent and got back."""

import asyncio
import contextlib
import difflib
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mustcall import __version__
from mustcall.cli.groups import Group
from mustcall.cli.inspecting.recording import find_turn
from mustcall.cli.inspecting.tables import (
    aligned,
    cell,
    console,
    gateway_ledger,
    moment,
    on_ledger,
    print_labelled,
    styled,
)
from mustcall.cli.measuring.options import FILE
from mustcall.cli.printing import json_option, print_json
from mustcall.cli.writing import written
from mustcall.core.errors import ConfigError, UpstreamRejected
from mustcall.core.verdict import GONE, TOOL_PROBE, OutcomeKind, Verdict
from mustcall.gateway.config.budget_settings import SessionBy, session_of
from mustcall.ledger import AttemptTrace, Ledger, TurnFilter, TurnTrace, open_ledger
from mustcall.ledger.redacting import redact as redacted
from mustcall.replay import as_bundle
from mustcall.toolkit.builtin.files import plain

__all__ = ["command"]

_STYLES = {
    "calls": "green",
    "answer": "green",
    "failure": "red",
    "answered": "green",
    "called": "green",
    "rejected": "red",
    "unavailable": "red",
}
#: Seconds between two looks for new turns, and how many one look finds at most.
_LOOK = 0.5
_FOUND = 200
#: The columns of the list. In a terminal, verdicts get what the time and the outcome leave of a line.
_HEADS = ("time", "outcome", "verdicts", "took", "tokens", "model", "turn")
_BEFORE = len("2026-11-17 09:00:00  failure  ")
_LEAST_ROOM = 20
#: Columns of a line where there is no terminal.
_USUAL = 80
#: Lines around a change that are shown.
_AROUND = 2
#: Lines of an upstream's error that are shown.
_MOST_ERROR_LINES = 40
#: The words of attempts.
_VERDICTS = [*(str(word) for word in Verdict), TOOL_PROBE]
_NOT_KEPT = 'contents are not kept; `[ledger] contents = "redacted"` (or "full") keeps those of new turns'


_SESSION = "Only of this session: the name its caller gave it, or the first digits of its digest."


def _filters(command: Any) -> Any:
    """Add the options that say which turns are wanted."""
    for option in (
        click.option(
            "--verdict", type=click.Choice(_VERDICTS), help="Show only turns with an attempt of this verdict."
        ),
        click.option(
            "--outcome", type=click.Choice([*(str(word) for word in OutcomeKind), GONE]), help="Only with this end."
        ),
        click.option("--session", metavar="NAME|DIGITS", help=_SESSION),
        click.option("--client", help="Only of the client of this name, as its User-Agent begins: codex, claude-cli."),
        click.option("--upstream", help="Only of this upstream."),
        click.option("--model", help="Only of the model of this name, as the caller wrote it."),
    ):
        command = option(command)
    return command


@click.group(name="turns", cls=Group)
def command() -> None:
    """List, show, follow and export the turns of the gateway."""


@command.command(name="list", short_help="Show the last turns.")
@gateway_ledger
@_filters
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="The most to show.")
@json_option
def list_command(place: str | None, limit: int, *, as_json: bool, **given: str | None) -> None:
    """Show turns, the newest first."""

    async def read(ledger: Ledger) -> tuple[str, list[TurnTrace]]:
        return ledger.store.place, await ledger.turns(_wanted(given), most=limit)

    where, turns = on_ledger(place, read)
    if as_json:
        print_json([_summary(turn) for turn in turns])
        return
    if not turns:
        wanted = " like this" if any(given.values()) else ""
        click.echo(f"no turns{wanted} in the ledger at {where}")
        return
    out = console()
    heads = [Text(name, style="bold") for name in _HEADS]
    _print_rows(out, [heads, *(_cells(turn, _room(out)) for turn in turns)])


@command.command(short_help="Show new turns as they end.")
@gateway_ledger
@_filters
@json_option
def tail(place: str | None, *, as_json: bool, **given: str | None) -> None:
    """Print one line for each turn as it ends, until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_follow(place, _wanted(given), as_json=as_json))


async def _follow(place: str | None, wanted: TurnFilter, *, as_json: bool) -> None:
    async with open_ledger(place, make=False) as ledger:
        seen = {turn.id for turn in await ledger.turns(wanted, most=_FOUND)}
        while True:
            turns = await ledger.turns(wanted, most=_FOUND)
            for turn in reversed(turns):
                if turn.id not in seen:
                    _print_one(turn, as_json=as_json)
            seen = {turn.id for turn in turns}
            await asyncio.sleep(_LOOK)


def _print_one(turn: TurnTrace, *, as_json: bool) -> None:
    if as_json:
        print_json(_summary(turn))
    else:
        out = console()
        _print_rows(out, [_cells(turn, _room(out), " tokens")])  # no header says it


@command.command(short_help="Show one turn and its attempts.")
@click.argument("turn_id")
@gateway_ledger
@json_option
def show(turn_id: str, place: str | None, *, as_json: bool) -> None:
    """Show TURN_ID (`x-mustcall-trace` of its answer): its attempts, what each sent and got back, and why."""
    turn = asyncio.run(find_turn(place, turn_id))
    if as_json:
        print_json(_whole(turn))
        return
    out = console()
    _print_head(out, turn)
    out.print(_attempts(turn.attempts))
    _print_contents(out, turn)


@command.command(short_help="Write one turn as a bundle that replays elsewhere.")
@click.argument("turn_id")
@click.argument("file", type=FILE)
@gateway_ledger
@click.option("--redact", is_flag=True, help="Mask secrets and personal marks, also where the ledger keeps them.")
@click.option("--force", "-f", is_flag=True, help="Replace the file if it is there.")
@json_option
def export(turn_id: str, file: Path, place: str | None, *, redact: bool, force: bool, as_json: bool) -> None:
    """Write TURN_ID with all that is kept of it to FILE, for `mustcall replay FILE` or for a bug report.

    Only its owner can read the file.
    """
    if file.is_file() and not force:
        raise ConfigError(f"{file} is there already and was left as it is; --force replaces it")
    turn = asyncio.run(find_turn(place, turn_id))
    bundle = as_bundle(turn, __version__)
    with written(file, private=True) as part:
        part.write_bytes(redacted(bundle) if redact else bundle)
    if as_json:
        print_json({"turn": turn.id, "file": str(file)})
    else:
        click.echo(f"wrote {file}")
    if b"[redacted " not in bundle and not redact:
        click.echo("note: it holds what was said as it was said; --redact masks secrets", err=True)


def _wanted(given: dict[str, str | None]) -> TurnFilter:
    wanted = {name: value for name, value in given.items() if value is not None}
    if name := wanted.get("session"):
        # Of callers without a key; whose key belongs to a session is not told by its name.
        wanted["or_session"] = session_of(name, None, SessionBy.SESSION) or ""
    return TurnFilter(**wanted)


def _styled(word: str) -> Text:
    return styled(word, _STYLES)


def _verdicts(attempts: Sequence[AttemptTrace]) -> Text:
    """Return the verdicts in order, the remedies between them left out; one that comes again is counted."""
    words = [attempt.verdict or attempt.error or "none" for attempt in attempts]
    runs = [(word, len(list(same))) for word, same in groupby(words)]
    return Text(" → ").join([_styled(word) + (f" ({times} times)" if times > 1 else "") for word, times in runs])


def _cells(turn: TurnTrace, room: int, unit: str = "") -> list[Text]:
    """Return the columns of a turn, its id last: that is what `show` takes. Verdicts are broken at `room` columns."""
    verdicts = _verdicts(turn.attempts) if turn.attempts else Text("-")
    return [
        Text(moment(turn.at), style="dim"),
        _styled(turn.outcome or str(turn.status)),
        Text("\n").join(verdicts.wrap(console(), room)) if room else verdicts,
        Text(f"{turn.seconds:.2f} s"),
        Text(f"{turn.input_tokens}+{turn.output_tokens}{unit}"),
        cell(turn.model),
        Text(turn.id, style="cyan"),
    ]


def _room(out: Console) -> int:
    """Return how wide verdicts may be in a terminal, so that they fit beside the time and the outcome; 0 elsewhere."""
    return max(_LEAST_ROOM, out.width - _BEFORE) if out.is_terminal else 0


def _print_rows(out: Console, rows: Sequence[Sequence[Text]]) -> None:
    for line in aligned(rows, out.width if out.is_terminal else 0):
        out.print(line, soft_wrap=True)


def _print_head(out: Console, turn: TurnTrace) -> None:
    out.print(Text.assemble(cell(turn.id), "  ", _styled(turn.outcome or "no outcome"), f"  {moment(turn.at)}"))
    rows: list[tuple[str, str]] = [
        ("request", f"{turn.wire}, model {turn.model}, to {turn.upstream}"),
        ("answer", f"status {turn.status} after {turn.seconds:.3f} s, {turn.input_tokens}+{turn.output_tokens} tokens"),
        ("protocol", f"{turn.protocol}, force {turn.force}"),
        ("changed", ", ".join(turn.adaptations)),
    ]
    for name, value in rows:
        if value:
            print_labelled(out, f"{name:9}", plain(value), otherwise=_USUAL)


#: What was wrong with a reply whose verdict says it all.
_WRONG: dict[str, str] = {
    Verdict.TEXT_CALL: "the call was written as text",
    Verdict.PHANTOM_CALL: "it ended as a call does, and there was none",
    Verdict.FORCE_MISSED: "no call came",
    Verdict.TRUNCATED: "cut off before it was complete",
    Verdict.EMPTY: "nothing was said",
    Verdict.THINKING_ONLY: "only reasoning, no answer",
    Verdict.LOOPING: "the same call again and again",
    Verdict.ANNOUNCED_ONLY: "a call was announced, and not made",
    Verdict.STARVED: "the server cut the prompt without an error",
}


def _what_was_wrong(attempt: AttemptTrace) -> str:
    """Return what an attempt's details say was wrong, else what its verdict means, with the tool that was called."""
    wrong = attempt.problem or attempt.error
    if not wrong and attempt.tool and attempt.verdict == Verdict.FORCE_MISSED:
        wrong = "not the call that was demanded"
    wrong = wrong or _WRONG.get(attempt.verdict or "", "")
    if wrong.startswith(attempt.tool):
        return wrong
    return f"{attempt.tool}: {wrong}" if wrong else attempt.tool


def _attempts(attempts: Sequence[AttemptTrace]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("attempt", "rung", "verdict", "remedy", "seconds", "sends", "tokens", "what was wrong"):
        table.add_column(name, justify="right" if name in ("seconds", "sends", "tokens") else "left")
    for attempt in attempts:
        for number, retry in enumerate(attempt.retries, 1):
            again = f"{retry.why}: sent again after {retry.wait:.2f} s"
            seconds = f"{retry.seconds:.2f}"
            unavailable = _styled(str(Verdict.UNAVAILABLE))
            table.add_row(f"{attempt.number}.{number}", attempt.rung, unavailable, "", seconds, "1", "", cell(again))
        table.add_row(
            f"{attempt.number}.{len(attempt.retries) + 1}" if attempt.retries else str(attempt.number),
            attempt.rung,
            _styled(attempt.verdict or ""),
            attempt.remedy or "",
            f"{attempt.seconds - sum(retry.seconds + retry.wait for retry in attempt.retries):.2f}",
            str(attempt.sends - len(attempt.retries)),
            f"{attempt.input_tokens}+{attempt.output_tokens}",
            cell(_what_was_wrong(attempt)),
        )
    return table


def _print_contents(out: Console, turn: TurnTrace) -> None:
    """Print what was sent and what came back: the first request whole, the next as what changed."""
    if not any(attempt.request for attempt in turn.attempts):
        out.print(Text(_NOT_KEPT, style="dim"))
        return
    before: list[str] | None = None
    for attempt in turn.attempts:
        lines = _lines(attempt.request)
        out.print(Text(f"\nattempt {attempt.number}: sent", style="bold"))
        if before is None:
            out.print(Text("\n".join(lines)))
        elif before == lines:
            out.print(Text("the same as before", style="dim"))
        else:
            for line in _changes(before, lines):
                out.print(Text(line, style={"+": "green", "-": "red"}.get(line[:1], "dim")))
        before = lines
        out.print(Text(f"attempt {attempt.number}: came back", style="bold"))
        for line in _said(attempt.reply) if attempt.reply else _failed(attempt, turn):
            out.print(line)


def _changes(before: list[str], after: list[str]) -> Iterable[str]:
    """Return the lines that changed, with a few around them."""
    for line in difflib.unified_diff(before, after, lineterm="", n=_AROUND):
        if not line.startswith(("---", "+++")):
            yield "…" if line.startswith("@@") else line


def _lines(body: bytes) -> list[str]:
    """Return a body as lines that a person can read."""
    text = body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(body), ensure_ascii=False, indent=2)
    return [plain(line, keep="\t") for line in text.splitlines()]


def _failed(attempt: AttemptTrace, turn: TurnTrace) -> Iterable[Text]:
    """Return what came of an attempt without a reply: the upstream's own words, else those of the turn's error."""
    last = attempt is turn.attempts[-1]
    words = attempt.raw or (turn.reply if last and turn.error else b"")
    if not words:
        yield Text("nothing that could be read", style="dim")
        return
    status = f", HTTP {turn.status}" if last and turn.error == UpstreamRejected.code else ""
    code = f" {attempt.error}" if attempt.error and not status else ""
    yield Text(f"error{code}{status}", style="red")
    lines = _lines(words)
    yield from map(Text, lines[:_MOST_ERROR_LINES])
    if len(lines) > _MOST_ERROR_LINES:
        yield Text("…", style="dim")


def _said(reply: bytes) -> Iterable[Text]:
    """Return what an attempt's reply says, line by line."""
    try:
        said = json.loads(reply)
    except ValueError:
        yield Text(plain(reply.decode("utf-8", "replace"), keep="\n\t"))
        return
    for part in said["parts"]:
        if "call" in part:
            yield Text.assemble(("call ", "cyan"), Text(plain(f"{part['call']} {part['arguments']}")))
        else:
            (kind, text), *_ = part.items()
            style = "" if kind == "text" else "dim"
            yield Text("" if kind == "text" else f"{kind}: ", style="dim") + Text(plain(text, keep="\n\t"), style=style)
    yield Text(f"finish: {said['finish']}", style="dim")


def _summary(turn: TurnTrace) -> dict[str, Any]:
    """Return a turn without contents."""
    shown = msgspec.structs.asdict(msgspec.structs.replace(turn, request=b"", reply=b""))
    shown["attempts"] = [
        {name: value for name, value in msgspec.structs.asdict(one).items() if name not in ("request", "reply", "raw")}
        for one in turn.attempts
    ]
    return {name: value for name, value in shown.items() if name not in ("request", "reply")}


def _whole(turn: TurnTrace) -> dict[str, Any]:
    """Return a turn with all that is kept of it."""
    shown = _summary(turn)
    shown["request"], shown["reply"] = _readable(turn.request), _readable(turn.reply)
    for told, attempt in zip(shown["attempts"], turn.attempts, strict=True):
        told["request"], told["reply"] = _readable(attempt.request), _readable(attempt.reply)
    return shown


def _readable(contents: bytes) -> Any:
    """Return contents as JSON where they are, else as text; None for none."""
    if not contents:
        return None
    try:
        return json.loads(contents)
    except (ValueError, RecursionError):
        return contents.decode("utf-8", "replace")
