"""Counts the tokens of a Messages request: by the upstream where it speaks Messages and counts, else by estimate."""

from collections.abc import Mapping

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import Wire
from mustcall.engine.exchange import WholeReply
from mustcall.upstream.endpoint import Endpoint, request_headers
from mustcall.upstream.retry import Clock, send_patiently
from mustcall.upstream.seam import Transport, UpstreamCall
from mustcall.wire.crossing.sealing import holds_seal
from mustcall.wire.messages import decode_count, encode_count, estimate_tokens
from mustcall.wire.outline import is_error_body, rename_model
from mustcall.wire.registry import codec_for

__all__ = ["count_tokens"]

#: How servers of Messages that cannot count tokens answer.
_NO_SUCH_ROUTE = frozenset({404, 405, 501})
#: A count of tokens is looked at more closely where each would stand for more bytes than this, and is not believed
#: where it is less than this part of our own estimate.
_IMPLAUSIBLE = 16
_FAR_OFF = 8


async def count_tokens(
    body: bytes,
    headers: Mapping[str, str],
    query: str,
    token: str,
    endpoint: Endpoint,
    *,
    model: str | None,
    transport: Transport,
    clock: Clock,
    deadline: float,
) -> WholeReply:
    """Count the tokens of a request that goes to this endpoint; `model` is the name to send if it is another one."""
    codec = codec_for(Wire.MESSAGES)
    if endpoint.wire is not Wire.MESSAGES or holds_seal(body):
        return _estimated(_estimate(body))
    call = UpstreamCall(
        url=f"{endpoint.base_url}{codec.path}/count_tokens" + (f"?{query}" if query else ""),
        headers=request_headers(endpoint, headers, same_wire=True, stream=False),
        body=body if model is None else rename_model(body, model),
        timeouts=endpoint.timeouts,
    )
    answer = await send_patiently(
        transport,
        call,
        endpoint.backoff,
        codec.decode_error,
        clock=clock,
        deadline=deadline,
        log=AdaptationLog(),
    )
    reply, error, counted = answer.reply, answer.error, answer.error_body or b""
    if error is None:
        try:
            counted = await reply.read()
        finally:
            await reply.close()
        tokens = decode_count(counted)  # raises for anything else
        # The bytes of a file say nothing about its tokens.
        odd = tokens * _IMPLAUSIBLE < len(body) and b'"source"' not in body
        if odd and tokens * _FAR_OFF < (own := _estimate(body)):
            return _estimated(own)
    elif reply.status in _NO_SUCH_ROUTE and not _names_model(error):
        return _estimated(_estimate(body))
    elif not is_error_body(counted):
        counted = msgspec.json.encode(codec.encode_error(error, f"req_{token}"))
    return WholeReply(status=reply.status, body=counted, upstream_headers=reply.headers)


def _estimate(body: bytes) -> int:
    """Return our own estimate of a request's tokens."""
    return estimate_tokens(codec_for(Wire.MESSAGES).decode_request(body))


def _estimated(tokens: int) -> WholeReply:
    """Return an estimate as the answer, where no upstream counts."""
    return WholeReply(
        status=200,
        body=msgspec.json.encode(encode_count(tokens)),
        upstream_headers={},
        adaptations=(Adaptation(AdaptationKind.ESTIMATED, "input_tokens"),),
    )


def _names_model(error: ErrorInfo) -> bool:
    """Tell whether a 404 is about the model rather than the route."""
    return "model" in error.message.lower()
