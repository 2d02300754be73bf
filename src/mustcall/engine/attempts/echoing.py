"""Echoes of ours in one turn's replies (rule 146): what an attempt may bring, how it is erased, what is noted."""

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.parts import ToolCall
from mustcall.core.reply import Reply
from mustcall.engine.turn_context import TurnContext
from mustcall.policy.reply.judge import Judgement
from mustcall.policy.request.attempt_request import Shaped
from mustcall.policy.scanning.echo_removal import EchoFreeScanner, cleared
from mustcall.policy.scanning.echoes import Echoes, echoes_in
from mustcall.policy.scanning.plain_replies import is_plain
from mustcall.policy.scanning.reply_scanner import ReplyScanner
from mustcall.policy.scanning.scan_targets import NOTHING, ScanFindings
from mustcall.policy.scanning.stops import CUT, StoppedScanner, enforced_stops, stopped

__all__ = ["Echoing"]

_ERASED = Adaptation(AdaptationKind.MARKUP_STRIPPED, "text", "what the layer itself had put around data")


class Echoing:
    """Keeps what is ours, and what follows a stop sequence, out of a turn's replies."""

    __slots__ = ("_carried", "_cut", "_erased", "_request", "_turn_state", "_wording")

    def __init__(self, context: TurnContext) -> None:
        self._request = context.request
        self._turn_state = context.turn_state
        self._wording = context.services.wording
        self._carried: tuple[Shaped, Echoes] | None = None
        self._erased = False
        self._cut = False

    @property
    def _stops(self) -> tuple[str, ...]:
        """What the attempt's text must end before; the text of a forced attempt is a call."""
        if not self._request.stop:
            return ()
        turn_state = self._turn_state
        as_call = turn_state.plan.demand.forced or turn_state.rung.constrains or turn_state.reads_text
        return enforced_stops(self._request, as_call=as_call)

    @property
    def _echoes(self) -> Echoes:
        """What the model may say back in this attempt."""
        shaped = self._turn_state.shaped()
        if self._carried is None or self._carried[0] is not shaped:
            self._carried = (shaped, echoes_in(self._request, shaped.request, self._wording))
        return self._carried[1]

    def lens(self, token: str) -> ReplyScanner:
        """Return what looks through the attempt's text."""
        lookout, echoes = self._turn_state.lookout(), self._echoes
        if stops := self._stops:
            return StoppedScanner(lookout, token, echoes, stops)
        return EchoFreeScanner(lookout, token, echoes) if echoes else ReplyScanner(lookout, token)

    def look_through(self, reply: Reply, token: str) -> ScanFindings:
        """Return what is in the text of a whole reply that was cleared; most have nothing, and need no lens."""
        if _only_calls(reply) or is_plain(reply, self._turn_state.lookout()):
            return NOTHING
        return self.lens(token).read(reply)

    def is_clear(self, reply: Reply) -> bool:
        """Tell whether a reply holds nothing that must go."""
        if _only_calls(reply):
            return True
        stops = self._stops
        return cleared(reply, self._echoes) is reply and (not stops or stopped(reply, stops) is reply)

    def clear(self, reply: Reply) -> Reply:
        """Return the attempt's reply without what must go; the same object if there is nothing of it."""
        self._cut = self._erased = False
        if _only_calls(reply):
            return reply
        stops = self._stops
        ended = stopped(reply, stops) if stops else reply
        clear = cleared(ended, self._echoes)
        self._cut, self._erased = ended is not reply, clear is not ended
        return clear

    def noted(self, judged: Judgement) -> Judgement:
        """Return what was made of the attempt's reply, with a note of each thing that was taken out of it."""
        if not (self._erased or self._cut):
            return judged
        more = (*([_ERASED] if self._erased else []), *([CUT] if self._cut else []))
        return msgspec.structs.replace(judged, notes=(*judged.notes, *more))


def _only_calls(reply: Reply) -> bool:
    """Tell whether a reply says nothing but calls, so that no text of it need be looked at."""
    for part in reply.parts:
        if type(part) is not ToolCall:
            return False
    return bool(reply.parts)
