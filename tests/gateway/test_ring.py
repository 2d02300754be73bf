"""The last turns in memory: bounded, without contents or keys, worked out when somebody looks."""

from typing import Any

import msgspec

from mustcall.core.errors import GatewayBusy
from mustcall.core.origin import Wire
from mustcall.core.parts import Text
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.records import AttemptRecord, TurnProgress, TurnRecord
from mustcall.gateway.state.conversation_state import tenant_of_key
from mustcall.gateway.state.recent_turns import Ring
from mustcall.gateway.state.turn_traces import TurnEnd
from mustcall.ledger import TurnFilter
from mustcall.policy.request.plan import Rung, RungKind


def ended(name: str, at: float, model: str = "m", key: str | None = None) -> TurnEnd:
    """A turn of two attempts that ended."""
    record = TurnRecord(protocol="hybrid", outcome=OutcomeKind.CALLS)
    for number, verdict in enumerate((Verdict.FORCE_MISSED, Verdict.CALLED)):
        record.attempts.append(
            AttemptRecord(
                rung=Rung(RungKind.NATIVE),
                body=b"the whole conversation",
                started=5.0 + number,
                seconds=0.5,
                verdict=verdict,
                usage=Usage(input_tokens=10, output_tokens=2),
                reply=Reply(id="r", model=model, parts=(Text(text="secret words"),), finish=FinishReason.STOP),
                problem="get_weather: secret words do not fit",
            )
        )
    progress = TurnProgress()
    progress.record, progress.model, progress.upstream, progress.session = record, model, "up", "s"
    return TurnEnd(name, at, 1.5, Wire.CHAT, 200, progress, key, False, b"", (), agent="claude-cli/2.0")


async def test_turns_come_back_newest_first_within_the_bound() -> None:
    """Of more turns than fit the oldest are gone; pages and filters are a ledger's."""
    ring = Ring(most=4)
    for number in range(6):
        ring.put(ended(f"req_{number}", at=float(number // 2), model=f"m{number % 2}"))
    assert [turn.id for turn in await ring.turns()] == ["req_5", "req_4", "req_3", "req_2"]
    first = await ring.turns(most=3)
    assert [turn.id for turn in await ring.turns(before=first[-1].at, before_id=first[-1].id)] == ["req_2"]
    assert [turn.id for turn in await ring.turns(TurnFilter(model="m1", client="claude-cli"))] == ["req_5", "req_3"]
    assert await ring.turns(TurnFilter(verdict="empty")) == []
    assert len(await ring.turns(TurnFilter(verdict="force_missed", session="s"))) == 4
    ring.put(TurnEnd("req_6", 9.0, 1.5, Wire.CHAT, 0, TurnProgress(), None, False, b"", ()))
    assert [turn.id for turn in await ring.turns(TurnFilter(outcome="gone"))] == ["req_6"]
    assert await ring.turns(TurnFilter(outcome="none")) == []
    found = await ring.get_turn("req_3")
    assert found is not None
    assert [attempt.begun for attempt in found.attempts] == [0.0, 1.0]
    assert (found.input_tokens, found.output_tokens, found.outcome) == (20, 4, "calls")
    assert await ring.get_turn("req_0") is None


def held(ring: Ring) -> list[Any]:
    """What is in memory before anybody has looked."""
    return list(ring._held)


async def test_neither_contents_nor_keys_are_held() -> None:
    """Rule 136: what was said and the caller's key are not in memory once the turn has ended."""
    ring = Ring()
    end = ended("req_1", 1.0, key="sk-secret-1")
    ring.put(end)
    ring.put(msgspec.structs.replace(ended("req_2", 2.0, key="sk-secret-1"), failure=GatewayBusy("secret words")))
    well, failed = held(ring)
    assert "secret" not in repr((well.progress.record, failed))
    assert end.progress.record is not None
    assert end.progress.record.attempts[0].body  # whoever else looks at the turn finds it as it was
    assert "secret" not in repr(await ring.turns())
    for turn in await ring.turns():
        assert turn.tenant == tenant_of_key("sk-secret-1")
        assert not any((turn.request, turn.reply, *(attempt.request for attempt in turn.attempts)))
    assert [turn.error for turn in await ring.turns()] == ["gateway_busy", ""]


async def test_sums_are_those_of_a_ledger() -> None:
    """Counts by model, outcome and first verdict; a tenant's own where one is named."""
    ring = Ring()
    for number in range(3):
        ring.put(ended(f"req_{number}", at=float(number), key="a" if number else None))
    (group,) = (await ring.sum_turns()).groups
    assert (group.first, group.count, group.input_tokens, group.mended) == ("force_missed", 3, 60, False)
    sums = await ring.sum_turns(since=1.0, tenant=tenant_of_key("a"))
    assert sums.groups[0].count == 2
    assert sums.models == 1
    assert {verdict: count for verdict, _, count in sums.attempts} == {"force_missed": 2, "called": 2}
