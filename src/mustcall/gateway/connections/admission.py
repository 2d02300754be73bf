"""Who may have how much of the process at once: slots for requests, bytes of bodies, in total and for each key.

The counters of one process. A slot is taken when the body is there, so that half-sent bodies hold none; bytes are
counted as they come and given back when the reply is complete. No key of several can take more than its share. It
knows no HTTP.
"""

from collections import Counter

from mustcall.core.elements import signs_of
from mustcall.core.errors import BodyTooLarge, GatewayBusy
from mustcall.core.limits import GatewayLimits
from mustcall.upstream.bounds import holds_more
from mustcall.wire.opening import Fields, Opened

__all__ = ["Admission", "HeldBytes", "check_elements"]


async def check_elements(body: bytes, most: int, fields: Fields | None = None) -> None:
    """Raise `BodyTooLarge` for a JSON text of too many values; other tasks run meanwhile.

    `fields` are its top level: messages that came before were counted then.
    """
    if len(body) <= most:  # a value takes a byte at least
        return
    if isinstance(fields, Opened) and fields.known is not None:
        left = most - fields.known.beginning.signs
        if len(fields.rest) <= left or signs_of(fields.rest) <= left:
            return
    if await holds_more(body, most):
        raise BodyTooLarge(
            f"the body holds more than {most} values; this gateway takes no more ([limits] body_elements)"
        )


class HeldBytes:
    """What one request holds of the bytes that bodies may take."""

    __slots__ = ("_admission", "_bytes", "_key")

    def __init__(self, admission: "Admission", key: str | None) -> None:
        self._admission = admission
        self._key = key
        self._bytes = 0

    def take(self, size: int) -> None:
        """Hold so many bytes more, or raise `GatewayBusy`."""
        self._admission.hold(self._key, size)
        self._bytes += size

    def give_back(self) -> None:
        """Hold nothing any more."""
        self._admission.hold(self._key, -self._bytes)
        self._bytes = 0


class Admission:
    """The counters. `key` is None where callers cannot be told apart."""

    def __init__(self, limits: GatewayLimits, *, most: int, keys: int) -> None:
        self._slots: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self._size = 0
        self.under_way = 0
        self.change(limits, most=most, keys=keys)

    def change(self, limits: GatewayLimits, *, most: int, keys: int) -> None:
        """Go by other limits from now on; `keys` callers share what there is."""
        self._most = most
        self._most_bytes = limits.bodies_bytes
        shared = keys > 1
        self._share = limits.key_concurrency or (max(1, most // 2) if shared else most)
        self._share_bytes = limits.key_bodies_bytes or (limits.bodies_bytes // 2 if shared else limits.bodies_bytes)

    def hold(self, key: str | None, size: int) -> None:
        """Count bytes of a body, or raise `GatewayBusy`; a negative size gives them back."""
        self._size += size
        if key is None:
            if size <= 0 or self._size <= self._most_bytes:
                return
        else:
            self._sizes[key] += size
            if not self._sizes[key]:
                del self._sizes[key]
            if size <= 0:
                return
        theirs = self._sizes[key] if key is not None else 0
        if self._size > self._most_bytes or theirs > self._share_bytes:
            self.hold(key, -size)
            whose, setting = (
                ("your key's", "key_bodies_bytes") if theirs > self._share_bytes else ("all", "bodies_bytes")
            )
            raise GatewayBusy(f"{whose} requests under way hold as many bytes as they may ([limits] {setting})")

    def slot(self, key: str | None) -> "RequestSlot":
        """Return a place to work on one request in; entering it raises `GatewayBusy` where there is none."""
        return RequestSlot(self, key)

    def begin(self, key: str | None) -> None:
        """Count a request that is worked on, or raise `GatewayBusy`."""
        if self.under_way >= self._most:
            raise GatewayBusy(
                f"the gateway already works on {self.under_way} requests (max_concurrency); try again in a moment"
            )
        if key is not None:
            if self._slots[key] >= self._share:
                raise GatewayBusy(
                    f"the gateway already works on {self._slots[key]} requests of this key ([limits] key_concurrency); "
                    "try again in a moment"
                )
            self._slots[key] += 1
        self.under_way += 1

    def end(self, key: str | None) -> None:
        """Count a request no longer."""
        self.under_way -= 1
        if key is not None:
            self._slots[key] -= 1
            if not self._slots[key]:
                del self._slots[key]


class RequestSlot:
    """A place for one request. A generator in its stead would cost every request more than all it counts."""

    __slots__ = ("_admission", "_key")

    def __init__(self, admission: Admission, key: str | None) -> None:
        self._admission = admission
        self._key = key

    def __enter__(self) -> None:
        """Take the place."""
        self._admission.begin(self._key)

    def __exit__(self, *_: object) -> None:
        """Leave it."""
        self._admission.end(self._key)
