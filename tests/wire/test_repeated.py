"""What comes again is read once, and reads as if it had not come before."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import InvalidRequest
from mustcall.core.memo import Caches, owned
from mustcall.core.origin import Wire
from mustcall.wire.caching import decode_cache
from mustcall.wire.caching.conversations import Conversations
from mustcall.wire.codec import Target
from mustcall.wire.opening import open_body
from mustcall.wire.registry import codec_for

TOOL: dict[Wire, Any] = {
    Wire.CHAT: {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    Wire.MESSAGES: {"name": "f", "input_schema": {"type": "object"}},
    Wire.RESPONSES: {"type": "function", "name": "f", "parameters": {"type": "object"}},
}


def _body(wire: Wire, texts: list[str], **more: Any) -> bytes:
    listed = [{"role": "user", "content": text} for text in texts]
    body: dict[str, Any] = {
        "model": "m",
        "tools": [TOOL[wire]],
        ("input" if wire is Wire.RESPONSES else "messages"): listed,
    }
    return json.dumps(body | more).encode()


@pytest.mark.parametrize("wire", list(Wire))
def test_the_same_bytes_are_the_same_objects(wire: Wire) -> None:
    """A second request of an agent gives the tools and messages of the first, and new ones beside them."""
    tenant = Conversations().of("a tenant", wire)
    bodies = _body(wire, ["a", "b"]), _body(wire, ["a", "b", "c"])
    first, second = [codec_for(wire).decode_request(body, open_body(body, tenant, wire)) for body in bodies]
    assert second.tools is first.tools
    assert second.messages[0] is first.messages[0]
    assert second.messages[:2] == first.messages
    assert len(second.messages) == 3


@pytest.mark.parametrize("wire", list(Wire))
@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=4), extra=st.integers())
def test_what_was_read_is_written_again(wire: Wire, texts: list[str], extra: int) -> None:
    """A request's own JSON is kept whole, in the order it came, whether its pieces were known or not."""
    body = _body(wire, texts, unknown_field=extra)
    for _ in range(2):
        origin = codec_for(wire).decode_request(body).origin
        assert origin is not None
        assert json.dumps(origin.raw) == json.dumps(json.loads(body))


@pytest.mark.parametrize("theirs", list(Wire))
@pytest.mark.parametrize("wire", list(Wire))
def test_without_an_owner_nothing_is_kept(wire: Wire, theirs: Wire) -> None:
    """A request that is read and written once, outside of a server, leaves nothing behind and comes to the same."""
    body = _body(wire, ["a", "b"], max_tokens=9)
    target = Target(issuer="theirs")
    written: list[Any] = []
    for caches in (None, None, Caches()):
        with owned(caches):
            request = codec_for(wire).decode_request(body, open_body(body))
            written.append(codec_for(theirs).encode_request(request, target, AdaptationLog()))
    assert written[0] == written[1] == written[2]
    with owned(None):
        first, second = [codec_for(wire).decode_request(body, open_body(body)) for _ in range(2)]
    assert second.tools is not first.tools
    assert second == first


@pytest.mark.parametrize("wire", list(Wire))
def test_settings_are_each_tenants_own(wire: Wire) -> None:
    """What one tenant wrote beside its conversation is not the object that another one gets, whatever it sends."""
    conversations, body = Conversations(), _body(wire, ["a"], metadata={"who": "x"})
    with owned(Caches()):
        first, again, other = [
            codec_for(wire).decode_request(body, open_body(body, conversations.of(tenant, wire), wire)).origin
            for tenant in ("one", "one", "other")
        ]
    assert first is not None
    assert again is not None
    assert other is not None
    assert again.fields is first.fields
    assert other.fields is not first.fields
    assert other.fields == first.fields


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tools": 3}, "tools"),
        ({"tools": [3]}, "tools[0]"),
        ({"messages": [{"role": "user", "content": "x"}, 3], "input": [{"role": "user", "content": "x"}, 3]}, "[1]"),
    ],
)
def test_errors_name_their_place(wire: Wire, change: dict[str, Any], named: str) -> None:
    """What cannot be read is named by its place, also behind pieces that are known."""
    codec_for(wire).decode_request(_body(wire, ["x"]))
    with pytest.raises(InvalidRequest, match="must be") as caught:
        codec_for(wire).decode_request(_body(wire, ["x"], **change))
    assert named in str(caught.value)


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{", b'{"model":"m","messages":[{"role":"user","content":"\xff"}'])
def test_bad_json_is_an_error_of_ours(wire: Wire, body: bytes) -> None:
    """Bytes that are no request raise what they always raised."""
    with pytest.raises(InvalidRequest):
        codec_for(wire).decode_request(body)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten first, and what is too long is never kept."""
    monkeypatch.setattr(decode_cache, "_MOST_BYTES", 40)
    monkeypatch.setattr(decode_cache, "_LONGEST", 20)
    made: list[Any] = []

    def read(value: Any) -> list[Any]:
        made.append(value)
        return [value]

    store = decode_cache.DecodeStore(read)
    raws = [msgspec.Raw(json.dumps("abcdefgh" + str(number)).encode()) for number in range(5)]
    for raw in raws:
        store.get(raw)
    assert store.get(raws[4])[1] is store.get(raws[4])[1]
    assert len(made) == 5
    store.get(raws[0])
    assert len(made) == 6
    long = msgspec.Raw(json.dumps("x" * 30).encode())
    store.get(long)
    store.get(long)
    assert len(made) == 8
    assert store.size <= 40


@given(data=st.data())
def test_long_texts_are_told_apart(data: st.DataObject) -> None:
    """Texts of one length and with the same samples are compared whole: none is taken for another."""
    store = decode_cache.DecodeStore(lambda value: [value])
    size = data.draw(st.integers(1500, 4000))
    places = data.draw(st.lists(st.integers(1, size), min_size=1, max_size=6))
    for place in (*places, *places):
        text = "x" * (place - 1) + "y" + "x" * (size - place)
        json_value, value, _ = store.get(msgspec.Raw(json.dumps(text).encode()))
        assert json_value == text
        assert value == [text]
    assert store.size <= (size + 2) * len(set(places))
