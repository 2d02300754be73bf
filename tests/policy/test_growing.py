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


def test_of_long_keys_and_texts_little_is_kept() -> None:
    """Rule 139: a key or a text of an enum that is very long costs no more for each piece than a short one."""
    schema: Json = {"type": "object", "properties": {"a": {"enum": ["x" * 5_000]}}}
    for begun in ('{"', '{"a":"'):
        growing = Growing(schema)
        assert growing.feed(begun)
        for _ in range(4_000):
            assert growing.feed("x")
            held = growing._held
            assert held is not None
            assert sum(map(len, held)) <= 1_024
            assert len(held) <= 2


def test_a_long_key_is_left_to_the_whole_check() -> None:
    """Rule 139: whichever key it is, nothing is refused on the way that may be valid."""
    key = "k" * 3_000
    schema: Json = {"type": "object", "properties": {key: {}}, "required": [key], "additionalProperties": False}
    text = json.dumps({key: 1})
    assert check_arguments(Tool(name="f", parameters=schema), text).valid
    for size in (1, 700, len(text)):
        growing = Growing(schema)
        assert all(growing.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert growing.done
