"""Typed errors at the official SDKs: each becomes the exception that the SDK has for it, whole and streamed."""

import asyncio
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from mustcall.core.origin import Wire
from mustcall.testing import FakeClock, RunningGateway
from mustcall.testing.probed import Lie, LyingServer
from mustcall.testing.probed.ways import always, fails
from mustcall.upstream.schemes import SchemeTransport
from mustcall.upstream.seam import UpstreamCall
from mustcall.wire.registry import codec_for
from support.sdk_reading import TakingTransport, class_for, read_by_sdk

_STATUSES = (400, 401, 403, 404, 413, 422, 429, 500, 503, 529)
_BODIES: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"model": "honest", "messages": [{"role": "user", "content": "Hello"}]},
    Wire.RESPONSES: {"model": "honest", "input": "Hello"},
    Wire.MESSAGES: {"model": "honest", "max_tokens": 64, "messages": [{"role": "user", "content": "Hello"}]},
}
_SDKS = {Wire.CHAT: openai, Wire.RESPONSES: openai, Wire.MESSAGES: anthropic}


async def asked(server: LyingServer, caller: Wire, upstream: Wire, **fields: Any) -> tuple[int, Exception | None]:
    """Ask through a gateway; return the status and what the SDK raises for the answer."""
    transport = TakingTransport(SchemeTransport())
    flag = f"up:{upstream}=http://probed.invalid/v1"
    with RunningGateway(flag, transport=server, clock=FakeClock()) as gateway:
        try:
            reply = await transport.send(
                UpstreamCall(
                    url=gateway.base_url + codec_for(caller).path,
                    headers={"content-type": "application/json", "authorization": "Bearer key"},
                    body=msgspec.json.encode(_BODIES[caller] | fields),
                )
            )
            await reply.read()
            await reply.close()
        finally:
            await transport.close()
            await asyncio.sleep(0)
    (taken,) = transport.taken
    return taken.status, read_by_sdk(taken)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("status", _STATUSES)
@pytest.mark.parametrize("upstream", list(Wire))
@pytest.mark.parametrize("caller", list(Wire))
async def test_an_upstream_error_is_the_sdks_exception(
    caller: Wire, upstream: Wire, status: int, *, stream: bool
) -> None:
    """The upstream's status decides the class, on every pair of wires."""
    lie = Lie(name="fails", breaks="", owner="server", sends=fails(always, status, "no, because of that"))
    got, raised = await asked(LyingServer(lie), caller, upstream, stream=stream)
    assert type(raised) is class_for(_SDKS[caller], status), (got, raised)
    assert "no, because of that" in str(raised)


@pytest.mark.parametrize("caller", list(Wire))
async def test_a_request_that_cannot_be_read_is_the_callers_fault(caller: Wire) -> None:
    """`BadRequestError`, and the upstream is not asked."""
    server = LyingServer()
    got, raised = await asked(server, caller, caller, tools="none")
    assert (got, type(raised), server.requests) == (400, _SDKS[caller].BadRequestError, [])
