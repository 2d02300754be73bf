"""The top level of a body says what the codec says, or nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import InvalidRequest
from mustcall.core.origin import Wire
from mustcall.wire.opening import glimpse, open_body
from mustcall.wire.registry import codec_for

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def _body(wire: Wire, **fields: Any) -> bytes:
    listed = "input" if wire is Wire.RESPONSES else "messages"
    return json.dumps({listed: [{"role": "user", "content": "x"}], **fields}).encode()


@given(wire=st.sampled_from(list(Wire)), model=st.text(max_size=12) | values, stream=st.booleans() | values)
def test_a_glimpse_is_the_codecs_own(wire: Wire, model: Any, stream: Any) -> None:
    """What routing is told is what the codec reads; where that refuses, nothing is told."""
    body = _body(wire, model=model, stream=stream)
    fields = open_body(body)
    assert fields is not None
    seen = glimpse(fields)
    try:
        said = codec_for(wire).peek(body)
    except InvalidRequest:
        assert seen is None
    else:
        assert seen == said


@pytest.mark.parametrize("wire", list(Wire))
def test_a_stream_that_is_not_asked_for(wire: Wire) -> None:
    """Absent and null mean no."""
    for body in (_body(wire, model="m"), _body(wire, model="m", stream=None)):
        fields = open_body(body)
        assert fields is not None
        assert glimpse(fields) == codec_for(wire).peek(body)


@pytest.mark.parametrize("body", [b"", b"[]", b"3", b"{", b'{"model":"\xff"', b"[" * 5000, b'{"a":' * 5000])
def test_what_is_no_object_is_left_to_the_codec(body: bytes) -> None:
    """Nothing is raised; the codec will say what is wrong."""
    assert open_body(body) is None


@given(wire=st.sampled_from(list(Wire)), more=st.dictionaries(st.text(max_size=6), values, max_size=3))
def test_reading_from_the_top_level_is_reading(wire: Wire, more: dict[str, Any]) -> None:
    """A request read with its top level known is the one read without, and the top level is left as it is."""
    taken = {"input", "messages", "model", "stream", "tools", "system", "instructions", "thread"}
    body = _body(wire, model="m", **{name: value for name, value in more.items() if name not in taken})
    fields = open_body(body)
    assert fields is not None
    before = dict(fields)
    decode = codec_for(wire).decode_request
    told: list[Any] = []
    for known in (None, fields):
        try:
            told.append(decode(body, known))
        except InvalidRequest as refused:
            told.append(str(refused))
    assert told[0] == told[1]
    assert fields == before
