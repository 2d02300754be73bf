"""Every bad input gets a clear error in the caller's own wire shape, and nothing reaches the upstream."""

import json
from pathlib import Path
from typing import Any

import pytest

from mustcall.gateway.config.settings import load_settings
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import Response, call, post

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
GOOD: dict[str, Any] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "m", "input": "hi"},
    "messages": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
}


def check_shape(wire: str, answer: Response, status: int, *words: str) -> dict[str, Any]:
    """Check that an answer is the wire's own error with these words in its message; return the error object."""
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/json"
    body = answer.json
    error: dict[str, Any] = body["error"]
    if wire == "messages":
        assert body["type"] == "error"
        assert body["request_id"].startswith("req_")
        assert body["request_id"] == answer.headers["request-id"]
    else:
        assert {"message", "type", "param", "code"} <= error.keys()
        assert error["request_id"] == answer.headers["x-request-id"]
    for word in words:
        assert word in error["message"]
    assert "Traceback" not in answer.body.decode()
    return error


BAD_BODIES = [
    pytest.param(b"", "the body is empty; a JSON object is expected", id="empty"),
    pytest.param(b" \r\n", "the body is empty; a JSON object is expected", id="blank"),
    pytest.param(b"hello", "JSON", id="not JSON"),
    pytest.param(b'{"model":"m",', "JSON", id="cut"),
    pytest.param(b"[1]", "object", id="array"),
    pytest.param(b"null", "object", id="null"),
    pytest.param(b'{"model":"\xff\xfe"}', "", id="not UTF-8"),
    pytest.param(b"[" * 90_000, "", id="deep"),
    pytest.param(b'{"model":' + b"[" * 90_000, "", id="deep inside"),
    pytest.param(b"{}", "model", id="no model"),
]


@pytest.mark.parametrize("upstream_wire", PATHS)
@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize(("body", "word"), BAD_BODIES)
def test_bodies_that_are_no_request(
    shared: dict[str, RunningGateway], wire: str, upstream_wire: str, body: bytes, word: str
) -> None:
    """Rule 60: not JSON, cut, too deep or without a model: 400 that says what is wrong."""
    answer = post(shared[upstream_wire].url + PATHS[wire], body)
    check_shape(wire, answer, 400, word)


WRONG_TYPES: list[Any] = [
    ("chat", "messages", "hi", "messages"),
    ("chat", "messages", [{"content": "no role"}], "role"),
    ("chat", "messages", [{"role": 3}], "role"),
    ("chat", "model", 3, "model"),
    ("chat", "stream", "yes", "stream"),
    ("chat", "tools", {"a": 1}, "tools"),
    ("chat", "tools", [3], "tools"),
    ("chat", "messages", [{"role": "user", "content": 5}], "`messages[0].content` must be a string or an array, got"),
    ("responses", "input", 3, "input"),
    ("responses", "model", None, "model"),
    ("responses", "stream", 1, "stream"),
    ("responses", "tools", "x", "tools"),
    ("messages", "messages", {"role": "user"}, "messages"),
    ("messages", "messages", [3], "messages"),
    ("messages", "model", ["m"], "model"),
    ("messages", "stream", "true", "stream"),
    ("messages", "tools", [[]], "tools"),
]


@pytest.mark.parametrize("upstream_wire", PATHS)
@pytest.mark.parametrize(("wire", "field", "value", "word"), WRONG_TYPES)
def test_wrong_types_are_named(  # noqa: PLR0917  one row of the table
    shared: dict[str, RunningGateway], wire: str, upstream_wire: str, field: str, value: Any, word: str
) -> None:
    """A field of the wrong type: 400 that names it, on the same wire and on another."""
    answer = post(shared[upstream_wire].url + PATHS[wire], {**GOOD[wire], field: value})
    check_shape(wire, answer, 400, word)


@pytest.mark.parametrize("wire", PATHS)
def test_wrong_method(shared: dict[str, RunningGateway], wire: str) -> None:
    """405 says which method the path takes, in words and in the header."""
    answer = call("GET", shared["chat"].url + PATHS[wire])
    check_shape(wire, answer, 405, "POST")
    assert answer.headers["allow"] == "POST"


def test_unknown_path(shared: dict[str, RunningGateway]) -> None:
    """404 lists what is served, in the shape of the wire the client seems to speak."""
    url = shared["chat"].url
    check_shape("chat", post(url + "/v1/completions", b"{}"), 404, "/v1/completions", "/v1/chat/completions")
    check_shape("messages", call("GET", url + "/v2", headers={"anthropic-version": "2023-06-01"}), 404, "/v2")


def test_unknown_model(tmp_path: Path) -> None:
    """404 names the model and the routes there are."""
    file = tmp_path / "mustcall.toml"
    file.write_text(
        '[[upstream]]\nname="a"\nwire="chat"\nbase_url="http://127.0.0.1:9/v1"\n'
        '[[route]]\nmodel="gpt-*"\nupstream="a"\n',
        encoding="utf-8",
    )
    with RunningGateway(settings=load_settings(file, environment={})) as gateway:
        for wire, path in PATHS.items():
            answer = post(gateway.url + path, {**GOOD[wire], "model": "llama"})
            error = check_shape(wire, answer, 404, "'llama'", "gpt-*")
            if wire != "messages":
                assert error["code"] == "model_not_found"


def test_nothing_of_it_reached_the_upstream(shared: dict[str, RunningGateway], shared_upstream: Any) -> None:
    """None of the requests above was forwarded; a good one is."""
    before = len(shared_upstream.requests)
    assert post(shared["chat"].url + PATHS["chat"], b"{}").status == 400
    assert len(shared_upstream.requests) == before
    assert post(shared["chat"].url + PATHS["chat"], GOOD["chat"]).status == 200
    assert len(shared_upstream.requests) == before + 1


def test_threads_are_answered_with_the_documented_400(shared: dict[str, RunningGateway]) -> None:
    """wires.md 1.1: `thread` gets the error on which the SDK resends its whole history, whatever the upstream."""
    for upstream_wire in PATHS:
        request = {**GOOD["messages"], "thread": {"type": "create"}}
        answer = post(shared[upstream_wire].url + PATHS["messages"], request)
        error = check_shape("messages", answer, 400)
        assert error["type"] == "invalid_request_error"
        assert error["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("upstream_wire", PATHS)
def test_any_nesting_is_served_or_refused(shared: dict[str, RunningGateway], wire: str, upstream_wire: str) -> None:
    """Contract 8: at no depth does the interpreter's recursion limit escape as an internal error."""
    seen: set[int] = set()
    for depth in (10, 200, 700, 800, 850, 900, 920, 940, 960, 980, 1000, 2000):
        schema = b'{"type":"object","properties":{"a":' * (depth // 2) + b"{}" + b"}}" * (depth // 2)
        tool = {
            "chat": b'{"type":"function","function":{"name":"f","parameters":%b}}',
            "responses": b'{"type":"function","name":"f","strict":false,"parameters":%b}',
            "messages": b'{"name":"f","input_schema":%b}',
        }[wire]
        body = json.dumps(GOOD[wire]).encode()[:-1] + b',"tools":[%b]}' % (tool % schema)
        answer = post(shared[upstream_wire].url + PATHS[wire], body)
        seen.add(answer.status)
        assert answer.status in (200, 400), (depth, answer.body)
    assert 200 in seen


@pytest.fixture(scope="module")
def shared_upstream() -> Any:
    """An upstream that always answers."""
    with ScriptedUpstream(default=Turn(Say("ok"))) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def shared(shared_upstream: ScriptedUpstream) -> Any:
    """One gateway per upstream wire."""
    gateways = {wire: RunningGateway(f"{wire}={shared_upstream.base_url}") for wire in PATHS}
    for gateway in gateways.values():
        gateway.start()
    yield gateways
    for gateway in gateways.values():
        gateway.close()
