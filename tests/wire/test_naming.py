"""Rule 129: names and ids by a deterministic map that any upstream accepts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.wire.crossing.naming import flat_name, legal_id

_LEGAL = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@pytest.mark.parametrize(
    ("namespace", "name", "flat"),
    [
        (None, "get_weather", "get_weather"),
        ("multi_agent_v1", "spawn", "multi_agent_v1__spawn"),
        ("", "f", "f"),
        (None, "tool_call", "tool_call"),
    ],
)
def test_plain_names(namespace: str | None, name: str, flat: str) -> None:
    """wires.md 1.9 and 1.15: legal names pass, namespaces are joined."""
    assert flat_name(namespace, name) == flat


@given(st.none() | st.text(max_size=80), st.text(max_size=80))
def test_names_are_legal(namespace: str | None, name: str) -> None:
    """Rule 129: any name becomes a legal one, always the same."""
    flat = flat_name(namespace, name)
    assert _LEGAL.fullmatch(flat)
    assert flat_name(namespace, name) == flat
    assert flat_name(None, flat) == flat


@given(st.lists(st.text(max_size=90), unique=True, min_size=2, max_size=2))
def test_ids_are_legal_and_distinct(ids: list[str]) -> None:
    """Rule 129: two ids never become one."""
    first, second = (legal_id(identifier) for identifier in ids)
    assert _LEGAL.fullmatch(first)
    assert _LEGAL.fullmatch(second)
    assert first != second


def test_names_cut_at_the_limit_stay_apart() -> None:
    """Rule 129: names that differ only after the 64th character stay different."""
    one, two = flat_name("n" * 60, "alpha"), flat_name("n" * 60, "beta")
    assert len(one) <= 64
    assert one != two


def test_kimi_id() -> None:
    """providers.md: ids like `functions.Bash:0` become legal, the same every time, and a newline at the end is seen."""
    assert re.fullmatch(r"functions_Bash_0_[0-9a-f]{8}", legal_id("functions.Bash:0"))
    assert legal_id("abc\n") != "abc\n"
    assert _LEGAL.fullmatch(legal_id("\ud800"))
