"""What `mustcall.wrap` takes, what it leaves alone, and that nothing stays behind."""

import asyncio
import gc
import json
import signal
import threading
from contextlib import AsyncExitStack
from typing import Any, assert_type

import anthropic
import httpx
import httpx2
import openai
import pytest
from openai import AsyncAzureOpenAI, AsyncOpenAI, AzureOpenAI, OpenAI
from pydantic import BaseModel

from mustcall import ConfigError, Controls, GroundingRule, wrap
from mustcall.adapters.blocking import Driver, Turnstile
from mustcall.adapters.contract import Contract
from mustcall.adapters.httpx_answers import AsyncContractTransport, ContractTransport, _async_body, _blocking_body
from mustcall.adapters.wrapping import OPENAI_ROUTES
from mustcall.core.origin import Wire
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.profile import Protocol
from mustcall.telemetry.events import Event, TurnEnded
from mustcall.telemetry.stream import PROCESS
from mustcall.testing import Call, End, Hang, Say, ScriptedUpstream, Turn
from mustcall.upstream.endpoint import Endpoint
from support.wrapped import CALL, QUESTION, SCHEMA, WAYS, Way, ask, make_client, said

GOOD = Turn(Call("price", {"item": "hat"}))
TOOL: Any = {"type": "function", "function": {"name": "price", "parameters": SCHEMA}}
HTTPX: Any = httpx
ASKED: Any = [{"role": "user", "content": QUESTION}]
SYNC = Way(Wire.CHAT, blocks=True, streams=False)
ASYNC = Way(Wire.CHAT, blocks=False, streams=False)


class Price(BaseModel):
    """A price."""

    euros: int


class Unending:
    """The rest of a stream that cannot be ended."""

    async def close(self) -> None:
        """Fail."""
        raise RuntimeError("it goes on")


async def test_what_a_stream_holds_is_closed_though_its_end_fails() -> None:
    """A connection that stayed open behind an error would stay open to the end of the process."""
    chunks: Any = Unending()
    closed: list[str] = []
    held = AsyncExitStack()
    held.callback(closed.append, "the connections")
    with pytest.raises(RuntimeError, match="it goes on"):
        await _async_body(HTTPX)(b"", chunks, held).aclose()
    assert closed == ["the connections"]


def test_the_loop_of_a_stream_is_closed_though_its_end_fails() -> None:
    """The same for a client that blocks: its event loop ends with the stream."""
    chunks: Any = Unending()
    driver = Driver(Turnstile())
    with pytest.raises(RuntimeError, match="it goes on"):
        _blocking_body(HTTPX)(b"", chunks, driver).close()
    assert driver.closed


def test_the_type_stays() -> None:
    """The returned client has the type of the one given, for type checkers and when it runs."""
    with OpenAI(api_key="key", organization="org", max_retries=7) as bare:
        client = wrap(bare)
        assert_type(client, OpenAI)
        assert type(client) is OpenAI
        assert (client.api_key, client.organization, client.max_retries) == ("key", "org", 7)
        assert client.base_url == bare.base_url


@pytest.mark.parametrize(
    "thing", [None, "gpt-5", httpx2, object(), openai], ids=["none", "text", "module", "object", "package"]
)
def test_anything_else_is_refused(thing: object) -> None:
    """What is no client is named, and what can be wrapped, too."""
    with pytest.raises(ConfigError, match=r"takes a client object of openai.OpenAI, .*AsyncAnthropic; got "):
        wrap(thing)


def test_settings_are_checked() -> None:
    """A wrapped client is not wrapped again; unknown protocols and facts are refused by name."""
    with wrap(OpenAI(api_key="key")) as client:
        with pytest.raises(ConfigError, match="wrapped already"):
            wrap(client)
        with pytest.raises(ConfigError, match="wrapped already"):
            wrap(client.with_options(timeout=3))
    with OpenAI(api_key="key") as bare:
        with pytest.raises(ConfigError, match="no protocol 'magic'; there are: native, "):
            wrap(bare, protocol="magic")
        with pytest.raises(ConfigError, match="wrap: profile 1"):
            wrap(bare, profile={"no_such_fact": True})


@pytest.mark.parametrize("way", [SYNC, ASYNC], ids=str)
def test_protocol_and_profile(way: Way) -> None:
    """Settings of `wrap` are those of every turn: under `prompt` the tools are told as text, by option or by fact."""
    text = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'
    settings: list[dict[str, Any]] = [
        {"protocol": "prompt"},
        {"profile": {"models": ["m"], "protocol": "prompt"}},
        {"controls": Controls(protocol=Protocol.PROMPT)},
    ]
    for given in settings:
        with ScriptedUpstream([Turn(Say(text))]) as upstream:
            assert said(way, ask(way, upstream.url, lambda client, given=given: wrap(client, **given))) == [CALL]
            (request,) = upstream.requests
            assert "tools" not in request.body
            assert "price" in str(request.body["messages"])


def test_grounding_rules() -> None:
    """Rule 12: a rule that the question matches forces its tool."""
    rule = GroundingRule(name="prices", tool="price", triggers=("cost",))
    with ScriptedUpstream([Turn(Say("12 euros.")), GOOD]) as upstream:
        assert said(SYNC, ask(SYNC, upstream.url, lambda client: wrap(client, rules=[rule]))) == [CALL]
        assert len(upstream.requests) == 2


def test_controls_of_one_request() -> None:
    """Rule 9: headers and the body's extension are read here, and never sent to the upstream."""
    asked: list[dict[str, Any]] = [
        {"extra_headers": {"x-mustcall-force-tools": "price"}},
        {"extra_body": {"mustcall": {"force_tools": "price"}}},
    ]
    for more in asked:
        with ScriptedUpstream([Turn(Say("12 euros.")), GOOD]) as upstream:
            assert said(SYNC, ask(SYNC, upstream.url, wrap, **more)) == [CALL]
            assert len(upstream.requests) == 2
            for request in upstream.requests:
                assert "mustcall" not in request.body
                assert not [name for name in request.headers if name.startswith("x-mustcall")]


def test_everything_else_passes() -> None:
    """Requests that ask for no reply go out and come back untouched, errors included."""
    with ScriptedUpstream(models=("a", "b")) as upstream:
        with wrap(make_client(SYNC, upstream.url, max_retries=0)) as client:
            assert [model.id for model in client.models.list()] == ["a", "b"]
            with pytest.raises(openai.NotFoundError, match="Invalid URL"):
                client.embeddings.create(model="m", input="hat")
            with pytest.raises(openai.NotFoundError, match="Invalid URL"):
                client.files.create(file=b"hat", purpose="assistants")
        with wrap(make_client(Way(Wire.MESSAGES, blocks=True, streams=False), upstream.url)) as claude:
            assert claude.messages.count_tokens(model="m", messages=ASKED).input_tokens > 1
        paths = [request.path for request in upstream.requests]
        assert paths == ["/v1/models", "/v1/embeddings", "/v1/files", "/v1/messages/count_tokens"]


async def test_everything_else_passes_asynchronously() -> None:
    """The same for asynchronous clients."""
    async with (
        ScriptedUpstream(models=("a",)) as upstream,
        wrap(make_client(ASYNC, upstream.url, max_retries=0)) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["a"]
        with pytest.raises(openai.NotFoundError, match="Invalid URL"):
            await client.files.create(file=b"hat", purpose="assistants")


def test_parse_and_stream_helpers() -> None:
    """The SDKs' helpers for structured answers and streams work on what a turn comes to."""
    fenced = Turn(Say('Sure!\n```json\n{"euros": 12}\n```'))
    with ScriptedUpstream([fenced, Turn(Say('{"euros": 12}'))] * 2) as upstream:
        with wrap(make_client(SYNC, upstream.url)) as client:
            parsed = client.chat.completions.parse(model="m", messages=ASKED, response_format=Price)
            assert parsed.choices[0].message.parsed == Price(euros=12)
        with wrap(make_client(SYNC, upstream.url)) as client:
            assert client.responses.parse(model="m", input=QUESTION, text_format=Price).output_parsed == Price(euros=12)
        assert len(upstream.requests) == 4
    text = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'
    with ScriptedUpstream([Turn(Say(text))] * 3) as upstream:
        strict = {**TOOL, "function": {**TOOL["function"], "strict": True}}
        with (
            wrap(make_client(SYNC, upstream.url)) as client,
            client.chat.completions.stream(model="m", messages=ASKED, tools=[strict]) as stream,
        ):
            (call,) = list(stream.get_final_completion().choices[0].message.tool_calls or ())
            assert (call.function.name, json.loads(call.function.arguments)) == CALL
        tool: Any = {"type": "function", "name": "price", "parameters": SCHEMA, "strict": True}
        with (
            wrap(make_client(SYNC, upstream.url)) as client,
            client.responses.stream(model="m", input=QUESTION, tools=[tool]) as events,
        ):
            (item,) = [one for one in events.get_final_response().output if one.type == "function_call"]
            assert (item.name, json.loads(item.arguments)) == CALL
        offered: Any = {"name": "price", "input_schema": SCHEMA}
        with (
            wrap(make_client(Way(Wire.MESSAGES, blocks=True, streams=True), upstream.url)) as claude,
            claude.messages.stream(model="m", max_tokens=100, messages=ASKED, tools=[offered]) as said_by,
        ):
            (block,) = [one for one in said_by.get_final_message().content if one.type == "tool_use"]
            assert (block.name, block.input) == CALL
        assert len(upstream.requests) == 3


@pytest.mark.parametrize("kind", [AzureOpenAI, AsyncAzureOpenAI])
def test_azure(kind: Any) -> None:
    """A client of Azure keeps its address, its key's header and its query."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        call = {"id": "1", "type": "function", "function": {"name": "price", "arguments": '{"item": "hat"}'}}
        message = {"role": "assistant", "tool_calls": [call]} if len(seen) > 1 else {"role": "assistant", "content": ""}
        return httpx2.Response(200, json={"id": "1", "object": "chat.completion", "choices": [{"message": message}]})

    blocks = kind is AzureOpenAI
    transport = httpx2.MockTransport(answer)
    http: Any = httpx2.Client(transport=transport) if blocks else httpx2.AsyncClient(transport=transport)
    client = wrap(
        kind(azure_endpoint="https://a.test", api_key="key", api_version="2026-01-01", http_client=http, max_retries=0)
    )
    if blocks:
        with client:
            reply = client.chat.completions.create(model="dep", messages=ASKED, tools=[TOOL])
    else:

        async def asked() -> Any:
            async with client:
                return await client.chat.completions.create(model="dep", messages=ASKED, tools=[TOOL])

        reply = asyncio.run(asked())
    assert reply.choices[0].message.tool_calls[0].function.name == "price"
    url = "https://a.test/openai/deployments/dep/chat/completions?api-version=2026-01-01"
    assert [(str(request.url), request.headers["api-key"]) for request in seen] == [(url, "key")] * 2


@pytest.mark.parametrize("blocks", [True, False], ids=["blocking", "awaited"])
def test_work_in_the_background(blocks: bool) -> None:
    """A Responses request with `background` starts a job and is sent once: that nothing is there yet is no fault."""
    seen: list[httpx2.Request] = []
    job: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "status": "queued",
        "output": [],
        "model": "m",
        "background": True,
    }

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, json=job)

    transport = httpx2.MockTransport(answer)
    if blocks:
        with wrap(OpenAI(base_url="http://u.test", api_key="k", http_client=httpx2.Client(transport=transport))) as one:
            started: Any = one.responses.create(model="m", input=QUESTION, background=True)
    else:

        async def asked() -> Any:
            http = httpx2.AsyncClient(transport=transport)
            async with wrap(AsyncOpenAI(base_url="http://u.test", api_key="k", http_client=http)) as client:
                return await client.responses.create(model="m", input=QUESTION, background=True)

        started = asyncio.run(asked())
    assert (started.id, started.status, len(seen)) == ("resp_1", "queued", 1)


def test_inside_a_running_loop() -> None:
    """A client that blocks works where an event loop runs in the same thread, streamed and not."""

    async def asked() -> None:
        for way in WAYS:
            if way.blocks:
                with ScriptedUpstream([Turn(Say("No.")), GOOD]) as upstream:
                    assert said(way, ask(way, upstream.url, wrap, forced=True)) == [CALL]

    asyncio.run(asked())


def test_nothing_stays_behind() -> None:
    """No thread, no task and no connection is left by a closed client; a stream that is given up ends upstream."""
    before = set(threading.enumerate())
    with ScriptedUpstream([Turn(Say("A hat costs 12 euros. " * 2000))] * 2) as upstream:
        ours = set(threading.enumerate()) - before
        with wrap(make_client(SYNC, upstream.url)) as client:
            stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
            next(iter(stream))
            stream.close()
            unread = client.chat.completions.create(model="m", messages=ASKED, stream=True)
            unread.close()
        assert set(threading.enumerate()) - before == ours
        ends = [request.ended for request in upstream.wait_until_done()]
        assert ends == [End.DISCONNECTED, End.DISCONNECTED]
        upstream.wait_for_connections(0)


async def test_nothing_stays_behind_asynchronously() -> None:
    """The same on an event loop; the turn runs in the caller's own task."""
    async with ScriptedUpstream([Turn(Say("A hat costs 12 euros. " * 2000))] * 2) as upstream:
        async with wrap(make_client(ASYNC, upstream.url)) as client:
            stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            await anext(aiter(stream))
            await stream.close()
            unread = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
            await unread.close()
        assert [request.ended for request in await upstream.await_done()] == [End.DISCONNECTED, End.DISCONNECTED]
        await upstream.await_connections(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_stream_that_is_forgotten() -> None:
    """A stream that nobody closes leaves no open event loop when it is collected."""
    script = [Turn(Say("A hat costs 12 euros."))]
    with ScriptedUpstream(script) as upstream, wrap(make_client(SYNC, upstream.url)) as client:
        stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
        assert stream.response.status_code == 200
        del stream
        gc.collect()


def test_threads_wait_side_by_side() -> None:
    """Threads that share a client wait for the upstream at the same time: steps take turns, waiting does not."""
    with ScriptedUpstream([Hang(Turn(Say("one"))), Hang(Turn(Say("two"))), Hang(Turn(Say("three")))]) as upstream:
        with wrap(make_client(SYNC, upstream.url)) as client:
            heard: list[str | None] = []

            def listen() -> None:
                reply = client.chat.completions.create(model="m", messages=ASKED)
                heard.append(reply.choices[0].message.content)

            threads = [threading.Thread(target=listen) for _ in range(3)]
            for thread in threads:
                thread.start()
            upstream.wait_for_requests(3)
            upstream.release()
            for thread in threads:
                thread.join()
        assert sorted(map(str, heard)) == ["one", "three", "two"]


def test_what_turns_teach_is_kept() -> None:
    """Rule 139: the rung that worked is where the next forced turn of the same client begins."""
    prose, call = Turn(Say("No.")), Turn(Say('{"name": "price", "arguments": {"item": "hat"}}'))
    with ScriptedUpstream(lambda request: call if "response_format" in request.body else prose) as upstream:
        with wrap(make_client(SYNC, upstream.url)) as client:
            for _ in range(3):
                reply = client.chat.completions.create(model="m", messages=ASKED, tools=[TOOL], tool_choice="required")
                assert reply.choices[0].message.tool_calls[0].function.name == "price"
        forms = ["schema" if "response_format" in request.body else "native" for request in upstream.requests]
        assert forms == ["native", "schema", "schema", "schema"]


def test_turns_are_told() -> None:
    """Telemetry of the process hears of each turn of a wrapped client, once."""
    heard: list[Event] = []
    stop = PROCESS.listen(heard.append)
    try:
        with ScriptedUpstream([GOOD, GOOD, Turn(Say("no"))], default=Turn(Say("no"))) as upstream:
            ask(SYNC, upstream.url, wrap)
            ask(Way(Wire.CHAT, blocks=True, streams=True), upstream.url, wrap)
            with pytest.raises(openai.UnprocessableEntityError):
                ask(SYNC, upstream.url, wrap, forced=True)
    finally:
        stop()
    ended = [event for event in heard if isinstance(event, TurnEnded)]
    assert [(event.model, event.error) for event in ended] == [("m", ""), ("m", ""), ("m", "force_unmet")]


@pytest.mark.parametrize("http", [httpx, httpx2], ids=lambda http: http.__name__)
def test_both_http_packages(http: Any) -> None:
    """Older SDKs are on `httpx`, newer ones on `httpx2`: the transport is of the package of the client it is for."""
    body = {"model": "m", "messages": ASKED, "tools": [TOOL], "tool_choice": "required"}
    for stream in (False, True):
        with ScriptedUpstream([Turn(Say("No.")), GOOD]) as upstream:
            endpoint = Endpoint(name="u/chat", wire=Wire.CHAT, base_url=upstream.base_url)
            contract, gate = Contract((endpoint,), OperatorSettings()), Turnstile()
            inner = http.Client()
            transport = ContractTransport(http, inner, contract, OPENAI_ROUTES, gate)
            with http.Client(transport=transport) as client:
                reply = client.post(f"{upstream.base_url}/chat/completions", json={**body, "stream": stream})
                assert b'"price"' in reply.content
            assert inner.is_closed
        with ScriptedUpstream([Turn(Say("No.")), GOOD]) as upstream:
            asked = f"{upstream.base_url}/chat/completions"
            endpoint = Endpoint(name="u/chat", wire=Wire.CHAT, base_url=upstream.base_url)

            async def post(asked: str = asked, endpoint: Endpoint = endpoint, *, stream: bool = stream) -> bytes:
                contract = Contract((endpoint,), OperatorSettings())
                transport = AsyncContractTransport(http, http.AsyncClient(), contract, OPENAI_ROUTES)
                async with http.AsyncClient(transport=transport) as client:
                    return (await client.post(asked, json={**body, "stream": stream})).content

            assert b'"price"' in asyncio.run(post())


def test_a_client_that_was_given_an_http_client() -> None:
    """Hooks, headers and transports of the client's own HTTP client stay in use, for each attempt."""
    sent: list[str] = []

    def note(request: httpx2.Request) -> None:
        sent.append(request.headers["x-own"])

    with ScriptedUpstream([Turn(Say("No.")), GOOD]) as upstream:
        http = httpx2.Client(event_hooks={"request": [note]})
        client = wrap(make_client(SYNC, upstream.url, http_client=http, default_headers={"x-own": "yes"}))
        with client:
            reply = client.chat.completions.create(model="m", messages=ASKED, tools=[TOOL], tool_choice="required")
        assert reply.choices[0].message.tool_calls[0].function.name == "price"
        assert http.is_closed
    assert sent == ["yes", "yes"]


def test_names_of_models_are_left_alone() -> None:
    """A model's name may begin with the name of its provider: it is sent as it is."""
    with ScriptedUpstream(default=Turn(Say("Hi."))) as upstream:
        host = upstream.url.removeprefix("http://")
        for model in ("openai/gpt-5", f"{host}/chat", "chat/m"):
            ask(SYNC, upstream.url, wrap, model=model)
            assert upstream.requests[-1].body["model"] == model


def test_anthropic_by_name() -> None:
    """The asynchronous client of Anthropic is of its own type, too."""
    client = anthropic.AsyncAnthropic(api_key="key")
    wrapped = wrap(client)
    assert_type(wrapped, anthropic.AsyncAnthropic)
    asyncio.run(wrapped.close())
    assert client.is_closed()
    assert isinstance(wrap(AsyncOpenAI(api_key="key")), AsyncOpenAI)


def test_a_failure_is_not_remembered() -> None:
    """Rule 144: code that asks the same again gets another turn, because nothing but itself can have asked."""
    with ScriptedUpstream([Turn(Say("No."))] * 5 + [GOOD]) as upstream:
        with wrap(make_client(SYNC, upstream.url)) as client:
            ask_again: dict[str, Any] = {"model": "m", "messages": ASKED, "tools": [TOOL], "tool_choice": "required"}
            with pytest.raises(openai.UnprocessableEntityError):
                client.chat.completions.create(**ask_again)
            reply = client.chat.completions.create(**ask_again)
        assert reply.choices[0].message.tool_calls[0].function.name == "price"
        assert len(upstream.requests) == 6


def test_beta_messages() -> None:
    """Messages under `beta` are turns, too; query and headers are sent as they are."""
    with ScriptedUpstream([Turn(Call("weather", {})), GOOD]) as upstream:
        with wrap(make_client(Way(Wire.MESSAGES, blocks=True, streams=False), upstream.url)) as client:
            offered: Any = {"name": "price", "input_schema": SCHEMA}
            reply = client.beta.messages.create(
                model="m",
                max_tokens=100,
                messages=ASKED,
                tools=[offered],
                betas=["some-beta"],
                extra_query={"beta": "true"},
            )
        assert [(block.name, block.input) for block in reply.content if block.type == "tool_use"] == [CALL]
        seen = [(request.query, request.headers["anthropic-beta"]) for request in upstream.requests]
        assert seen == [({"beta": "true"}, "some-beta")] * 2


async def test_cancelling() -> None:
    """A task that is cancelled while it waits ends the upstream's work."""
    async with ScriptedUpstream([Hang(GOOD)]) as upstream, wrap(make_client(ASYNC, upstream.url)) as client:
        asking = asyncio.create_task(client.chat.completions.create(model="m", messages=ASKED))
        await upstream.await_requests(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert [request.ended for request in await upstream.await_done()] == [End.DISCONNECTED]


def test_an_interrupt() -> None:
    """What is raised while a blocking client waits reaches the caller at once, and the client can be used again."""
    raised: list[BaseException] = [KeyboardInterrupt()]

    def interrupt(request: httpx2.Request) -> None:
        del request
        if raised:
            raise raised.pop()

    with ScriptedUpstream([GOOD]) as upstream:
        http = httpx2.Client(event_hooks={"request": [interrupt]})
        with wrap(make_client(SYNC, upstream.url, http_client=http)) as client:
            with pytest.raises(KeyboardInterrupt):
                client.chat.completions.create(model="m", messages=ASKED)
            reply = client.chat.completions.create(model="m", messages=ASKED, tools=[TOOL])
        assert reply.choices[0].message.tool_calls[0].function.name == "price"
        assert len(upstream.requests) == 1


def test_an_interrupt_inside_a_running_loop() -> None:
    """A turn whose caller was interrupted beside a running loop asks the upstream for nothing more."""
    main = threading.get_ident()
    with ScriptedUpstream([Hang(Turn(Say("No.")))], default=GOOD) as upstream:
        client = wrap(make_client(SYNC, upstream.url, max_retries=0))

        def interrupt() -> None:
            upstream.wait_for_requests(1)
            signal.pthread_kill(main, signal.SIGINT)

        async def asked() -> None:
            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    client.chat.completions.create(model="m", messages=ASKED, tools=[TOOL], tool_choice="required")
            finally:
                thread.join()

        before = set(threading.enumerate())
        with asyncio.Runner() as runner:
            runner.get_loop().run_until_complete(asked())
        upstream.release()
        for thread in set(threading.enumerate()) - before:
            thread.join()
        client.close()
        assert len(upstream.requests) == 1
