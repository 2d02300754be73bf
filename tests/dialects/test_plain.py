"""The quick answer to whether a text is nothing but text."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mustcall.core.tools import Tool
from mustcall.dialects import DIALECTS, ScannedText, Scanner, is_plain
from mustcall.dialects.examples import example_of

TOOLS = (
    Tool(name="get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}),
    Tool(name="run", parameters={"type": "object", "properties": {}}),
)
_PIECES = (
    *map(example_of, DIALECTS),
    "<get_weather>", "get_weather(", '{"name": "run"}', "[run()]", "Action: run", "<think>", "</think>", "`", "```\n",
    "The weather is fine.", "Tool", "\n", " ", "\ufeff", "assistant", "<", "[", "{", "|", "x", "run", "@@call run {}",
)  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=8)), max_size=5).map("".join)


@pytest.mark.parametrize("loose", [False, True])
@given(text=texts)
@example(text="<get_weather")
@example(text="Action: run")
@example(text=" run()")
def test_plain_means_that_a_scanner_finds_nothing(loose: bool, text: str) -> None:
    """A text that is called plain comes out of a scanner as it went in."""
    if not is_plain(text, tools=TOOLS, loose=loose):
        return
    scanner = Scanner(tools=TOOLS, loose=loose)
    found = [*scanner.feed(text), *scanner.close()]
    assert all(isinstance(event, ScannedText) for event in found)
    assert "".join(event.text for event in found if isinstance(event, ScannedText)) == text


@pytest.mark.parametrize(
    "text",
    ["It rains in Oslo.\nTake an umbrella: you will need one.", "1. One\n2. Two", "I ran get_weather."],
)
def test_most_answers_are_plain(text: str) -> None:
    """The quick answer is worth asking for: ordinary prose gets a yes."""
    assert is_plain(text, tools=TOOLS)
