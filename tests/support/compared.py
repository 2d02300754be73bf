"""Bodies that know whether they were compared: a test of retries must look at the body of each call (rule 118).

A body counts as compared once it was equal to a whole body that the test wrote: alone, or in a list. A key of it, a
substring or a count is no comparison. What a test has good reason not to compare it says with `leave`.

The shared stages count for themselves. `watch_upstreams` looks after every other scripted upstream behind a gateway.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from mustcall.gateway.app import Gateway
from mustcall.testing import Answer, Recorded, ScriptedUpstream

__all__ = ["Body", "Comparing", "check_compared", "forget", "keep_own_count", "leave", "watch_upstreams"]

#: The scripts of the running test that have ended.
_ended: list["Comparing"] = []
#: What the running test's upstreams received; for each call whether its body was compared.
_received: WeakKeyDictionary[ScriptedUpstream, "Comparing"] = WeakKeyDictionary()
_calls: WeakKeyDictionary[ScriptedUpstream, int] = WeakKeyDictionary()
#: The requests that the gateways before each port got in the running test.
_asked: dict[int, int] = {}
_own: WeakKeyDictionary[ScriptedUpstream, bool] = WeakKeyDictionary()
_watching: list[bool] = []


def forget() -> None:
    """Forget the scripts of tests before this one, which may have failed."""
    _ended.clear()
    _received.clear()
    _calls.clear()
    _asked.clear()


def check_compared(*, every: bool = False) -> None:
    """Fail if a request of this test came to several calls and not all of their bodies were compared.

    That is for the shared stages; with `every` for each upstream behind a gateway.
    """
    for script in _ended:
        script.check()
    if every:
        for upstream, comparing in list(_received.items()):
            asked = _asked.get(upstream.port, 0)
            if asked:  # else the test asked it itself
                comparing.end(_calls[upstream], asked)
                comparing.check()


def keep_own_count(upstream: ScriptedUpstream) -> None:
    """Leave an upstream to a stage that counts for itself."""
    _own[upstream] = True


def leave(upstream: ScriptedUpstream, why: str) -> None:
    """Leave bodies of an upstream unlooked at in this test, for a reason."""
    _received.setdefault(upstream, Comparing()).leave(why)


def watch_upstreams() -> None:
    """From here on note the calls of every scripted upstream and the requests of every gateway in this process."""
    if _watching:
        return
    _watching.append(True)
    answer, http = ScriptedUpstream._answer, Gateway._http  # pyright: ignore[reportPrivateUsage]

    def noting(self: ScriptedUpstream, recorded: Recorded) -> Answer:
        body: Any = recorded.body
        if recorded.wire is not None and isinstance(body, dict) and self not in _own:
            read = cast("dict[str, Any]", body)  # of JSON
            number = _calls.get(self, 0)
            _calls[self] = number + 1
            comparing = _received.setdefault(self, Comparing())
            recorded.body, recorded.raw = comparing.noted(read, recorded.raw, number)
        return answer(self, recorded)

    async def counting(self: Gateway, scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            for endpoint in self._settings.endpoints:  # pyright: ignore[reportPrivateUsage]
                port = urlsplit(endpoint.base_url).port or 0
                _asked[port] = _asked.get(port, 0) + 1
        await http(self, scope, receive, send)

    ScriptedUpstream._answer = noting  # pyright: ignore[reportPrivateUsage]
    Gateway._http = counting  # pyright: ignore[reportPrivateUsage]


class Body(dict[str, Any]):
    """A recorded body; being equal to another marks it as compared."""

    __slots__ = ("_compared", "_number")

    def __init__(self, body: dict[str, Any], number: int, compared: set[int]) -> None:
        super().__init__(body)
        self._number = number
        self._compared = compared

    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        if equal is True:
            self._compared.add(self._number)
        return bool(equal)

    def __ne__(self, other: object) -> bool:
        return not super().__eq__(other)

    __hash__ = None  # type: ignore[assignment]  as every dict


class Raw(bytes):
    """Recorded bytes; being equal to others marks them as compared."""

    mark: Callable[[], None]

    def __eq__(self, other: object) -> bool:
        equal = super().__eq__(other)
        if equal is True:
            self.mark()
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
        written.mark = lambda: self._compared.add(number)
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
