"""Properties of the scanner that hold for any text and any arguments, checked with hypothesis."""

import json
from collections.abc import Iterable
from typing import Any, Literal, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dialects.scanning import TOOLS, calls_of, cuts, load, reasoning_of, scan, text_of
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.tools import Tool
from mustcall.dialects import (
    DIALECTS,
    CallEnd,
    Dialect,
    LateReasoningEnd,
    Malformed,
    ScanEvent,
    ScannedReasoning,
    Standing,
    WrittenCall,
)
from mustcall.dialects.catalogue import BY_NAME
from mustcall.dialects.reasoning import CONTROLS, FIRST_CONTROLS, SECTIONS
from mustcall.dialects.scanning.grammar import is_stray
from support.splits import text_splits

NAMES = [dialect.name for dialect in DIALECTS]

MARKERS = sorted(
    {opener.marker for dialect in DIALECTS for opener in dialect.openers}
    | {closer for dialect in DIALECTS for closer in dialect.closers}
    | {section.opener for section in SECTIONS}
    | {closer for section in SECTIONS for closer in section.closers}
    | {control.marker for control in CONTROLS}
    | set(FIRST_CONTROLS)
)
LONGEST_FIRST = sorted((control.marker for control in CONTROLS), key=len, reverse=True)
TOKENS = [
    *MARKERS,
    *("get_weather", "now", "rm", '"name"', '"arguments"', "city", ": ", ", ", '"', "{", "}", "[", "]", "(", ")"),
    *("\n", " ", "\\", "'", "`", "```", "~~~", "\\u", "\\ud83d", "1", "-", "true", "None", "=", ">", "/>", "<"),
    *("Tool: now(", "Action: now\n", "Action Input: ", '{"name":"now","parameters":{"type":"object"', "[now()]", "]("),
    *("</parameter>", "</function>", "</invoke>", "<parameter=city>", '<parameter name="city">', "call:", "function"),
    *("\x00", "\r\n", "é", "😀", "<|sep|>", "<|message|>", " to=functions.now", "<arg_key>", "</arg_value>"),
]

# Markup that is taken out of the text even where no call or reasoning comes of it.
NEVER_TEXT = (
    *(control.marker for control in CONTROLS),
    *FIRST_CONTROLS,
    *(section.opener for section in SECTIONS),
    *(closer for section in SECTIONS for closer in section.closers),
    *(closer for dialect in DIALECTS for closer in dialect.closers if is_stray(closer)),
    ">>>",
)

soup = st.lists(st.one_of(st.sampled_from(TOKENS), st.text(max_size=4)), max_size=40).map("".join)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=8), values, max_size=4)
plain_keys = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


def schema_of(value: Any) -> dict[str, Any]:
    """Return a schema that types the value, and nothing else, as the tool would declare it."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value)
        return {"type": "object", "properties": {key: schema_of(item) for key, item in items.items()}}
    if isinstance(value, list):
        members = cast("list[Any]", value)
        return {"type": "array", "items": schema_of(members[0]) if members else {}}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": kinds[type(value)] if value is not None else "null"}


def is_uniform(value: Any) -> bool:
    """Whether every array's items have one schema: what a format that types by schema alone can tell apart."""
    if isinstance(value, dict):
        return all(is_uniform(item) for item in cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        members = cast("list[Any]", value)
        return all(is_uniform(item) and schema_of(item) == schema_of(members[0]) for item in members)
    return True


def read_back(dialect: Dialect, arguments: dict[str, Any]) -> None:
    """Assert that a call written in the dialect reads back as it was, whole and by character."""
    try:
        text = dialect.render([WrittenCall("some_tool", arguments)])
    except UnsupportedFeature:
        return
    tools = [Tool(name="some_tool", parameters=schema_of(arguments))]
    for pieces in ([text], list(text)):
        events = scan(pieces, dialects=[dialect], tools=tools)
        assert calls_of(events) == [{"name": "some_tool", "arguments": arguments}], (dialect.name, text, events)
        assert text_of(events) == "", (dialect.name, text)
        assert not any(isinstance(event, Malformed) for event in events), (dialect.name, text)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arguments=objects)
def test_any_object_reads_back(arguments: dict[str, Any]) -> None:
    """Any JSON object written as a call in a dialect reads back as the same object, or is refused by the writer.

    All dialects write each object: drawing it costs as much as reading it back in twenty of them.
    """
    for name in NAMES:
        if name != "minimax_m3" or is_uniform(arguments):
            read_back(BY_NAME[name], arguments)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=st.text(max_size=60), key=plain_keys)
def test_any_string_reads_back(text: str, key: str) -> None:
    """A string parameter keeps every byte: a plainly named one is refused only where it holds the format's markers."""
    markers = ("<", "「末」", "]<]minimax[>[")
    plain = not any(marker in text for marker in markers) and key not in ("maid", "tool_name")
    for name in NAMES:
        read_back(BY_NAME[name], {key: text})
        if plain:
            assert BY_NAME[name].render([WrittenCall("some_tool", {key: text})]), name


def is_accounted_for(text: str, events: Iterable[ScanEvent]) -> bool:
    """Whether the text that came out occurs in the text that went in, in order, nothing doubled or made up."""
    position = 0
    for character in text_of(events):
        position = text.find(character, position) + 1
        if not position:
            return False
    return True


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(text=soup, loose=st.booleans(), offered=st.booleans())
def test_cutting_changes_nothing(text: str, loose: bool, offered: bool) -> None:
    """Any soup of markers and text gives the same events however it is cut, and never raises."""
    tools = TOOLS if offered else None
    whole = None
    for pieces in cuts(text):
        events = scan(pieces, loose=loose, tools=tools)
        whole = whole if whole is not None else events
        assert events == whole
    assert whole is not None
    assert is_accounted_for(text, whole)
    if not any(isinstance(event, CallEnd | ScannedReasoning | LateReasoningEnd) for event in whole) and not any(
        token in text for token in NEVER_TEXT
    ):
        assert text_of(whole) == text
    for event in whole:
        if isinstance(event, CallEnd):
            assert isinstance(json.loads(event.arguments), dict)


TEXTS = [item.text for name in NAMES for item in load(name)]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    text=st.sampled_from(TEXTS),
    cut=st.tuples(st.floats(0, 1), st.integers(0, 12)),
    patch=st.sampled_from([*TOKENS, ""]),
    other=st.sampled_from(TEXTS),
    reasoning=st.sampled_from(["marked", "opened", "separated"]),
)
def test_damaged_calls(
    text: str,
    cut: tuple[float, int],
    patch: str,
    other: str,
    reasoning: Literal["marked", "opened", "separated"],
) -> None:
    """A call with a piece torn out and another put in gives the same however it is cut, and hides no exception."""
    place = int(cut[0] * len(text))
    damaged = text[:place] + patch + text[place + cut[1] :] + "\n" + other
    whole = None
    for pieces in cuts(damaged):
        events = scan(pieces, loose=True, reasoning=reasoning)
        whole = whole if whole is not None else events
        assert events == whole
    assert whole is not None
    assert is_accounted_for(damaged, whole)


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
def test_any_text(text: str) -> None:
    """Any text at all is read without an exception, and text without markers comes out as it went in."""
    events = scan([text], loose=True)
    if not any(marker in text for marker in MARKERS):
        assert text_of(events) == text


@pytest.mark.parametrize("name", [dialect.name for dialect in DIALECTS])
def test_markers_cut_everywhere(name: str) -> None:
    """A call cut at any place gives what it gives whole; nothing of a marker reaches the text."""
    for item in load(name):
        if item.kind in ("one", "text before and after"):
            loose = BY_NAME[name].standing is not Standing.AUTO
            whole = scan([item.text], dialects=[name], loose=loose)
            for pieces in text_splits(item.text):
                assert scan(pieces, dialects=[name], loose=loose) == whole, pieces


@pytest.mark.parametrize("name", [dialect.name for dialect in DIALECTS])
def test_every_prefix_is_safe(name: str) -> None:
    """Rule 123: a call that ends early at any place is no call, or the same call; its text is never lost."""
    item = next(item for item in load(name) if item.kind == "text before and after")
    text = item.text.removesuffix("\nDone.")
    for place in range(len(text)):
        events = scan([text[:place]], dialects=[name], loose=True)
        calls = calls_of(events)
        if calls:
            assert calls == item.calls
        else:
            released = text_of(events) + reasoning_of(events)
            rest = text[:place]
            for token in LONGEST_FIRST:  # they are never text, wherever the reply ends
                released, rest = released.replace(token, ""), rest.replace(token, "")
            headless = item.text.index("\n") + 1  # and neither is a header that names no tool yet
            assert released == rest or (BY_NAME[name].family == "channels" and released == text[:headless])


@pytest.mark.parametrize("first", [dialect.name for dialect in DIALECTS if dialect.standing is Standing.AUTO])
def test_two_dialects_in_one_reply(first: str) -> None:
    """Rule 62: calls of different dialects in one reply keep their order and do not disturb each other."""
    one = next(item for item in load(first) if item.kind == "one")
    for second in ("hermes", "lmstudio", "anthropic", "kimi_k2", "llama4_pythonic"):
        other = next(item for item in load(second) if item.kind == "parallel")
        text = f"{one.text}\nand\n{other.text}"
        events = scan([text])
        assert calls_of(events) == [*one.calls, *other.calls]
        assert text_of(events) == "\nand\n"
        assert scan(list(text)) == events
