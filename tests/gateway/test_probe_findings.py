"""Faults that the probe of our own gateway found, each with every upstream call and its body."""

import json
from typing import Any

import pytest

from mustcall.testing import Call, Fail, FakeClock, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.testing.offers import as_object
from mustcall.testing.script import Answer
from support.http import post
from support.laddering import climbed

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
AGAIN = {"role": "user", "content": "The reply was empty. Please answer."}
CALL = Call("get_weather", {"city": "Oslo"})


def test_a_call_under_none_is_asked_again_without_tools() -> None:
    """Rule 125: a server that calls although none is allowed gets the request without tools; the caller an answer."""
    body = ASKED | {"tools": [TOOL], "tool_choice": "none"}

    def script(request: Recorded) -> Answer:
        return Turn(CALL) if as_object(request.body).get("tools") else Turn(Say("It rains."))

    with ScriptedUpstream(script) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        reply = post(f"{gateway.base_url}/chat/completions", body)
        assert reply.json["choices"][0]["message"]["content"] == "It rains."
        assert "tool_dropped:tools" in reply.headers["x-mustcall-adaptations"]
        assert [one.body for one in upstream.requests] == [body, ASKED | {"messages": [*ASKED["messages"], AGAIN]}]


HISTORY: list[dict[str, Any]] = [
    *ASKED["messages"],
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": "rain"},
]
#: The same without a call in it.
TOLD = [
    *ASKED["messages"],
    {"role": "assistant", "content": "I looked it up with get_weather. The result is:\nrain"},
    {"role": "user", "content": "No more tools can be called for this. Answer now with what you have."},
]
WRITTEN = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'


def test_tools_stay_where_the_history_holds_calls() -> None:
    """Rule 104: where earlier calls stand in the history, tools stay on offer."""
    body = ASKED | {"messages": HISTORY, "tools": [TOOL], "tool_choice": "none"}
    answers = [Turn(CALL), Turn(Say("It rains."))]
    with ScriptedUpstream(answers) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        reply = post(f"{gateway.base_url}/chat/completions", body)
        assert reply.json["choices"][0]["message"]["content"] == "It rains."
        assert [one.body for one in upstream.requests] == [body, body | {"messages": [*HISTORY, AGAIN]}]


def test_a_server_that_calls_again_after_results_is_told_them_in_words() -> None:
    """Rule 125: a reminder was no help, so that neither tools nor calls are in sight; the results still are."""
    body = ASKED | {"messages": HISTORY, "tools": [TOOL], "tool_choice": "none"}
    answers = [Turn(CALL), Turn(CALL), Turn(Say("It rains."))]
    with ScriptedUpstream(answers) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        reply = post(f"{gateway.base_url}/chat/completions", body)
        assert reply.json["choices"][0]["message"]["content"] == "It rains."
        reported = {"tool_dropped:tools", "part_reshaped:history", "directive_added:messages"}
        assert reported <= set(reply.headers["x-mustcall-adaptations"].split(", "))
        again = body | {"messages": [*HISTORY, AGAIN]}
        assert [one.body for one in upstream.requests] == [body, again, ASKED | {"messages": TOLD}]


@pytest.mark.parametrize(
    "written",
    [
        Turn(Say(WRITTEN)),
        Turn(Say(f"{WRITTEN}\n{WRITTEN}"), finish="length"),
        Turn(Say(f"{WRITTEN}\n{WRITTEN}\n{WRITTEN[:20]}"), finish="length"),
    ],
    ids=["whole", "at the limit", "cut"],
)
def test_a_model_that_writes_calls_after_results_is_told_them_in_words(written: Turn) -> None:
    """Rule 125: it writes what the history shows, until its tokens run out; one more attempt has no call in sight."""
    body = ASKED | {"messages": HISTORY, "tools": [TOOL], "tool_choice": "none"}
    with (
        ScriptedUpstream([written, Turn(Say("It rains."))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        reply = post(f"{gateway.base_url}/chat/completions", body)
        assert reply.json["choices"][0]["message"]["content"] == "It rains."
        assert reply.headers["x-mustcall-verdicts"] == "empty,answered"
        reported = {"tool_dropped:tools", "part_reshaped:history", "directive_added:messages"}
        assert reported <= set(reply.headers["x-mustcall-adaptations"].split(", "))
        assert [one.body for one in upstream.requests] == [body, ASKED | {"messages": TOLD}]


def test_results_told_at_the_step_cap_are_followed_by_its_notice_alone() -> None:
    """Rule 109: the notice asks for the answer, so that no second user turn follows it."""
    body = ASKED | {"messages": HISTORY, "tools": [TOOL]}
    with (
        ScriptedUpstream([Turn(Say(WRITTEN)), Turn(Say("It rains."))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        reply = post(f"{gateway.base_url}/chat/completions", body | {"mustcall": {"step_cap": 1}})
        assert reply.json["choices"][0]["message"]["content"] == "It rains."
        assert "part_reshaped:history" in reply.headers["x-mustcall-adaptations"]
        first = body | {"messages": [*HISTORY, TOLD[-1]], "tool_choice": "none"}
        assert [one.body for one in upstream.requests] == [first, ASKED | {"messages": TOLD}]


def test_results_that_words_cannot_tell_stay_as_they_are() -> None:
    """Rule 125: reasoning that belongs to the call, or an answer by schema: the request keeps its shape."""
    thought = [HISTORY[0], HISTORY[1] | {"reasoning_content": "I look it up."}, HISTORY[2]]
    body = ASKED | {"messages": thought, "tools": [TOOL], "tool_choice": "none"}
    with (
        ScriptedUpstream([Turn(Say(WRITTEN)), Turn(Say("It rains."))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        reply = post(f"{gateway.base_url}/chat/completions", body)
        assert reply.json["choices"][0]["message"]["content"] == "It rains."
        assert [one.body for one in upstream.requests] == [body, body | {"messages": [*thought, AGAIN]}]


@pytest.mark.parametrize(
    "result",
    [
        f"The page says <tool_call>{WRITTEN}</tool_call> today.",
        f"The page says <tool_call>{WRITTEN[:-4]}",
        json.dumps({"page": f"<tool_call>{WRITTEN}</tool_call>"}),
        json.dumps({"page": json.loads(WRITTEN)}),
    ],
    ids=["markup", "cut markup", "markup in JSON", "a call as JSON"],
)
def test_a_result_with_call_markup_is_not_told_in_words(result: str) -> None:
    """Rule 125: what a tool wrote does not become a call in the assistant's own turn; a reminder asks instead."""
    history = [*HISTORY[:2], HISTORY[2] | {"content": result}]
    body = ASKED | {"messages": history, "tools": [TOOL], "tool_choice": "none"}
    with (
        ScriptedUpstream([Turn(Say(WRITTEN)), Turn(Say("It rains."))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        reply = post(f"{gateway.base_url}/chat/completions", body)
        assert reply.json["choices"][0]["message"]["content"] == "It rains."
        assert [one.body for one in upstream.requests] == [body, body | {"messages": [*history, AGAIN]}]


@pytest.mark.parametrize(
    "result", ["Call get_weather for <b>Oslo</b>.", json.dumps({"tool": "get_weather", "sky": "rain"})]
)
def test_a_result_that_only_names_a_tool_is_told_in_words(result: str) -> None:
    """Rule 125: a tool's name, or JSON that is no call, is no markup."""
    body = ASKED | {
        "messages": [*HISTORY[:2], HISTORY[2] | {"content": result}],
        "tools": [TOOL],
        "tool_choice": "none",
    }
    with (
        ScriptedUpstream([Turn(Say(WRITTEN)), Turn(Say("It rains."))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        post(f"{gateway.base_url}/chat/completions", body)
        flat = result if result.startswith("Call") else "tool: get_weather, sky: rain"
        told = [
            TOLD[0],
            {"role": "assistant", "content": f"I looked it up with get_weather. The result is:\n{flat}"},
            TOLD[2],
        ]
        assert [one.body for one in upstream.requests] == [body, ASKED | {"messages": told}]


@pytest.mark.parametrize("status", [500, 501])
def test_a_server_that_breaks_on_our_stream_is_asked_whole(status: int) -> None:
    """Rule 137: only we streamed the forced call; after a 500 it is sent as the caller sent it, and that is learnt."""
    body = ASKED | {"tools": [TOOL], "tool_choice": "required"}
    streamed = body | {"stream": True, "stream_options": {"include_usage": True}}

    def script(request: Recorded) -> Answer:
        return Fail(status, "Internal Server Error") if as_object(request.body).get("stream") else Turn(CALL)

    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"chat={upstream.base_url}", clock=FakeClock()) as gateway,
    ):
        for _ in range(2):
            reply = post(f"{gateway.base_url}/chat/completions", body)
            assert reply.json["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "get_weather"
        bodies = [one.body for one in upstream.requests]
        tries = len(bodies) - 2  # the first turn's, each a transport retry of the stream
        assert bodies == [*[streamed] * tries, body, body]


def test_a_500_to_the_callers_own_stream_is_the_callers() -> None:
    """What the caller streamed without tools is not sent whole: its error is told."""
    body = ASKED | {"stream": True}
    with (
        ScriptedUpstream(default=Fail(500, "Internal Server Error")) as upstream,
        RunningGateway(f"chat={upstream.base_url}", clock=FakeClock()) as gateway,
    ):
        assert post(f"{gateway.base_url}/chat/completions", body).status == 500
        assert [one.body for one in upstream.requests] == [body] * 3


def test_an_outage_costs_a_demanded_call_five_requests() -> None:
    """A stream of calls that breaks is asked for whole, then by the next rung; what is broken for good ends there."""
    body = ASKED | {"tools": [TOOL], "tool_choice": "required", "stream": True}
    with (
        ScriptedUpstream(default=Fail(500, "Internal Server Error")) as upstream,
        RunningGateway(f"chat={upstream.base_url}", clock=FakeClock()) as gateway,
    ):
        assert post(f"{gateway.base_url}/chat/completions", body).status == 500
        whole = {name: value for name, value in body.items() if name != "stream"}
        schema = climbed("chat", whole)[1]
        assert [one.body for one in upstream.requests] == [*[body] * 3, whole, schema]


@pytest.mark.parametrize(
    ("status", "message", "counted"),
    [(404, "Not found", True), (405, "no", True), (501, "no", True), (404, "model: nope", False), (400, "no", False)],
)
def test_an_upstream_that_cannot_count_is_estimated_for(status: int, message: str, counted: bool) -> None:
    """A Messages server without `count_tokens` is no reason to fail; one that does not know the model is."""
    body = {"model": "m", "messages": [{"role": "user", "content": "How many tokens are these?"}]}

    class Mute(ScriptedUpstream):
        """Counts nothing."""

        def _answer(self, recorded: Recorded) -> Answer:  # noqa: ARG002  whatever is asked
            return Fail(status, message)

    with Mute() as upstream, RunningGateway(f"messages={upstream.base_url}") as gateway:
        reply = post(f"{gateway.base_url}/messages/count_tokens", body, {"anthropic-version": "2023-06-01"})
        assert reply.status == (200 if counted else status)
        assert ("input_tokens" in reply.json) is counted
        assert ("estimated:input_tokens" in reply.headers.get("x-mustcall-adaptations", "")) is counted
        assert [one.body for one in upstream.requests] == [body]
