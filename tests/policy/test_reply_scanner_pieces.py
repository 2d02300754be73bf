"""A whole text is looked through in pieces: what is found does not depend on them."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.parts import Reasoning, Text
from mustcall.core.tools import Tool
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanTargets
from support.values import replied

TOOL = Tool(name="get_weather", parameters={"type": "object"})
WORDS = (
    *("<tool_call>", "</tool_call>", '{"name": "get_weather", "arguments": {"city": "Bern"}}', "```json\n", "\n```\n"),
    *("<think>", "</think>", "It is sunny. ", "<|tool_call|>", "[get_weather(city='Bern')]", "\n\n", "é"),
)
texts = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)


@given(texts, texts, st.integers(1, 40))
def test_pieces_change_nothing(text: str, thought: str, size: int) -> None:
    """Rule 64: the same parts are found, and the same is reported, whatever the size of the pieces."""
    reply = replied(Reasoning(text=thought), Text(text))
    whole = ReplyScanner(ScanTargets(tools=(TOOL,)), "t").read(reply)
    with patch("mustcall.policy.scanning.reply_scanner._PIECE", size):
        assert ReplyScanner(ScanTargets(tools=(TOOL,)), "t").read(reply) == whole
