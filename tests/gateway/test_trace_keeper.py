"""The gateway's ledger: settings, traces, and what happens when it fails."""

import asyncio
import logging
from pathlib import Path
from time import time
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import ConfigError, LedgerUnavailable
from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import load_settings
from mustcall.gateway.state.trace_keeper import LedgerSettings, TraceKeeper, read_age, read_size
from mustcall.ledger import ContentsKept, FactRow, TallyRow, TurnTrace, open_ledger
from mustcall.ledger.notices import Notices
from mustcall.ledger.tracing import TraceQueue
from mustcall.policy.facts.profile import Profile
from mustcall.profiles import Learnt
from mustcall.profiles.tallies import EXPIRY, Count, ProfileTally
from mustcall.testing import Call, Fail, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.wire.registry import codec_for
from support.http import call, post
from support.laddering import climbed
from support.remembering import gateway_with_ledger

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello, I am ann@example.com"}]}
ASKED: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: ASK,
    Wire.RESPONSES: {"model": "m", "input": "Hello, I am ann@example.com"},
    Wire.MESSAGES: {**ASK, "max_tokens": 50},
}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}


async def turns(place: Path) -> list[TurnTrace]:
    """Read every turn with its attempts."""
    async with open_ledger(place) as ledger:
        found = [await ledger.get_turn(turn.id) for turn in await ledger.turns()]
        return [turn for turn in found if turn is not None]


async def test_a_turn_is_traced(tmp_path: Path) -> None:
    """Rules 114, 117: each turn is in the ledger with its attempts and their sum, without contents or a key."""
    place = tmp_path / "l.db"
    answers = [Turn(Say("no call here")), Turn(Call("f", {})), Fail(400, "no")]
    with (
        ScriptedUpstream(answers) as served,
        gateway_with_ledger(place, f"chat={served.base_url}") as gateway,
    ):
        headers = {"authorization": "Bearer sk-very-secret-key-1"}
        asked = {**ASK, "tools": [TOOL], "tool_choice": "required"}
        first = await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", asked, headers=headers)
        await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", ASK, headers=headers)
        assert [one.body for one in served.requests] == [*climbed("chat", asked)[:2], ASK]
    failed, traced = await turns(place)
    assert first.headers["x-mustcall-request-id"] == traced.id
    assert (traced.wire, traced.model, traced.upstream, traced.status) == ("chat", "m", "chat", 200)
    assert (traced.outcome, traced.force) == ("calls", "met")
    assert [attempt.verdict for attempt in traced.attempts] == ["force_missed", "called"]
    assert traced.input_tokens == 50
    assert failed.status == 400
    assert traced.tenant == failed.tenant
    assert len(traced.tenant) == 24
    assert (traced.request, traced.reply) == (b"", b"")
    assert b"sk-very-secret-key-1" not in place.read_bytes()
    assert b"ann@example.com" not in place.read_bytes()


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("stream", [False, True])
async def test_contents_are_kept_when_asked_for(tmp_path: Path, stream: bool, wire: Wire) -> None:
    """Rule 136: request and reply are there in full, or with what is masked, wherever a stream was cut."""
    asked = {**ASKED[wire], "stream": stream}
    for contents, shown in ((ContentsKept.FULL, b"ann@example.com"), (ContentsKept.REDACTED, b"[redacted email]")):
        place = tmp_path / f"{contents}.db"
        with (
            ScriptedUpstream(lambda _: Turn(Say("Hello, ann@example.com."))) as served,
            gateway_with_ledger(place, f"{wire}={served.base_url}", contents=contents) as gateway,
        ):
            answer = await asyncio.to_thread(post, f"{gateway.base_url}{codec_for(wire).path}", asked)
        (traced,) = await turns(place)
        assert shown in traced.request
        if contents is ContentsKept.FULL:
            assert traced.reply == answer.body
        else:
            assert shown in traced.reply
            assert b"example" not in traced.reply
            assert traced.reply.startswith(b"{")


async def test_a_ledger_that_cannot_be_opened_is_gone_without(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One clear line in the log, and the gateway serves."""
    (tmp_path / "file").write_text("")
    with (
        caplog.at_level(logging.WARNING, "mustcall.ledger"),
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        gateway_with_ledger(tmp_path / "file" / "l.db", f"chat={served.base_url}") as gateway,
    ):
        for _ in range(3):
            answer = await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", ASK)
            assert answer.status == 200
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert lines[0].startswith("opening the ledger failed")
    assert "the gateway continues to serve" in lines[0]


async def test_traces_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    """Turns hold what they sent until they are written: a quarter of the bound is written at once, the rest dropped."""
    async with open_ledger(tmp_path / "l.db") as ledger:
        written: list[int] = []

        def describe(number: int) -> TurnTrace:
            written.append(number)
            return _numbered(number)

        queue = TraceQueue[int](ledger, describe, Notices(), weigh=lambda _: 10, most_bytes=40, every=600.0)
        for number in range(6):
            queue.put(number)
        assert queue.dropped == 2  # four of ten bytes each; nothing could be written, since the loop did not run
        await queue.flush()
        assert sorted(written) == [0, 1, 2, 3]
        queue.put(6)
        queue.put(7)  # over a quarter of the bound: written at once, not after ten minutes
        async with asyncio.timeout(180):
            while written[4:] != [6, 7]:  # noqa: ASYNC110  the writer is a thread
                await asyncio.sleep(0.01)
        assert queue.dropped == 2
        heavy = TraceQueue[int](ledger, describe, Notices(), weigh=lambda _: 100, most_bytes=40, every=600.0)
        heavy.put(8)  # one alone is kept however heavy it is
        await heavy.flush()
        assert (written[6:], heavy.dropped) == ([8], 0)


async def test_traces_that_cannot_be_written_are_dropped_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A ledger that fails while the gateway runs: traces are counted, one line is said, and one when it is over."""
    ledger = open_ledger(tmp_path / "l.db")
    queue = TraceQueue[TurnTrace](ledger, lambda turn: turn, Notices(), rest=0.0, most=5)
    turn = TurnTrace(
        id="t",
        at=1.0,
        wire="chat",
        model="m",
        upstream="u",
        protocol="native",
        force="none",
        outcome=None,
        status=200,
        seconds=0.1,
    )
    with caplog.at_level(logging.WARNING, "mustcall.ledger"):
        for _ in range(3):
            queue.put(turn)
            await queue.flush()
        assert queue.dropped == 3
        for _ in range(8):
            queue.put(turn)
        assert queue.dropped == 6  # the queue holds five
        async with ledger:
            await queue.flush()
            assert len(await ledger.turns()) == 1
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("storing traces failed: the ledger at")
    assert lines[1] == "storing traces failed: resolved, the ledger works again"


async def test_the_queue_writes_by_itself(tmp_path: Path) -> None:
    """Nobody has to ask: what waits is written within its time, together."""
    async with open_ledger(tmp_path / "l.db") as ledger:
        queue = TraceQueue[int](ledger, _numbered, Notices(), every=0.01)
        for number in range(10):
            queue.put(number)
        async with asyncio.timeout(180):
            while len(await ledger.turns()) < 10:  # noqa: ASYNC110  the queue tells nobody
                await asyncio.sleep(0.01)
        assert {turn.id for turn in await ledger.turns()} == {str(number) for number in range(10)}


def _numbered(number: int) -> TurnTrace:
    return TurnTrace(
        id=str(number),
        at=float(number),
        wire="chat",
        model="m",
        upstream="u",
        protocol="native",
        force="none",
        outcome=None,
        status=200,
        seconds=0.1,
    )


async def test_what_refusals_teach_is_shared(tmp_path: Path) -> None:
    """Rule 33: a fact learnt by one replica is known to the next, also after a restart; odd rows are passed over."""
    settings = LedgerSettings(place=str(tmp_path / "l.db"))
    keeper, teacher, pupil = TraceKeeper(settings), Learnt(), Learnt()
    teacher.learn("u", "m", "forced", "never", "400: no force here")
    async with keeper.ledger as ledger:
        await ledger.put_facts([FactRow(upstream="u", model="m", field="no_such_field", value=b"1", note="")])
        await keeper.share_facts(teacher)
        await keeper.share_facts(pupil)
        assert [(one.model, one.field, one.fact.value) for one in pupil.facts()] == [("m", "forced", "never")]
        assert len(await ledger.facts()) == 2


async def test_what_turns_count_is_shared(tmp_path: Path) -> None:
    """Rule 139: replicas add their counts up, each once, and each knows the sum; so does one that starts later."""
    settings = LedgerSettings(place=str(tmp_path / "l.db"))
    one, other, late = ((TraceKeeper(settings), Learnt()) for _ in range(3))
    now = time()
    async with one[0].ledger, other[0].ledger, late[0].ledger:
        one[1].observe("u", "m", "rung:native", made=False, now=now)
        one[1].observe("u", "m", "rung:schema", made=True, now=now)
        other[1].observe("u", "m", "rung:schema", made=True, now=now + 1)
        one[1].observe("u", "odd\0name", "rung:schema", made=True, now=now)  # no database holds such a name
        for keeper, learnt in (one, other, one, other, late):
            await keeper.share_facts(learnt)
        summed = [
            ProfileTally("u", "m", "rung:native", Count(0, 1, now, now)),
            ProfileTally("u", "m", "rung:schema", Count(2, 0, now, now + 1)),
        ]
        for _, learnt in (other, late):
            assert learnt.tallies.all() == tuple(summed)
            assert learnt.apply("u", "m", Profile(), now=now).forced_by == ("schema",)
        assert one[1].tallies.all()[:2] == tuple(summed)


async def test_what_is_forgotten_is_forgotten_everywhere(tmp_path: Path) -> None:
    """Rule 139: facts and counts that somebody removed are gone from a running gateway, and not told again by it."""
    keeper, learnt = TraceKeeper(LedgerSettings(place=str(tmp_path / "l.db"))), Learnt()
    now = time()
    learnt.learn("u", "m", "forced", "never", "400: no force here", at=now)
    for subject, made in (("rung:native", False), ("rung:schema", True)):
        learnt.observe("u", "m", subject, made=made, now=now)
    async with keeper.ledger as ledger:
        await keeper.share_facts(learnt)
        assert await ledger.forget_learnt("u", "m") == 3
        await keeper.share_facts(learnt)
        profile = Profile()
        assert learnt.apply("u", "m", profile, now=now) is profile
        assert (learnt.facts(), learnt.tallies.all()) == ((), ())
        assert (await ledger.facts(), await ledger.tallies()) == ([], [])


async def test_what_was_written_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 139: where the sums cannot be read behind what was added to them, it is not added twice."""
    keeper, learnt = TraceKeeper(LedgerSettings(place=str(tmp_path / "l.db"))), Learnt()
    now = time()
    learnt.observe("u", "m", "rung:schema", made=True, now=now)

    async def away(**_: object) -> list[TallyRow]:
        raise LedgerUnavailable("gone")

    async with keeper.ledger as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(ledger, "tallies", away)
            with pytest.raises(LedgerUnavailable):
                await keeper.share_facts(learnt)
        assert learnt.tallies.counts("u", "m", now) == {"rung:schema": Count(1, 0, now, now)}
        await keeper.share_facts(learnt)
        assert [(one.made, one.missed) for one in await ledger.tallies()] == [(1, 0)]
    assert learnt.tallies.counts("u", "m", now) == {"rung:schema": Count(1, 0, now, now)}


async def test_counts_that_expired_are_not_added_to(tmp_path: Path) -> None:
    """Rule 139: what is counted after a week of nothing is all that is known, also before the old count is removed."""
    keeper, learnt = TraceKeeper(LedgerSettings(place=str(tmp_path / "l.db"))), Learnt()
    now = time()
    old = now - EXPIRY - 60
    row = TallyRow(upstream="u", model="m", subject="rung:text", made=7, missed=0, first=old, last=old)
    async with keeper.ledger as ledger:
        await ledger.add_tallies([row])
        learnt.observe("u", "m", "rung:text", made=False, now=now)
        await keeper.share_facts(learnt)
        assert await ledger.tallies() == [msgspec.structs.replace(row, made=0, missed=1, first=now, last=now)]


async def test_a_fact_that_is_learnt_again_lives_on(tmp_path: Path) -> None:
    """Rule 139: its date in the ledger is renewed; others believe it for longer, too."""
    keeper, learnt, other = TraceKeeper(LedgerSettings(place=str(tmp_path / "l.db"))), Learnt(), Learnt()
    now = time()
    learnt.learn("u", "m", "named", False, "", at=now)
    async with keeper.ledger as ledger:
        await keeper.share_facts(learnt)
        (first,) = await ledger.facts()
        learnt.learn("u", "m", "named", False, "", at=now + 60)
        await keeper.share_facts(learnt)
        assert await ledger.facts() == [first]  # not with every turn
        learnt.learn("u", "m", "named", False, "", at=now + 7200)
        await keeper.share_facts(learnt)
        (renewed,) = await ledger.facts()
        assert renewed.at > first.at
        await keeper.share_facts(other)
        assert [one.at for one in other.facts()] == [renewed.at]
        # Gone from the ledger because it expired there, and learnt again since: told again, not forgotten.
        await ledger.forget_learnt()
        learnt.learn("u", "m", "named", False, "", at=now + 9000)
        await keeper.share_facts(learnt)
        assert [one.field for one in await ledger.facts()] == ["named"]


async def test_a_newer_word_is_told(tmp_path: Path) -> None:
    """Rule 33: a force that was first refused with reasoning and then as such is so for all."""
    keeper, learnt = TraceKeeper(LedgerSettings(place=str(tmp_path / "l.db"))), Learnt()
    learnt.learn("u", "m", "forced", "without_reasoning", "", at=time() - 60)
    async with keeper.ledger as ledger:
        await keeper.share_facts(learnt)
        learnt.learn("u", "m", "forced", "never", "", at=time() + 60)
        await keeper.share_facts(learnt)
        assert [one.value for one in await ledger.facts()] == [b'"never"']


async def test_what_expired_here_is_not_told(tmp_path: Path) -> None:
    """Rule 139: a fact that nobody believes any more does not begin a new life in a ledger that was away."""
    keeper, learnt = TraceKeeper(LedgerSettings(place=str(tmp_path / "l.db"))), Learnt()
    learnt.learn("u", "m", "named", False, "", at=time() - EXPIRY - 60)
    async with keeper.ledger as ledger:
        await keeper.share_facts(learnt)
        assert await ledger.facts() == []


async def test_what_expired_is_not_taken_over(tmp_path: Path) -> None:
    """Rule 139: what nobody added to for seven days is not learnt from the ledger."""
    keeper, learnt = TraceKeeper(LedgerSettings(place=str(tmp_path / "l.db"))), Learnt()
    old, late = time() - EXPIRY - 60, time() - EXPIRY + 60
    row = TallyRow(upstream="u", model="m", subject="rung:text", made=1, missed=0, first=old, last=old)
    async with keeper.ledger as ledger:
        await ledger.add_tallies([row, msgspec.structs.replace(row, model="n", last=late)])
        await keeper.share_facts(learnt)
    assert [one.model for one in learnt.tallies.all()] == ["n"]


async def test_a_gateway_keeps_what_its_turns_teach(tmp_path: Path) -> None:
    """Rule 139: what made the call is in the ledger when a gateway stops, and the next one begins with it."""
    place = tmp_path / "l.db"
    asked = {**ASK, "tools": [TOOL], "tool_choice": "required"}
    written = Turn(Say('{"name": "f", "arguments": {}}'))
    with ScriptedUpstream([Turn(Say("no call here")), written, written]) as served:
        for restarted in (False, True):
            with gateway_with_ledger(place, f"chat={served.base_url}") as gateway:
                if restarted:
                    await asyncio.to_thread(call, "GET", f"{gateway.url}/healthz")  # it has started
                    learnt = gateway.app._serve().learnt
                    async with asyncio.timeout(180):
                        while not learnt.tallies.all():  # noqa: ASYNC110  it tells nobody
                            await asyncio.sleep(0.01)
                answer = await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", asked)
                assert answer.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "f"
        native, schema, *_ = climbed("chat", asked)
        assert [one.body for one in served.requests] == [native, schema, schema]
    async with open_ledger(place) as ledger:
        counted = {one.subject: (one.made, one.missed) for one in await ledger.tallies()}
    assert counted == {"enforced": (0, 1), "rung:native": (0, 1), "rung:schema": (2, 0)}


def test_ages_and_sizes() -> None:
    """Times and sizes are read as people write them."""
    assert [read_age(text) for text in ("30d", "12h", "90m", "45s", "2w", "0")] == [
        2_592_000,
        43_200,
        5_400,
        45,
        1_209_600,
        None,
    ]
    assert [read_size(text) for text in ("500MB", "2GB", "10", "1k", "0")] == [
        500_000_000,
        2_000_000_000,
        10,
        1000,
        None,
    ]
    for text in ("soon", "5", "-1d", ""):
        with pytest.raises(ConfigError, match="keep is a time like 30d"):
            read_age(text)
    with pytest.raises(ConfigError, match="max_size is a size like 500MB"):
        read_size("much")


def test_which_ledger(tmp_path: Path) -> None:
    """Rule 120: flags over the environment over the file; `off` is none; what is no place is refused."""
    file = tmp_path / "mustcall.toml"
    file.write_text(
        '[[upstream]]\nname = "u"\nwire = "chat"\nbase_url = "http://127.0.0.1:1/v1"\n[ledger]\nkeep = "7d"\n'
    )
    env = {"HOME": "/home/ann"}
    found = load_settings(file, environment=env).ledger
    assert found is not None
    assert (found.place, found.keep) == ("/home/ann/.local/state/mustcall/ledger.db", "7d")
    assert load_settings(file, environment=env, ledger="off").ledger is None
    assert load_settings(file, environment={**env, "MUSTCALL_LEDGER": "off"}).ledger is None
    flagged = load_settings(file, environment={**env, "DATABASE_URL": "postgresql://x/y"}, ledger="/a.db", keep="1d")
    assert flagged.ledger == LedgerSettings(place="/a.db", keep="1d")
    file.write_text(file.read_text() + 'place = "/file.db"\ncontents = "full"\n')
    said = {**env, "MUSTCALL_LEDGER": "/env.db", "MUSTCALL_LEDGER_KEEP": "2d", "MUSTCALL_LEDGER_CONTENTS": "redacted"}
    named = load_settings(file, environment={**said, "MUSTCALL_LEDGER_RESPONSES": "false"}).ledger
    wanted = LedgerSettings(place="/env.db", keep="2d", contents=ContentsKept.REDACTED, responses=False)
    assert named == wanted
    shared = load_settings(file, environment={**env, "DATABASE_URL": "postgresql://x/y"}, keep="1d").ledger
    assert shared == LedgerSettings(place="/file.db", keep="1d", contents=ContentsKept.FULL)
    with pytest.raises(ConfigError, match="MUSTCALL_LEDGER_CONTENTS"):
        load_settings(file, environment={**env, "MUSTCALL_LEDGER_CONTENTS": "some"})
    with pytest.raises(ConfigError, match=r"not redis://"):
        load_settings(file, environment=env, ledger="redis://x")
    with pytest.raises(ConfigError, match="keep is a time"):
        load_settings(file, environment=env, keep="soon")


async def test_how_long_is_a_setting(tmp_path: Path) -> None:
    """Rules 120, 139: how long what was learnt is believed is set by file and environment: seven days, or for ever."""
    file = tmp_path / "mustcall.toml"
    file.write_text('[ledger]\nkeep_learnt = "1d"\n', encoding="utf-8")
    env = {"MUSTCALL_UPSTREAM": "chat=http://h/v1", "MUSTCALL_LEDGER": str(tmp_path / "l.db")}
    said = [
        load_settings(place, environment=env | over).ledger
        for place, over in (
            (None, {}),
            (file, {}),
            (file, {"MUSTCALL_LEDGER_KEEP_LEARNT": "0"}),
        )
    ]
    assert [one.learnt_seconds for one in said if one is not None] == [EXPIRY, 86_400.0, float("inf")]
    with pytest.raises(ConfigError, match="soon"):
        load_settings(file, environment=env | {"MUSTCALL_LEDGER_KEEP_LEARNT": "soon"})


@pytest.mark.parametrize(
    ("keep", "days", "believed"), [("1d", 2, False), ("7d", 2, True), ("7d", 8, False), ("0", 99, True)]
)
async def test_what_was_learnt_is_believed_as_long_as_is_set(
    tmp_path: Path, keep: str, days: int, believed: bool
) -> None:
    """Rule 139: counts older than that are neither believed, nor taken over from the ledger, nor added to."""
    settings = LedgerSettings(place=str(tmp_path / "l.db"), keep_learnt=keep)
    keeper, learnt, pupil = (
        TraceKeeper(settings),
        Learnt(keeps=settings.learnt_seconds),
        Learnt(keeps=settings.learnt_seconds),
    )
    now, then = time(), time() - days * 86_400.0
    learnt.observe("u", "m", "rung:native", made=False, now=then)
    learnt.observe("u", "m", "rung:schema", made=True, now=then)
    assert (learnt.apply("u", "m", Profile(), now=now).forced_by == ("schema",)) is believed
    async with keeper.ledger:
        await keeper.share_facts(learnt)
        await keeper.share_facts(pupil)
        assert (pupil.apply("u", "m", Profile(), now=now).forced_by == ("schema",)) is believed
    learnt.observe("u", "m", "rung:schema", made=True, now=now)
    made = [one.count.made for one in learnt.tallies.all() if one.subject == "rung:schema"]
    assert made == ([2] if believed else [1])


def test_a_gateway_believes_as_long_as_is_set(tmp_path: Path) -> None:
    """Rules 120, 139: what a gateway's turns learn is believed as long as its settings say."""
    env = {"MUSTCALL_LEDGER": str(tmp_path / "l.db"), "MUSTCALL_LEDGER_KEEP_LEARNT": "2d"}
    with (
        ScriptedUpstream([Turn(Say("Fine."))]) as served,
        RunningGateway(settings=load_settings(upstream_flags=[f"chat={served.base_url}"], environment=env)) as gateway,
    ):
        assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
        service = gateway.app._service
        assert service is not None
        assert service.learnt.keeps == 2 * 86_400.0
