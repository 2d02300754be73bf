"""A recorded request, sent again: bare and through mustcall, as often as wanted, or in smaller and smaller forms.

`RecordedRequest` is the request and where it comes from; `replay` sends it and yields a `ReplaySample` for each reply;
`summarise` counts them. `Minimising` finds a smaller request that fails in the same way.
"""

from mustcall.replay.costs import Announcement, announce
from mustcall.replay.minimising import Minimised, Minimising, announce_search, ask_of
from mustcall.replay.recorded import RecordedRequest, as_bundle, from_file, from_turn
from mustcall.replay.sampling import ReplaySample, ReplaySubject, is_unreachable, replay, sample_bare, sample_through
from mustcall.replay.summary import ReplaySummary, summarise

__all__ = [
    "Announcement",
    "Minimised",
    "Minimising",
    "RecordedRequest",
    "ReplaySample",
    "ReplaySubject",
    "ReplaySummary",
    "announce",
    "announce_search",
    "as_bundle",
    "ask_of",
    "from_file",
    "from_turn",
    "is_unreachable",
    "replay",
    "sample_bare",
    "sample_through",
    "summarise",
]
