"""Every dialect against its fixtures: calls, remaining text and reports, however the text is cut."""

import pytest

from dialects.scanning import (
    FIXTURES,
    TOOLS,
    Active,
    Fixture,
    calls_of,
    cuts,
    dialects_of,
    load,
    reasoning_of,
    reasons_of,
    scan,
    text_of,
)
from mustcall.core.memo import owned
from mustcall.dialects import DIALECTS, ArgumentDelta, CallEnd, CallStart, Standing
from mustcall.dialects.catalogue import BY_NAME

CASES = [
    pytest.param(dialect.name, item, id=f"{dialect.name}-{item.kind}")
    for dialect in DIALECTS
    for item in load(dialect.name)
]
VARIANTS = [
    pytest.param(path.stem, item, id=f"{path.stem}-{item.kind}")
    for path in sorted((FIXTURES / "variants").glob("*.json"))
    for item in load(f"variants/{path.stem}")
]


# These are the same on the page as another dialect, which gives its name where both are active.
TWINS = {"hunyuan_a13b": "jamba", "apriel": "jamba", "step3p5": "qwen3_coder", "poolside_v1": "glm"}


def check(item: Fixture, active: Active, dialects: list[str], *, loose: bool) -> None:
    """Assert that the fixture holds for every way to cut its text, and that its calls are of these dialects."""
    expected = None
    for pieces in cuts(item.text):
        events = scan(pieces, dialects=active, loose=loose, tools=TOOLS)
        expected = expected or events
        assert events == expected
    assert expected is not None
    assert calls_of(expected) == item.calls
    assert dialects_of(expected) == dialects
    assert text_of(expected) == item.remains
    assert reasons_of(expected) == item.malformed
    assert reasoning_of(expected) == item.reasoning
    for end in (event for event in expected if isinstance(event, CallEnd)):
        deltas = [event.text for event in expected if isinstance(event, ArgumentDelta) and event.index == end.index]
        assert "".join(deltas) == end.arguments
        assert [event.name for event in expected if isinstance(event, CallStart) and event.index == end.index] == [
            end.name
        ]


@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
def test_eight_kinds(dialect: str) -> None:
    """Each dialect has a fixture for every kind of reply the issue names."""
    assert {item.kind for item in load(dialect)} >= {
        "no call",
        "one",
        "parallel",
        "text before and after",
        "nested",
        "unicode and escapes",
        "no arguments",
        "truncated",
    }


@pytest.mark.parametrize(("dialect", "item"), CASES)
def test_alone(dialect: str, item: Fixture) -> None:
    """Rule 56: a dialect reads its own calls when it is the only one active."""
    check(item, [dialect], [dialect] * len(item.calls), loose=True)


@pytest.mark.parametrize(("dialect", "item"), CASES)
def test_in_company(dialect: str, item: Fixture) -> None:
    """Rule 57: all dialects together give what each gives alone, those of ambiguous standing named with them."""
    named = BY_NAME[dialect]
    told = [TWINS.get(dialect, dialect)] * len(item.calls)
    if named.standing is Standing.NAMED:
        check(item, [named, *(other for other in DIALECTS if other.standing is Standing.AUTO)], told, loose=False)
    else:
        check(item, "auto", told, loose=named.standing is Standing.LOOSE)


NAMED = [
    pytest.param(path.stem, item, id=f"{path.stem}-{item.kind}")
    for path in sorted((FIXTURES / "variants").glob("*.json"))
    for item in load(f"variants/{path.stem}")
    if len(set(item.dialects)) == 1 and not item.mixed
]


@pytest.mark.parametrize(("family", "item"), NAMED)
def test_variants_alone(family: str, item: Fixture) -> None:
    """Rule 57: a spelling is read the same when its dialect is the only one that is looked for."""
    assert family
    check(item, item.dialects[:1], item.dialects, loose=item.loose)


@pytest.mark.parametrize(("family", "item"), VARIANTS)
def test_variants(family: str, item: Fixture) -> None:
    """The spellings and slips the formats' notes tell of are read, or refused, as decided."""
    assert family
    check(item, "auto", item.dialects, loose=item.loose)


def test_without_an_owner_all_is_found_as_well() -> None:
    """Who scans a text outside of a server keeps nothing of it, and finds the same."""
    for dialect in DIALECTS:
        for item in load(dialect.name):
            kept = scan([item.text], dialects=[dialect.name], loose=False, tools=TOOLS)
            with owned(None):
                assert scan([item.text], dialects=[dialect.name], loose=False, tools=TOOLS) == kept
