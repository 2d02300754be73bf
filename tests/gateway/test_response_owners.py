"""Responses that an upstream keeps under the operator's key: each caller reaches its own only."""

from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import openai
import pytest

from mustcall.gateway.config.settings import Settings, settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.testing import RunningGateway, Say, ScriptedUpstream, Turn


def shared(address: str, place: Path | None, keys: tuple[str, ...] = ("alice", "bob")) -> Settings:
    """Settings of a gateway whose callers have keys of their own and share the operator's."""
    ledger = None if place is None else LedgerSettings(place=str(place), responses=False)
    made = settings_from_flags(f"responses={address}", ledger=ledger)
    endpoints = tuple(msgspec.structs.replace(each, api_key="sk-operator") for each in made.endpoints)
    return msgspec.structs.replace(made, endpoints=endpoints, client_keys=keys)


def client(gateway: RunningGateway, key: str) -> openai.OpenAI:
    """The official client of one caller."""
    return openai.OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0)


@pytest.mark.parametrize("stream", [False, True])
def test_another_callers_response_is_not_there(stream: bool, tmp_path: Path) -> None:
    """Nobody reads, deletes, goes on from or refers to what went to another; the upstream is not even asked."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        RunningGateway(settings=shared(served.base_url, tmp_path / "l.db")) as gateway,
        client(gateway, "alice") as alice,
        client(gateway, "bob") as bob,
    ):
        if stream:
            with alice.responses.stream(model="m", input="a") as events:
                made = events.get_final_response()
        else:
            made = alice.responses.create(model="m", input="a")
        item = str(cast("Any", made.output[0]).id)
        for attempt in (
            lambda: bob.responses.retrieve(made.id),
            lambda: bob.responses.delete(made.id),
            lambda: bob.responses.input_items.list(made.id),
            lambda: bob.responses.create(model="m", input="x", previous_response_id=made.id),
            lambda: bob.responses.create(model="m", input=[{"type": "item_reference", "id": item}]),
            lambda: bob.responses.create(model="m", input=[{"id": item}]),
            lambda: bob.responses.create(model="m", input="x", conversation="conv_1"),
            lambda: bob.responses.create(model="m", input="x", previous_response_id="resp_\0"),
        ):
            with pytest.raises(openai.NotFoundError):
                attempt()
        assert len(served.requests) == 1
        alice.responses.create(model="m", input="b", previous_response_id=made.id)
        alice.responses.create(model="m", input=[{"type": "item_reference", "id": item}])
        assert served.requests[1].body["previous_response_id"] == made.id
    assert len(served.requests) == 3


@pytest.mark.parametrize(
    "asked",
    [
        rb'{"model":"m","input":"x","previous_response_\u0069d":"%(response)b"}',
        rb'{"model":"m","input":"x","conversatio\u006e":"conv_1"}',
        rb'{"model":"m","input":[{"type":"item\u005freference","id":"%(item)b"}]}',
        rb'{"model":"m","input":[{"\u0069d":"%(item)b"}]}',
        rb'{"model":"m","input":[{"id":"%(item)b","type":null}]}',
        rb'{"model":"m","input":[{"id":"x\"","id":"%(item)b"}]}',
        rb'{"model":"m","input":[{"id":1,"id":"%(item)b"}]}',
        rb'{"model":"m","input":"' + b"x" * 300_000 + rb'","previous_response_\u0069d":"%(response)b"}',
    ],
    ids=["response", "conversation", "type", "bare", "null", "quote", "twice", "large"],
)
def test_another_callers_response_is_not_there_however_it_is_spelled(asked: bytes, tmp_path: Path) -> None:
    """Escaped letters, a type of null and repeated ids refer as well as the plain form does."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        RunningGateway(settings=shared(served.base_url, tmp_path / "l.db")) as gateway,
        client(gateway, "alice") as alice,
    ):
        made = alice.responses.create(model="m", input="a")
        names = {b"response": made.id.encode(), b"item": str(cast("Any", made.output[0]).id).encode()}
        headers = {"authorization": "Bearer bob", "content-type": "application/json"}
        answer = httpx.post(f"{gateway.base_url}/responses", content=asked % names, headers=headers)
        assert answer.status_code == 404
        assert len(served.requests) == 1


def test_what_is_not_stored_is_not_noted(tmp_path: Path) -> None:
    """`store: false` leaves nothing at the upstream, and nothing here."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        RunningGateway(settings=shared(served.base_url, tmp_path / "l.db")) as gateway,
        client(gateway, "alice") as alice,
    ):
        made = alice.responses.create(model="m", input="a", store=False)
        with pytest.raises(openai.NotFoundError):
            alice.responses.create(model="m", input="b", previous_response_id=made.id)


def test_without_a_ledger_nothing_is_reached() -> None:
    """What cannot be told apart is refused; one caller alone has nobody to be told from."""
    with ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served:
        with RunningGateway(settings=shared(served.base_url, None)) as gateway, client(gateway, "alice") as alice:
            made = alice.responses.create(model="m", input="a")
            with pytest.raises(openai.NotFoundError):
                alice.responses.create(model="m", input="b", previous_response_id=made.id)
        settings = shared(served.base_url, None, ("alice",))
        with RunningGateway(settings=settings) as gateway, client(gateway, "alice") as alice:
            alice.responses.create(model="m", input="b", previous_response_id=made.id)
        assert served.requests[-1].body["previous_response_id"] == made.id
