"""Bodies that know whether they were compared: a test of retries must look at the body of each call (rule 118).

A body counts as compared once it was equal to a whole body that the test wrote: alone, or in a list. A key of it, a
substring, a count or another recorded body is no comparison. What a test has good reason not to compare it says with
`leave`.

The shared stages count for themselves. `watch_upstreams` notes the calls of every other scripted upstream, scripted
model and fake transport, and the turns that the engine takes on each, behind a gateway or in the library: a test whose
upstream got more calls than turns has retried. What an eval, a replay or a probe sends an upstream without the engine
is an exchange of its own and counts as a turn.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import wraps
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from mustcall.engine import exchange
from mustcall.engine.attempts import sending as sending_attempts
from mustcall.engine.turn import EngineTurn
from mustcall.testing import Answer, Recorded, ScriptedModel, ScriptedUpstream
from mustcall.testing.model import _Script
from mustcall.testing.transport import FakeReply, FakeTransport
from mustcall.upstream.http import HttpTransport
from mustcall.upstream.seam import UpstreamCall

__all__ = [
    "Body",
    "Comparing",
    "check_compared",
    "forget",
    "keep_own_count",
    "leave",
    "leave_all",
    "read_raw",
    "watch_upstreams",
]

Upstream = ScriptedUpstream | ScriptedModel | FakeTransport

#: The scripts of the running test that have ended.
_ended: list["Comparing"] = []
#: What the running test's upstreams received. An upstream may be gone before its test ends, its calls are not.
_tallies: list["_Tally"] = []
_tally_of: WeakKeyDictionary[object, "_Tally"] = WeakKeyDictionary()
#: The scripted upstreams that listen, by their port.
_listening: WeakValueDictionary[int, ScriptedUpstream] = WeakValueDictionary()
_own: WeakKeyDictionary[ScriptedUpstream, bool] = WeakKeyDictionary()
_watching: list[bool] = []
#: Why the running test leaves all its upstreams unlooked at.
_left: list[str] = []
#: Whether what is sent now belongs to a turn of the engine.
_in_turn: ContextVar[bool] = ContextVar("_in_turn", default=False)
#: How the addresses end that a generation is asked for at.
_ASKED_AT = ("/chat/completions", "/responses", "/messages")


class _Tally:
    """The calls that one upstream got in the running test, and the turns they came from."""

    def __init__(self) -> None:
        self.comparing = Comparing()
        self.calls = 0
        self.turns = 0

    def noted(self, body: dict[str, Any], raw: bytes) -> tuple["Body", "Raw"]:
        """Count a call; return its body and bytes, which note that they were compared."""
        self.calls += 1
        return self.comparing.noted(body, raw, self.calls - 1)


def forget() -> None:
    """Forget the scripts of tests before this one, which may have failed."""
    _ended.clear()
    _tallies.clear()
    _tally_of.clear()
    _left.clear()


def check_compared(*, every: bool = False) -> None:
    """Fail if a turn of this test came to several calls and not all of their bodies were compared.

    That is for the shared stages; with `every` for each upstream that the engine called.
    """
    for script in _ended:
        script.check()
    if every and not _left:
        for tally in _tallies:
            if tally.turns:  # else the test asked it itself
                tally.comparing.end(tally.calls, tally.turns)
                tally.comparing.check()


def keep_own_count(upstream: ScriptedUpstream) -> None:
    """Leave an upstream to a stage that counts for itself."""
    _own[upstream] = True


def leave(upstream: Upstream, why: str) -> None:
    """Leave bodies of an upstream unlooked at in this test, for a reason."""
    _tally(upstream).comparing.leave(why)


def leave_all(why: str) -> None:
    """Leave every upstream of this test unlooked at, also those that the program it runs makes, for a reason."""
    assert why, "a reason is needed"
    _left.append(why)


def read_raw(raw: bytes) -> Any:
    """Return recorded bytes as a body; comparing it counts as comparing them."""
    return raw.read() if isinstance(raw, Raw) else msgspec.json.decode(raw)


def watch_upstreams() -> None:
    """From here on note the calls of every upstream of a test, and the turns that this process takes on it."""
    if _watching:
        return
    _watching.append(True)
    _note_calls()
    _note_turns()


def _note_calls() -> None:
    """Note what arrives: at a port, at a scripted model, at a fake transport."""
    start, answer = ScriptedUpstream.start, ScriptedUpstream._answer
    say, send = _Script._answer, FakeTransport.send

    @wraps(start)
    def starting(self: ScriptedUpstream) -> ScriptedUpstream:
        started = start(self)
        _listening[self.port] = self
        return started

    @wraps(answer)
    def answering(self: ScriptedUpstream, recorded: Recorded) -> Answer:
        if recorded.wire is not None and self not in _own:
            _note(self, recorded)
        return answer(self, recorded)

    @wraps(say)
    def saying(self: _Script, recorded: Recorded) -> Answer:
        _note(self, recorded)
        return say(self, recorded)

    @wraps(send)
    async def sending(self: FakeTransport, call: UpstreamCall) -> FakeReply:
        if call.body is not None:
            _, raw = _tally(self).noted({}, call.body)
            call = msgspec.structs.replace(call, body=raw)
        return await send(self, call)

    ScriptedUpstream.start = starting  # pyrefly: ignore[method-assign]  it returns itself
    ScriptedUpstream._answer = answering  # pyrefly: ignore[method-assign]  watched
    _Script._answer = saying  # pyrefly: ignore[method-assign]  watched
    FakeTransport.send = sending  # pyrefly: ignore[method-assign]  watched


def _note_turns() -> None:
    """Note each turn, each exchange that is forwarded without being read, and each that the engine is no part of."""
    begin, send = EngineTurn.__init__, exchange.send_patiently
    carry = HttpTransport.send

    @wraps(begin)
    def beginning(self: EngineTurn, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        _count_turn(self.context.services.transport, self.context.endpoint.base_url)

    @wraps(send)
    async def forwarding(transport: Any, call: UpstreamCall, *args: Any, **named: Any) -> Any:
        _count_turn(transport, call.url)
        return await trying(transport, call, *args, **named)

    @wraps(send)
    async def trying(*args: Any, **named: Any) -> Any:
        before = _in_turn.set(True)
        try:
            return await send(*args, **named)
        finally:
            _in_turn.reset(before)

    @wraps(carry)
    async def carrying(self: HttpTransport, call: UpstreamCall) -> Any:
        if not _in_turn.get() and call.url.endswith(_ASKED_AT):
            _count_turn(self, call.url)
        return await carry(self, call)

    EngineTurn.__init__ = beginning  # pyrefly: ignore[method-assign]  watched
    exchange.send_patiently = forwarding
    sending_attempts.send_patiently = trying
    HttpTransport.send = carrying  # pyrefly: ignore[method-assign]  watched


def _tally(upstream: object) -> _Tally:
    """Return the tally of an upstream in the running test."""
    held = upstream._script if isinstance(upstream, ScriptedModel) else upstream
    tally = _tally_of.get(held)
    if tally is None:
        tally = _tally_of[held] = _Tally()
        _tallies.append(tally)
    return tally


def _note(upstream: object, recorded: Recorded) -> None:
    """Let a recorded request know whether its body was compared."""
    body: Any = recorded.body
    if isinstance(body, dict):
        read = cast("dict[str, Any]", body)  # of JSON
        recorded.body, recorded.raw = _tally(upstream).noted(read, recorded.raw)


def _count_turn(transport: Any, url: str) -> None:
    """Count a turn for the upstream that its calls will reach."""
    while hasattr(transport, "_transport"):  # what meters or keeps what goes through it
        transport = transport._transport
    if isinstance(transport, FakeTransport | _Script):
        _tally(transport).turns += 1
        return
    upstream = _listening.get(urlsplit(url).port or 0)
    if upstream is not None and upstream not in _own:
        _tally(upstream).turns += 1


class Body(dict[str, Any]):
    """A recorded body; being equal to another marks it as compared."""

    __slots__ = ("_compared", "_number")

    def __init__(self, body: dict[str, Any], number: int, compared: set[int]) -> None:
        super().__init__(body)
        self._number = number
        self._compared = compared

    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        if equal is True and not isinstance(other, Body):
            self._compared.add(self._number)
        return bool(equal)

    def __ne__(self, other: object) -> bool:
        return not super().__eq__(other)

    __hash__ = None  # as every dict


class Raw(bytes):
    """Recorded bytes; being equal to others marks them as compared."""

    number: int
    compared: set[int]

    def read(self) -> Any:
        """Return them as a body that notes the same."""
        body: Any = msgspec.json.decode(self)
        return Body(cast("dict[str, Any]", body), self.number, self.compared) if isinstance(body, dict) else body

    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        if equal is True and not isinstance(other, Raw):
            self.compared.add(self.number)
        return bool(equal)

    def __ne__(self, other: object) -> bool:
        return not super().__eq__(other)

    __hash__ = bytes.__hash__


class Comparing:
    """What of a script's bodies was compared so far."""

    def __init__(self) -> None:
        self._compared: set[int] = set()
        self._left: str | None = None
        self._count = 0
        self._counted: Callable[[], tuple[int, int]] | None = None

    def bodies(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the bodies, each of which notes that it was compared."""
        return [Body(body, number, self._compared) for number, body in enumerate(bodies)]

    def noted(self, body: dict[str, Any], raw: bytes, number: int) -> tuple[Body, Raw]:
        """Return a body and its bytes, which note that they were compared."""
        written = Raw(raw)
        written.number, written.compared = number, self._compared
        return Body(body, number, self._compared), written

    def leave(self, why: str) -> None:
        """Leave bodies of this script unlooked at, for a reason."""
        assert why, "a reason is needed"
        self._left = why

    def end(self, calls: int, asked: int) -> None:
        """Note how many calls so many requests came to: where there are more, the test is asked about them later."""
        self._counted = None
        if calls > asked:
            self._count = calls
            if self not in _ended:
                _ended.append(self)

    def watch(self, counted: Callable[[], tuple[int, int]]) -> None:
        """Do as `end` when the test is over, or when `settle` is called: `counted` tells calls and requests."""
        self._counted = counted
        _ended.append(self)

    def settle(self) -> None:
        """Count what is watched now; what a test before this one left is not counted."""
        if self._counted is not None and self in _ended:
            self.end(*self._counted())

    def check(self) -> None:
        """Fail if one of the bodies was not compared."""
        if self._counted is not None:
            self.end(*self._counted())
        missing = [number + 1 for number in range(self._count) if number not in self._compared]
        if missing and self._left is None:
            listed = ", ".join(map(str, missing))
            raise AssertionError(f"rule 118: of {self._count} upstream calls the bodies of {listed} were not compared")
