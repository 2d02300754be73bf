"""Rules 102 and 122: leftover call markup in earlier assistant texts."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import Part, Text, ToolCall, ToolResult
from mustcall.core.tools import Tool
from mustcall.dialects import DIALECTS, Dialect, Standing
from mustcall.dialects.examples import example_of
from mustcall.policy.facts.profile import Profile
from mustcall.policy.history.leftover_markup import MarkupEraser, strip_markup

_WEATHER = Tool(
    name="get_weather",
    parameters={"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
)
_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
_AUTO = [dialect for dialect in DIALECTS if dialect.standing is Standing.AUTO]
_OTHERS = [dialect for dialect in DIALECTS if dialect.standing is not Standing.AUTO]


def _eraser() -> MarkupEraser:
    return MarkupEraser.of((_WEATHER,), Profile().dialects)


def _message(role: Role, *parts: Part) -> Message:
    return Message(role=role, parts=parts)


def _strip(*messages: Message, tools: tuple[Tool, ...] = (_WEATHER,), bound: int = 0) -> tuple[Message, ...]:
    return strip_markup(messages, tools, Profile(), bound, AdaptationLog())


@pytest.mark.parametrize("dialect", _AUTO, ids=lambda dialect: dialect.name)
def test_every_dialect_is_taken_out(dialect: Dialect) -> None:
    """Rule 102: a complete call of an offered tool goes, in every dialect that is always looked for."""
    assert "get_weather" not in _eraser().erase(example_of(dialect))


@pytest.mark.parametrize("dialect", _OTHERS, ids=lambda dialect: dialect.name)
def test_other_dialects_go_where_the_profile_names_them(dialect: Dialect) -> None:
    """Rule 102: a dialect that must be named is looked for where the profile names it."""
    text = example_of(dialect)
    eraser = MarkupEraser.of((_WEATHER,), (dialect.name,))
    assert "get_weather" not in eraser.erase(text)


def test_prose_stays_and_the_rest_goes() -> None:
    """Rule 102: what stands around the call is kept."""
    assert _eraser().erase(f"Let me look.\n\n{_CALL}") == "Let me look."
    assert _eraser().erase(f"{_CALL}\nIt is sunny.") == "It is sunny."


@pytest.mark.parametrize(
    "text",
    [
        "plain prose about get_weather",
        f"```\n{_CALL}\n```",
        f"Write `{_CALL}` to call it.",
        f"> {_CALL}",
        _CALL.replace("get_weather", "unknown_tool"),
        _CALL[:-20],
        '<tool_call>{"name": "get_weather", "arguments": [1]}</tool_call>',
        "<think>get_weather?</think> Sunny.",
    ],
)
def test_what_is_no_call_is_the_same_object(text: str) -> None:
    """Rules 102, 105, 122: code, quotations, unknown tools, half calls and prose are not touched."""
    assert _eraser().erase(text) is text


def test_only_the_assistants_text_is_touched() -> None:
    """Rules 102, 122: user, tool and system text and everything but text stays as it is."""
    result = ToolResult(call_id="1", content=(Text(text=_CALL),))
    call = ToolCall(id="1", name="get_weather", arguments_json=f'{{"city": "{_CALL[:9]}"}}')
    messages = (
        _message(Role.SYSTEM, Text(text=_CALL)),
        _message(Role.USER, Text(text=_CALL)),
        _message(Role.ASSISTANT, call),
        _message(Role.TOOL, result),
        _message(Role.DEVELOPER, Text(text=_CALL)),
    )
    assert strip_markup(messages, (_WEATHER,), Profile(), 0, AdaptationLog()) is messages


def test_the_text_part_goes_when_nothing_is_left() -> None:
    """Rule 102: a text of nothing but markup is removed; other parts and unknown fields stay."""
    call = ToolCall(id="1", name="get_weather", arguments_json="{}")
    marked = Text(text=f"ok {_CALL}", origin=Origin(Wire.MESSAGES, {"cache_control": 1}, {"raw": 1}))
    stripped = _strip(_message(Role.ASSISTANT, Text(text=_CALL), marked, call))
    assert stripped[0].parts == (Text(text="ok", origin=Origin(Wire.MESSAGES, {"cache_control": 1})), call)


def test_tools_of_the_history_count_from_their_first_call_on() -> None:
    """Rule 102: a tool the history called is known; one called only later is not, so that prefixes stay the same."""
    text = _message(Role.ASSISTANT, Text(text=_CALL))
    call = _message(Role.ASSISTANT, ToolCall(id="1", name="get_weather", arguments_json="{}"))
    assert _strip(text, call, text, tools=()) == (text, call, _message(Role.ASSISTANT))
    assert _strip(text, tools=()) == (text,)


def test_namespaced_tools_are_known_by_both_names() -> None:
    """Rule 102: a tool in a namespace is leaked under its own or its flat name."""
    eraser = MarkupEraser.of((_WEATHER.evolve(namespace="sky"),), Profile().dialects)
    assert eraser.erase(_CALL) == ""
    assert eraser.erase(_CALL.replace("get_weather", "sky__get_weather")) == ""


def test_changes_and_bound_leftovers_are_noted() -> None:
    """Rules 102, 134: what was taken out is noted; what reasoning is bound to stays and is reported."""
    marked = _message(Role.ASSISTANT, Text(text=f"ok {_CALL}"))
    log = AdaptationLog()
    messages = strip_markup((marked, marked, marked), (_WEATHER,), Profile(), 1, log)
    assert messages[0] is marked
    assert [message.parts for message in messages[1:]] == [(Text(text="ok"),)] * 2
    assert [entry.kind for entry in log.entries] == [AdaptationKind.REPORTED, AdaptationKind.MARKUP_STRIPPED]


_SCRAPS = [
    "<tool_",
    "call>",
    "get_weather",
    "`",
    "<think>",
    "</think>",
    "<|im_end|>",
    "text",
    ">",
    "[TOOL_CALLS]",
    "[",
    "]",
]
_SPANS = (_CALL, _CALL[:11], _CALL[11:-12], _CALL[-12:], "```\n", "\n", " ", '{"name": "get_weather", "arguments": {}}')
_PIECES = st.lists(st.sampled_from((*_SCRAPS, *_SPANS)), max_size=14).map("".join)


@given(st.one_of(_PIECES, st.text(max_size=80)))
@example("<tool_" + _CALL + "call>" + _CALL[11:])
@settings(deadline=None)
def test_erasing_twice_is_erasing_once(text: str) -> None:
    """Rule 102: any text is read without an exception, and what is left holds no call."""
    once = _eraser().erase(text)
    assert _eraser().erase(once) is once
    assert len(once) <= len(text)


def test_text_that_folds_into_ever_new_calls_goes_as_a_whole() -> None:
    """Rule 102: the number of readings is bounded; a text that is still a call after them is nothing but markup."""
    nested = _CALL
    for depth in range(9):
        assert _eraser().erase(f"words {nested}") == ("words" if depth < 3 else "")
        nested = f"<tool_{nested}call>{_CALL[11:]}"
