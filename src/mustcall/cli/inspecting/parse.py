"""`mustcall parse`: the calls, the remaining text and what was malformed in a model's reply.

It reads and prints; every decision about the text is the scanner's. Loose formats are admitted here, since whoever
parses a log by hand has seen what the model was asked to write; `--strict` leaves them out.
"""

import re
import sys
from pathlib import Path
from typing import Any, cast

import click
import msgspec

from mustcall.cli.groups import WrongInput
from mustcall.core.errors import MustcallError
from mustcall.core.text.possessive import any_number
from mustcall.core.tools import Tool
from mustcall.dialects import CallEnd, Malformed, Parsed, parse

__all__ = ["command"]

#: What some readers take for the end of a line, and JSON lets stand in strings.
_LINE_ENDS = str.maketrans({character: f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"})
_STRING_OR_BLANKS = re.compile('"' + any_number(r'[^"\\]|\\.') + r'"|[ \t\r\n]++')


class _Line(msgspec.Struct):
    text: str | None = None
    chunks: list[str] | None = None
    tools: Any = None
    dialect: str | list[str] | None = None


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw
    dialect: str


class _Report(msgspec.Struct, omit_defaults=True):
    reason: str
    raw: str
    dialect: str
    name: str | None = None
    in_reasoning: bool = False


class _Output(msgspec.Struct):
    calls: list[_Call]
    text: str
    reasoning: str
    malformed: list[_Report]
    reasoned_calls: list[_Call] | msgspec.UnsetType = msgspec.UNSET


class _Settings(msgspec.Struct, frozen=True):
    """What the command line says about every text."""

    dialects: tuple[str, ...]
    tools: list[Tool] | None
    strict: bool
    reasoning_open: bool


@click.command("parse", short_help="Read tool calls out of a model's text.")
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    metavar="NAME",
    help="Look for this dialect only; repeatable. `auto` stands for all that are looked for without this option.",
)
@click.option(
    "--tools",
    "tools_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The tools on offer, as in the Chat Completions `tools` field; without it every name counts.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--jsonl", is_flag=True, help="Read one JSON object per line, print one per line.")
@click.option("--strict", is_flag=True, help="Leave out the loose formats (`Tool: …`, `Action: …`).")
@click.option("--reasoning-open", is_flag=True, help="The prompt had already opened a reasoning section.")
def command(**options: Any) -> None:
    """Read a model's reply from standard input and print its tool calls, the remaining text and what was malformed.

    With --jsonl each line is an object with `text` or `chunks`, and optionally `tools` and `dialect`. A line that
    cannot be read gives `{"error": …}` in its place, and the exit status 1 at the end.
    """
    tools_file = cast("Path | None", options["tools_file"])
    try:
        settings = _Settings(
            options["dialects"],
            _read_tools_file(tools_file) if tools_file is not None else None,
            options["strict"],
            options["reasoning_open"],
        )
        if options["jsonl"]:
            _parse_lines(settings)
            return
        parsed = _parse([sys.stdin.buffer.read().decode("utf-8", "replace")], settings)
    except (MustcallError, ValueError) as error:
        raise WrongInput(str(error)) from error
    click.echo(_encode(parsed) if options["as_json"] else _table(parsed))


def _parse_lines(settings: _Settings) -> None:
    failed = False
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            output = _parse_line(line, settings)
        except (MustcallError, ValueError, RecursionError) as error:
            failed = True
            output = msgspec.json.encode({"error": f"line {number}: {error}"}).decode()
        click.echo(output)
    if failed:
        sys.exit(1)


def _parse(pieces: list[str], settings: _Settings) -> Parsed:
    return parse(
        pieces,
        dialects=settings.dialects or "auto",
        tools=settings.tools,
        loose=not settings.strict,
        reasoning="opened" if settings.reasoning_open else "marked",
    )


def _parse_line(line: bytes, settings: _Settings) -> str:
    """Parse one line; its own tools and dialect win over those of the command line. `[]` offers no tool."""
    entry = msgspec.json.decode(line, type=_Line)
    if (entry.text is None) == (entry.chunks is None):
        raise ValueError("give either `text` or `chunks`")
    pieces = [entry.text] if entry.text is not None else entry.chunks or []
    named = (entry.dialect,) if isinstance(entry.dialect, str) else tuple(entry.dialect or ())
    own = _Settings(
        named or settings.dialects,
        _read_tools(entry.tools) if entry.tools is not None else settings.tools,
        settings.strict,
        settings.reasoning_open,
    )
    return _encode(_parse(pieces, own))


def _read_tools_file(path: Path) -> list[Tool]:
    """Read tools from a file; what is wrong with it is said with its name."""
    try:
        return _read_tools(msgspec.json.decode(path.read_bytes()))
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply") from error
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_tools(value: Any) -> list[Tool]:
    """Read tools in the chat wire's shape; a bare `{"name", "parameters"}` is taken as well.

    Tools that are no functions (a provider's own search, for one) are never called as text and left out.
    """
    if not isinstance(value, list):
        raise ValueError(f"tools must be a list, not {_kind(value)}")  # noqa: TRY004 - the user's data, not a bug
    tools: list[Tool] = []
    for number, item in enumerate(cast("list[Any]", value), 1):
        try:
            tool = _read_tool(item)
        except ValueError as error:
            raise ValueError(f"tool {number}: {error}") from error
        if tool is not None:
            tools.append(tool)
    return tools


def _read_tool(value: Any) -> Tool | None:
    item = _object(value, "it")
    if item.get("type", "function") != "function" and "input_schema" not in item:
        return None
    function = _object(item.get("function", item), "`function`")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("it has no `name`" if name is None or name == "" else f"`name` must be a string, not {name!r}")
    key = "parameters" if "parameters" in function else "input_schema"
    parameters = function.get(key)
    description = function.get("description")
    return Tool(
        name=name,
        description=description if isinstance(description, str) else None,
        parameters=_object(parameters, f"`{key}` of {name!r}") if parameters is not None else None,
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object, not {_kind(value)}")  # noqa: TRY004 - the user's data, not a bug
    return cast("dict[str, Any]", value)


def _kind(value: Any) -> str:
    """Return what a JSON value is, in the words of its reader."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def _encode(parsed: Parsed) -> str:
    output = _Output(
        [_call(call) for call in parsed.calls],
        parsed.text,
        parsed.reasoning,
        [_report(report) for report in parsed.malformed],
        [_call(call) for call in parsed.reasoned] or msgspec.UNSET,
    )
    return msgspec.json.encode(output).decode().translate(_LINE_ENDS)


def _call(call: CallEnd) -> _Call:
    return _Call(call.name, msgspec.Raw(_one_line(call.arguments).encode("utf-8", "replace")), call.dialect)


def _report(report: Malformed) -> _Report:
    return _Report(str(report.reason), report.raw, report.dialect, report.name, report.in_reasoning)


def _table(parsed: Parsed) -> str:
    lines: list[str] = []
    rows = [(call.name, call.dialect, call.arguments) for call in parsed.calls]
    rows += [(call.name, f"{call.dialect} (in reasoning: no call)", call.arguments) for call in parsed.reasoned]
    if rows:
        widths = [max(len(row[column]) for row in [*rows, ("call", "dialect", "")]) for column in (0, 1)]
        lines.append(f"{'call':{widths[0]}}  {'dialect':{widths[1]}}  arguments")
        lines += [f"{name:{widths[0]}}  {dialect:{widths[1]}}  {_one_line(text)}" for name, dialect, text in rows]
    else:
        lines.append("no calls")
    for report in parsed.malformed:
        lines.append(f"malformed ({report.reason}, {report.dialect}): {report.raw!r}")
    for title, text in (("reasoning", parsed.reasoning), ("text", parsed.text)):
        if text.strip():
            lines += ["", f"{title}:", text.strip("\n")]
    return "\n".join(lines)


def _one_line(arguments: str) -> str:
    """Return JSON text on one line; blanks inside its strings stay as they are."""
    return _STRING_OR_BLANKS.sub(lambda found: found[0] if found[0][0] == '"' else " ", arguments)
