"""A recorded request, sent again: bare and through mustcall, as often as wanted, or in smaller and smaller forms.

`Recorded` is the request and where it comes from; `replay` sends it and yields one `Sample` for each reply;
`summarise` counts them. `minimise` finds a smaller request that fails in the same way.
"""

from mustcall.replay.costs import Announcement, announce
from mustcall.replay.recorded import Recorded, as_bundle, from_file, from_turn
from mustcall.replay.sampling import Sample, Subject, replay, sample_bare, sample_through
from mustcall.replay.summary import Summary, summarise

__all__ = [
    "Announcement",
    "Recorded",
    "Sample",
    "Subject",
    "Summary",
    "announce",
    "as_bundle",
    "from_file",
    "from_turn",
    "replay",
    "sample_bare",
    "sample_through",
    "summarise",
]
