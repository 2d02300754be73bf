"""`/metrics`: what is counted, who may read it, and that no caller can add a series."""

import http.client
import json
import re
import time

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mustcall.engine.spending.budget_account import Budget, ModelPrice, Price
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import load_settings
from mustcall.gateway.telemetry_setup import serves_metrics
from mustcall.telemetry.counting import MOST_MODELS
from mustcall.telemetry.events import AttemptEnd, TurnEnded
from mustcall.telemetry.prometheus import Gauges, Metrics
from mustcall.testing import Call, Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import call, post
from support.laddering import climbed
from support.metrics import samples

ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
ANYWHERE = "0.0.0.0"  # noqa: S104  nothing is bound
FORCED = {**ASK, "tools": [TOOL], "tool_choice": "required"}


def test_requests_turns_and_attempts_are_counted() -> None:
    """Rule 117: a turn that took two attempts is one request, one turn, two attempts, each with its verdict."""
    script = [Turn(Say("Rainy, probably.")), Turn(Call("get_weather", {})), Turn(Say("Hello."))]
    with ScriptedUpstream(script) as upstream, RunningGateway(f"up:chat={upstream.base_url}") as gateway:
        assert post(f"{gateway.base_url}/chat/completions", FORCED).status == 200
        assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
        assert post(f"{gateway.base_url}/chat/completions", b"nonsense").status == 400
        assert [request.body for request in upstream.requests] == [*climbed("chat", FORCED)[:2], ASK]
        answer = call("GET", f"{gateway.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    counted = samples(answer.body)
    assert counted['mustcall_requests_total{route="chat",status="200"}'] == 2
    assert counted['mustcall_requests_total{route="chat",status="400"}'] == 1
    assert counted['mustcall_request_duration_seconds_count{route="chat"}'] == 3
    assert counted['mustcall_request_duration_seconds_bucket{le="+Inf",route="chat"}'] == 3
    assert counted['mustcall_turns_total{model="m",outcome="calls",upstream="up"}'] == 1
    assert counted['mustcall_turns_total{model="m",outcome="answer",upstream="up"}'] == 1
    assert counted['mustcall_forced_turns_total{force="met",model="m",upstream="up"}'] == 1
    assert counted['mustcall_attempts_total{model="m",upstream="up",verdict="force_missed"}'] == 1
    assert counted['mustcall_attempts_total{model="m",upstream="up",verdict="called"}'] == 1
    assert counted['mustcall_upstream_calls_total{model="m",upstream="up"}'] == 3
    assert counted['mustcall_errors_total{code="invalid_request"}'] == 1
    assert counted['mustcall_tokens_total{direction="output",model="m",upstream="up"}'] > 0
    assert counted["mustcall_requests_in_flight"] == 0
    assert counted["mustcall_requests_in_flight_limit"] == 1000


def test_requests_in_flight_are_shown_while_they_run() -> None:
    """The page says how many requests are being worked on."""
    hangs = Hang(Turn(Say("one two three")), after=100)
    with ScriptedUpstream([hangs]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        waiting = http.client.HTTPConnection(host, int(port), timeout=180)
        waiting.request("POST", "/v1/chat/completions", json.dumps(ASK), {"content-type": "application/json"})
        while not upstream.requests:
            time.sleep(0.01)
        assert samples(call("GET", f"{gateway.url}/metrics").body)["mustcall_requests_in_flight"] == 1
        waiting.close()


def test_callers_cannot_add_series() -> None:
    """Paths, models and methods that callers make up all count as the same few series."""
    with ScriptedUpstream([]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        for number in range(20):
            call("GET", f"{gateway.url}/made-up-{number}")
            call("DELETE", f"{gateway.base_url}/responses/resp_{number}")
            post(f"{gateway.base_url}/messages", {"model": f"m{number}", "messages": 1})
        counted = samples(call("GET", f"{gateway.url}/metrics").body)
    routes = {found[1] for name in counted if (found := re.search(r'route="(\w+)"', name))}
    assert routes == {"other", "stored", "messages"}
    assert counted['mustcall_requests_total{route="other",status="404"}'] == 20


def test_probes_and_the_page_itself_are_not_requests() -> None:
    """Health checks and scrapes would drown the figures of those who wait for answers."""
    with ScriptedUpstream([]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        for path in ("/", "/healthz", "/readyz", "/metrics", "/metrics"):
            assert call("GET", f"{gateway.url}{path}").status == 200
        counted = samples(call("GET", f"{gateway.url}/metrics").body)
    assert not [name for name in counted if name.startswith(("mustcall_requests_total", "mustcall_request_duration"))]


@pytest.mark.parametrize(("access", "without", "with_key"), [("key", 401, 200), ("open", 200, 200), ("off", 404, 404)])
def test_who_may_read_it(access: str, without: int, with_key: int) -> None:
    """By default those who may call; `open` is for scrapers on a private network, `off` for nobody."""
    settings = load_settings(
        upstream_flags=("chat=http://127.0.0.1:9/v1",),
        environment={"MUSTCALL_CLIENT_KEYS": "k", "MUSTCALL_SERVER_METRICS": access, "MUSTCALL_LEDGER": "off"},
    )
    with RunningGateway(settings=settings) as gateway:
        assert call("GET", f"{gateway.url}/metrics").status == without
        assert call("GET", f"{gateway.url}/metrics", headers={"authorization": "Bearer k"}).status == with_key
        assert call("POST", f"{gateway.url}/metrics").status in (401, 404, 405)


def test_names_of_upstreams_are_escaped() -> None:
    """An upstream may be called anything; the page stays readable."""
    metrics = Metrics(0.0, alone=True)
    name = 'a"b\\c\nd'
    metrics.counts.take(TurnEnded(at=0.0, upstream=name, class_="passed"))
    page = metrics.page(Gauges(in_flight=0, limit=1)).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert [sample.labels["upstream"] for sample in families["mustcall_turns"].samples] == [name]


def test_a_flood_of_model_names_is_bounded() -> None:
    """Rule 117: 10,000 names of models make no more series than the bound; the rest count as `other`."""
    metrics = Metrics(0.0, ("configured",), alone=True)
    answered = AttemptEnd(
        after=0.0,
        seconds=1.0,
        first_byte=0.5,
        rung="plain",
        verdict="answered",
        remedy="accept",
        sends=1,
        error="",
        tool="",
        input_tokens=3,
        output_tokens=4,
    )
    refused = msgspec.structs.replace(answered, verdict="rejected")
    for number in range(10_000):
        made_up = TurnEnded(
            at=0.0, upstream="up", model=f"made-up-{number}", class_="failure", attempts=(refused,), calls=1
        )
        metrics.counts.take(made_up)
    for number in range(10_000):
        known = TurnEnded(at=0.0, upstream="up", model=f"m{number}", class_="answer", attempts=(answered,), calls=1)
        metrics.counts.take(known)
    metrics.counts.take(TurnEnded(at=0.0, upstream="up", model="configured", class_="failure", calls=1))
    page = metrics.page(Gauges(in_flight=0, limit=1))
    counted = samples(page)
    turns = {name: value for name, value in counted.items() if name.startswith("mustcall_turns_total")}
    assert sum(turns.values()) == 20_001
    assert len(turns) == MOST_MODELS + 3  # `other` answered and failed, and the operator's own
    assert turns['mustcall_turns_total{model="configured",outcome="failure",upstream="up"}'] == 1
    assert turns['mustcall_turns_total{model="other",outcome="failure",upstream="up"}'] == 10_000
    assert len(page) < 200_000


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\x9b2J", "a\u202eb", "a\nb", "a\0b"])
def test_names_with_control_characters_have_no_series(name: str) -> None:
    """A caller's name for a model cannot steer the terminal of who reads the page: it counts as `other`."""
    metrics = Metrics(0.0, alone=True)
    metrics.counts.take(TurnEnded(at=0.0, upstream="up", model=name, class_="passed", status=200))
    page = metrics.page(Gauges(in_flight=0, limit=1))
    assert samples(page)['mustcall_turns_total{model="other",outcome="passed",upstream="up"}'] == 1
    assert name not in page.decode()


def test_repairs_times_and_cost_are_counted() -> None:
    """Rule 117: a stream of two attempts has its times, its extra call, and the kinds of its repairs."""
    script = [Turn(Say("Rainy, probably.")), Turn(Call("get_weather", {})), Turn(Say("Hello."))]
    operator = OperatorSettings(
        budget=Budget(prices=(ModelPrice(model="m", price=Price(input=1.0, output=1_000_000.0)),))
    )
    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"up:chat={upstream.base_url}", operator=operator) as gateway,
    ):
        answer = post(f"{gateway.base_url}/chat/completions", {**FORCED, "stream": True})
        assert answer.status == 200
        counted = samples(call("GET", f"{gateway.url}/metrics").body)
        assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
        after = samples(call("GET", f"{gateway.url}/metrics").body)
        assert [request.body for request in upstream.requests] == [
            *climbed("chat", {**FORCED, "stream": True})[:2],
            ASK,
        ]
    assert counted['mustcall_extra_calls_total{model="m",upstream="up"}'] == 1
    assert counted['mustcall_attempt_duration_seconds_count{upstream="up"}'] == 2
    assert counted['mustcall_first_byte_seconds_count{upstream="up"}'] == 2
    assert counted['mustcall_held_seconds_count{upstream="up"}'] == 1
    read, written = (
        after[f'mustcall_tokens_total{{direction="{way}",model="m",upstream="up"}}']
        - counted[f'mustcall_tokens_total{{direction="{way}",model="m",upstream="up"}}']
        for way in ("input", "output")
    )
    cost = 'mustcall_cost_usd_total{model="m",upstream="up"}'
    assert after[cost] - counted[cost] == pytest.approx(read / 1_000_000 + written)
    assert written > 0
    assert [name for name in counted if name.startswith("mustcall_repairs_total")]
    assert counted['mustcall_cache_entries{cache="tallies"}'] == 1


@pytest.mark.parametrize(
    ("host", "keys", "access", "served"),
    [
        ("127.0.0.1", "", "key", True),
        ("localhost", "", "key", True),
        (ANYWHERE, "", "key", False),
        (ANYWHERE, "k", "key", True),
        (ANYWHERE, "", "open", True),
        ("127.0.0.1", "k", "off", False),
    ],
)
def test_who_is_served_a_page_at_all(host: str, keys: str, access: str, served: bool) -> None:
    """Off for everybody beyond this machine unless a key is needed or the operator opens it."""
    settings = load_settings(
        upstream_flags=("chat=http://127.0.0.1:9/v1",),
        host=host,
        environment={"MUSTCALL_SERVER_METRICS": access, "MUSTCALL_LEDGER": "off"}
        | ({"MUSTCALL_CLIENT_KEYS": keys} if keys else {}),
    )
    assert serves_metrics(settings) is served
