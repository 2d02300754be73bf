"""Nothing is lost: markup that is only mentioned swallows no call, and what stays text stays whole."""

import pytest

from dialects.scanning import calls_of, cuts, reasons_of, scan, text_of
from mustcall.core.tools import Tool
from mustcall.dialects import LateReasoningEnd, ScanEvent, parse

TOOLS = (
    Tool(name="ping", parameters={"type": "object", "properties": {}}),
    Tool(
        name="get_weather",
        parameters={"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    ),
)
CALL = '<tool_call>{"name":"ping","arguments":{}}</tool_call>'
PING: dict[str, object] = {"name": "ping", "arguments": {}}
UNKNOWN = CALL.replace("ping", "nope")


def events_of(text: str) -> list[ScanEvent]:
    """Return the events of a text, the same however it is cut."""
    whole = scan([text], tools=TOOLS)
    for pieces in cuts(text):
        assert scan(pieces, tools=TOOLS) == whole
    return whole


@pytest.mark.parametrize(
    "prose",
    [
        "\nModels wrap thoughts like <think>foo</think> in tags.",
        '\nHTML like "<think>a</think>" is',
        "\nIt ends with foo</think> then.",
    ],
)
def test_prose_about_reasoning_takes_no_call_back(prose: str) -> None:
    """Tags in mid-sentence are prose; a call before them stays a call, streamed or whole."""
    events = events_of(CALL + prose)
    assert calls_of(events) == [PING]
    assert text_of(events) == prose
    assert not any(isinstance(event, LateReasoningEnd) for event in events)
    parsed = parse([CALL + prose], tools=TOOLS)
    assert ([call.name for call in parsed.calls], parsed.text, parsed.reasoning) == (["ping"], prose, "")


def test_prose_about_reasoning_is_text() -> None:
    """A section's tags in mid-sentence are text without any call, too; an end on a line of its own still counts."""
    text = "Like <think>foo</think> here."
    assert text_of(events_of(text)) == text
    late = events_of("I write <think> first.\n</think>\nHi.")
    assert any(isinstance(event, LateReasoningEnd) for event in late)


@pytest.mark.parametrize(
    "prose",
    [
        "I will use the <function_calls> tag now.\n\n",
        'The <invoke name="x"> tag is nice.\n\n',
        '<x:invoke name="foo">\n\n',
        "<tool_code> is\n\n",
        "<tool_calls> [a] \n\n",
        "Use <TOOLCALL>[ ] for it ",
        "<function_call> {x}\n\n",
        "[TOOL_CALLS][] ok ",
        "<start_function_call>call:ping is ",
        "The [TOOL_RESULT] marker is odd.\n\n",
        "The <tool_response> tag is odd.\n",
    ],
)
def test_a_mention_swallows_no_call(prose: str) -> None:
    """A marker that prose only mentions stays text, and the call behind it is a call."""
    events = events_of(prose + CALL)
    assert calls_of(events) == [PING]
    assert text_of(events) == prose


@pytest.mark.parametrize(
    "before",
    [
        '<invoke name="ping"> oops\n\n',
        '<TOOLCALL>[{"name": "ping", "arguments": {"a": oops\n\n',
        "[TOOL_RESULT] is a marker.\n\n",
        "<function_call> {x} ",
    ],
)
def test_a_call_in_damage_is_reported(before: str) -> None:
    """Where a call cannot be read because markup before it never closed, it is reported."""
    events = events_of(before + CALL)
    assert calls_of(events) == []
    assert text_of(events) == before + CALL
    assert reasons_of(events)[-1] == "unknown_markup"


@pytest.mark.parametrize(
    "text",
    [
        f"Look: <tool_response>{CALL}</tool_response> so",
        f"Look: <tool_response>\n{CALL}\n\n{CALL}\n</tool_response> so",
        f"<tool_response>\n{CALL}\n</tool_response>",
        f"> {CALL}",
    ],
)
def test_quoted_calls_are_neither_made_nor_reported(text: str) -> None:
    """Rule 122: what stands in a closed result or a quotation is no call and no damage."""
    events = events_of(text)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, [])


@pytest.mark.parametrize("quote", ["'", ""])
def test_damage_before_a_name_runs_nothing(quote: str) -> None:
    """A call that is no JSON from its first key on may quote another: nothing is called out of its paragraph."""
    q = quote
    quoted = '[TOOL_REQUEST]{"name": "ping", "arguments": {}}[END_TOOL_REQUEST]'
    text = f"<tool_call>\n{{\n{q}name{q}: 'ping',\n{q}arguments{q}: {{'text': 'so {quoted}'}}}}</tool_call>"
    events = events_of(text)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, ["bad_json"])


@pytest.mark.parametrize(
    ("text", "remains"),
    [
        (f"{UNKNOWN}\n\n{CALL}", f"{UNKNOWN}\n\n"),
        (f"{CALL}\n{UNKNOWN}\n\n{CALL}", f"\n{UNKNOWN}\n\n"),
        (f"{UNKNOWN}\n", f"{UNKNOWN}\n"),
        (
            '<function_calls>\n<invoke name="nope"></invoke>\n<invoke name="ping"></invoke>\n</function_calls>',
            '<function_calls>\n<invoke name="nope"></invoke>\n\n</function_calls>',
        ),
        (
            '<tool_calls>[{"name":"nope","arguments":{}}, {"name":"ping","arguments":{}}]</tool_calls>',
            '<tool_calls>[{"name":"nope","arguments":{}}, ]</tool_calls>',
        ),
    ],
)
def test_text_around_a_call_that_stays_text(text: str, remains: str) -> None:
    """Blanks and closers behind a call of an unknown tool belong to it and are text."""
    events = events_of(text)
    assert all(call == PING for call in calls_of(events))
    assert text_of(events) == remains
    assert reasons_of(events) == ["unknown_tool"]


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_calls>{CALL}</tool_calls>",
        f"<tool_calls>\n{CALL}\n</tool_calls>",
        '<tool_call>[TOOL_REQUEST]{"name":"ping","arguments":{}}[END_TOOL_REQUEST]</tool_call>',
    ],
)
def test_a_wrapper_around_another(text: str) -> None:
    """A call in two wrappers is one call, and no marker is left in the text."""
    events = events_of(text)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([PING], "", [])


@pytest.mark.parametrize(
    "pairs",
    [
        "tool_name:「始」get_weather「末」,\ncity:「始」7「末」,\ndays:「始」3「末」",
        "city:「始」7「末」,\ndays:「始」3「末」,\ntool_name:「始」get_weather「末」",
    ],
)
def test_vcp_values_have_the_declared_type(pairs: str) -> None:
    """VCP's bare values are typed by the schema, wherever the name stands."""
    events = events_of(f"<<<[TOOL_REQUEST]>>>\n{pairs}\n<<<[END_TOOL_REQUEST]>>>")
    assert calls_of(events) == [{"name": "get_weather", "arguments": {"city": "7", "days": 3}}]


def test_a_refused_call_beside_a_real_one_reads_the_same_in_every_cut() -> None:
    """What stands behind a span with a refused call goes on in the same line, however the text is cut."""
    text = (
        '<tool_call>{"name":"rm","arguments":{}}{"name":"ping","arguments":{}}'
        "Action: ping\nAction Input: {} ,</tool_call>"
    )
    whole = scan([text], tools=TOOLS, loose=True)
    for pieces in cuts(text):
        assert scan(pieces, tools=TOOLS, loose=True) == whole
    assert calls_of(whole) == [PING]
