"""Turns by OpenTelemetry: the spans and metrics of a collector, the trace they are in, a collector that is gone."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mustcall.telemetry.context import TraceContext, child_id, continued
from mustcall.telemetry.stream import PROCESS
from mustcall.telemetry.tracing import traced, wanted_signals
from mustcall.testing import Call, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support import warm
from support.agents import agent_on
from support.http import call, post
from support.laddering import climbed
from support.metrics import samples
from support.otlp import Receiver, attributes

ASK = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
FORCED = {**ASK, "tools": [TOOL], "tool_choice": "required"}
#: Three attempts: two without the demanded call, and the call.
THREE = (Turn(Say("Rainy, probably.")), Turn(Say("I think it rains.")), Turn(Call("get_weather", {})))
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01", "tracestate": "vendor=value"}

Exporting = Callable[[str], None]


@pytest.fixture
def exporting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporting]:
    """Set the standard variables for a receiver, and wait for what exports to it to end.

    A gateway does not wait for a collector that is gone. The SDK's threads that do use `random`, which would make the
    property tests that follow in this process fail.
    """

    def export(url: str, **more: str) -> None:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        for name, value in more.items():
            monkeypatch.setenv(name, value)

    before = set(threading.enumerate())
    yield export
    for thread in set(threading.enumerate()) - before:
        if "otel" in thread.name.lower():
            thread.join(60)
            assert not thread.is_alive(), thread.name


def test_a_turn_of_three_attempts_is_one_span_with_three_children(exporting: Exporting) -> None:
    """Rule 117: the span of the turn is in the caller's trace, its attempts are its children, upstreams see theirs."""
    with Receiver() as receiver:
        exporting(receiver.url)
        with ScriptedUpstream(THREE) as upstream, RunningGateway(f"up:chat={upstream.base_url}") as gateway:
            answer = post(f"{gateway.base_url}/chat/completions", FORCED, headers=PARENT)
            assert answer.status == 200
            sent = [request.headers for request in upstream.requests]
            assert [request.body for request in upstream.requests] == climbed("chat", FORCED)[:3]
            counted = samples(call("GET", f"{gateway.url}/metrics").body)
        (turn,) = [span for span in receiver.spans if span.name == "chat m"]
        attempts = [span for span in receiver.spans if span.name.startswith("attempt")]
        duration, tokens = (receiver.points(f"gen_ai.client.{name}") for name in ("operation.duration", "token.usage"))
    said = attributes(turn)
    assert turn.trace_id.hex() == TRACE
    assert turn.parent_span_id.hex() == CALLER
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.system"] == "openai"
    assert said["gen_ai.request.model"] == "m"
    assert said["mustcall.outcome"] == "calls"
    assert said["mustcall.force"] == "met"
    assert said["mustcall.calls"] == 3
    assert said["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert said["mustcall.request_id"] == answer.headers["x-mustcall-request-id"]
    assert not [name for name in said if "messages" in name or name in ("gen_ai.prompt", "gen_ai.completion")]
    verdicts = [attributes(span)["mustcall.verdict"] for span in attempts]
    assert verdicts == answer.headers["x-mustcall-verdicts"].split(",") == ["force_missed", "force_missed", "called"]
    assert [attributes(span)["mustcall.remedy"] for span in attempts] == ["climb", "climb", "accept"]
    assert len({attributes(span)["mustcall.rung"] for span in attempts}) == 3
    for number, span in enumerate(attempts, 1):
        assert span.trace_id.hex() == TRACE
        assert span.parent_span_id == turn.span_id
        assert span.span_id.hex() == child_id(turn.span_id.hex(), number)
        assert turn.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert sent[number - 1]["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"
        assert sent[number - 1]["tracestate"] == "vendor=value"
    told = dict(part.split("=") for part in answer.headers["x-mustcall-usage-total"].split(", "))
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == tuple(map(int, told.values()))
    assert sum(point.count for point in duration) == 1
    for point in tokens:
        way = attributes(point)["gen_ai.token.type"]
        assert point.sum == int(told[way])
        assert counted[f'mustcall_tokens_total{{direction="{way}",model="m",upstream="up"}}'] == int(told[way])


def test_one_turn_is_counted_the_same_everywhere(tmp_path: Path) -> None:
    """A request that took three attempts: log line, `/metrics`, OTLP and `turns show` say the same of it."""
    environment = {**os.environ, "MUSTCALL_LEDGER": str(tmp_path / "ledger.db")}
    with Receiver() as receiver, ScriptedUpstream(THREE) as upstream:
        environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.url
        arguments = ("serve", "--port", "0", "--upstream", f"up:chat={upstream.base_url}")
        process = warm.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        try:
            assert process.stdout is not None
            found = None
            for line in process.stdout:
                found = found or re.search(r"http://127\.0\.0\.1:\d+", line)
                if "Ctrl-C" in line:
                    break
            assert found is not None
            answer = post(f"{found[0]}/v1/chat/completions", FORCED)
            counted = samples(call("GET", f"{found[0]}/metrics").body)
        finally:
            process.terminate()
            _, log = process.communicate(timeout=warm.PATIENCE)
        spans = receiver.spans
    request_id = answer.headers["x-mustcall-trace"]
    (line,) = [one for one in map(json.loads, log.splitlines()) if one.get("request_id") == request_id]
    shown = warm.run("turns", "show", request_id, "--json", env=environment)
    assert shown.returncode == 0, shown.stderr
    turn = json.loads(shown.stdout)
    span = attributes(next(one for one in spans if one.name == "chat m"))
    children = [attributes(one) for one in spans if one.name.startswith("attempt")]
    verdicts = ["force_missed", "force_missed", "called"]
    assert line["verdicts"] == verdicts
    assert [attempt["verdict"] for attempt in turn["attempts"]] == verdicts
    assert [child["mustcall.verdict"] for child in children] == verdicts
    for verdict in set(verdicts):
        name = f'mustcall_attempts_total{{model="m",upstream="up",verdict="{verdict}"}}'
        assert counted[name] == verdicts.count(verdict)
    calls = sum(attempt["sends"] for attempt in turn["attempts"])
    extra = counted['mustcall_extra_calls_total{model="m",upstream="up"}']
    assert line["calls"] == calls == span["mustcall.calls"] == extra + 1 == 3
    for way in ("input", "output"):
        tokens = counted[f'mustcall_tokens_total{{direction="{way}",model="m",upstream="up"}}']
        assert line[f"{way}_tokens"] == turn[f"{way}_tokens"] == span[f"gen_ai.usage.{way}_tokens"] == tokens
    assert line["outcome"] == turn["outcome"] == span["mustcall.outcome"] == "calls"
    assert line["force"] == turn["force"] == span["mustcall.force"] == "met"


def test_new_names_and_contents_are_asked_for(exporting: Callable[..., None]) -> None:
    """The newer names come with the opt-in, contents with theirs; by default neither."""
    with Receiver() as receiver:
        exporting(
            receiver.url,
            OTEL_SEMCONV_STABILITY_OPT_IN="http,gen_ai_latest_experimental",
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="span_only",
        )
        with (
            ScriptedUpstream([Turn(Say("Hello."))]) as upstream,
            RunningGateway(f"chat={upstream.base_url}") as gateway,
        ):
            assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
        (turn,) = [span for span in receiver.spans if span.name == "chat m"]
    said = attributes(turn)
    assert "gen_ai.system" not in said
    assert said["gen_ai.provider.name"] == "openai"
    assert json.loads(said["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Weather in Oslo?"}]}
    ]
    assert json.loads(said["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Hello."}], "finish_reason": "stop"}
    ]


def test_a_failed_turn_is_an_error(exporting: Exporting) -> None:
    """A turn whose attempts are spent has the code of its error."""
    script = [Turn(Say("No."))] * 6
    with Receiver() as receiver:
        exporting(receiver.url)
        with ScriptedUpstream(script) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
            assert post(f"{gateway.base_url}/chat/completions", FORCED).status >= 400
            bodies = [request.body for request in upstream.requests]
            assert bodies == climbed("chat", FORCED, "No.", "## get_weather\nParameters: none")
        (turn,) = [span for span in receiver.spans if span.name == "chat m"]
        points = receiver.points("gen_ai.client.operation.duration")
    assert attributes(turn)["error.type"] == "force_unmet"
    assert turn.status.code == 2
    assert [attributes(point)["error.type"] for point in points] == ["force_unmet"]


@pytest.mark.parametrize(
    ("caller", "upstream_wire", "provider"), [("chat", "messages", "anthropic"), ("messages", "chat", "openai")]
)
def test_the_provider_is_the_upstreams(exporting: Exporting, caller: str, upstream_wire: str, provider: str) -> None:
    """Who is asked goes by the wire of the upstream, not by that of the caller."""
    path = {"chat": "chat/completions", "messages": "messages"}[caller]
    with Receiver() as receiver:
        exporting(receiver.url)
        with (
            ScriptedUpstream([Turn(Say("Hello."))]) as upstream,
            RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
        ):
            assert post(f"{gateway.base_url}/{path}", {**ASK, "max_tokens": 64}).status == 200
        (turn,) = [span for span in receiver.spans if span.name == "chat m"]
        points = receiver.points("gen_ai.client.operation.duration")
    assert attributes(turn)["mustcall.wire"] == caller
    assert attributes(turn)["gen_ai.system"] == provider
    assert [attributes(point)["gen_ai.system"] for point in points] == [provider]


def test_spans_that_no_collector_took_are_counted(exporting: Callable[..., None]) -> None:
    """Rule 117: what is lost on the way to a collector that is gone is in the metrics: two spans of one turn."""
    name, lost = 'mustcall_telemetry_dropped_total{reader="otel"}', 0.0
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        exporting(address, OTEL_EXPORTER_OTLP_TIMEOUT="0.1", OTEL_BSP_SCHEDULE_DELAY="10")
        with (
            ScriptedUpstream([Turn(Say("Hello."))]) as upstream,
            RunningGateway(f"chat={upstream.base_url}") as gateway,
        ):
            assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
            end = time.monotonic() + warm.PATIENCE
            while lost < 2 and time.monotonic() < end:  # they are exported beside the requests
                time.sleep(0.02)
                lost = samples(call("GET", f"{gateway.url}/metrics").body).get(name, 0.0)
    assert lost == 2


@pytest.mark.parametrize("silent", [False, True], ids=["gone", "silent"])
def test_a_collector_that_is_gone_fails_no_request(exporting: Callable[..., None], *, silent: bool) -> None:
    """Nobody listens where spans are to go, or nobody answers: requests are answered as without a collector."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        if silent:
            nobody.listen(16)
        exporting(f"http://127.0.0.1:{nobody.getsockname()[1]}", OTEL_EXPORTER_OTLP_TIMEOUT="0.1")
        script = [Turn(Say("Hello."))] * 30
        with ScriptedUpstream(script) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
            for _ in range(30):
                assert post(f"{gateway.base_url}/chat/completions", ASK).status == 200
            counted = samples(call("GET", f"{gateway.url}/metrics").body)
    assert counted['mustcall_requests_total{route="chat",status="200"}'] == 30


def test_nothing_is_imported_or_sent_by_default() -> None:
    """Without the variables no module of OpenTelemetry is loaded, and upstreams get no trace headers."""
    script = """
import sys
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import post
with ScriptedUpstream([Turn(Say("Hello."))]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
    answer = post(f"{gateway.base_url}/chat/completions", {"model": "m", "messages": []}, headers=PARENT)
    assert "traceparent" not in upstream.requests[0].headers
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    ran = subprocess.run(  # noqa: S603  our own script
        [sys.executable, "-c", f"PARENT = {PARENT!r}{script}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout.strip(), ran.returncode) == ("[]", 0), ran.stderr


@pytest.mark.parametrize(
    ("variables", "signals"),
    [
        ({}, set[str]()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, {"traces", "metrics"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, {"traces"}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, {"traces"}),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, {"traces"}),
        ({"OTEL_TRACES_EXPORTER": "console"}, set[str]()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, set[str]()),
    ],
)
def test_the_standard_variables_decide(variables: dict[str, str], signals: set[str]) -> None:
    """Traces and metrics are exported where the variables of OpenTelemetry say so."""
    assert wanted_signals(variables) == signals


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{CALLER}",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-01-more",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-01\r\nx: y",
    ],
)
def test_a_trace_that_cannot_be_read_begins_anew(header: str) -> None:
    """W3C Trace Context: an invalid `traceparent` is ignored, and so is its state."""
    made = continued({"traceparent": header, "tracestate": "a=b"})
    assert made.trace_id != TRACE
    assert (made.parent, made.state) == ("", "")
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", made.header)


def test_a_later_version_is_read_by_its_first_four_fields() -> None:
    """W3C Trace Context: versions above 00 may add fields; the flag says whether it is sampled."""
    made = continued({"traceparent": f"01-{TRACE}-{CALLER}-00-more"})
    assert made == TraceContext(TRACE, made.span_id, f"00-{TRACE}-{CALLER}-00", "", sampled=False)
    assert made.outgoing(2) == {"traceparent": f"00-{TRACE}-{child_id(made.span_id, 2)}-00"}


async def test_tools_of_an_agent_are_spans_in_the_trace_of_its_run(exporting: Exporting) -> None:
    """A run is `invoke_agent`, a turn `chat {model}`, a tool `execute_tool {name}`; upstreams see the trace."""
    with Receiver() as receiver:
        exporting(receiver.url)
        script = [Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say("It is sunny."))]
        with traced(), ScriptedUpstream(script) as upstream:
            result = await agent_on(upstream, "chat").run("Weather in Oslo?")
            headers = [request.headers for request in upstream.requests]
        spans = {span.name: span for span in receiver.spans}
        chats = [span for span in receiver.spans if span.name.startswith("chat ")]
    assert result.text == "It is sunny."
    run, tool = spans["invoke_agent"], spans["execute_tool get_weather"]
    assert len({span.trace_id for span in (run, tool, *chats)}) == 1
    assert [span.parent_span_id for span in (tool, *chats)] == [run.span_id] * 3
    said = attributes(tool)
    assert said["gen_ai.operation.name"] == "execute_tool"
    assert said["gen_ai.tool.name"] == "get_weather"
    assert said["gen_ai.tool.call.id"] == result.calls[0].call.id
    assert said["mustcall.status"] == "ok"
    assert [one["traceparent"] for one in headers] == [
        f"00-{span.trace_id.hex()}-{child_id(span.span_id.hex(), 1)}-01" for span in chats
    ]


async def test_a_run_is_told_of_only_to_those_who_listen() -> None:
    """Without a reader an agent's upstream gets no trace headers; with one, each thing that happens is told."""
    script = [Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say("It is sunny."))]
    with ScriptedUpstream([*script, *script]) as upstream:
        agent = agent_on(upstream, "chat")
        await agent.run("Weather in Oslo?")
        assert "traceparent" not in upstream.requests[0].headers
        with PROCESS.subscribe() as events:
            await agent.run("Weather in Oslo?")
            told = [type(event).__name__ for event in events.take()]
    assert told == ["TurnEnded", "ToolEnded", "TurnEnded", "RunEnded"]
