"""The name stands in a header of markers, the arguments follow as one JSON object.

DeepSeek's two formats share every marker and differ only in what stands before the separator; Kimi's header is an id
that contains the name; Solar's is an id and the name; Mistral's may carry an id; Functionary's is a line of its own.
"""

# ruff: noqa: RUF001 - the formats themselves are written with U+FF5C

import re
from collections.abc import Iterator, Sequence
from typing import cast

from mustcall.dialects.dialect import A_NAME, Anchor, Dialect, Opener, Renderer, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.names import Offered
from mustcall.dialects.reading.envelope import dump
from mustcall.dialects.reading.jsontext import escape, quote
from mustcall.dialects.reading.reader import NotACall, Parse, accept, accept_any, ahead, blanks, expect, run, word
from mustcall.dialects.reading.schema import DeclaredParameter, Kind, child_schema
from mustcall.dialects.reading.span import OpenCall, Span
from mustcall.dialects.reasoning import CONTROLS
from mustcall.dialects.scanning.grammar import marks_of

__all__ = ["DIALECTS", "only_string"]

_DS_BEGIN, _DS_SEP, _DS_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_DS_SECTION, _DS_SECTION_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_KIMI_BEGIN, _KIMI_ARGUMENTS, _KIMI_END = (
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
_KIMI_SECTIONS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_KIMI_SECTION_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_SOLAR_BEGIN, _SOLAR_NAME, _SOLAR_ARGUMENTS, _SOLAR_END = (
    "<|tool_call:begin|>",
    "<|tool_call:name|>",
    "<|tool_call:args|>",
    "<|tool_call:end|>",
)
_SOLAR_SECTION, _SOLAR_SECTION_END = "<|tool_calls|>", "<|calls|>"
_SOLAR_HEAD = re.compile(r"[^<\n]*+")
_CODE_ENDS = ("\n>>>", *(control.marker for control in CONTROLS if control.marker.startswith("<|")))
_KIMI_INDEX = re.compile(r"(?::\d+|_\d+)\Z")


def _deepseek(span: Span) -> Parse[None]:
    reader = span.reader
    inner = span.marker == _DS_BEGIN
    while inner or (yield from accept(reader, _DS_BEGIN)):
        inner = False
        yield from blanks(reader)
        name = yield from word(reader, Reason.BAD_MARKUP)
        yield from expect(reader, _DS_SEP)
        fenced = False
        span.dialect = "deepseek_v31"
        if name == "function" and (yield from blanks(reader)) != "{":
            span.dialect = "deepseek_v3"
            name = yield from word(reader)
            yield from blanks(reader)
            fenced = yield from accept(reader, "```json")
        call = span.begin(name)
        yield from call.read_arguments()
        if fenced:
            yield from blanks(reader)
            yield from accept(reader, "```")
        call.end()
        yield from span.finish(_DS_END)
        yield from blanks(reader)
    yield from span.finish(_DS_SECTION_END)


def _render_deepseek(head: str, before: str, after: str) -> Renderer:
    def render(calls: Sequence[WrittenCall]) -> str:
        inner = "".join(f"{_DS_BEGIN}{head}{call.name}{before}{dump(call.arguments)}{after}{_DS_END}" for call in calls)
        return f"{_DS_SECTION}{inner}{_DS_SECTION_END}"

    return render


def _kimi(span: Span) -> Parse[None]:
    reader = span.reader
    inner = span.marker == _KIMI_BEGIN
    while inner or (yield from accept(reader, _KIMI_BEGIN)):
        inner = False
        yield from blanks(reader)
        header = yield from word(reader)
        yield from blanks(reader)
        yield from expect(reader, _KIMI_ARGUMENTS)
        call = span.begin(_kimi_name(header, span.offered))
        yield from call.read_arguments()
        call.end()
        yield from span.finish(_KIMI_END)
        yield from blanks(reader)
    yield from span.finish(*_KIMI_SECTION_ENDS)


def _kimi_name(header: str, offered: Offered) -> str:
    """Return the name in a header: `functions.NAME:0`, `NAME:0`, `functions_NAME_0` and `NAME` were all seen."""
    for name in _kimi_names(header):
        if offered.resolve(name) is not None:
            return name
    return header


def _kimi_names(header: str) -> Iterator[str]:
    bare = header.removeprefix("functions.").removeprefix("functions_")
    if ":" in bare:
        yield bare.rpartition(":")[0]
    yield bare
    yield _KIMI_INDEX.sub("", bare)


def _render_kimi(calls: Sequence[WrittenCall]) -> str:
    inner = "".join(
        f"{_KIMI_BEGIN}functions.{call.name}:{index}{_KIMI_ARGUMENTS}{dump(call.arguments)}{_KIMI_END}"
        for index, call in enumerate(calls)
    )
    return f"{_KIMI_SECTIONS[0]}{inner}{_KIMI_SECTION_ENDS[0]}"


def _solar(span: Span) -> Parse[None]:
    """Each call between tokens of its own: an id, which may be empty, the name, and the arguments."""
    reader = span.reader
    inner = span.marker == _SOLAR_BEGIN
    while inner or (yield from accept(reader, _SOLAR_BEGIN)):
        inner = False
        yield from run(reader, _SOLAR_HEAD, 256, Reason.BAD_MARKUP)
        yield from expect(reader, _SOLAR_NAME)
        name = yield from run(reader, _SOLAR_HEAD, 256, Reason.BAD_MARKUP)
        yield from expect(reader, _SOLAR_ARGUMENTS)
        if not name.strip():
            raise NotACall(Reason.MISSING_NAME)
        call = span.begin(name.strip())
        yield from call.read_arguments()
        call.end()
        yield from span.finish(_SOLAR_END)
        yield from blanks(reader)
    yield from span.finish(_SOLAR_SECTION_END)


def _render_solar(calls: Sequence[WrittenCall]) -> str:
    inner = "".join(
        f"{_SOLAR_BEGIN}call_{index}{_SOLAR_NAME}{call.name}{_SOLAR_ARGUMENTS}{dump(call.arguments)}{_SOLAR_END}"
        for index, call in enumerate(calls)
    )
    return f"{_SOLAR_SECTION}{inner}{_SOLAR_SECTION_END}"


def _mistral(span: Span) -> Parse[None]:
    """`NAME[CALL_ID]id[ARGS]{…}`; both markers inside may be missing."""
    reader = span.reader
    name = yield from word(reader, Reason.STRAY_MARKER)
    if (yield from accept(reader, "[CALL_ID]")):
        yield from word(reader, Reason.BAD_MARKUP)
    marked = yield from accept(reader, "[ARGS]")
    first = yield from blanks(reader)
    if not first:
        raise NotACall(Reason.TRUNCATED)
    if not marked and first != "{":
        raise NotACall(Reason.STRAY_MARKER)
    call = span.begin(name)
    yield from call.read_arguments()
    call.end()
    yield from span.finish_turn("</s>")


def _render_mistral(calls: Sequence[WrittenCall]) -> str:
    return "".join(f"[TOOL_CALLS]{call.name}[ARGS]{dump(call.arguments)}" for call in calls)


def _render_functionary(calls: Sequence[WrittenCall]) -> str:
    return "\n".join(f"<function={call.name}>{dump(call.arguments)}</function>" for call in calls)


def _recipient(span: Span) -> Parse[None]:
    """`>>>NAME` on a line of its own; `>>>all` addresses the user and is no text either.

    With a blank behind the marker it is Python's prompt, and the object below is what it printed.
    """
    reader = span.reader
    if "".join(reader.raw) + reader.buffer[reader.start : reader.position] != span.marker:
        raise NotACall(Reason.BAD_MARKUP)
    name = yield from word(reader)
    if (yield from accept_any(reader, ("\n", "\r\n"))) == "":
        raise NotACall(Reason.BAD_MARKUP)
    if name == "all" and span.offered.resolve(name) != name:
        span.drop()
        return
    first = yield from blanks(reader)
    if first and first != "{" and name == "python" and span.offered.resolve(name) == name:
        yield from _raw_code(span, name)
        return
    if first != "{":
        raise NotACall(Reason.NOT_OBJECT)
    call = span.begin(name)
    call.commit()
    yield from call.read_arguments()
    call.end()


def only_string(call: OpenCall) -> str | None:
    """Return the one parameter of a tool that takes one string, which bare text is for; None if it is another tool."""
    declared: object = (call.schema or {}).get("properties")
    # A schema comes from outside: only its shape is certain here.
    keys = tuple(cast("dict[str, object]", declared)) if isinstance(declared, dict) else ()
    if len(keys) != 1:
        return None
    parameter = DeclaredParameter(child_schema(call.schema, keys[0], call.schema), call.schema)
    return keys[0] if parameter.kind is Kind.STRING else None


def _raw_code(span: Span, name: str) -> Parse[None]:
    """`>>>python` and bare code, up to the next recipient or the end: the tool's one parameter, if it is a string."""
    reader = span.reader
    call = span.begin(name)
    key = only_string(call)
    if key is None:
        raise NotACall(Reason.NOT_OBJECT)
    call.commit()
    call.write(f'{{{quote(key)}: "')
    while True:
        at, marker = marks_of(*_CODE_ENDS).find(reader.buffer, reader.position, reader.closed)
        call.write(escape(reader.buffer[reader.position : at]))
        reader.position = at
        if marker or reader.closed:
            break
        yield
    call.write('"}')
    span.open_ended = not marker
    call.end()


def _render_recipients(calls: Sequence[WrittenCall]) -> str:
    return "\n".join(f">>>{call.name}\n{dump(call.arguments)}" for call in calls)


def _functionary(span: Span) -> Parse[None]:
    reader = span.reader
    name = yield from word(reader, Reason.STRAY_MARKER)
    yield from expect(reader, ">", Reason.STRAY_MARKER)
    if (yield from blanks(reader)) != "{":
        ended = (yield from ahead(reader)) == ""
        raise NotACall(Reason.TRUNCATED if ended else Reason.STRAY_MARKER)
    call = span.begin(name)
    yield from call.read_arguments()
    call.end()
    yield from span.finish("</function>")


_DEEPSEEK_OPENERS = (Opener(_DS_SECTION, _deepseek, (_DS_BEGIN,)), Opener(_DS_BEGIN, _deepseek))

DIALECTS = (
    Dialect(
        "deepseek_v3",
        "name and JSON",
        "DeepSeek-V3, R1, Cogito",
        _DEEPSEEK_OPENERS,
        (_DS_SECTION_END, _DS_END),
        _render_deepseek(f"function{_DS_SEP}", "\n```json\n", "\n```"),
    ),
    Dialect(
        "deepseek_v31",
        "name and JSON",
        "DeepSeek-V3.1",
        _DEEPSEEK_OPENERS,
        (_DS_SECTION_END, _DS_END),
        _render_deepseek("", _DS_SEP, ""),
    ),
    Dialect(
        "kimi_k2",
        "name and JSON",
        "Kimi-K2, K2-Thinking, K2.x",
        (*(Opener(section, _kimi, (_KIMI_BEGIN,)) for section in _KIMI_SECTIONS), Opener(_KIMI_BEGIN, _kimi)),
        (*_KIMI_SECTION_ENDS, _KIMI_END),
        _render_kimi,
    ),
    Dialect(
        "solar_open",
        "name and JSON",
        "Solar Open",
        (Opener(_SOLAR_SECTION, _solar, (_SOLAR_BEGIN,)), Opener(_SOLAR_BEGIN, _solar)),
        (_SOLAR_SECTION_END, _SOLAR_END),
        _render_solar,
    ),
    Dialect(
        "mistral_v11",
        "name and JSON",
        "Mistral Small 3.x, Devstral, Ministral, Magistral",
        (Opener("[TOOL_CALLS]", _mistral, (A_NAME,)),),
        (),
        _render_mistral,
    ),
    Dialect(
        "functionary_v31",
        "name and JSON",
        "Functionary 3.1, Llama 3.1 custom tools",
        (Opener("<function=", _functionary, (A_NAME,)),),
        ("</function>",),
        _render_functionary,
    ),
    Dialect(
        "functionary_v32",
        "name and JSON",
        "Functionary 3.2",
        (Opener(">>>", _recipient, (A_NAME,), Anchor.LINE, soft=True),),
        (),
        _render_recipients,
    ),
)
