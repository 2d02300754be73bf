"""The name, then pairs of tags: `<arg_key>K</arg_key><arg_value>V</arg_value>` (GLM and its relatives).

Strings are raw, other values JSON, told apart by the tool's schema. VCP's pairs look different but work alike: every
value is bare text between its own brackets.
"""

import re
from collections.abc import Sequence

from mustcall.core.errors import UnsupportedFeature
from mustcall.core.memo import kept
from mustcall.dialects.dialect import A_NAME, Dialect, Opener, Renderer, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.families.xml_params import plain_value
from mustcall.dialects.reading.envelope import read_body, read_envelope
from mustcall.dialects.reading.jsontext import escape
from mustcall.dialects.reading.rawvalue import ArgumentWriter, Ends, read_raw_value
from mustcall.dialects.reading.reader import (
    NotACall,
    Parse,
    accept,
    accept_any,
    ahead,
    blanks,
    copy_until,
    expect,
    run,
    word,
)
from mustcall.dialects.reading.schema import Kind
from mustcall.dialects.reading.span import Span
from mustcall.dialects.scanning.grammar import marks_of

__all__ = ["DIALECTS"]

_KEY = re.compile(r"[^<\n]*+")
_SUFFIX = re.compile(r"[\w.\-]*+")
_VCP_KEY = re.compile(r"[A-Za-z0-9_]*+")
_VCP_END = marks_of("「末」")


def _ends_with(suffix: str) -> Ends:
    return Ends(f"</arg_value{suffix}>", (f"<arg_key{suffix}>", f"</tool_call{suffix}>"))


_kept_ends = kept(most=16)(_ends_with)
#: With the suffixes that models are known for; any other is a model's own word.
_ENDS = {suffix: _ends_with(suffix) for suffix in ("", ":opensource")}


def _pairs(span: Span, name: str, suffix: str = "") -> Parse[None]:
    """Read the pairs and the call's closing tag; all tags carry the suffix."""
    reader = span.reader
    writer = ArgumentWriter(span.begin(name))
    ends = _ENDS.get(suffix) or _kept_ends(suffix)
    key_tag, call_end = ends.followers
    while True:
        yield from blanks(reader)
        tag = yield from accept_any(reader, (key_tag, call_end))
        if tag == call_end:
            writer.end()
            return
        if not tag:
            yield from expect(reader, key_tag)
        key = yield from run(reader, _KEY, 256, Reason.BAD_MARKUP)
        yield from expect(reader, f"</arg_key{suffix}>")
        yield from blanks(reader)
        yield from expect(reader, f"<arg_value{suffix}>")
        yield from read_raw_value(writer, writer.key(key.strip()), ends)


def _glm(span: Span) -> Parse[None]:
    """`<tool_call>NAME`: only what follows the name shows that it is one and not prose."""
    reader = span.reader
    name = yield from word(reader, Reason.STRAY_MARKER)
    yield from blanks(reader)
    for tag in ("<arg_key>", "</tool_call>"):
        if (yield from accept(reader, tag)):
            reader.position -= len(tag)
            yield from _pairs(span, name)
            return
    if (yield from ahead(reader)) == "{" and span.offered.resolve(name) is not None:
        # The name, and its arguments as one JSON object.
        call = span.begin(name)
        yield from read_body(call)
        call.end()
        yield from span.finish("</tool_call>")
        return
    rest = reader.buffer[reader.position :]
    cut = reader.closed and ("<arg_key>".startswith(rest) or "</tool_call>".startswith(rest))
    cut = cut and span.offered.resolve(name) is not None
    raise NotACall(Reason.TRUNCATED if cut else Reason.STRAY_MARKER)


def _hunyuan(span: Span) -> Parse[None]:
    yield from _hunyuan_calls(span, "")


def _hunyuan_suffixed(span: Span) -> Parse[None]:
    """`<tool_calls:opensource>`: the tokenizer's suffix, which all of the call's tags share."""
    reader = span.reader
    suffix = ":" + (yield from run(reader, _SUFFIX, 64, Reason.STRAY_MARKER))
    yield from expect(reader, ">", Reason.STRAY_MARKER)
    yield from blanks(reader)
    yield from expect(reader, f"<tool_call{suffix}>", Reason.STRAY_MARKER)
    reader.position -= len(f"<tool_call{suffix}>")
    yield from _hunyuan_calls(span, suffix)


def _hunyuan_calls(span: Span, suffix: str) -> Parse[None]:
    reader = span.reader
    while (yield from accept(reader, f"<tool_call{suffix}>")):
        if (yield from blanks(reader)) == "{":
            # Hermes' call in Hunyuan's wrapper: models mix the two.
            yield from read_envelope(span)
            yield from span.finish(f"</tool_call{suffix}>")
            yield from blanks(reader)
            continue
        name = yield from word(reader)
        yield from blanks(reader)
        yield from accept(reader, f"<tool_sep{suffix}>")
        yield from _pairs(span, name, suffix)
        yield from blanks(reader)
    yield from span.finish(f"</tool_calls{suffix}>")


def _vcp(span: Span) -> Parse[None]:
    """`key:「始」value「末」` pairs; `tool_name` is the name, `maid` the caller's own signature.

    Only the tool's schema types a value, so those before the name wait for it.
    """
    reader = span.reader
    writer = ArgumentWriter(span.begin())
    call = writer.call
    keys: set[str] = set()
    waiting: list[tuple[str, str]] = []
    while not (yield from accept(reader, "<<<[END_TOOL_REQUEST]>>>")):
        key = yield from run(reader, _VCP_KEY, 256, Reason.BAD_MARKUP)
        yield from blanks(reader)
        yield from expect(reader, ":")
        yield from blanks(reader)
        yield from expect(reader, "「始」")
        if not key or key in keys:
            raise NotACall(Reason.DUPLICATE_KEY if key else Reason.BAD_MARKUP)
        keys.add(key)
        if key in ("tool_name", "maid") or call.written is None:
            value = yield from _vcp_text(span)
            if key == "tool_name":
                call.named(value.strip())
                for early, text in waiting:
                    call.write(writer.key(early).convert(text))
            elif key != "maid":
                waiting.append((key, value))
        else:
            parameter = writer.key(key)
            if parameter.kind is Kind.STRING:
                call.write('"')
                yield from copy_until(reader, _VCP_END, lambda piece: call.write(escape(piece)))
                call.write('"')
                yield from expect(reader, "「末」")
            else:
                call.write(parameter.convert((yield from _vcp_text(span))))
        yield from blanks(reader)
        yield from accept(reader, ",")
        yield from blanks(reader)
    writer.end()


def _vcp_text(span: Span) -> Parse[str]:
    """Read a value to its end, and its bracket."""
    pieces: list[str] = []
    yield from copy_until(span.reader, _VCP_END, pieces.append)
    yield from expect(span.reader, "「末」")
    return "".join(pieces)


def _renderer(dialect: str, before: str, head: str, after: str, *, wrapped: bool = False) -> Renderer:
    def key(text: str) -> str:
        if not text or text != text.strip() or re.search(r"[<\n]", text) or len(text) > 200:
            raise UnsupportedFeature(f"the dialect {dialect} cannot write the parameter name {text!r}")
        return text

    def one(call: WrittenCall) -> str:
        pairs = "".join(
            f"<arg_key>{key(name)}</arg_key>\n<arg_value>{plain_value(value, dialect, '</arg_value>')}</arg_value>\n"
            for name, value in call.arguments.items()
        )
        return f"<tool_call>{call.name}{head}{pairs}</tool_call>"

    def render(calls: Sequence[WrittenCall]) -> str:
        return before + "\n".join(one(call) for call in calls) + after

    del wrapped
    return render


def _render_vcp(calls: Sequence[WrittenCall]) -> str:
    def pair(key: str, value: object) -> str:
        if not _VCP_KEY.fullmatch(key) or key in ("tool_name", "maid", ""):
            raise UnsupportedFeature(f"the dialect vcp cannot write the parameter name {key!r}")
        text = plain_value(value, "vcp", "「末」")
        if "「末」" in text:
            raise UnsupportedFeature("the dialect vcp cannot write a value that contains its own brackets")
        return f",\n{key}:「始」{text}「末」"

    return "\n".join(
        f"<<<[TOOL_REQUEST]>>>\ntool_name:「始」{call.name}「末」"
        + "".join(pair(key, value) for key, value in call.arguments.items())
        + "\n<<<[END_TOOL_REQUEST]>>>"
        for call in calls
    )


DIALECTS = (
    Dialect(
        "glm",
        "key and value tags",
        "GLM-4.5 to GLM-5, Ling-3",
        (Opener("<tool_call>", _glm, (A_NAME,)),),
        ("</tool_call>",),
        _renderer("glm", "", "\n", ""),
    ),
    Dialect(
        "poolside_v1",
        "key and value tags",
        "Laguna",
        (Opener("<tool_call>", _glm, (A_NAME,)),),
        ("</tool_call>",),
        _renderer("poolside_v1", "", "\n", ""),
    ),
    Dialect(
        "hy_v3",
        "key and value tags",
        "Hunyuan 3",
        (
            Opener("<tool_calls>", _hunyuan, ("<tool_call>",)),
            Opener("<tool_calls:", _hunyuan_suffixed, (f"{A_NAME}>",)),
        ),
        ("</tool_calls>",),
        _renderer("hy_v3", "<tool_calls>\n", "<tool_sep>", "\n</tool_calls>"),
    ),
    Dialect(
        "vcp",
        "key and value tags",
        "VCP",
        (Opener("<<<[TOOL_REQUEST]>>>", _vcp, (A_NAME,)),),
        ("<<<[END_TOOL_REQUEST]>>>",),
        _render_vcp,
    ),
)
