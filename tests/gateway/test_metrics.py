"""`/metrics`: what is counted, who may read it, and that no caller can add a series."""

import http.client
import json
import re
import time

import pytest

from mustcall.gateway.metrics import Metrics
from mustcall.gateway.settings import load_settings
from mustcall.telemetry.events import TurnEnded
from mustcall.testing import Call, Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import call, post

ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
FORCED = {**ASK, "tools": [TOOL], "tool_choice": "required"}


def samples(page: bytes) -> dict[str, float]:
    """The samples of a page, and a check that each line of it is one the format knows."""
    found: dict[str, float] = {}
    for line in page.decode().splitlines():
        if not line.startswith(("# HELP mustcall_", "# TYPE mustcall_")):
            matched = re.fullmatch(r'(mustcall_\w+(?:\{(?:\w+="(?:[^"\\\n]|\\.)*",?)+\})?) ([0-9.e+-]+)', line)
            assert matched is not None, line
            found[matched[1]] = float(matched[2])
    return found


def test_requests_turns_and_attempts_are_counted() -> None:
    """Rule 117: a turn that took two attempts is one request, one turn, two attempts, each with its verdict."""
    script = [Turn(Say("Rainy, probably.")), Turn(Call("get_weather", {})), Turn(Say("Hello."))]
    with ScriptedUpstream(script) as upstream, RunningGateway(f"up:chat={upstream.base_url}") as gateway:
        assert post(f"{gateway.base_url}/chat/completions", FORCED).status == 200
        assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
        assert post(f"{gateway.base_url}/chat/completions", b"nonsense").status == 400
        answer = call("GET", f"{gateway.url}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    counted = samples(answer.body)
    assert counted['mustcall_requests_total{route="chat",status="200"}'] == 2
    assert counted['mustcall_requests_total{route="chat",status="400"}'] == 1
    assert counted['mustcall_request_duration_seconds_count{route="chat"}'] == 3
    assert counted['mustcall_request_duration_seconds_bucket{route="chat",le="+Inf"}'] == 3
    assert counted['mustcall_turns_total{upstream="up",outcome="calls"}'] == 1
    assert counted['mustcall_turns_total{upstream="up",outcome="answer"}'] == 1
    assert counted['mustcall_forced_turns_total{upstream="up",force="met"}'] == 1
    assert counted['mustcall_attempts_total{upstream="up",verdict="force_missed"}'] == 1
    assert counted['mustcall_attempts_total{upstream="up",verdict="called"}'] == 1
    assert counted['mustcall_upstream_calls_total{upstream="up"}'] == 3
    assert counted['mustcall_errors_total{code="invalid_request"}'] == 1
    assert counted['mustcall_tokens_total{upstream="up",direction="output"}'] > 0
    assert counted["mustcall_requests_in_flight"] == 0
    assert counted["mustcall_requests_in_flight_limit"] == 1000


def test_requests_in_flight_are_shown_while_they_run() -> None:
    """The page says how many requests are being worked on."""
    hangs = Hang(Turn(Say("one two three")), after=100)
    with ScriptedUpstream([hangs]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        waiting = http.client.HTTPConnection(host, int(port), timeout=20)
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
    metrics = Metrics(0.0)
    metrics.take(TurnEnded(at=0.0, upstream='a"b\\c\nd', class_="passed"))
    assert rb'mustcall_turns_total{upstream="a\"b\\c\nd",outcome="passed"} 1' in metrics.text(in_flight=0, limit=1)
