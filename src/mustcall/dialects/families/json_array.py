"""A marker, then one JSON array of calls. Each item is complete by itself; what differs is the wrapping.

Apertus writes each call as `{"NAME": {arguments}}`; all others as the envelope with a name and arguments. Sarashina's
list is a Python literal.
"""

import json
from collections.abc import Sequence

from mustcall.dialects.dialect import Anchor, Dialect, Opener, Parser, Standing, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.envelope import (
    ARGUMENT_KEYS,
    NAME_KEYS,
    SIDE_KEYS,
    HeldCalls,
    array_renderer,
    dump,
    read_alone,
    read_array,
    read_envelope,
    read_items,
)
from mustcall.dialects.reading.jsontext import read_string
from mustcall.dialects.reading.pyliteral import read_literal, write_literal
from mustcall.dialects.reading.reader import NotACall, Parse, blanks, expect
from mustcall.dialects.reading.span import Span

__all__ = ["DIALECTS"]


def _array(*closers: str) -> Parser:
    def read(span: Span) -> Parse[None]:
        yield from read_array(span)
        if closers:
            yield from span.finish(*closers)

    return read


def _mistral(span: Span) -> Parse[None]:
    """The array, and the end of the turn that servers leave behind it."""
    yield from read_array(span)
    yield from span.finish_turn("</s>")


def _opened(span: Span) -> Parse[None]:
    """The marker ends with the array's own bracket."""
    yield from read_items(span)


def _bare(span: Span) -> Parse[None]:
    """No marker at all: an array of calls of offered tools, and nothing else on its lines."""
    yield from read_alone(span, lambda held: read_items(span, held=held))


def _fenced(span: Span) -> Parse[None]:
    """A code fence that says it is JSON and holds nothing but calls."""
    first = yield from blanks(span.reader)
    if first == "[":
        yield from read_array(span)
    else:
        yield from read_envelope(span)
    yield from span.finish("```")


def _cohere_plan(span: Span) -> Parse[None]:
    """`Action:` and a JSON fence."""
    yield from expect(span.reader, "```json", Reason.STRAY_MARKER)
    yield from blanks(span.reader)
    yield from read_array(span)
    yield from span.finish("```")


def _literal(span: Span, held: HeldCalls | None = None) -> Parse[None]:
    """Read one call written as a Python dictionary; it is read whole before it is a call."""
    reader = span.reader
    first = yield from blanks(reader)
    if first != "{":
        raise NotACall(Reason.BAD_LITERAL if first else Reason.TRUNCATED)
    pieces: list[str] = []
    yield from read_literal(reader, pieces.append)
    item = json.loads("".join(pieces))
    named = [key for key in item if key in NAME_KEYS and isinstance(item[key], str)]
    given = [key for key in item if key in ARGUMENT_KEYS]
    others = item.keys() - {*named, *given} - SIDE_KEYS
    if len(named) != 1 or (others and held is not None):
        raise NotACall(Reason.MISSING_NAME if not named else Reason.BAD_MARKUP)
    name = item[named[0]]
    call = span.begin(name if held is None else held.name(name))
    if len(given) > 1:
        raise NotACall(Reason.AMBIGUOUS_ARGUMENTS)
    if given:
        if not isinstance(item[given[0]], dict):
            raise NotACall(Reason.NOT_OBJECT)
        call.write(dump(item[given[0]]))
    if held is not None:
        held.hold(call)
    else:
        call.end()


def _literals(span: Span) -> Parse[None]:
    yield from read_array(span, _literal)
    yield from span.finish("<|/tool_calls|>")


def _bare_literals(span: Span) -> Parse[None]:
    """The list without its token, which servers strip: nothing else may stand on its lines."""
    yield from read_alone(span, lambda held: read_items(span, _literal, held))


def _render_literals(calls: Sequence[WrittenCall]) -> str:
    items = ", ".join(
        "{'name': " + repr(call.name) + ", 'arguments': " + write_literal(call.arguments) + "}" for call in calls
    )
    return f"<|tool_calls|>[{items}]"


def _single_key(span: Span, held: HeldCalls | None = None) -> Parse[None]:
    del held
    reader = span.reader
    first = yield from blanks(reader)
    if first != "{":
        raise NotACall(Reason.BAD_JSON if first else Reason.TRUNCATED)
    reader.position += 1
    yield from blanks(reader)
    call = span.begin((yield from read_string(reader)))
    yield from blanks(reader)
    yield from expect(reader, ":", Reason.BAD_JSON)
    yield from call.read_arguments()
    yield from blanks(reader)
    yield from expect(reader, "}", Reason.BAD_JSON)
    call.end()


def _apertus(span: Span) -> Parse[None]:
    yield from read_array(span, _single_key)
    yield from span.finish("<|tools_suffix|>")


def _render_apertus(calls: Sequence[WrittenCall]) -> str:
    items = [{call.name: call.arguments} for call in calls]
    return f"<|tools_prefix|>{dump(items)}<|tools_suffix|>"


_TOOL_CALLS = Opener("<tool_calls>", _array("</tool_calls>"), ("[",))

DIALECTS = (
    Dialect(
        "jamba",
        "JSON array",
        "Jamba 1.5+",
        (_TOOL_CALLS,),
        ("</tool_calls>",),
        array_renderer("<tool_calls>", "</tool_calls>"),
    ),
    Dialect(
        "hunyuan_a13b",
        "JSON array",
        "Hunyuan-A13B",
        (_TOOL_CALLS,),
        ("</tool_calls>",),
        array_renderer("<tool_calls>", "</tool_calls>"),
    ),
    Dialect(
        "apriel",
        "JSON array",
        "Apriel 1.5/1.6",
        (_TOOL_CALLS,),
        ("</tool_calls>",),
        array_renderer("<tool_calls>", "</tool_calls>"),
    ),
    Dialect(
        "nemotron_toolcall",
        "JSON array",
        "Nemotron-Nano v2, deci",
        (Opener("<TOOLCALL>", _array("</TOOLCALL>"), ("[",)),),
        ("</TOOLCALL>",),
        array_renderer("<TOOLCALL>", "</TOOLCALL>"),
    ),
    Dialect(
        "mistral_json",
        "JSON array",
        "Mistral before v11, Nemo",
        (Opener("[TOOL_CALLS]", _mistral, ("[",)),),
        (),
        array_renderer("[TOOL_CALLS] ", ""),
    ),
    Dialect(
        "command_r7b",
        "JSON array",
        "Command R7B, Command A",
        (Opener("<|START_ACTION|>", _array("<|END_ACTION|>"), ("[",)),),
        ("<|END_ACTION|>",),
        array_renderer("<|START_ACTION|>", "<|END_ACTION|>", name="tool_name", arguments="parameters"),
    ),
    Dialect(
        "command_r_plus",
        "JSON array",
        "Command R+",
        (Opener("Action:", _cohere_plan, ("```json",), Anchor.LINE),),
        ("```",),
        array_renderer("Action:\n```json\n", "\n```", name="tool_name", arguments="parameters"),
    ),
    Dialect(
        "granite",
        "JSON array",
        "Granite 3.x, Phi-4-mini",
        (
            Opener("<|tool_call|>", _array("<|/tool_call|>"), ("[",)),
            Opener("<tool_call>", _array("</tool_call>"), ("[",)),
        ),
        ("</tool_call>", "<|/tool_call|>"),
        array_renderer("<|tool_call|>", ""),
    ),
    Dialect(
        "phi4_mini",
        "JSON array",
        "Phi-4-mini, FireFunction v2",
        (Opener("functools[", _opened, ("{",), Anchor.LINE, soft=True),),
        (),
        array_renderer("functools", ""),
    ),
    Dialect(
        "sarashina",
        "JSON array",
        "Sarashina 2.2",
        (
            Opener("<|tool_calls|>", _literals, ("[",)),
            Opener("[", _bare_literals, ("{'",), Anchor.BARE, soft=True, alone=True),
        ),
        ("<|/tool_calls|>",),
        _render_literals,
    ),
    Dialect(
        "xlam",
        "JSON array",
        "xLAM",
        (
            Opener("```json", _fenced, ("[",), Anchor.LINE, soft=True),
            Opener("[TOOL_CALLS]", _mistral, ("[",)),
            Opener("<tool_call>", _array("</tool_call>"), ("[",)),
            Opener("[", _bare, ("{",), Anchor.BARE, soft=True),
        ),
        ("```", "</tool_call>"),
        array_renderer("```json\n", "\n```"),
        Standing.NAMED,
    ),
    Dialect(
        "fenced_json",
        "JSON array",
        "any model asked for JSON",
        (Opener("```json", _fenced, ("[", "{"), Anchor.LINE, soft=True),),
        ("```",),
        array_renderer("```json\n", "\n```"),
        Standing.NAMED,
    ),
    Dialect(
        "apertus",
        "JSON array",
        "Apertus",
        (Opener("<|tools_prefix|>", _apertus, ("[",)),),
        ("<|tools_suffix|>",),
        _render_apertus,
    ),
    Dialect(
        "json_array",
        "JSON array",
        "any, under constrained decoding",
        (Opener("[", _bare, ("{",), Anchor.BARE, soft=True, alone=True),),
        (),
        array_renderer("", "", arguments="parameters"),
    ),
)
