"""Turns: rows with their attempts, and as much of their contents as is wanted."""

import msgspec
import pytest

from mustcall.ledger import AttemptTrace, Contents, Ledger, TurnTrace, open_ledger

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
        (Contents.FULL, TURN.request, TURN.reply),
        (
            Contents.REDACTED,
            b'{"messages":[{"content":"I am [redacted email]"}]}',
            b'{"a":"Bearer [redacted token]"}',
        ),
        (Contents.NONE, b"", b""),
    ],
)
async def test_contents_by_setting(place: str, contents: Contents, request_kept: bytes, reply_kept: bytes) -> None:
    """Rule 136: contents are kept, masked, or not kept."""
    async with open_ledger(place, contents=contents) as ledger:
        await ledger.put_turns([TURN])
        found = await ledger.get_turn("req_1")
        assert found is not None
        assert (found.request, found.reply) == (request_kept, reply_kept)
