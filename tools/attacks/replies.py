"""Attacks by an upstream's replies. Findings 2 and 6, and variants. `upstream.py` sends what the model's name says."""

from attacks.sending import Attack, Place, turn

__all__ = ["ATTACKS"]

_PATHS = {"chat": b"/v1/chat/completions", "responses": b"/v1/responses", "messages": b"/v1/messages"}
_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
_ANSWERED = frozenset({0, 200, 400, 422, 502, 503, 504, 599})

#: What the hostile upstream can send; the names are its scripts.
_STREAMS = (
    *("endless-text", "endless-arguments", "endless-calls", "endless-reasoning", "endless-comments", "endless-lines"),
    *("endless-event", "endless-empty", "many-calls", "event-of-lists", "endless-markup", "endless-names"),
)
_CODINGS = ("gzip", "deflate", "gzip-gzip", "gzip-stream", "gzip-empty-members")
_WHOLE = ("whole-lists", "whole-deep", "whole-text", "whole-calls", "whole-endless")


def _reply(script: str, wire: str, *, stream: bool, quick: bool = False) -> Attack:
    def run(place: Place) -> set[int]:
        fields = {"tools": _TOOLS} if wire == "chat" else {}
        if wire == "responses":
            fields["input"] = "hi"
        return {turn(place, script, stream=stream, path=_PATHS[wire], **fields)}

    kind = "streamed" if stream else "whole"
    return Attack(f"{script} for a {kind} turn on {wire}", run, _ANSWERED, quick=quick)


ATTACKS: tuple[Attack, ...] = (
    *(
        _reply(script, wire, stream=True, quick=wire == "chat" and script == "many-calls")
        for script in _STREAMS
        for wire in _PATHS
    ),
    *(_reply(script, "chat", stream=False) for script in _STREAMS),
    *(_reply(script, "chat", stream=stream, quick=stream) for script in _CODINGS for stream in (True, False)),
    *(
        _reply(script, wire, stream=False, quick=wire == "chat" and script == "whole-lists")
        for script in _WHOLE
        for wire in _PATHS
    ),
)
