"""What an upstream is sent besides the body, as a table: provider headers, one key, and the endpoint's own words."""

from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.upstream.endpoint import Endpoint, caller_key, request_headers

ALWAYS = {
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "identity",
    "user-agent": "mustcall",
}
VERSION = {"anthropic-version": "2023-06-01"}
OPENAI = [Wire.CHAT, Wire.RESPONSES]


def endpoint(wire: Wire = Wire.CHAT, **fields: Any) -> Endpoint:
    """An endpoint that differs in these fields."""
    return Endpoint(name="up", wire=wire, base_url="http://up/v1", **fields)


def keys(headers: dict[str, str]) -> dict[str, str]:
    """Only the headers that open doors."""
    return {name: value for name, value in headers.items() if name in ("authorization", "x-api-key")}


@pytest.mark.parametrize("same_wire", [True, False])
@pytest.mark.parametrize("wire", Wire)
def test_headers_of_a_bare_request(wire: Wire, same_wire: bool) -> None:
    """A caller without headers: ours, and the version that the Messages wire demands."""
    expected = ALWAYS | VERSION if wire is Wire.MESSAGES else ALWAYS
    assert request_headers(endpoint(wire), {}, same_wire=same_wire, stream=False) == expected


@pytest.mark.parametrize("wire", Wire)
def test_stream_is_asked_for_as_events(wire: Wire) -> None:
    """A stream is asked for as one, and nothing else changes."""
    streamed = request_headers(endpoint(wire), {}, same_wire=True, stream=True)
    whole = request_headers(endpoint(wire), {}, same_wire=True, stream=False)
    assert streamed == whole | {"accept": "text/event-stream"}


FORWARDED = {
    "anthropic-beta": "context-1m-2025-08-07,interleaved-thinking",
    "anthropic-version": "2099-01-01",
    "anthropic-dangerous-direct-browser-access": "true",
    "openai-organization": "org",
    "openai-project": "proj",
    "openai-beta": "responses=v1",
    "idempotency-key": "once",
    "user-agent": "claude-cli/2.0",
}
KEPT_BACK = {
    "accept": "text/html",
    "accept-encoding": "gzip, br",
    "connection": "keep-alive",
    "content-length": "12",
    "content-type": "text/plain",
    "cookie": "session=1",
    "host": "gateway.example",
    "origin": "http://page.example",
    "proxy-authorization": "Basic abc",
    "transfer-encoding": "chunked",
    "x-anthropic-odd": "1",
    "x-forwarded-for": "10.0.0.1",
    "x-stainless-lang": "python",
}


@pytest.mark.parametrize("wire", Wire)
def test_provider_headers_travel_on_the_same_wire(wire: Wire) -> None:
    """What means something to the provider reaches it; what means something to this hop does not."""
    sent = request_headers(endpoint(wire), FORWARDED | KEPT_BACK, same_wire=True, stream=False)
    assert sent == ALWAYS | FORWARDED


@pytest.mark.parametrize("wire", Wire)
def test_nothing_travels_to_another_wire(wire: Wire) -> None:
    """Another provider's headers would mean nothing, or something else."""
    sent = request_headers(endpoint(wire), FORWARDED | KEPT_BACK, same_wire=False, stream=False)
    assert sent == request_headers(endpoint(wire), {}, same_wire=False, stream=False)


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        ({"authorization": "Bearer k"}, {"authorization": "Bearer k"}),
        ({"authorization": "Basic dTpw"}, {"authorization": "Basic dTpw"}),
        ({"x-api-key": "k"}, {"x-api-key": "k"}),
        ({"x-api-key": "k", "authorization": "Bearer o"}, {"x-api-key": "k", "authorization": "Bearer o"}),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("wire", Wire)
def test_key_keeps_its_form_on_the_same_wire(wire: Wire, caller: dict[str, str], expected: dict[str, str]) -> None:
    """Some doors take only one of the two forms, so the caller's choice stands."""
    assert keys(request_headers(endpoint(wire), caller, same_wire=True, stream=False)) == expected


@pytest.mark.parametrize(
    ("caller", "key"),
    [
        ({"authorization": "Bearer k"}, "k"),
        ({"authorization": "bearer  k "}, "k"),
        ({"x-api-key": "k"}, "k"),
        ({"x-api-key": "k", "authorization": "Bearer other"}, "k"),
        ({"x-api-key": "", "authorization": "Bearer k"}, "k"),
        ({"authorization": "Basic dTpw"}, None),
        ({"authorization": "Bearer"}, None),
        ({"authorization": "Bearer  "}, None),
        ({"authorization": ""}, None),
        ({}, None),
    ],
)
def test_key_takes_the_other_wires_form(caller: dict[str, str], key: str | None) -> None:
    """Across wires the caller's key goes into the one header the upstream's wire uses."""
    assert caller_key(caller) == key
    for wire in OPENAI:
        sent = request_headers(endpoint(wire), caller, same_wire=False, stream=False)
        assert keys(sent) == ({} if key is None else {"authorization": f"Bearer {key}"})
    sent = request_headers(endpoint(Wire.MESSAGES), caller, same_wire=False, stream=False)
    assert keys(sent) == ({} if key is None else {"x-api-key": key})


@pytest.mark.parametrize("forward_key", [True, False])
@pytest.mark.parametrize("same_wire", [True, False])
@pytest.mark.parametrize("wire", Wire)
def test_configured_key_wins(wire: Wire, same_wire: bool, forward_key: bool) -> None:
    """The upstream sees the configured key in its own form and nothing of the caller's."""
    caller = {"authorization": "Bearer theirs", "x-api-key": "theirs"}
    up = endpoint(wire, api_key="ours", forward_key=forward_key)
    sent = request_headers(up, caller, same_wire=same_wire, stream=False)
    assert keys(sent) == ({"x-api-key": "ours"} if wire is Wire.MESSAGES else {"authorization": "Bearer ours"})
    assert "theirs" not in str(sent)


@pytest.mark.parametrize("same_wire", [True, False])
@pytest.mark.parametrize("wire", Wire)
def test_key_is_not_forwarded_against_the_settings(wire: Wire, same_wire: bool) -> None:
    """`forward_key = false`: an upstream without a key of its own gets none."""
    caller = {"authorization": "Bearer theirs", "x-api-key": "theirs"}
    sent = request_headers(endpoint(wire, forward_key=False), caller, same_wire=same_wire, stream=False)
    assert "theirs" not in str(sent)
    assert keys(sent) == {}


def test_endpoints_own_headers_win() -> None:
    """Configured headers replace any other, the key and the caller's included, whatever their spelling."""
    own = {"User-Agent": "house", "Anthropic-Version": "2024-01-01", "X-API-Key": "special", "x-extra": "1"}
    up = endpoint(Wire.MESSAGES, api_key="ours", headers=own)
    sent = request_headers(up, FORWARDED, same_wire=True, stream=False)
    assert sent == ALWAYS | FORWARDED | {name.lower(): value for name, value in own.items()}


def test_repr_keeps_secrets() -> None:
    """Neither the key nor configured headers are written into logs by accident."""
    shown = repr(endpoint(Wire.CHAT, api_key="sk-secret", headers={"x-token": "hidden"}))
    assert "sk-secret" not in shown
    assert "hidden" not in shown
    assert "http://up/v1" in shown
