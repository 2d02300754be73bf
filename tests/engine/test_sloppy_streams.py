"""Rules 112, 127: streams of real servers that leave out what clients need are told again with all of it.

What clients need: openai-node refuses a choice without a role; the AI SDK takes text from deltas alone, and passes over
a Responses event whose response has no `created_at` or `model`, and over a call without an item id or without the
status `completed`.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.testing import Call, Say, Turn
from mustcall.testing.render import Stamp, stream_reply
from support.flowing import Flowing
from support.gated import events_of

TEXT, ARGUMENTS = "Sunny, as it was all week.", {"q": "x y z"}
TURNS = {
    "text": Turn(Say(TEXT)),
    "call": Turn(Call("f", ARGUMENTS)),
    "both": Turn(Say(TEXT), Call("f", ARGUMENTS)),
}
Event = dict[str, Any]
Change = Callable[[Event], Event | None]


def edited(change: Change) -> Callable[[list[bytes]], list[bytes]]:
    """Change the value of every event; None leaves it out."""

    def bend(frames: list[bytes]) -> list[bytes]:
        out: list[bytes] = []
        for frame in frames:
            head, mark, data = frame.rpartition(b"data: ")
            if data.startswith(b"["):
                out.append(frame)
            elif (value := change(json.loads(data))) is not None:
                out.append(head + mark + json.dumps(value).encode() + b"\n\n")
        return out

    return bend


def _without(*names: str) -> Change:
    return lambda event: {name: value for name, value in event.items() if name not in names}


def _no_role(event: Event) -> Event | None:
    for choice in event["choices"]:
        choice["delta"].pop("role", None)
    return event


def _minimal(event: Event) -> Event:
    response = event.get("response")
    if response is not None:
        event["response"] = {name: response[name] for name in ("id", "object", "status", "output")}
    return event


def _items(*names: str) -> Change:
    def change(event: Event) -> Event:
        items = [event["item"]] if "item" in event else event.get("response", {}).get("output", [])
        for item in items:
            if item["type"] == "function_call":
                for name in names:
                    item.pop(name, None)
        return event

    return change


def _no_deltas(event: Event) -> Event | None:
    return None if event["type"].endswith(".delta") else event


def _only_items(event: Event) -> Event | None:
    kept = ("response.created", "response.output_item.done", "response.completed")
    return event if event["type"] in kept else None


def _only_the_end(event: Event) -> Event | None:
    return event if event["type"] in ("response.created", "response.completed") else None


def _only_a_message(frames: list[bytes]) -> list[bytes]:
    """The whole message in one chunk, as servers send that do not really stream."""
    chunks = [json.loads(frame.rpartition(b"data: ")[2]) for frame in frames[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    message: Event = {"role": "assistant", "content": "".join(delta.get("content") or "" for delta in deltas) or None}
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    if calls:
        arguments = "".join(call["function"].get("arguments", "") for call in calls)
        message["tool_calls"] = [{**calls[0], "function": {"name": "f", "arguments": arguments}}]
    finish = next(c["choices"][0]["finish_reason"] for c in reversed(chunks) if c["choices"])
    whole = {**chunks[0], "choices": [{"index": 0, "message": message, "finish_reason": finish}]}
    return [b"data: " + json.dumps(whole).encode() + b"\n\n", frames[-1]]


def _whole_blocks(frames: list[bytes]) -> list[bytes]:
    """Every block whole where it starts, and no delta of it."""
    events = [json.loads(frame.rpartition(b"data: ")[2]) for frame in frames]
    blocks = {event["index"]: event["content_block"] for event in events if event["type"] == "content_block_start"}
    texts = dict.fromkeys(blocks, "")
    for event in events:
        if event["type"] == "content_block_delta":
            texts[event["index"]] += event["delta"].get("text", "") + event["delta"].get("partial_json", "")
    for index, block in blocks.items():
        block.update({"text": texts[index]} if block["type"] == "text" else {"input": json.loads(texts[index])})
    return [
        frame.rpartition(b"data: ")[0] + b"data: " + json.dumps(event).encode() + b"\n\n"
        for frame, event in zip(frames, events, strict=True)
        if event["type"] != "content_block_delta"
    ]


BENDS: dict[Wire, dict[str, Callable[[list[bytes]], list[bytes]]]] = {
    Wire.CHAT: {
        "no role": edited(_no_role),
        "no time": edited(_without("created")),
        "no id": edited(_without("id")),
        "no model": edited(_without("model")),
        "no object": edited(_without("object")),
        "nothing but choices": edited(_without("id", "created", "model", "object")),
        "only a message": _only_a_message,
    },
    Wire.RESPONSES: {
        "no numbers": edited(_without("sequence_number")),
        "all numbers 0": edited(lambda event: {**event, "sequence_number": 0}),
        "falling numbers": edited(lambda event: {**event, "sequence_number": 1000 - event["sequence_number"]}),
        "minimal responses": edited(_minimal),
        "calls without an id": edited(_items("id")),
        "calls without a status": edited(_items("status")),
        "no deltas": edited(_no_deltas),
        "only whole items": edited(_only_items),
        "only the end": edited(_only_the_end),
    },
    Wire.MESSAGES: {
        "no role": edited(
            lambda event: {**event, "message": _without("role")(event["message"])} if "message" in event else event
        ),
        "no id": edited(
            lambda event: {**event, "message": _without("id")(event["message"])} if "message" in event else event
        ),
        "no content": edited(
            lambda event: {**event, "message": _without("content")(event["message"])} if "message" in event else event
        ),
        "no usage": edited(
            lambda event: {**event, "message": _without("usage")(event["message"])} if "message" in event else event
        ),
        "whole blocks": _whole_blocks,
    },
}
CASES = [(wire, bend) for wire, bends in BENDS.items() for bend in bends]


def check_chat(events: list[Any], turn: Turn) -> None:
    """What openai-node, the AI SDK and the Python SDK need of chunks."""
    assert events.pop() == "[DONE]"
    assert {chunk["object"] for chunk in events} == {"chat.completion.chunk"}
    assert all(chunk["id"] and chunk["model"] and isinstance(chunk["created"], int) for chunk in events)
    assert len({chunk["id"] for chunk in events}) == 1
    deltas = [choice["delta"] for chunk in events for choice in chunk["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in deltas) == said(turn)
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert "".join(call["function"].get("arguments") or "" for call in calls) == written(turn)
    assert all(call["id"] and call["type"] == "function" for call in calls[:1])


def check_responses(events: list[Any], turn: Turn) -> None:
    """What openai-node, the AI SDK, Codex and the Python SDK need of events."""
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    responses = [event["response"] for event in events if "response" in event]
    assert events[0]["type"] == "response.created"
    assert all(one["id"] and one["model"] and isinstance(one["created_at"], int) for one in responses)
    assert "usage" in responses[-1]
    deltas = {"response.output_text.delta": "", "response.function_call_arguments.delta": ""}
    for event in events:
        if event["type"] in deltas:
            deltas[event["type"]] += event["delta"]
    assert tuple(deltas.values()) == (said(turn), written(turn))
    for event in events:
        item = event.get("item", {})
        if item.get("type") == "function_call":
            assert item["id"]
            assert item["status"] == ("completed" if event["type"].endswith("done") else "in_progress")
    assert [item["type"] for item in responses[-1]["output"]] == [
        "message" if isinstance(part, Say) else "function_call" for part in turn.parts
    ]


def check_messages(events: list[Any], turn: Turn) -> None:
    """What the SDKs need of events."""
    message = events[0]["message"]
    assert (message["type"], message["role"], message["content"]) == ("message", "assistant", [])
    assert message["id"]
    assert message["model"]
    assert message["usage"]["input_tokens"] >= 0
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == said(turn)
    assert "".join(delta.get("partial_json", "") for delta in deltas) == written(turn)


CHECKS = {Wire.CHAT: check_chat, Wire.RESPONSES: check_responses, Wire.MESSAGES: check_messages}


def said(turn: Turn) -> str:
    """The turn's text."""
    return "".join(part.text for part in turn.parts if isinstance(part, Say))


def written(turn: Turn) -> str:
    """The turn's arguments."""
    calls = [part.arguments for part in turn.parts if isinstance(part, Call)]
    return "".join(one if isinstance(one, str) else json.dumps(one, separators=(",", ":")) for one in calls)


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize(("wire", "bend"), CASES)
def test_clients_get_what_they_need(wire: Wire, bend: str, name: str) -> None:
    """Rule 127: whatever a server leaves out, and however its bytes are cut, the stream has all that clients need."""
    turn = TURNS[name]
    frames = BENDS[wire][bend](stream_reply(turn, wire, {"model": "test-model", "stream": True}, Stamp(1, "s")))
    data = b"".join(frames)
    for pieces in (frames, [data], [data[at : at + 5] for at in range(0, len(data), 5)]):
        CHECKS[wire](events_of(Flowing(wire).carry(pieces)[0]), turn)


@pytest.mark.parametrize("name", TURNS)
@pytest.mark.parametrize("wire", Wire)
def test_whole_streams_are_forwarded(wire: Wire, name: str) -> None:
    """Rule 112: what lacks nothing is forwarded, and passes the same checks."""
    frames = stream_reply(TURNS[name], wire, {"model": "test-model", "stream": True}, Stamp(1, "s"))
    out = Flowing(wire).carry(frames)[0]
    assert out == b"".join(frames)
    CHECKS[wire](events_of(out), TURNS[name])
