"""`mustcall profiles`: what was learnt, shown and forgotten (rule 139)."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import Any

import pytest
from click.testing import CliRunner

from mustcall.cli import cli
from mustcall.core.errors import LedgerUnavailable
from mustcall.ledger import FactRow, TallyRow, open_ledger
from mustcall.profiles.tallies import EXPIRY
from mustcall.testing import Call, Fail, Say, ScriptedUpstream, Turn
from support.http import post
from support.laddering import climbed
from support.remembering import gateway_with_ledger


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A ledger with a fact and two counts, one of which nobody believes any more."""
    place = str(tmp_path / "l.db")

    async def fill() -> None:
        now = time()
        row = TallyRow(
            upstream="lab", model="small", subject="rung:schema", made=7, missed=1, first=now - 90_000, last=now - 60
        )
        old = TallyRow(
            upstream="lab", model="old", subject="rung:text", made=1, missed=0, first=0.0, last=now - EXPIRY - 1
        )
        async with open_ledger(place) as ledger:
            await ledger.add_tallies([row, old])
            await ledger.put_facts(
                [FactRow(upstream="cloud", model="big", field="schema_output", value=b"false", note="refused")]
            )

    asyncio.run(fill())
    return place


def said(*arguments: str, code: int = 0) -> str:
    """Run a command; return what it printed."""
    result = CliRunner().invoke(cli, ["profiles", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_list_shows_facts_and_counts(place: str) -> None:
    """Rule 139: one line each, with counts, dates and expiry; what expired is not shown."""
    fact, count = said("list", "--ledger", place).splitlines()
    assert fact.split()[:5] == ["cloud", "big", "schema_output", "is", "False"]
    assert count.split()[:7] == ["lab", "small", "rung:schema", "made", "7,", "missed", "1"]
    assert "last " in count
    assert "until " in count


def test_list_as_json(place: str) -> None:
    """Rule 139: the same for programs; a count expires seven days after its last."""
    shown: list[dict[str, Any]] = json.loads(said("list", "--json", "--ledger", place))
    assert [(one["upstream"], one["model"], one["subject"], one["value"]) for one in shown] == [
        ("cloud", "big", "schema_output", False),
        ("lab", "small", "rung:schema", None),
    ]
    assert [(one["made"], one["missed"]) for one in shown] == [(0, 0), (7, 1)]

    async def read() -> TallyRow:
        async with open_ledger(place) as ledger:
            return (await ledger.tallies(since=time() - EXPIRY))[0]

    row = asyncio.run(read())
    assert (shown[1]["since"], shown[1]["last"]) == (_day(row.first), _day(row.last))
    assert shown[1]["expires"] == _day(row.last + EXPIRY)


def test_list_names_what_was_refused(tmp_path: Path) -> None:
    """Rule 139: an operator reads what a server refused: the stream, the fields for grammars; not that it is far."""
    place = tmp_path / "l.db"
    body: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello."}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
        "tool_choice": "required",
    }
    script = [
        Fail(400, "streaming is not supported"),
        Turn(Say("No.")),
        Fail(400, "response_format not supported"),
        Fail(400, "unknown field: guided_json"),
        Turn(Call("f", {})),
    ]
    with ScriptedUpstream(script) as served, gateway_with_ledger(place, f"chat={served.base_url}") as gateway:
        assert post(f"{gateway.base_url}/chat/completions", body).status == 200
        streamed, schema, grammar, soft, _ = climbed("chat", body)
        whole = {name: value for name, value in soft.items() if not name.startswith("stream")}
        assert [one.body for one in served.requests] == [streamed, body, schema, grammar, whole]
    shown: list[dict[str, Any]] = json.loads(said("list", "--json", "--ledger", str(place)))
    facts = {one["subject"]: one["value"] for one in shown if one["value"] is not None}
    assert facts == {"streams_forced": False, "schema_output": False, "grammar_output": False}
    assert "streams_forced           is False" in said("list", "--ledger", str(place))


def test_nothing_learnt_is_said(place: str) -> None:
    """An empty list says so, and where it would come from; as JSON it is an empty array."""
    said("forget", "--all", "--ledger", place)
    assert said("list", "--ledger", place).startswith("nothing was measured or learnt yet")
    assert json.loads(said("list", "--json", "--ledger", place)) == []


@pytest.mark.parametrize(
    ("arguments", "told", "left"),
    [
        (("--model", "small"), "forgot 1 entry\n", ["schema_output"]),
        (("--upstream", "cloud"), "forgot 1 entry\n", ["rung:schema"]),
        (("--upstream", "cloud", "--model", "small"), "forgot 0 entries\n", ["schema_output", "rung:schema"]),
        (("--all",), "forgot 3 entries\n", []),
    ],
)
def test_forget(place: str, arguments: tuple[str, ...], told: str, left: list[str]) -> None:
    """Rule 139: of a model, of an upstream, of one at the other, or all."""
    assert said("forget", *arguments, "--ledger", place) == told
    assert [one["subject"] for one in json.loads(said("list", "--json", "--ledger", place))] == left


def test_what_to_forget_must_be_said(place: str) -> None:
    """Nothing is forgotten by an empty command."""
    assert "say what to forget" in said("forget", "--ledger", place, code=2)
    assert len(json.loads(said("list", "--json", "--ledger", place))) == 2


@pytest.mark.parametrize("command", [("list",), ("forget", "--all")])
def test_a_ledger_that_is_not_there_is_not_made(command: tuple[str, ...], tmp_path: Path) -> None:
    """A typing error in a path is said, and leaves no file behind."""
    result = CliRunner().invoke(cli, ["profiles", *command, "--ledger", str(tmp_path / "typo.db")])
    assert isinstance(result.exception, LedgerUnavailable)
    assert list(tmp_path.iterdir()) == []
