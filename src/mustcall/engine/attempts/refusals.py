"""What an upstream's refusal can become: a reply that was hidden in it (rule 128), or the turn's own outcome.

It judges nothing and sends nothing: whether a refusal is worth another attempt is `policy.turn.state`'s.
"""

from mustcall.core.errors import ErrorInfo, ForcedToolRefused, MustcallError, UpstreamRejected
from mustcall.core.parts import Text
from mustcall.core.reply import FinishReason, Reply
from mustcall.engine.attempts.teaching import Teaching
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.failures.rejection import harvest, holds_whole_generation, without_generation
from mustcall.policy.reply.judge import is_blank
from mustcall.policy.scanning.reply_scanner import ReplyScanner
from mustcall.policy.turn.state import TurnState
from mustcall.upstream.retry import Answer
from mustcall.upstream.seam import UpstreamReply
from mustcall.wire.outline import is_error_of

__all__ = ["UpstreamRefused", "harvested", "pass_probe", "take_refusal", "told_of"]


class UpstreamRefused(Exception):
    """The upstream's own refusal is the turn's outcome: `told` is what may be said of it.

    `body` are its own bytes where the caller may have them.
    """

    def __init__(self, told: ErrorInfo, status: int, body: bytes | None) -> None:
        super().__init__()
        self.told = told
        self.status = status
        self.body = body


def harvested(error: ErrorInfo, lens: ReplyScanner, token: str, model: str) -> Reply | None:
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


def take_refusal(context: TurnContext, teaching: Teaching, info: ErrorInfo, answer: Answer) -> None:
    """Take an upstream's refusal, after which the request is sent again without what was refused.

    Raise `UpstreamRefused` where nothing can be done about it.
    """
    again, lesson = context.turn_state.refused(info)
    if lesson is not None:
        teaching.suppose(lesson)
    if again:
        return
    _check_isolation(context.turn_state)
    told, body = without_generation(info), answer.error_body or b""
    same = context.same_wire and told is info and is_error_of(context.inbound.wire, body)
    raise UpstreamRefused(told, answer.reply.status, body if same else None)


async def pass_probe(context: TurnContext, teaching: Teaching, upstream: UpstreamReply) -> None:
    """Take the answer of a probe for a refused tool (rule 130), which nobody else sees; only what it cost is kept."""
    reply = await _read_probe(upstream, context)
    context.record.attempts[-1].note_probe(reply)
    lesson = context.turn_state.passed_probe()
    if lesson is not None:
        teaching.suppose(lesson)
    _check_isolation(context.turn_state, passed=True)


def _check_isolation(turn_state: TurnState, *, passed: bool = False) -> None:
    """Raise where the search for a refused tool cannot go on: it is one that is demanded, or no call is left.

    `passed` says that a probe was taken, so that another attempt has to follow.
    """
    isolation = turn_state.isolation
    if isolation.error is None:
        return
    if isolation.offender is not None:
        named = f"the upstream refuses the tool {isolation.offender!r}, which the request demands"
        raise ForcedToolRefused(f"{named}: {without_generation(isolation.error).message}")
    if passed and not turn_state.may_call:
        raise UpstreamRejected(isolation.error)


async def _read_probe(upstream: UpstreamReply, context: TurnContext) -> Reply | None:
    """Return the reply to a probe, for what it cost; None if it cannot be read: that it was taken is enough."""
    try:
        reply = context.theirs.decode_reply(await upstream.read(), context.provenance)
    except MustcallError:
        return None
    finally:
        await upstream.close()
    if context.services.tally is not None:
        context.services.tally.heard(reply)
    return reply
