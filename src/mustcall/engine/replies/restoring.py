"""A reply's calls in the names and kinds the caller offered its tools under, whatever they went out as."""

import operator

from mustcall.core.parts import Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.policy.history.names import NameMap
from mustcall.wire.crossing.binding import Binding

__all__ = ["restored", "without_empty_text"]


def restored(reply: Reply, binding: Binding, names: NameMap) -> Reply:
    """Return the reply as the caller knows its tools; the same object if nothing changes."""
    if (binding.trivial and names.trivial) or not reply.calls:
        return reply
    parts = tuple(
        names.restore(binding.restore_readable(part)) if isinstance(part, ToolCall) else part for part in reply.parts
    )
    return reply if all(map(operator.is_, parts, reply.parts)) else reply.evolve(parts=parts)


def without_empty_text(reply: Reply) -> Reply:
    """Return a reply without empty text, unless it has nothing else; the same object if there is none."""
    kept = [part for part in reply.parts if not (isinstance(part, Text) and not part.text)]
    return reply.evolve(parts=tuple(kept)) if kept and len(kept) != len(reply.parts) else reply
