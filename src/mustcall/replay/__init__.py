"""A recorded request, sent again: bare and through mustcall, as often as wanted, or in smaller and smaller forms.

`Recorded` is the request and where it comes from; `replay` sends it and yields one `Sample` for each reply;
`summarise` counts them. `Minimising` finds a smaller request that fails in the same way.
"""

from mustcall.replay.costs import Announcement, announce
from mustcall.replay.minimising import Minimised, Minimising, announce_search, ask_of
from mustcall.replay.recorded import Recorded, as_bundle, from_file, from_turn
from mustcall.replay.sampling import Sample, Subject, is_unreachable, replay, sample_bare, sample_through
from mustcall.replay.summary import Summary, summarise

__all__ = [
    "Announcement",
    "Minimised",
    "Minimising",
    "Recorded",
    "Sample",
    "Subject",
    "Summary",
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
