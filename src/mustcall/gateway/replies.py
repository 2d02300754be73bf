"""Answers as ASGI messages: bodies, streams, errors in the caller's wire shape, and the headers on each."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from math import ceil
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation
from mustcall.core.errors import BreakerOpen, BudgetSpent, GatewayBusy, ModelError, MustcallError, UpstreamRedirected
from mustcall.core.http_headers import write_headers
from mustcall.engine.records import TurnRecord
from mustcall.gateway.passing import passed
from mustcall.wire.codec import Codec

__all__ = [
    "JSON",
    "Header",
    "Receive",
    "Scope",
    "Send",
    "error_body",
    "reply_headers",
    "retry_advice",
    "status_of",
    "turn_headers",
]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

#: The type of an answer in one piece.
JSON = b"application/json"

_MAX_HEADER = 1024


def reply_headers(
    request_id: str,
    upstream: Mapping[str, str],
    adaptations: Iterable[Adaptation],
    *,
    content_type: bytes,
    record: TurnRecord | None = None,
) -> list[Header]:
    """Return the headers of an answer: the upstream's that pass, and ours."""
    ours = request_id.encode()
    headers: list[Header] = [(b"content-type", content_type), (b"x-mustcall-request-id", ours)]
    if upstream:
        headers += write_headers(passed(upstream))
    if "request-id" not in upstream:
        headers.append((b"request-id", ours))
    if "x-request-id" not in upstream:
        headers.append((b"x-request-id", ours))
    return headers + turn_headers(ours, adaptations, record)


def turn_headers(request_id: bytes, adaptations: Iterable[Adaptation], record: TurnRecord | None) -> list[Header]:
    """Return the headers that say what a turn came to and what was changed for it."""
    headers = _turn_headers(record, request_id) if record is not None else []
    noted = _compact(adaptations) if adaptations else b""
    if noted:
        headers.append((b"x-mustcall-adaptations", noted))
    return headers


def _turn_headers(record: TurnRecord, trace: bytes) -> list[Header]:
    """Return what a turn came to. Headers of a stream that leave before its verdict say nothing that may yet change."""
    headers: list[Header] = [
        (b"x-mustcall-protocol", record.protocol.encode()),
        (b"x-mustcall-trace", trace),
    ]
    if record.outcome is None:
        if record.attempts:  # else it is passed through, and nothing is judged
            headers.append((b"x-mustcall-outcome", b"streaming"))
        return headers
    headers += [
        (b"x-mustcall-outcome", record.outcome.encode()),
        (b"x-mustcall-attempts", b"%d" % record.calls),
        (b"x-mustcall-force", record.force.encode()),
    ]
    verdicts = ",".join([attempt.word for attempt in record.attempts if attempt.word])
    if verdicts:
        headers.append((b"x-mustcall-verdicts", verdicts.encode()))
    usage = record.usage
    if usage is not None:
        total = b"input=%d, output=%d" % (usage.input_tokens, usage.output_tokens)
        headers.append((b"x-mustcall-usage-total", total))
    if record.counted:
        headers.append((b"x-mustcall-cost-usd", f"{record.cost_usd:.9g}".encode()))
        if record.estimated:
            headers.append((b"x-mustcall-cost-estimated", b"true"))
    return headers


def retry_advice(error: MustcallError) -> list[Header]:
    """Return the headers that tell a client when to try again by itself, or not to."""
    match error:
        # Clients retry 5xx by themselves. A turn has been tried as often as it may; a redirect comes again.
        case ModelError() | UpstreamRedirected():
            return [(b"x-should-retry", b"false")]
        case GatewayBusy():
            return [(b"retry-after", b"1")]
        case BudgetSpent():  # a 429 that waiting does not mend, unless what still runs comes cheaper than expected
            transient = error.details is not None and error.details.get("transient")
            return [(b"retry-after", b"1")] if transient else [(b"x-should-retry", b"false")]
        case BreakerOpen():
            return [(b"retry-after", b"%d" % max(1, ceil(error.retry_after)))]
        case _:
            return []


def _compact(adaptations: Iterable[Adaptation]) -> bytes:
    """Write adaptations for a header: `kind:subject` by kind and name, each once, cut at a whole entry."""
    out = b""
    for adaptation in {(one.kind, one.subject): one for one in adaptations}.values():
        subject = adaptation.subject[:80].encode("ascii", "replace")
        subject = bytes(byte if 32 < byte < 127 and byte not in b",;" else 95 for byte in subject)
        entry = b"%b:%b" % (str(adaptation.kind).encode(), subject)
        if len(out) + len(entry) > _MAX_HEADER:
            return out + b", more"
        out = out + b", " + entry if out else entry
    return out


def status_of(error: MustcallError, codec: Codec) -> int:
    """Return the HTTP status of an error on a wire."""
    info = error.info()
    return codec.failure_status if info.by_model else info.status


def error_body(error: MustcallError, codec: Codec, request_id: str) -> bytes:
    """Write an error in the caller's wire shape."""
    return msgspec.json.encode(codec.encode_error(error.info(), request_id))
