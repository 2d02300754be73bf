"""Rule 139: arguments are checked while they are written; what is refused on the way is not valid at the end."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.tools import Tool
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.schema.growing import Growing

Json = dict[str, Any]

_scalar = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.sampled_from(("a", "ab", 'é"\\', ""))
_value = st.recursive(
    _scalar,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("pqrs\n"), inner, max_size=3),
    max_leaves=6,
)
_leaf = st.sampled_from(
    (
        {"type": "string"},
        {"type": "integer"},
        {"type": ["number", "null"]},
        {"enum": ["a", "abc", 3]},
        {"type": "boolean"},
        {"anyOf": [{"type": "string"}, {"type": "array"}]},
        {},
        {"type": "array", "items": {"type": "string"}},
    )
)


@st.composite
def _schema(draw: st.DrawFn, depth: int = 2) -> Json:
    inner = _leaf if depth == 0 else _leaf | _schema(depth - 1)
    properties = draw(st.dictionaries(st.sampled_from("pqrs\n"), inner, max_size=3))
    schema: Json = {"type": "object", "properties": properties}
    if draw(st.booleans()):
        schema["additionalProperties"] = False
    if properties and draw(st.booleans()):
        schema["required"] = [next(iter(properties))]
    return schema


def _cut(text: str, places: list[int]) -> list[str]:
    marks = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[start:end] for start, end in pairwise(marks)]


@settings(deadline=None)
@given(
    schema=_schema(),
    value=st.dictionaries(st.sampled_from("pqrs\n"), _value, max_size=4),
    places=st.lists(st.integers(0, 200), max_size=6),
    spaced=st.booleans(),
)
def test_what_is_valid_is_never_refused(schema: Json, value: Json, places: list[int], spaced: bool) -> None:
    """Rule 139: cut anywhere, valid arguments pass to their end; where they are stopped, the whole check finds it."""
    text = json.dumps(value, indent=1 if spaced else None)
    checked = check_arguments(Tool(name="f", parameters=schema), text)
    valid = checked.valid and checked.arguments == text and not checked.unchecked
    growing = Growing(schema)
    passed = [growing.feed(piece) for piece in _cut(text, places)]
    if valid:
        assert all(passed)
        assert growing.done


@given(text=st.text(st.sampled_from('{}[]":,\\ u0019truefalsn"p'), max_size=30), places=st.lists(st.integers(0, 30)))
def test_cuts_change_nothing(text: str, places: list[int]) -> None:
    """Rule 139: the same place is the first wrong one however the text comes; and JSON alone passes to its end."""
    schema: Json = {"type": "object", "properties": {"p": {"enum": ["true"]}}, "additionalProperties": False}
    whole, cut = Growing(schema), Growing(schema)
    passed = [cut.feed(piece) for piece in _cut(text, places)]
    assert whole.feed(text) == all(passed)
    assert (whole.done, whole.failed) == (cut.done, cut.failed)
    loose = Growing(None)
    if loose.feed(text) and loose.done:
        json.loads(text)
