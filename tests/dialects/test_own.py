"""Dialects of one's own: registered, they are known to the scanner, to profiles and to the prompt protocol."""

from collections.abc import Iterator
from typing import Any

import pytest

from dialects.scanning import TOOLS, calls_of, cuts, dialects_of, scan, text_of
from mustcall.core.errors import ConfigError
from mustcall.dialects import Prompt, Standing, WrittenCall, find_dialect, forget, parse, register
from mustcall.dialects.own import Body, DialectSettings, make_dialect
from mustcall.profiles import read_overrides

CALL = WrittenCall("get_weather", {"city": "Paris", "days": 3})
WEATHER: dict[str, Any] = {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """What a test registers is forgotten."""
    yield
    forget("mine")


def settings(**fields: Any) -> DialectSettings:
    """Return settings of a dialect."""
    told: dict[str, Any] = {"name": "mine", "open": "@@call", "close": "@@end", **fields}
    return DialectSettings(**told)


@pytest.mark.parametrize("body", list(Body))
@pytest.mark.parametrize("close", ["@@end", ""])
def test_each_body_reads_back(body: Body, close: str) -> None:
    """Rule 57: what it writes it reads, among all others and under its own name, however it is cut."""
    dialect = make_dialect(settings(body=body, close=close))
    register(dialect)
    text = f"So.\n{dialect.render([CALL])}"
    for pieces in cuts(text):
        for active in ("auto", ["mine"], ["mine", "auto"]):
            events = scan(pieces, dialects=active)
            assert (calls_of(events), dialects_of(events), text_of(events)) == ([WEATHER], ["mine"], "So.\n")


def test_known_by_name() -> None:
    """Rule 57: a profile may name it, and tools are rendered in it."""
    with pytest.raises(ConfigError, match="known dialects"):
        read_overrides([{"models": ["*"], "prompt_dialect": "mine"}])
    register(make_dialect(settings()))
    read_overrides([{"models": ["*"], "dialects": ["auto", "mine"], "prompt_dialect": "mine"}])
    assert "@@call" in Prompt("mine").system(TOOLS).text


def test_standing() -> None:
    """Rule 64: one that is loose or only named is not looked for elsewhere."""
    for standing, loose in ((Standing.LOOSE, True), (Standing.NAMED, False)):
        register(make_dialect(settings(standing=standing, body=Body.PYTHON)))
        text = find_dialect("mine").render([CALL])
        assert not parse([text], tools=TOOLS).calls
        assert bool(parse([text], tools=TOOLS, loose=True).calls) is loose
        assert parse([text], tools=TOOLS, dialects=["mine"]).calls


def test_standing_as_the_reply() -> None:
    """Rules 63, 64: one that stands as the reply is read there, and anywhere where loose formats are allowed."""
    register(make_dialect(settings(standing=Standing.REPLY)))
    text = find_dialect("mine").render([CALL])
    behind = f"{text}\nThat is how such a call is written."
    for pieces in cuts(text):
        assert calls_of(scan(pieces)) == [WEATHER]
    for pieces in cuts(behind):
        assert (calls_of(scan(pieces)), text_of(scan(pieces))) == ([], behind)
    assert calls_of(scan([behind], loose=True)) == calls_of(scan([behind], dialects=["mine"])) == [WEATHER]


def test_forgotten() -> None:
    """What is forgotten is not known, and not looked for with tools that were looked for before."""
    register(make_dialect(settings(body=Body.PYTHON)))
    text = find_dialect("mine").render([CALL])
    assert parse([text], tools=TOOLS).calls
    forget("mine")
    assert not parse([text], tools=TOOLS).calls
    with pytest.raises(ConfigError, match="unknown dialect 'mine'"):
        find_dialect("mine")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "Mine"}, "name must be"),
        ({"name": "auto"}, "name must be"),
        ({"open": "call"}, "open must be"),
        ({"open": "{"}, "open must be"),
        ({"open": " @@call"}, "open must be"),
        ({"close": "}"}, "close must be"),
        ({"result": "none"}, "result must have"),
    ],
)
def test_wrong_settings(fields: dict[str, Any], problem: str) -> None:
    """What is wrong is said, with the dialect's name and the value."""
    with pytest.raises(ConfigError, match=problem):
        make_dialect(settings(**fields))


def test_names_of_mustcalls_own() -> None:
    """A built-in dialect is not replaced."""
    with pytest.raises(ConfigError, match="give yours another"):
        register(make_dialect(settings(name="hermes")))
