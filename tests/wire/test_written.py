"""Tools written once are written as if they were new, with everything that is noted about them."""

import json
from typing import Any

import msgspec
import pytest

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.origin import Wire
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.wire.caching.encode_cache import write_body
from mustcall.wire.codec import Target
from mustcall.wire.crossing.offer import offer_for
from mustcall.wire.registry import codec_for

TOOLS = (
    Tool(name="plain", description="d", parameters={"type": "object", "properties": {}}),
    Tool(name="odd name!", parameters={"properties": {"a": {"type": "string"}}}),
)


@pytest.mark.parametrize("wire", list(Wire))
def test_the_second_time_is_like_the_first(wire: Wire) -> None:
    """Equal tools in another tuple, and the same tuple again, give the same body and the same notes."""
    told: list[tuple[Any, Any]] = []
    again = tuple(msgspec.structs.replace(tool) for tool in TOOLS)
    for tools in (TOOLS, TOOLS, again):
        log = AdaptationLog()
        body = codec_for(wire).encode_request(Request(model="m", messages=(), tools=tools), Target(), log)
        told.append((json.loads(write_body(body)), log.entries))
        assert json.loads(write_body(body)) == json.loads(msgspec.json.encode(body))
    assert told[0] == told[1] == told[2]
    assert any(note.kind is AdaptationKind.NAME_MAPPED for note in told[0][1])


def test_what_depends_on_the_history_is_not_remembered() -> None:
    """A deferred tool crosses once a result has referred to it, and not before."""
    deferred = (Tool(name="later", deferred=True),)
    log = AdaptationLog()
    assert offer_for(Request(model="m", messages=(), tools=deferred), Wire.CHAT, log).tools == ()
    assert [note.kind for note in log.entries] == [AdaptationKind.TOOL_DROPPED]
    again = AdaptationLog()
    assert offer_for(Request(model="m", messages=(), tools=deferred), Wire.CHAT, again).tools == ()
    assert again.entries == log.entries


def test_a_list_that_changes_is_another() -> None:
    """What is remembered belongs to one list: another with other tools is written anew."""
    first, second = [{"name": "a"}], [{"name": "b"}]
    assert json.loads(write_body({"tools": first})) == {"tools": first}
    assert json.loads(write_body({"tools": second})) == {"tools": second}
    assert json.loads(write_body({"tools": []})) == {"tools": []}
