"""One tool that an upstream refuses never fails the whole request (rule 130): it is found, and left out or narrowed."""

import json
import math
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from mustcall.cli import cli
from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.lines import line_of
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.telemetry.events import Event, TurnEnded
from mustcall.testing import Answer, Call, Fail, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from support.forcing import typed_item
from support.http import Response, call, post
from support.metrics import samples

Json = dict[str, Any]
PATHS = {Wire.CHAT: "/v1/chat/completions", Wire.RESPONSES: "/v1/responses", Wire.MESSAGES: "/v1/messages"}
LIMITS = {Wire.CHAT: "max_completion_tokens", Wire.RESPONSES: "max_output_tokens", Wire.MESSAGES: "max_tokens"}
REFUSAL = "Invalid schema for function: it is not accepted"
ANSWER = Turn(Say("It is sunny."))
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
RICH: Json = {"type": "object", "properties": {"days": {"type": "number", "multipleOf": 0.5}}, "required": ["days"]}
NARROWED: Json = {"type": "object", "properties": {"days": {"type": "number"}}, "required": ["days"]}


def tool(name: str, wire: Wire, schema: Json = SCHEMA) -> Json:
    """A tool as a wire writes it."""
    match wire:
        case Wire.CHAT:
            return {"type": "function", "function": {"name": name, "parameters": schema}}
        case Wire.RESPONSES:
            return {"type": "function", "name": name, "parameters": schema}
        case Wire.MESSAGES:
            return {"name": name, "input_schema": schema}


def asked(wire: Wire, count: int, *, schema: Json = SCHEMA, **more: Any) -> Json:
    """A request that offers so many tools, which are called t0, t1 and so on."""
    tools = [tool(f"t{number}", wire, schema) for number in range(count)]
    if wire is Wire.RESPONSES:
        return {"model": "m", "input": "Oslo?", "tools": tools, **more}
    talk = [{"role": "user", "content": "Oslo?"}]
    limit = {"max_tokens": 300} if wire is Wire.MESSAGES else {}
    return {"model": "m", "messages": talk, "tools": tools, **limit, **more}


def names(body: Json) -> list[str]:
    """The names of the tools on offer."""
    return [one.get("name") or one["function"]["name"] for one in body.get("tools", [])]


def refusing(*bad: str, message: str = REFUSAL, answer: Turn = ANSWER) -> Any:
    """A model behind a server that refuses these tools, whatever their schema is."""

    def script(recorded: Recorded) -> Answer:
        return Fail(400, message) if set(bad) & set(names(recorded.body)) else answer

    return script


def without(body: Json, *gone: str) -> Json:
    """The same request without these tools."""
    kept = [one for one in body["tools"] if (one.get("name") or one["function"]["name"]) not in gone]
    return {**body, "tools": kept}


def probe(body: Json, wire: Wire, *gone: str) -> Json:
    """What only shows whether the other tools are taken."""
    left = {name: value for name, value in without(body, *gone).items() if name not in ("tool_choice", "stream")}
    return {**left, LIMITS[wire]: 16}


def searched(body: Json, wire: Wire, *bad: str) -> list[Json]:
    """What is sent until a server that refuses these tools takes a request: halves as probes, the last ones in turn."""
    sent, left = [body], names(body)
    while len(left) > 3:
        middle = len(left) // 2
        half, others = left[:middle], left[middle:]
        sent.append(probe(body, wire, *half))
        left = others if set(bad) & set(names(sent[-1])) else half
    for name in left:
        sent.append(without(body, name))
        if not set(bad) & set(names(sent[-1])):
            break
    return sent


def forced(body: Json, wire: Wire) -> Json:
    """A forced request as it is sent: streamed, whoever asks."""
    return {**body, "stream": True, **({"stream_options": {"include_usage": True}} if wire is Wire.CHAT else {})}


def crossed(caller: Wire, upstream: Wire, count: int) -> Json:
    """What a request that offers so many tools is on the upstream's wire."""
    body = asked(upstream, count)
    body.pop("max_tokens", None)
    if upstream is Wire.RESPONSES:
        body["input"] = [typed_item({"role": "user", "content": "Oslo?"})]
        body["tools"] = [{**one, "strict": False} for one in body["tools"]]
        body |= {"store": False, "include": ["reasoning.encrypted_content"]}
    if caller is Wire.MESSAGES or upstream is Wire.MESSAGES:
        body[LIMITS[upstream]] = 300 if caller is Wire.MESSAGES else 8192
    return body


def ask(gateway: RunningGateway, wire: Wire, body: Json, key: str = "a") -> Response:
    """Send a request to the gateway."""
    return post(gateway.url + PATHS[wire], body, headers={"authorization": f"Bearer {key}"})


def dropped(answer: Response) -> list[str]:
    """The tools that the reply says were left out."""
    told = answer.headers.get("x-mustcall-adaptations", "").split(",")
    return [one.strip().removeprefix("tool_dropped:") for one in told if one.strip().startswith("tool_dropped:")]


@pytest.mark.parametrize("wire", list(Wire))
def test_a_tool_is_found_by_bisection_left_out_and_learnt(wire: Wire) -> None:
    """Rules 118, 130, 139: of 8 tools t5 is refused: 5 calls, then 1 on the next turn; each body is known."""
    body = asked(wire, 8)
    with ScriptedUpstream(refusing("t5")) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        first = ask(gateway, wire, body)
        sent = [one.body for one in upstream.requests]
        second = ask(gateway, wire, body)
        later = [one.body for one in upstream.requests[len(sent) :]]
    assert (first.status, second.status) == (200, 200)
    assert sent == [
        body,
        probe(body, wire, "t0", "t1", "t2", "t3"),  # refused: it is one of the others
        probe(body, wire, "t4", "t5"),  # taken: it is one of these
        without(body, "t4"),  # a real attempt, refused
        without(body, "t5"),
    ]
    assert len(sent) - 1 <= math.log2(8) + 2
    assert dropped(first) == dropped(second) == ["t5"]
    assert later == [without(body, "t5")]


def test_a_history_of_calls_keeps_a_stub_for_its_refused_tool() -> None:
    """Rules 104, 118, 130, 139: Messages takes no history of calls without tools: the only one is left as a stub."""
    used = {"type": "tool_use", "id": "toolu_1", "name": "t0", "input": {"city": "Oslo"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
    talk = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [result]},
    ]
    body = asked(Wire.MESSAGES, 1, messages=talk)

    def script(recorded: Recorded) -> Answer:
        return Fail(400, REFUSAL) if recorded.body["tools"] == body["tools"] else ANSWER

    with ScriptedUpstream(script, strict=True) as upstream, RunningGateway(f"messages={upstream.base_url}") as gateway:
        answers = [ask(gateway, Wire.MESSAGES, body) for _ in range(2)]
        sent = [one.body for one in upstream.requests]
    stub: Json = {"name": "t0", "input_schema": {"type": "object", "properties": {}}}
    mended: Json = {**body, "tools": [stub], "tool_choice": {"type": "none"}}
    assert [answer.status for answer in answers] == [200, 200]
    assert sent == [body, mended, mended]  # the second turn has learnt it
    assert "tool_added:t0" in answers[0].headers["x-mustcall-adaptations"]


def test_a_probe_is_told_by_one_word(tmp_path: Path) -> None:
    """Rules 117, 130: in the header, the event, the line, the metrics, and in the list, the page and its filter."""
    wire, place = Wire.CHAT, str(tmp_path / "l.db")
    body = asked(wire, 8)
    with ScriptedUpstream(refusing("t5")) as upstream:
        settings = settings_from_flags(f"up:chat={upstream.base_url}")
        settings = msgspec.structs.replace(settings, ledger=LedgerSettings(place=place))
        with RunningGateway(settings=settings) as gateway, gateway.app.events.subscribe() as events:
            answer = ask(gateway, wire, body)
            heard: list[Event] = []
            while not heard or not isinstance(heard[-1], TurnEnded):
                heard += events.take(20.0)
            counted = samples(call("GET", f"{gateway.url}/metrics").body)
        sent = [one.body for one in upstream.requests]
    assert sent == [
        body,
        probe(body, wire, "t0", "t1", "t2", "t3"),
        probe(body, wire, "t4", "t5"),
        without(body, "t4"),
        without(body, "t5"),
    ]
    words = ["rejected", "rejected", "tool_probe", "rejected", "answered"]
    assert answer.headers["x-mustcall-verdicts"].split(",") == words
    ended = heard[-1]
    assert isinstance(ended, TurnEnded)
    assert [one.verdict for one in ended.attempts] == list(line_of(ended).verdicts) == words
    assert [one.error for one in ended.attempts if one.verdict == "tool_probe"] == [""]
    assert "tool_probe" not in [one.class_ for one in heard]  # it is nothing to detect
    assert counted['mustcall_attempts_total{model="m",upstream="up",verdict="tool_probe"}'] == 1
    found = CliRunner().invoke(cli, ["turns", "list", "--ledger", place, "--verdict", "tool_probe"]).output
    assert "rejected (2 times) → tool_probe → rejected → answered" in found
    shown = CliRunner().invoke(cli, ["turns", "show", ended.request_id, "--ledger", place, "--json"]).output
    assert [one["verdict"] for one in json.loads(shown)["attempts"]] == words


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("count", [2, 3, 5, 16, 31])
def test_the_calls_are_bounded_wherever_the_tool_stands(wire: Wire, count: int) -> None:
    """Rule 130: at most log2 n + 2 extra calls, and the reply comes of an attempt that lacks that one tool only."""
    most = math.ceil(math.log2(count)) + 2
    for place in {0, 1, count // 2, count - 1}:
        body, bad = asked(wire, count), f"t{place}"
        with ScriptedUpstream(refusing(bad)) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
            answer = ask(gateway, wire, body)
            sent = [one.body for one in upstream.requests]
        assert answer.status == 200
        assert len(sent) - 1 <= most
        assert sent == searched(body, wire, bad)
        assert sent[-1] == without(body, bad)
        assert dropped(answer) == [bad]


@pytest.mark.parametrize(("caller", "upstream_wire"), [(a, b) for a in Wire for b in Wire if a is not b])
def test_it_is_found_across_wires(caller: Wire, upstream_wire: Wire) -> None:
    """Rule 130: the caller's wire does not matter; what is sent differs in its tools and, for a probe, its limit."""
    body = asked(caller, 4)
    with (
        ScriptedUpstream(refusing("t2")) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        answer = ask(gateway, caller, body)
        sent = [one.body for one in upstream.requests]
        ask(gateway, caller, body)
        later = [one.body for one in upstream.requests[len(sent) :]]
    assert answer.status == 200
    first = crossed(caller, upstream_wire, 4)
    assert sent == [first, probe(first, upstream_wire, "t0", "t1"), without(first, "t2")]
    assert later == [without(first, "t2")]
    assert dropped(answer) == ["t2"]


@pytest.mark.parametrize("wire", list(Wire))
def test_a_named_tool_is_left_out_at_once(wire: Wire) -> None:
    """Rule 130: a refusal that names the tool is believed: two calls."""
    body = asked(wire, 8)
    script = refusing("t5", message="Invalid schema for function 't5': no")
    with ScriptedUpstream(script) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = ask(gateway, wire, body)
        assert [one.body for one in upstream.requests] == [body, without(body, "t5")]
    assert dropped(answer) == ["t5"]


@pytest.mark.parametrize("wire", list(Wire))
def test_a_schema_is_narrowed_before_its_tool_is_left_out(wire: Wire) -> None:
    """Rule 130: what a narrower schema mends is not left out; all tools stay on offer, in two calls."""

    def script(recorded: Recorded) -> Answer:
        return Fail(400, REFUSAL) if "multipleOf" in json.dumps(recorded.body) else ANSWER

    body = asked(wire, 3)
    body["tools"][1] = tool("t1", wire, RICH)
    with ScriptedUpstream(script) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = ask(gateway, wire, body)
        sent = [one.body for one in upstream.requests]
    assert answer.status == 200
    narrowed = {**body, "tools": [*body["tools"]]}
    narrowed["tools"][1] = tool("t1", wire, NARROWED)
    assert sent == [body, narrowed]
    assert dropped(answer) == []


@pytest.mark.parametrize("wire", list(Wire))
def test_narrowing_in_vain_is_taken_back_and_not_learnt(wire: Wire) -> None:
    """Rules 130, 139: the other tools keep their own schemas, in this turn and in the next."""
    body = asked(wire, 4, schema=RICH)
    with ScriptedUpstream(refusing("t2")) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        first = ask(gateway, wire, body)
        sent = [one.body for one in upstream.requests]
        ask(gateway, wire, body)
        last = upstream.requests[-1].body
    assert first.status == 200
    assert sent[:2] == [body, asked(wire, 4, schema=NARROWED)]
    assert sent[2:] == [probe(body, wire, "t0", "t1"), without(body, "t2")]
    assert last == without(body, "t2")
    assert len(sent) - 1 <= math.log2(4) + 2


CHOICES: dict[Wire, tuple[Any, Any]] = {
    Wire.CHAT: ("required", {"type": "function", "function": {"name": "t2"}}),
    Wire.RESPONSES: ("required", {"type": "function", "name": "t2"}),
    Wire.MESSAGES: ({"type": "any"}, {"type": "tool", "name": "t2"}),
}


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("message", [REFUSAL, "Invalid schema for function 't2': no"])
def test_a_demanded_tool_that_is_refused_is_a_typed_error_that_names_it(wire: Wire, message: str) -> None:
    """Rules 8, 130: nothing else can meet the demand, so the error says which tool it is."""
    body = asked(wire, 4, tool_choice=CHOICES[wire][1])
    script = refusing("t2", message=message)
    with ScriptedUpstream(script) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = ask(gateway, wire, body)
        probes = [probe(body, wire, "t0", "t1")] if message == REFUSAL else []
        assert [one.body for one in upstream.requests] == [forced(body, wire), *probes]
    assert answer.status == 400
    assert b"forced_tool_refused" in answer.body or wire is Wire.MESSAGES
    assert b"the upstream refuses the tool 't2', which the request demands" in answer.body


@pytest.mark.parametrize("wire", list(Wire))
def test_a_demand_for_any_tool_is_met_by_the_others(wire: Wire) -> None:
    """Rule 130: the other tools go on working, forced or not."""
    body = asked(wire, 4, tool_choice=CHOICES[wire][0])
    script = refusing("t2", answer=Turn(Call("t0", {"city": "Oslo"})))
    with ScriptedUpstream(script) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = ask(gateway, wire, body)
        first = forced(body, wire)
        assert [one.body for one in upstream.requests] == [first, probe(body, wire, "t0", "t1"), without(first, "t2")]
    assert answer.status == 200
    assert answer.headers["x-mustcall-outcome"] == "calls"
    assert answer.headers["x-mustcall-force"] == "met"


@pytest.mark.parametrize("wire", list(Wire))
def test_streams_are_served_too(wire: Wire) -> None:
    """Rule 113: nothing of a probe reaches the caller of a stream."""
    body = asked(wire, 4, stream=True)
    with ScriptedUpstream(refusing("t3")) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = ask(gateway, wire, body)
        sent = [one.body for one in upstream.requests]
    assert sent == [body, probe(body, wire, "t0", "t1"), without(body, "t2"), without(body, "t3")]
    assert answer.status == 200
    assert b"sunny" in answer.body


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_a_caller_who_sets_the_ceiling_keeps_it(most: int) -> None:
    """Rules 9, 96: what a request says about extra calls holds for these, too."""
    body = asked(Wire.CHAT, 16, mustcall={"limits": {"extra_calls": most}})
    with ScriptedUpstream(refusing("t9")) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        answer = ask(gateway, Wire.CHAT, body)
        assert [one.body for one in upstream.requests] == searched(asked(Wire.CHAT, 16), Wire.CHAT, "t9")[: 1 + most]
    assert answer.status == 400


def test_two_refused_tools_that_nobody_names_leave_the_refusal_as_it_is() -> None:
    """The calls stay bounded, and the caller reads the upstream's own words."""
    body = asked(Wire.CHAT, 8)
    with ScriptedUpstream(refusing("t1", "t6")) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        answer = ask(gateway, Wire.CHAT, body)
        assert len(upstream.requests) - 1 <= math.log2(8) + 2
        again = ask(gateway, Wire.CHAT, body)
        assert [one.body for one in upstream.requests] == searched(body, Wire.CHAT, "t1", "t6") * 2
    assert (answer.status, again.status) == (400, 400)
    assert REFUSAL.encode() in answer.body


def test_two_refused_tools_that_are_named_are_both_left_out() -> None:
    """A refusal names one at a time."""

    def script(recorded: Recorded) -> Answer:
        bad = next((name for name in names(recorded.body) if name in ("t1", "t6")), None)
        return ANSWER if bad is None else Fail(400, f"Invalid schema for function '{bad}': no")

    body = asked(Wire.CHAT, 8)
    with ScriptedUpstream(script) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        answer = ask(gateway, Wire.CHAT, body)
        sent = [one.body for one in upstream.requests]
        ask(gateway, Wire.CHAT, body)
        last = upstream.requests[-1].body
    assert sent == [body, without(body, "t1"), without(body, "t1", "t6")]
    assert dropped(answer) == ["t1", "t6"]
    assert last == without(body, "t1", "t6")


def test_what_one_key_learns_changes_nothing_for_another() -> None:
    """Rule 139: the lesson is the tenant's; another one's request goes out as it came."""
    body = asked(Wire.CHAT, 4)
    with ScriptedUpstream(refusing("t2")) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        ask(gateway, Wire.CHAT, body, "a")
        ask(gateway, Wire.CHAT, body, "b")
        assert [one.body for one in upstream.requests] == searched(body, Wire.CHAT, "t2") * 2


def test_what_was_learnt_outlives_the_process(tmp_path: Path) -> None:
    """Rule 139: the fact is in the ledger; a gateway that starts on it makes one call, and `profiles` forgets it."""
    body, place = asked(Wire.CHAT, 4), str(tmp_path / "l.db")
    with ScriptedUpstream(refusing("t2")) as upstream:
        flags = settings_from_flags(f"up:chat={upstream.base_url}")
        settings = msgspec.structs.replace(flags, ledger=LedgerSettings(place=place))
        with RunningGateway(settings=settings) as gateway:
            ask(gateway, Wire.CHAT, body)
        with RunningGateway(settings=settings) as gateway:
            call("GET", f"{gateway.url}/healthz")  # it has started
            learnt = gateway.app._serve().learnt
            while not learnt.size:  # it is read in the background, and nobody is told
                time.sleep(0.01)
            ask(gateway, Wire.CHAT, body)
        assert [one.body for one in upstream.requests] == [*searched(body, Wire.CHAT, "t2"), without(body, "t2")]
    shown = CliRunner().invoke(cli, ["profiles", "list", "--ledger", place, "--json"])
    assert shown.exit_code == 0, shown.output
    assert '"tool:' in shown.stdout
    assert [one["note"] for one in json.loads(shown.stdout)] == ["tool_refused: t2"]
    listed = CliRunner().invoke(cli, ["profiles", "list", "--ledger", place]).stdout
    assert "tool_refused: t2" in listed
    assert "is True" not in listed


def test_words_of_the_request_teach_nothing() -> None:
    """Rule 139: where the caller's own words could be what the refusal quotes, the tool is looked for each time."""
    body = asked(Wire.CHAT, 4)
    body["messages"][0]["content"] = "Why is it an invalid schema for function calls?"
    with ScriptedUpstream(refusing("t2")) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        ask(gateway, Wire.CHAT, body)
        answer = ask(gateway, Wire.CHAT, body)
        assert [one.body for one in upstream.requests] == searched(body, Wire.CHAT, "t2") * 2
    assert answer.status == 200


def test_a_tool_of_the_same_name_and_another_schema_is_tried() -> None:
    """Rule 139: a fact is about one shape of one tool."""
    body = asked(Wire.CHAT, 4)
    with ScriptedUpstream(refusing("t2")) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        ask(gateway, Wire.CHAT, body)
        other = asked(Wire.CHAT, 4)
        other["tools"][2] = tool("t2", Wire.CHAT, {**SCHEMA, "required": []})
        ask(gateway, Wire.CHAT, other)
        first, *rest = searched(other, Wire.CHAT, "t2")
        narrowed = asked(Wire.CHAT, 4)
        narrowed["tools"][2] = tool("t2", Wire.CHAT, {key: value for key, value in SCHEMA.items() if key != "required"})
        assert [one.body for one in upstream.requests] == [*searched(body, Wire.CHAT, "t2"), first, narrowed, *rest]
