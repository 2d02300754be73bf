"""Asks every question in both arms, one question after the other, and hands on each row as soon as it is there.

The arms take turns in going first, in each set, so that neither gains from what the other left in a cache. What comes
back is not judged here, except to tell an upstream that does not answer at all.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.evals.asking.arms import Asker
from mustcall.evals.asking.rows import Arm, EvalRow
from mustcall.evals.questions import Question

__all__ = ["ask_all"]

#: So many questions in a row that the upstream answers in neither arm end a run.
_OUTAGE = 3


async def ask_all(
    questions: Sequence[Question],
    askers: Mapping[Arm, Asker],
    *,
    name: str,
    done: Collection[tuple[str, Arm]] = (),
) -> AsyncGenerator[EvalRow]:
    """Yield a row for each question and arm that is not done.

    An upstream that answers neither arm of the first question, or of several in a row, is an error: asking on would say
    the same.
    """
    turns, outage, answered = dict.fromkeys(askers, 0), 0, bool(done)
    asked: Counter[str] = Counter()
    for question in questions:
        order = list(askers)[:: -1 if asked[question.set] % 2 else 1]
        asked[question.set] += 1
        rows: list[EvalRow] = []
        for arm in order:
            if (question.id, arm) in done:
                continue
            turns[arm] += 1
            row = await askers[arm](question, turns[arm])
            rows.append(msgspec.structs.replace(row, first=arm is order[0]))
            yield rows[-1]
        down = bool(rows) and all(row.fault is not None and row.fault.upstream for row in rows)
        outage = outage + 1 if down else 0
        answered = answered or (bool(rows) and not down)
        if down and (not answered or outage == _OUTAGE):
            assert rows[0].fault is not None
            which = "the first question" if not answered else f"{_OUTAGE} questions in a row"
            raise ConfigError(
                f"the upstream {name!r} answered neither arm of {which}: {rows[0].fault.message}; check its address, "
                "the model's name and the key"
            )
