"""An upstream as configured: where it is, which wire it speaks, whose key opens it."""

from collections.abc import Mapping

import msgspec

from mustcall.core.memo import kept
from mustcall.core.origin import Wire
from mustcall.policy.failures.backoff import Backoff
from mustcall.upstream.seam import Timeouts

__all__ = ["Endpoint", "caller_key", "forwarded", "request_headers"]

#: Caller headers that mean something to the provider itself and travel on the same wire, by the start of their name.
_FORWARDED_PREFIXES = ("anthropic-", "openai-")
_FORWARDED = frozenset({"idempotency-key", "user-agent"})

_ANTHROPIC_VERSION = "2023-06-01"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One upstream. `api_key` replaces the caller's; without it the caller's key is forwarded if `forward_key`."""

    name: str
    wire: Wire
    base_url: str
    api_key: str | None = None
    forward_key: bool = True
    headers: Mapping[str, str] = {}
    timeouts: Timeouts = Timeouts()
    backoff: Backoff = Backoff()
    default_max_tokens: int = 8192
    max_output_tokens: int | None = None
    #: Whether it keeps responses itself, if it speaks Responses.
    stateful: bool = True
    #: The model it is asked for, whatever name the caller uses; empty where the caller's own name is passed on.
    model: str = ""
    #: The short name of the server (`llamacpp`), where it was named by one or is called so: its address may not tell.
    server: str = ""

    @property
    def keeps_responses(self) -> bool:
        """Whether `previous_response_id` means something to it."""
        return self.wire is Wire.RESPONSES and self.stateful

    def issuer(self, model: str) -> str:
        """Return who signs what a model thinks here: one model cannot read another's, at the same endpoint neither."""
        return f"{self.name}/{model}"

    def __repr__(self) -> str:
        return f"Endpoint(name={self.name!r}, wire={self.wire!s}, base_url={self.base_url!r})"


def request_headers(endpoint: Endpoint, caller: Mapping[str, str], *, same_wire: bool, stream: bool) -> dict[str, str]:
    """Return the headers to send: provider headers of the same wire, and one key in the form the wire expects.

    `caller` has lower-case names. A caller's own key keeps the header it came in on the same wire, because some
    doors take only one of the two forms.
    """
    headers = {
        "content-type": "application/json",
        "accept": "text/event-stream" if stream else "application/json",
        "accept-encoding": "identity",
        "user-agent": "mustcall",
    }
    if same_wire:
        headers |= forwarded(caller)
    if endpoint.wire is Wire.MESSAGES:
        headers.setdefault("anthropic-version", _ANTHROPIC_VERSION)
    headers.update(_key_headers(endpoint, caller, same_wire=same_wire))
    for name, value in endpoint.headers.items():
        headers[name.lower()] = value
    return headers


def forwarded(caller: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's headers that an upstream of the same wire sees, its key not counted."""
    return {name: caller[name] for name in _forwarded_names(tuple(caller))}


@kept(most=64, most_bytes=None)
def _forwarded_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return which of a caller's headers are forwarded; a client sends the same ones every time."""
    return tuple([name for name in names if name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES)])


def _key_headers(endpoint: Endpoint, caller: Mapping[str, str], *, same_wire: bool) -> dict[str, str]:
    key = endpoint.api_key
    if key is None and endpoint.forward_key:
        if same_wire:
            return {name: caller[name] for name in ("authorization", "x-api-key") if name in caller}
        key = caller_key(caller)
    if key is None:
        return {}
    if endpoint.wire is Wire.MESSAGES:
        return {"x-api-key": key}
    return {"authorization": f"Bearer {key}"}


def caller_key(headers: Mapping[str, str]) -> str | None:
    """Return the key a caller sent, in either of the two forms."""
    given = headers.get("x-api-key")
    if given:
        return given
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
