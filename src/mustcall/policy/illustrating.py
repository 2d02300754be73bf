"""Whether the user asked to be shown something: JSON, an example, how a call is written (rule 63).

Such a user keeps the JSON object that would otherwise be read as a call. Pure; the cost is bounded, since only the
beginning and the end of a message are looked at: what is asked for stands there, what was pasted in between.
"""

import re
from collections.abc import Sequence

__all__ = ["asks_to_be_shown"]

_LOOKED_AT = 1500
_ASKS = re.compile(
    r"\b(?:(?<![./])(?:json|yaml|toml|openapi|swagger|readme|changelog|jsonl)|"
    r"tool[- ]?calls?|tool[- ]?calling|tool[- ]?use|function[- ]?calls?|function[- ]?calling|api calls?|"
    r"syntax|schemas?|payloads?|snippets?|boilerplate|placeholders?|documentation|docstrings?|tutorial|cheat ?sheet|"
    r"unit tests?|test cases?|fixtures?|mock(?:s|ed)?|stubs?|code review|pull request|"
    r"(?:an?|some|few|more|another|any|the|with|minimal|sample|short|simple|good|one|two|three) examples?|"
    r"examples? of|for example,? (?:show|write|give)|samples? (?:call|request|response)|"
    r"look(?:s)? like|example (?:call|request|response|usage|of|for|that|which)|"
    r"(?:config(?:uration)?|settings?|manifest|launch|package|compose|workflow) (?:file|json|entry|block|section)|"
    r"explain (?:how|what|the|this|why|to me)|describe (?:how|the (?:format|tool|function|call|request|api))|"
    r"document (?:how|the|this|our|my)|"
    r"how (?:do|does|can|could|would|should|to|is|are) (?:i|we|you|one|it|this|they|the|an?|someone|people|models?)?"
    r" ?(?:\w+ ){0,3}(?:call(?:ed|s)?|invoke[ds]?|formatted|written|write|structured|encoded|serialised|serialized|"
    r"represented|work|works|use|used)\b|"
    r"what (?:does|do|would|should|is|are) (?:\w+ ){0,6}(?:look like|format|syntax|structure|arguments?|parameters?)|"
    r"show (?:me )?(?:how|what|(?:the|an?) (?:call|request|raw|exact|format|body|arguments|sample|way))|"
    r"(?:write|draft|generate|create|produce|give me|prepare|compose) (?:me )?(?:an?|the|some|our|my|this) "
    r"(?:\w+ ){0,3}(?:call|request|document|guide|section|paragraph|page|file|script|function|code|test|article|post|"
    r"answer|comment|template|prompt|object|array|record|entry))\b",
    re.IGNORECASE,
)


def asks_to_be_shown(texts: Sequence[str]) -> bool:
    """Tell whether a user message, given as its texts, asks for JSON, an example or an explanation of the format."""
    return any(_ASKS.search(window) for text in texts for window in _windows(text))


def _windows(text: str) -> tuple[str, ...]:
    if len(text) <= 2 * _LOOKED_AT:
        return (text,)
    return text[:_LOOKED_AT], text[-_LOOKED_AT:]
