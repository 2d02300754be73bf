"""Writes docs/reference/: commands, configuration, headers, errors, verdicts, HTTP and metrics, each from the code."""

import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from click.testing import CliRunner

from mustcall.cli import cli
from mustcall.core.errors import MustcallError
from mustcall.core.limits import GatewayLimits as ServerLimits
from mustcall.core.verdict import Verdict
from mustcall.dialects.own import DialectSettings
from mustcall.gateway.config.budget_settings import BudgetSettings, PriceSettings
from mustcall.gateway.config.settings import ServerSettings
from mustcall.gateway.config.upstream_settings import UpstreamSettings
from mustcall.gateway.openapi.document import REPLY_HEADERS, document
from mustcall.gateway.request_controls import CALLERS_HEADERS, PREFIX
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.policy.facts.controls import Controls, Limits, ToolControls
from mustcall.policy.facts.routing import Route
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.turn.remedy import TABLE
from mustcall.policy.words.grounding import GroundingRule
from mustcall.telemetry.prometheus import markdown as metrics_table

__all__ = ["LOOKUPS", "help_of"]

_DOCS = Path(__file__).resolve().parent.parent / "docs"
_NOTE = "<!-- Generated from the code by `make docs`; do not edit. -->"
_FIELD = re.compile(r"    (\w+): ")

_INDEX = f"""\
# Reference

{_NOTE}

| page | what |
|---|---|
| [Command line](cli.md) | every command and option |
| [Configuration](configuration.md) | every setting of `mustcall.toml`, with its default and its variable |
| [Headers](headers.md) | what a request may say, what a reply says |
| [Errors](errors.md) | every code, its status, and whether trying again can help |
| [Verdicts](verdicts.md) | what a reply can be, and what is done about it |
| [Python](../reference.md) | every public name of `mustcall` and `mustcall.testing` |
| [HTTP](http.md) | routes and shapes; the gateway serves them at `/openapi.json` and shows them at `/docs` |
| [Metrics](metrics.md) | what `/metrics` counts |

Beside them: [dialects](../dialects.md), [profiles](../profiles.md), [remedies](../remedies.md),
[repairs](../repairs.md) and [rules](../rules.md) are printed from the code, too.
"""


def _page(title: str, *parts: str) -> str:
    return "\n".join([f"# {title}\n", _NOTE + "\n", *parts]).rstrip("\n") + "\n"


def _words(*lines: str) -> str:
    """Return a paragraph."""
    return textwrap.fill(" ".join(lines), 120, break_long_words=False, break_on_hyphens=False) + "\n"


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |".replace("  |", " |") for row in rows]
    return "\n".join(lines) + "\n"


# The command line


def _commands(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the words of a command and of all below it."""
    if words:
        yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, (*words, name))


def help_of(*words: str) -> str:
    """Return what `mustcall WORDS --help` prints, whatever this process did with the command before."""
    command: click.Command | None = cli
    for word in words:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    # click keeps the help option that a command was first asked for, and with it the names that were given then.
    command._help_option = None  # noqa: SLF001
    said = CliRunner().invoke(cli, [*words, "--help"], prog_name="mustcall", terminal_width=100, catch_exceptions=False)
    return said.stdout


def _cli() -> str:
    parts = ["Exit codes: 0 for success, 1 where a check failed, 2 for a mistake in the command or its input.\n"]
    for words in _commands(cli, ()):
        depth = "##" if len(words) == 1 else "###"
        parts.append(f"{depth} mustcall {' '.join(words)}\n\n```text\n{help_of(*words)}```\n")
    return _page("Command line", *parts)


# Configuration

_SECTIONS: tuple[tuple[str, type[msgspec.Struct], str, str], ...] = (
    ("[server]", ServerSettings, "MUSTCALL_SERVER_", "gateway.md#settings"),
    ("[[upstream]]", UpstreamSettings, "MUSTCALL_UPSTREAM_", "gateway.md#settings"),
    ("[[route]]", Route, "", "gateway.md#settings"),
    ("[contract]", Controls, "MUSTCALL_CONTRACT_", "turns.md#settings"),
    ("[contract.limits]", Limits, "MUSTCALL_LIMITS_", "turns.md#settings"),
    ("[contract.tools.NAME]", ToolControls, "", "turns.md#settings"),
    ("[ledger]", LedgerSettings, "", "ledger.md"),
    ("[limits]", ServerLimits, "MUSTCALL_LIMITS_", "security.md"),
    ("[budget]", BudgetSettings, "MUSTCALL_BUDGET_", "gateway.md#budgets"),
    ("[breaker]", BreakerRule, "MUSTCALL_BREAKER_", "gateway.md#budgets"),
    ("[[price]]", PriceSettings, "", "gateway.md#budgets"),
    ("[[grounding]]", GroundingRule, "", "turns.md#ground-questions-in-a-tool"),
    ("[[dialect]]", DialectSettings, "", "turns.md"),
)
#: What has no variable with its section's prefix: it says which upstream it is, or has a name of its own.
_OWN_NAMES = {
    "MUSTCALL_SERVER_": {"host": "`MUSTCALL_HOST`", "port": "`MUSTCALL_PORT`"},
    "MUSTCALL_UPSTREAM_": dict.fromkeys(
        ("use", "name", "wire", "base_url", "model", "api_key_env", "forward_key", "headers", "stateful"), ""
    ),
    "MUSTCALL_CONTRACT_": dict.fromkeys(("limits", "session"), ""),
}


def _notes(kind: type[Any]) -> dict[str, str]:
    """Return what the comments over a class's fields say (`#: …`), without the numbers of rules."""
    found: dict[str, str] = {}
    said: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        field = _FIELD.match(line)
        if line.strip().startswith("#:"):
            said.append(line.strip().removeprefix("#:").strip())
        elif field is not None and said:
            words = re.sub(r"\s*\(rules? [\d, and]+\)|(?<=\()rule \d+[;:]? ", "", " ".join(said))
            found[field[1]] = words.replace("|", "\\|")
            said = []
        else:
            said = []
    return found


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    match value:
        case enum.Enum():
            return f'`"{value.value}"`'
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f'`"{value}"`'
        case None:
            return "none"
        case msgspec.Struct():
            return "a table"
        case tuple() | list() | dict() | frozenset():
            return f"`{list(value)}`" if value else "empty"
        case _:
            return f"`{value}`"


def _configuration() -> str:
    parts = [
        _words(
            "Every table of `mustcall.toml`. Flags win over the environment, the environment over the file.",
            "`[wording]` is listed in [turns](../turns.md#sentences), `[[profile]]` in [profiles](../profiles.md).",
            "`mustcall config check` says what is in force.",
        )
    ]
    for title, kind, prefix, page in _SECTIONS:
        notes, own = _notes(kind), _OWN_NAMES.get(prefix, {})
        rows: list[tuple[str, ...]] = []
        for field in msgspec.structs.fields(kind):
            variable = own.get(field.name, f"`{prefix}{field.name.upper()}`" if prefix else "")
            rows.append((f"`{field.name}`", _default(field), variable, notes.get(field.name, "")))
        parts.append(f"## `{title}`\n\n[What it is for](../{page}).\n")
        parts.append(_table(("setting", "default", "variable", ""), rows))
    return _page("Configuration", *parts)


# Headers, errors, verdicts


def _headers() -> str:
    asked = [
        (f"`{PREFIX}{name}`", f"`{'limits.' if setting == 'extra_calls' else ''}{setting}`")
        for name, (setting, _) in CALLERS_HEADERS.items()
    ]
    said = [(f"`{name}`", meaning) for name, meaning in REPLY_HEADERS.items()]
    return _page(
        "Headers",
        "## Of a request\n",
        _words(
            "Each sets what the same field of a `mustcall` object in the body sets. The body wins over headers,",
            "both win over the operator's settings; limits can only be lowered. They never reach the upstream.",
        ),
        _table(("header", "setting"), asked),
        "## Of a reply\n",
        _words(
            "A stream's headers leave with its first byte. Where that is before the verdict, headers that depend on",
            "the verdict are left out.",
        ),
        _table(("header", "meaning"), said),
        "[The gateway](../gateway.md#headers) lists which headers of the upstream are passed on.",
    )


def _tree(kind: type[MustcallError]) -> Iterator[type[MustcallError]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("mustcall."):
            yield below
            yield from _tree(below)


def _errors() -> str:
    rows: list[tuple[str, ...]] = []
    for kind in _tree(MustcallError):
        if kind.__subclasses__():
            continue
        when = (kind.__doc__ or "").splitlines()[0].split(" (rule")[0].rstrip(".")
        rows.append((f"`{kind.code}`", str(kind.status), "yes" if kind.retryable else "no", f"`{kind.__name__}`", when))
    return _page(
        "Errors",
        _words(
            "Every error has a stable `code`, an HTTP status, and a message that names the value and the fix.",
            "A model's failure has the status that clients of the caller's wire do not repeat (chat 422,",
            "responses 400, messages 502) and lists every attempt in `details.attempts`.",
            "[Turns](../turns.md#errors) and [the gateway](../gateway.md#errors) explain them.",
        ),
        _table(("code", "status", "try again", "name", "when"), sorted(rows)),
    )


def _verdicts() -> str:
    told = (_DOCS / "turns.md").read_text(encoding="utf-8").partition("## Verdicts")[2]
    meanings: dict[str, str] = {}
    for names, meaning in re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*?) \|$", told, re.MULTILINE):
        for name in re.findall(r"`(\w+)`", names):
            meanings.setdefault(name, re.sub(r"\]\((?!http)", "](../", meaning))
    rows: list[tuple[str, ...]] = []
    for verdict in Verdict:
        remedies = list(dict.fromkeys(str(row.remedy) for row in TABLE if row.verdict is verdict))
        rows.append((f"`{verdict}`", meanings[str(verdict)], ", ".join(remedies)))
    return _page(
        "Verdicts",
        _words(
            "What one attempt's reply is. The words stand in `x-mustcall-verdicts`, in traces and in metrics.",
            "[Remedies](../remedies.md) has the conditions under which each remedy is taken.",
        ),
        _table(("verdict", "the reply", "what may be done"), rows),
    )


# HTTP and metrics


def _shape(schema: dict[str, Any]) -> str:
    """Name the type of a schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_shape(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f'`"{one}"`' for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_shape(schema['items'])}"
    return str(schema.get("type", "anything"))


def _http() -> str:
    said = document()
    parts = [
        _words(
            said["info"]["description"],
            "The `/v1` may be left out or written `/api/v1`. Where the gateway has client keys, send one as",
            "`Authorization: Bearer …` or `x-api-key: …`.",
        )
    ]
    rows: list[tuple[str, ...]] = []
    for path, methods in said["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            content = one["responses"]["200"]["content"]
            replies = [_shape(each["schema"]) for kind, each in content.items() if kind == "application/json"]
            replies += [
                f"events of {_shape(each['x-event-data'])}" for each in content.values() if "x-event-data" in each
            ]
            answered = ", ".join(replies) or "text"
            rows.append((f"`{method.upper()} {path}`", one["summary"], _shape(body) if body else "", answered))
    parts.append(_table(("route", "what", "request", "reply"), rows))
    parts.append("## Shapes\n")
    for name, schema in sorted(said["components"]["schemas"].items()):
        parts.append(f"### {name}\n\n{schema.get('description', '')}\n".replace("\n\n\n", "\n"))
        fields = schema.get("properties", {})
        if fields:
            needed = schema.get("required", [])
            shown = [(f"`{one}`", _shape(of), "yes" if one in needed else "") for one, of in fields.items()]
            parts.append(_table(("field", "type", "required"), shown))
        else:
            parts.append(_shape(schema) + "\n")
    return _page("HTTP", *parts)


def _metrics() -> str:
    return _page(
        "Metrics",
        _words(
            "`GET /metrics` serves these for Prometheus. [Operations](../operations.md#metrics) says who may read them",
            "and which alerts to set.",
        ),
        metrics_table(),
    )


LOOKUPS: dict[str, Callable[[], str]] = {
    "reference/README.md": lambda: _INDEX,
    "reference/cli.md": _cli,
    "reference/configuration.md": _configuration,
    "reference/errors.md": _errors,
    "reference/headers.md": _headers,
    "reference/http.md": _http,
    "reference/metrics.md": _metrics,
    "reference/verdicts.md": _verdicts,
}
