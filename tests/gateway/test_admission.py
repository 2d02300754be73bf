"""Shares of one process: slots and bytes of bodies, in total and for each key."""

import threading
from collections.abc import MutableMapping
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import BodyTooLarge, GatewayBusy
from mustcall.core.limits import DEFAULTS
from mustcall.gateway import service
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.connections.admission import Admission, HeldBytes, check_elements
from mustcall.gateway.connections.receiving import read_body
from mustcall.testing import RunningGateway, Say, ScriptedUpstream, Turn
from support.http import post


def test_no_key_of_several_takes_all_slots() -> None:
    """One key gets half of the slots, and the other is served all the same."""
    admission = Admission(DEFAULTS, most=4, keys=2)
    with admission.slot("a"), admission.slot("a"):
        with pytest.raises(GatewayBusy, match="key_concurrency"), admission.slot("a"):
            pass
        with admission.slot("b"), admission.slot("b"):
            assert admission.under_way == 4
            with pytest.raises(GatewayBusy, match="max_concurrency"), admission.slot("b"):
                pass
    assert admission.under_way == 0
    with admission.slot("a"):
        pass


def test_a_single_key_and_no_key_take_all() -> None:
    """Where there is nobody else, there is nothing to share; a setting is kept all the same."""
    for key, keys in ((None, 0), ("a", 1)):
        admission = Admission(DEFAULTS, most=2, keys=keys)
        with admission.slot(key), admission.slot(key):
            pass
    admission = Admission(msgspec.structs.replace(DEFAULTS, key_concurrency=1), most=2, keys=1)
    with admission.slot("a"), pytest.raises(GatewayBusy), admission.slot("a"):
        pass


@pytest.mark.parametrize("pieces", [[bytearray(b"{}")], [bytearray(b"{"), bytearray(b"}")], [b"{}"]])
async def test_a_body_is_bytes_whatever_the_server_hands_over(pieces: list[bytes]) -> None:
    """Uvicorn up to 0.41 hands over what its protocol holds; stores of what was read before need something fixed."""
    given = [
        {"type": "http.request", "body": piece, "more_body": place < len(pieces)}
        for place, piece in enumerate(pieces, start=1)
    ]

    async def receive() -> MutableMapping[str, Any]:
        return given.pop(0)

    held = HeldBytes(Admission(DEFAULTS, most=9, keys=0), None)
    body = await read_body(receive, "2", settings_from_flags("chat=http://127.0.0.1:1/v1"), held)
    assert body == b"{}"
    assert type(body) is bytes


def test_bytes_of_bodies_are_shared() -> None:
    """One key holds half of the bytes at most; what was refused is not held."""
    admission = Admission(msgspec.structs.replace(DEFAULTS, bodies_bytes=100), most=9, keys=2)
    first, second, other = HeldBytes(admission, "a"), HeldBytes(admission, "a"), HeldBytes(admission, "b")
    first.take(40)
    with pytest.raises(GatewayBusy, match="key_bodies_bytes"):
        second.take(11)
    second.take(10)
    other.take(50)
    with pytest.raises(GatewayBusy):
        other.take(1)
    for held in (first, second, other):
        held.give_back()
    HeldBytes(admission, "a").take(50)


def test_a_reload_changes_the_shares() -> None:
    """Rule 120: new settings hold at once, for what is under way as well."""
    admission = Admission(DEFAULTS, most=1, keys=0)
    with admission.slot(None):
        admission.change(DEFAULTS, most=2, keys=0)
        with admission.slot(None):
            assert admission.under_way == 2


async def test_bodies_of_too_many_values_are_refused() -> None:
    """Rule 68: 63 MB of brackets are refused before they are read; a long text is not."""
    with pytest.raises(BodyTooLarge, match="100000 values"):
        await check_elements(b"[" + b"[]," * 1_000_000 + b"0]", DEFAULTS.body_elements)
    await check_elements(b'{"content":"' + b"one, two [three] " * 100_000 + b'"}', DEFAULTS.body_elements)


@pytest.mark.parametrize(("size", "beside"), [(1_000_000, False), (1_100_000, True)])
def test_a_large_body_is_opened_beside_the_loop(size: int, beside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 113: the fields of a body above a megabyte are found in a thread; the request arrives as it was sent."""
    opened, threads = service._opened, list[str]()

    def noted(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return opened(*args)

    monkeypatch.setattr(service, "_opened", noted)
    asked = {"model": "m", "messages": [{"role": "user", "content": "x" * size}]}
    with ScriptedUpstream([Turn(Say("Fine."))]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        assert post(f"{gateway.base_url}/chat/completions", asked).status == 200
        assert [one.body for one in upstream.requests] == [asked]
    assert [name.startswith("mustcall-aside") for name in threads] == [beside]


async def test_the_tables_of_every_turn_are_there_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 113: a gateway has read its profiles and compiled its marks when its start-up is complete."""
    told: list[str] = []
    monkeypatch.setattr(service, "warm", lambda: told.append("warm"))
    app = Gateway(settings_from_flags("chat=http://127.0.0.1:9/v1"))
    asked = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, Any]:
        return {"type": next(asked)}

    async def send(message: MutableMapping[str, Any]) -> None:
        told.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert told == ["warm", "lifespan.startup.complete", "lifespan.shutdown.complete"]
