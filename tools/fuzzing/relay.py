"""Fuzz target: a stream from any upstream wire to any caller's, its text read by stencil and event by event."""

from collections.abc import Iterable
from contextlib import suppress
from unittest.mock import patch

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.engine.replies import stream_relay
from mustcall.engine.replies.delivery import Delivery
from mustcall.engine.replies.stream_relay import StreamRelay
from mustcall.policy.reply.gate import Gate
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanTargets
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp, stream_reply
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.registry import codec_for

__all__ = ["SEEDS", "feed_relay"]

_WIRES = tuple(Wire)
_TURN = Turn(Think("hm, hm"), Say('The wind, "north" \\ of Oslo\nturns. é'), Call("f", {"a": 1}), Say("one two three"))
#: A reply from every wire to every other, whole and in pieces.
SEEDS = tuple(
    bytes([number, step])
    + b"".join(stream_reply(_TURN, _WIRES[number % 3], {"model": "m", "stream": True}, Stamp(1, "s")))
    for number in range(18)
    for step in (3, 255)
)
_TOOLS = (Tool(name="f", parameters={"type": "object"}),)


def feed_relay(data: bytes) -> None:
    """Carry a stream; the first two bytes choose the wires, whether it is held, and where it is cut."""
    if len(data) < 2:
        return
    choice, step, stream = data[0], data[1] * 8 + 1, data[2:]
    theirs, mine = _WIRES[choice % 3], _WIRES[choice // 3 % 3]
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    quick = _carried(theirs, mine, pieces, held=choice // 9 % 2 == 1)
    with patch.object(stream_relay, "_STENCILS", 0):
        slow = _carried(theirs, mine, pieces, held=choice // 9 % 2 == 1)
    assert quick == slow, "text read by its stencil means something else"


def _carried(theirs: Wire, mine: Wire, pieces: Iterable[bytes], *, held: bool) -> object:
    """Return what came of a stream: how it failed, or what the reply is."""
    stamp = ReplyStamp(token="t", created=1)  # noqa: S106  no secret
    delivery = Delivery(codec_for(mine), Request(model="m", messages=()), stamp, AdaptationLog())
    decoder = codec_for(theirs).stream_decoder(Provenance(issuer="fuzz", token="t"))  # noqa: S106  no secret
    lens, gate, shared = ReplyScanner(ScanTargets(tools=_TOOLS), "t"), Gate(closed=held), mine is theirs
    flow = StreamRelay(decoder, shared, lens, gate, delivery, raw=shared and not held)
    try:
        for piece in pieces:
            flow.feed(piece)
            if flow.ended:
                break
        else:
            flow.close()
    except MustcallError as error:
        return type(error)
    if flow.error is not None:
        return type(flow.error)
    with suppress(MustcallError):
        return flow.reply(), flow.irregular
    return None
