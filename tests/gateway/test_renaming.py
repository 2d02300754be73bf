"""Ids of stored replies are the gateway's own, on whatever wire and however they come."""

from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest

from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import Settings, settings_from_flags
from mustcall.gateway.state.response_ids import Renamer
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.testing import RunningGateway, Say, ScriptedUpstream, Turn


def forgetful(place: Path, address: str) -> Settings:
    """Settings for a Responses upstream that keeps nothing."""
    made = settings_from_flags(f"responses={address}", ledger=LedgerSettings(place=str(place)))
    endpoints = tuple(msgspec.structs.replace(each, stateful=False) for each in made.endpoints)
    return msgspec.structs.replace(made, endpoints=endpoints)


def item_id(response: Any) -> str:
    """The id of a response's first item, of whatever kind."""
    return response.output[0].id


@pytest.mark.parametrize("stream", [False, True])
def test_two_callers_never_share_an_id(stream: bool, tmp_path: Path) -> None:
    """An upstream that was started anew gives the same ids again: each caller's response is still its own."""
    found: list[tuple[str, str]] = []
    for key in ("k1", "k2"):
        with (
            ScriptedUpstream(lambda _, key=key: Turn(Say(f"Hello {key}."))) as served,
            RunningGateway(settings=forgetful(tmp_path / "l.db", served.base_url)) as gateway,
            openai.OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0) as ai,
        ):
            if stream:
                with ai.responses.stream(model="m", input="x") as events:
                    told = list(events)
                    made = events.get_final_response()
                items = {event.item_id for event in told if event.type == "response.output_text.delta"}
                assert items == {item_id(made)}
            else:
                made = ai.responses.create(model="m", input="x")
            kept = ai.responses.retrieve(made.id)
            assert (kept.id, kept.output_text) == (made.id, f"Hello {key}.")
            assert item_id(kept) == item_id(made)
            ai.responses.create(model="m", input=[{"id": item_id(made)}])
            assert f"Hello {key}." in str(served.requests[-1].body["input"])
            found.append((made.id, item_id(made)))
    assert len({each for pair in found for each in pair}) == 4


def test_what_only_mentions_a_reference_keeps_its_bytes(tmp_path: Path) -> None:
    """An escaped reference is resolved as the plain one is; a body that refers to nothing is sent as it came."""
    headers = {"authorization": "Bearer k", "content-type": "application/json"}
    plain = rb'{"model":"m", "input":[{"role":"user","content":"\u00e9 \"item_reference\""}]}'
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        RunningGateway(settings=forgetful(tmp_path / "l.db", served.base_url)) as gateway,
    ):
        url = f"{gateway.base_url}/responses"
        made = httpx.post(url, content=plain, headers=headers).json()
        assert served.requests[0].raw == plain
        name = made["output"][0]["id"].encode()
        asked = rb'{"model":"m","input":[{"type":"item\u005freference","id":"%b"}]}' % name
        assert httpx.post(url, content=asked, headers=headers).status_code == 200
        assert "Hello." in str(served.requests[1].body["input"])


def test_only_ids_are_replaced() -> None:
    """Names, calls' ids, types and texts that equal an id stay, also a text that quotes an id's field."""
    output = [
        {
            "id": "fetch_v2",
            "type": "function_call",
            "name": "fetch_v2",
            "call_id": "fetch_v2",
            "arguments": '{"id":"fetch_v2"}',
        },
        {"id": "message", "type": "message", "content": [{"type": "output_text", "text": "m2024"}]},
        {"id": "m2024", "type": "message", "content": [{"type": "output_text", "text": '"id":"m2024"'}]},
    ]
    body = msgspec.json.encode({"output": output, "id": "resp_1", "metadata": {"about": "resp_1"}})
    expected = {"output": output, "id": "resp_tok", "metadata": {"about": "resp_1"}}
    for item, name in zip(output, ("fetch_tok_1", "item_tok_2", "item_tok_3"), strict=True):
        item["id"] = name
    renamed = Renamer(Wire.RESPONSES, "tok").body(body)
    assert msgspec.json.decode(renamed) == expected
    assert Renamer(Wire.RESPONSES, "tok").body(renamed) == renamed
    assert Renamer(Wire.RESPONSES, "tok").body(b"no json") == b"no json"


def test_events_name_an_item_as_the_response_does() -> None:
    """An event's `item_id` follows its item, with blanks as without; a delta that equals the id stays."""
    renamer = Renamer(Wire.RESPONSES, "tok")
    renamer.events(b'data: {"type":"response.output_item.added","item":{"id":"call_1","call_id":"call_1"}}\n\n')
    delta = b'data: {"type":"response.output_text.delta","item_id" : "call_1","delta":"call_1"}\n\n'
    assert renamer.events(delta) == delta.replace(b': "call_1"', b': "call_tok_0"')


def test_a_message_gets_our_id() -> None:
    """A thread of Messages is gone on from by our id; the ids of its calls are the model's own."""
    event = b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","content":[]}}\n\n'
    call = b'data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"toolu_1"}}\n\n'
    renamer = Renamer(Wire.MESSAGES, "tok")
    assert renamer.events(event) == event.replace(b"msg_1", b"msg_tok")
    assert renamer.events(call) == call
