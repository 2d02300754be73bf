"""The whole search on a large request, against a model that fails for two of its parts."""

import random

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.replay.parts import phases_for
from mustcall.replay.reducing import Reducer
from support.shrinking import CULPRIT, WORDS, large, names

BODY = large(Wire.CHAT)


def search(rate: float, seed: int, most: int) -> tuple[bool, int]:
    """Search once; return whether exactly the tool and the message were found, and the calls that were made."""
    chance = random.Random(seed)
    run = Reducer[dict[str, object]](most, lambda verdict: verdict == "ok").run(BODY, phases_for(Wire.CHAT))
    calls, found = 0, None
    try:
        candidate = next(run)
        while True:
            calls += 1
            fails = CULPRIT in names(candidate) and WORDS.encode() in msgspec.json.encode(candidate)
            candidate = run.send("bad" if fails and chance.random() < rate else "ok")
    except StopIteration as ended:
        found = ended.value
    assert found is not None
    left = found.result
    exact = bool(found.verdict) and names(left) == [CULPRIT] and len(left["messages"]) == 1
    return exact, calls


@pytest.mark.parametrize(("rate", "most", "least"), [(1.0, 120, 60), (0.9, 120, 60), (0.75, 120, 59), (0.6, 120, 57)])
def test_the_two_parts_are_found(rate: float, most: int, least: int) -> None:
    """Of 60 searches so many end exactly; a failure that comes now and then takes more calls, never too many."""
    done = [search(rate, seed, most) for seed in range(60)]
    assert sum(exact for exact, _ in done) >= least
    assert max(calls for _, calls in done) <= most
