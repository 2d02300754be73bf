"""Turns into bytes, as the provider of each wire would write them.

`build_reply` gives the whole body, `stream_reply` the events of its stream; both tell the same story. One file per
wire; none of them imports `mustcall.wire`.
"""

from mustcall.core.origin import JsonObject, Wire
from mustcall.testing.render import chat, messages, responses
from mustcall.testing.render.errors import build_error, stream_error
from mustcall.testing.render.stamp import Stamp
from mustcall.testing.script import Turn

__all__ = ["Stamp", "build_error", "build_reply", "stream_error", "stream_reply"]

_BUILDERS = {Wire.CHAT: chat.build_body, Wire.RESPONSES: responses.build_body, Wire.MESSAGES: messages.build_body}
_STREAMERS = {
    Wire.CHAT: chat.stream_events,
    Wire.RESPONSES: responses.stream_events,
    Wire.MESSAGES: messages.stream_events,
}


def build_reply(turn: Turn, wire: Wire, request: JsonObject, stamp: Stamp) -> JsonObject:
    """Return the turn as one JSON body."""
    return _BUILDERS[wire](turn, request, stamp)


def stream_reply(turn: Turn, wire: Wire, request: JsonObject, stamp: Stamp) -> list[bytes]:
    """Return the turn as server-sent events, each complete in itself."""
    return _STREAMERS[wire](turn, request, stamp)
