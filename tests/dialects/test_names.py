"""Which offered tool a written name means."""

import pytest

from mustcall.core.tools import Tool
from mustcall.dialects.names import Offered

OFFERED = Offered([Tool(name="get_weather"), Tool(name="get.time"), Tool(name="GetTime"), Tool(name="a-b")])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("get_weather", "get_weather"),
        ("Get-Weather", "get_weather"),
        ("getweather", "get_weather"),
        ("get.time", "get.time"),
        ("GetTime", "GetTime"),
        ("get_time", None),
        ("A_B", "a-b"),
        ("weather", None),
        ("", None),
    ],
)
def test_resolution(written: str, meant: str | None) -> None:
    """Rule 59: exact, else the one that differs only in case or separators; ambiguity means none."""
    assert OFFERED.resolve(written) == meant


def test_no_tools_given() -> None:
    """With no tools given every name counts; with none offered no name does."""
    assert Offered(None).resolve("anything") == "anything"
    assert Offered(None).resolve("") is None
    assert Offered([]).resolve("anything") is None
