"""Whether the user asked to be shown something: JSON, an example, how a call is written (rule 63).

Such a user keeps the JSON object that would otherwise be read as a call. Pure; the cost is bounded, since only the
beginning and the end of a message are looked at: what is asked for stands there, what was pasted in between.
"""

import re
from collections.abc import Sequence

__all__ = ["asks_to_be_shown"]

_LOOKED_AT = 1500
#: What a call is talked about as.
_CALLS = r"(?:(?:tool|function|api)[- ]?call(?:s|ing)?|payloads?|request bod(?:y|ies)|syntax)"
_TALKED_OF = rf"(?:{_CALLS}|calls?|tools|requests?|format)"
_JSON = r"(?<![./\w])json"
_ASKS = re.compile(
    # JSON as the form of the answer: "in JSON", "as a JSON array", "the JSON of a call", "the JSON you would send".
    r"(?:\b(?:as|in|into|to|only|valid|raw|pure|en|als|em|in formato|au format|al formato) "
    rf"(?:an? |valid |pure |raw )?{_JSON}\b|{_JSON}l\b|"
    rf"{_JSON} (?:of|for|you|that|object|array|list|schema|fixture|document|format|payload|body|lines)\b|"
    r"\b(?:as|in|to) (?:yaml|toml|xml)\b|"
    # An example, in a few languages.
    r"\b(?:an?|some|few|another|minimal|short|simple|one|two|three|good|working|complete|with|list) "
    r"(?:\w+ )?(?:examples?|snippets?)\b|\bexamples? (?:of|calls?|requests?|usage)\b|"
    r"\bbeispiele?\b|\b(?:un|une|des) exemples?\b|\bun ejemplo\b|\bum exemplo\b|\bun esempio\b|"
    r"\bsample (?:calls?|requests?)\b|"
    # How a call is written, or what one is.
    rf"\bwhat (?:do|does|did|would|will|should|might|is|are) (?:[^.?!\n]{{0,60}} )?(?:look like|{_CALLS})\b|"
    r"\bhow (?:do|does|can|could|would|should|to|is|are) (?:[^.?!\n]{0,40} )?(?:call(?:ed|s)?|invoked?|formatted|"
    r"encoded|serialised|serialized|write (?:this|a|the) call|use (?:this|the|a) (?:tool|function))\b|"
    rf"\b(?:explain|describe|document|define|teach) (?:[^.?!\n]{{0,60}} )?{_TALKED_OF}\b|"
    r"\b(?:write|draft|show|give|print|generate|make|produce|prepare|compose|translate) "
    rf"(?:[^.?!\n]{{0,60}} )?(?:{_CALLS}|fixtures?|docstrings?|curl|boilerplate)\b|"
    r"\b(?:do not|don't|without) (?:actually )?(?:run|running|call|calling|execut\w*|invok\w*)\b|"
    r"\byou would (?:send|write|call|make)\b|\bdry[- ]run\b)",
    re.IGNORECASE,
)


def asks_to_be_shown(texts: Sequence[str]) -> bool:
    """Tell whether a user message, given as its texts, asks for JSON, an example or an explanation of the format."""
    return any(_ASKS.search(window) for text in texts for window in _windows(text))


def _windows(text: str) -> tuple[str, ...]:
    if len(text) <= 2 * _LOOKED_AT:
        return (text,)
    return text[:_LOOKED_AT], text[-_LOOKED_AT:]
