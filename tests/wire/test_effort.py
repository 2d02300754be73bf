"""Reasoning effort in words and tokens."""

import pytest

from mustcall.wire.crossing.effort import EFFORT_BUDGETS, budget_for_effort, effort_for_budget


@pytest.mark.parametrize(
    ("tokens", "effort"),
    [
        (0, "low"),
        (1024, "low"),
        (2048, "low"),
        (8191, "low"),
        (8192, "medium"),
        (24576, "high"),
        (31999, "high"),
        (10**9, "high"),
    ],
)
def test_budget_to_effort(tokens: int, effort: str) -> None:
    """wires.md 1.4: a thinking budget becomes a word every chat server knows."""
    assert effort_for_budget(tokens) == effort


@pytest.mark.parametrize(
    ("effort", "tokens"),
    [
        ("minimal", 1024),
        ("low", 2048),
        ("medium", 8192),
        ("high", 24576),
        ("xhigh", 49152),
        ("max", 49152),
        ("brandnew", 24576),
    ],
)
def test_effort_to_budget(effort: str, tokens: int) -> None:
    """Each word buys its budget; less than low never buys more than low."""
    assert budget_for_effort(effort) == tokens


def test_table_ascends() -> None:
    """The table is ascending, which both readers rely on."""
    budgets = [budget for _, budget in EFFORT_BUDGETS]
    assert budgets == sorted(set(budgets))
