"""Settings that are changed before a request is sent again, as each wire writes them."""

import json
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.replay import from_file
from mustcall.replay.changes import apply_changes

BODIES: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "own": 1},
    Wire.RESPONSES: {"model": "m", "input": "Hi", "own": 1},
    Wire.MESSAGES: {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], "own": 1},
}


@pytest.mark.parametrize(
    ("wire", "setting", "changed"),
    [
        (Wire.CHAT, "reasoning=off", {"reasoning_effort": "none"}),
        (Wire.RESPONSES, "reasoning=off", {"reasoning": {"effort": "none"}}),
        (Wire.MESSAGES, "reasoning=off", {"thinking": {"type": "disabled"}}),
        (Wire.CHAT, "reasoning=low", {"reasoning_effort": "low"}),
        (Wire.RESPONSES, "reasoning=low", {"reasoning": {"effort": "low"}}),
        (Wire.MESSAGES, "reasoning=low", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        (Wire.CHAT, "stream=on", {"stream": True, "stream_options": {"include_usage": True}}),
        (Wire.RESPONSES, "stream=on", {"stream": True}),
        (Wire.MESSAGES, "stream=on", {"stream": True}),
        (Wire.CHAT, "stream=off", {}),
        (Wire.MESSAGES, "max_tokens=5", {"max_tokens": 5}),
        (Wire.RESPONSES, "temperature=0", {"temperature": 0}),
    ],
)
def test_a_setting_is_written_in_the_words_of_its_wire(wire: Wire, setting: str, changed: dict[str, Any]) -> None:
    """Only that setting changes; unknown fields stay."""
    recorded = from_file(json.dumps(BODIES[wire]).encode(), "r.json", wire)
    assert json.loads(apply_changes(recorded, [setting]).body) == BODIES[wire] | changed


def test_nothing_set_is_the_same_request() -> None:
    """The recorded bytes stay the recorded bytes."""
    recorded = from_file(json.dumps(BODIES[Wire.CHAT]).encode(), "r.json")
    assert apply_changes(recorded, []) is recorded
