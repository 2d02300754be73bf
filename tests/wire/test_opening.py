"""The top level of a body says what the codec says, or nothing."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import InvalidRequest
from mustcall.core.memo import Store
from mustcall.core.origin import Wire
from mustcall.wire.opening import KnownTools, doubled_field, glimpse, open_body
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


# --- tools that came before ---------------------------------------------------------------------------------------

_LONG = [{"name": f"tool_{number}", "description": 'says "tools": [1, 2] and }, {' * 4} for number in range(12)]
_LIST = json.dumps(_LONG, separators=(",", ":"))
_KEY = '"tools":'
#: Pieces out of which bodies are put together, right and wrong: the list as a value, in a text, below, twice, cut off.
_PIECES = [
    '{"model":"m",',
    '"model":"m"',
    _KEY,
    _KEY + " ",
    "\\" + _KEY,
    '"tools"',
    ":",
    _LIST,
    _LIST[:-1],
    _LIST[1:],
    json.dumps(_LIST),
    json.dumps({"tools": _LONG}, separators=(",", ":")),
    '"messages":[{"role":"user","content":"',
    '"}]',
    '"mustcall: the tools that came before"',
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    "0",
    "x",
    " ",
]


def _plainly(body: bytes) -> dict[str, bytes] | None:
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, ValueError):
        return None
    return {name: bytes(value) for name, value in fields.items()}


def _opened(body: bytes) -> dict[str, bytes] | None:
    fields = open_body(body)
    return None if fields is None else {name: bytes(value) for name, value in fields.items()}


@given(pieces=st.lists(st.sampled_from(_PIECES), max_size=9))
def test_known_tools_hide_nothing(pieces: list[str]) -> None:
    """Whatever stands around tools that came before, the top level is what reading all of it gives."""
    assert open_body(f'{{"tools":{_LIST}}}'.encode()) is not None
    for body in ("".join(pieces).encode(), ('{"model":"m",' + "".join(pieces) + "}").encode()):
        assert _opened(body) == _plainly(body)


@pytest.mark.parametrize(
    "body",
    [
        f'{{"model":"m","tools":{_LIST},"stream":true}}',
        f'{{"tools": {_LIST}}}',
        f'{{"tools":{_LIST},"tools":3}}',
        f'{{"tools":{_LIST},"tools":"mustcall: the tools that came before"}}',
        f'{{"a":{{"tools":{_LIST}}},"tools":[]}}',
        f'{{"tools":{_LIST}0}}',
        f'{{"tools":{_LIST}',
        f'{{"a":"\\"tools":{_LIST}}}',
    ],
)
def test_the_cases_somebody_would_try(body: str) -> None:
    """As a field, with a space, given twice, below another, with something behind it, cut off, and in a text."""
    open_body(f'{{"tools":{_LIST}}}'.encode())
    assert _opened(body.encode()) == _plainly(body.encode())


def test_known_tools_are_not_looked_through_again() -> None:
    """The second body of an agent gives the tools of the first as one object; others are its own."""
    first = open_body(f'{{"model":"a","tools":{_LIST}}}'.encode())
    second = open_body(f'{{"model":"b","tools":{_LIST},"x":1}}'.encode())
    assert first is not None
    assert second is not None
    assert second["tools"] is first["tools"]
    assert bytes(second["model"]) == b'"b"'
    assert bytes(second["x"]) == b"1"


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest tools are forgotten, and read all the same; long ones are not kept."""
    monkeypatch.setattr(KnownTools, "_LONGEST", 2_000)
    known = KnownTools(most_bytes=10_000)
    monkeypatch.setattr("mustcall.wire.opening._known", Store(lambda: known))
    for number in range(30):
        tools = json.dumps([{"name": f"n{number:02}", "description": "d" * 1500}])
        assert _opened(f'{{"tools":{tools}}}'.encode()) == {"tools": tools.encode()}
        assert known.size == len(tools) * min(number + 1, 10_000 // len(tools))
    before = known.size
    assert open_body(f'{{"tools":[{{"name":"{"x" * 3000}"}}]}}'.encode()) is not None
    assert known.size == before


# --- fields that are there twice --------------------------------------------------------------------------------------

_NAMES = st.sampled_from(["model", "stream", "tools", "messages", "a", "ä", 'q"', "\\", ""])
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.integers(-20, 120), st.text(max_size=6), st.booleans(), st.none(), st.just('{"model": 1, "a": 2}')),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
    max_leaves=6,
)
_BLANK = st.sampled_from(["", "", " ", "\n  ", "\t\r\n"])


@st.composite
def _objects(draw: st.DrawFn) -> tuple[bytes, set[str]]:
    """A JSON object as anybody may write it, and the names that stand in it more than once."""
    pairs = draw(st.lists(st.tuples(_NAMES, _VALUES), min_size=1, max_size=6))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    fields: list[str] = []
    for name, value in pairs:
        escaped = draw(st.booleans()) and name.isascii() and name.isalpha()
        key = '"' + "".join(f"\\u{ord(sign):04x}" for sign in name) + '"' if escaped else json.dumps(name)
        written = json.dumps(value, separators=separators, ensure_ascii=draw(st.booleans()))
        fields.append(draw(_BLANK) + key + draw(_BLANK) + ":" + draw(_BLANK) + written + draw(_BLANK))
    names = [name for name, _ in pairs]
    body = draw(_BLANK) + "{" + ",".join(fields) + "}" + draw(_BLANK)
    return body.encode(), {name for name in names if names.count(name) > 1}


@given(_objects())
def test_a_field_that_is_there_twice(written: tuple[bytes, set[str]]) -> None:
    """Rule 94: of two fields of one name none can be priced; however they are written, one is found, and only then."""
    body, twice = written
    fields = open_body(body)
    assert fields is not None
    found = doubled_field(body, fields)
    assert (found in twice) if twice else found is None


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"model":"dear","model":"cheap"}', "model"),
        (b'{"model":"same","model":"same"}', "model"),
        (b'{"model":"dear","mod\\u0065l":"cheap"}', "model"),
        (b'{"max_tokens": 12, "max_tokens": 1}', "max_tokens"),
        (b'{"max_tokens": 1, "max_tokens": 12}', "max_tokens"),
        (b'{"a":{"b":1,"c":2},"b":2,"a":"12345"}', "a"),
        (b'{"a":{"model":1,"model":2},"model":"m"}', None),
        (b'{"text":"\\"model\\":\\"dear\\",","model":"cheap"}', None),
        (b"{}", None),
        (b" { } ", None),
    ],
)
def test_what_is_twice_and_what_only_looks_so(body: bytes, found: str | None) -> None:
    """Rule 94: names inside values and texts are nobody's fields."""
    fields = open_body(body)
    assert fields is not None
    assert doubled_field(body, fields) == found
