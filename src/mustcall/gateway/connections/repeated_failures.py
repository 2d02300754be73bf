"""Failures of a minute ago: a client that sends the very same request again is not worth another round (rule 144).

A typed model failure has been tried as often as it may be, so the same bytes get the same answer, without an upstream
call. A transport failure may be over: the request is sent once more, but without tries of our own, because the client
makes them. Bounded, kept for each caller's key, in this process only; nothing of a request but its digest is kept.

Cost: nothing while nothing has failed; then one lookup of a length, and a digest for requests of such a length.
"""

from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import ModelError, MustcallError, UpstreamError
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.verdict import OutcomeKind
from mustcall.engine.records import TurnRecord
from mustcall.gateway.state.conversation_state import tenant_of
from mustcall.policy.failures.backoff import is_transient

__all__ = ["Failures", "RememberedFailure", "RequestIdentity", "without_frames"]

#: Seconds after which a failure is forgotten whatever a setting says, and how many are remembered.
_LONGEST = 600.0
_MOST = 1024
#: Headers that change what a request means.
_MEANT = ("x-mustcall-", "anthropic-", "openai-")


class RequestIdentity(msgspec.Struct, frozen=True, dict=True):
    """A request as it came: what two requests must have in common to be one."""

    wire: Wire
    query: str
    #: As the caller sent them, its key included.
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def digest(self) -> bytes:
        """A name for the request, from which nothing of it can be told; megabytes are hashed once."""
        meant = sorted((name, value) for name, value in self.headers.items() if name.startswith(_MEANT))
        hashed = blake2b(repr((str(self.wire), tenant_of(self.headers), self.query, meant)).encode(), digest_size=16)
        hashed.update(self.body)
        return hashed.digest()


class RememberedFailure(msgspec.Struct, frozen=True, gc=False):
    """One failure: of which request, when, and how long the body was."""

    #: The model's failure; None for a fault on the way, after which the same request is worth one more call.
    error: ModelError | None
    request_id: str
    at: float
    size: int
    protocol: str = ""
    force: str = "none"

    def again(self, now: float) -> ModelError | None:
        """Return the model's failure once more, saying that it is the one of before."""
        told = {"request_id": self.request_id, "seconds_ago": round(now - self.at, 3)}
        return None if self.error is None else _fresh(self.error, {"remembered": told})

    def record(self) -> TurnRecord:
        """Return the record of a turn that made no attempt."""
        note = Adaptation(AdaptationKind.REPORTED, "remembered", f"the failure of {self.request_id}, told again")
        return TurnRecord(protocol=self.protocol, force=self.force, outcome=OutcomeKind.FAILURE, adaptations=(note,))


def _fresh(error: ModelError, more: JsonObject) -> ModelError:
    """Return an equal error without a traceback, which would hold the turn, and with more details."""
    details = {**(error.details or {}), **more} or None
    return type(error)(error.message, param=error.param, details=details, code=error.specific_code)


class Failures:
    """What failed lately, the oldest first."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: OrderedDict[bytes, RememberedFailure] = OrderedDict()
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, asked: RequestIdentity, now: float, seconds: float) -> RememberedFailure | None:
        """Return how this request failed within the last seconds, if it did."""
        if len(asked.body) not in self._sizes:
            return None
        known = self._known.get(asked.digest)
        return known if known is not None and now - known.at < seconds else None

    def note(
        self, asked: RequestIdentity, error: MustcallError, request_id: str, record: TurnRecord | None, now: float
    ) -> None:
        """Remember a failure, if the same request can be told something by it."""
        worth_a_call = isinstance(error, UpstreamError) and is_transient(error.info())
        if not worth_a_call and not isinstance(error, ModelError):
            return
        digest, size = asked.digest, len(asked.body)
        self._forget(digest)
        for oldest, known in tuple(self._known.items()):
            if len(self._known) < self._most and now - known.at < _LONGEST:
                break
            self._forget(oldest)
        bare = _fresh(error, {}) if isinstance(error, ModelError) else None
        told = (record.protocol, record.force) if record is not None else ("", "none")
        self._known[digest] = RememberedFailure(bare, request_id, now, size, *told)
        self._sizes[size] = self._sizes.get(size, 0) + 1

    def _forget(self, digest: bytes) -> None:
        known = self._known.pop(digest, None)
        if known is not None:
            self._sizes[known.size] -= 1
            if not self._sizes[known.size]:
                del self._sizes[known.size]


def without_frames(error: MustcallError) -> MustcallError:
    """Return the error without the frames it came through: one of them holds it, and others hold the request."""
    told: BaseException | None = error
    while told is not None:
        told.__traceback__ = None
        told = told.__cause__ or told.__context__
    return error
