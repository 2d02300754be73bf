"""The embedded model behind the seam: it answers like an endpoint, waits its turn, and lets go when told.

The engine is the real one everywhere. One test runs the smallest model of the catalogue; the others ask what does not
depend on the weights, of a model that is made for them.
"""

import asyncio
import json
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mustcall.core.errors import UpstreamTimeout
from mustcall.core.origin import Wire
from mustcall.upstream.embedded import engine
from mustcall.upstream.embedded.bodies import EngineRequest, read_request
from mustcall.upstream.embedded.engine import Chunk, EngineClosed, ModelEngine
from mustcall.upstream.embedded.transport import EmbeddedTransport
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import Timeouts, UpstreamCall
from mustcall.wire.registry import codec_for
from support.embedded import BASE_URL, readied
from support.tiny import tiny_model

CODEC = codec_for(Wire.CHAT)
HELLO = [{"role": "user", "content": "What is the capital of Norway?"}]
LONG = [{"role": "user", "content": "word " * 1500}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}


def ask(url: str, body: object, *, read: float = 120.0) -> UpstreamCall:
    """Return a call of a model."""
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return UpstreamCall(url=url, headers={}, body=encoded, timeouts=Timeouts(read=read))


def shaped(schema: object) -> dict[str, Any]:
    """Return a request for an answer by this schema."""
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    # Enough for the longest text the grammar allows: blanks at every place, and every character escaped.
    return {"messages": HELLO, "max_tokens": 400, "response_format": form}


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a model that answers at once."""
    return f"embedded:{tiny_model(tmp_path_factory.mktemp('models'))}/chat/completions"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that takes seconds to fill its context, so that it can be given up in the middle."""
    return tiny_model(tmp_path_factory.mktemp("models"), slow=True)


@pytest.fixture
async def model() -> AsyncGenerator[EmbeddedTransport]:
    """A transport whose model is freed after the test, and its thread with it."""
    made = EmbeddedTransport(most_waiting=2)
    yield made
    await made.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "mustcall-model"]


async def whole(model: EmbeddedTransport, url: str, body: object) -> tuple[int, dict[str, Any]]:
    """Ask and read the whole answer."""
    reply = await model.send(ask(url, body))
    return reply.status, json.loads(await reply.read())


async def test_whole_answer(model: EmbeddedTransport) -> None:
    """A model of the catalogue: an answer in one piece has text, a finish, usage and the model's name."""
    readied()
    status, body = await whole(model, f"{BASE_URL}/chat/completions", {"messages": HELLO, "max_tokens": 12})
    assert status == 200
    assert body["object"] == "chat.completion"
    assert body["model"] == "smollm2-135m"
    assert body["choices"][0]["message"]["content"].strip()
    assert body["choices"][0]["finish_reason"] in ("stop", "length")
    used = body["usage"]
    assert 0 < used["completion_tokens"] <= 12
    assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]


async def test_streamed_answer(model: EmbeddedTransport, quick: str) -> None:
    """A stream is events, several of them, with usage where it is asked for, ended by `[DONE]`."""
    body = {"messages": HELLO, "max_tokens": 12, "stream": True, "stream_options": {"include_usage": True}}
    reply = await model.send(ask(quick, body))
    assert reply.headers["content-type"] == "text/event-stream"
    async with aclosing(reply.chunks()) as chunks:
        events = [chunk async for chunk in chunks]
    assert len(events) > 3
    assert events[-1] == b"data: [DONE]\n\n"
    assert json.loads(events[-2].removeprefix(b"data: "))["usage"]["completion_tokens"] > 0
    assert json.loads(events[0].removeprefix(b"data: "))["choices"][0]["delta"]["role"] == "assistant"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_over_the_context(model: EmbeddedTransport, quick: str, stream: bool) -> None:
    """A prompt that does not fit is a 400 in the words every client acts on, also for a stream."""
    reply = await model.send(ask(quick, {"messages": [{"role": "user", "content": "word " * 1800}], "stream": stream}))
    info = CODEC.decode_error(reply.status, await reply.read())
    assert (info.status, info.code) == (400, "context_length_exceeded")
    assert "8192" in info.message


async def test_answers_by_schema(model: EmbeddedTransport, quick: str) -> None:
    """A JSON schema holds the answer; one the grammar engine cannot express is a 400 that says so."""
    status, body = await whole(model, quick, shaped(SCHEMA))
    assert status == 200
    assert set(json.loads(body["choices"][0]["message"]["content"])) == {"city"}
    for impossible in ({"type": "alien"}, {"$ref": "#/$defs/gone"}, {"type": "string", "minLength": 100_000}):
        status, body = await whole(model, quick, shaped(impossible))
        assert status == 400, impossible
        assert body["error"]["code"] == "invalid_schema"
        assert "cannot express" in body["error"]["message"]


async def test_what_is_not_there(model: EmbeddedTransport, tmp_path: Path) -> None:
    """Bad bodies, other paths, models that are not there or are no models: each an error of its own, none a crash."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model at all")
    for url, body, status, code in (
        (f"{BASE_URL}/chat/completions", b"{", 400, "invalid_request"),
        (f"{BASE_URL}/chat/completions", {"messages": HELLO, "n": 2}, 400, "invalid_request"),
        (f"{BASE_URL}/embeddings", {"messages": HELLO}, 404, "model_not_found"),
        ("embedded:nothing/chat/completions", {"messages": HELLO}, 404, "model_not_found"),
        ("embedded:/no/model.gguf/chat/completions", {"messages": HELLO}, 404, "model_not_found"),
        (f"embedded:{broken}/chat/completions", {"messages": HELLO}, 404, "model_not_found"),
    ):
        reply = await model.send(ask(url, body))
        assert (reply.status, json.loads(await reply.read())["error"]["code"]) == (status, code), url


async def test_models_are_listed(model: EmbeddedTransport) -> None:
    """`GET …/models` names the model."""
    call = UpstreamCall(url=f"{BASE_URL}/models", headers={}, body=None, method="GET")
    assert json.loads(await (await model.send(call)).read())["data"][0]["id"] == "smollm2-135m"


async def test_a_request_given_up_while_its_prompt_is_read(slow: Path) -> None:
    """A running request and a waiting one are given up: the model is free for the next one."""
    engine = ModelEngine(slow)
    try:
        long, short = (read_request(json.dumps({"messages": said, "max_tokens": 1}).encode()) for said in (LONG, HELLO))
        assert isinstance(long, EngineRequest)
        assert isinstance(short, EngineRequest)
        reading, waiting = engine.submit(long.body), engine.submit(long.body)
        assert isinstance(await reading.next(), Chunk)  # it has begun
        reading.cancel()
        waiting.cancel()
        assert engine.under_way == 0
        job = engine.submit(short.body)
        while (event := await job.next()) is not None:
            assert isinstance(event, Chunk)
    finally:
        await asyncio.to_thread(engine.close)
    with pytest.raises(EngineClosed):
        engine.submit(b"{}")


async def test_a_stream_given_up_frees_the_model(model: EmbeddedTransport, slow: Path) -> None:
    """A stream that is closed in its middle ends its generation: the next request is served."""
    url = f"embedded:{slow}/chat/completions"
    stream = await model.send(ask(url, {"messages": HELLO, "max_tokens": 8000, "stream": True}))
    async with aclosing(stream.chunks()) as chunks:
        assert await anext(chunks)
    await stream.close()
    status, _ = await whole(model, url, {"messages": HELLO, "max_tokens": 2})
    assert status == 200


async def test_requests_wait_in_order_and_not_without_end(model: EmbeddedTransport, quick: str) -> None:
    """One is worked on and two may wait; one more is told to come back, and all that wait are served in order."""
    order: list[int] = []

    async def numbered(number: int) -> int:
        status, _ = await whole(model, quick, {"messages": HELLO, "max_tokens": 3})
        order.append(number)
        return status

    tasks = [asyncio.create_task(numbered(number)) for number in range(3)]
    await asyncio.sleep(0)
    refused = await model.send(ask(quick, {"messages": HELLO}))
    info = CODEC.decode_error(refused.status, await refused.read())
    assert (info.status, info.code) == (503, "model_busy")
    assert refused.headers["retry-after"]
    assert await asyncio.gather(*tasks) == [200, 200, 200]
    assert order == [0, 1, 2]


async def test_time_runs_out(model: EmbeddedTransport, slow: Path) -> None:
    """An answer that does not begin in time is a timeout, and the model is free again."""
    url = f"embedded:{slow}/chat/completions"
    with pytest.raises(UpstreamTimeout):
        await model.send(ask(url, {"messages": LONG, "max_tokens": 1}, read=0.1))
    status, _ = await whole(model, url, {"messages": HELLO, "max_tokens": 2})
    assert status == 200


async def test_closing_ends_what_runs(slow: Path) -> None:
    """Closing in the middle of a generation ends the stream with an error, and nothing more is taken."""
    model = SchemeTransport()
    url = f"embedded:{slow}/chat/completions"
    stream = await model.send(ask(url, {"messages": HELLO, "max_tokens": 8000, "stream": True}))
    async with aclosing(stream.chunks()) as chunks:
        await anext(chunks)
        await model.close()
        rest = [chunk async for chunk in chunks]
    assert any(b'"error"' in chunk for chunk in rest)
    assert b"data: [DONE]\n\n" not in rest


def resident() -> int:
    """Return this process's resident memory in MiB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) // 1024


async def test_memory_stays_bounded(model: EmbeddedTransport, quick: str) -> None:
    """Different prompts leave no more behind than the first: no prompt is kept beside the context."""

    async def say(number: int) -> None:
        words = f"{number} and more " * 50
        await whole(model, quick, {"messages": [{"role": "user", "content": words}], "max_tokens": 2})

    for number in range(10):
        await say(number)
    before = resident()
    for number in range(10, 50):
        await say(number)
    assert resident() - before < 4


class Parameters(SimpleNamespace):
    """What the library is told when a model is loaded."""

    def __init__(self) -> None:
        super().__init__(model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())


class Loop:
    """The library's server; its loop has run once it has answered something."""

    made: "list[Loop]"

    def __init__(self, given: Parameters) -> None:
        self.given = given
        self.answered = 0
        self.made.append(self)

    def handle_metrics(self) -> str:
        """Answer from the loop, which the library refuses unless it was told to allow it."""
        assert self.given.endpoint_metrics
        self.answered += 1
        return ""


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Loop]:
    """Stand in for the library; return the servers that it makes."""
    Loop.made = []
    monkeypatch.setitem(sys.modules, "xllamacpp", SimpleNamespace(CommonParams=Parameters, Server=Loop))
    monkeypatch.setattr(engine, "engine_problem", lambda: None)
    return Loop.made


def test_no_prompt_is_kept_beside_the_context(loops: list[Loop]) -> None:
    """The library is told to have one slot of a fixed size, and neither a store of prompts nor checkpoints."""
    engine._load(Path("some.gguf"), 8192)
    (given,) = (loop.given for loop in loops)
    assert (given.n_ctx, given.n_parallel, given.cache_ram_mib, given.n_ctx_checkpoints) == (8192, 1, 0, 0)


def test_a_model_is_loaded_once_its_loop_runs(loops: list[Loop]) -> None:
    """Freeing one before that waits for ever: its loop misses the word to stop."""
    assert engine._load(Path("some.gguf"), 8192) is loops[0]
    assert [loop.answered for loop in loops] == [1]


def test_the_loop_of_the_library_answers(tmp_path: Path) -> None:
    """It does not refuse what loading waits for."""
    loaded: Any = engine._load(tiny_model(tmp_path), 512)
    assert "llamacpp:prompt_tokens_total 0" in loaded.handle_metrics()
