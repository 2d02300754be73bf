"""A reply that must not go out in the form it came in, although nothing of it changes."""

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.reply import Reply

__all__ = ["respelled"]


def respelled(reply: Reply, log: AdaptationLog) -> Reply:
    """Return a reply without the form it came in, to be written anew."""
    log.add(AdaptationKind.FIELD_MAPPED, "reply", "written as the wire says")
    return reply.evolve(parts=tuple(part.evolve() for part in reply.parts))
