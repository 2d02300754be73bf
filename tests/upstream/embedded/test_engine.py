"""The engine's queue, with a model that writes on until it is told to stop: who waits, who is free, what stays."""

import asyncio
import gc
import hashlib
import json
import os
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from pathlib import Path

import pytest

from mustcall.core.errors import UpstreamUnavailable
from mustcall.upstream.embedded import engine as engine_module
from mustcall.upstream.embedded.catalogue import FALLBACK, find_weights
from mustcall.upstream.embedded.engine import Chunk, EngineBroken, EngineRefused, ModelEngine
from mustcall.upstream.embedded.store import WeightStore, locate
from mustcall.upstream.embedded.transport import EmbeddedTransport
from mustcall.upstream.seam import Timeouts, UpstreamCall
from support.embedded import Endless

ASKED = json.dumps({"messages": [{"role": "user", "content": "hi"}], "stream": True}).encode()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Generator[Endless]:
    """The model that every engine of a test loads."""
    made = Endless.installed(monkeypatch)
    yield made
    assert not [thread for thread in threading.enumerate() if thread.name == "mustcall-model"]


@pytest.fixture
async def engine(endless: Endless) -> AsyncGenerator[ModelEngine]:
    """An engine that is closed after the test."""
    made = ModelEngine(Path("endless.gguf"), most_waiting=2)
    yield made
    await asyncio.to_thread(made.close)
    assert endless.begun


async def test_a_running_request_that_is_given_up_frees_the_model(engine: ModelEngine, endless: Endless) -> None:
    """An answer without an end is ended by giving it up: the next one begins."""
    first = engine.submit(b"first")
    assert isinstance(await first.next(), Chunk)
    second = engine.submit(b"second")
    first.cancel()
    assert isinstance(await second.next(), Chunk)
    assert endless.begun == [b"first", b"second"]
    assert engine.under_way == 1


async def test_what_is_given_up_while_it_waits_is_gone(engine: ModelEngine, endless: Endless) -> None:
    """Any number of requests can be given up behind a long one: none is begun, and no body is kept meanwhile."""
    first = engine.submit(b"first")
    assert isinstance(await first.next(), Chunk)
    for number in range(50):
        engine.submit(b"given up %d" % number).cancel()
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, engine_module.Job) and one.body.startswith(b"given")]
    assert not kept
    last = engine.submit(b"last")
    first.cancel()
    assert isinstance(await last.next(), Chunk)
    assert endless.begun == [b"first", b"last"]


async def test_closing_tells_those_who_wait(engine: ModelEngine, endless: Endless) -> None:
    """Closing ends the running request and tells those who wait, who are never begun."""
    first, second = engine.submit(b"first"), engine.submit(b"second")
    assert isinstance(await first.next(), Chunk)
    await asyncio.to_thread(engine.close)
    assert isinstance(await second.next(), EngineRefused)
    assert endless.begun == [b"first"]


async def test_a_closed_transport_loads_nothing(endless: Endless, tmp_path: Path) -> None:
    """What is tried again after closing is refused: the model is not loaded anew while everything shuts down."""
    file = tmp_path / "endless.gguf"
    file.write_bytes(b"GGUF")
    transport = EmbeddedTransport()
    call = UpstreamCall(
        url=f"embedded:{file}/chat/completions", headers={}, body=ASKED, timeouts=Timeouts(read=30.0, idle=30.0)
    )
    stream = await transport.send(call)
    async with aclosing(stream.chunks()) as chunks:
        assert await anext(chunks)
        await transport.close()
    with pytest.raises(UpstreamUnavailable, match="shut down"):
        await transport.send(call)
    assert len(endless.begun) == 1


@pytest.mark.parametrize("name", ["100%.gguf", "a%20b.gguf", "what?.gguf", "models.gguf", "a b#c.gguf"])
async def test_a_path_is_taken_as_it_is(endless: Endless, tmp_path: Path, name: str) -> None:
    """No character of a file's name means anything in the address, with a query behind it or without."""
    folder = tmp_path / "chat" / "completions" / "models"
    folder.mkdir(parents=True)
    file = folder / name
    file.write_bytes(b"GGUF")
    transport = EmbeddedTransport()
    for query in ("", "?beta=true"):
        url = f"embedded:{file}/chat/completions{query}"
        stream = await transport.send(UpstreamCall(url=url, headers={}, body=ASKED))
        assert stream.status == 200, await stream.read()
        await stream.close()
    await transport.close()
    assert len(endless.begun) == 2


async def test_a_library_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slim system lacks libraries of the engine: the one who waits is told which, and what to install."""

    def broken(_name: str) -> None:
        raise ImportError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr("mustcall.upstream.embedded.engine.importlib.import_module", broken)
    made = ModelEngine(Path("any.gguf"))
    told = await made.submit(b"{}").next()
    await asyncio.to_thread(made.close)
    assert isinstance(told, EngineBroken)
    assert "libgomp.so.1: cannot open" in told.message
    assert "apt-get install libgomp1 libstdc++6" in told.message


# --- which file is run ------------------------------------------------------------------------------------------------


async def _first_event(file: Path, sha256: str) -> object:
    """What the first request to a model file hears first."""
    made = ModelEngine(file, sha256=sha256)
    job = made.submit(b"first")
    try:
        return await job.next()
    finally:
        job.cancel()
        await asyncio.to_thread(made.close)


def _read_again(*_: object) -> None:
    pytest.fail("read again")


async def test_only_the_weights_that_were_fetched_are_run(
    endless: Endless, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of the same size in the place of known weights is not loaded; the right one is, and is read once."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF one")
    digest = hashlib.sha256(b"GGUF one").hexdigest()
    assert isinstance(await _first_event(file, digest), Chunk)
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", _read_again)
        assert isinstance(await _first_event(file, digest), Chunk)
    told = file.stat()
    file.write_bytes(b"GGUF two")
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))  # size, inode and date are those of the right one
    broken = await _first_event(file, digest)
    assert isinstance(broken, EngineBroken)
    assert "is not the one that was fetched" in broken.message
    assert len(endless.begun) == 2


def test_a_name_stands_for_a_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that go by a name of the catalogue must have its hash; a file that goes by its path may be any."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    weights = find_weights(FALLBACK)
    file = WeightStore().path(weights)
    file.parent.mkdir()
    with file.open("wb") as placed:
        placed.write(b"GGUF")
        placed.truncate(weights.size)
    assert locate(FALLBACK).sha256 == weights.sha256
    assert locate(str(file)).sha256 == ""
