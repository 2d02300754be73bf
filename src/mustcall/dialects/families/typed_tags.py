"""Tags that carry each parameter's type: DeepSeek's DSML (`string="true|false"`) and Kimi K3's XTML (`type="…"`).

A string is raw text, anything else is JSON, and a string after all where it is none. The tag's own word is believed;
only where it is missing the tool's schema decides.
"""

# ruff: noqa: RUF001 - the formats themselves are written with U+FF5C

import re
from collections.abc import Sequence

from mustcall.dialects.dialect import Dialect, Opener, Parser, Renderer, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.families.xml_params import plain_key, plain_value, read_attribute
from mustcall.dialects.reading.envelope import read_body, wraps_arguments
from mustcall.dialects.reading.rawvalue import ArgumentWriter, Ends, read_json_value, read_raw_value
from mustcall.dialects.reading.reader import NotACall, Parse, accept, accept_any, blanks, expect, run
from mustcall.dialects.reading.schema import DeclaredParameter, type_name
from mustcall.dialects.reading.span import OpenCall, Span

__all__ = ["DIALECTS"]

_INVOKE, _INVOKE_END = "<｜DSML｜invoke", "</｜DSML｜invoke>"
_PARAMETER, _PARAMETER_END = "<｜DSML｜parameter", "</｜DSML｜parameter>"
_WRAPPER_ENDS = ("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>")
#: What shows that a call has ended: its own end, or, where that was forgotten, what can only stand behind it.
_CALL_ENDS = (_INVOKE_END, _INVOKE, *_WRAPPER_ENDS)
_DSML_ENDS = Ends(_PARAMETER_END, (_PARAMETER, *_CALL_ENDS))

_SEP = "<|sep|>"
_CALL, _CALL_END = "<|open|>call", f"<|close|>call{_SEP}"
_ARGUMENT, _ARGUMENT_END = "<|open|>argument", f"<|close|>argument{_SEP}"
_TOOLS, _TOOLS_END = f"<|open|>tools{_SEP}", f"<|close|>tools{_SEP}"
_XTML_ENDS = Ends(_ARGUMENT_END, (_ARGUMENT, _CALL_END))

_ATTRIBUTE_NAME = re.compile(r"[A-Za-z_]*+")
_STRING = DeclaredParameter()


def _attributes(span: Span, end: str) -> Parse[dict[str, str]]:
    """Read `key="value"` pairs up to the tag's end."""
    reader = span.reader
    attributes: dict[str, str] = {}
    while True:
        yield from blanks(reader)
        if (yield from accept(reader, end)):
            return attributes
        name = yield from run(reader, _ATTRIBUTE_NAME, 64, Reason.BAD_MARKUP)
        yield from expect(reader, "=")
        if name in attributes:
            raise NotACall(Reason.DUPLICATE_KEY)
        attributes[name] = yield from read_attribute(reader)


def _typed_value(writer: ArgumentWriter, key: str, is_string: bool | None, ends: Ends) -> Parse[None]:
    parameter = writer.key(key)
    if is_string is False:
        yield from read_json_value(writer, ends)
    else:
        yield from read_raw_value(writer, _STRING if is_string else parameter, ends)


def _dsml(dialect: str, wrapper_end: str) -> Parser:
    """Read calls in their wrapper, or without one."""

    def read(span: Span) -> Parse[None]:
        span.dialect = dialect
        inner = span.marker == _INVOKE
        while inner or (yield from accept(span.reader, _INVOKE)):
            inner = False
            yield from _dsml_invoke(span)
            yield from blanks(span.reader)
        if span.marker == _INVOKE:
            span.owes.update(_WRAPPER_ENDS)
        else:
            yield from span.finish(wrapper_end)

    return read


def _end_call(span: Span) -> Parse[bool]:
    """Read the end of a call, if it comes next; one that was forgotten is shown by what follows, which stays unread."""
    end = yield from accept_any(span.reader, _CALL_ENDS)
    if end and end != _INVOKE_END:
        span.reader.position -= len(end)
    return bool(end)


def _dsml_invoke(span: Span) -> Parse[None]:
    reader = span.reader
    attributes = yield from _dsml_attributes(span)
    if "name" not in attributes:
        raise NotACall(Reason.MISSING_NAME)
    call = span.begin(attributes["name"])
    if "/" in attributes:
        ArgumentWriter(call).end()
        return
    if (yield from blanks(reader)) == "{":
        yield from read_body(call)
        yield from blanks(reader)
        if not (yield from _end_call(span)):
            yield from expect(reader, _INVOKE_END)
        call.end()
        return
    writer: ArgumentWriter | None = None
    while True:
        yield from blanks(reader)
        if (yield from _end_call(span)):
            (writer or ArgumentWriter(call)).end()
            return
        yield from expect(reader, _PARAMETER)
        attributes = yield from _dsml_attributes(span)
        if "name" not in attributes:
            raise NotACall(Reason.BAD_MARKUP)
        is_string = {"true": True, "false": False}.get(attributes.get("string", ""))
        wrapped = writer is None and not is_string and wraps_arguments(call, attributes["name"])
        if wrapped and (yield from blanks(reader)) == "{":
            yield from _wrapped_arguments(call)
            return
        writer = writer or ArgumentWriter(call)
        yield from _typed_value(writer, attributes["name"], is_string, _DSML_ENDS)


def _wrapped_arguments(call: OpenCall) -> Parse[None]:
    """Read all arguments as the one parameter that models wrap them in; nothing may stand beside it."""
    reader = call.span.reader
    yield from call.read_arguments()
    yield from blanks(reader)
    yield from expect(reader, _PARAMETER_END)
    yield from blanks(reader)
    if (yield from accept(reader, _PARAMETER)):
        raise NotACall(Reason.AMBIGUOUS_ARGUMENTS)
    if not (yield from _end_call(call.span)):
        yield from expect(reader, _INVOKE_END)
    call.end()


def _dsml_attributes(span: Span) -> Parse[dict[str, str]]:
    """Read a tag's attributes; a tag that closes itself has the attribute `/`."""
    reader = span.reader
    attributes: dict[str, str] = {}
    while True:
        following = yield from blanks(reader)
        if following == ">":
            reader.position += 1
            return attributes
        if following == "/":
            yield from expect(reader, "/>")
            attributes["/"] = ""
            return attributes
        name = yield from run(reader, _ATTRIBUTE_NAME, 64, Reason.BAD_MARKUP)
        yield from expect(reader, "=")
        if name in attributes:
            raise NotACall(Reason.DUPLICATE_KEY)
        attributes[name] = yield from read_attribute(reader)


def _render_dsml(dialect: str, wrapper: str) -> Renderer:
    def parameter(key: str, value: object) -> str:
        kind = "true" if isinstance(value, str) else "false"
        text = plain_value(value, dialect, _PARAMETER_END)
        return f'{_PARAMETER} name="{plain_key(key, dialect)}" string="{kind}">{text}{_PARAMETER_END}\n'

    def render(calls: Sequence[WrittenCall]) -> str:
        inner = "\n".join(
            f'{_INVOKE} name="{call.name}">\n'
            + "".join(parameter(key, value) for key, value in call.arguments.items())
            + _INVOKE_END
            for call in calls
        )
        return f"<｜DSML｜{wrapper}>\n{inner}\n</｜DSML｜{wrapper}>"

    return render


def _unescape(text: str) -> str:
    return text.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _xtml(span: Span) -> Parse[None]:
    reader = span.reader
    inner = span.marker == _CALL
    while inner or (yield from accept(reader, _CALL)):
        inner = False
        attributes = yield from _attributes(span, _SEP)
        if "tool" not in attributes:
            raise NotACall(Reason.MISSING_NAME)
        writer = ArgumentWriter(span.begin(_unescape(attributes["tool"])))
        while True:
            yield from blanks(reader)
            tag = yield from accept_any(reader, (_ARGUMENT, _CALL_END))
            if tag == _CALL_END:
                writer.end()
                break
            if not tag:
                yield from expect(reader, _ARGUMENT)
            argument = yield from _attributes(span, _SEP)
            if "key" not in argument:
                raise NotACall(Reason.BAD_MARKUP)
            is_string = argument["type"] == "string" if "type" in argument else None
            yield from _typed_value(writer, _unescape(argument["key"]), is_string, _XTML_ENDS)
        yield from blanks(reader)
    yield from span.finish(_TOOLS_END)


def _render_xtml(calls: Sequence[WrittenCall]) -> str:
    def argument(key: str, value: object) -> str:
        kind = type_name(value)
        text = plain_value(value, "kimi_k3", _ARGUMENT_END)
        if "\n" in key or len(key) > 100:
            plain_key(key, "kimi_k3")
        return f'{_ARGUMENT} key="{_escape(key)}" type="{kind}"{_SEP}{text}{_ARGUMENT_END}'

    inner = "".join(
        f'{_CALL} tool="{call.name}" index="{index}"{_SEP}'
        + "".join(argument(key, value) for key, value in call.arguments.items())
        + _CALL_END
        for index, call in enumerate(calls, 1)
    )
    return f"{_TOOLS}{inner}{_TOOLS_END}"


DIALECTS = (
    Dialect(
        "deepseek_v32",
        "typed tags",
        "DeepSeek-V3.2",
        (
            Opener("<｜DSML｜function_calls>", _dsml("deepseek_v32", "</｜DSML｜function_calls>"), (_INVOKE,)),
            Opener(_INVOKE, _dsml("deepseek_v32", "")),
        ),
        ("</｜DSML｜function_calls>", _INVOKE_END),
        _render_dsml("deepseek_v32", "function_calls"),
    ),
    Dialect(
        "deepseek_v4",
        "typed tags",
        "DeepSeek-V4",
        (
            Opener("<｜DSML｜tool_calls>", _dsml("deepseek_v4", "</｜DSML｜tool_calls>"), (_INVOKE,)),
            Opener(_INVOKE, _dsml("deepseek_v4", "")),
        ),
        ("</｜DSML｜tool_calls>", _INVOKE_END),
        _render_dsml("deepseek_v4", "tool_calls"),
    ),
    Dialect(
        "kimi_k3",
        "typed tags",
        "Kimi-K3",
        (Opener(_TOOLS, _xtml, (_CALL,)), Opener(_CALL, _xtml)),
        (_TOOLS_END, _CALL_END),
        _render_xtml,
    ),
)
