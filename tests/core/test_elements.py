"""Counting the values of a JSON text before it is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core import elements
from mustcall.core.elements import count_elements
from mustcall.core.limits import REASONS, GatewayLimits
from mustcall.policy.schema.workload import inner_values

json_values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='a,[{"\\é', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='a,"\\', max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


def _count(body: bytes, most: int) -> tuple[int, int]:
    counting, steps = count_elements(body, most), 0
    try:
        while True:
            next(counting)
            steps += 1
    except StopIteration as counted:
        return counted.value, steps


def _containers_and_items(value: Any) -> int:
    """Count as the text does: a bracket for each container, a comma for each item but the first."""
    inner = inner_values(value)
    if inner is None:
        return 0
    return 1 + max(0, len(inner) - 1) + sum(map(_containers_and_items, inner))


@given(json_values, st.integers(1, 9))
def test_the_exact_count_is_that_of_the_values(value: Any, step: int) -> None:
    """Rule 68: whatever strings hold and wherever a step ends, only structure counts."""
    body = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elements, "UNCOUNTED", 0)
        patch.setattr(elements, "_STEP", 3)
        patch.setattr(elements, "_EXACT_STEP", step)
        expected = _containers_and_items(value)
        assert _count(body, expected)[0] >= expected
        if expected:
            assert _count(body, expected - 1)[0] >= expected
        counted = _count(body, 10**9)[0]
        assert counted >= expected
        if counted > expected:  # strings hold such signs: the bound is not enough to refuse
            assert _count(body, counted - 1)[0] == expected or counted - 1 < expected


def test_large_texts_are_counted_in_steps() -> None:
    """Rule 68: each half megabyte is a step, then 32 KiB are one, and counting ends soon after the limit."""
    body = b"[" + b"[]," * 3_000_000 + b"0]"
    count, steps = _count(body, 100_000)
    assert 100_000 < count < 100_000 + 32_768
    # Of three bytes two are counted: 100,000 values are within 150,000 bytes, five pieces of 32 KiB.
    assert steps == -(-len(body) // 524_288) + 5
    assert _count(b"x" * 100_000, 0) == (0, 0)


def test_every_limit_has_a_reason() -> None:
    """Rule 120: the table that is printed names every setting and nothing else."""
    assert list(REASONS) == list(GatewayLimits.__struct_fields__)
