"""The spellings and slips that models were seen to write, each read, or refused, the same at every split."""

import ast
import json
from typing import Any

import pytest

from dialects.scanning import calls_of, cuts, dialects_of, reasons_of, scan, text_of
from mustcall.core.tools import Tool
from mustcall.dialects import ScanEvent
from support.splits import text_splits

TOOLS = (
    Tool(name="ping", parameters={"type": "object", "properties": {}}),
    Tool(
        name="get_weather",
        parameters={"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    ),
    Tool(name="python", parameters={"type": "object", "properties": {"code": {"type": "string"}}}),
    Tool(
        name="tag",
        parameters={
            "type": "object",
            "properties": {
                "words": {"type": "array", "items": {"type": "string"}},
                "sizes": {"type": "array", "items": {"type": "integer"}},
                "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {"type": "string"}}}},
                "note": {},
            },
        },
    ),
    Tool(name="ask", parameters={"type": "object", "properties": {"input": {"type": "object"}}}),
)
PARIS: dict[str, Any] = {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}
PING: dict[str, Any] = {"name": "ping", "arguments": {}}
M = "]<]minimax[>["
D = "\uff5cDSML\uff5c"


def read(text: str, *, loose: bool = False) -> list[ScanEvent]:
    """Return the events of a text, the same however it is cut."""
    whole = scan([text], tools=TOOLS, loose=loose)
    for pieces in text_splits(text):
        assert scan(pieces, tools=TOOLS, loose=loose) == whole, pieces
    return whole


def hunyuan(suffix: str) -> str:
    """Return Hunyuan 3's call with a suffix on all of its tags."""
    pairs = "".join(
        f"<arg_key{suffix}>{key}</arg_key{suffix}>\n<arg_value{suffix}>{value}</arg_value{suffix}>\n"
        for key, value in (("city", "Paris"), ("days", "3"))
    )
    call = f"<tool_call{suffix}>get_weather<tool_sep{suffix}>\n{pairs}</tool_call{suffix}>"
    return f"<tool_calls{suffix}>\n{call}\n</tool_calls{suffix}>"


def elements(inner: str) -> str:
    """Return MiniMax M3's call of `tag` with these elements, whose tags stand without their sentinel."""
    return f'<tool_call>\n<invoke name="tag">{inner}</invoke>\n</tool_call>'.replace("<", M + "<")


def dsml(inner: str, name: str = "get_weather") -> str:
    """Return a DSML call whose tags stand without their prefix."""
    text = f'<function_calls>\n<invoke name="{name}">{inner}</invoke>\n</function_calls>'
    return text.replace("</", f"</{D}").replace("<", f"<{D}").replace(f"<{D}/{D}", f"</{D}")


PARAMETERS = '<parameter name="city">Paris</parameter>\n<parameter name="days">3</parameter>\n'
QWEN = "<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
OBJECT = '{"city": "Paris", "days": 3}'

READ = [
    ("hy_v3", hunyuan(""), [PARIS]),
    ("hy_v3", hunyuan(":opensource"), [PARIS]),
    ("gemma4", '<|tool_call>:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>', [PARIS]),
    ("deepseek_v32", dsml(f'{{"arguments": {OBJECT}}}'), [PARIS]),
    ("deepseek_v32", dsml(f'{{ "input" :\n{OBJECT} }}'), [PARIS]),
    ("deepseek_v32", dsml(OBJECT), [PARIS]),
    ("deepseek_v32", dsml(f'<parameter name="arguments" string="false">{OBJECT}</parameter>'), [PARIS]),
    ("deepseek_v32", dsml(f'<parameter name="input">{OBJECT}</parameter>\n'), [PARIS]),
    ("deepseek_v32", dsml('{"input": {"a": 1}}', "ask"), [{"name": "ask", "arguments": {"input": {"a": 1}}}]),
    (
        "minimax_m3",
        elements("<words>a</words><words>b</words><sizes>1</sizes><sizes>2</sizes><sizes>3</sizes>"),
        [{"name": "tag", "arguments": {"words": ["a", "b"], "sizes": [1, 2, 3]}}],
    ),
    (
        "minimax_m3",
        elements("<edits><old>x</old></edits>\n<edits><old>y</old></edits><note>n</note>"),
        [{"name": "tag", "arguments": {"edits": [{"old": "x"}, {"old": "y"}], "note": "n"}}],
    ),
    (
        "minimax_m3",
        elements("<note>hello <b>big</b><b>world</b></note><words><item>a</item></words>"),
        [{"name": "tag", "arguments": {"note": {"$text": "hello ", "b": ["big", "world"]}, "words": ["a"]}}],
    ),
    (
        "functionary_v32",
        'So\n>>>python\nprint("hi")\nx = {1: 2}\n>>>get_weather\n' + OBJECT,
        [{"name": "python", "arguments": {"code": 'print("hi")\nx = {1: 2}'}}, PARIS],
    ),
    (
        "minicpm5",
        '<functionĠname="get_weather"><paramĠname="city">Paris</param>Ċ<paramĠname="days">3</param></function>',
        [PARIS],
    ),
    (
        "minicpm5",
        '<functionĠname="get_weather">Ċ<paramĠname="city">NewĠYorkĊCity</param></function>',
        [{"name": "get_weather", "arguments": {"city": "New York\nCity"}}],
    ),
    ("anthropic", '<invoke name="ping"/>', [PING]),
    ("anthropic", '<function_calls>\n<invoke name="ping" />\n<invoke name="ping"/>\n</function_calls>', [PING, PING]),
    (
        "anthropic",
        f'<invoke name="get_weather">\n{PARAMETERS.replace(">Paris", " type=string >Paris")}</invoke>',
        [PARIS],
    ),
    ("anthropic", f'<invoke name="get_weather" id="7">\n{PARAMETERS}</invoke>', [PARIS]),
    ("anthropic", f'<function_calls><invoke name="get_weather">\n{OBJECT}\n</invoke></function_calls>', [PARIS]),
    ("minimax_m2", f'<minimax:tool_call><invoke name="get_weather">{OBJECT}</invoke></minimax:tool_call>', [PARIS]),
    ("qwen3_coder", f"<tool_call>\n<function get_weather>\n{QWEN}</function>\n</tool_call>", [PARIS]),
    ("qwen3_coder", f"<tool_call>\n<function=get_weather>\n{QWEN}</tool_call>", [PARIS]),
    ("qwen3_coder", f'<tool_call>\n<function="get_weather">\n{QWEN}</function>\n</tool_call>', [PARIS]),
    ("qwen3_coder", "<tool_call>\n<function=ping>\n</tool_call>", [PING]),
    ("mistral_v11", f"[TOOL_CALLS]get_weather[ARGS]{OBJECT}</s>", [PARIS]),
    ("mistral_json", f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {OBJECT}}}]</s>', [PARIS]),
    ("tool_code", '<tool_code>ping(); get_weather(city="Paris", days=3)</tool_code>', [PING, PARIS]),
    ("tool_code", '<tool_code>\nprint(ping());\nget_weather(city="Paris", days=3);\n</tool_code>', [PING, PARIS]),
    ("hermes", '<tool_call>{"name": "ping", "arguments": {}}</tool_call>\n</tool_call>', [PING]),
    ("glm", "<tool_call>ping</tool_call></tool_call></tool_call>", [PING]),
]
LOOSE = [
    ("react", f"**Action:** get_weather\n**Action Input:** {OBJECT}"),
    ("react", f"**Action**: get_weather\n**Action Input**: {OBJECT}"),
    ("react", f"Action: get_weather\nAction Input:\n```json\n{OBJECT}\n```"),
    ("react", f"Action: get_weather\nAction Input: ```\n{OBJECT}```"),
]


@pytest.mark.parametrize(("dialect", "text", "calls"), READ)
def test_read(dialect: str, text: str, calls: list[dict[str, Any]]) -> None:
    """Rule 57: a seen spelling of a format is read as that format, and leaves no markup in the text."""
    events = read(text)
    assert calls_of(events) == calls
    assert text_of(events) == ("So\n" if text.startswith("So\n") else "")
    assert reasons_of(events) == []
    assert dialects_of(events) == [dialect] * len(calls)


@pytest.mark.parametrize(("dialect", "text"), LOOSE)
def test_read_loosely(dialect: str, text: str) -> None:
    """Rule 64: ReAct in bold letters, and with its input in a fence, is ReAct."""
    events = read(text, loose=True)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([PARIS], "", [])
    assert dialects_of(events) == [dialect]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (dsml(f'{{"arguments": {OBJECT}, "x": 1}}'), "ambiguous_arguments"),
        (
            dsml(f'<parameter name="input">{OBJECT}</parameter><parameter name="city">x</parameter>'),
            "ambiguous_arguments",
        ),
        (elements("<note><a>1</a></note><note><a>2</a></note>"), "duplicate_key"),
        (elements("<words>a</words><note>x</note><words>b</words>"), "duplicate_key"),
        (elements("<note><a>1</a> and </note>"), "bad_markup"),
        ('<invoke name="get_weather"><parameter name="city"/></invoke>', "bad_markup"),
        ('<functionĠname="get_weather"><paramĠname="city">Par', "truncated"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    """Rule 107: what could be read in two ways is refused, and stays text as it is."""
    events = read(text)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, [reason])


@pytest.mark.parametrize(
    "text",
    [
        ">>>python\n",
        "<s>old</s> and <tool_calls:x> too",
        "a </tool_call> b",
        '<!-- <tool_call>{"name": "ping", "arguments": {}}</tool_call> -->',
        'See <!-- a\n<tool_call>{"name": "ping", "arguments": {}}</tool_call> -->.',
        'Write <code><tool_call>{"name": "ping", "arguments": {}}</tool_call></code> so.',
        '<pre class="x">\n\n<tool_call>{"name": "ping", "arguments": {}}</tool_call>\n</pre>',
        'Like <pre>\n[TOOL_REQUEST]{"name": "ping", "arguments": {}}[END_TOOL_REQUEST]\n\n</pre> this',
    ],
)
def test_no_calls(text: str) -> None:
    """Rules 63, 122: mentions, and what HTML quotes or hides, are text as they are and no damage."""
    events = read(text)
    assert (calls_of(events), text_of(events)) == ([], text)
    assert set(reasons_of(events)) <= {"stray_marker"}


def test_a_control_token_ends_no_quotation() -> None:
    """Rule 122: a token that is dropped from a quoted line leaves the rest of the line quoted."""
    quoted = '<|content_invoke_tool_json|>{"name": "ping", "args": {}}'
    events = read(f"> <|im_end|>{quoted}\n{quoted}")
    assert (calls_of(events), text_of(events)) == ([PING], f"> {quoted}\n")


@pytest.mark.parametrize(
    "before",
    [
        "Use the <code> tag.\n\n",
        "Use <code>\n\n",
        "A <!-- begins one.\n\n",
        "The <pre> and <code > tags\n\n",
        "> so <code>\n",
        "> a <tool_response>\n",
    ],
)
def test_mentioned_html_hides_no_call(before: str) -> None:
    """A tag that prose only mentions ends with its paragraph or quotation; the call behind it is a call."""
    events = read(before + '<tool_call>{"name": "ping", "arguments": {}}</tool_call>')
    assert (calls_of(events), text_of(events)) == ([PING], before)


@pytest.mark.parametrize(
    "text",
    [
        '@@call get_weather {"city": "Paris"}',
        '<|do|>{"tool_calls": [{"function": {"name": "get_weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}}]}<|ok|>',
        '{"message": {"tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}]}}',
        '"{\\"name\\": \\"get_weather\\", \\"arguments\\": {\\"city\\": \\"Paris\\"}}"',
    ],
)
def test_seen_in_unknown_markup(text: str) -> None:
    """Rule 121: a known call behind a command word, or nested in strange JSON, is reported and stays text."""
    events = read(text)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, ["unknown_markup"])


@pytest.mark.parametrize(
    "text",
    [
        "Please call get_weather with a city: any.",
        "(use get_weather, city: Paris)",
        "# Tool get_weather\n\nIt has no city.",
    ],
)
def test_prose_about_a_tool_is_not_reported(text: str) -> None:
    """Rule 121: a tool's name and a parameter's in a sentence are no markup."""
    assert reasons_of(read(text)) == []


def test_a_printed_call_where_no_tools_are_known() -> None:
    """Rule 57: `print(f())` is a call of `f`, also where every name counts."""
    for text in ("<tool_code>print(default_api.f(a=1))</tool_code>", "```tool_code\nprint(f(a=1))\n```"):
        for pieces in ([text], list(text)):
            events = scan(pieces, tools=None)
            assert calls_of(events) == [{"name": "f", "arguments": {"a": 1}}]
            assert text_of(events) == ""


STRUCTURES = [
    ("filter", '{"strict": True, "tags": None}'),
    ("filter", '{"a": 1, \'b\': [False, "it\'s"], "c": (1, 2),}'),
    ("filter", '{"a": [[1, 2], [\'x\', 3], 4], \'b\': {}, "c": {"d": None}}'),
    ("filter", "{ 'a': 1}"),
    ("tags", "[True]"),
    ("tags", "[ 'a']"),
    ("tags", '["a", None, {"b": 1}, {"c": True, "d": "</parameter>"}]'),
]
SEARCH = Tool(
    name="search",
    parameters={"type": "object", "properties": {"filter": {"type": "object"}, "tags": {"type": "array"}}},
)


@pytest.mark.parametrize(("key", "value"), STRUCTURES)
def test_structures_as_python_writes_them(key: str, value: str) -> None:
    """Rule 131: an object or array in Python's spelling is read as a literal, whichever quotes it begins with."""
    for text in (
        f"<tool_call>\n<function=search>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>",
        f'<invoke name="search"><parameter name="{key}">{value}</parameter></invoke>',
        f"<tool_call>search<arg_key>{key}</arg_key><arg_value>{value}</arg_value></tool_call>",
    ):
        whole = scan([text], tools=[SEARCH])
        for pieces in text_splits(text):
            assert scan(pieces, tools=[SEARCH]) == whole, pieces
        expected = json.loads(json.dumps(ast.literal_eval(value)))
        assert calls_of(whole) == [{"name": "search", "arguments": {key: expected}}]
        assert text_of(whole) == ""


@pytest.mark.parametrize(
    "value",
    [
        '{"a": 1,}',
        "[1, 2,]",
        '["a" "b"]',
        "{\"a\": 1, 'a': 2}",
        '{"a": NaN}',
        '{"a": Truely}',
        "[1, (2)]",
        "[1] and 2",
        "[a, b",
        '{"a": {"b": 1}',
    ],
)
def test_structures_that_are_neither(value: str) -> None:
    """Rule 107: what is neither JSON nor a Python literal stays the string it is, for validation to judge."""
    key = "tags" if value[0] == "[" else "filter"
    text = f'<invoke name="search"><parameter name="{key}">{value}</parameter></invoke>'
    for pieces in text_splits(text):
        events = scan(pieces, tools=[SEARCH])
        assert calls_of(events) == [{"name": "search", "arguments": {key: value}}]
        assert (text_of(events), reasons_of(events)) == ("", [])


def test_a_closing_tag_in_a_structure() -> None:
    """A closing tag in a string of an array ends nothing; a string that never ends takes the call along."""
    value = '["a</parameter></invoke>", "b"]'
    text = f'<invoke name="search"><parameter name="tags">{value}</parameter></invoke>'
    cut = text.replace('", "b"]', "")
    for pieces, broken in zip(cuts(text), cuts(cut), strict=True):
        events = scan(pieces, tools=[SEARCH])
        assert calls_of(events) == [{"name": "search", "arguments": {"tags": json.loads(value)}}]
        assert reasons_of(scan(broken, tools=[SEARCH])) == ["truncated"]
