import pytest

from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.history.odd_names import names_odd_tool, odd_tools

BLANK, ACCENT, USUAL = Tool(name="read file"), Tool(name="täg"), Tool(name="get_weather-2.x")
TOOLS = (BLANK, USUAL, ACCENT, ProviderTool(type="web_search", value={"type": "web_search"}))


def test_odd_names() -> None:
    """Names that dialects cannot hold are told from those they can."""
    assert odd_tools(TOOLS) == (BLANK, ACCENT)
    assert odd_tools((USUAL,)) == ()
    assert odd_tools(()) == ()


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>read file\n<arg_key>title</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
        '<|tool_call>call:read file{body:<|"|>x<|"|>}<tool_call|>',
        ">>>read file\n{}",
        "<function=täg>{}</function>",
        "```tool_code\ntool.täg(a=1)\n```",
        "```tool_code\nread file(title='x')\n```",
    ],
)
def test_a_call_of_an_odd_tool_is_seen(text: str) -> None:
    """Rule 121: markup around an offered name is seen even where no dialect can read the name."""
    assert names_odd_tool(text, TOOLS)
    assert not names_odd_tool(text, (USUAL,))


@pytest.mark.parametrize("text", ["I can read files.", "First read file, then täg.", "The file: read it (twice).", ""])
def test_prose_is_prose(text: str) -> None:
    """Words that are also a tool's name are no call."""
    assert not names_odd_tool(text, TOOLS)
