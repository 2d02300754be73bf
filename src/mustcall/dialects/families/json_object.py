"""A marker, then each call as one JSON object: hermes and its relatives, LM Studio, bare JSON.

The object's own end is the call's end. The closing marker is decoration that stop sequences often swallow: it is read
where it stands and missed where it does not.
"""

from collections.abc import Sequence

from mustcall.dialects.dialect import (
    A_NAME,
    Anchor,
    Dialect,
    Opener,
    Parser,
    Renderer,
    WrittenCall,
)
from mustcall.dialects.events import Reason
from mustcall.dialects.reading.envelope import dump, read_alone, read_envelopes, read_opened_envelope
from mustcall.dialects.reading.reader import NotACall, Parse, accept_any, blanks, expect, word
from mustcall.dialects.reading.span import Span

__all__ = ["DIALECTS"]


def _objects(*closers: str, separators: str = "") -> Parser:
    def read(span: Span) -> Parse[None]:
        yield from read_envelopes(span, separators)
        if closers:
            yield from span.finish(*closers)

    return read


def _renderer(before: str, after: str, arguments: str = "arguments", between: str = "\n") -> Renderer:
    def render(calls: Sequence[WrittenCall]) -> str:
        return between.join(f"{before}{dump({'name': call.name, arguments: call.arguments})}{after}" for call in calls)

    return render


def _plugin(span: Span) -> Parse[None]:
    """InternLM names the kind of action between the opener and the object."""
    yield from expect(span.reader, "<|plugin|>")
    yield from read_envelopes(span)
    yield from span.finish("<|action_end|>")


def _role_separated(span: Span) -> Parse[None]:
    """GigaChat 3 opens a message of the role `function call`."""
    yield from expect(span.reader, "function call")
    yield from expect(span.reader, "<|role_sep|>")
    yield from read_envelopes(span)
    yield from span.finish("</s>")


def _named_request(span: Span) -> Parse[None]:
    """`[NAME]`, the arguments, and a closer: only the closer makes it a request and not a heading."""
    reader = span.reader
    name = yield from word(reader)
    yield from expect(reader, "]")
    if (yield from blanks(reader)) != "{":
        raise NotACall(Reason.NOT_OBJECT)
    call = span.begin(name)
    if not span.offered.anything:
        call.commit()
    yield from call.read_arguments()
    yield from blanks(reader)
    if not (yield from accept_any(reader, _REQUEST_ENDS)):
        rest = reader.buffer[reader.position :]
        cut = reader.closed and any(end.startswith(rest) for end in _REQUEST_ENDS)
        raise NotACall(Reason.TRUNCATED if cut else Reason.BAD_MARKUP)
    call.end()


def _bare(span: Span) -> Parse[None]:
    """No marker at all: the object itself must name an offered tool and bring its arguments."""
    yield from read_alone(span, lambda held: read_opened_envelope(span, held))
    if (yield from blanks(span.reader)) == ";":
        span.reader.position += 1
        span.drop()


_REQUEST_ENDS = ("[END_TOOL_REQUEST]", "[END_TOOL_RESULT]")

DIALECTS = (
    Dialect(
        "hermes",
        "JSON object",
        "Hermes 2/3, Qwen2.5, Qwen3, QwQ, Granite 4, ERNIE 4.5, Reka, Trinity",
        (Opener("<tool_call>", _objects("</tool_call>"), ("{",)),),
        ("</tool_call>",),
        _renderer("<tool_call>\n", "\n</tool_call>"),
    ),
    Dialect(
        "longcat",
        "JSON object",
        "LongCat-Flash",
        (Opener("<longcat_tool_call>", _objects("</longcat_tool_call>"), ("{",)),),
        ("</longcat_tool_call>",),
        _renderer("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
    ),
    Dialect(
        "lmstudio",
        "JSON object",
        "LM Studio's default tool prompt",
        (
            Opener("[TOOL_REQUEST]", _objects(*_REQUEST_ENDS), ("{",)),
            Opener("[", _named_request, (A_NAME + "]",), Anchor.LINE, soft=True),
        ),
        _REQUEST_ENDS,
        _renderer("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
        result="[TOOL_RESULT]{content}[END_TOOL_RESULT]",
    ),
    Dialect(
        "llama3_json",
        "JSON object",
        "Llama 3.1-3.3, Llama 4",
        (
            Opener("<|python_tag|>", _objects(separators=";"), ("{",)),
            Opener("{", _bare, ('"',), Anchor.BARE, soft=True, alone=True),
        ),
        (),
        _renderer("<|python_tag|>", "", "parameters", "; "),
    ),
    Dialect(
        "granite_20b_fc",
        "JSON object",
        "Granite-20B-FunctionCalling",
        (Opener("<function_call>", _objects("</function_call>"), ("{",)),),
        ("</function_call>",),
        _renderer("<function_call> ", ""),
    ),
    Dialect(
        "internlm2",
        "JSON object",
        "InternLM2.5, InternLM3, Intern-S1",
        (Opener("<|action_start|>", _plugin, ("<|plugin|>",)),),
        ("<|action_end|>",),
        _renderer("<|action_start|><|plugin|>\n", "<|action_end|>", "parameters"),
    ),
    Dialect(
        "gigachat3",
        "JSON object",
        "GigaChat 3, 3.1",
        (
            Opener("<|function_call|>", _objects("</s>"), ("{",)),
            Opener("<|message_sep|>", _role_separated, ("function call",)),
        ),
        ("</s>",),
        _renderer("<|function_call|>", ""),
    ),
)
