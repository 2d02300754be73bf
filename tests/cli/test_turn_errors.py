"""`mustcall turns show` of an attempt that ended in an upstream's error: the status and the words."""

from pathlib import Path

import msgspec
from click.testing import CliRunner

from mustcall.cli import cli
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import ContentsKept
from mustcall.testing import Fail, RunningGateway, ScriptedUpstream
from mustcall.testing.transport import FakeReply, FakeTransport
from support.http import post

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Oslo?"}]}


def shown(turn: str, place: Path) -> str:
    """What the command prints of a turn."""
    result = CliRunner().invoke(cli, ["turns", "show", turn, "--ledger", str(place)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_what_an_upstream_refused_with_is_shown(tmp_path: Path) -> None:
    """An attempt without a reply shows the status and the words of the upstream's error."""
    place = tmp_path / "l.db"
    ledger = LedgerSettings(place=str(place), contents=ContentsKept.FULL)
    with ScriptedUpstream([Fail(403, "this key may not \x1b[31m use it")]) as upstream:
        settings = msgspec.structs.replace(settings_from_flags(f"chat={upstream.base_url}"), ledger=ledger)
        with RunningGateway(settings=settings) as gateway:
            turn = post(gateway.url + "/v1/chat/completions", ASKED).headers["x-mustcall-request-id"]
    said = shown(turn, place)
    assert "attempt 1: came back\nerror, HTTP 403\n" in said
    assert "this key may not" in said
    assert "\x1b" not in said
    assert "nothing that could be read" not in said


def test_what_a_redirect_came_to_is_shown(tmp_path: Path) -> None:
    """An attempt of which nothing was read shows the words of the turn's error."""
    place = tmp_path / "l.db"
    ledger = LedgerSettings(place=str(place), contents=ContentsKept.FULL)
    settings = msgspec.structs.replace(settings_from_flags("chat=http://u.invalid/v1"), ledger=ledger)
    reply = FakeReply(status=302, headers={"location": "http://new.invalid/v1?key=sekret"})
    with RunningGateway(settings=settings, transport=FakeTransport([reply])) as gateway:
        answer = post(gateway.url + "/v1/chat/completions", ASKED)
    assert (answer.status, answer.json["error"]["code"]) == (502, "upstream_redirected")
    assert answer.headers["x-should-retry"] == "false"
    said = shown(answer.headers["x-mustcall-request-id"], place)
    assert "attempt 1: came back\nerror upstream_redirected\n" in said
    assert "redirects (HTTP 302) to http://new.invalid/v1;" in said
    assert "sekret" not in said
