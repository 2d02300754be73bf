"""The plainest reading of a call written as text: the whole reply is JSON, or one code fence around JSON.

Independent of mustcall's own readers on purpose: it says what stands in a bare reply, for anybody to check by eye.
"""

import json
import re
from typing import Any, cast

from mustcall.core.origin import JsonObject
from mustcall.evals.asking.rows import MadeCall

__all__ = ["read_plainly"]

_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n?```", re.DOTALL)


def read_plainly(text: str) -> tuple[MadeCall, ...]:
    """Return the calls that are the reply: `{"name": …, "arguments": {…}}` or a list of such; none otherwise."""
    stripped = text.strip()
    fenced = _FENCE.fullmatch(stripped)
    try:
        value: Any = json.loads(fenced[1] if fenced else stripped)
    except (ValueError, RecursionError):
        return ()
    listed = cast("list[Any]", value) if isinstance(value, list) else [value]
    calls = [_call(each) for each in listed]
    return tuple(call for call in calls if call is not None) if None not in calls else ()


def _call(value: Any) -> MadeCall | None:
    if not isinstance(value, dict):
        return None
    fields = cast("JsonObject", value)
    name, arguments = fields.get("name"), fields.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return MadeCall(name, json.dumps(arguments))
