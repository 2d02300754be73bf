"""Calls in a provider's own form: for the client to carry out, or run by the provider, from both ends of a gateway."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.words.grounding import GroundingRule
from mustcall.testing import Call, Raw, RawStream, Say, Turn
from rules.driving import WORDS, Stage, request
from rules.outcomes import data_of
from support.forcing import WIRES, choice_on

Json = dict[str, Any]

GOOD = Turn(Call("get_weather", {"city": "Paris"}))
CALLED = (("get_weather", {"city": "Paris"}),)
WEATHER: Json = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_9",
    "name": "get_weather",
    "arguments": '{"city":"Paris"}',
    "status": "completed",
}
SAID: Json = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Found.", "annotations": []}],
}
SEARCH: Json = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
#: A call of each kind for the client, and the tool that it is of.
ITEMS: dict[str, tuple[Json, Json]] = {
    "local_shell_call": (
        {"action": {"type": "exec", "command": ["rm", "x"], "env": {}}},
        {"type": "local_shell"},
    ),
    "shell_call": ({"action": {"commands": ["rm x"]}}, {"type": "shell"}),
    "apply_patch_call": ({"operation": {"type": "delete_file", "path": "x"}}, {"type": "apply_patch"}),
    "computer_call": (
        {"action": {"type": "click", "x": 1, "y": 1, "button": "left"}, "pending_safety_checks": []},
        {"type": "computer_use_preview", "display_width": 9, "display_height": 9, "environment": "browser"},
    ),
}
#: What the client sends back for each.
RESULTS: dict[str, Json] = {
    "local_shell_call": {"id": "it_1", "output": "done"},
    "shell_call": {"output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    "apply_patch_call": {"status": "completed", "output": "done"},
    "computer_call": {"output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}},
}
#: Fires on words that only its own test has.
HERO = GroundingRule(name="hero", triggers="hero os", tool="get_time")


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(OperatorSettings(rules=(HERO,))) as opened:
        yield opened


def _item(kind: str, number: int = 1) -> Json:
    return {"type": kind, "id": f"it_{number}", "call_id": f"call_{number}", "status": "completed", **ITEMS[kind][0]}


def _reply(*output: Json, **fields: Any) -> Json:
    usage = {"input_tokens": 25, "output_tokens": 12, "total_tokens": 37}
    head = {"id": "resp_1", "object": "response", "created_at": 1_790_000_000, "model": "gpt-4o", "status": "completed"}
    return {**head, "output": list(output), "usage": usage, **fields}


def _whole(*output: Json, **fields: Any) -> Raw:
    return Raw(200, json.dumps(_reply(*output, **fields)).encode())


def _stream(*output: Json) -> RawStream:
    begun = _reply(status="in_progress", usage=None)
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(output):
        events += [
            {"type": "response.output_item.added", "output_index": place, "item": {**item, "status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": place, "item": item},
        ]
    events.append({"type": "response.completed", "response": _reply(*output)})
    numbered = [{"sequence_number": number, **event} for number, event in enumerate(events)]
    return RawStream(tuple(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in numbered))


def _asked(kind: str | None, stream: bool = False, **fields: Any) -> Json:
    body = request("responses", stream=stream, **fields)
    if kind is not None:
        body["tools"] = [ITEMS[kind][1], *body["tools"]]
    return body


def _types(raw: bytes, *, stream: bool) -> list[str]:
    """Return the types of the items that a caller got."""
    if not stream:
        return [item["type"] for item in json.loads(raw).get("output", ())]
    return [one["item"]["type"] for one in data_of(raw) if one["type"] == "response.output_item.done"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ITEMS)
def test_healthy_items_pass_byte_for_byte(stage: Stage, kind: str, stream: bool) -> None:
    """Rules 35, 112: a call in the provider's own form that is on offer is a call, and nothing of it is changed."""
    answer = _stream(_item(kind)) if stream else _whole(_item(kind))
    outcome = stage.play(answer).ask("responses", _asked(kind, stream))
    assert stage.bodies == [_asked(kind, stream)]
    assert outcome.raw == (b"".join(answer.chunks) if isinstance(answer, RawStream) else answer.body)
    if not stream:
        assert (outcome.verdicts, outcome.headers["x-mustcall-outcome"]) == ("called", "calls")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ITEMS)
def test_forbidden_items_are_dropped(stage: Stage, kind: str, stream: bool) -> None:
    """Rule 125: with `none` such a call is not delivered, also while it streams."""
    make = _stream if stream else _whole
    outcome = stage.play(make(_item(kind), SAID)).ask("responses", _asked(kind, stream, choice="none"))
    assert _types(outcome.raw, stream=stream) == ["message"]
    assert b"call_1" not in outcome.raw
    assert len(stage.bodies) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ITEMS)
def test_items_that_are_not_offered_are_unknown_tools(stage: Stage, kind: str, stream: bool) -> None:
    """Rule 59: a call of a tool that is not on offer is asked for again; nothing of it reaches the caller."""
    make = _stream if stream else _whole
    outcome = stage.play(make(_item(kind)), GOOD).ask("responses", _asked(None, stream))
    assert outcome.calls == CALLED
    assert b"it_1" not in outcome.raw
    assert len(stage.bodies) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ITEMS)
def test_one_item_at_a_time(stage: Stage, kind: str, stream: bool) -> None:
    """Rule 126: the first call is delivered, those behind it are dropped, whatever form they have."""
    make = _stream if stream else _whole
    body = {**_asked(kind, stream), "parallel_tool_calls": False}
    outcome = stage.play(make(_item(kind), _item(kind, 2), WEATHER)).ask("responses", body)
    assert _types(outcome.raw, stream=stream) == [kind]
    assert (outcome.calls, len(stage.bodies)) == ((), 1)


@pytest.mark.parametrize("kind", ITEMS)
def test_items_meet_a_demand_for_any_tool(stage: Stage, kind: str) -> None:
    """Rule 35: such a call meets `required`, and costs no second attempt."""
    outcome = stage.play(_whole(_item(kind))).ask("responses", _asked(kind, choice="required"))
    assert (outcome.headers["x-mustcall-force"], outcome.verdicts) == ("met", "called")
    assert _types(outcome.raw, stream=False) == [kind]
    assert len(stage.bodies) == 1


@pytest.mark.parametrize("kind", ITEMS)
def test_items_beside_a_demanded_tool_are_dropped(stage: Stage, kind: str) -> None:
    """Rule 29: where another tool is demanded, such a call does not meet it and is not delivered beside it."""
    body = _asked(kind, choice="get_weather")
    outcome = stage.play(_whole(_item(kind), WEATHER)).ask("responses", body)
    assert _types(outcome.raw, stream=False) == ["function_call"]
    assert (outcome.calls, outcome.headers["x-mustcall-force"]) == (CALLED, "met")
    outcome = stage.play(_whole(_item(kind)), GOOD).ask("responses", body)
    assert (outcome.calls, outcome.verdicts) == (CALLED, "force_missed,called")


def test_an_item_with_its_result_was_run_by_the_provider(stage: Stage) -> None:
    """Rule 35: a shell in the provider's container is no call for the client, whatever is on offer."""
    result = {"type": "shell_call_output", "id": "out_1", "call_id": "call_1", "output": []}
    answer = _whole(_item("shell_call"), result, SAID)
    outcome = stage.play(answer).ask("responses", _asked("shell_call"))
    assert (outcome.raw, outcome.verdicts) == (answer.body, "answered")


def _result(kind: str, number: int = 1) -> Json:
    return {"type": f"{kind}_output", "call_id": f"call_{number}", **RESULTS[kind]}


def _after(kind: str, *later: Json, words: str = "Do it.", **fields: Any) -> Json:
    """Return a request in which the client has run a call of the kind."""
    return {**_asked(kind, **fields), "input": [{"role": "user", "content": words}, _item(kind), _result(kind), *later]}


@pytest.mark.parametrize("kind", ITEMS)
def test_results_pass_unchanged(stage: Stage, kind: str) -> None:
    """Rule 112: what a client sends back for such a call is forwarded as it came."""
    body = _after(kind)
    outcome = stage.play(_whole(SAID)).ask("responses", body)
    assert stage.bodies == [body]
    assert (outcome.adaptations, outcome.verdicts) == ([], "answered")


@pytest.mark.parametrize("kind", ITEMS)
@pytest.mark.parametrize("asker", ["caller", "header"])
def test_a_result_ends_a_force(stage: Stage, kind: str, asker: str) -> None:
    """Rule 11: a force holds for the first step; the result of such a call ends it like that of a function."""
    body = _after(kind, choice="required") if asker == "caller" else _after(kind)
    headers = {} if asker == "caller" else {"x-mustcall-force-tools": "true"}
    outcome = stage.play(_whole(SAID)).ask("responses", body, headers=headers)
    assert stage.bodies == [body | {"tool_choice": "auto"} if asker == "caller" else body]
    assert (outcome.text, outcome.adaptations) == ("Found.", ["force_dropped:any_tool"])


@pytest.mark.parametrize("kind", ITEMS)
def test_a_force_holds_for_a_new_question(stage: Stage, kind: str) -> None:
    """Rule 11: only results behind the user's latest message end a force."""
    body = _after(kind, {"role": "user", "content": "And now?"}, choice="required")
    outcome = stage.play(_whole(SAID), GOOD).ask("responses", body)
    assert stage.bodies[0] == body
    assert outcome.calls == CALLED


@pytest.mark.parametrize("kind", ITEMS)
def test_a_result_ends_a_grounding_rule(stage: Stage, kind: str) -> None:
    """Rule 13: no rule fires once such a result answers the user's message."""
    first = {**_asked(kind), "input": "What is Hero OS?"}
    stage.play(Turn(Call("get_time", {"zone": "UTC"}))).ask("responses", first)
    assert stage.bodies == [first | {"tool_choice": choice_on("responses", "get_time")}]
    later = _after(kind, words="What is Hero OS?")
    outcome = stage.play(_whole(SAID)).ask("responses", later)
    assert (stage.bodies, outcome.text) == ([later], "Found.")


@pytest.mark.parametrize("kind", ITEMS)
def test_results_count_for_the_step_cap(stage: Stage, kind: str) -> None:
    """Rule 109: such results are tool rounds; parallel ones are one, also beside those of functions."""
    function = {"type": "function_call_output", "call_id": "call_9", "output": "Sunny."}
    parallel = [_item(kind), _item(kind, 2), WEATHER, _result(kind), _result(kind, 2), function]
    headers = {"x-mustcall-step-cap": "2"}
    below = {**_after(kind), "input": [{"role": "user", "content": "Do it."}, *parallel]}
    stage.play(_whole(SAID)).ask("responses", below, headers=headers)
    assert stage.bodies == [below]
    reached = {**below, "input": [*below["input"], _item(kind, 3), _result(kind, 3)]}
    outcome = stage.play(_whole(SAID)).ask("responses", reached, headers=headers)
    assert [body["tool_choice"] for body in stage.bodies] == ["none"]
    assert stage.bodies[0]["input"][:-1] == reached["input"]
    assert WORDS.step_cap in json.dumps(stage.bodies[0]["input"][-1])
    assert outcome.text == "Found."


@pytest.mark.parametrize("kind", ITEMS)
def test_such_a_tool_is_not_forced_by_name(stage: Stage, kind: str) -> None:
    """Rule 8: a force by name on a tool of the provider's own form is an error that names the way to force it."""
    tool = ITEMS[kind][1]["type"]
    outcome = stage.play().ask("responses", _asked(kind), headers={"x-mustcall-force-tools": tool})
    assert (outcome.status, stage.bodies) == (400, [])
    said = json.loads(outcome.raw)["error"]["message"]
    assert said.startswith(
        f"force_tools demands {tool}, but a tool of the provider's own form cannot be forced by name"
    )
    assert f'tool_choice {{"type": "{tool}"}}' in said
    own = _asked(kind) | {"tool_choice": {"type": tool}}
    outcome = stage.play(_whole(_item(kind))).ask("responses", own)
    assert (stage.bodies, _types(outcome.raw, stream=False)) == ([own], [kind])


def _choice(mode: str, *kinds: str) -> Json:
    tools = [{"type": kind} if kind == "web_search" else {"type": "function", "name": kind} for kind in kinds]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


def _searching(choice: Any) -> Json:
    body = request("responses", stream=False)
    return {**body, "tools": [{"type": "web_search"}, *body["tools"]], "tool_choice": choice}


def test_a_set_with_a_hosted_tool_is_enforced(stage: Stage) -> None:
    """Rule 29: a function that is not in the set is not delivered, also where the provider's tools are among it."""
    body = _searching(_choice("auto", "web_search", "get_time"))
    time = {**WEATHER, "name": "get_time", "arguments": '{"zone":"UTC"}'}
    outcome = stage.play(_whole(WEATHER), _whole(time)).ask("responses", body)
    assert (outcome.calls, outcome.verdicts) == ((("get_time", {"zone": "UTC"}),), "unknown_tool,called")
    assert stage.bodies[0] == body


@pytest.mark.parametrize("choice", ["required", _choice("required", "web_search", "get_time")])
def test_a_hosted_tool_that_ran_meets_the_demand(stage: Stage, choice: Any) -> None:
    """Rule 112: what the provider takes for a demanded tool of its own is no missed force."""
    answer = _whole(SEARCH, SAID)
    outcome = stage.play(answer).ask("responses", _searching(choice))
    assert (outcome.raw, outcome.verdicts) == (answer.body, "answered")
    assert outcome.headers["x-mustcall-force"] == "met"
    outcome = stage.play(_whole(SAID), GOOD).ask("responses", _searching(choice))
    assert outcome.verdicts.startswith("force_missed,")


def test_a_hosted_tool_outside_the_set_meets_no_demand(stage: Stage) -> None:
    """Rule 29: a tool that the provider ran although it is not in the set is no answer to the demand."""
    outcome = stage.play(_whole(SEARCH, SAID), GOOD).ask("responses", _searching(_choice("required", "get_weather")))
    assert (outcome.calls, outcome.verdicts) == (CALLED, "force_missed,called")


@pytest.mark.parametrize("caller", [wire for wire in WIRES if wire != "responses"])
def test_what_the_caller_cannot_see_is_no_answer(stage: Stage, caller: str) -> None:
    """Rule 38: a reply of nothing but the provider's own items is empty for a caller on another wire."""
    outcome = stage.play(_whole(SEARCH), Turn(Say("Sunny."))).ask(caller, request(caller), "responses")
    assert (outcome.text, outcome.verdicts) == ("Sunny.", "empty,answered")


@pytest.mark.parametrize("status", ["cancelled", "in_progress", "queued"])
@pytest.mark.parametrize("caller", WIRES)
def test_an_unfinished_response_is_a_transient_failure(stage: Stage, caller: str, status: str) -> None:
    """Rule 41: a whole reply that says it is not finished is asked for again, like a stream that ends too soon."""
    outcome = stage.play(_whole(WEATHER, status=status), GOOD).ask(caller, request(caller), "responses")
    assert outcome.calls == CALLED
    assert len(stage.bodies) == 2
    assert stage.bodies[0] == stage.bodies[1]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("surplus", [Call("get_weather", {"town": 1}), Call("fly", {}), Call("get_time", '{"zone": ')])
def test_a_surplus_call_need_not_be_sound(stage: Stage, wire: str, surplus: Call) -> None:
    """Rule 126: what is dropped in any case spoils nothing."""
    one = {"type": "auto", "disable_parallel_tool_use": True}
    setting: Json = {"tool_choice": one} if wire == "messages" else {"parallel_tool_calls": False}
    turn = Turn(Call("get_weather", {"city": "Paris"}), surplus)
    outcome = stage.play(turn).ask(wire, {**request(wire), **setting})
    assert (outcome.calls, outcome.verdicts) == (CALLED, "called")
    assert f"call_dropped:{surplus.name}" in outcome.adaptations


HOSTED: Json = {"type": "shell", "environment": {"type": "container_auto"}}
OUTPUT: Json = {"type": "shell_call_output", "id": "out_1", "call_id": "call_1", "output": []}


def _with_shell(stream: bool = False, **fields: Any) -> Json:
    body = request("responses", stream=stream, **fields)
    return {**body, "tools": [HOSTED, *body["tools"]]}


def test_a_hosted_shell_streams_as_it_comes(stage: Stage) -> None:
    """Rule 113: what the provider runs holds no stream: its text goes out before the stream has ended."""
    answer = _stream(_item("shell_call"), OUTPUT)
    outcome = stage.play(answer).ask("responses", _with_shell(stream=True))
    assert outcome.raw == b"".join(answer.chunks)
    assert outcome.headers["x-mustcall-outcome"] == "streaming"


@pytest.mark.parametrize("ran", [(OUTPUT, SAID), (SAID,)])
def test_a_hosted_shell_that_ran_meets_the_demand(stage: Stage, ran: tuple[Json, ...]) -> None:
    """Rule 112: a shell in the provider's container is no call for the client, and no missed force."""
    answer = _whole(_item("shell_call"), *ran)
    outcome = stage.play(answer).ask("responses", _with_shell(choice="required"))
    assert (outcome.raw, outcome.verdicts) == (answer.body, "answered")
    assert outcome.headers["x-mustcall-force"] == "met"


def test_a_question_for_approval_meets_the_demand(stage: Stage) -> None:
    """Rule 112: a server's tool that waits for the caller's approval was called, as the provider has it."""
    asking = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "s"}
    body = request("responses", stream=False, choice="required")
    server = {"type": "mcp", "server_label": "s", "server_url": "http://127.0.0.1:9"}
    answer = _whole(asking)
    outcome = stage.play(answer).ask("responses", {**body, "tools": [server, *body["tools"]]})
    assert (outcome.raw, len(stage.bodies)) == (answer.body, 1)


def test_many_items_are_told_apart_quickly(stage: Stage) -> None:
    """Rule 126: of a thousand equal calls the first is delivered, and each is looked at once."""
    body = {**_asked("local_shell_call"), "parallel_tool_calls": False}
    outcome = stage.play(_whole(*(_item("local_shell_call") for _ in range(900)))).ask("responses", body)
    assert _types(outcome.raw, stream=False) == ["local_shell_call"]
