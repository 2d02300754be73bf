"""Whether a reply is a valid call, calls the right tool, and has the right arguments. Pure; docs/demo.md has the words.

The same rules for both arms, and none of mustcall's own mending: a call counts as it was delivered. What nobody
delivered as a call is not one, whatever its text looks like.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, assert_never, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.prompts import EvalPrompt, Expected, Items, OneOf, Same, SameText, Words
from mustcall.policy.schema.validation import Unreadable, fits, read_json, validator_for

__all__ = ["Score", "matches", "read_arguments", "score"]

#: Straight, then typographic ones.
_QUOTES = "\"'`\u201c\u201d\u2018\u2019"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Three questions about one reply; each later one can only be true if the earlier ones are."""

    valid: bool = False
    right_tool: bool = False
    right_arguments: bool = False


def score(prompt: EvalPrompt, calls: Sequence[MadeCall]) -> Score:
    """Score the calls of one reply; a reply with several is only as good as the worst of them."""
    tools = {tool.name: tool for tool in prompt.tools}
    read = [read_arguments(tools.get(call.name), call.arguments) for call in calls]
    if not read or any(arguments is None for arguments in read):
        return Score()
    if any(call.name != prompt.wants for call in calls):
        return Score(valid=True)
    schema = tools[prompt.wants].parameters or {}
    right = all(_are_right(prompt, arguments, schema) for arguments in read if arguments is not None)
    return Score(valid=True, right_tool=True, right_arguments=right)


def read_arguments(tool: Tool | None, text: str) -> JsonObject | None:
    """Return the arguments if the tool is on offer and they are one sound JSON object that fits its schema."""
    if tool is None:
        return None
    try:
        value = read_json(text)
    except Unreadable:
        return None
    validator = validator_for(tool.parameters or {})
    if not isinstance(value, dict) or validator is None or not fits(validator, value):
        return None
    return cast("JsonObject", value)  # JSON objects have string keys


def _are_right(prompt: EvalPrompt, arguments: JsonObject, schema: JsonObject) -> bool:
    """Tell whether every wanted argument is there as wanted, and nothing else that says anything."""
    if any(name not in arguments or not matches(want, arguments[name]) for name, want in prompt.arguments.items()):
        return False
    declared = cast("Mapping[str, JsonObject]", schema.get("properties", {}))  # our own data file
    for name, value in arguments.items():
        if name in prompt.arguments or value in (None, "", [], {}):
            continue
        allowed = prompt.may.get(name)
        default = declared.get(name, {}).get("default")
        if not (allowed is not None and matches(allowed, value)) and not (default is not None and value == default):
            return False
    return True


def matches(expected: Expected, value: Any) -> bool:
    """Compare one argument in the way its prompt says."""
    match expected:
        case SameText():
            return isinstance(value, str) and _fold(value) == _fold(expected.value)
        case Same():
            return _is_same(expected.value, value)
        case OneOf():
            return any(
                matches(SameText(value=one) if isinstance(one, str) else Same(value=one), value)
                for one in expected.values
            )
        case Words():
            return isinstance(value, str) and all(_fold(word) in _squeezed(value) for word in expected.values)
        case Items():
            if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
                return False
            return sorted(map(_fold, cast("list[str]", value))) == sorted(map(_fold, expected.values))
        case _:
            assert_never(expected)


def _is_same(wanted: Any, value: Any) -> bool:
    """Equal as JSON: `1` and `1.0` are one number, `true` is not `1`."""
    match wanted, value:
        case (bool(), _) | (_, bool()):
            return wanted is value
        case (dict(), dict()):
            one, other = cast("JsonObject", wanted), cast("JsonObject", value)
            return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
        case (list(), list()):
            mine, theirs = cast("list[Any]", wanted), cast("list[Any]", value)
            return len(mine) == len(theirs) and all(map(_is_same, mine, theirs))
        case (int() | float(), int() | float() | Decimal()):
            # Fractions are read as decimals: 99.9 is what was written, not its nearest binary neighbour.
            return Decimal(str(wanted)) == Decimal(str(value))
        case _:
            return type(wanted) is type(value) and wanted == value


def _fold(text: str) -> str:
    """Return the words of a text as they are compared."""
    folded = _squeezed(text)
    return folded.lstrip(_QUOTES).rstrip(_QUOTES + ".,;:!?") or folded


def _squeezed(text: str) -> str:
    """Return a text without what its case, width and blanks say."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())
