"""The events of a gateway: one for each thing that happens, told from one place each, with the same identity."""

import http.client
import json
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from mustcall.cli import cli
from mustcall.core.origin import Wire
from mustcall.engine.spending.budget_account import BreakerRule, Budget, Caps
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import load_settings, settings_from_flags
from mustcall.gateway.lines import line_of
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.telemetry.events import BreakerChanged, BudgetTripped, Event, FactLearnt, ForceDropped, Refused, TurnEnded
from mustcall.telemetry.stream import Subscription
from mustcall.testing import Call, Cut, Fail, Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import call, post
from support.laddering import climbed
from support.metrics import samples
from support.sending import with_steps

ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
FORCED = {**ASK, "tools": [TOOL], "tool_choice": "required"}
SESSION = {"x-mustcall-session": "s"}


def told(events: list[Event]) -> list[tuple[str, str, int]]:
    """Each event's name, class and attempt."""
    return [(str(type(one).__name__), one.class_, one.attempt) for one in events]


def heard_of(events: Subscription, turns: int) -> list[Event]:
    """All events up to the end of so many turns: an answer is sent before its turn is told to be over."""
    heard: list[Event] = []
    while sum(isinstance(one, TurnEnded) for one in heard) < turns:
        heard += events.take(20.0)
    return heard


def test_a_turn_of_three_attempts() -> None:
    """Rule 117: two detections, two retries and the outcome, all with the same request id, session, model and wire."""
    script = [Turn(Say("Rainy, probably.")), Turn(Say("I think it rains.")), Turn(Call("get_weather", {}))]
    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"up:chat={upstream.base_url}") as gateway,
        gateway.app.events.subscribe() as events,
    ):
        answer = post(f"{gateway.base_url}/chat/completions", FORCED, SESSION)
        assert answer.status == 200
        assert [request.body for request in upstream.requests] == climbed("chat", FORCED)[:3]
        heard = heard_of(events, 1)
    happened = [one for one in told(heard) if one[0] != "Repaired"]
    assert happened == [
        ("Detected", "force_missed", 1),
        ("Retried", "climb", 1),
        ("Detected", "force_missed", 2),
        ("Retried", "climb", 2),
        ("TurnEnded", "calls", 3),
    ]
    repaired = [entry.partition(":")[0] for entry in answer.headers["x-mustcall-adaptations"].split(", ")]
    assert set(repaired) >= {one[1] for one in told(heard) if one[0] == "Repaired"} > set()
    identities = {(one.request_id, one.session, one.upstream, one.model, str(one.wire)) for one in heard}
    assert len(identities) == 1
    identity = identities.pop()
    assert identity[0] == answer.headers["x-mustcall-request-id"]
    assert identity[1] not in ("", "s")  # a digest of it
    assert identity[2:] == ("up", "m", "chat")
    assert "Oslo" not in json.dumps(msgspec.to_builtins(heard))


def test_a_budget_and_a_breaker() -> None:
    """Rule 117: a reached cap, a breaker that opens, and the refusals that follow are told once each."""
    budget = Budget(caps=Caps(calls=1), breaker=BreakerRule(failures=1, cool_down=3600))
    script = [Turn(Say("Hello.")), Fail(503, "away"), Turn(Say("never"))]
    settings = settings_from_flags(
        "up:chat=PLACE".replace("PLACE", "http://127.0.0.1:9/v1"), operator=OperatorSettings(budget=budget)
    )
    with ScriptedUpstream(script) as upstream:
        endpoint = msgspec.structs.replace(settings.endpoints[0], base_url=upstream.base_url)
        endpoint = msgspec.structs.replace(endpoint, backoff=msgspec.structs.replace(endpoint.backoff, retries=0))
        settings = msgspec.structs.replace(settings, endpoints=(endpoint,))
        with RunningGateway(settings=settings) as gateway, gateway.app.events.subscribe() as events:
            url = f"{gateway.base_url}/chat/completions"
            assert [post(url, ASK, SESSION).status for _ in range(2)] == [200, 429]
            capped = heard_of(events, 2)
            assert [post(url, ASK, {"x-mustcall-session": name}).status for name in ("a", "b")] == [503, 503]
            broken = heard_of(events, 2)
    (trip,) = [one for one in capped if isinstance(one, BudgetTripped)]
    (refusal,) = [one for one in capped if isinstance(one, Refused)]
    assert (trip.upstream, trip.model, trip.enforced, trip.request_id) == ("up", "m", True, refusal.request_id)
    assert trip.class_ == "session_call_cap"
    assert refusal.class_ == "budget_spent"
    (change,) = [one for one in broken if isinstance(one, BreakerChanged)]
    assert (change.upstream, change.class_, change.failure) == ("up", "open", "overloaded")
    assert [one.class_ for one in broken if isinstance(one, Refused)][-1] == "breaker_open"


@pytest.mark.parametrize("protocol", ["native", "off"])
@pytest.mark.parametrize(
    ("answer", "stream", "code"),
    [
        (Fail(503, "busy"), False, "upstream_rejected"),
        (Fail(503, "busy"), True, "upstream_rejected"),
        (Cut(Turn(Say("one two three four five six seven")), after=700), True, "upstream_unavailable"),
    ],
    ids=["status", "status to a stream", "cut stream"],
)
def test_the_cause_of_a_failure_is_told(answer: Fail | Cut, stream: bool, code: str, protocol: str) -> None:
    """Rule 117: what the upstream or the way to it failed with is in the event, the line and the counter."""
    settings = settings_from_flags("up:chat=http://127.0.0.1:9/v1")
    with ScriptedUpstream([answer] * 9) as upstream:
        endpoint = msgspec.structs.replace(settings.endpoints[0], base_url=upstream.base_url)
        endpoint = msgspec.structs.replace(endpoint, backoff=msgspec.structs.replace(endpoint.backoff, retries=0))
        settings = msgspec.structs.replace(settings, endpoints=(endpoint,))
        with RunningGateway(settings=settings) as gateway, gateway.app.events.subscribe() as events:
            url = f"{gateway.base_url}/chat/completions"
            got = post(url, {**ASK, "stream": stream}, {"x-mustcall-protocol": protocol})
            heard = heard_of(events, 1)
            counted = samples(call("GET", f"{gateway.url}/metrics").body)
    assert (b"one" in got.body) is isinstance(answer, Cut)  # the stream had begun
    ended = heard[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.error, line_of(ended).error) == (code, code)
    assert counted[f'mustcall_errors_total{{code="{code}"}}'] == 1


def test_a_turn_whose_client_left_is_gone(tmp_path: Path) -> None:
    """Rule 117: one word for it in the event, the line, the counter and the list of turns, which finds it by that."""
    place = tmp_path / "l.db"
    with ScriptedUpstream([Hang(Turn(Say("one two three")), after=0)]) as upstream:
        settings = load_settings(
            upstream_flags=(f"up:chat={upstream.base_url}",), environment={"MUSTCALL_LEDGER": str(place)}
        )
        with RunningGateway(settings=settings) as gateway, gateway.app.events.subscribe() as events:
            host, port = gateway.url.removeprefix("http://").split(":")
            waiting = http.client.HTTPConnection(host, int(port), timeout=180)
            waiting.request("POST", "/v1/chat/completions", json.dumps(ASK), {"content-type": "application/json"})
            while not upstream.requests:
                time.sleep(0.01)
            waiting.close()
            ended = heard_of(events, 1)[-1]
            counted = samples(call("GET", f"{gateway.url}/metrics").body)
    assert isinstance(ended, TurnEnded)
    assert (ended.class_, line_of(ended).outcome, line_of(ended).verdicts) == ("gone", "gone", ("none",))
    assert counted['mustcall_turns_total{model="other",outcome="gone",upstream="up"}'] == 1
    asked = ["turns", "list", "--ledger", str(place), "--outcome"]
    shown = CliRunner().invoke(cli, [*asked, "gone"]).output
    assert ended.request_id in shown
    assert shown.splitlines()[1].split()[2:4] == ["gone", "none"]
    assert CliRunner().invoke(cli, [*asked, "failure"]).output == f"no turns like this in the ledger at {place}\n"


@pytest.mark.parametrize("status", [400, 401, 503])
def test_no_secret_is_in_an_event(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """Rule 117: an upstream that quotes a key and the question is told of by a code, without either of them."""
    settings = settings_from_flags("up:chat=http://127.0.0.1:9/v1")
    quoted = "Incorrect API key provided: sk-very-secret-key-1 for 'Weather in Oslo?'."
    with caplog.at_level("DEBUG"), ScriptedUpstream([Fail(status, quoted)] * 9) as upstream:
        endpoint = msgspec.structs.replace(settings.endpoints[0], base_url=upstream.base_url)
        endpoint = msgspec.structs.replace(endpoint, backoff=msgspec.structs.replace(endpoint.backoff, retries=0))
        settings = msgspec.structs.replace(settings, endpoints=(endpoint,))
        with RunningGateway(settings=settings) as gateway, gateway.app.events.subscribe() as events:
            key = {"authorization": "Bearer sk-very-secret-key-1"}
            assert post(f"{gateway.base_url}/chat/completions", ASK, key).status >= 400
            heard = heard_of(events, 1)
        assert [request.body for request in upstream.requests] == [ASK]
    assert "Refused" in [type(one).__name__ for one in heard]
    ended = heard[-1]
    assert isinstance(ended, TurnEnded)
    written = json.dumps([msgspec.to_builtins(heard), msgspec.to_builtins(line_of(ended))])
    assert "very-secret" not in written + caplog.text
    assert "Oslo" not in written


@pytest.mark.parametrize("stream", [False, True])
def test_a_dropped_force_is_told_once(stream: bool) -> None:
    """Rule 117: a force on a tool that is not on offer, sent unforced, is one event with the request's identity."""
    operator = OperatorSettings(controls=Controls(strict_force=False))
    named = {"type": "function", "function": {"name": "get_rain"}}
    with (
        ScriptedUpstream([Turn(Say("Hello."))]) as upstream,
        RunningGateway(f"up:chat={upstream.base_url}", operator=operator) as gateway,
        gateway.app.events.subscribe() as events,
    ):
        asked = {**FORCED, "tool_choice": named, "stream": stream}
        answer = post(f"{gateway.base_url}/chat/completions", asked, SESSION)
        heard = heard_of(events, 1)
    dropped = [
        (one.request_id, one.upstream, one.model, str(one.wire), one.class_)
        for one in heard
        if isinstance(one, ForceDropped)
    ]
    assert dropped == [(answer.headers["x-mustcall-request-id"], "up", "m", "chat", "force_dropped")]


def test_what_is_learnt_is_told_once() -> None:
    """Rule 117: a fact that a refusal taught is one event, with the model and the field."""
    words = "tool_choice 'required' is not supported by this model (key sk-very-secret-key-1)"
    refusal = Fail(400, words, param="tool_choice")
    script = [refusal, Turn(Call("get_weather", {})), Turn(Call("get_weather", {}))]
    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"up:chat={upstream.base_url}") as gateway,
        gateway.app.events.subscribe() as events,
    ):
        for _ in range(2):
            assert post(f"{gateway.base_url}/chat/completions", FORCED).status == 200
        heard = heard_of(events, 2)
        facts = [one for one in heard if isinstance(one, FactLearnt)]
        forced = climbed("chat", FORCED)[0]
        soft = with_steps(Wire.CHAT, {**forced, "tool_choice": "auto"}, Wording().call_any[0])
        assert [request.body for request in upstream.requests] == [forced, soft, soft]
    assert [(one.upstream, one.model, one.class_, one.value) for one in facts] == [("up", "m", "forced", "never")]
    assert "very-secret" not in json.dumps(msgspec.to_builtins(heard))


def test_nothing_is_built_when_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the log and the metrics off, a request builds no event."""
    built: list[object] = []

    def count(*given: object, **named: object) -> TurnEnded:
        built.append((given, named))
        return TurnEnded(at=0.0)

    monkeypatch.setattr("mustcall.gateway.telemetry_setup.turn_ended", count)
    with ScriptedUpstream([Turn(Say("Hello."))]) as upstream:
        settings = load_settings(
            upstream_flags=(f"chat={upstream.base_url}",),
            environment={"MUSTCALL_SERVER_METRICS": "off", "MUSTCALL_LEDGER": "off"},
        )
        with RunningGateway(settings=settings) as gateway:
            assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
    assert built == []


@pytest.mark.parametrize(("extra", "made"), [("0", "1 attempt"), ("1", "2 attempts")])
def test_the_log_counts_the_attempts_that_the_error_tells(
    extra: str, made: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One attempt is told in the singular, by both."""
    with (
        caplog.at_level("WARNING", "mustcall"),
        ScriptedUpstream(default=Turn(Say("Rainy, probably."))) as upstream,
        RunningGateway(f"up:chat={upstream.base_url}") as gateway,
    ):
        answer = post(f"{gateway.base_url}/chat/completions", FORCED, {"x-mustcall-extra-calls": extra})
        assert [request.body for request in upstream.requests] == climbed("chat", FORCED)[: int(extra) + 1]
    assert answer.json["error"]["message"].endswith(f"; {made} made")
    assert f"force_unmet after {made} of this turn" in caplog.text
