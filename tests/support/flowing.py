"""One attempt's stream between two sides, of one wire or of two, outside of any turn."""

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.engine.replies.delivery import Delivery
from mustcall.engine.replies.respelling import respelled
from mustcall.engine.replies.stream_relay import StreamRelay
from mustcall.policy.reply.gate import Gate
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanTargets
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.registry import codec_for

__all__ = ["Flowing"]


class Flowing:
    """A flow and the caller's end of it, which has the upstream's wire unless another is given."""

    def __init__(
        self, wire: Wire, lookout: ScanTargets | None = None, *, held: bool = False, to: Wire | None = None
    ) -> None:
        codec, self._log = codec_for(to or wire), AdaptationLog()
        shared = codec is codec_for(wire)
        request = Request(model="test-model", messages=())
        self.delivery = Delivery(codec, request, ReplyStamp(token="t", created=5), self._log)
        decoder = codec_for(wire).stream_decoder(Provenance(issuer="u", token="t"))
        scanner, gate = ReplyScanner(lookout, "t"), Gate(closed=held)
        self.flow = StreamRelay(decoder, shared, scanner, gate, self.delivery, raw=shared and not held)

    def carry(self, pieces: list[bytes]) -> tuple[bytes, bool]:
        """Return what goes out if the reply is accepted as it is, and whether that is the upstream's own bytes."""
        flow = self.flow
        out: list[bytes] = []
        for piece in pieces:
            out.append(flow.feed(piece))
            if flow.ended:
                break
        else:
            out.append(flow.close())
        assert flow.error is None
        reply = flow.reply()
        if flow.raw and not flow.irregular:
            return b"".join([*out, flow.rest()]), True
        return b"".join([*out, self.delivery.write(self.delivery.shown.rest(respelled(reply, self._log)))]), False
