"""The plainest reading: what it takes for a call, and what it does not."""

import json

import pytest

from mustcall.evals.plain import read_plainly

CALL = '{"name": "f", "arguments": {"x": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"\n {CALL}\n",
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```",
        f"```tool_call\n{CALL}```\n",
        f"[{CALL}]",
    ],
)
def test_one_call_that_is_the_reply(text: str) -> None:
    """Bare or in one fence, alone or in a list: one call."""
    (call,) = read_plainly(text)
    assert (call.name, json.loads(call.arguments)) == ("f", {"x": 1})


def test_several_calls() -> None:
    """A list of calls is as many calls."""
    assert len(read_plainly(f"```json\n[{CALL}, {CALL}]\n```")) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello",
        f"I call: {CALL}",
        f"```json\n{CALL}\n```\nThat was it.",
        f"{CALL}\n{CALL}",
        f"```json\n{CALL}",
        '{"name": "f"}',
        '{"name": "f", "arguments": "{}"}',
        '{"name": 1, "arguments": {}}',
        f'[{CALL}, {{"a": 1}}]',
        "[]",
        "7",
        "[" * 100_000,
    ],
)
def test_anything_else_is_no_call(text: str) -> None:
    """Words around it, something missing, something else: nothing is read."""
    assert read_plainly(text) == ()
