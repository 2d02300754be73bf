"""The upstream itself: its script, its records, its chunking, its routes and its life."""

import asyncio
import gc
import http.client
import json
import socket
import threading
import warnings
from contextlib import closing
from typing import Any

import pytest
from aiohttp import web
from anthropic import Anthropic, beta_tool
from openai import AsyncOpenAI, OpenAI

import mustcall.testing
from mustcall.core.origin import Wire
from mustcall.testing import Call, Chunking, End, Fail, Recorded, Say, ScriptedUpstream, Think, Turn, random_chunks

HI: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def send(upstream: ScriptedUpstream, body: Any = HI, path: str = "/v1/chat/completions", method: str = "POST") -> Any:
    """Send one request; return status and decoded body."""
    with closing(http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=180)) as connection:
        connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def stream(upstream: ScriptedUpstream) -> bytes:
    """Return the bytes of one streamed reply."""
    with closing(http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=180)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(HI | {"stream": True}))
        return connection.getresponse().read()


def halve(data: bytes) -> list[bytes]:
    """Cut a body in two."""
    return [data[: len(data) // 2], data[len(data) // 2 :]]


def test_answers_come_in_order_and_are_recorded() -> None:
    """Each request takes the next answer; headers, query, body and bytes are kept."""
    script = [Turn(Say("one")), Fail(500, "two", headers={"retry-after-ms": "1"}), Turn(Say("three"))]
    with ScriptedUpstream(script) as upstream, Anthropic(base_url=upstream.url, api_key="k", max_retries=1) as client:
        question: Any = {"role": "user", "content": "a"}
        client.messages.create(model="m", max_tokens=5, messages=[question], extra_query={"beta": "true"})
        again = client.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "b"}])
    first, failed, retried = upstream.requests
    assert [one.answer for one in upstream.requests] == script
    assert [one.status for one in upstream.requests] == [200, 500, 200]
    assert [one.number for one in upstream.requests] == [0, 1, 2]
    assert failed.body == retried.body == json.loads(failed.raw)
    assert again.content[0].to_dict()["text"] == "three"
    assert (first.method, first.path, first.query) == ("POST", "/v1/messages", {"beta": "true"})
    assert first.wire is Wire.MESSAGES
    assert first.headers["anthropic-version"] == retried.headers["anthropic-version"] > "2023"
    assert first.body["messages"] == [{"role": "user", "content": "a"}]
    assert {one.ended for one in upstream.requests} == {End.COMPLETE}
    assert not any(one.disconnected for one in upstream.requests)


def test_exhausted_script_says_so_or_falls_back() -> None:
    """Without a default the answer is a 500 that names the reason; with one it is the default."""
    with ScriptedUpstream([Turn(Say("a"))]) as upstream:
        send(upstream)
        status, body = send(upstream)
    assert status == 500
    assert "script is exhausted" in body["error"]["message"]
    with ScriptedUpstream(default=Turn(Say("again"))) as upstream:
        bodies = [send(upstream)[1] for _ in range(3)]
    assert [body["choices"][0]["message"]["content"] for body in bodies] == ["again"] * 3


def test_script_may_be_a_function() -> None:
    """A callable makes each answer from the request; its own failure reaches the client as a 500."""

    def echo(recorded: Recorded) -> Turn:
        return Turn(Say(recorded.body["messages"][-1]["content"]))

    with ScriptedUpstream(echo) as upstream:
        _, body = send(upstream)
        status, failure = send(upstream, {"messages": []})
    assert body["choices"][0]["message"]["content"] == "hi"
    assert status == 500
    assert "IndexError" in failure["error"]["message"]


@pytest.mark.parametrize("chunking", [1, 7, 10_000, random_chunks(4), halve])
def test_chunking_never_changes_the_bytes(chunking: Chunking) -> None:
    """However the stream is cut into writes, the body is the same."""
    turn = Turn(Think("Überlegung…"), Say("日本語 text 🎉"), Call("f", {"ä": "ö"}))
    with ScriptedUpstream([turn]) as upstream:
        whole = stream(upstream)
    with ScriptedUpstream([turn], chunking=chunking) as upstream:
        assert stream(upstream) == whole


def http_chunks(upstream: ScriptedUpstream, body: bytes) -> list[bytes]:
    """Post a body and return the chunks of the answer as they stand on the wire."""
    with socket.create_connection(("127.0.0.1", upstream.port), timeout=180) as connection:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
        raw = b""
        while piece := connection.recv(65536):
            raw += piece
    rest = raw.partition(b"\r\n\r\n")[2]
    chunks: list[bytes] = []
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if not int(size, 16):
            return chunks
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]


def test_chunks_are_the_writes() -> None:
    """The writes are seen as HTTP chunks: an event each, or so many bytes each."""
    body = json.dumps(HI | {"stream": True}).encode()
    seen: dict[int | None, list[bytes]] = {}
    for chunking in (None, 50):
        with ScriptedUpstream([Turn(Say("a b"))], chunking=chunking) as upstream:
            seen[chunking] = http_chunks(upstream, body)
    assert all(piece.startswith(b"data: ") and piece.endswith(b"\n\n") for piece in seen[None])
    assert len(seen[None]) == 5
    assert {len(piece) for piece in seen[50][:-1]} == {50}


def test_random_chunks_repeat() -> None:
    """The same seed cuts the same way and loses nothing."""
    data = bytes(range(256)) * 4
    assert list(random_chunks(7)(data)) == list(random_chunks(7)(data))
    assert b"".join(random_chunks(8)(data)) == data


def test_routes_beside_the_script() -> None:
    """Models and token counts need no script; unknown paths, wrong methods and bad JSON are refused in shape."""
    with ScriptedUpstream(models=("a", "b")) as upstream:
        with OpenAI(base_url=upstream.base_url, api_key="k") as client:
            assert [model.id for model in client.models.list()] == ["a", "b"]
        with Anthropic(base_url=upstream.url, api_key="k") as client:
            assert [model.id for model in client.models.list()] == ["a", "b"]
            few = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "a"}])
            many = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "a" * 400}])
        assert 0 < few.input_tokens < many.input_tokens - 90
        assert send(upstream, path="/v1/nothing")[0] == 404
        assert send(upstream, method="PUT")[0] == 405
        assert send(upstream, b"{not json")[0] == 400
        status, body = send(upstream, [1], path="/v1/messages")
    assert (status, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error")


def test_strict_refusals_take_no_answer() -> None:
    """A refused request is answered by its rule, recorded with its name, and leaves the script as it was."""
    with ScriptedUpstream([Turn(Say("kept"))], strict=True) as upstream:
        status, body = send(upstream, HI | {"tool_choice": "required"})
        _, answered = send(upstream)
    assert status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert "tool_choice" in body["error"]["message"]
    assert [one.refused_by for one in upstream.requests] == ["needs_tools_for_choice", None]
    assert upstream.requests[0].answer is None
    assert answered["choices"][0]["message"]["content"] == "kept"


def test_waived_rules_are_not_enforced() -> None:
    """A rule named in `waive` lets the request through."""
    with ScriptedUpstream([Turn(Say("a"))], strict=True, waive={"needs_tools_for_choice"}) as upstream:
        assert send(upstream, HI | {"tool_choice": "none"})[0] == 200


def test_strict_messages_wants_its_thinking_back_untouched() -> None:
    """A signed thought is accepted as issued, refused when changed, and refused by an upstream of another issuer."""
    tools: list[Any] = [{"name": "f", "input_schema": {"type": "object"}}]
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}

    def ask(client: Anthropic, messages: list[Any]) -> Any:
        return client.messages.create(model="m", max_tokens=2048, tools=tools, thinking=thinking, messages=messages)

    answers = [Turn(Think("Hm."), Call("f", {})), Turn(Say("done"))]
    with ScriptedUpstream(answers, strict=True) as upstream, Anthropic(base_url=upstream.url, api_key="k") as client:
        history: list[Any] = [{"role": "user", "content": "a"}]
        content = [block.model_dump(exclude_none=True) for block in ask(client, history).content]
        result = [{"type": "tool_result", "tool_use_id": content[1]["id"], "content": "ok"}]
        history += [{"role": "assistant", "content": content}, {"role": "user", "content": result}]
        content[0]["thinking"] = "Hm!"
        with pytest.raises(Exception, match="cannot be modified"):
            ask(client, history)
        content[0]["thinking"] = "Hm."
        assert ask(client, history).content[0].text == "done"
    with (
        ScriptedUpstream(strict=True, issuer="other") as other,
        Anthropic(base_url=other.url, api_key="k") as client,
        pytest.raises(Exception, match="Invalid `signature`"),
    ):
        ask(client, history)


def test_strict_responses_follows_its_own_state() -> None:
    """Stored responses go on, unstored ones do not; encrypted reasoning is known again."""
    include: Any = ["reasoning.encrypted_content"]
    answers = [
        Turn(Think("Hm."), Call("f", {})),
        Turn(Say("done")),
        Turn(Think("Hm."), Call("f", {})),
        Turn(Say("end")),
    ]
    with ScriptedUpstream(answers, strict=True) as upstream, OpenAI(base_url=upstream.base_url, api_key="k") as client:
        first = client.responses.create(model="m", input="a")
        output: Any = {"type": "function_call_output", "call_id": first.output[1].to_dict()["call_id"], "output": "ok"}
        with pytest.raises(Exception, match="No tool output found"):
            client.responses.create(model="m", input="b", previous_response_id=first.id)
        with pytest.raises(Exception, match="No tool call found"):
            client.responses.create(model="m", input=[output])
        done = client.responses.create(model="m", input=[output], previous_response_id=first.id)
        assert done.output_text == "done"
        unstored = client.responses.create(model="m", input="a", store=False, include=include)
        with pytest.raises(Exception, match="not found"):
            client.responses.create(model="m", input="b", previous_response_id=unstored.id)
        items: list[Any] = [item.to_dict() for item in unstored.output]
        items += [output | {"call_id": items[1]["call_id"]}]
        with pytest.raises(Exception, match="could not be verified"):
            client.responses.create(model="m", input=[items[0] | {"encrypted_content": "x"}, *items[1:]])
        assert client.responses.create(model="m", input=items).output_text == "end"


def test_strict_messages_turns_threads_down() -> None:
    """The SDK's tool runner asks for a server-held thread, is refused with details, and goes on without one."""

    @beta_tool
    def get_weather(city: str) -> str:
        """Return the weather."""
        return f"sunny in {city}"

    answers = [Turn(Call("get_weather", {"city": "Paris"})), Turn(Say("done"))]
    with ScriptedUpstream(answers, strict=True) as upstream, Anthropic(base_url=upstream.url, api_key="k") as client:
        question: Any = {"role": "user", "content": "weather?"}
        runner = client.beta.messages.tool_runner(model="m", max_tokens=9, tools=[get_weather], messages=[question])
        last = runner.until_done()
    assert last.content[0].to_dict()["text"] == "done"
    assert [one.refused_by for one in upstream.requests] == ["has_no_thread", None, None]
    assert upstream.requests[-1].body["messages"][-1]["content"][0]["content"] == "sunny in Paris"


async def test_concurrent_requests_are_all_served() -> None:
    """Many requests at once each get an answer, a number and ids of their own."""
    async with ScriptedUpstream(default=Turn(Call("f", {}))) as upstream:
        async with AsyncOpenAI(base_url=upstream.base_url, api_key="k") as client:
            asks = [client.responses.create(model="m", input=str(number)) for number in range(20)]
            replies = await asyncio.gather(*asks)
        recorded = await upstream.await_done()
    assert len({reply.id for reply in replies}) == 20
    assert len({reply.output[0].to_dict()["call_id"] for reply in replies}) == 20
    assert [one.number for one in recorded] == list(range(20))


def test_large_bodies_are_taken() -> None:
    """A body of several megabytes is read and recorded."""
    with ScriptedUpstream([Turn(Say("ok"))]) as upstream:
        status, _ = send(upstream, HI | {"padding": "x" * 5_000_000})
    assert status == 200
    assert len(upstream.requests[0].raw) > 5_000_000


def test_a_client_that_leaves_at_once_is_recorded() -> None:
    """A request that was sent whole is recorded, also when its client left before the upstream read any of it."""
    left = threading.Event()

    def hold(recorded: Recorded) -> Turn:
        if not recorded.number:
            left.wait(60)  # the upstream's loop stands still, as on a busy machine
        return Turn(Say("ok"))

    with ScriptedUpstream(hold) as upstream:
        body = json.dumps(HI).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
        with socket.create_connection(("127.0.0.1", upstream.port)) as first:
            first.sendall(head + body)
            upstream.wait_for_requests(1)
            with socket.create_connection(("127.0.0.1", upstream.port)) as second:
                second.sendall(head + body)
            left.set()
            assert [one.body for one in upstream.wait_for_requests(2)] == [HI, HI]
    assert upstream.open_connections == 0


def test_waiting_gives_up_with_a_reason() -> None:
    """A wait that is not met says what it waited for."""
    with ScriptedUpstream() as upstream, pytest.raises(TimeoutError, match="2 requests"):
        upstream.wait_for_requests(2, timeout=0.01)


def test_it_starts_and_closes_cleanly() -> None:
    """Addresses are known once started; closing twice is fine, starting twice or on a taken port is not."""
    before = threading.active_count()
    upstream = ScriptedUpstream([Turn(Say("a"))]).start()
    assert upstream.base_url == f"{upstream.url}/v1" == f"http://127.0.0.1:{upstream.port}/v1"
    assert send(upstream)[0] == 200
    with pytest.raises(RuntimeError, match="already"):
        upstream.start()
    with pytest.raises(OSError, match="in use"):
        ScriptedUpstream(port=upstream.port).start()
    upstream.wait_for_connections(0)
    upstream.close()
    upstream.close()
    upstream.release()
    assert upstream.open_connections == 0
    assert threading.active_count() == before
    ScriptedUpstream().close()


def test_closing_drops_idle_connections() -> None:
    """A client's idle keep-alive connection does not hold up closing."""
    with ScriptedUpstream([Turn(Say("a"))]) as upstream:
        connection = http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=180)
        connection.request("POST", "/v1/chat/completions", json.dumps(HI))
        connection.getresponse().read()
        assert upstream.open_connections == 1
    connection.close()
    assert upstream.open_connections == 0


def test_closing_drops_a_connection_whose_client_does_not_read() -> None:
    """What is still unsent to it does not keep its transport open."""
    body = json.dumps(HI).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with ScriptedUpstream(["x" * 20_000_000]) as upstream:
            client.connect(("127.0.0.1", upstream.port))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            client.recv(1)  # the answer has begun
            assert upstream.open_connections == 1
        assert upstream.open_connections == 0


def test_a_connection_that_comes_while_it_closes_is_closed() -> None:
    """Of one that is accepted in the step of the loop that closes the server, asyncio forgets the socket."""
    upstream = ScriptedUpstream([Turn(Say("a"))]).start()
    held = threading.Event()
    with socket.socket() as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        assert upstream._loop is not None
        upstream._loop.call_soon_threadsafe(held.wait)
        client.connect(("127.0.0.1", upstream.port))
        upstream._tell(upstream._closing)
        held.set()
        upstream.close()
        gc.collect()
    assert [str(one.message) for one in caught] == []
    assert upstream.open_connections == 0


def test_a_failure_while_closing_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """What aiohttp raises there is the thread's error; it is no reason to leave a socket open."""
    seen: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))

    async def shutdown(_: web.Server, timeout: float | None = None) -> None:  # noqa: ASYNC109  aiohttp's own
        raise OSError(f"no shutdown in {timeout} s")

    monkeypatch.setattr(web.Server, "shutdown", shutdown)
    with closing(http.client.HTTPConnection("127.0.0.1", 0, timeout=180)) as connection:
        with ScriptedUpstream([Turn(Say("a"))]) as upstream:
            connection.port = upstream.port
            connection.request("POST", "/v1/chat/completions", json.dumps(HI))
            connection.getresponse().read()
            assert upstream.open_connections == 1
        assert upstream.open_connections == 0
    assert [str(error) for error in seen] == ["no shutdown in 0.5 s"]


def test_public_names_exist() -> None:
    """Everything promised can be imported."""
    assert all(hasattr(mustcall.testing, name) for name in mustcall.testing.__all__)
    assert mustcall.testing.__all__ == sorted(mustcall.testing.__all__)
