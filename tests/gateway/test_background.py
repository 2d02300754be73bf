"""Responses that are worked on in the background: the job is started once, and its answer is nobody's reply yet."""

import json
from typing import Any

import pytest

from mustcall.testing import Raw, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import post

_JOB: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "queued",
    "model": "m",
    "output": [],
    "background": True,
}


@pytest.mark.parametrize("tools", [False, True])
def test_a_job_is_started_once(tools: bool) -> None:
    """Rule 112: an answer without output is what such a request gets; asking again would start another job."""
    asked: dict[str, Any] = {"model": "m", "input": "Write a book.", "background": True}
    if tools:
        asked["tools"] = [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}]
        asked["tool_choice"] = "required"
    body = json.dumps(_JOB).encode()
    with ScriptedUpstream([Raw(200, body)] * 3) as upstream:
        with RunningGateway(f"responses={upstream.base_url}") as gateway:
            reply = post(f"{gateway.url}/v1/responses", asked)
        assert (reply.status, reply.body) == (200, body)
        assert [json.loads(request.raw) for request in upstream.requests] == [asked]


def test_work_in_the_foreground_is_judged() -> None:
    """`false` is what everybody means who leaves it out."""
    asked = {"model": "m", "input": "Hi", "background": False}
    with ScriptedUpstream([Raw(200, json.dumps(_JOB).encode()), Turn(Say("Hello."))]) as upstream:
        with RunningGateway(f"responses={upstream.base_url}") as gateway:
            reply = post(f"{gateway.url}/v1/responses", asked)
        assert json.loads(reply.body)["output"][0]["content"][0]["text"] == "Hello."
        # A reply that says it is queued is not finished: it is asked for again, in the same words (rule 41).
        assert [request.body for request in upstream.requests] == [asked, asked]
