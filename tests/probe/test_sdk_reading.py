"""The SDKs read every answer of a probe that differs in more than ids and times from one they have read."""

import json
from typing import Any

import openai
import pytest

from support import sdk_reading
from support.sdk_reading import Taken, read_once_by_sdk


def taken(**changed: Any) -> Taken:
    """A whole reply of Chat Completions, but for this."""
    message = {"role": "assistant", "content": "hi"}
    reply: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }
    raw = bytearray(json.dumps(reply | changed).encode())
    return Taken("POST", "/v1/chat/completions", {}, 200, {"content-type": "application/json"}, raw)


def test_ids_and_times_alone_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reply is the first but for its id; the third says something else."""
    read: list[Taken] = []
    monkeypatch.setattr(sdk_reading, "read_by_sdk", read.append)
    monkeypatch.setattr(sdk_reading, "_read", set[Any]())
    first, second, third = taken(), taken(id="chatcmpl-2", created=7), taken(model="other")
    for one in (first, second, third, third):
        read_once_by_sdk(one)
    assert read == [first, third]


@pytest.mark.parametrize("wrong", [{"id": 5}, {"created": "now"}, {"choices": "none"}])
def test_what_is_wrong_is_seen_each_time(wrong: dict[str, Any]) -> None:
    """A reply that the SDK refuses is refused after a good one, and when it comes again."""
    read_once_by_sdk(taken())
    for _ in range(2):
        with pytest.raises(openai.APIResponseValidationError):
            read_once_by_sdk(taken(**wrong))
