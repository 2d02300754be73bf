"""The benchmark's rules in single cases, readable without the benchmark."""

import json
from typing import Any

import pytest

from mustcall.evals.asking.rows import MadeCall
from mustcall.evals.bfcl.checking import reply_problem
from mustcall.evals.bfcl.entries import BenchmarkCase, BenchmarkFunction, Truth
from mustcall.evals.questions import Said, Speaker

SCHEMA: dict[str, Any] = {
    "type": "dict",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "share": {"type": "float"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"type": "dict", "properties": {"street": {"type": "string"}}},
        "stops": {"type": "array", "items": {"type": "dict"}},
        "pair": {"type": "tuple", "items": {"type": "integer"}},
        "exact": {"type": "boolean"},
    },
    "required": ["city"],
}
FORECAST = BenchmarkFunction("weather.forecast", "Forecast.", SCHEMA)


def entry(kind: str = "simple_python", *truths: dict[str, list[Any]]) -> BenchmarkCase:
    """A case whose right answers are these calls of the one function."""
    return BenchmarkCase(
        id=f"{kind}_0",
        set=kind,
        messages=(Said(Speaker.USER, "?"),),
        functions=(FORECAST,),
        truths=tuple(Truth(FORECAST.name, truth) for truth in truths),
    )


def call(name: str = "weather_forecast", **arguments: Any) -> MadeCall:
    """A call as it came."""
    return MadeCall(name, json.dumps(arguments))


@pytest.mark.parametrize(
    ("allowed", "value", "right"),
    [
        ({"city": ["New York, NY"]}, {"city": "new york NY"}, True),
        ({"city": ["it's"]}, {"city": 'IT"S'}, True),
        ({"city": ["Oslo"]}, {"city": "Oslo!"}, False),
        ({"city": ["Oslo"]}, {"city": 7}, False),
        ({"city": ["Oslo"], "days": [5]}, {"city": "Oslo", "days": 5.0}, False),
        ({"city": ["Oslo"], "share": [5.0]}, {"city": "Oslo", "share": 5}, True),
        ({"city": ["Oslo"], "exact": [True]}, {"city": "Oslo", "exact": 1}, False),
        ({"city": ["Oslo"], "days": ["N_DAYS"]}, {"city": "Oslo", "days": "N_DAYS"}, True),
        ({"city": ["Oslo"], "tags": [["a b", "c"]]}, {"city": "Oslo", "tags": ["AB", "c"]}, True),
        ({"city": ["Oslo"], "tags": [["a", "c"]]}, {"city": "Oslo", "tags": ["c", "a"]}, False),
        ({"city": ["Oslo"], "tags": [["a"], ""]}, {"city": "Oslo", "tags": []}, True),
        ({"city": ["Oslo"], "pair": [[1, 2]]}, {"city": "Oslo", "pair": [1, 2]}, True),
        ({"city": ["Oslo"], "place": [{"street": ["Elm St."]}]}, {"city": "Oslo", "place": {"street": "elm st"}}, True),
        ({"city": ["Oslo"], "place": [{"street": ["Elm"]}]}, {"city": "Oslo", "place": {"road": "Elm"}}, False),
        ({"city": ["Oslo"], "place": [{"street": ["Elm", ""]}]}, {"city": "Oslo", "place": {}}, True),
        ({"city": ["Oslo"], "stops": [[{"at": ["x"]}]]}, {"city": "Oslo", "stops": [{"at": "X"}]}, True),
        ({"city": ["Oslo"], "stops": [[{"at": ["x"]}]]}, {"city": "Oslo", "stops": [{"at": "X"}, {}]}, False),
        ({"city": ["Oslo"], "days": [5, ""]}, {"city": "Oslo"}, True),
        ({"city": ["Oslo"], "days": [5]}, {"city": "Oslo"}, False),
        ({"city": ["Oslo"]}, {"city": "Oslo", "days": 5}, False),
        ({"city": ["Oslo", ""]}, {}, False),
    ],
)
def test_one_argument(allowed: dict[str, list[Any]], value: dict[str, Any], right: bool) -> None:
    """Texts are compared lightly, types strictly, and only what may be left out is left out."""
    assert (reply_problem(entry("simple_python", allowed), [call(**value)]) is None) is right


def test_names_are_compared_without_dots() -> None:
    """A function is called by the name it was offered under, and by no other."""
    wanted = entry("simple_python", {"city": ["Oslo"]})
    assert reply_problem(wanted, [call(city="Oslo")]) is None
    problem = reply_problem(wanted, [call("weather.forecast", city="Oslo")])
    assert problem == "weather_forecast: another function was called"


def test_calls_in_parallel_come_in_any_order() -> None:
    """Each right call needs a call of its own; order does not count, number does."""
    wanted = entry("parallel", {"city": ["Oslo"]}, {"city": ["Rome"]})
    assert reply_problem(wanted, [call(city="Rome"), call(city="Oslo")]) is None
    assert reply_problem(wanted, [call(city="Rome"), call(city="Rome")]) is not None
    assert reply_problem(wanted, [call(city="Oslo")]) == "1 calls instead of 2"


@pytest.mark.parametrize("arguments", ["{", "[]", "", '"Oslo"'])
def test_arguments_that_are_no_object(arguments: str) -> None:
    """Arguments that are no JSON object are no call: wrong where one is wanted, right where none is."""
    made = [MadeCall("weather_forecast", arguments)]
    assert reply_problem(entry("simple_python", {"city": ["Oslo"]}), made) == "the arguments are not a JSON object"
    assert reply_problem(entry("irrelevance"), made) is None


def test_where_no_call_is_right() -> None:
    """Any call is wrong there, and none is right."""
    assert reply_problem(entry("live_irrelevance"), []) is None
    assert reply_problem(entry("live_irrelevance"), [call(city="Oslo")]) == "a function was called"
