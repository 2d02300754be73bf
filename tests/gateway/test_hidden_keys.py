"""The operator's own key in an upstream's error: masked for callers, the page and the ledger; nothing else changes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import ContentsKept
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.testing import RunningGateway
from mustcall.testing.transport import FakeReply, FakeTransport
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.masking import MASK, Masking, secrets_of
from mustcall.upstream.seam import UpstreamCall
from support.http import post

KEY = 'sk-operator/"secret-1'
CALLER = "sk-of-the-caller-22"
HEADERS = {"X-Team": "weather-team", "Authorization-2": "Basic c2VjcmV0LWhlYWRlcg==", "X-Api-Token": "tok-99887766"}
ENDPOINT = Endpoint(
    name="a", wire=Wire.CHAT, base_url="http://u.invalid/v1", api_key=KEY, headers=HEADERS, server="other"
)
CALL = UpstreamCall(url="http://u.invalid/v1", headers={}, body=b"{}")
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
BODIES = {"chat/completions": ASK, "messages": ASK | {"max_tokens": 5}}


def echo(*, escaped: bool = False) -> bytes:
    """An error body that quotes both keys and the headers."""
    said = f"Incorrect API key provided: {KEY}, {CALLER}, {HEADERS}"
    written = json.dumps({"error": {"message": said, "type": "invalid_request_error", "code": "invalid_api_key"}})
    return written.replace("/", "\\/").encode() if escaped else written.encode()


def kept_in(folder: Path) -> bytes:
    """All bytes of a ledger's files."""
    return b"".join(file.read_bytes() for file in folder.glob("l.db*"))


def assert_masked(told: bytes) -> None:
    """No secret of the operator is there; other words are, the caller's key among them."""
    text = json.dumps(json.loads(told)) if told.startswith(b"{") else told.decode()
    for secret in ("secret-1", "c2VjcmV0", "tok-99887766"):
        assert secret not in text
        assert secret.encode() not in told
    assert "Incorrect API key provided" in text
    assert CALLER in text
    assert "weather-team" in text
    assert MASK in text


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("protocol", [Protocol.OFF, Protocol.NATIVE])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_an_error_that_quotes_the_key(
    tmp_path: Path, path: str, stream: bool, protocol: Protocol, escaped: bool
) -> None:
    """Neither the caller, whatever its wire, nor the trace gets a key or secret header; status and code stay."""
    place = tmp_path / "l.db"
    settings = settings_from_flags(
        "chat=http://u.invalid/v1",
        operator=OperatorSettings(controls=Controls(protocol=protocol)),
        ledger=LedgerSettings(place=str(place), contents=ContentsKept.FULL),
    )
    settings = msgspec.structs.replace(settings, endpoints=(ENDPOINT,))
    reply = FakeReply(echo(escaped=escaped), status=401, headers={"x-echo": KEY})
    with RunningGateway(settings=settings, transport=FakeTransport([reply])) as gateway:
        answer = await asyncio.to_thread(post, f"{gateway.base_url}/{path}", BODIES[path] | {"stream": stream})
    assert answer.status == 401
    assert_masked(answer.body)
    kept = kept_in(tmp_path)
    assert b"Incorrect API key" in kept
    assert b"secret-1" not in kept
    assert b"tok-99887766" not in kept


async def test_an_error_inside_a_success() -> None:
    """An error object with status 200 is masked as well, where its length is announced."""
    body = echo()
    inner = FakeReply(body, headers={"content-length": str(len(body))})
    reply = await Masking(FakeTransport([inner]), secrets_of([ENDPOINT])).send(CALL)
    assert_masked(await reply.read())


async def test_what_is_healthy_is_untouched() -> None:
    """A reply without an error is the very object or the very bytes, even one that holds the key."""
    whole = json.dumps({"choices": [{"message": {"content": f"You said {KEY}"}}]}).encode()
    long, short = FakeReply(whole), FakeReply(whole, headers={"content-length": str(len(whole))})
    masking = Masking(FakeTransport([long, short]), secrets_of([ENDPOINT]))
    assert await masking.send(CALL) is long
    reply = await masking.send(CALL)
    assert await reply.read() == whole
    assert (reply.status, reply.headers, reply.arrived) == (200, short.headers, False)
    await reply.close()
    assert short.closed


async def test_an_error_in_pieces() -> None:
    """A key that is split over two pieces is found."""
    body = echo()
    cut = body.index(b"operator")
    inner = FakeReply(body[:cut], body[cut:], status=400)
    reply = await Masking(FakeTransport([inner]), secrets_of([ENDPOINT])).send(CALL)
    assert_masked(b"".join([piece async for piece in reply.chunks()]))


def test_which_values_are_secret() -> None:
    """Keys and headers named like one; a stand-in like `none` or `ollama` is a word of other messages, and stays."""
    assert not secrets_of([Endpoint(name="a", wire=Wire.CHAT, base_url="http://h/v1", api_key="ollama")])
    assert not secrets_of([Endpoint(name="a", wire=Wire.CHAT, base_url="http://h/v1", headers={"X-Team": "weather-1"})])
    found = secrets_of([Endpoint(name="a", wire=Wire.CHAT, base_url="http://h/v1", headers={"Cookie": "id=abcdefgh"})])
    assert b"id=abcdefgh" in found
