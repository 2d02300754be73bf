"""Rules 124 and 134 to 136 through a real gateway: reasoning state, bound prefixes, what is shown, what is logged."""

import json
import logging
from itertools import pairwise
from typing import Any

import pytest

from mustcall.engine.turns import House
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Cut, Fail, Hang, RunningGateway, Say, ScriptedUpstream, Think, Turn
from mustcall.testing.transport import FakeClock
from support.forcing import TIME, WAYS, WEATHER, WIRES, Rig, Step, write_body
from support.gated import KEYS, PATHS, Listener, events_of
from support.http import post
from support.sdk import Ask, Seen, ask

MODELS = {"chat": "gpt-4o", "responses": "gpt-4o", "messages": "claude-sonnet-4-6"}
CLAUDE = "claude-sonnet-4-6"
BOUND = "claude-opus-5-5"
PARIS = {"city": "Paris"}
ROME = {"city": "Rome"}
CALL = Turn(Call("get_weather", PARIS))
FINE = Turn(Say("Fine."))
THOUGHT = Turn(Think("Deep.  Très deep."), Call("get_weather", PARIS))
LEAK = '<invoke name="get_weather"><parameter name="city">Paris</parameter></invoke>'

ways = pytest.mark.parametrize(("wire", "stream"), WAYS)
wires = pytest.mark.parametrize("wire", WIRES)


def request(wire: str, *steps: Step | str, **options: Any) -> dict[str, Any]:
    """A request to the wire's usual model that offers two tools."""
    given: dict[str, Any] = {"model": MODELS[wire], "tools": (WEATHER, TIME)} | options
    return write_body(wire, *(steps or ("Weather?",)), **given)


def asking(echo: Seen | None = None, model: str = CLAUDE) -> Ask:
    """A question to a model that thinks, and its answer handed back with a result."""
    return Ask(tools=(("get_weather", WEATHER.schema),), effort="low", echo=echo, model=model)


def thoughts_in(body: Any) -> list[Any]:
    """The thinking blocks a Messages upstream was handed back."""
    blocks = [
        block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
    ]
    return [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]


# --- rule 124 ---------------------------------------------------------------------------------------------------------


@ways
def test_signed_thinking_comes_back_byte_exact(wire: str, stream: bool) -> None:
    """Rule 124: through any caller's wire a signed block returns to its issuer as it was; the upstream checks it."""
    with ScriptedUpstream([THOUGHT]) as twin:
        own = post(f"{twin.url}/v1/messages", request("messages"), KEYS).json["content"][0]
    with (
        ScriptedUpstream([THOUGHT, FINE], strict=True) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
    ):
        first = ask(wire, gateway.url, asking(), stream=stream)
        assert isinstance(first, Seen)
        second = ask(wire, gateway.url, asking(first), stream=stream)
        assert isinstance(second, Seen)
        assert [one.refused_by for one in upstream.requests] == [None, None]
        assert [thoughts_in(one.body) for one in upstream.requests] == [[], [own]]
    assert (first.thinking, second.text) == ("Deep.  Très deep.", "Fine.")


@wires
def test_foreign_state_is_never_sent(wire: str) -> None:
    """Rule 124: what one upstream signed is not handed to another, which would refuse it; the turn goes on without."""
    with (
        ScriptedUpstream([THOUGHT], strict=True, issuer="one") as one,
        ScriptedUpstream([FINE], strict=True, issuer="two") as two,
        RunningGateway(f"one:messages={one.base_url}", f"two:messages={two.base_url}") as gateway,
    ):
        first = ask(wire, gateway.url, asking(model=f"one/{CLAUDE}"), stream=False)
        assert isinstance(first, Seen)
        second = ask(wire, gateway.url, asking(first, f"two/{CLAUDE}"), stream=False)
        if wire == "messages":
            # Native blocks do not say who made them: this upstream refuses them, and the turn is sent without.
            assert [got.refused_by for got in two.requests] == ["keeps_thinking", None]
        else:
            assert [got.refused_by for got in two.requests] == [None]
        assert thoughts_in(two.requests[-1].body) == []
    assert isinstance(second, Seen)
    assert second.text == "Fine."


def test_partial_blocks_are_never_sent() -> None:
    """Rule 124: thinking without its signature is left out; the rest of its turn stays."""
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    said = {"type": "text", "text": "Hello."}
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [thought, said]}]
    asked = request("messages", "Weather?") | {"messages": [*history, {"role": "user", "content": "Weather?"}]}
    with Rig(FINE) as rig:
        got = rig.ask("messages", asked)
        (sent,) = rig.bodies
    assert thoughts_in(sent) == []
    assert sent["messages"][1]["content"] in ([said], "Hello.")
    assert got.text == "Fine."


POLICIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "keep": ({"reasoning_field": "reasoning_content"}, {"reasoning_content": "Hm."}),
    "rename": ({"reasoning_field": "reasoning"}, {"reasoning": "Hm."}),
    "drop": ({"reasoning_history": "drop"}, {}),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_reasoning_of_earlier_turns_follows_the_profile(policy: str) -> None:
    """Rule 124: kept as it is, renamed to the field the upstream takes, or dropped; everything else is the same."""
    facts, field = POLICIES[policy]
    house = House(overrides=read_overrides([{"models": ["some-model"], **facts}]))
    turn = {"role": "assistant", "content": "Hello."}
    asked = request("chat", "Hi", model="some-model")
    asked["messages"] += [turn | {"reasoning_content": "Hm."}, {"role": "user", "content": "Weather?"}]
    with Rig(FINE, upstream="chat", house=house) as rig:
        got = rig.ask("chat", asked)
        (sent,) = rig.bodies
    assert sent == {**asked, "messages": [asked["messages"][0], turn | field, asked["messages"][2]]}
    assert got.text == "Fine."


# --- rule 134 ---------------------------------------------------------------------------------------------------------


def bound_request(gateway: RunningGateway, *, leaks: bool = False) -> dict[str, Any]:
    """A conversation whose signed thinking binds everything before it, and a force on its next step."""
    body = request("messages", "Weather in Paris?", model=BOUND, system="Be brief.")
    if leaks:
        body["messages"][:0] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": f"Hm.\n{LEAK}"}]
    made = post(gateway.url + PATHS["messages"], body, KEYS).json["content"]
    result = {"type": "tool_result", "tool_use_id": made[-1]["id"], "content": "Rain."}
    body["messages"] += [
        {"role": "assistant", "content": made},
        {"role": "user", "content": [result, {"type": "text", "text": "And in Rome?"}]},
    ]
    return body


def test_bound_prefixes_are_the_same_bytes_on_every_rung() -> None:
    """Rule 134: directive, reminders and the schema rung change the tail alone; the prefix is byte-equal throughout."""
    dull = Turn(Think("No."), Say("I would rather not."))
    last = Turn(Say(json.dumps({"name": "get_weather", "arguments": ROME})))
    with (
        ScriptedUpstream([THOUGHT, *[dull] * 4, last], strict=True) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
    ):
        body = bound_request(gateway)
        reply = post(
            gateway.url + PATHS["messages"], body | {"tool_choice": {"type": "tool", "name": "get_weather"}}, KEYS
        )
        sent = upstream.requests[1:]
    assert [one.refused_by for one in sent] == [None] * 5
    assert reply.json["content"][0]["input"] == ROME
    count = len(body["messages"])
    for one in sent:
        assert one.body["messages"][:count] == body["messages"]
        assert (one.body["system"], one.body["tools"]) == (body["system"], body["tools"])
        assert one.body["messages"][count]["role"] == "user"
    prefixes = {one.raw[: one.raw.index(b"And in Rome?")] for one in sent}
    assert len(prefixes) == 1
    for earlier, later in pairwise(sent[:4]):
        tail = len(earlier.body["messages"])
        assert later.body["messages"][:tail] == earlier.body["messages"]
    assert sent[-1].body["tool_choice"] == {"type": "none"}


def test_bound_prefixes_are_not_mended() -> None:
    """Rules 102, 134: what would be stripped elsewhere stays before bound thinking, and is reported instead."""
    with (
        ScriptedUpstream([THOUGHT, FINE], strict=True) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
    ):
        body = bound_request(gateway, leaks=True)
        reply = post(gateway.url + PATHS["messages"], body, KEYS)
        assert [one.refused_by for one in upstream.requests] == [None, None]
        assert upstream.requests[1].body == body
    assert reply.status == 200
    assert "reported:history" in reply.headers["x-mustcall-adaptations"]


# --- rule 135 ---------------------------------------------------------------------------------------------------------


def is_error(event: Any) -> bool:
    """Whether an event is its wire's way to fail."""
    return "error" in event or event.get("type") in ("error", "response.failed")


def shown_then(wire: str, turn: Turn, *later: Turn, mark: bytes = b" here.") -> tuple[bytes, list[Any]]:
    """Stream a turn whose text is read by the client before the rest of it comes: the bytes, the bodies upstream."""
    body = request(wire, stream=True, **({"store": False} if wire == "responses" else {}))
    with ScriptedUpstream([turn]) as twin:
        whole = post(twin.url + PATHS[wire], body, KEYS).body
    border = whole.index(b"\n\n", whole.index(mark)) + 2
    with (
        ScriptedUpstream([Hang(turn, after=border), *later], strict=True) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
        Listener(gateway.url, wire, body) as listener,
    ):
        assert listener.wait_for_bytes(border) == whole[:border]
        upstream.release()
        seen = listener.read_rest()
        assert [one.refused_by for one in upstream.requests] == [None] * len(upstream.requests)
        return seen, [one.body for one in upstream.requests]


@wires
def test_a_stream_that_breaks_after_release_ends_in_an_error_event(wire: str) -> None:
    """Rule 135: what was shown stays, nothing is sent again, and the last event says that it failed."""
    body = request(wire, stream=True)
    turn = Turn(Say("Look here, it is a sunny day in Paris."))
    with ScriptedUpstream([turn]) as twin:
        whole = post(twin.url + PATHS[wire], body, KEYS).body
    border = whole.index(b"\n\n", whole.index(b" sunny")) + 2
    with Rig(Cut(turn, after=border + 9), FINE, upstream=wire) as rig:
        seen = post(rig.url + PATHS[wire], body, KEYS)
        assert rig.bodies == [body]
    assert seen.body.startswith(whole[:border])
    (last,) = events_of(seen.body[border:])
    assert is_error(last)


@wires
def test_a_bad_call_after_release_is_made_good_by_a_call_alone(wire: str) -> None:
    """Rule 135: the shown text stays, a later attempt adds its call and none of its words."""
    bad = Turn(Say("Look here."), Call("get_weather", {"city": 3}))
    seen, bodies = shown_then(wire, bad, Turn(Say("Zwieback."), Call("get_weather", ROME)))
    assert len(bodies) == 2
    assert "did not fit its schema" in json.dumps(bodies[1])
    assert b"Zwieback" not in seen
    assert b"Rome" in seen
    assert not any(is_error(event) for event in events_of(seen) if isinstance(event, dict))


@wires
def test_no_good_call_after_release_is_an_error_event(wire: str) -> None:
    """Rule 135: if no attempt brings a call, the stream fails; it is never ended as if it were whole."""
    bad = Turn(Say("Look here."), Call("get_weather", {"city": 3}))
    seen, bodies = shown_then(wire, bad, Turn(Say("Zwieback.")), FINE, FINE)
    assert len(bodies) == 2
    assert b"Zwieback" not in seen
    assert is_error(events_of(seen)[-1])
    assert b"[DONE]" not in seen
    assert b"response.completed" not in seen
    assert b"message_stop" not in seen


@wires
def test_unknown_wrappers_in_a_stream_are_never_replaced(wire: str) -> None:
    """Rules 121, 135: a form that nobody knows is known by its end; what was shown stays, a call is only added."""
    disguise = Turn(Say('Look here. <do_it tool="get_weather" city="Paris"/>'))
    seen, bodies = shown_then(wire, disguise, Turn(Say("Zwieback."), Call("get_weather", ROME)))
    assert len(bodies) == 2
    assert b"Zwieback" not in seen
    assert b"Rome" in seen


@wires
def test_known_markup_in_a_stream_is_never_shown(wire: str) -> None:
    """Rules 53, 135: text before a known form is shown, the form is not; complete and valid, it is the call."""
    seen, bodies = shown_then(wire, Turn(Say(f"Look here. {LEAK}")))
    assert len(bodies) == 1
    assert b"invoke" not in seen
    assert b"parameter name" not in seen
    assert b"Paris" in seen


# --- rule 136 ---------------------------------------------------------------------------------------------------------

SECRETS = ("sk-live-KEY", "Quokka", "Axolotl", "Numbat", "Wombat")


def test_nothing_of_keys_or_contents_is_logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rule 136: whatever becomes of a turn, no log line holds a key, a prompt, an answer or an argument."""
    caplog.set_level(logging.INFO)
    keys = KEYS | {"authorization": "Bearer sk-live-KEY", "x-api-key": "sk-live-KEY"}
    leak = Turn(Say('<invoke name="get_weather"><parameter name="city">Wombat</parameter></invoke>'))
    scripts: list[list[Any]] = [
        [Turn(Say("Axolotl."))],
        [leak, leak, leak],
        [Turn(Call("get_weather", {"city": 3, "Numbat": "Wombat"}))] * 3,
        [Fail(400, "Quokka is not allowed with sk-live-KEY")],
        [Fail(500, "Axolotl")] * 5,
        [Cut(Turn(Say("Axolotl Axolotl.")), after=300)] * 5,
        [Turn(Think("Numbat."))] * 3,
    ]
    statuses: list[int] = []
    for wire in WIRES:
        for script in scripts:
            for stream in (False, True):
                body = request(wire, "Quokka?", stream=stream)
                with Rig(*script, upstream=wire, clock=FakeClock()) as rig:
                    statuses.append(post(rig.url + PATHS[wire], body, keys).status)
                    assert rig.requests[0].headers.get("authorization" if wire != "messages" else "x-api-key")
    assert {200, 400, 502} <= set(statuses)
    assert any("bad_arguments" in record.getMessage() for record in caplog.records), "failed turns are logged"
    said = "\n".join([*(record.getMessage() for record in caplog.records), caplog.text, *capfd.readouterr()])
    assert [secret for secret in SECRETS if secret in said] == []
