"""What is known of each upstream, as data: model and endpoint facts, the user's own, and those learnt from refusals.

Decides which `Profile` belongs to a model at an endpoint. What a profile means for a turn is decided in `policy`.
"""

from mustcall.profiles.catalogue import ProfileEntry, load
from mustcall.profiles.facts import Fact, Observed
from mustcall.profiles.learnt import Learnt, LearntFact
from mustcall.profiles.measured import (
    MeasuredFact,
    MeasuredProfile,
    Measurements,
    parse_profile,
    read_measured,
    read_profile,
)
from mustcall.profiles.overrides import ProfileOverride, read_overrides
from mustcall.profiles.page import markdown
from mustcall.profiles.resolving import Resolved, resolve

__all__ = [
    "Fact",
    "Learnt",
    "LearntFact",
    "MeasuredFact",
    "MeasuredProfile",
    "Measurements",
    "Observed",
    "ProfileEntry",
    "ProfileOverride",
    "Resolved",
    "load",
    "markdown",
    "parse_profile",
    "read_measured",
    "read_overrides",
    "read_profile",
    "resolve",
]
