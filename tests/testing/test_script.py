"""The values a script is made of."""

import dataclasses

import pytest

from mustcall.testing import Call, Hang, Refuse, Say, Think, Turn, Usage


def test_turns_are_frozen_values() -> None:
    """Turns compare by what they say and cannot be changed."""
    assert Turn(Say("a"), finish="stop") == Turn(Say("a"), finish="stop")
    assert Turn(Say("a")) != Turn(Say("b"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Turn(Say("a")).finish = "length"  # pyrefly: ignore[read-only]  wrong on purpose
    with pytest.raises(AttributeError):
        Hang(Turn()).after = 5  # pyrefly: ignore[read-only]  wrong on purpose


def test_finish_follows_the_parts_unless_given() -> None:
    """Calls, refusals and text decide why a turn ends; a given word wins, true or not."""
    assert Turn(Say("a")).finish_word == "stop"
    assert Turn(Say("a"), Call("f")).finish_word == "tool_calls"
    assert Turn(Refuse("no")).finish_word == "refusal"
    assert Turn(Call("f"), finish="stop").finish_word == "stop"


def test_calls_and_defaults() -> None:
    """A turn lists its calls and has a usage of its own unless told otherwise."""
    turn = Turn(Think("hm"), Call("f", {"a": 1}), Call("g", "{"))
    assert turn.calls == (Call("f", {"a": 1}), Call("g", "{"))
    assert turn.usage == Usage(input_tokens=25, output_tokens=12)
    assert Call("f").arguments == {}
