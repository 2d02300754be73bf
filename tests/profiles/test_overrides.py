"""What `[[profile]]` in mustcall.toml may say."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.policy.facts.profile import Forcing, Profile
from mustcall.profiles import Observed, read_overrides
from mustcall.profiles.facts import FIELDS, checked, legal_values


def test_every_field_can_be_set() -> None:
    """Rule 120: every field of a profile is settable by configuration, to its default as well."""
    unknown = Profile()
    values = {field: getattr(unknown, field) for field in FIELDS if getattr(unknown, field) is not None}
    (override,) = read_overrides([values])
    assert {field: fact.value for field, fact in override.facts.items()} == values
    assert {fact.observed for fact in override.facts.values()} == {Observed.CONFIG}


def test_values_become_the_field_s_own_type() -> None:
    """Rule 70: words are read as the values they stand for."""
    (override,) = read_overrides([{"models": ["x"], "forced": "never", "dialects": ["auto", "hermes"]}])
    assert override.facts["forced"].value is Forcing.NEVER
    assert override.facts["dialects"].value == ("auto", "hermes")


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"forsed": "never"}, "mustcall.toml: profile 2: 'forsed' is no field of a profile; did you mean 'forced'?"),
        ({"model": ["x"]}, "'model' is no field of a profile; did you mean 'models'?"),
        ({"zzz": 1}, "is no field of a profile; the fields are: models, endpoints, upstreams, wires, name, pro"),
        ({"forced": "sometimes"}, "forced must be one of always, without_reasoning, never, ignored, unknown, got 'so"),
        ({"named": "no"}, "named must be true or false, got 'no'"),
        ({"reasoning_off": 1}, "reasoning_off must be true or false, got 1"),
        ({"id_length": "9"}, "id_length must be a whole number"),
        ({"id_length": 0}, "id_length must be 1 or more, got 0"),
        ({"most_tools": -1}, "most_tools must be 0 or more"),
        ({"id_pattern": "("}, "id_pattern must be a regular expression"),
        ({"dialects": "auto"}, "dialects must be a list of strings"),
        ({"dialects": ["klingon"]}, "dialects must be known dialects"),
        ({"prompt_dialect": "auto"}, "prompt_dialect must be known dialects"),
        ({"reasoning_off_fields": "thinking"}, "reasoning_off_fields must be a table"),
        ({"grammar_field": 3}, "grammar_field must be a string"),
        ({"models": "x"}, "models, endpoints and upstreams are lists of patterns"),
        ({"wires": ["tin"]}, "wires a list of chat, responses, messages"),
        ({"models": [""]}, "mustcall.toml: profile 2: an empty pattern"),
    ],
)
def test_mistakes(table: dict[str, Any], problem: str) -> None:
    """Rule 120: a mistake names the table, the field and the legal values."""
    with pytest.raises(ConfigError) as caught:
        read_overrides([{}, table])
    assert problem in caught.value.message


def test_every_field_has_legal_values_in_words() -> None:
    """Rule 120: no field is without a description of what it may be."""
    assert all(legal_values(field) for field in FIELDS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(st.sampled_from([*FIELDS, "models", "endpoints", "upstreams", "wires"]) | st.text(max_size=8), JSON)
def test_any_table(field: str, value: Any) -> None:
    """Design 2.8: any table is read or is a `ConfigError`; what was read is read again alike."""
    try:
        (override,) = read_overrides([{field: value}])
    except ConfigError:
        return
    for name, fact in override.facts.items():
        assert checked(name, fact.value, "again") == fact.value
