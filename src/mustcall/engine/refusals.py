"""What an upstream's refusal can become: a reply that was hidden in it (rule 128), or the turn's own outcome.

It judges nothing and sends nothing: whether a refusal is worth another attempt is `policy.course`'s.
"""

from collections.abc import AsyncGenerator, Mapping

from mustcall.core.adaptation import Adaptation
from mustcall.core.errors import ErrorInfo, MustcallError, UpstreamRejected
from mustcall.core.parts import Text
from mustcall.core.reply import FinishReason, Reply
from mustcall.engine.exchange import StreamedReply, WholeReply
from mustcall.policy.judge import is_blank
from mustcall.policy.lens import Lens
from mustcall.policy.rejection import harvest, holds_whole_generation, without_generation

__all__ = ["Refused", "ended_stream", "harvested", "told_of"]


class Refused(Exception):
    """The upstream's own refusal is the turn's outcome; `reply` holds it in the caller's shape."""

    def __init__(self, reply: WholeReply | StreamedReply, error: ErrorInfo) -> None:
        super().__init__()
        self.reply = reply
        self.error = error


def harvested(error: ErrorInfo, lens: Lens, token: str, model: str) -> Reply | None:
    """Return the model's own reply out of a server's error, None if there is none that can be judged.

    It can be if it is all the model wrote, or an end that is nothing but calls. `lens` is a fresh one.
    """
    text = harvest(error)
    if text is None:
        return None
    reply = Reply(
        id=f"harvest-{token}",
        model=model,
        parts=(Text(text=text),),
        finish=FinishReason.STOP,
        reported_finish="tool_calls",
    )
    if holds_whole_generation(error):
        return reply
    found = lens.read(reply)
    return reply if found.calls and is_blank(found.cleaned or ()) else None


def told_of(error: MustcallError) -> MustcallError:
    """Return an error as the caller may see it: without what the model wrote."""
    if not isinstance(error, UpstreamRejected):
        return error
    told = without_generation(error.error)
    return error if told is error.error else UpstreamRejected(told)


def ended_stream(data: bytes, headers: Mapping[str, str], adaptations: tuple[Adaptation, ...]) -> StreamedReply:
    """Return a stream that is over with its first bytes."""
    return StreamedReply(status=200, first=data, chunks=_nothing(), upstream_headers=headers, adaptations=adaptations)


async def _nothing() -> AsyncGenerator[bytes]:
    """Yield nothing: the whole stream is its first bytes."""
    return
    yield b""
