"""Rules 112 to 116 through a real gateway: what a healthy turn costs, what a stream shows, who pays, who leaves.

Where a test says that something arrives before something else, the upstream waits for the test's own word: no clock is
asked.
"""

import json
from typing import Any, cast

import pytest

from mustcall.gateway.config.settings import ServerSettings
from mustcall.testing import (
    Answer,
    Call,
    Hang,
    Recorded,
    RunningGateway,
    Say,
    ScriptedUpstream,
    Think,
    Turn,
    Usage,
)
from rules.driving import WORDS, kept
from support.forcing import TIME, WAYS, WEATHER, WIRES, Called, Result, Rig, Step, typed_item, write_body
from support.gated import KEYS, PATHS, Listener, events_of
from support.http import post

#: Native models, and one nobody knows.
MODELS = {"chat": "gpt-4o", "responses": "gpt-4o", "messages": "claude-sonnet-4-6"}
UNKNOWN = "some-model"
KEY = {"chat": "messages", "responses": "input", "messages": "messages"}
PARIS = {"city": "Paris"}
SUNNY = Turn(Say("It is sunny in Paris today, and warm."))
CALL = Turn(Call("get_weather", PARIS))
#: Replies that need nothing done.
HEALTHY = {
    "text": SUNNY,
    "call": CALL,
    "text and calls": Turn(Say("Let me look."), Call("get_weather", PARIS), Call("get_weather", {"city": "Rome"})),
    "thought and text": Turn(Think("Easy."), Say("It is sunny.")),
    "thought and call": Turn(Think("Easy."), Call("get_weather", PARIS)),
    "cut text": Turn(Say("It is"), finish="length"),
    "unknown fields": Turn(Say("Fine."), extra={"x_vendor": {"big": 10**30, "exact": 1.0, "none": None}}),
}
KEEPALIVE = {"chat": b": keepalive\n\n", "responses": b": keepalive\n\n"} | {
    "messages": b'event: ping\ndata: {"type":"ping"}\n\n'
}

ways = pytest.mark.parametrize(("wire", "stream"), WAYS)
wires = pytest.mark.parametrize("wire", WIRES)


def request(wire: str, *steps: Step | str, **options: Any) -> dict[str, Any]:
    """A request to the wire's usual model that offers two tools."""
    given: dict[str, Any] = {"model": MODELS[wire], "tools": (WEATHER, TIME)} | options
    return write_body(wire, *(steps or ("Weather?",)), **given)


def forced_again(wire: str, body: dict[str, Any], said: str) -> dict[str, Any]:
    """What follows where a forced call of `get_weather` was answered with text (rules 25, 32)."""
    turn: dict[str, Any] = {"role": "user", "content": WORDS.call_named[1].format(tool="get_weather")}
    asked = typed_item(turn) if wire == "responses" else turn
    return body | {KEY[wire]: [*body[KEY[wire]], kept(wire, said), asked]}


def direct(wire: str, body: dict[str, Any], answer: Answer) -> bytes:
    """What the upstream itself answers: its ids and times are the same in every run."""
    with ScriptedUpstream([answer]) as upstream:
        return post(upstream.url + PATHS[wire], body, KEYS).body


def shapes_of(stream: bytes) -> list[str]:
    """The kinds of a stream's events in order, repetitions left out; chat has no word for them but their deltas."""
    kinds: list[str] = []
    for event in events_of(stream):
        if isinstance(event, str):
            kind = event
        elif "choices" in event:
            kind = ",".join(key for choice in event["choices"] for key, value in choice["delta"].items() if value)
        else:
            kind = event["type"]
        if kind and kind != "ping" and kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


# --- rule 112: a healthy turn costs nothing ---------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("known", [True, False], ids=["native", "unknown"])
def test_healthy_turns_are_the_upstreams_own(wire: str, stream: bool, known: bool) -> None:
    """Rule 112: tools on offer and nothing wrong, both bodies are the other side's bytes, and one call is made."""
    body = request(wire, "Hi", model=MODELS[wire] if known else UNKNOWN, stream=stream)
    body |= {"x_unknown": [1.0, {"a": None}], "metadata": {"user_id": "u1"}}
    asked = json.dumps(body, indent=2).encode()
    with ScriptedUpstream(HEALTHY.values(), strict=True) as twin:
        own = [post(twin.url + PATHS[wire], asked, KEYS) for _ in HEALTHY]
    with Rig(*HEALTHY.values(), upstream=wire) as rig:
        seen = [post(rig.url + PATHS[wire], asked, KEYS) for _ in HEALTHY]
        assert [(one.raw, one.refused_by) for one in rig.requests] == [(asked, None)] * len(HEALTHY)
    for name, mine, theirs in zip(HEALTHY, seen, own, strict=True):
        assert (mine.status, mine.body) == (theirs.status, theirs.body), name
        assert mine.headers["content-type"].partition(";")[0] == theirs.headers["content-type"].partition(";")[0]
        early = mine.headers["x-mustcall-outcome"] == "streaming"
        assert mine.headers.get("x-mustcall-attempts") == (None if early else "1")
        assert "x-mustcall-adaptations" not in mine.headers, name


@wires
def test_healthy_turns_after_tool_results_are_the_upstreams_own(wire: str) -> None:
    """Rule 112: a whole agent's history changes nothing about it."""
    steps = ("Weather?", Called("c1", "get_weather", PARIS), Result("c1", "Sun."))
    asked = json.dumps(request(wire, *steps)).encode()
    with ScriptedUpstream([SUNNY]) as twin:
        own = post(twin.url + PATHS[wire], asked, KEYS)
    with Rig(SUNNY, upstream=wire) as rig:
        seen = post(rig.url + PATHS[wire], asked, KEYS)
        assert [one.raw for one in rig.requests] == [asked]
    assert (seen.status, seen.body) == (200, own.body)


@wires
@pytest.mark.parametrize("known", [True, False], ids=["native", "unknown"])
def test_streamed_text_is_released_while_the_upstream_is_open(wire: str, known: bool) -> None:
    """Rules 112, 113: with tools on offer each word goes out as it comes, in the upstream's bytes and no others."""
    body = request(wire, "Hi", model=MODELS[wire] if known else UNKNOWN, stream=True)
    whole = direct(wire, body, SUNNY)
    for word in (b"It", b" sunny", b" warm."):
        shown = whole.index(b"\n\n", whole.index(b'"' + word + b'"')) + 2
        with (
            ScriptedUpstream([Hang(SUNNY, after=shown)], strict=True) as upstream,
            RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.05) as gateway,
            Listener(gateway.url, wire, body) as listener,
        ):
            assert listener.wait_for_bytes(shown) == whole[:shown], word
            assert [one.ended for one in upstream.requests] == [None]
            upstream.release()
            assert listener.read_rest() == whole
            assert len(upstream.requests) == 1


@wires
def test_streamed_reasoning_is_released_while_the_upstream_is_open(wire: str) -> None:
    """Rules 112, 113: reasoning before a call streams, too; the call follows once it is whole and valid."""
    turn = Turn(Think("I should look."), Call("get_weather", PARIS))
    body = request(wire, "Hi", stream=True)
    whole = direct(wire, body, turn)
    shown = whole.index(b"\n\n", whole.index(b" look.")) + 2
    with (
        ScriptedUpstream([Hang(turn, after=shown)], strict=True) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
        Listener(gateway.url, wire, body) as listener,
    ):
        assert listener.wait_for_bytes(shown) == whole[:shown]
        upstream.release()
        assert listener.read_rest() == whole
        assert len(upstream.requests) == 1


# --- rule 113: what a stream shows ------------------------------------------------------------------------------------


@wires
def test_a_stream_shows_the_accepted_attempt_only(wire: str) -> None:
    """Rule 113: of a discarded attempt not one byte reaches the client; what it sees is one ordinary stream."""
    body = request(wire, choice="get_weather", stream=True)
    dull = Turn(Think("Zwieback."), Say("Zwieback, said the model."))
    whole = direct(wire, body, CALL)
    with Rig(dull, CALL, upstream=wire) as rig:
        rig.comparing.leave("it is about the reply; bodies: test_force")
        seen = post(rig.url + PATHS[wire], body, KEYS)
        assert len(rig.bodies) == 2
    assert b"Zwieback" not in seen.body
    assert shapes_of(seen.body) == shapes_of(whole)


@wires
def test_keepalives_go_out_while_text_is_held(wire: str) -> None:
    """Rule 113: while a force is unmet a stream is held, and shows signs of life before the upstream goes on."""
    body = request(wire, choice="get_weather", stream=True)
    whole = direct(wire, body, CALL)
    with (
        ScriptedUpstream([Hang(CALL, after=whole.index(b"\n\n") + 2)], strict=True) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.05) as gateway,
        Listener(gateway.url, wire, body) as listener,
    ):
        early = listener.wait_for(KEEPALIVE[wire], 3)
        assert early.replace(KEEPALIVE[wire], b"") == b""
        assert (listener.response.status, [one.ended for one in upstream.requests]) == (200, [None])
        upstream.release()
        late = listener.read_rest()
        assert [one.body for one in upstream.requests] == [body]
    assert b"get_weather" in late[len(early) :]


#: What a header says that leaves before the verdict may not be what comes of the turn.
UNKNOWN_YET = ("attempts", "force", "verdicts", "usage-total", "cost-usd")


@wires
@pytest.mark.parametrize("held", [True, False], ids=["held", "flowing"])
def test_early_headers_say_nothing_that_may_change(wire: str, held: bool) -> None:
    """Rule 114: a stream that begins before its verdict has no header that the outcome could contradict."""
    body = request(wire, stream=True, **({"choice": "get_weather"} if held else {}))
    turn = CALL if held else Turn(Say("It is sunny in Paris."), Call("get_weather", PARIS))
    whole = direct(wire, body, turn)
    with (
        ScriptedUpstream([Hang(turn, after=whole.index(b"\n\n") + 2 if held else len(whole) // 2)]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.05) as gateway,
        Listener(gateway.url, wire, body) as listener,
    ):
        listener.wait_for_bytes(1)
        told = {name.lower() for name, _ in listener.response.getheaders()}
        upstream.release()
        assert b"get_weather" in listener.read_rest()
    assert "x-mustcall-protocol" in told
    assert told.isdisjoint(f"x-mustcall-{name}" for name in UNKNOWN_YET)


@wires
def test_keepalives_go_out_while_the_turn_is_tried_again(wire: str) -> None:
    """Rule 113: between a discarded attempt and the next one's answer a client sees signs of life and nothing else."""
    body = request(wire, choice="get_weather", stream=True)
    with (
        ScriptedUpstream([Turn(Say("Zwieback.")), Hang(CALL)], strict=True) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.05) as gateway,
        Listener(gateway.url, wire, body) as listener,
    ):
        upstream.wait_for_requests(2)
        early = listener.wait_for(KEEPALIVE[wire], 2)
        assert early.replace(KEEPALIVE[wire], b"") == b""
        assert upstream.requests[1].ended is None
        upstream.release()
        late = listener.read_rest()
        assert [one.body for one in upstream.requests] == [body, forced_again(wire, body, "Zwieback.")]
    assert b"Zwieback" not in late
    assert b"get_weather" in late


def test_keepalives_come_every_two_seconds() -> None:
    """Rules 113, 145: the default."""
    assert ServerSettings().keepalive == 2


@wires
def test_no_keepalive_on_a_stream_that_only_waits_for_its_upstream(wire: str) -> None:
    """Rules 112, 113: a healthy turn whose upstream is slow gets nothing added: the silence is the upstream's own."""
    body = request(wire, "Hi", stream=True)
    whole = direct(wire, body, SUNNY)
    shown = whole.index(b"\n\n", whole.index(b" sunny")) + 2
    with (
        ScriptedUpstream([Hang(SUNNY, after=shown), Hang(CALL, head=True)], strict=True) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.02) as gateway,
        Listener(gateway.url, wire, body) as slow,
    ):
        slow.wait_for_bytes(shown)
        # Another stream's signs of life are the clock: when it has had many, the slow one could have had one.
        with Listener(gateway.url, wire, request(wire, choice="get_weather", stream=True)) as held:
            held.wait_for(KEEPALIVE[wire], 5)
        upstream.release()
        assert slow.read_rest() == whole


# --- rule 114: who pays -----------------------------------------------------------------------------------------------


@ways
def test_usage_is_the_delivered_attempts(wire: str, stream: bool) -> None:
    """Rule 114: the body has the delivered attempt's usage, the headers have the sum and what became of each."""
    body = request(wire, choice="get_weather", stream=stream)
    first = Turn(Say("Fine."), usage=Usage(input_tokens=100, output_tokens=7))
    second = Turn(Call("get_weather", PARIS), usage=Usage(input_tokens=120, output_tokens=20))
    with Rig(first, second, upstream=wire) as rig:
        rig.comparing.leave("it is about usage; bodies: test_force")
        got = rig.ask(wire, body)
        assert len(rig.bodies) == 2
    assert got.tokens == (120, 20)
    assert got.headers["x-mustcall-usage-total"] == "input=220, output=27"
    assert got.outcome == ("calls", "2", "met", "force_missed,called")
    assert got.headers["x-mustcall-protocol"] == "native"
    assert got.headers["x-mustcall-trace"] == got.headers["x-mustcall-request-id"]


@wires
def test_metadata_in_the_body_is_there_for_the_asking(wire: str) -> None:
    """Rule 114: asked for, the body says the class and the action of each attempt, the force, protocol and repairs."""
    body = request(wire, choice="get_weather")
    with Rig(Turn(Say("Fine.")), Turn(Call("get-weather", PARIS)), CALL, upstream=wire) as rig:
        rig.comparing.leave("it is about the reply; bodies: test_force")
        told = post(rig.url + PATHS[wire], body, {**KEYS, "x-mustcall-metadata": "true"})
        plain = post(rig.url + PATHS[wire], body, KEYS)
        assert rig.bodies[0] == rig.bodies[2] == body
    record = told.json["mustcall"]
    assert [(one["verdict"], one["remedy"]) for one in record["attempts"]] == [
        ("force_missed", "climb"),
        ("called", "accept"),
    ]
    assert (record["outcome"], record["force"], record["protocol"]) == ("calls", "met", "native")
    assert {"kind": "name_mapped", "subject": "get_weather"}.items() <= record["adaptations"][-1].items()
    assert "mustcall" not in plain.json
    counted = [attempt["usage"] for attempt in record["attempts"]]
    assert record["usage"] == {word: sum(one[word] for one in counted) for word in ("input", "output")}


@ways
@pytest.mark.parametrize("upstream", WIRES)
def test_a_healthy_turns_total_is_its_usage(wire: str, stream: bool, upstream: str) -> None:
    """Rule 114: with one attempt total and body say the same; a stream that begins before its end says no total."""
    body = request(wire, stream=stream, model=MODELS[upstream])
    counted = Turn(Say("Fine."), usage=Usage(input_tokens=100, output_tokens=7))
    with Rig(counted, upstream=upstream) as rig:
        got = rig.ask(wire, body)
    assert got.tokens == (100, 7)
    total = got.headers.get("x-mustcall-usage-total")
    assert total == "input=100, output=7" or (stream and total is None)  # all of a stream may be there at once


@pytest.mark.parametrize("upstream", WIRES)
def test_a_message_starts_with_the_delivered_attempts_usage(upstream: str) -> None:
    """Rule 114: `message_start` tells the input of the attempt that is delivered, where that is known by then."""
    body = request("messages", choice="get_weather", stream=True, model=MODELS[upstream])
    first = Turn(Say("Fine."), usage=Usage(input_tokens=100, output_tokens=7))
    second = Turn(Call("get_weather", PARIS), usage=Usage(input_tokens=120, output_tokens=20))
    with Rig(first, second, upstream=upstream) as rig:
        rig.comparing.leave("it is about usage; bodies: test_force")
        seen = post(rig.url + PATHS["messages"], body, KEYS)
        assert len(rig.bodies) == 2
    events = [cast("dict[str, Any]", event) for event in events_of(seen.body) if isinstance(event, dict)]
    assert events[0]["type"] == "message_start"
    assert events[0]["message"]["usage"]["input_tokens"] == 120
    assert next(event["usage"] for event in events if event["type"] == "message_delta")["output_tokens"] == 20


# --- rule 115: what is served -----------------------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("upstream", WIRES)
def test_every_wire_is_served_by_every_wire(wire: str, stream: bool, upstream: str) -> None:
    """Rule 115: on each of the three wires, streamed and not, over each of the three, a client gets call and answer."""
    body = request(wire, stream=stream, model=MODELS[upstream])
    with Rig(CALL, SUNNY, upstream=upstream) as rig:
        called, answered = rig.ask(wire, body), rig.ask(wire, body)
        assert len(rig.bodies) == 2
    assert (called.calls, called.finish, called.tokens) == ((("get_weather", PARIS),), "tool_calls", (25, 12))
    assert (answered.text, answered.finish) == ("It is sunny in Paris today, and warm.", "stop")


# --- rule 116: who leaves ---------------------------------------------------------------------------------------------


@ways
def test_a_client_that_leaves_cancels_the_upstream(wire: str, stream: bool) -> None:
    """Rule 116: the upstream's connection is closed while it still works, and no further attempt is made."""
    body = request(wire, choice="get_weather", stream=stream)
    with (
        ScriptedUpstream([Hang(Turn(Say("Fine.")))], strict=True, default=CALL) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
    ):
        with Listener(gateway.url, wire, body) as listener:
            upstream.wait_for_requests(1)
            listener.leave()
        upstream.wait_until_done()
        upstream.wait_for_connections(0)
        upstream.release()
        assert post(gateway.url + PATHS[wire], body, KEYS).status == 200
        assert [one.disconnected for one in upstream.wait_until_done()] == [True, False]


@ways
def test_a_client_that_leaves_between_attempts_ends_the_turn(wire: str, stream: bool) -> None:
    """Rule 116: gone during the second attempt, there is no third, whatever that one would have come to."""
    body = request(wire, choice="get_weather", stream=stream)
    dull = Turn(Say("Fine."))
    with (
        ScriptedUpstream([dull, Hang(dull, after=40)], strict=True, default=CALL) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
    ):
        with Listener(gateway.url, wire, body) as listener:
            upstream.wait_for_requests(2)
            listener.leave()
        upstream.wait_until_done()
        upstream.release()
        assert post(gateway.url + PATHS[wire], body, KEYS).status == 200
        assert [one.disconnected for one in upstream.wait_until_done()] == [False, True, False]
        assert [one.body for one in upstream.requests] == [body, forced_again(wire, body, "Fine."), body]


@wires
def test_a_reader_that_leaves_in_the_middle_of_a_stream_ends_it(wire: str) -> None:
    """Rule 116: a client that has read half a stream and goes away takes the upstream's stream with it."""
    body = request(wire, "Hi", stream=True)
    whole = direct(wire, body, SUNNY)
    shown = whole.index(b"\n\n", whole.index(b" sunny")) + 2
    with (
        ScriptedUpstream([Hang(SUNNY, after=shown)], strict=True) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}") as gateway,
        Listener(gateway.url, wire, body) as listener,
    ):
        listener.wait_for_bytes(shown)
        listener.leave()
        assert [one.disconnected for one in upstream.wait_until_done()] == [True]


@ways
def test_no_state_survives_a_request(wire: str, stream: bool) -> None:
    """Rule 116: a request after one that needed retries sends the bytes it would have sent before it."""
    body = request(wire, choice="get_weather", stream=stream)

    def answer(asked: Recorded) -> Turn:
        return CALL if asked.number % 2 else Turn(Say("Fine."))

    with ScriptedUpstream(answer, strict=True) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        replies = [post(gateway.url + PATHS[wire], body, KEYS) for _ in range(2)]
        sent = [one.raw for one in upstream.requests]
        assert [one.body for one in upstream.requests] == [body, forced_again(wire, body, "Fine.")] * 2
    assert [reply.status for reply in replies] == [200, 200]
    assert sent[:2] == sent[2:]


def test_streams_are_read_as_events() -> None:
    """The reader of these tests itself: comments are no events."""
    assert events_of(b': keepalive\n\ndata: {"a":1}\n\ndata: [DONE]\n\n') == [{"a": 1}, "[DONE]"]
