"""Finds the smallest request that fails in the same way: the pure search, carried out one upstream call at a time.

The oracle is the verdict of the bare reply. What was found so far can be read at any time, so that who stops the
search keeps it.
"""

from collections.abc import Awaitable, Callable
from typing import cast

import msgspec

from mustcall.core.errors import ConfigError, MustcallError, UpstreamUnavailable
from mustcall.core.origin import JsonObject
from mustcall.replay.costs import Announcement, cost_of_call
from mustcall.replay.parts import Body, Size, masked, phases_for, size_of
from mustcall.replay.recorded import RecordedRequest
from mustcall.replay.reducing import LEAST_CALLS, FoundReduction, Reducer
from mustcall.replay.sampling import HEALTHY, ReplaySample, ReplaySubject, sample_bare

__all__ = ["Ask", "Minimised", "Minimising", "announce_search", "ask_of"]

_WORKS = frozenset(str(verdict) for verdict in HEALTHY) | {"unavailable"}

Ask = Callable[[RecordedRequest, int], Awaitable[ReplaySample]]


class Minimised(msgspec.Struct, frozen=True, kw_only=True):
    """What a search came to; `sample` is a reply of the upstream that failed in that way."""

    recorded: RecordedRequest
    found: FoundReduction[Body]
    before: Size
    after: Size
    sample: ReplaySample | None
    redacted: bool = False
    #: Whether masking made another request of the smallest one that failed.
    masking_changed: bool = False
    partial: bool = False

    @property
    def reproduces(self) -> bool:
        """Whether there is a request that fails: the original did."""
        return bool(self.found.verdict)

    @property
    def words(self) -> str:
        """The result as one line."""
        found, before, after = self.found, self.before, self.after
        if not self.reproduces:
            hits, asked = found.original
            what = "fails too rarely" if hits else "does not fail"
            if not hits and any(verdict and verdict not in _WORKS for verdict in self.recorded.verdicts):
                what += " any more"
            return f"the request {what}: {hits} of {asked} replies were bad in the same way"
        sizes = f"{_kilobytes(before.bytes)} → {_kilobytes(after.bytes)}"
        hits, asked = found.confirmed
        shown = f"{before.tool_words} → {after.tools}, {before.message_words} → {after.messages}, {sizes}"
        return f"{shown}, reproduces {hits}/{asked}"

    @property
    def caveat(self) -> str:
        """What is to be known about the result, empty for a confirmed one."""
        found = self.found
        hits, asked = found.confirmed
        if not self.reproduces or found.is_confirmed:
            return ""
        if self.partial:
            return "the search was stopped: the result is the smallest request so far, and was not confirmed"
        if not hits and self.masking_changed:
            why = "masking removed the cause"
            return f"not confirmed: the masked request does not fail; without --redact it does: {why}"
        if not hits:
            return f"not confirmed: it failed in none of {asked} calls; the upstream has stopped failing in this way"
        return f"not confirmed: it fails now and then, in {hits} of {asked} calls"


def _kilobytes(count: int) -> str:
    return f"{count / 1000:.1f} kB" if count < 10_000 else f"{count / 1000:.0f} kB"


def announce_search(recorded: RecordedRequest, subject: ReplaySubject, max_calls: int) -> Announcement:
    """Return what a search may take: never more calls than its budget."""
    each = cost_of_call(recorded, subject)
    return Announcement(least_calls=1, most_calls=max_calls, most_usd=None if each is None else each * max_calls)


class Minimising:
    """One search. `redact` masks what is written, and it is the masked request that is confirmed."""

    def __init__(self, recorded: RecordedRequest, *, max_calls: int, wanted: str = "", redact: bool = False) -> None:
        if max_calls < LEAST_CALLS:
            raise ConfigError(f"--max-calls must be {LEAST_CALLS} or more, got {max_calls}")
        #: The request to search from; it may be set anew before the search begins.
        self.recorded = recorded
        self._redact = redact
        self._reducer: Reducer[Body] = Reducer(max_calls, lambda verdict: verdict in _WORKS, wanted=wanted)
        self._found: FoundReduction[Body] | None = None
        self._sample: ReplaySample | None = None
        #: Upstream calls so far.
        self.calls = 0

    @property
    def _start(self) -> Body:
        return cast("JsonObject", msgspec.json.decode(self.recorded.body))

    async def run(self, ask: Ask, note: Callable[[ReplaySample, Size], None]) -> None:
        """Search to the end; `note` hears of each call. Raise `UpstreamUnavailable` where the upstream is gone."""
        search = self._reducer.run(self._start, phases_for(self.recorded.wire), finish=self._finish)
        try:
            candidate = next(search)
            while True:
                candidate = search.send(await self._verdict(candidate, ask, note))
        except StopIteration as ended:
            self._found = ended.value
        finally:
            search.close()

    async def _verdict(self, candidate: Body, ask: Ask, note: Callable[[ReplaySample, Size], None]) -> str:
        self.calls += 1
        asked = msgspec.structs.replace(self.recorded, body=msgspec.json.encode(candidate))
        try:
            sample = await ask(asked, self.calls)
        except UpstreamUnavailable:
            raise
        except MustcallError:
            return ""  # not a request that can be sent
        if not sample.reached:
            raise UpstreamUnavailable(f"the upstream cannot be reached: {sample.message}")
        if sample.verdict not in _WORKS and (not self._reducer.verdict or sample.verdict == self._reducer.verdict):
            self._sample = sample
        note(sample, size_of(candidate, self.recorded.wire))
        return sample.verdict

    def _finish(self, body: Body) -> Body:
        return masked(body) if self._redact else body

    def result(self) -> Minimised:
        """Return what was found so far."""
        reducer, wire = self._reducer, self.recorded.wire
        found = self._found or FoundReduction(
            result=self._finish(reducer.best or self._start),
            verdict=reducer.verdict if reducer.best is not None else "",
            original=reducer.original,
            calls=self.calls,
            candidates=reducer.candidates,
            spent=True,
        )
        return Minimised(
            recorded=msgspec.structs.replace(self.recorded, body=msgspec.json.encode(found.result)),
            found=found,
            before=size_of(self._start, wire),
            after=size_of(found.result, wire),
            sample=self._sample,
            redacted=self._redact,
            masking_changed=reducer.best is not None and self._finish(reducer.best) != reducer.best,
            partial=self._found is None,
        )


def ask_of(subject: ReplaySubject) -> Ask:
    """Return how a candidate is asked: bare, once."""

    async def ask(recorded: RecordedRequest, number: int) -> ReplaySample:
        return await sample_bare(recorded, subject, number)

    return ask
