"""Histories of nothing but talk."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.message import Message, Role
from mustcall.core.parts import Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from mustcall.policy.words.talk import talk_length

MORE_THAN_TALK: list[Part] = [
    Image(url="https://example.org/a.png"),
    Reasoning(text="hm"),
    Refusal(text="no"),
    ToolCall(id="c", name="f", arguments_json="{}"),
    ToolResult(call_id="c", content=(Text(text="1"),)),
]

messages = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(Role),
        parts=st.lists(
            st.one_of(st.builds(Text, text=st.text(" \n\u00a0ab", max_size=4)), st.sampled_from(MORE_THAN_TALK)),
            max_size=3,
        ).map(tuple),
    ),
    max_size=4,
)


@given(history=messages)
def test_talk_is_words_of_people_and_instructions(history: list[Message]) -> None:
    """A history has a length exactly when each of its messages speaks, in texts that are not blank."""
    speaks = all(
        message.role in (Role.USER, Role.SYSTEM, Role.DEVELOPER)
        and message.parts
        and all(isinstance(part, Text) and part.text.strip() for part in message.parts)
        for message in history
    )
    said = "".join(part.text for message in history for part in message.parts if isinstance(part, Text))
    assert talk_length(history) == (len(said) if speaks else None)


@pytest.mark.parametrize("part", MORE_THAN_TALK, ids=lambda part: type(part).__name__)
def test_one_part_that_is_more_ends_it(part: Part) -> None:
    """A picture, a thought or a call in a user's turn has to be looked at."""
    assert talk_length([Message(role=Role.USER, parts=(Text(text="see"), part))]) is None
