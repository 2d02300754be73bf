"""The words and signs that sums are written in."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from mustcall.policy.words.numerals import ORDINALS

__all__ = [
    "CLOSING",
    "CLOSING_PAIRS",
    "COMMANDED",
    "COMPACT",
    "NAMED_POWERS",
    "NO_SUM",
    "OF_MANY",
    "OF_TWO",
    "OPENING",
    "PARTS",
    "PERCENT",
    "ROUNDING",
    "SAYINGS",
    "SUMS",
    "TIMES",
]


#: Verbs that ask for a computation whatever follows.
_COMMANDS = "calculate|compute|evaluate|solve|work out|figure out"

#: What people put before a sum, as often as they like.
OPENING = re.compile(
    rf"(?:(?:{_COMMANDS}|hi|hello|hey|ok|okay|so|well|now|then|and|please|pls|kindly|just|quickly|also|question|quick"
    r"|can you|could you|would you|will you|do you know|help me|let me know|tell me|show me|give me|find me"
    r"|i want to know|i need to know|i would like to know|i'd like to know|i want you to|i need you to|i need|i want"
    r"|use (?:the|your|a) calculator (?:to|for|and)|with the calculator|using the calculator"
    r"|what's|whats|what is|what are|what does|what do|what would|what will|what"
    r"|how much is|how much are|how much does|how much do|how much would|how much|how many is|how many are"
    r"|you get (?:if|when) (?:you|i)|i get (?:if|when) (?:you|i)|we get (?:if|when) we|happens (?:if|when) (?:you|i)"
    r"|(?:the |an? )?(?:exact |approximate )?(?:value|result|answer|outcome) (?:of|to|for)|(?:determine|find|get|do))"
    r"(?![a-z'])[\s,]*)+"
)

COMMANDED = re.compile(rf"\b(?:{_COMMANDS}|calculator)\b")

#: What people put behind it.
CLOSING = frozenset(
    "please pls thanks equal equals make makes give gives be is are exactly altogether now then = ? ,".split()  # noqa: SIM905  words read better so
)

#: How rounding is asked for, besides a number of digits.
ROUNDING = frozenset(
    "rounded round off up to the nearest whole number integer decimal decimals place places digits".split()  # noqa: SIM905  as above
)

CLOSING_PAIRS = frozenset({("for", "me"), ("thank", "you"), ("equal", "to"), ("come", "to"), ("in", "total")})

#: What is written like a sum and is none: dates, numbers of telephones, and what figures of speech are made of.
NO_SUM = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2})|\d{3}-\d{4}|\d{3}-\d{3}-\d{4}|0\d+[-/]\d+"
)

SAYINGS = frozenset({"24/7", "9/11", "50/50", "7/11", "20/20"})

#: A range, a fraction or a size, unless somebody asks what it comes to.
COMPACT = re.compile(r"\d+[-/x]\d+")

SUMS: Mapping[str, str] = MappingProxyType({"sum": " + ", "total": " + ", "product": " * "})

OF_MANY: Mapping[str, str] = MappingProxyType(
    {
        "average": "mean",
        "mean": "mean",
        "maximum": "max",
        "max": "max",
        "largest": "max",
        "biggest": "max",
        "minimum": "min",
        "min": "min",
        "smallest": "min",
    }
)

OF_TWO: Mapping[str, str] = MappingProxyType({"difference": " - ", "quotient": " / ", "ratio": " / "})

TIMES: Mapping[str, str] = MappingProxyType({"twice": "2", "double": "2", "thrice": "3", "triple": "3"})

NAMED_POWERS: Mapping[str, str] = MappingProxyType({"squared": "2", "cubed": "3"})

PERCENT = ("percent", "percentage")

PARTS: Mapping[str, int] = MappingProxyType(
    {word: part for word, part in ORDINALS.items() if word not in ("first", "second")}
)
