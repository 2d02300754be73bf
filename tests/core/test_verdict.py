"""The words of verdicts and outcomes: public, stable, and each one with a remedy."""

from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.policy.turn.remedy import TABLE

#: The words as headers and traces have them. A change here is a change for every reader of those.
WORDS = (
    "answered called text_call phantom_call force_missed unknown_tool bad_arguments bad_answer truncated empty "
    "thinking_only refused filtered looping announced_only starved rejected unavailable"
)


def test_the_words_are_stable() -> None:
    """Design, section 3: the enum is closed and public; words are neither renamed nor reordered."""
    assert " ".join(Verdict) == WORDS
    assert " ".join(OutcomeKind) == "calls answer failure"


def test_every_verdict_on_a_reply_has_a_remedy() -> None:
    """Design, section 5: only what gave no reply (rejected, unavailable) is settled outside the table."""
    assert set(Verdict) - {row.verdict for row in TABLE} == {Verdict.REJECTED, Verdict.UNAVAILABLE}
