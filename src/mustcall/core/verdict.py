"""What a finished reply is, and what a turn came to. Closed, public and stable: the words stand in headers and traces.

`bad_answer` is the one word `design.md` does not list: a structured answer that does not fit the schema the caller
asked for is neither an answer nor a call, and needs a name of its own (docs/decisions/turn-engine.md).
"""

from enum import StrEnum

__all__ = ["GONE", "TOOL_PROBE", "OutcomeKind", "Verdict"]

#: The word for a turn whose client left before there was an outcome.
GONE = "gone"
#: The word for an attempt that only asked whether tools are taken (rule 130): its reply is not judged.
TOOL_PROBE = "tool_probe"


class Verdict(StrEnum):
    """What one attempt's reply is, judged by the caller's intent."""

    ANSWERED = "answered"
    CALLED = "called"
    TEXT_CALL = "text_call"
    PHANTOM_CALL = "phantom_call"
    FORCE_MISSED = "force_missed"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_ANSWER = "bad_answer"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    THINKING_ONLY = "thinking_only"
    REFUSED = "refused"
    FILTERED = "filtered"
    LOOPING = "looping"
    ANNOUNCED_ONLY = "announced_only"
    STARVED = "starved"
    REJECTED = "rejected"
    UNAVAILABLE = "unavailable"


class OutcomeKind(StrEnum):
    """The three things a caller can receive."""

    CALLS = "calls"
    ANSWER = "answer"
    FAILURE = "failure"
