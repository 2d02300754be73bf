"""How many examples property tests draw: the profiles of hypothesis, and the numbers that tests name themselves.

Nothing is timed in either profile: how long an example takes says more about the machine than about the code.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

__all__ = ["PROFILE", "PROFILES", "scaled", "share"]

T = TypeVar("T")

_USUAL = 100
#: Hypothesis fails a test whose examples take long to draw, which on a busy machine is any test.
_UNTIMED: dict[str, Any] = {"deadline": None, "suppress_health_check": (HealthCheck.too_slow,)}

PROFILES = {
    # The same examples every time: a change that fails here fails for everyone, and one that passes keeps passing.
    "ci": settings(derandomize=True, max_examples=16, database=None, **_UNTIMED),
    # Said aloud: hypothesis draws the same examples wherever the variable `CI` is set.
    "deep": settings(derandomize=False, max_examples=10 * _USUAL, **_UNTIMED),
}
PROFILE = os.environ.get("MUSTCALL_TEST_PROFILE", "ci")

#: Where hypothesis keeps the settings of a test; `@settings` writes it, and refuses to write it twice.
_KEPT = "_hypothesis_internal_use_settings"


def scaled(test: Any, profile: str = PROFILE) -> None:
    """Give a test that names its own number of examples the profile's share of it, once."""
    own = getattr(test, _KEPT, None)
    if not isinstance(own, settings) or getattr(test, "examples_scaled", False):
        return
    if own.max_examples != PROFILES[profile].max_examples:
        ratio = PROFILES[profile].max_examples / _USUAL
        setattr(test, _KEPT, settings(own, max_examples=max(1, round(own.max_examples * ratio))))
    test.examples_scaled = True


def share(cases: Sequence[T], place: int, tests: int, profile: str = PROFILE) -> Sequence[T]:
    """Return the cases of the test at this place: under `ci` its share of those of so many tests, otherwise all."""
    return cases[place % tests :: tests] if profile == "ci" else cases
