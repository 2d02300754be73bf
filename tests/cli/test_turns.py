"""`mustcall turns`, as a person uses it."""

import asyncio
import hashlib
import json
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from mustcall.cli import cli, main
from mustcall.core.verdict import Verdict
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import AttemptTrace, ContentsKept, TallyRow, TurnTrace, open_ledger
from mustcall.testing import Call, Fail, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.testing.transport import FakeClock
from support import warm
from support.http import post
from support.laddering import climbed
from support.warm import PATIENCE

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Oslo?"}], "tools": [TOOL], "tool_choice": "required"}
#: The session `night` of a caller without a key.
NIGHT = hashlib.sha256(b"\0night").hexdigest()[:32]
#: The tool as text.
TOLD = "## weather\nParameters:\n- city (string, required)"
#: A model that talks, then writes a call that does not fit, then calls.
SCRIPT = [
    Turn(Say("Sure, I will look.")),
    Turn(Say('<tool_call>{"name": "weather", "arguments": {"town": 5}}</tool_call>')),
    Turn(Call("weather", {"city": "Oslo"})),
]


def three_attempts(place: Path, contents: ContentsKept) -> str:
    """Let a gateway take one turn of three attempts, and return its id."""
    ledger = LedgerSettings(place=str(place), contents=contents)
    with ScriptedUpstream(SCRIPT) as upstream:
        settings = msgspec.structs.replace(settings_from_flags(f"chat={upstream.base_url}"), ledger=ledger)
        with RunningGateway(settings=settings) as gateway:
            answer = post(gateway.url + "/v1/chat/completions", ASKED)
        assert answer.status == 200
        assert [one.body for one in upstream.requests] == climbed("chat", ASKED)[:3]
        return answer.headers["x-mustcall-trace"]


def run(*arguments: str) -> str:
    """Run a command that must succeed."""
    result = CliRunner().invoke(cli, ["turns", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def test_a_turn_is_followed_from_its_header_to_its_attempts(tmp_path: Path) -> None:
    """Rule 117: what each attempt sent and got back, its verdict and its remedy, found by the trace of the answer."""
    place = tmp_path / "l.db"
    turn = three_attempts(place, ContentsKept.FULL)
    told = json.loads(run("show", turn, "--ledger", str(place), "--json"))
    assert (told["outcome"], told["force"], told["status"]) == ("calls", "met", 200)
    verdicts = [attempt["verdict"] for attempt in told["attempts"]]
    assert verdicts == ["force_missed", "text_call", "called"]
    assert [attempt["reply"]["parts"] for attempt in told["attempts"]] == [
        [{"text": "Sure, I will look."}],
        [{"text": '<tool_call>{"name": "weather", "arguments": {"town": 5}}</tool_call>'}],
        [{"call": "weather", "arguments": '{"city":"Oslo"}'}],
    ]
    assert told["attempts"][0]["request"]["tool_choice"] == "required"
    assert told["attempts"][1]["tool"] == "weather"
    shown = run("show", turn, "--ledger", str(place))
    assert "attempt 2: sent" in shown
    assert '-  "tool_choice": "required",' in shown
    assert "call weather" in shown


def test_contents_are_shown_only_if_they_are_kept(tmp_path: Path) -> None:
    """Rule 117: by default nothing of what was said is kept, and the page says how to keep it."""
    place = tmp_path / "l.db"
    turn = three_attempts(place, ContentsKept.NONE)
    shown = run("show", turn, "--ledger", str(place))
    assert "contents are not kept" in shown
    assert "Oslo" not in shown
    told = json.loads(run("show", turn, "--ledger", str(place), "--json"))
    assert [(attempt["request"], attempt["reply"], attempt["problem"]) for attempt in told["attempts"]] == (
        [(None, None, "")] * 3
    )
    assert b"Oslo" not in place.read_bytes()


def test_a_transport_retry_is_shown_with_its_reason(tmp_path: Path) -> None:
    """Rule 117: two calls of one attempt are two lines: how the first failed, and how long the second waited."""
    place, clock = tmp_path / "l.db", FakeClock()
    ledger = LedgerSettings(place=str(place))
    with ScriptedUpstream([Fail(503, "busy"), Fail(429, "slow down"), Turn(Say("Hello."))]) as upstream:
        settings = msgspec.structs.replace(settings_from_flags(f"chat={upstream.base_url}"), ledger=ledger)
        with RunningGateway(settings=settings, clock=clock) as gateway:
            asked = {"model": "m", "messages": ASKED["messages"]}
            answer = post(gateway.url + "/v1/chat/completions", asked)
        assert [one.body for one in upstream.requests] == [asked] * 3
    turn = answer.headers["x-mustcall-trace"]
    (attempt,) = json.loads(run("show", turn, "--ledger", str(place), "--json"))["attempts"]
    assert (attempt["sends"], attempt["verdict"]) == (3, "answered")
    assert [retry["why"] for retry in attempt["retries"]] == ["HTTP 503", "HTTP 429"]
    assert [retry["wait"] for retry in attempt["retries"]] == clock.sleeps
    shown = run("show", turn, "--ledger", str(place)).splitlines()
    numbers = [line.split()[0] for line in shown[shown.index(next(one for one in shown if "rung" in one)) + 1 :]]
    assert numbers[:3] == ["1.1", "1.2", "1.3"]
    assert f"HTTP 503: sent again after {clock.sleeps[0]:.2f} s" in "\n".join(shown)


def test_a_failure_told_again_is_a_turn_of_its_own(tmp_path: Path) -> None:
    """Rule 144: what is answered from memory has a trace that is found, without an attempt, beside the first one."""
    place = tmp_path / "l.db"
    empty = Turn(Say(""))
    with ScriptedUpstream(default=empty) as upstream:
        ledger = LedgerSettings(place=str(place))
        settings = msgspec.structs.replace(settings_from_flags(f"chat={upstream.base_url}"), ledger=ledger)
        with RunningGateway(settings=settings) as gateway:
            first, again = (post(gateway.url + "/v1/chat/completions", ASKED) for _ in range(2))
            made = len(upstream.requests)
        assert [one.body for one in upstream.requests] == climbed("chat", ASKED, told=TOLD)
    assert (first.status, again.status) == (422, 422)
    told = [
        json.loads(run("show", answer.headers["x-mustcall-trace"], "--ledger", str(place), "--json"))
        for answer in (first, again)
    ]
    assert [len(one["attempts"]) for one in told] == [made, 0]
    for name in ("model", "upstream", "outcome", "status", "error", "protocol", "force"):
        assert told[0][name] == told[1][name]
    assert told[1]["adaptations"] == ["reported:remembered"]


def test_secrets_are_masked_in_attempts_too(tmp_path: Path) -> None:
    """Redacted contents hold no key, wherever in a turn it stood."""
    place = tmp_path / "l.db"
    key = "sk-" + "a1B2" * 8
    attempt = AttemptTrace(
        number=1,
        rung="plain",
        verdict="answered",
        remedy="accept",
        digest="d",
        seconds=0.1,
        sends=1,
        problem=f"not {key}",
        request=json.dumps({"messages": [{"content": key}]}).encode(),
        reply=json.dumps({"finish": "stop", "parts": [{"text": key}]}).encode(),
    )

    async def fill() -> TurnTrace | None:
        async with open_ledger(place, contents=ContentsKept.REDACTED) as ledger:
            await ledger.put_turns([a_turn("t", attempts=(attempt,))])
            return await ledger.get_turn("t")

    kept = asyncio.run(fill())
    assert kept is not None
    assert key not in str(kept)
    assert "[redacted key]" in kept.attempts[0].problem
    assert json.loads(kept.attempts[0].reply)["parts"] == [{"text": "[redacted key]"}]


def a_turn(name: str, **given: Any) -> TurnTrace:
    """A turn of this name."""
    usual: dict[str, Any] = {
        "at": 1000.0,
        "wire": "chat",
        "model": "m",
        "upstream": "up",
        "protocol": "hybrid",
        "force": "none",
        "outcome": "answer",
        "status": 200,
        "seconds": 1.0,
    }
    return TurnTrace(id=name, **{**usual, **given})


def an_attempt(number: int, verdict: str) -> AttemptTrace:
    """An attempt with this verdict."""
    return AttemptTrace(
        number=number, rung="plain", verdict=verdict, remedy=None, digest="d", seconds=0.1, sends=1, error=None
    )


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A ledger with three turns."""
    place = str(tmp_path / "l.db")

    async def fill() -> None:
        async with open_ledger(place) as ledger:
            await ledger.put_turns(
                [
                    a_turn("one", at=1000.0, attempts=(an_attempt(1, "empty"), an_attempt(2, "answered"))),
                    a_turn("two", at=2000.0, outcome="failure", status=502, attempts=(an_attempt(1, "empty"),)),
                    a_turn(
                        "three",
                        at=3000.0,
                        model="x\x1b[2Jy\x9b2J\u202e",
                        upstream="b",
                        client="codex",
                        session=NIGHT,
                        attempts=(an_attempt(1, "called"),),
                    ),
                ]
            )

    asyncio.run(fill())
    return place


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ((), ["three", "two", "one"]),
        (("--limit", "1"), ["three"]),
        (("--verdict", "empty"), ["two", "one"]),
        (("--verdict", "empty", "--outcome", "answer"), ["one"]),
        (("--upstream", "b"), ["three"]),
        (("--model", "m"), ["two", "one"]),
        (("--model", "none"), []),
        (("--client", "codex"), ["three"]),
        (("--client", "cod"), []),
        (("--session", "night"), ["three"]),
        (("--session", NIGHT[:6]), ["three"]),
        (("--session", "day"), []),
    ],
)
def test_turns_are_listed_newest_first(place: str, flags: tuple[str, ...], found: list[str]) -> None:
    """Filters join: a turn is shown if it is as each of them says."""
    listed = json.loads(run("list", "--ledger", place, "--json", *flags))
    assert [turn["id"] for turn in listed] == found
    lines = run("list", "--ledger", place, *flags).splitlines()
    assert [line.split()[-1] for line in lines] == (["turn", *found] if found else [place])


def test_a_name_does_nothing_to_the_terminal(place: str) -> None:
    """What callers wrote is shown as text."""
    listed = run("list", "--ledger", place)
    encoded = run("list", "--ledger", place, "--json")
    for sign in ("\x1b", "\x9b", "\u202e"):
        assert sign not in listed
        assert sign not in encoded
    assert json.loads(encoded)[0]["model"] == "x\x1b[2Jy\x9b2J\u202e"


def test_an_unknown_turn_is_named(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says where it was looked for and what there is."""
    with pytest.raises(SystemExit) as ended:
        main(["turns", "show", "nope", "--ledger", place])
    assert ended.value.code == 2
    assert "there is no turn 'nope'" in capsys.readouterr().err


def test_new_turns_are_followed(place: str) -> None:
    """`tail` prints a turn once, when it ends, and Ctrl-C ends it without a word."""
    arguments = ("turns", "tail", "--json", "--ledger", place)
    with warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        number = 0
        # The first turns may be there before it looks; every one that comes after its first look is printed.
        while not _is_readable(process.stdout.fileno()):
            number += 1
            asyncio.run(_put(place, f"new{number}", 4000.0 + number))
        first = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE)
    named = [first["id"], *(json.loads(line)["id"] for line in rest.splitlines())]
    assert len(set(named)) == len(named)
    assert all(name.startswith("new") for name in named)
    assert (process.returncode, errors) == (0, "")


def _is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0.5)[0])


async def _put(place: str, name: str, at: float) -> None:
    async with open_ledger(place) as ledger:
        await ledger.put_turns([a_turn(name, at=at)])


@pytest.fixture
def configured(place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory whose mustcall.toml names the ledger, and has an upstream whose key is not there."""
    here = tmp_path / "here"
    here.mkdir()
    upstream = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9"\napi_key_env = "NO_SUCH_KEY"\n'
    text = f'[ledger]\nplace = "{place}"\n{upstream}'
    (here / "mustcall.toml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(here)
    monkeypatch.delenv("MUSTCALL_LEDGER")
    monkeypatch.delenv("MUSTCALL_CONFIG", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return here


def _listed(*arguments: str) -> list[str]:
    return [turn["id"] for turn in json.loads(run("list", "--json", *arguments))]


def test_the_ledger_is_the_one_of_the_configuration(
    configured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flag stands over the environment, that over the file (named or the default one), that over the default."""
    other, empty = str(tmp_path / "other.db"), str(tmp_path / "empty.db")
    asyncio.run(_put(other, "other", 1.0))
    assert _listed() == ["three", "two", "one"]
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(f'[ledger]\nplace = "{other}"\n', encoding="utf-8")
    assert _listed("--config", str(elsewhere)) == ["other"]
    monkeypatch.setenv("MUSTCALL_CONFIG", str(elsewhere))
    assert _listed() == ["other"]
    assert _listed("--config", str(configured / "mustcall.toml")) == ["three", "two", "one"]
    monkeypatch.setenv("MUSTCALL_LEDGER", str(tmp_path / "l.db"))
    assert _listed() == ["three", "two", "one"]
    assert _listed("--ledger", other) == ["other"]
    asyncio.run(_make(empty))
    assert run("list", "--ledger", empty) == f"no turns in the ledger at {empty}\n"


async def _make(place: str) -> None:
    async with open_ledger(place):
        pass


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    "words",
    [
        ("turns", "show", "one"),
        ("ledger", "check"),
        ("ledger", "export"),
        ("profiles", "list"),
        ("profiles", "forget", "--all"),
    ],
)
def test_every_command_reads_the_gateways_ledger(words: tuple[str, ...], tmp_path: Path) -> None:
    """No command makes or looks for another one; none needs an upstream's key."""
    told = CliRunner().invoke(cli, list(words))
    assert told.exit_code == 0, (told.output, told.exception)
    assert not (tmp_path / "state").exists()


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("command", ["replay", "minimise"])
def test_what_is_sent_again_is_found_in_the_gateways_ledger(
    command: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The turn is looked for where the gateway wrote it."""
    with pytest.raises(SystemExit):
        main([command, "nope"])
    assert f"there is no turn 'nope' in the ledger at {place}" in capsys.readouterr().err


@pytest.mark.usefixtures("configured")
def test_what_was_learnt_is_believed_as_long_as_the_configuration_says(place: str) -> None:
    """`[ledger] keep_learnt` of the file counts for the list as it does for the gateway."""
    old = TallyRow(upstream="u", model="m", subject="rung:text", made=1, missed=0, first=0.0, last=1.0)

    async def learn() -> None:
        async with open_ledger(place) as ledger:
            await ledger.add_tallies([old])

    asyncio.run(learn())
    assert json.loads(CliRunner().invoke(cli, ["profiles", "list", "--json"]).output) == []
    with Path("mustcall.toml").open("r+", encoding="utf-8") as file:
        text = file.read()
        file.seek(0)
        file.write(text.replace("[ledger]\n", '[ledger]\nkeep_learnt = "0"\n'))
    told = json.loads(CliRunner().invoke(cli, ["profiles", "list", "--json"]).output)
    assert [one["subject"] for one in told] == ["rung:text"]


def test_the_list_has_a_header_and_columns_that_stand_below_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the terminal, equal verdicts in a row are counted, and the id stays whole."""
    turn = a_turn(
        "req_baacb1136dcfc41d70b922a1",
        at=4000.0,
        outcome="failure",
        attempts=(*(an_attempt(number, "force_missed") for number in range(1, 6)), an_attempt(6, "empty")),
    )

    async def fill() -> None:
        async with open_ledger(place) as ledger:
            await ledger.put_turns([turn])

    asyncio.run(fill())
    whole = run("list", "--limit", "2", "--ledger", place)
    head, *rows = whole.splitlines()
    assert head.split() == ["time", "outcome", "verdicts", "took", "tokens", "model", "turn"]
    assert [row[head.index("verdicts") :].split("  ")[0] for row in rows] == [
        "force_missed (5 times) → empty",
        "called",
    ]
    assert [row[head.index("turn") :] for row in rows] == ["req_baacb1136dcfc41d70b922a1", "three"]
    narrow = Console(force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("mustcall.cli.inspecting.turns.console", lambda: narrow)
    with narrow.capture() as captured:
        run("list", "--limit", "2", "--ledger", place)
    lines = captured.get().splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 80
    assert all(line.startswith("  ") for line in lines[1::2])
    assert [line[lines[1].index("turn") :] for line in lines[3::2]] == ["req_baacb1136dcfc41d70b922a1", "three"]
    assert " ".join(" ".join(lines).split()) == " ".join(whole.split())


def test_many_verdicts_are_broken_between_words_in_their_column(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of many attempts does not push the other columns out of the terminal."""
    words = ("force_missed", "text_call", "empty", "bad_arguments", "unknown_tool", "called")
    attempts = tuple(an_attempt(number, word) for number, word in enumerate(words, 1))

    async def fill() -> None:
        async with open_ledger(place) as ledger:
            await ledger.put_turns([a_turn("many", at=5000.0, attempts=attempts)])

    asyncio.run(fill())
    narrow = Console(force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("mustcall.cli.inspecting.turns.console", lambda: narrow)
    with narrow.capture() as captured:
        run("list", "--limit", "1", "--ledger", place)
    head, _, *lines = captured.get().splitlines()
    assert max(map(len, lines)) <= 80
    column = head.index("verdicts")
    assert " ".join(line[column:] for line in lines[:2]) == " → ".join(words)
    assert not lines[1][:column].strip()


def test_what_a_missed_demand_came_to_is_said(tmp_path: Path) -> None:
    """Without contents too: no call came, or another one did; `changed` is broken at 80 columns without a terminal."""
    place = str(tmp_path / "l.db")
    other = msgspec.structs.replace(an_attempt(2, "force_missed"), tool="cat_joke")
    changed = tuple(f"directive_added:messages{number}" for number in range(9))
    turn = a_turn("t", attempts=(an_attempt(1, "force_missed"), other), adaptations=changed)

    async def fill() -> None:
        async with open_ledger(place) as ledger:
            await ledger.put_turns([turn])

    asyncio.run(fill())
    shown = run("show", "t", "--ledger", place).splitlines()
    assert next(line for line in shown if line.startswith("1 ")).rstrip().endswith("  no call came")
    assert (
        next(line for line in shown if line.startswith("2 "))
        .rstrip()
        .endswith("  cat_joke: not the call that was demanded")
    )
    first = next(number for number, line in enumerate(shown) if line.startswith("changed"))
    lines = shown[first : next(number for number, line in enumerate(shown) if line.startswith("attempt"))]
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == "changed " + ", ".join(changed)


def test_what_a_verdict_means_is_said_where_nothing_else_is(tmp_path: Path) -> None:
    """A verdict without details of its own is told in words; good ones, and those that come with an error, are not."""
    place = str(tmp_path / "l.db")
    told = {
        Verdict.TEXT_CALL: "the call was written as text",
        Verdict.TRUNCATED: "cut off before it was complete",
        Verdict.EMPTY: "nothing was said",
        Verdict.THINKING_ONLY: "only reasoning, no answer",
        Verdict.CALLED: "",
    }
    attempts = [an_attempt(number, verdict) for number, verdict in enumerate(told, 1)]
    attempts.append(msgspec.structs.replace(an_attempt(6, Verdict.TRUNCATED), error="the stream broke"))

    async def fill() -> None:
        async with open_ledger(place) as ledger:
            await ledger.put_turns([a_turn("t", attempts=tuple(attempts))])

    asyncio.run(fill())
    shown = run("show", "t", "--ledger", place).splitlines()
    first = next(number for number, line in enumerate(shown) if line.startswith("attempt"))
    column = shown[first].index("what was wrong")
    assert [line[column:].strip() for line in shown[first + 1 : first + 7]] == [*told.values(), "the stream broke"]
