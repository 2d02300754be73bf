"""Calls written as Python: `f(a=1, b="x")`, in a list, in a wrapper or in a fence. Read as literals, never run.

Arguments need names: a positional one would have to be guessed and makes the call malformed. What is no call of an
offered tool with literal arguments is, without a wrapper, ordinary text.
"""

import re
from collections.abc import Callable, Sequence

from mustcall.dialects.dialect import A_NAME, Anchor, Dialect, Opener, Parser, Renderer, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.envelope import HeldCalls, read_alone, read_envelopes, read_items
from mustcall.dialects.reading.jsontext import quote
from mustcall.dialects.reading.pyliteral import read_literal, write_literal
from mustcall.dialects.reading.reader import NotACall, Parse, accept, ahead, blanks, expect, run
from mustcall.dialects.reading.span import OpenCall, Span

__all__ = ["DIALECTS", "any_in", "read_python_call", "write_python_call"]

_NAME = re.compile(r"[A-Za-z0-9_.\-]*+")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORD = re.compile(r"\w*+")


def read_python_call(span: Span, held: HeldCalls | None = None) -> Parse[None]:
    """Read one call, blanks before it included."""
    reader = span.reader
    yield from blanks(reader)
    name = yield from run(reader, _NAME, 256, Reason.BAD_LITERAL)
    if (yield from blanks(reader)) != "(":
        ended = reader.closed and reader.position == len(reader.buffer)
        raise NotACall(Reason.TRUNCATED if ended else Reason.BAD_LITERAL)
    reader.position += 1
    # Where no tools are known, Gemma's `print(f())` is likelier than a tool of that name.
    printed = name == "print" and (span.offered.anything or span.offered.resolve(name) is None)
    if printed:
        yield from blanks(reader)
        name = yield from run(reader, _NAME, 256, Reason.BAD_LITERAL)
        yield from blanks(reader)
        yield from expect(reader, "(", Reason.BAD_LITERAL)
    call = span.begin(_offered_part(span, name if held is None else held.name(name)))
    empty = yield from _read_keywords(call, certain=held is None)
    if printed:
        yield from blanks(reader)
        yield from expect(reader, ")", Reason.BAD_LITERAL)
    if held is not None:
        # `[f()]` may be the text of a link, so without arguments only what stands behind the call can tell.
        held.hold(call, certain=not empty)
    else:
        call.end()


def _offered_part(span: Span, name: str) -> str:
    """Return the name without the module it was called on (`default_api.f`, `f.call`), if only so it is offered."""
    if not name:
        raise NotACall(Reason.MISSING_NAME)
    offered = span.offered
    if "." in name and (offered.anything or offered.resolve(name) is None):
        for part in (name.rpartition(".")[2], name.partition(".")[0]):
            if not offered.anything and offered.resolve(part) is not None:
                return part
        if name.startswith("default_api."):
            return name.removeprefix("default_api.")
    return name


def _read_keywords(call: OpenCall, *, certain: bool) -> Parse[bool]:
    """Read the arguments and their closing parenthesis; return whether there were none."""
    reader = call.span.reader
    keys: set[str] = set()
    call.write("{")
    while (yield from blanks(reader)) != ")":
        if (yield from accept(reader, "**")):
            yield from _read_mapping(call, keys)
        else:
            key = yield from run(reader, _KEYWORD, 256, Reason.BAD_LITERAL)
            following = yield from blanks(reader)
            if not following:
                raise NotACall(Reason.TRUNCATED)
            if not key or following != "=":
                raise NotACall(Reason.POSITIONAL)
            reader.position += 1
            call.commit()
            _write_key(call, keys, key)
            yield from read_literal(reader, call.write)
        following = yield from blanks(reader)
        if following == ",":
            reader.position += 1
        elif following != ")":
            raise NotACall(Reason.BAD_LITERAL if following else Reason.TRUNCATED)
    reader.position += 1
    if certain:
        call.commit()
    call.write("}")
    return not keys


def _write_key(call: OpenCall, keys: set[str], key: str) -> None:
    if key in keys:
        raise NotACall(Reason.DUPLICATE_KEY)
    call.write((", " if keys else "") + quote(key) + ": ")
    keys.add(key)


def _read_mapping(call: OpenCall, keys: set[str]) -> Parse[None]:
    """Read `**{…}`, the one way to write a keyword that is no identifier; its items join the arguments."""
    reader = call.span.reader
    yield from blanks(reader)
    yield from expect(reader, "{", Reason.BAD_LITERAL)
    call.commit()
    while (yield from blanks(reader)) != "}":
        pieces: list[str] = []
        if (yield from ahead(reader)) not in ("'", '"'):
            ended = reader.position == len(reader.buffer)
            raise NotACall(Reason.TRUNCATED if ended else Reason.BAD_LITERAL)
        yield from read_literal(reader, pieces.append)
        yield from blanks(reader)
        yield from expect(reader, ":", Reason.BAD_LITERAL)
        text = "".join(pieces)
        if text in keys:
            raise NotACall(Reason.DUPLICATE_KEY)
        call.write((", " if keys else "") + text + ": ")
        keys.add(text)
        yield from read_literal(reader, call.write)
        if (yield from blanks(reader)) == ",":
            reader.position += 1
        elif reader.buffer[reader.position : reader.position + 1] != "}":
            raise NotACall(Reason.BAD_LITERAL)
    reader.position += 1


def _read_list(span: Span, held: HeldCalls | None = None) -> Parse[None]:
    """Read calls up to the list's end; its opening bracket was read."""
    reader = span.reader
    span.begin_list()
    while True:
        yield from read_python_call(span, held)
        following = yield from blanks(reader)
        if not following:
            span.open_ended = True
            return
        if following not in ",]":
            raise NotACall(Reason.BAD_LITERAL)
        reader.position += 1
        if following == "]":
            span.end_list()
            if held is None:
                span.drop()
            return
        if held is not None:
            held.expect_more()


def _bare_list(span: Span) -> Parse[None]:
    """`[f(a=1)]` without any marker: where no tools are known it must be the reply's beginning."""
    if span.offered.anything and not span.fresh:
        raise NotACall(Reason.STRAY_MARKER)
    yield from read_alone(span, lambda held: _read_list(span, held))


def _list_in(*closers: str) -> Parser:
    def read(span: Span) -> Parse[None]:
        yield from expect(span.reader, "[")
        if (yield from blanks(span.reader)) == "{":
            yield from read_items(span)
        else:
            yield from _read_list(span)
        yield from span.finish(*closers)

    return read


def any_in(*closers: str) -> Parser:
    """A list, a JSON object, or calls under each other."""
    listed, lines = _list_in(*closers), _lines_in(*closers)

    def read(span: Span) -> Parse[None]:
        first = yield from ahead(span.reader)
        if first == "{":
            yield from read_envelopes(span)
            yield from span.finish(*closers)
        else:
            yield from listed(span) if first == "[" else lines(span)

    return read


def _lines_in(*closers: str) -> Parser:
    """Calls under each other, or behind semicolons, up to a closer."""

    def read(span: Span) -> Parse[None]:
        reader = span.reader
        while True:
            yield from read_python_call(span)
            following = yield from blanks(reader)
            if following == ";":
                reader.position += 1
                span.drop()
                following = yield from blanks(reader)
            if not (following.isalpha() or following == "_"):
                break
        yield from span.finish(*closers)

    return read


def _fenced(span: Span) -> Parse[None]:
    yield from _lines_in("```")(span)


def write_python_call(call: WrittenCall) -> str:
    """Return the call as Python, keywords that are no identifiers as `**{…}`."""
    plain: list[str] = []
    odd: list[str] = []
    for key, value in call.arguments.items():
        if _IDENTIFIER.fullmatch(key) and not odd:
            plain.append(f"{key}={write_literal(value)}")
        else:
            odd.append(f"{write_literal(key)}: {write_literal(value)}")
    if odd:
        plain.append("**{" + ", ".join(odd) + "}")
    return f"{call.name}({', '.join(plain)})"


def _renderer(
    before: str, after: str, join: str = ", ", write: Callable[[WrittenCall], str] = write_python_call
) -> Renderer:
    def render(calls: Sequence[WrittenCall]) -> str:
        return before + join.join(write(call) for call in calls) + after

    return render


DIALECTS = (
    Dialect(
        "llama4_pythonic",
        "Python calls",
        "Llama 4",
        (Opener("<|python_start|>", _list_in("<|python_end|>"), ("[",)),),
        ("<|python_end|>",),
        _renderer("<|python_start|>[", "]<|python_end|>"),
    ),
    Dialect(
        "lfm2",
        "Python calls",
        "LFM2, LFM2.5",
        (Opener("<|tool_call_start|>", any_in("<|tool_call_end|>"), ("[", "{", A_NAME + "(")),),
        ("<|tool_call_end|>",),
        _renderer("<|tool_call_start|>[", "]<|tool_call_end|>"),
    ),
    Dialect(
        "olmo3",
        "Python calls",
        "Olmo 3",
        (Opener("<function_calls>", _lines_in("</function_calls>"), (A_NAME,)),),
        ("</function_calls>",),
        _renderer("<function_calls>\n", "\n</function_calls>", "\n"),
    ),
    Dialect(
        "tool_code",
        "Python calls",
        "Gemma 3 and Gemini-style prompts",
        (
            Opener("<tool_code>", _lines_in("</tool_code>"), (A_NAME,)),
            Opener("```tool_code", _fenced, (A_NAME,), Anchor.LINE, soft=True),
        ),
        ("</tool_code>", "```"),
        _renderer("```tool_code\n", "\n```", "\n"),
    ),
    Dialect(
        "pythonic",
        "Python calls",
        "Llama 3.2, Llama 4, ToolACE",
        (Opener("[", _bare_list, (A_NAME + "(",), Anchor.BARE, soft=True),),
        (),
        _renderer("[", "]"),
    ),
)
