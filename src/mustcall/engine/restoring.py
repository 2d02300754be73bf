"""A reply as its caller gets it: calls in the names and kinds the tools were offered under, in the caller's wire."""

import operator

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.policy.names import NameMap
from mustcall.wire.binding import Binding
from mustcall.wire.codec import Codec, Stamp

__all__ = ["TOO_DEEP", "encoded_reply", "restored"]

TOO_DEEP = "the upstream's reply is nested too deeply"


def restored(reply: Reply, binding: Binding, names: NameMap) -> Reply:
    """Return the reply as the caller knows its tools; the same object if nothing changes."""
    if (binding.trivial and names.trivial) or not reply.calls:
        return reply
    parts = tuple(
        names.restore(binding.restore_readable(part)) if isinstance(part, ToolCall) else part for part in reply.parts
    )
    return reply if all(map(operator.is_, parts, reply.parts)) else reply.evolve(parts=parts)


def encoded_reply(
    codec: Codec, reply: Reply, request: Request, stamp: Stamp, log: AdaptationLog, *, anew: bool
) -> JsonObject:
    """Return a reply as a body, without empty texts; `anew`: not in the very words it came in."""
    kept = [part for part in reply.parts if not (isinstance(part, Text) and not part.text)]
    if len(kept) != len(reply.parts) and kept:
        reply = reply.evolve(parts=tuple(kept))
    elif anew:
        reply = reply.evolve()  # not as it came: see there
    try:
        return codec.encode_reply(reply, request, stamp, log)
    except RecursionError:
        raise UpstreamGarbage(TOO_DEEP) from None
