"""Which offered tool a written name means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


FILES = Offered(
    [
        Tool(name="read_file"),
        Tool(name="fs__read"),
        Tool(name="read"),
        Tool(name="list", namespace="fs"),
        Tool(name="list", namespace="db"),
        Tool(name="drop", namespace="db"),
    ]
)


@pytest.mark.parametrize(
    ("written", "meant", "reading"),
    [
        ("read_file", "read_file", "spelling"),
        ("functions.read_file", "read_file", "prefix"),
        ("default_api.read_file", "read_file", "prefix"),
        ("tools/read_file", "read_file", "prefix"),
        ("mcp__server__read_file", "read_file", "prefix"),
        ("a.b:c/read_file", "read_file", "prefix"),
        ("functions.Read-File", "read_file", "prefix"),
        ("read_file<|channel|>commentary", "read_file", "control_tokens"),
        ("<|start|>read_file<|message|>", "read_file", "control_tokens"),
        ("read_file<\uff5ctool\u2581sep\uff5c>", "read_file", "control_tokens"),
        ("functions.read_file<|channel|>", "read_file", "prefix"),
        ("read_file:12", "read_file", "call_number"),
        ("functions.read_file:0", "read_file", "prefix"),
        (" read_file\n", "read_file", "surroundings"),
        ("'read_file'", "read_file", "surroundings"),
        # the least is removed that makes a name
        ("functions.fs__read", "fs__read", "prefix"),
        ("fs.read", "fs__read", "spelling"),
        ("x.read", "read", "prefix"),
        # tools of namespaces
        ("drop", "drop", "namespace"),
        ("db.drop", "drop", "namespace"),
        ("fs.list", "fs__list", "namespace"),
        ("functions.db/list", "db__list", "namespace"),
        ("list", None, ""),
        ("x.list", None, ""),
        ("functions.write", None, ""),
        ("functions.", None, ""),
        ("<|channel|>", None, ""),
        (".", None, ""),
        ("x." * 8 + "read", "read", "prefix"),
        ("x." * 9 + "read", None, ""),
        ("x" * 250 + ".read", "read", "prefix"),
        ("x" * 256 + ".read", None, ""),
    ],
)
def test_what_models_add_is_removed(written: str, meant: str | None, reading: str) -> None:
    """Rule 142: as little as makes the name of one tool; ambiguity means none."""
    assert FILES.resolve(written) == meant
    found = FILES.find(written)
    if meant is None:
        assert found is None
        return
    assert found is not None
    tool, how = found
    assert FILES.tool(meant) is tool
    assert how == reading


@given(st.text(alphabet="read_file.:/<|> \"'`x0", max_size=30))
def test_any_name_is_one_tool_or_none(written: str) -> None:
    """Rule 142: whatever is written, it is a tool whose name stands in it, or none."""
    meant = FILES.resolve(written)
    assert meant is None or FILES.tool(meant) is not None
    if meant == "read_file":
        assert "readfile" in written.replace("_", "").replace(".", "").replace("/", "").replace(":", "")


def test_no_tools_given() -> None:
    """With no tools given every name counts; with none offered no name does."""
    assert Offered(None).resolve("anything") == "anything"
    assert Offered(None).resolve("") is None
    assert Offered([]).resolve("anything") is None
