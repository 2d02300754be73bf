"""XML-like calls with one tag per parameter: `<function=…>`, `<invoke name=…>`, `<function name=…>`.

Values are raw text, typed by the tool's schema; entities are not decoded, since none of these formats defines any. The
call ends with its own closing tag; wrappers around it may be missing on either side.
"""

# ruff: noqa: RUF001 - the formats themselves are written with U+FF5C

import re
from collections.abc import Sequence

import msgspec

from mustcall.core.errors import UnsupportedFeature
from mustcall.core.memo import kept
from mustcall.dialects.dialect import A_NAME, Dialect, Opener, Parser, Renderer, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.envelope import dump, read_array, read_body, read_envelopes
from mustcall.dialects.reading.rawvalue import ArgumentWriter, Ends, read_raw_value
from mustcall.dialects.reading.reader import (
    NotACall,
    Parse,
    Reader,
    accept,
    accept_any,
    ahead,
    blanks,
    expect,
    run,
    word,
)
from mustcall.dialects.reading.span import Span
from mustcall.dialects.scanning.marks import NAMESPACE

__all__ = [
    "DIALECTS",
    "Tags",
    "invoke_tags",
    "plain_value",
    "read_attribute",
    "read_call",
    "read_calls",
    "write_invoke",
]

_ATTRIBUTE = re.compile(r"[A-Za-z_:\-]*+")
_QUOTED = {quote: re.compile(rf"[^{quote}\n]*+") for quote in "'\""}


class Tags(msgspec.Struct, frozen=True):
    """The tags of one call: `call` and `parameter` are opened up to their name, which is quoted or bare.

    `wrapper_end` shows that a call's own end was forgotten, and is left to be read. `doubled` names may come twice, as
    `NAME.NAME`.
    """

    call: str
    call_end: str
    parameter: str
    ends: Ends
    wrapper_end: str = ""
    doubled: bool = False


def invoke_tags(prefix: str = "") -> Tags:
    """Return the tags of `<invoke name=…><parameter name=…>` under a namespace prefix."""
    return _INVOKE_TAGS.get(prefix) or _kept_tags(prefix)


def _invoke_tags(prefix: str) -> Tags:
    parameter, end = f"<{prefix}parameter name=", f"</{prefix}invoke>"
    return Tags(
        f"<{prefix}invoke name=",
        end,
        parameter,
        Ends(f"</{prefix}parameter>", (parameter, end), breaker=f'{parameter}"{{key}}">'),
        doubled=prefix == "atem:",
    )


_kept_tags = kept(most=64)(_invoke_tags)
#: Under the prefixes that models are known for; any other is a model's own word.
_INVOKE_TAGS = {prefix: _invoke_tags(prefix) for prefix in ("", "antml:", "atem:", "steptml:")}


QWEN = Tags(
    "<function=",
    "</function>",
    "<parameter=",
    Ends(
        "</parameter>",
        ("<parameter=", "</function>", "</tool_call>"),
        wrapped=True,
        breaker="<parameter={key}>",
        end_breaker="</function>\n</tool_call>",
        lenient=True,
    ),
    wrapper_end="</tool_call>",
)
MINICPM = Tags(
    "<function name=",
    "</function>",
    "<param name=",
    Ends("</param>", ("<param name=", "</function>"), breaker='<param name="{key}">', cdata=True),
)
# The tokenizer's own letters for a blank and a newline, leaked into tags and values.
MINICPM_LEAKED = Tags(
    "<functionĠname=",
    "</function>",
    "<paramĠname=",
    Ends("</param>", ("<paramĠname=", "</function>", "Ġ", "Ċ"), breaker='<paramĠname="{key}">', leaked=True),
)


def read_attribute(reader: Reader) -> Parse[str]:
    """Read an attribute's value: in either quotes, or bare."""
    quote = yield from ahead(reader)
    if quote not in _QUOTED:
        return (yield from word(reader, Reason.BAD_MARKUP))
    reader.position += 1
    value = yield from run(reader, _QUOTED[quote], 256, Reason.BAD_MARKUP)
    yield from expect(reader, quote)
    return value


def _end_tag(reader: Reader) -> Parse[bool]:
    """Read an opening tag behind its name, attributes that say nothing new included; True if it closes itself."""
    while True:
        following = yield from blanks(reader)
        if following == "/":
            yield from expect(reader, "/>")
            return True
        if not following.isalpha():
            yield from expect(reader, ">")
            return False
        yield from run(reader, _ATTRIBUTE, 64, Reason.BAD_MARKUP)
        yield from expect(reader, "=")
        yield from read_attribute(reader)


def read_call(span: Span, tags: Tags) -> Parse[None]:
    """Read one call whose opening tag was read up to its name."""
    reader = span.reader
    name = yield from read_attribute(reader)
    if tags.doubled and span.offered.resolve(name) != name:
        first, _, second = name.partition(".")
        name = first if first == second else name
    if (yield from _end_tag(reader)):
        ArgumentWriter(span.begin(name)).end()
    elif tags.ends.leaked or (yield from blanks(reader)) != "{":
        yield from read_parameters(span, name, tags)
    else:
        # Some models put the whole object between the tags.
        call = span.begin(name)
        yield from read_body(call)
        yield from blanks(reader)
        yield from expect(reader, tags.call_end)
        call.end()


def read_parameters(span: Span, name: str, tags: Tags) -> Parse[None]:
    """Read the parameters of a call and its closing tag."""
    reader = span.reader
    writer = ArgumentWriter(span.begin(name))
    expected = tuple(tag for tag in (tags.parameter, tags.call_end, tags.wrapper_end) if tag)
    while True:
        yield from blanks(reader)
        while tags.ends.leaked and (yield from accept_any(reader, ("Ġ", "Ċ"))):
            yield from blanks(reader)
        tag = yield from accept_any(reader, expected)
        if tag == tags.wrapper_end:
            reader.position -= len(tag)
        if tag in (tags.call_end, tags.wrapper_end) and tag:
            writer.end()
            return
        if not tag:
            rest = reader.buffer[reader.position :]
            cut = reader.closed and any(tag.startswith(rest) for tag in expected)
            raise NotACall(Reason.TRUNCATED if cut else Reason.BAD_MARKUP)
        key = yield from read_attribute(reader)
        if (yield from _end_tag(reader)):
            raise NotACall(Reason.BAD_MARKUP)
        yield from read_raw_value(writer, writer.key(key), tags.ends)


def read_calls(span: Span, tags: Tags, *closers: str) -> Parse[None]:
    """Read calls up to the end of their wrapper."""
    yield from expect(span.reader, tags.call)
    yield from read_call(span, tags)
    while True:
        yield from blanks(span.reader)
        if not (yield from accept(span.reader, tags.call)):
            break
        yield from read_call(span, tags)
    if closers:
        yield from span.finish(*closers)


def _wrapped(tags: Tags, *closers: str) -> Parser:
    def read(span: Span) -> Parse[None]:
        yield from read_calls(span, tags, *closers)

    return read


def _functions(span: Span) -> Parse[None]:
    """`<tool_call>` around Qwen's calls; Step-3.5 also writes `<function NAME>` there."""
    reader = span.reader
    while True:
        tag = yield from accept_any(reader, ("<function name=", QWEN.call, "<function "))
        if not tag:
            break
        yield from read_call(span, MINICPM if tag == "<function name=" else QWEN)
        yield from blanks(reader)
    yield from span.finish("</tool_call>")


def _dots(span: Span) -> Parse[None]:
    """`<dots_function_call>` around invokes, or around JSON."""
    first = yield from ahead(span.reader)
    if first == "[":
        yield from read_array(span)
    elif first == "{":
        yield from read_envelopes(span)
    else:
        yield from read_calls(span, invoke_tags())
    yield from span.finish("</dots_function_call>")


def _prefix(marker: str) -> str:
    found = re.match(r"<([^:<>]+:)", marker)
    return found[1] if found else ""


def _invoke_wrapper(span: Span) -> Parse[None]:
    """`<function_calls>` under any namespace; what it wraps may carry the same namespace or none."""
    reader = span.reader
    prefix = _prefix(span.marker)
    closers = (f"</{prefix}function_calls>", f"</{prefix}tool_calls>")
    for tags in (invoke_tags(prefix), invoke_tags()):
        if (yield from accept(reader, tags.call)):
            reader.position -= len(tags.call)
            yield from read_calls(span, tags, *closers)
            return
    raise NotACall(Reason.STRAY_MARKER)


def _invoke(span: Span) -> Parse[None]:
    yield from read_call(span, invoke_tags(_prefix(span.marker)))


def _function(span: Span) -> Parse[None]:
    """`<function=NAME>` without its wrapper: a JSON object inside makes it Functionary's, else it is Qwen's."""
    reader = span.reader
    name = yield from word(reader, Reason.STRAY_MARKER)
    yield from expect(reader, ">", Reason.STRAY_MARKER)
    first = yield from blanks(reader)
    if first == "{":
        span.dialect = "functionary_v31"
        call = span.begin(name)
        yield from call.read_arguments()
        call.end()
        yield from span.finish("</function>")
        return
    span.dialect = "qwen3_coder"
    yield from read_parameters(span, name, QWEN)
    span.owes.add("</tool_call>")


def _minicpm(span: Span) -> Parse[None]:
    yield from read_call(span, MINICPM_LEAKED if "Ġ" in span.marker else MINICPM)


def _step3(span: Span) -> Parse[None]:
    """Step-3 puts each invoke between DeepSeek-like tokens with ASCII underscores."""
    reader = span.reader
    tags = invoke_tags("steptml:")
    inner = span.marker == "<｜tool_call_begin｜>"
    while inner or (yield from accept(reader, "<｜tool_call_begin｜>")):
        inner = False
        yield from blanks(reader)
        yield from accept(reader, "function<｜tool_sep｜>")  # some leave it out
        yield from blanks(reader)
        yield from expect(reader, tags.call)
        yield from read_call(span, tags)
        yield from span.finish("<｜tool_call_end｜>")
        yield from blanks(reader)
    yield from span.finish("<｜tool_calls_end｜>")


def plain_value(value: object, dialect: str, *markers: str) -> str:
    """Return a value as raw text: a string as it is, anything else as JSON that holds no tag.

    Raw text cannot hold its own markers; a string that does cannot be written in such a dialect.
    """
    if not isinstance(value, str):
        return dump(value).replace("<", "\\u003c")
    for marker in markers:
        if marker in value:
            raise UnsupportedFeature(f"the dialect {dialect} cannot write a string that contains {marker!r}")
    return value


def plain_key(key: str, dialect: str) -> str:
    """Return a name as it stands in a tag; the formats have no way to write these characters there."""
    if not key or len(key) > 200 or re.search(r"[\s<>\"'`|\[\]{}()=,;｜&]", key):
        raise UnsupportedFeature(f"the dialect {dialect} cannot write the parameter name {key!r}")
    return key


def _renderer(
    dialect: str, tags: Tags, before: str, after: str, *, quoted: bool = True, each: bool = False
) -> Renderer:
    mark = '"' if quoted else ""
    newline = "\n" if tags.ends.wrapped else ""

    def parameter(key: str, value: object) -> str:
        text = plain_value(value, dialect, tags.ends.closer, tags.parameter, tags.call_end)
        return f"{tags.parameter}{mark}{plain_key(key, dialect)}{mark}>{newline}{text}{newline}{tags.ends.closer}\n"

    def one(call: WrittenCall) -> str:
        body = "".join(parameter(key, value) for key, value in call.arguments.items())
        return f"{tags.call}{mark}{call.name}{mark}>\n{body}{tags.call_end}"

    def render(calls: Sequence[WrittenCall]) -> str:
        if each:
            return "\n".join(f"{before}{one(call)}{after}" for call in calls)
        return before + "\n".join(one(call) for call in calls) + after

    return render


def write_invoke(call: WrittenCall) -> str:
    """Return one call as an `<invoke>`."""
    return _renderer("invoke", invoke_tags(), "", "")([call])


_STEPTML = invoke_tags("steptml:")
_ATEM = invoke_tags("atem:")

DIALECTS = (
    Dialect(
        "qwen3_coder",
        "XML parameters",
        "Qwen3-Coder, Qwen3.5/3.6, Nemotron 3, MiMo",
        (
            Opener("<tool_call>", _functions, ("<function=", "<function ")),
            Opener("<function=", _function, (A_NAME,)),
        ),
        ("</tool_call>",),
        _renderer("qwen3_coder", QWEN, "<tool_call>\n", "\n</tool_call>", quoted=False, each=True),
    ),
    Dialect(
        "step3p5",
        "XML parameters",
        "Step-3.5",
        (Opener("<tool_call>", _functions, ("<function=", "<function ")),),
        ("</tool_call>",),
        _renderer("step3p5", QWEN, "<tool_call>\n", "\n</tool_call>", quoted=False, each=True),
    ),
    Dialect(
        "seed_oss",
        "XML parameters",
        "Seed-OSS",
        (Opener("<seed:tool_call>", _wrapped(QWEN, "</seed:tool_call>"), ("<function=",)),),
        ("</seed:tool_call>",),
        _renderer("seed_oss", QWEN, "<seed:tool_call>\n", "\n</seed:tool_call>", quoted=False, each=True),
    ),
    Dialect(
        "minimax_m2",
        "XML parameters",
        "MiniMax M2, M2.x",
        (
            Opener(
                "<minimax:tool_call>",
                _wrapped(invoke_tags(), "</minimax:tool_call>"),
                ("<invoke name=",),
            ),
        ),
        ("</minimax:tool_call>",),
        _renderer("minimax_m2", invoke_tags(), "<minimax:tool_call>\n", "\n</minimax:tool_call>"),
    ),
    Dialect(
        "dots",
        "XML parameters",
        "dots.llm",
        (Opener("<dots_function_call>", _dots, ("<invoke name=", "{", "[")),),
        ("</dots_function_call>",),
        _renderer("dots", invoke_tags(), "<dots_function_call>\n", "\n</dots_function_call>"),
    ),
    Dialect(
        "anthropic",
        "XML parameters",
        "Claude-style prompts, distilled models; any namespace prefix",
        (
            Opener("<function_calls>", _invoke_wrapper, ("<invoke name=",)),
            Opener(f"<{NAMESPACE}:function_calls>", _invoke_wrapper, ("<",)),
            Opener("<invoke name=", _invoke),
            Opener(f"<{NAMESPACE}:invoke name=", _invoke),
        ),
        ("</function_calls>", "</invoke>"),
        _renderer("anthropic", invoke_tags(), "<function_calls>\n", "\n</function_calls>"),
    ),
    Dialect(
        "step3",
        "XML parameters",
        "Step-3",
        (
            Opener("<｜tool_calls_begin｜>", _step3, ("<｜tool_call_begin｜>",)),
            Opener("<｜tool_call_begin｜>", _step3, ("function<｜tool_sep｜>", _STEPTML.call)),
        ),
        ("<｜tool_calls_end｜>", "<｜tool_call_end｜>"),
        _renderer(
            "step3",
            _STEPTML,
            "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>",
            "<｜tool_call_end｜><｜tool_calls_end｜>",
            each=True,
        ),
    ),
    Dialect(
        "minicpm5",
        "XML parameters",
        "MiniCPM5",
        tuple(Opener(marker, _minicpm) for marker in ("<function name=", "<functionname=", "<functionĠname=")),
        ("</function>",),
        _renderer("minicpm5", MINICPM, "", "", each=True),
    ),
)
