"""The contract with a real model that decides for itself: every wire, streamed and whole, on an unmodified server.

What the model says is its own; the tests hold whatever it is.
"""

import json
import re
from typing import Any

import pytest

from mustcall.testing import RunningGateway
from support.covering import pairwise
from support.http import call
from support.real import CEILING, PATIENCE, WIRES, check_calls, turn
from support.relaying import Relay
from support.sdk import Failure, Seen
from support.served import KeptServer

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
MARKUP = ("<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>", "<function")
#: An error of mustcall's own tree, as the SDKs tell it.
TYPED = re.compile(r"(Error code: \d+ - )?[A-Z]\w+: ")


@pairwise(
    {"wire": WIRES, "user": ("What is the weather in Oslo?", "Who wrote Hamlet? One word."), "stream": (False, True)}
)
def test_auto(gateway: RunningGateway, relay: Relay, wire: str, user: str, stream: bool) -> None:
    """Rule 96, the contract: a valid call, a clean answer or a typed error; a bounded number of upstream requests."""
    relay.take()
    seen = turn(gateway, wire, user, "auto", stream=stream)
    assert 1 <= len(relay.take()) <= CEILING
    match seen:
        case Failure():
            assert TYPED.match(seen.message), seen
        case Seen(calls=()):
            assert seen.text.strip()
            assert not [mark for mark in MARKUP if mark in seen.text]
        case _:
            check_calls(seen)


def healthy_body(server: KeptServer, wire: str, *, stream: bool) -> bytes:
    """Return a request without tools, on a wire of the server's own."""
    words: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 24}
    if wire == "responses":
        words = {"input": "Say hello.", "max_output_tokens": 24}
    return json.dumps({"model": server.model, "temperature": 0, "stream": stream, **words}).encode()


@pytest.mark.parametrize(
    ("wire", "stream"),
    [("chat", False), ("chat", True), ("responses", False), ("messages", False), ("messages", True)],
)
def test_healthy_turn_is_untouched(kept: KeptServer, relay: Relay, wire: str, stream: bool) -> None:
    """Rule 74: a text turn on the server's own wire is passed on byte by byte, request and answer."""
    body = healthy_body(kept, wire, stream=stream)
    relay.take()
    with RunningGateway(f"{wire}={relay.base_url}") as own:
        answer = call("POST", f"{own.url}{PATHS[wire]}", body, timeout=PATIENCE)
    (only,) = relay.take()
    assert (answer.status, only.path) == (200, PATHS[wire])
    assert only.request == body
    assert answer.body == bytes(only.answer)


def test_streamed_responses_are_completed(kept: KeptServer, relay: Relay) -> None:
    """llama.cpp's Responses events lack required fields: the stream is written anew, with the same events and text."""
    body = healthy_body(kept, "responses", stream=True)
    relay.take()
    with RunningGateway(f"responses={relay.base_url}") as own:
        answer = call("POST", f"{own.url}/v1/responses", body, timeout=PATIENCE)
    (only,) = relay.take()
    assert only.request == body
    came, went = events_of(bytes(only.answer)), events_of(answer.body)
    assert "sequence_number" not in came[0]
    assert [event["sequence_number"] for event in went] == list(range(len(went)))
    assert joined(went) == joined(came)


def joined(events: list[dict[str, Any]]) -> list[tuple[str, str | None, str]]:
    """Return type, text and deltas of each event: not ids, and not which deltas arrived together and left as one."""
    told: list[tuple[str, str | None, str]] = []
    for event in events:
        delta = event.get("delta", "")
        if delta and told and told[-1][0] == event["type"]:
            delta = told.pop()[2] + delta
        told.append((event["type"], event.get("text"), delta))
    return told


def events_of(raw: bytes) -> list[dict[str, Any]]:
    """Return the events of a Responses stream."""
    lines = [line[6:] for line in raw.decode().splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]
