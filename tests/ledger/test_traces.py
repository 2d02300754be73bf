"""Turns: rows with their attempts, and as much of their contents as is wanted."""

import msgspec
import pytest

from mustcall.ledger import AttemptTrace, ContentsKept, Ledger, TurnFilter, TurnTrace, open_ledger

ATTEMPT = AttemptTrace(
    number=1, rung="native", verdict="called", remedy="accept", digest="abc", seconds=0.5, sends=2, input_tokens=7
)
TURN = TurnTrace(
    id="req_1",
    at=1000.0,
    wire="chat",
    model="m",
    upstream="u",
    protocol="hybrid",
    force="met",
    outcome="calls",
    status=200,
    seconds=0.6,
    tenant="t",
    response="resp_1",
    input_tokens=7,
    output_tokens=3,
    adaptations=("field_mapped:a", "value_clamped:b"),
    attempts=(ATTEMPT, msgspec.structs.replace(ATTEMPT, number=2, verdict=None, remedy=None, error="cut")),
    request=b'{"messages":[{"content":"I am ann@example.com"}]}',
    reply=b'{"a":"Bearer abcdefghijkl"}',
)


async def test_a_turn_comes_back(ledger: Ledger) -> None:
    """A turn with its attempts, written twice, is there once."""
    await ledger.put_turns([TURN])
    await ledger.put_turns([TURN, msgspec.structs.replace(TURN, id="req_2", at=2000.0, attempts=(), adaptations=())])
    assert await ledger.get_turn("req_1") == TURN
    assert [turn.id for turn in await ledger.turns()] == ["req_2", "req_1"]
    assert [turn.id for turn in await ledger.turns(before=2000.0)] == ["req_1"]
    assert await ledger.get_turn("none") is None
    await ledger.put_turns([msgspec.structs.replace(TURN, id="req_3", model="m\0n", adaptations=("a:\0",))])
    odd = await ledger.get_turn("req_3")
    assert odd is not None
    assert (odd.model, odd.adaptations, odd.request) == ("mn", ("a:",), TURN.request)
    await ledger.put_turns([])


@pytest.mark.parametrize(
    ("contents", "request_kept", "reply_kept"),
    [
        (ContentsKept.FULL, TURN.request, TURN.reply),
        (
            ContentsKept.REDACTED,
            b'{"messages":[{"content":"I am [redacted email]"}]}',
            b'{"a":"Bearer [redacted token]"}',
        ),
        (ContentsKept.NONE, b"", b""),
    ],
)
async def test_contents_by_setting(place: str, contents: ContentsKept, request_kept: bytes, reply_kept: bytes) -> None:
    """Rule 136: contents are kept, masked, or not kept."""
    async with open_ledger(place, contents=contents) as ledger:
        await ledger.put_turns([TURN])
        found = await ledger.get_turn("req_1")
        assert found is not None
        assert (found.request, found.reply) == (request_kept, reply_kept)


async def test_turns_of_one_time_are_paged_by_their_ids(ledger: Ledger) -> None:
    """A page ends at a turn, not at a time: what ended at the same moment is neither lost nor told twice."""
    await ledger.put_turns([msgspec.structs.replace(TURN, id=f"req_{number}") for number in range(5)])
    first = await ledger.turns(most=2)
    assert [turn.id for turn in first] == ["req_4", "req_3"]
    rest = await ledger.turns(before=first[-1].at, before_id=first[-1].id)
    assert [turn.id for turn in rest] == ["req_2", "req_1", "req_0"]


async def test_lists_hold_no_contents_and_know_whose_a_turn_is(ledger: Ledger) -> None:
    """A list reads neither requests nor replies; session, client and tenant narrow it."""
    named = msgspec.structs.replace(TURN, id="req_2", session="s", client="c", error="e", cost_usd=0.5, estimated=True)
    await ledger.put_turns([TURN, named])
    assert await ledger.get_turn("req_2") == named
    for wanted in (TurnFilter(session="s"), TurnFilter(client="c"), TurnFilter(tenant="t", session="s")):
        (found,) = await ledger.turns(wanted)
        assert (found.id, found.request, found.reply, found.cost_usd, found.estimated) == ("req_2", b"", b"", 0.5, True)
    assert await ledger.turns(TurnFilter(tenant="other")) == []


async def test_sessions_are_found_by_how_they_begin(ledger: Ledger) -> None:
    """The first digits of a session are enough; another session may be asked for beside it, in its full length."""
    sessions = {"req_1": "", "req_2": "abcd12", "req_3": "abce34", "req_4": "ab%d56"}
    await ledger.put_turns([msgspec.structs.replace(TURN, id=name, session=one) for name, one in sessions.items()])
    for wanted, names in (
        (TurnFilter(session="abc"), ["req_3", "req_2"]),
        (TurnFilter(session="abcd"), ["req_2"]),
        (TurnFilter(session="ab%"), ["req_4"]),
        (TurnFilter(session="bcd"), []),
        (TurnFilter(session="night", or_session="abce34"), ["req_3"]),
        (TurnFilter(session="night", or_session="abce"), []),
        (TurnFilter(session="night"), []),
    ):
        assert [turn.id for turn in await ledger.turns(wanted)] == names


async def test_turns_without_an_outcome_can_be_found(ledger: Ledger) -> None:
    """`gone` finds the turns whose client left before a reply, `none` the others that have no outcome."""
    gone = msgspec.structs.replace(TURN, id="req_2", outcome=None, status=0)
    passed = msgspec.structs.replace(TURN, id="req_3", outcome=None, status=404)
    await ledger.put_turns([TURN, gone, passed])
    for outcome, turn in (("calls", TURN), ("gone", gone), ("none", passed)):
        (found,) = await ledger.turns(TurnFilter(outcome=outcome))
        assert (found.id, found.ended) == (turn.id, outcome)


async def test_sums_say_what_turns_came_to(ledger: Ledger) -> None:
    """Groups by model, outcome, first verdict and repair; attempts by remedy; kinds of adaptation once a turn."""
    plain = msgspec.structs.replace(TURN, id="req_2", at=2000.0, adaptations=("call_promoted:f", "call_promoted:g"))
    await ledger.put_turns([TURN, plain, msgspec.structs.replace(plain, id="req_3", tenant="u", cost_usd=0.25)])
    sums = await ledger.sum_turns(since=500.0)
    groups = {(group.first, group.mended): group for group in sums.groups}
    assert groups["called", False].count == 1
    assert (groups["called", True].count, groups["called", True].cost_usd) == (2, 0.25)
    assert groups["called", True].input_tokens == 14
    assert set(sums.attempts) == {("called", "accept", 3), ("", "", 3)}
    assert sums.changes == (("call_promoted", 2), ("field_mapped", 1), ("value_clamped", 1))
    assert sum(group.count for group in (await ledger.sum_turns(since=1500.0)).groups) == 2
    assert sum(group.count for group in (await ledger.sum_turns(tenant="u")).groups) == 1


async def test_every_turn_counts_among_the_kinds_of_changes(ledger: Ledger) -> None:
    """What adaptations were done to is without end: no turn is left out for being one of many."""
    turns = [
        msgspec.structs.replace(TURN, id=f"r{number}", adaptations=(f"field_dropped:{number}", "reported:a retried:x"))
        for number in range(1200)
    ]
    await ledger.put_turns([*turns, msgspec.structs.replace(TURN, id="rare", adaptations=("force_dropped:tool",))])
    sums = await ledger.sum_turns()
    assert sums.changes == (("field_dropped", 1200), ("reported", 1200), ("force_dropped", 1))


async def test_sums_keep_the_failures_of_a_busy_model_among_many_names(ledger: Ledger) -> None:
    """All groups of the models used most are told, rare outcomes too; the other models are counted."""
    busy = [msgspec.structs.replace(TURN, id=f"busy_{number}") for number in range(3)]
    busy.append(msgspec.structs.replace(TURN, id="busy_bad", outcome="failure", attempts=()))
    others = [
        msgspec.structs.replace(TURN, id=f"{number}_{turn}", model=f"n{number}", attempts=())
        for number in range(1000)
        for turn in range(2)
    ]
    await ledger.put_turns([*busy, *others])
    sums = await ledger.sum_turns()
    counts = {group.outcome: group.count for group in sums.groups if group.model == "m"}
    assert counts == {"calls": 3, "failure": 1}
    assert sums.models == 1001
    assert len({group.model for group in sums.groups}) == 50
    assert (await ledger.sum_turns(since=5000.0)).models == 0


@pytest.mark.parametrize(
    ("contents", "whole", "stream"),
    [
        (ContentsKept.FULL, b'{"a":"ann@example.com"}', b'data: {"a":"ann@"}\n\ndata: {"a":"example.com"}\n\n'),
        (ContentsKept.REDACTED, b'{"a":"[redacted email]"}', b""),
        (ContentsKept.NONE, b"", b""),
    ],
)
async def test_raw_replies_by_setting(place: str, contents: ContentsKept, whole: bytes, stream: bytes) -> None:
    """Rule 136: a raw stream is kept in full or not at all, because its events can share a secret between them."""
    raws = (b'{"a":"ann@example.com"}', b'data: {"a":"ann@"}\n\ndata: {"a":"example.com"}\n\n')
    attempts = [msgspec.structs.replace(ATTEMPT, number=number, raw=raw) for number, raw in enumerate(raws, 1)]
    async with open_ledger(place, contents=contents) as opened:
        await opened.put_turns([msgspec.structs.replace(TURN, attempts=tuple(attempts))])
        found = await opened.get_turn("req_1")
    assert found is not None
    assert [attempt.raw for attempt in found.attempts] == [whole, stream]
