"""Keys, sizes, concurrency, health, and what the gateway keeps to itself."""

import json
import socket
import threading
from typing import Any

import msgspec
import pytest

from mustcall.gateway.config.settings import Settings, settings_from_flags
from mustcall.policy.facts.routing import Route
from mustcall.testing import Delayed, Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import call, post

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
GOOD: dict[str, Any] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "m", "input": "hi"},
    "messages": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
}


def with_keys(url: str, *keys: str, wire: str = "chat", api_key: str | None = None) -> Settings:
    """Settings that demand one of these keys."""
    settings = settings_from_flags(f"{wire}={url}")
    endpoint = msgspec.structs.replace(settings.endpoints[0], api_key=api_key)
    return msgspec.structs.replace(settings, client_keys=keys, endpoints=(endpoint,))


@pytest.mark.parametrize("wire", PATHS)
def test_client_keys(wire: str) -> None:
    """A wrong or missing key is 401 before anything is read; either header form is accepted."""
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(settings=with_keys(upstream.base_url, "k1", "k2")) as gateway,
    ):
        url = gateway.url + PATHS[wire]
        assert post(url, GOOD[wire]).status == 401
        assert post(url, GOOD[wire], {"authorization": "Bearer k3"}).status == 401
        assert post(url, GOOD[wire], {"x-api-key": "k"}).status == 401
        assert post(url, GOOD[wire], {"authorization": "Basic k1"}).status == 401
        assert upstream.requests == []
        assert post(url, GOOD[wire], {"authorization": "Bearer k1"}).status == 200
        assert post(url, GOOD[wire], {"x-api-key": "k2"}).status == 200
        assert call("GET", gateway.url + "/healthz").status == 200
        assert call("GET", gateway.url + "/v1/models").status == 401


def test_gateway_keys_stay_in_the_gateway() -> None:
    """Rule 136: a key that opens the gateway is never forwarded."""
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(settings=with_keys(upstream.base_url, "gateway-secret")) as gateway,
    ):
        post(gateway.url + PATHS["chat"], GOOD["chat"], {"authorization": "Bearer gateway-secret"})
        assert "gateway-secret" not in json.dumps(dict(upstream.requests[0].headers))


@pytest.mark.parametrize(
    ("caller", "upstream_wire", "expected"),
    [
        ({"authorization": "Bearer caller"}, "chat", {"authorization": "Bearer caller"}),
        ({"x-api-key": "caller"}, "chat", {"authorization": "Bearer caller"}),
        ({"authorization": "Bearer caller"}, "messages", {"x-api-key": "caller"}),
        ({}, "messages", {}),
    ],
)
def test_callers_key_is_forwarded_in_the_upstreams_form(
    caller: dict[str, str], upstream_wire: str, expected: dict[str, str]
) -> None:
    """Without a configured key the caller's own opens the upstream, in the header that wire uses."""
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        post(gateway.url + PATHS["responses"], GOOD["responses"], caller)
        got = upstream.requests[0].headers
    assert {name: got[name] for name in ("authorization", "x-api-key") if name in got} == expected


def test_configured_key_replaces_the_callers() -> None:
    """The upstream sees the configured key and not the caller's."""
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(settings=with_keys(upstream.base_url, api_key="ours")) as gateway,
    ):
        post(gateway.url + PATHS["chat"], GOOD["chat"], {"authorization": "Bearer theirs", "x-api-key": "theirs"})
        got = upstream.requests[0].headers
    assert got["authorization"] == "Bearer ours"
    assert "theirs" not in json.dumps(dict(got))


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
def test_body_over_the_limit(wire: str, chunked: bool) -> None:
    """A larger body than allowed is 413 in the wire's shape, declared or not; the same at the limit is served."""
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", max_body_bytes=10_000) as gateway,
    ):
        body = json.dumps(GOOD[wire]).encode()
        fits, over = body.ljust(10_000), body.ljust(10_001)
        url = gateway.url + PATHS[wire]
        assert post(url, fits).status == 200
        headers = {"transfer-encoding": "chunked"} if chunked else {}
        sent = b"%x\r\n%b\r\n0\r\n\r\n" % (len(over), over) if chunked else over
        answer = call("POST", url, sent, headers)
        assert answer.status == 413
        assert "10000" in answer.json["error"]["message"]
        assert len(upstream.requests) == 1


def test_concurrency_limit() -> None:
    """One request more than allowed is 503 with advice when to come back; the others are served."""
    held = Hang(Turn(Say("ok")))
    with (
        ScriptedUpstream([held, held, Turn(Say("ok"))]) as upstream,
        RunningGateway(f"chat={upstream.base_url}", max_concurrency=2) as gateway,
    ):
        url = gateway.url + PATHS["chat"]
        statuses: list[int] = []
        threads = [threading.Thread(target=lambda: statuses.append(post(url, GOOD["chat"]).status)) for _ in range(2)]
        for thread in threads:
            thread.start()
        upstream.wait_for_requests(2)
        answer = post(url, GOOD["chat"])
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json["error"]["code"] == "gateway_busy"
        upstream.release()
        for thread in threads:
            thread.join(10)
        assert statuses == [200, 200]
        assert post(url, GOOD["chat"]).status == 200


def test_probes_and_small_requests() -> None:
    """wires.md 1: what clients ask before they talk is answered at once, without an upstream."""
    with RunningGateway("chat=http://127.0.0.1:9/v1") as gateway:
        for path in ("/", "/healthz", "/readyz", "/api/hello"):
            assert call("GET", gateway.url + path).json["status"] == "ok"
            head = call("HEAD", gateway.url + path)
            assert (head.status, head.body) == (200, b"")
        assert call("POST", gateway.url + "/healthz", b"{}").status == 405


def test_models_are_listed_in_the_callers_shape() -> None:
    """Upstreams' own lists are merged under names that reach them; Anthropic clients get theirs."""
    with (
        ScriptedUpstream(models=["a", "b"]) as one,
        ScriptedUpstream(models=["b", "c"]) as two,
        RunningGateway(f"x:chat={one.base_url}", f"y:messages={two.base_url}") as gateway,
    ):
        listed = call("GET", gateway.url + "/v1/models").json
        assert [(entry["id"], entry["owned_by"]) for entry in listed["data"]] == [
            ("x/a", "x"),
            ("x/b", "x"),
            ("y/b", "y"),
            ("y/c", "y"),
        ]
        theirs = call("GET", gateway.url + "/api/v1/models", headers={"anthropic-version": "2023-06-01"}).json
        assert [entry["id"] for entry in theirs["data"]] == ["x/a", "x/b", "y/b", "y/c"]
        assert (theirs["first_id"], theirs["last_id"], theirs["has_more"]) == ("x/a", "y/c", False)
        with RunningGateway(f"x:chat={one.base_url}") as alone:
            assert [entry["id"] for entry in call("GET", alone.url + "/v1/models").json["data"]] == ["a", "b"]


def test_models_without_an_upstream_that_answers() -> None:
    """A list that cannot be had is empty, not an error."""
    with RunningGateway("chat=http://127.0.0.1:9/v1") as gateway:
        assert call("GET", gateway.url + "/v1/models").json == {"object": "list", "data": []}


def test_count_tokens() -> None:
    """Messages upstreams count themselves; for others the gateway estimates and says so."""
    request = {"model": "m", "messages": [{"role": "user", "content": "hello " * 100}]}
    with ScriptedUpstream(default=Turn(Say("ok"))) as upstream:
        with RunningGateway(f"messages={upstream.base_url}") as gateway:
            answer = post(gateway.url + "/v1/messages/count_tokens", request, {"anthropic-version": "2023-06-01"})
            direct = post(upstream.url + "/v1/messages/count_tokens", request, {"anthropic-version": "2023-06-01"})
            assert (answer.status, answer.json) == (200, direct.json)
        with RunningGateway(f"chat={upstream.base_url}") as gateway:
            answer = post(gateway.url + "/v1/messages/count_tokens", request)
            assert answer.status == 200
            assert 100 <= answer.json["input_tokens"] <= 300
            assert answer.headers["x-mustcall-adaptations"] == "estimated:input_tokens"


@pytest.mark.parametrize("key", [b"mustcall", rb"mustc\u0061ll"])
def test_count_tokens_takes_controls_as_a_turn_does(key: bytes) -> None:
    """The extension never reaches an upstream, and a header or a setting that does not exist is refused."""
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"%b":{%b}}'
    headers = {"anthropic-version": "2023-06-01"}
    with (
        ScriptedUpstream(default=Turn(Say("x"))) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
    ):
        url = gateway.url + "/v1/messages/count_tokens"
        assert call("POST", url, body % (key, b'"hold":true'), headers).status == 200
        (sent,) = upstream.requests
        assert sent.body == {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        assert call("POST", url, body % (key, b'"nope":1'), headers).status == 400
        assert call("POST", url, body % (b"metadata", b""), {**headers, "x-mustcall-nope": "1"}).status == 400
        assert len(upstream.requests) == 1


def test_pages_are_refused_unless_listed() -> None:
    """A web page may neither read nor spend unless its origin is listed; programs send no origin."""
    origin = {"origin": "http://page.example"}
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        url = gateway.url + PATHS["chat"]
        plain = call("POST", url, json.dumps(GOOD["chat"]).encode(), {**origin, "content-type": "text/plain"})
        assert (plain.status, plain.json["error"]["code"]) == (403, "origin_not_allowed")
        assert "access-control-allow-origin" not in plain.headers
        assert call("OPTIONS", url, headers=origin).status == 403
        assert upstream.requests == []
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"chat={upstream.base_url}", cors_origins=("http://page.example",)) as gateway,
    ):
        url = gateway.url + PATHS["chat"]
        asked = {**origin, "access-control-request-headers": "x-stainless-lang, authorization"}
        allowed = call("OPTIONS", url, headers=asked)
        assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (204, "http://page.example")
        assert allowed.headers["access-control-allow-headers"] == "x-stainless-lang, authorization"
        assert post(url, GOOD["chat"], origin).status == 200
        assert post(url, GOOD["chat"], {"origin": "http://evil.example"}).status == 403


def test_routed_models_are_listed() -> None:
    """With routes, literal names and the upstream's models that a pattern sends there under their own names."""
    with ScriptedUpstream(models=["gpt-5", "gpt-4", "other"]) as upstream:
        settings = settings_from_flags(f"up:chat={upstream.base_url}")
        routes = (Route(model="gpt-4", upstream="up", send_as="x"), Route(model="gpt-*", upstream="up"))
        with RunningGateway(settings=msgspec.structs.replace(settings, routes=routes)) as gateway:
            listed = call("GET", gateway.url + "/v1/models").json["data"]
    assert [entry["id"] for entry in listed] == ["gpt-4", "gpt-5"]


def test_a_broken_listing_is_left_out() -> None:
    """An upstream that answers with bytes that are no text does not take the others' models away."""
    with (
        ScriptedUpstream(models=["a"]) as fine,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n{"data":[{"id":"\xff')

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        with RunningGateway(f"x:chat={fine.base_url}", f"y:chat=http://127.0.0.1:{port}/v1") as gateway:
            listed = call("GET", gateway.url + "/v1/models").json["data"]
        thread.join(10)
    assert [entry["id"] for entry in listed] == ["x/a"]


def test_repeated_headers_are_joined() -> None:
    """wires.md 1.2: beta names in several header lines all arrive."""
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"messages={upstream.base_url}") as gateway,
        socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as client,
    ):
        client.settimeout(180)
        body = json.dumps(GOOD["messages"]).encode()
        lines = b"host: localhost\r\nanthropic-beta: a-1\r\nanthropic-beta: b-2\r\ncontent-length: %d" % len(body)
        client.sendall(b"POST /v1/messages HTTP/1.1\r\n%b\r\n\r\n%b" % (lines, body))
        assert b"200 OK" in client.recv(65536)
        assert upstream.requests[0].headers["anthropic-beta"] == "a-1, b-2"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", PATHS)
def test_what_outlasts_the_grace_period_gets_a_typed_error(wire: str, stream: bool) -> None:
    """Contract: a gateway that stops ends running requests with an error of the wire, never with silence."""
    held = Hang(Turn(Say("It rains. " * 1000)), after=6000 if stream else 0)
    with ScriptedUpstream([held]) as upstream:
        gateway = RunningGateway(f"chat={upstream.base_url}", shutdown_grace=1).start()
        answers: list[Any] = []
        request = {**GOOD[wire], "stream": stream}
        thread = threading.Thread(target=lambda: answers.append(post(gateway.url + PATHS[wire], request)))
        thread.start()
        upstream.wait_for_requests(1)
        gateway.close()
        thread.join(10)
    if stream:
        assert answers[0].status == 200
        assert b"the gateway is stopping" in answers[0].body.split(b"\n\n")[-2]
    else:
        assert answers[0].status == 503
        assert "stopping" in answers[0].json["error"]["message"]


def test_stopping_lets_running_requests_finish() -> None:
    """A request under way when the gateway is told to stop is answered."""
    with ScriptedUpstream([Delayed(Turn(Say("late but whole")), 0.4)]) as upstream:
        gateway = RunningGateway(f"chat={upstream.base_url}").start()
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(post(gateway.url + PATHS["chat"], GOOD["chat"])))
        thread.start()
        upstream.wait_for_requests(1)
        gateway.close()
        thread.join(10)
    assert answers[0].status == 200
    assert answers[0].json["choices"][0]["message"]["content"] == "late but whole"


@pytest.mark.parametrize("upstream_wire", PATHS)
def test_large_requests(upstream_wire: str) -> None:
    """1,000 messages, 200 tools of 2 kB and a 20 MB body are served, translated or not."""
    tool = {"type": "object", "properties": {"x": {"type": "string", "description": "d" * 1900}}}
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "parameters": tool}} for n in range(200)]
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(1001)]
    messages[0]["content"] = "x" * 20_000_000
    with (
        ScriptedUpstream(default=Turn(Say("ok"))) as upstream,
        RunningGateway(f"{upstream_wire}={upstream.base_url}") as gateway,
    ):
        answer = post(gateway.url + PATHS["chat"], {"model": "m", "messages": messages, "tools": tools})
        assert answer.status == 200, answer.body[:300]
        assert answer.json["choices"][0]["message"]["content"] == "ok"
        assert len(upstream.requests[0].body["tools"]) == 200
        assert len(upstream.requests[0].raw) > 20_000_000


def test_body_that_never_ends() -> None:
    """A client that sends half a body holds its place only for so long."""
    with (
        RunningGateway("chat=http://127.0.0.1:9/v1", request_timeout=0.3) as gateway,
        socket.create_connection(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) as client,
    ):
        client.settimeout(180)
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        answer = client.recv(65536)
    assert b"400 Bad Request" in answer
    assert b"did not arrive within 0.3 s" in answer


def test_an_upstream_with_a_model_of_its_own() -> None:
    """Every request is for that model, whatever name the caller uses, and the list says so."""
    question = [{"role": "user", "content": "Hello"}]
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hi.")), models=["a", "b"]) as upstream,
        RunningGateway(f"chat={upstream.base_url}#b") as gateway,
    ):
        for model in ("claude-opus-4", "b", "chat/a"):
            post(f"{gateway.base_url}/chat/completions", {"model": model, "messages": question})
        post(f"{gateway.base_url}/messages", {"model": "claude-opus-4", "messages": question, "max_tokens": 9})
        listed = call("GET", f"{gateway.base_url}/models").json
        assert [one.body["model"] for one in upstream.requests] == ["b", "b", "a", "b"]
    assert [entry["id"] for entry in listed["data"]] == ["b"]


@pytest.mark.parametrize(("wire", "path"), [("chat", "/chat/completions"), ("messages", "/messages")])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_model_named_twice(wire: str, path: str, blank: str) -> None:
    """Rule 94: a request that two readers read differently is refused before anything is sent, priced or counted."""
    body = (
        f'{{"model":{blank}"dear","model":{blank}"cheap","max_tokens":5,"messages":[{{"role":"user","content":"x"}}]}}'
    )
    with ScriptedUpstream([]) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        for place in (path, *(["/messages/count_tokens"] if wire == "messages" else [])):
            answer = post(f"{gateway.base_url}{place}", body.encode())
            assert answer.status == 400
            assert "'model' twice" in answer.json["error"]["message"]
        assert upstream.requests == []
