"""Deltas that arrived together, as one.

An upstream that is faster than the network delivers many events in one read. Written anew for another wire, one delta
of all their text says the same as many small ones, and costs the gateway and its client a fraction. Nothing waits for
it: only what is already here is joined, so a stream that comes token by token leaves token by token.
"""

from collections.abc import Iterable

import msgspec

from mustcall.core.streams.events import ArgumentsDelta, Event, PartReasoningDelta, PartTextDelta

__all__ = ["coalesce"]

_Delta = PartTextDelta | ArgumentsDelta | PartReasoningDelta
_DELTAS = (PartTextDelta, ArgumentsDelta, PartReasoningDelta)


def coalesce(events: Iterable[Event], long: int | None = None) -> list[Event]:
    """Join neighbouring deltas of the same kind and part; everything else passes in order.

    So do deltas of at least `long` characters, where that is given: joining them costs more than it saves.
    """
    out: list[Event] = []
    first: _Delta | None = None
    texts: list[str] = []
    for event in events:
        if isinstance(event, _DELTAS) and (long is None or len(event.text) < long):
            if first is not None:
                if _continues(event, first):
                    texts.append(event.text)
                    continue
                out.append(_joined(first, texts))
            first, texts = event, [event.text]
        else:
            if first is not None:
                out.append(_joined(first, texts))
                first = None
            out.append(event)
    if first is not None:
        out.append(_joined(first, texts))
    return out


def _continues(event: _Delta, first: _Delta) -> bool:
    """Whether a delta goes on where the other one ended."""
    if type(event) is not type(first) or event.index != first.index:
        return False
    return not isinstance(event, PartReasoningDelta) or event.summary == getattr(first, "summary", None)


def _joined(first: _Delta, texts: list[str]) -> _Delta:
    return first if len(texts) == 1 else msgspec.structs.replace(first, text="".join(texts))
