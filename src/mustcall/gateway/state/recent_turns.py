"""The last turns of this process, in memory, for a gateway that has no ledger or cannot reach it. No contents.

It answers what a ledger answers of turns, so that whoever shows them need not know where they are kept. What a turn
looks like is worked out when somebody looks: most are never looked at.
"""

from collections import Counter, deque
from itertools import islice

import msgspec

from mustcall.core.origin import Wire
from mustcall.engine.records import TurnProgress, TurnRecord
from mustcall.gateway.state.conversation_state import tenant_of_key
from mustcall.gateway.state.turn_traces import TurnEnd, describe
from mustcall.ledger import TurnFilter, TurnGroup, TurnSums, TurnTrace
from mustcall.ledger.traces import count_changes, is_mended

__all__ = ["Ring"]

_ANY = TurnFilter()
_replace = msgspec.structs.replace
#: What a word of a filter is compared with, where that has another name.
_HELD_AS = {"outcome": "ended"}
_JUDGED_APART = frozenset({"verdict", "session", "or_session"})


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A turn that nobody has looked at."""

    id: str
    at: float
    seconds: float
    wire: Wire
    status: int
    record: TurnRecord
    model: str
    upstream: str
    session: str
    gone: bool
    agent: str
    tenant: str

    @property
    def progress(self) -> TurnProgress:
        """The turn as far as it is kept."""
        seen = TurnProgress()
        seen.record, seen.model, seen.upstream = self.record, self.model, self.upstream
        seen.session, seen.gone = self.session, self.gone
        return seen

    def described(self) -> TurnTrace:
        """Return the turn as it is shown."""
        end = TurnEnd(
            *(self.id, self.at, self.seconds, self.wire, self.status, self.progress, None, False, b"", ()),
            agent=self.agent,
        )
        return msgspec.structs.replace(_figures(end), tenant=self.tenant)


class Ring:
    """At most `most` turns; the oldest goes first."""

    #: Requests and replies are kept in a ledger only, where the operator says how and for how long.
    keeps_contents = False

    def __init__(self, most: int = 500) -> None:
        self._held: deque[_Held | TurnTrace] = deque(maxlen=most)

    def put(self, end: TurnEnd) -> None:
        """Take a finished turn. Of its record only figures are kept, not the conversation."""
        progress = end.progress
        record = progress.record
        if record is None or end.failure is not None:  # rare, and an error holds more than figures
            self._held.append(_figures(end))
            return
        attempts = [_replace(one, body=b"", reply=None, problem="") for one in record.attempts]
        self._held.append(
            _Held(
                end.id,
                end.at,
                end.seconds,
                end.wire,
                end.status,
                _replace(record, attempts=attempts),
                progress.model,
                progress.upstream,
                progress.session,
                progress.gone,
                end.agent,
                progress.tenant or tenant_of_key(end.key),
            )
        )

    @property
    def _turns(self) -> list[TurnTrace]:
        """The turns as they are shown; each is worked out once."""
        for place, held in enumerate(self._held):
            if isinstance(held, _Held):
                self._held[place] = held.described()
        return [held for held in self._held if isinstance(held, TurnTrace)]

    async def turns(
        self, wanted: TurnFilter = _ANY, *, before: float = float("inf"), before_id: str = "", most: int = 100
    ) -> list[TurnTrace]:
        """Return turns, the newest first."""
        found = [turn for turn in self._turns if (turn.at, turn.id) < (before, before_id) and _fits(turn, wanted)]
        found.sort(key=lambda turn: (turn.at, turn.id), reverse=True)
        return list(islice(found, most))

    async def get_turn(self, turn: str) -> TurnTrace | None:
        """Return one turn."""
        return next((one for one in self._turns if one.id == turn), None)

    async def sum_turns(self, *, since: float = 0.0, tenant: str = "") -> TurnSums:
        """Return what the turns since a time came to."""
        turns = [turn for turn in self._turns if turn.at >= since and (not tenant or turn.tenant == tenant)]
        groups: dict[tuple[str, str, str | None, str | None, bool], list[TurnTrace]] = {}
        for turn in turns:
            first = turn.attempts[0].verdict if turn.attempts else None
            key = (turn.upstream, turn.model, turn.outcome, first, is_mended(turn.adaptations))
            groups.setdefault(key, []).append(turn)
        attempts = Counter((one.verdict or "", one.remedy or "") for turn in turns for one in turn.attempts)
        return TurnSums(
            groups=tuple(
                TurnGroup(
                    upstream=upstream,
                    model=model,
                    outcome=outcome,
                    first=first,
                    mended=mended,
                    count=len(same),
                    input_tokens=sum(turn.input_tokens for turn in same),
                    output_tokens=sum(turn.output_tokens for turn in same),
                    seconds=sum(turn.seconds for turn in same),
                    cost_usd=sum(turn.cost_usd for turn in same),
                )
                for (upstream, model, outcome, first, mended), same in groups.items()
            ),
            models=len({(turn.upstream, turn.model) for turn in turns}),
            attempts=tuple((verdict, remedy, count) for (verdict, remedy), count in attempts.most_common()),
            changes=count_changes((turn.adaptations, 1) for turn in turns if turn.adaptations),
        )


def _figures(end: TurnEnd) -> TurnTrace:
    """Return a turn without contents; what was wrong with a reply can quote it."""
    told = describe(end, digests=False)
    attempts = tuple(msgspec.structs.replace(attempt, problem="") for attempt in told.attempts)
    return msgspec.structs.replace(told, attempts=attempts)


def _fits(turn: TurnTrace, wanted: TurnFilter) -> bool:
    if wanted.verdict and not any(attempt.verdict == wanted.verdict for attempt in turn.attempts):
        return False
    named = wanted.or_session != "" and turn.session == wanted.or_session
    if not named and not turn.session.startswith(wanted.session):
        return False
    return all(
        not word or getattr(turn, _HELD_AS.get(name, name)) == word
        for name in wanted.__struct_fields__
        if name not in _JUDGED_APART
        for word in (getattr(wanted, name),)
    )
