"""Which tools a message is about, by its words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.tools import Tool
from mustcall.policy.words.relevance import relevant_tools, words_of


def tool(name: str, description: str, *parameters: str) -> Tool:
    """Return a tool with string parameters."""
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return Tool(name=name, description=description, parameters={"type": "object", "properties": properties})


OFFER = {
    made.name: made
    for made in (
        tool("get_weather", "Get the current weather of a city.", "city"),
        tool("calculator", "Compute an arithmetic expression.", "expression"),
        tool("list_directory", "List the files of a directory.", "path"),
        tool("read_file", "Read a text file.", "path"),
        tool("sendEmail", "Send an email to somebody.", "to", "subject"),
        tool("search_web", "Search the web.", "query"),
        tool("set_timer", "Set a timer.", "minutes"),
        tool("current_time", "Tell the current time in a time zone.", "zone"),
    )
}


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("What is the weather in Oslo?", "get_weather"),
        ("What is 17 * 23?", "calculator"),
        ("What is 17.5% of 3421?", "calculator"),
        ("What is the square root of 144?", "calculator"),
        ("add seventeen and twenty-five", "calculator"),
        ("List files in /tmp", "list_directory"),
        ("What files are in $HOME/docs?", "list_directory"),
        ("Show me the content of notes.txt", "read_file"),
        ("Write to bob@example.com that I am late", "sendEmail"),
        ("search the web for llamas", "search_web"),
        ("Set timers for 10 minutes", "set_timer"),
        ("What time is it in Tokyo?", "current_time"),
        ("Hello!", None),
        ("Thank you very much.", None),
        ("What is the capital of France?", None),
        ("Why is the sky blue?", None),
        ("Tell me a joke.", None),
        ("", None),
        ("今日はどうですか", None),
    ],
)
def test_what_a_message_is_about(text: str, meant: str | None) -> None:
    """Names, descriptions, parameters and the look of things say which tool is meant, or that none is."""
    found = relevant_tools(text, list(OFFER.values()))
    assert [one.name for one in found] == ([meant] if meant else [])


def test_words_in_their_plainest_form() -> None:
    """Endings, case and joined names do not matter; words that say nothing are left out."""
    assert words_of("getWeatherReports") == words_of("weather report") == {"weather", "report"}
    assert words_of("What is the") == frozenset()


@given(text=st.text(max_size=300), name=st.text(max_size=20), description=st.text(max_size=50))
def test_any_text_is_taken(text: str, name: str, description: str) -> None:
    """Whatever the message and the tools say, only tools of the offer come out, in its order."""
    offer = [tool(name, description, "a"), *OFFER.values()]
    found = relevant_tools(text, offer)
    assert [one for one in offer if one in found] == list(found)
