"""What people pass as a prompt, as messages."""

import pytest

from mustcall import Message, Role, Text
from mustcall.core.errors import InvalidRequest
from mustcall.engine.agent.prompts import read_prompt, text_message

USER = text_message(Role.USER, "Hi")


def test_texts_and_messages() -> None:
    """A text is the user's; messages stay the same objects."""
    assert read_prompt("Hi") == (USER,)
    assert read_prompt(USER)[0] is USER
    assert read_prompt([USER, USER]) == (USER, USER)


def test_dicts_are_chat_messages() -> None:
    """Calls and results included, so a history from elsewhere can be gone on from."""
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    read = read_prompt(
        [
            {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "done"},
        ]
    )
    assert [message.role for message in read] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert [part.text for part in read[0].parts if isinstance(part, Text)] == ["Hi"]
    assert (read[1].calls[0].name, read[2].results[0].call_id) == ("t", "c")


def test_what_is_wrong_is_named() -> None:
    """The message's number and its field stand in the error."""
    with pytest.raises(InvalidRequest, match="message 1 of the prompt"):
        read_prompt([Message(role=Role.USER, parts=()), {"role": "wizard"}])
