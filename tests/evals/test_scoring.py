"""What counts as a valid call, the right tool and the right arguments."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.prompts import EvalPrompt, Expected, Items, OneOf, Same, SameText, Words, load_prompts
from mustcall.evals.scoring import Score, matches, score
from support.evaluating import OSLO, PROMPTS, fitting, right_arguments, right_call

ALL = Score(valid=True, right_tool=True, right_arguments=True)
NONE = Score()

prompts = st.sampled_from(load_prompts())
texts = st.text(max_size=30)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
expectations: st.SearchStrategy[Expected] = st.one_of(
    st.builds(SameText, value=texts),
    st.builds(Same, value=values),
    st.builds(OneOf, values=st.lists(values, min_size=1, max_size=3).map(tuple)),
    st.builds(Words, values=st.lists(texts, max_size=3).map(tuple)),
    st.builds(Items, values=st.lists(texts, max_size=3).map(tuple)),
)
calls = st.lists(
    st.builds(
        MadeCall, st.sampled_from(["get_weather", "calculator", "nothing", ""]), st.text() | values.map(json.dumps)
    ),
    max_size=3,
)


@given(prompts, calls)
def test_each_measure_implies_the_one_before(prompt: EvalPrompt, made: list[MadeCall]) -> None:
    """Whatever came back is scored without an exception, and no reply is right without being valid."""
    given_score = score(prompt, made)
    assert given_score.valid >= given_score.right_tool >= given_score.right_arguments
    assert made or given_score == NONE


@given(prompts, st.randoms(use_true_random=False), st.sampled_from([None, 2]))
def test_spelling_of_json_does_not_count(prompt: EvalPrompt, random: Any, indent: int | None) -> None:
    """Order of keys, blanks and escapes make no difference."""
    items = list(right_arguments(prompt).items())
    random.shuffle(items)
    text = json.dumps(dict(items), indent=indent, ensure_ascii=random.random() < 0.5)
    assert score(prompt, [MadeCall(prompt.wants, text)]) == ALL


@given(prompts, st.data())
def test_a_cut_call_is_no_call(prompt: EvalPrompt, data: st.DataObject) -> None:
    """A call that was cut off anywhere is not valid."""
    whole = right_call(prompt).arguments
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert score(prompt, [MadeCall(prompt.wants, cut)]) == NONE


@given(prompts, calls)
def test_a_reply_is_as_good_as_its_worst_call(prompt: EvalPrompt, made: list[MadeCall]) -> None:
    """The right call beside others scores what the others score; the same call twice is still right."""
    both = score(prompt, [right_call(prompt), *made])
    assert both == (score(prompt, made) if made else ALL)
    assert score(prompt, [right_call(prompt)] * 2) == ALL


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("get_weather", '{"city": "OSLO."}', ALL),
        ("get_weather", '{"city": "Oslo", "unit": "celsius"}', ALL),
        ("get_weather", '{"city": "Bergen"}', Score(valid=True, right_tool=True)),
        ("get_weather", '{"city": "Oslo", "unit": "fahrenheit"}', Score(valid=True, right_tool=True)),
        ("get_weather", '{"city": "Oslo", "unit": "kelvin"}', NONE),
        ("get_weather", '{"town": "Oslo"}', NONE),
        ("get_weather", "{}", NONE),
        ("get_weather", '["Oslo"]', NONE),
        ("get_weather", '"{\\"city\\": \\"Oslo\\"}"', NONE),
        ("get_weather", '{"city": "Oslo"} {"city": "Oslo"}', NONE),
        ("get_weather", '{"city": "Oslo", "city": "Oslo"}', NONE),
        ("Get_Weather", '{"city": "Oslo"}', NONE),
        ("calculator", '{"expression": "1"}', NONE),
    ],
)
def test_calls_as_they_were_delivered(name: str, arguments: str, expected: Score) -> None:
    """Names are exact, schemas are kept to the letter, and nothing is mended for the score."""
    assert score(OSLO, [MadeCall(name, arguments)]) == expected


def test_a_valid_call_of_another_tool() -> None:
    """A valid call of the wrong tool is valid and no more."""
    prompt = PROMPTS["list-tmp"]
    assert score(prompt, [MadeCall("read_file", '{"path": "/tmp"}')]) == Score(valid=True)


def test_what_nobody_asked_for() -> None:
    """An optional argument the prompt does not speak of must say nothing: absent, empty, or the schema's default."""
    prompt = PROMPTS["read-hosts"]
    assert score(prompt, [MadeCall("read_file", '{"path": "/etc/hosts"}')]) == ALL
    assert not score(prompt, [MadeCall("read_file", '{"path": "/etc/hosts", "max_lines": 5}')]).right_arguments
    search = PROMPTS["search-retries"]
    assert score(search, [MadeCall("search_docs", '{"query": "retries", "limit": 10}')]) == ALL
    assert not score(search, [MadeCall("search_docs", '{"query": "retries", "limit": 11}')]).right_arguments


@given(expectations)
def test_what_is_wanted_matches(expected: Expected) -> None:
    """Every expectation takes the value it is made of."""
    assert matches(expected, fitting(expected))


@given(expectations, values)
def test_matching_never_raises(expected: Expected, value: Any) -> None:
    """Any value can be compared in any way."""
    assert matches(expected, value) in (True, False)


@pytest.mark.parametrize(
    ("expected", "value", "right"),
    [
        (Same(value=1), True, False),
        (Same(value=True), 1, False),
        (Same(value=1), Decimal("1.0"), True),
        (Same(value=99.9), Decimal("99.90"), True),
        (Same(value=1), "1", False),
        (Same(value=1), 10**400, False),
        (Same(value={"a": 1}), {"a": 1, "b": 2}, False),
        (Same(value=["a", "b"]), ["b", "a"], False),
        (Same(value="Oslo"), "oslo", False),
        (SameText(value="New York"), " “new  york”. ", True),
        (SameText(value="/etc/hosts"), "etc/hosts", False),
        (OneOf(values=("notes.txt", "./notes.txt")), "/notes.txt", False),
        (OneOf(values=("17*23", 391)), "17 * 23", True),
        (OneOf(values=("17*23", 391)), 391, True),
        (Words(values=("tea", "green")), "Green tea", True),
        (Words(values=("tea",)), "coffee", False),
        (Items(values=("milk", "eggs")), ["Eggs", "milk"], True),
        (Items(values=("milk", "eggs")), ["milk", "eggs", "eggs"], False),
        (Items(values=("milk",)), "milk", False),
        (Items(values=("milk",)), [1], False),
    ],
)
def test_ways_to_compare(expected: Expected, value: Any, *, right: bool) -> None:
    """Each way compares as docs/demo.md says."""
    assert matches(expected, value) is right
