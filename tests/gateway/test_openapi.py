"""`/openapi.json` describes what is really sent and answered; `/docs` shows it without anything from elsewhere."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import ServerSettings, settings_from_flags
from mustcall.gateway.openapi.document import REPLY_HEADERS, document
from mustcall.gateway.request_controls import CALLERS_HEADERS
from mustcall.testing import Call, Fail, RunningGateway, Say, ScriptedUpstream, Think, Turn
from support.browser import open_browser
from support.http import Response, call, post

SOURCE = Path(__file__).parents[2] / "src" / "mustcall" / "gateway"
PATHS = {Wire.CHAT: "/v1/chat/completions", Wire.RESPONSES: "/v1/responses", Wire.MESSAGES: "/v1/messages"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "Weather", "parameters": SCHEMA}


def get(url: str, headers: dict[str, str] | None = None) -> Response:
    """Read an address."""
    return call("GET", url, headers=headers)


def validator(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    """Compile a schema of the document, with the shapes it refers to."""
    return jsonschema_rs.validator_for({**schema, "components": document()["components"]})


def operation(wire: Wire) -> dict[str, Any]:
    """What the document says of a wire's turns."""
    return document()["paths"][PATHS[wire]]["post"]


def request(wire: Wire, *, stream: bool = False, **more: Any) -> dict[str, Any]:
    """A request with a tool, as a client of the wire writes it."""
    asked = [{"role": "user", "content": "What is the weather in Oslo?"}]
    match wire:
        case Wire.CHAT:
            body = {"messages": asked, "tools": [{"type": "function", "function": FUNCTION}]}
        case Wire.RESPONSES:
            body = {"input": asked, "tools": [{"type": "function", "strict": False, **FUNCTION}]}
        case Wire.MESSAGES:
            tool = {"name": "get_weather", "input_schema": SCHEMA}
            body = {"messages": asked, "max_tokens": 100, "tools": [tool]}
    return {"model": "m", "stream": stream, **body, **more}


ANSWERS = {
    "text": Turn(Say("Rain.")),
    "call": Turn(Call("get_weather", {"city": "Oslo"})),
    "reasoning": Turn(Think("Oslo, then."), Say("I look."), Call("get_weather", {"city": "Oslo"})),
    "text call": Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>')),
}


def events(body: bytes) -> Iterator[Any]:
    """The data of a stream's events."""
    for line in body.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("upstream_wire", Wire)
@pytest.mark.parametrize("answer", ANSWERS)
def test_requests_and_replies_fit(wire: Wire, upstream_wire: Wire, answer: str) -> None:
    """What goes in and comes out on each pair of wires, whole and streamed, fits the shapes; so do the headers."""
    said = operation(wire)
    asks = validator(said["requestBody"]["content"]["application/json"]["schema"])
    content = said["responses"]["200"]["content"]
    replies = validator(content["application/json"]["schema"])
    pieces = validator(content["text/event-stream"]["x-event-data"])
    with (
        ScriptedUpstream(lambda _: ANSWERS[answer]) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        body = request(wire)
        asks.validate(body)
        whole = post(f"{gateway.url}{PATHS[wire]}", body)
        assert whole.status == 200
        replies.validate(json.loads(whole.body))
        assert {name for name in whole.headers if name.startswith("x-mustcall-")} <= set(REPLY_HEADERS)
        streamed = post(f"{gateway.url}{PATHS[wire]}", request(wire, stream=True))
        found = list(events(streamed.body))
        assert found
        for one in found:
            pieces.validate(one)


@pytest.mark.parametrize("wire", Wire)
def test_errors_fit(wire: Wire) -> None:
    """Errors of the gateway, of the model and of the upstream are listed by status and have the shape."""
    said = operation(wire)["responses"]
    leak = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"town": 1}}</tool_call>'))
    with (
        ScriptedUpstream(lambda _: leak) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", "down:chat=http://127.0.0.1:9/v1") as gateway,
    ):
        url = f"{gateway.url}{PATHS[wire]}"
        for body in (
            {"model": "m"},
            request(wire, mustcall={"limits": {"extra_calls": 0}}),
            request(wire, mustcall={"nothing": 1}),
            request(wire) | {"model": "down/m"},
        ):
            failed = post(url, body)
            assert failed.status >= 400
            shape = said[str(failed.status)]
            told = json.loads(failed.body)
            validator(shape["content"]["application/json"]["schema"]).validate(told)
            code = told["error"].get("code")
            assert code is None or f"`{code}`" in shape["description"], code
        assert len(upstream.requests) == 1


def test_the_extension_is_checked_like_the_gateway_checks_it() -> None:
    """A setting that the gateway refuses does not fit the document, and one that it takes does."""
    asks = validator(operation(Wire.CHAT)["requestBody"]["content"]["application/json"]["schema"])
    cases = {
        '{"force_tools": true, "limits": {"extra_calls": 1}}': True,
        '{"on_unmet": "answer", "session": "ann"}': True,
        '{"hops": 3}': False,
        '{"on_unmet": "shrug"}': False,
        '{"limits": {"many": 1}}': False,
    }
    with (
        ScriptedUpstream(lambda _: ANSWERS["call"]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        for given, good in cases.items():
            body = request(Wire.CHAT, mustcall=json.loads(given))
            assert asks.is_valid(body) is good, given
            assert (post(f"{gateway.url}{PATHS[Wire.CHAT]}", body).status == 200) is good, given


def test_other_routes_fit() -> None:
    """Health under its three names, models in both shapes, token counts, and stored responses."""
    paths = document()["paths"]

    def check(path: str, method: str, body: bytes) -> None:
        validator(paths[path][method]["responses"]["200"]["content"]["application/json"]["schema"]).validate(
            json.loads(body)
        )

    with (
        ScriptedUpstream(lambda _: ANSWERS["text"]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        for name in ("/health", "/healthz", "/readyz"):
            check("/health", "get", get(f"{gateway.url}{name}").body)
        check("/v1/models", "get", get(f"{gateway.url}/v1/models").body)
        check("/v1/models", "get", get(f"{gateway.url}/v1/models", {"anthropic-version": "2023-06-01"}).body)
        counted = post(f"{gateway.url}/v1/messages/count_tokens", request(Wire.MESSAGES))
        check("/v1/messages/count_tokens", "post", counted.body)
        served = get(f"{gateway.url}/openapi.json")
        assert json.loads(served.body) == msgspec.to_builtins(document())
        assert post(f"{gateway.url}/openapi.json", {}).status == 405


def test_every_header_is_there() -> None:
    """The headers that callers may send are parameters; those that replies have are listed with their meaning."""
    source = (SOURCE / "replies.py").read_text(encoding="utf-8")
    assert set(REPLY_HEADERS) == set(re.findall(r'b"(x-mustcall-[a-z-]+)"', source))
    for wire in Wire:
        named = {one["name"] for one in operation(wire)["parameters"]}
        assert named == {f"x-mustcall-{name}" for name in CALLERS_HEADERS}


def test_every_reference_leads_somewhere() -> None:
    """No shape is referred to that is not there."""
    text = json.dumps(document())
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in document()["components"]["schemas"]


@pytest.mark.parametrize("ui", [True, False])
def test_the_description_needs_no_page(ui: bool) -> None:
    """The document is served also where the page is switched off; its view is not."""
    with ScriptedUpstream([Fail(500, "never asked")]) as upstream:
        settings = settings_from_flags(f"chat={upstream.base_url}", server=ServerSettings(ui=ui))
        with RunningGateway(settings=settings) as gateway:
            assert get(f"{gateway.url}/openapi.json").status == 200
            assert get(f"{gateway.url}/docs").status == (200 if ui else 404)


async def test_the_view_in_a_browser() -> None:
    """The view lists every route and shape, opens what the address names, and loads nothing from elsewhere."""
    with ScriptedUpstream([]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        async with open_browser() as browser:
            tab = await browser.tab()
            await tab.go(f"{gateway.url}/docs#shape-ChatRequest")
            await tab.until("document.querySelector('#shape-ChatRequest[open]')")
            count = sum(len(methods) for methods in document()["paths"].values())
            shown = await tab.run("document.querySelectorAll('details.route').length")
            assert shown == count + len(document()["components"]["schemas"])
            assert tab.complaints == []
            assert all(url.startswith(gateway.url) for url in tab.requests)
