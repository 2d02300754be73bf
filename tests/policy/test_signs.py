"""What a message looks like: signs that grounding rules go by."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.policy.words.grounding import GroundingRule, check_rules, find_rule
from mustcall.policy.words.signs import MessageSign, files_in, shows


@pytest.mark.parametrize(
    ("message", "files"),
    [
        ("Read notes.txt", ("notes.txt",)),
        ("What does ./docs/chat.md say?", ("./docs/chat.md",)),
        ('Summarise "README.md", please.', ("README.md",)),
        ("Show me main.py and main.py.", ("main.py",)),
    ],
)
def test_files_to_be_read(message: str, files: tuple[str, ...]) -> None:
    """Rule 12: a question about a text file shows the sign, and the file is found as it was written."""
    assert files_in(message) == files
    assert shows(MessageSign.FILE, message)


@pytest.mark.parametrize(
    "message",
    [
        "Read the news",
        "How do I open main.py in vim?",
        "Where is notes.txt?",
        "Write to anna@notes.md about it",
        "Read https://example.org/a.txt",
        "e.g. this",
        ".md",
        "What is new in version 1.2?",
        "Open photo.jpg",
    ],
)
def test_no_file_to_be_read(message: str) -> None:
    """Rule 15: addresses, versions, pictures and questions about how to do something show no sign."""
    assert not shows(MessageSign.FILE, message)


@given(st.text(max_size=60), st.sampled_from(list(MessageSign)))
def test_any_text(message: str, sign: MessageSign) -> None:
    """Rule 16: no text raises, and the same text shows the same."""
    assert shows(sign, message) == shows(sign, message)


def found(rule: GroundingRule, message: str) -> bool:
    """Whether a rule fires for a message."""
    said = (Message(role=Role.USER, parts=(Text(text=message),)),)
    return find_rule([rule], Request(model="m", messages=said, tools=(Tool(name=rule.tool),))) is not None


def test_a_rule_with_a_sign() -> None:
    """Rule 12: a rule fires by its phrases or by its signs; one with neither is refused."""
    rule = msgspec.convert({"name": "sums", "signs": ["sum"], "tool": "calc"}, GroundingRule)
    check_rules([rule])
    assert found(rule, "What is 17.5% of 3421?")
    assert not found(rule, "half an hour later")
    assert found(GroundingRule(name="both", triggers="tax", signs=(MessageSign.SUM,), tool="calc"), "What is the tax?")
    with pytest.raises(ConfigError, match="at least one phrase"):
        check_rules([GroundingRule(name="none", tool="calc")])
