"""Several choices in one chat reply (`n`): each is checked, or it is not delivered."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.testing import Raw, RawStream
from rules.driving import Stage, request
from support.http import post

Json = dict[str, Any]

FORM: Json = {
    "type": "json_schema",
    "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {}}, "required": ["a"]}},
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage() as opened:
        yield opened


def _choice(index: int, content: str | None, *calls: tuple[str, str], finish: str = "") -> Json:
    message: Json = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{index}_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(calls)
        ]
    return {"index": index, "message": message, "finish_reason": finish or ("tool_calls" if calls else "stop")}


def _reply(*choices: Json) -> Raw:
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
    head = {"id": "c1", "object": "chat.completion", "created": 1_790_000_000, "model": "gpt-4o"}
    return Raw(200, json.dumps({**head, "choices": list(choices), "usage": usage}).encode())


CALL = ("get_weather", '{"city":"Paris"}')


@pytest.mark.parametrize(
    "choices",
    [
        (_choice(0, "One."), _choice(1, "Two.")),
        (_choice(0, "One."), _choice(1, None, CALL), _choice(2, "Three.")),
        (_choice(0, None, CALL), _choice(1, "Two.")),
    ],
)
def test_sound_choices_pass_byte_for_byte(stage: Stage, choices: tuple[Json, ...]) -> None:
    """Rule 112: several choices that are all in order go out as they came."""
    answer = _reply(*choices)
    outcome = stage.play(answer).ask("chat", {**request("chat"), "n": len(choices)})
    assert outcome.raw == answer.body
    assert outcome.adaptations == []


@pytest.mark.parametrize(
    ("second", "fields"),
    [
        (_choice(1, None, CALL), {"tool_choice": "none"}),
        (_choice(1, None, ("fly", "{}")), {}),
        (_choice(1, None, ("get_weather", '{"city":5}')), {}),
        (_choice(1, None, ("get_weather", '{"city":"Pa'), finish="length"), {}),
        (_choice(1, None, CALL, CALL), {"parallel_tool_calls": False}),
        (_choice(1, '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'), {}),
        (_choice(1, '{"b": 1}'), {"response_format": FORM, "tools": None}),
        (_choice(1, None), {}),
    ],
)
def test_an_unsound_choice_is_left_out(stage: Stage, second: Json, fields: Json) -> None:
    """Rules 40, 59, 125, 126: a choice that could not stand alone is not delivered beside one that can; it is said."""
    body = {key: value for key, value in {**request("chat"), "n": 2, **fields}.items() if value is not None}
    first = _choice(0, '{"a": 1}')
    outcome = stage.play(_reply(first, second)).ask("chat", body)
    assert stage.bodies == [body]
    assert [choice["message"]["content"] for choice in json.loads(outcome.raw)["choices"]] == ['{"a": 1}']
    assert (outcome.status, outcome.calls) == (200, ())
    assert "part_dropped:choices" in outcome.adaptations


def test_the_limit_is_each_choice_s_own(stage: Stage) -> None:
    """Rule 123: usage counts all choices together, and no choice is taken for truncated by the sum of them."""
    answer = _reply(_choice(0, "One."), _choice(1, None, CALL))
    body = {**request("chat"), "n": 2, "max_completion_tokens": 4}
    outcome = stage.play(answer).ask("chat", body)
    assert (outcome.raw, outcome.adaptations) == (answer.body, [])


def test_choices_are_left_out_where_the_first_is_mended(stage: Stage) -> None:
    """Rule 2: what is written again has one choice, and says that there were more."""
    answer = _reply(_choice(0, None, ("get_weather", '{"city":["Paris"]}')), _choice(1, "Two."))
    outcome = stage.play(answer).ask("chat", {**request("chat"), "n": 2})
    assert outcome.calls == (("get_weather", {"city": "Paris"}),)
    assert "part_dropped:choices" in outcome.adaptations


def test_a_stream_of_choices_with_tools_is_refused(stage: Stage) -> None:
    """Rule 53: they could only be checked once they are out, so the request is refused before it costs anything."""
    stage.play(_reply(_choice(0, "x")))
    refused = post(stage.url("chat") + "/v1/chat/completions", {**request("chat", stream=True), "n": 2})
    error = json.loads(refused.body)["error"]
    assert (refused.status, error["param"]) == (400, "n")
    assert "must be 1 in a stream with tools" in error["message"]
    assert stage.bodies == []


def test_a_stream_of_plain_choices_passes(stage: Stage) -> None:
    """Rule 112: nothing can be called in a request without tools, and its stream goes out as it came."""
    chunks = [
        {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o", "choices": [choice]}
        for index in (0, 1)
        for choice in (
            {"index": index, "delta": {"role": "assistant", "content": f"{index}"}, "finish_reason": None},
            {"index": index, "delta": {}, "finish_reason": "stop"},
        )
    ]
    lines = (*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), b"data: [DONE]\n\n")
    body = {key: value for key, value in request("chat", stream=True).items() if key not in ("tools", "tool_choice")}
    outcome = stage.play(RawStream(lines)).ask("chat", {**body, "n": 2})
    assert outcome.raw == b"".join(lines)
