"""Recorded shapes of the chat wire, and the few tools its tests share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.origin import Value
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import Event
from mustcall.wire.chat import ChatCodec
from mustcall.wire.codec import Provenance
from mustcall.wire.sse import SseDecoder

_DATA = Path(__file__).parent / "data"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `recorded_request` or `recorded_reply` once per recorded shape."""
    for fixture, name in (("recorded_request", "requests"), ("recorded_reply", "replies")):
        if fixture in metafunc.fixturenames:
            shapes = json.loads((_DATA / f"{name}.json").read_text())
            metafunc.parametrize(fixture, list(shapes.values()), ids=list(shapes))


@pytest.fixture(scope="session")
def requests() -> dict[str, Any]:
    """All recorded requests by name."""
    return json.loads((_DATA / "requests.json").read_text())


def _bare(value: Any) -> Any:
    if isinstance(value, Value):
        fields = {name: _bare(getattr(value, name)) for name in value.__struct_fields__ if name != "origin"}
        return type(value)(**fields)
    return tuple(_bare(item) for item in value) if isinstance(value, tuple) else value


@pytest.fixture(scope="session")
def bare() -> Callable[[Any], Any]:
    """Return a function that strips origins from a value and all that is in it."""
    return _bare


def _events(*chunks: bytes) -> list[Event]:
    sse = SseDecoder()
    decoder = ChatCodec().stream_decoder(Provenance(issuer="up", token="t"))
    out = [event for chunk in chunks for message in sse.feed(chunk) for event in decoder.feed(message)]
    out += [event for message in sse.close() for event in decoder.feed(message)]
    return out + decoder.close()


@pytest.fixture(scope="session")
def read_stream() -> Callable[..., list[Event]]:
    """Return a function from chunks of bytes to canonical events."""
    return _events


@pytest.fixture(scope="session")
def assemble() -> Callable[[list[Event]], Assembler]:
    """Return a function from events to the assembler that took them."""

    def run(events: list[Event]) -> Assembler:
        assembler = Assembler()
        for event in events:
            assembler.feed(event)
        return assembler

    return run


@pytest.fixture(scope="session")
def sse_of() -> Callable[..., bytes]:
    """Return a function from JSON values (or bytes, sent as they are) to the bytes of their events."""

    def write(*values: Any) -> bytes:
        return b"".join(
            b"data: %b\n\n" % (value if isinstance(value, bytes) else msgspec.json.encode(value)) for value in values
        )

    return write


@pytest.fixture(scope="session")
def replies() -> dict[str, Any]:
    """All recorded replies by name."""
    return json.loads((_DATA / "replies.json").read_text())
