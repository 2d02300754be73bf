"""Rule 133: texts that announce a call."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.reply.announced_calls import _OPENERS, announces_call

TOOLS = (Tool(name="get_weather"), Tool(name="files.read"), Tool(name="Search"))


@pytest.mark.parametrize(
    "text",
    [
        "I'll call get_weather for Paris.",
        "I\u2019ll call `get_weather` now.",
        "Sure! Let me use get_weather to find out.",
        "Let me use the weather tool.",
        "I will now invoke the function.",
        "I'm going to use the get_weather(city='Paris') tool:",
        "First, I need to call files.read on it.",
        "Let's go ahead and run GET_WEATHER",
        "I will first, then, use the tools you gave me.",
        "Let me search for that.",
        "I am calling get_weather.",
        "Calling get_weather…",
        "Now calling the tool.",
        "That is a good question.\n\nI should use **get_weather** here.",
        "x" * 100_000 + " I'll call get_weather.",
    ],
)
def test_announcements(text: str) -> None:
    """Rule 133: an opener and a verb with a tool's name, or the word tool, announce a call."""
    assert announces_call(text, TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is sunny in Paris.",
        "I called get_weather and it is sunny.",
        "I used the tool.",
        "I will not call get_weather.",
        "I won't use the tool.",
        "Let me know if you want more.",
        "Shall I call get_weather?",
        "Should I? I'll call get_weather?",
        "If you like, I'll use the get_weather tool.",
        "I'll use simple words.",
        "I'll call you. The tool is broken.",
        "Let me explain how get_weather works.",
        "You can use the tool get_weather.",
        "Will I run? No function here.",
        "I'll call get_weather_v2_beta for Paris.",
        "I'll call get_weather. " + "It is sunny today. " * 60,
    ],
)
def test_no_announcements(text: str) -> None:
    """Rule 133: reports, denials, offers, questions and other uses of the words announce nothing."""
    assert not announces_call(text, TOOLS)


def test_without_tools_nothing_is_announced() -> None:
    """Rule 133: a call can only be announced of what is on offer to be called."""
    assert not announces_call("I'll call the tool.", ())
    assert not announces_call("I'll call the tool.", (ProviderTool(type="web_search", value={}),))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["i'll ", "call ", "tool", ".", "now ", "let me ", "\n", "get_weather", "?"]) | st.text())
)
def test_never_raises_and_looks_at_the_end_only(pieces: list[str]) -> None:
    """Rule 133: any text can be looked at, and a long beginning does not change what its end says."""
    text = "".join(pieces)[-700:]
    assert announces_call("word. " * 500 + text, TOOLS) == announces_call("word. " * 300 + text, TOOLS)


@pytest.mark.parametrize("unit", ["i'll ", "i'll now ", "call tool ", "a.b", "let me use ", " "])
def test_repeated_words_end(unit: str) -> None:
    """Rule 133: long runs of phrases are looked at in bounded time."""
    assert announces_call(unit * 100_000 + ". I'll use get_weather", TOOLS)


@pytest.mark.parametrize("opener", _OPENERS)
@pytest.mark.parametrize("end", [" call the weather tool.", " use weather."])
def test_every_opener_announces(opener: str, end: str) -> None:
    """The quick look that most texts end with lets none of the phrases through."""
    assert announces_call(f"Right. {opener.capitalize()}{end}", (Tool(name="weather", parameters={}),))
