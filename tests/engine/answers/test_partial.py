"""A structured answer as it is written: values that only grow, at every split, and never what the text does not say."""

import itertools
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall import Agent, PartialOutput, RunFinished, TextDelta
from mustcall.engine.answers.partial import PartialAnswer
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Say, ScriptedModel, Turn
from support.agents import collect, get_weather


@dataclass
class Report:
    """An answer."""

    city: str
    degrees: int


def previews(text: str, size: int = 1, wrapped: str | None = None) -> list[Any]:
    """The values of a text that comes in pieces."""
    answer = PartialAnswer(wrapped)
    values = [answer.feed(text[at : at + size]) for at in range(0, len(text), size)]
    return [value for value in values if value is not None]


WRITTEN: list[tuple[str, list[Any]]] = [
    ('{"a": "xy"}', [{}, {"a": "x"}, {"a": "xy"}]),
    ('{"a": 12, "b": 3}', [{}, {"a": 12}, {"a": 12, "b": 3}]),
    ("[1, [true], null]", [[], [1], [1, []], [1, [True]], [1, [True], None]]),
    ('{"a": "q\\"\\u00e9"}', [{}, {"a": "q"}, {"a": 'q"'}, {"a": 'q"é'}]),
    ('```json\n{"a": []}\n```', [{}, {"a": []}]),
    ("no JSON at all", []),
    ('{"a": "\\ud83d\\ude00"}', [{}, {"a": "😀"}]),
]


@pytest.mark.parametrize(("text", "values"), WRITTEN)
def test_values_as_they_are_written(text: str, values: list[Any]) -> None:
    """What is complete is there, a text as far as it goes; half a number, name, word or character is not."""
    assert previews(text) == values


def test_a_wrapped_value() -> None:
    """A value that stands under a field because providers want an object is told without it."""
    assert previews('{"value": [1, 2]}', wrapped="value") == [[], [1], [1, 2]]


trees = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def grows(before: Any, after: Any) -> bool:
    """Tell whether a value is an earlier state of another."""
    if isinstance(before, dict):
        if not isinstance(after, dict):
            return False
        return all(key in after and grows(value, after[key]) for key, value in before.items())
    if isinstance(before, list):
        if not isinstance(after, list):
            return False
        return len(before) <= len(after) and all(map(grows, before, after))
    if isinstance(before, str):
        return isinstance(after, str) and after.startswith(before)
    return before == after


@given(st.dictionaries(st.text(max_size=4), trees, max_size=4), st.integers(1, 9), st.booleans())
def test_values_only_grow(value: dict[str, Any], size: int, plain: bool) -> None:
    """Each value is what the text says so far: the next one, and the answer, only add to it."""
    text = json.dumps(value, ensure_ascii=plain)
    seen = [*previews(text, size), value]
    assert all(grows(one, other) for one, other in itertools.pairwise(seen))


@given(st.text(max_size=60), st.integers(1, 5))
def test_whatever_comes(text: str, size: int) -> None:
    """No text makes it fail."""
    assert isinstance(previews("{" + text, size), list)


def test_work_is_linear() -> None:
    """All values together are a fixed multiple of the text, however deep or long it is and in however many pieces."""
    for text in ('{"a": "' + "x" * 20_000, "[" * 20_000, "[1," * 5_000):
        answer = PartialAnswer()
        made = [length for length, sign in enumerate(text, 1) if answer.feed(sign) is not None or answer.made == length]
        assert sum(made) < 40 * len(text)


FITS = '{"city": "Oslo", "degrees": 21}'


async def test_a_stream_tells_the_answer_as_it_is_written() -> None:
    """With `partial` the previews come before the answer; without it there are none."""
    known = read_overrides([{"models": ["*"], "schema_output": True, "schema_with_tools": True}])
    script = [Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say(FITS))]
    for partial in (True, False):
        model = ScriptedModel(script, overrides=known)
        agent = Agent(model, tools=[get_weather], output=Report)
        events, result = await collect(agent.stream("How warm?", partial=partial))
        told = [event.value for event in events if isinstance(event, PartialOutput)]
        assert result.output == Report("Oslo", 21)
        assert isinstance(events[-1], RunFinished)
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == FITS
        assert told == ([{"city": "Oslo"}, {"city": "Oslo", "degrees": 21}] if partial else [])
