"""Reasoning effort in words and in tokens: one table, read in both directions.

The figures are the usual budgets of clients that offer both (observed: code of open agents, autumn 2026). They are
a translation, not a measurement: the same word buys different amounts of thinking on different models.
"""

__all__ = ["EFFORT_BUDGETS", "budget_for_effort", "effort_for_budget"]

#: Effort and the thinking budget it stands for, ascending.
EFFORT_BUDGETS: tuple[tuple[str, int], ...] = (
    ("low", 2_048),
    ("medium", 8_192),
    ("high", 24_576),
    ("xhigh", 49_152),
)

#: Words that some servers know besides, and the budget each stands for.
_OTHER_WORDS = {"minimal": 1_024, "max": 49_152}


def effort_for_budget(tokens: int) -> str:
    """Return the largest effort whose budget is not above `tokens`; the smallest if none is."""
    chosen = EFFORT_BUDGETS[0][0]
    for effort, budget in EFFORT_BUDGETS:
        if budget <= tokens and effort != "xhigh":  # few servers know the word; a client that wants it says it
            chosen = effort
    return chosen


def budget_for_effort(effort: str) -> int:
    """Return the thinking budget of an effort; an unknown word counts as high."""
    known = {**dict(EFFORT_BUDGETS), **_OTHER_WORDS}
    return known.get(effort, known["high"])
