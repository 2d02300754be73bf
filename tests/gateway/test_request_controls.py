"""What a caller may ask of a turn by header or body extension, and what stays the operator's."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.errors import InvalidRequest
from mustcall.gateway.request_controls import PREFIX, take_controls
from mustcall.policy.facts.controls import Controls, Limits, OnUnmet, OtherTool, Salvage, ToolControls
from mustcall.policy.facts.profile import Protocol

PLAIN = b'{ "model": "m",  "messages": [] }'


def extended(**extension: Any) -> bytes:
    """A body with an extension in it."""
    return json.dumps({"model": "m", "mustcall": extension, "big": 1}).encode()


def from_headers(**headers: str) -> Controls:
    """Return the controls that headers give."""
    named = {PREFIX + name.replace("_", "-"): value for name, value in headers.items()}
    return take_controls(PLAIN, named, Controls())[0]


def test_nothing_asked_is_nothing_changed() -> None:
    """Rules 18, 112: the operator's controls and the caller's bytes, both the same objects."""
    controls = Controls(step_cap=3)
    got, body = take_controls(PLAIN, {"x-api-key": "k"}, controls)
    assert got is controls
    assert body is PLAIN


def test_an_extension_that_cannot_be_read_is_told_why() -> None:
    """Rule 9: an object with a number nobody can hold is not called something else than an object."""
    with pytest.raises(InvalidRequest, match=r"an object that can be read: .*out of range"):
        take_controls(b'{"mustcall":{"limits":{"extra_calls":1e400}}}', {}, Controls())


def test_a_mistyped_header_is_refused_with_the_ones_there_are() -> None:
    """Rule 9: a force that is asked for under a wrong name must not be lost in silence."""
    with pytest.raises(InvalidRequest, match="x-mustcall-force-tool'; there are: x-mustcall-force-tools"):
        take_controls(PLAIN, {"x-mustcall-force-tool": "f"}, Controls())


@pytest.mark.parametrize(
    ("header", "value", "expected"),
    [
        ("force_tools", "true", Controls(force_tools=True)),
        ("force_tools", "Any", Controls(force_tools=True)),
        ("force_tools", "required", Controls(force_tools=True)),
        ("force_tools", "off", Controls()),
        ("force_tools", " get_weather ", Controls(force_tools="get_weather")),
        ("protocol", "prompt", Controls(protocol=Protocol.PROMPT)),
        ("on_unmet", "answer", Controls(on_unmet=OnUnmet.ANSWER)),
        ("other_tool", "accept", Controls(other_tool=OtherTool.ACCEPT)),
        ("strict_force", "no", Controls(strict_force=False)),
        ("force_after_results", "1", Controls(force_after_results=True)),
        ("salvage", "last", Controls(salvage=Salvage.LAST)),
        ("hold", "yes", Controls(hold=True)),
        ("step_cap", "4", Controls(step_cap=4)),
        ("metadata", "on", Controls(metadata=True)),
        ("extra_calls", "1", Controls(limits=Limits(extra_calls=1, refused_tool=0))),
    ],
)
def test_headers(header: str, value: str, expected: Controls) -> None:
    """Rule 9: each header sets its control, without a change of the body."""
    assert from_headers(**{header: value}) == expected


@pytest.mark.parametrize(
    "extension",
    [
        {"force_tools": True},
        {"force_tools": "get_weather"},
        {"protocol": "native", "on_unmet": "answer"},
        {"limits": {"text_call": 0, "extra_calls": 2, "refused_tool": 3}},
        {"hold": True, "broad": False, "metadata": True, "step_cap": 2},
        {},
    ],
)
def test_body_extension(extension: dict[str, Any]) -> None:
    """Rule 9: the same by an object in the body, which never reaches an upstream."""
    controls, body = take_controls(extended(**extension), {}, Controls())
    assert json.loads(body) == {"model": "m", "big": 1}
    limits = extension.pop("limits", {})
    expected = msgspec.convert({**extension, "limits": limits}, Controls)
    assert controls == expected


def test_every_other_value_keeps_its_bytes() -> None:
    """Rule 112: numbers and strings of other fields come out as they were written."""
    body = b'{"a": 1.10, "big": 123456789012345678901234567890, "mustcall": {}, "s": "\\u00e9\\/", "o": { "x" : [ ] }}'
    _, rest = take_controls(body, {}, Controls())
    for written in (b"1.10", b"123456789012345678901234567890", b'"\\u00e9\\/"', b'{ "x" : [ ] }'):
        assert written in rest
    assert b"mustcall" not in rest


def test_the_word_alone_is_no_extension() -> None:
    """Rule 105: a body that only mentions the word passes byte for byte."""
    for body in (
        b'{"messages": ["mustcall"]}',
        b'{"a": {"mustcall": {"hold": true}}}',
        b'not json "mustcall"',
        b'["mustcall"]',
    ):
        controls = Controls()
        got, rest = take_controls(body, {}, controls)
        assert got is controls
        assert rest is body


def test_the_body_wins_over_headers_and_both_over_the_operator() -> None:
    """Rule 9: precedence of the three places."""
    operator = Controls(on_unmet=OnUnmet.ERROR, protocol=Protocol.NATIVE, hold=True)
    headers = {"x-mustcall-on-unmet": "answer", "x-mustcall-protocol": "hybrid"}
    got, _ = take_controls(extended(protocol="prompt"), headers, operator)
    assert (got.protocol, got.on_unmet, got.hold) == (Protocol.PROMPT, OnUnmet.ANSWER, True)


def test_limits_can_only_be_lowered() -> None:
    """Rules 9, 96: the operator pays for what they bound."""
    operator = Controls(limits=Limits(extra_calls=2, text_call=1))
    got, _ = take_controls(extended(limits={"extra_calls": 9, "text_call": 0, "empty": 0}), {}, operator)
    assert got.limits == Limits(extra_calls=2, refused_tool=0, text_call=0, empty=0)


def test_operators_settings_stay() -> None:
    """Rules 8, 108, 132: what is locked off, when loops block and what starving means is not a caller's to say."""
    operator = Controls(tools={"rm": ToolControls(locked_off=True)}, refuse_starved=True)
    got, _ = take_controls(extended(hold=True), {}, operator)
    assert (got.tools, got.refuse_starved) == (operator.tools, True)
    for name in ("tools", "refuse_starved"):
        with pytest.raises(InvalidRequest, match=name):
            take_controls(extended(**{name: {}}), {}, operator)


@pytest.mark.parametrize(
    "extension",
    [
        {"unknown": 1},
        {"protocol": "fast"},
        {"force_tools": 3},
        {"hold": "yes"},
        {"limits": {"unknown": 1}},
        {"limits": {"empty": "two"}},
        {"limits": {"empty": -1}},
        {"limits": [1]},
        {"limits": 5},
        {"limits": ""},
        {"limits": [["extra_calls", 1]]},
    ],
)
def test_what_cannot_be_read_is_the_callers_fault(extension: dict[str, Any]) -> None:
    """Style 9: a typed error that names the extension."""
    with pytest.raises(InvalidRequest) as caught:
        take_controls(extended(**extension), {}, Controls())
    assert caught.value.param == "mustcall"


@pytest.mark.parametrize("value", [b"null", b"[]", b'"x"', b"1"])
def test_an_extension_is_an_object(value: bytes) -> None:
    """Style 9: anything else is refused, not ignored."""
    with pytest.raises(InvalidRequest, match="must be an object"):
        take_controls(b'{"mustcall": ' + value + b"}", {}, Controls())


@pytest.mark.parametrize(
    ("header", "value", "why"),
    [
        ("hold", "maybe", "true or false is expected"),
        ("step-cap", "many", "a whole number is expected"),
        ("turn-cost-usd", "$1", "a number is expected"),
        ("step-cap", "-1", "Expected `int` >= 0"),
        ("extra-calls", "-1", "Expected `int` >= 0"),
        ("protocol", "fast", "Invalid enum value 'fast'"),
        ("extra-calls", "", "a whole number is expected"),
    ],
)
def test_headers_that_cannot_be_read(header: str, value: str, why: str) -> None:
    """Style 9: a typed error that names the header, whichever it is."""
    name = f"x-mustcall-{header}"
    with pytest.raises(InvalidRequest) as raised:
        take_controls(b"{}", {name: value}, Controls())
    assert raised.value.message == f"the header {name} is {value!r}: {why}"


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just("prompt")),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=5), inner, max_size=2)),
    max_leaves=5,
)
names = st.one_of(st.sampled_from([*Controls.__struct_fields__, "limits"]), st.text(max_size=6))
header_names = st.sampled_from(
    ["force-tools", "protocol", "on-unmet", "hold", "step-cap", "extra-calls", "salvage", "other"]
)


@given(
    st.one_of(
        st.binary(max_size=40),
        st.dictionaries(names, json_values, max_size=3).map(lambda given: extended(**given)),
        json_values.map(lambda given: json.dumps({"mustcall": given}).encode()),
    ),
    st.dictionaries(header_names.map(lambda name: PREFIX + name), st.text(max_size=8), max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_any_body_and_headers(body: bytes, headers: dict[str, str]) -> None:
    """Contract 8: controls within the operator's limits, or a typed error; what is left asks for nothing more."""
    operator = Controls(limits=Limits(extra_calls=3))
    try:
        controls, rest = take_controls(body, headers, operator)
    except InvalidRequest:
        return
    assert controls.tools == operator.tools
    for field in Limits.__struct_fields__:
        assert getattr(controls.limits, field) <= getattr(operator.limits, field)
    assert take_controls(rest, {}, operator) == (operator, rest)
