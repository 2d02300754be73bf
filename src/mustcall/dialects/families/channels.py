"""Messages with a header that names a channel, a recipient or a tool: harmony (gpt-oss), Muse Glimmer and Inkling.

The header decides what the message is: a call if it is addressed to a tool, reasoning on the analysis channel or if it
is addressed to the model itself, text otherwise. Headers are markup in every case. Where the prompt ended with
`<|start|>assistant`, the reply begins in the middle of a header.
"""

import re
from collections.abc import Sequence

from mustcall.core.text.possessive import any_number
from mustcall.dialects.dialect import Anchor, Dialect, Opener, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.families.name_json import only_string
from mustcall.dialects.families.xml_params import invoke_tags, plain_key, plain_value, read_calls
from mustcall.dialects.reading.envelope import dump, read_envelopes
from mustcall.dialects.reading.jsontext import escape, quote
from mustcall.dialects.reading.reader import NotACall, Parse, accept, accept_any, ahead, blanks, copy_until, run
from mustcall.dialects.reading.span import Span
from mustcall.dialects.reasoning import INKLING_THOUGHT, Section
from mustcall.dialects.scanning.grammar import marks_of

__all__ = ["DIALECTS"]

_MESSAGE = "<|message|>"
_TOKENS = (_MESSAGE, "<|channel|>", "<|constrain|>")
_HEADER = re.compile(r"[^<\n]*+")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ADDRESSES_NOBODY = re.compile(any_number(r"<\|\w+\|>|assistant|analysis|commentary|final|json|\s"))
_ADDRESS = re.compile(r"[^\s<]*+")
_SPACES = re.compile(r"[ \t]*+")
_CHANNELS = ("analysis", "commentary", "final")
_NOBODY = frozenset({"user", "all", "assistant"})
_ENDS = ("<|call|>", "<|end|>", "<|eom|>")
_START = "<|start|>"
_ANALYSIS = Section("", ("<|end|>", "<|return|>", "<|call|>"), before=(_START,))
_TO_SELF = Section("", ("<|eom|>", "<|end|>"), before=(_START,))

# What a message of Inkling's is, behind its header.
_INKLING, _INKLING_JSON, _INKLING_TEXT = (
    "<|message_model|>",
    "<|content_invoke_tool_json|>",
    "<|content_invoke_tool_text|>",
)
_INKLING_ENDS = ("<|end_message|>", "<|content_model_end_sampling|>")
_INKLING_KINDS = (_INKLING_JSON, _INKLING_TEXT, INKLING_THOUGHT.opener, "<|content_text|>", "<|content_tool_error|>")


def _unopened(span: Span) -> Parse[None]:
    """A header whose beginning the prompt wrote: an address, then at once one of the header's tokens."""
    reader = span.reader
    address = yield from run(reader, _ADDRESS, 256, Reason.STRAY_MARKER)
    if not address:
        raise NotACall(Reason.STRAY_MARKER)
    yield from run(reader, _SPACES, 16, Reason.STRAY_MARKER)
    if (yield from ahead(reader)) != "<":
        raise NotACall(Reason.STRAY_MARKER)
    yield from _message(span, address)


def _message(span: Span, address: str = "", before: str = "") -> Parse[None]:
    reader = span.reader
    header = before + (yield from _read_header(span, address))
    recipient = _RECIPIENT.search(header)
    to = recipient[1] if recipient else ""
    channel = _CHANNEL.search(header)
    if to and to not in _NOBODY and to != "self":
        yield from blanks(reader)
        if (yield from _atem(span)):
            return
        span.dialect = "harmony"
        call = span.begin(to.removeprefix("functions."))
        yield from call.read_arguments()
        call.end()
        yield from span.finish(*_ENDS)
        return
    span.drop()
    if to == "self":
        span.enters = _TO_SELF
    elif channel is not None and channel[1] == "analysis":
        span.enters = _ANALYSIS
    elif to:
        # Addressed to the user: a call echoed here is text.
        span.silences = (*_TO_SELF.closers, _START)


def _atem(span: Span) -> Parse[bool]:
    """Read Muse's calls, if that is what the message holds; the recipient is only an address there."""
    reader = span.reader
    tags = invoke_tags("atem:")
    wrapped = yield from accept(reader, "<atem:function_calls>")
    yield from blanks(reader)
    if not (yield from accept(reader, tags.call)):
        if wrapped:
            raise NotACall(Reason.BAD_MARKUP)
        return False
    reader.position -= len(tags.call)
    span.dialect = "muse_glimmer"
    yield from read_calls(span, tags)
    if wrapped:
        yield from span.finish("</atem:function_calls>")
    yield from span.finish("<|eom|>", "<|end|>")
    return True


def _read_header(span: Span, address: str) -> Parse[str]:
    """Read a header up to the message; a header that is none is a stray marker, whatever its tokens."""
    reader = span.reader
    header = [span.marker, address]
    for _ in range(8):
        header.append((yield from run(reader, _HEADER, 256, Reason.STRAY_MARKER)))
        token = yield from accept_any(reader, _TOKENS)
        span.soft = span.soft and not token
        if token == _MESSAGE:
            return "".join(header)
        if not token:
            break
        header.append(token)
    rest = reader.buffer[reader.position :]
    cut = reader.closed and any(token.startswith(rest) for token in _TOKENS)
    if cut and not span.soft and "to=" not in (written := "".join(header)):
        if _ADDRESSES_NOBODY.fullmatch(written):
            reader.position = len(reader.buffer)
            return written  # the reply ends in it: nothing follows
        cut = False
    raise NotACall(Reason.TRUNCATED if cut else Reason.STRAY_MARKER)


def _inkling(span: Span) -> Parse[None]:
    """A message with a header: the tool's name, which JSON repeats and bare text needs."""
    reader = span.reader
    header = yield from run(reader, _HEADER, 256, Reason.STRAY_MARKER)
    kind = yield from accept_any(reader, (*_INKLING_KINDS, *_INKLING_ENDS))
    if not kind:
        raise NotACall(Reason.STRAY_MARKER)
    yield from _inkling_content(span, kind, header.strip())


def _inkling_call(span: Span) -> Parse[None]:
    """A call whose message began in the prompt, or whose header was lost."""
    yield from _inkling_content(span, span.marker, "")


def _inkling_content(span: Span, kind: str, name: str) -> Parse[None]:
    if kind == _INKLING_JSON:
        yield from read_envelopes(span)
        yield from span.finish(*_INKLING_ENDS)
    elif kind == _INKLING_TEXT:
        yield from _inkling_text(span, name)
    else:
        span.drop()
        span.enters = INKLING_THOUGHT if kind == INKLING_THOUGHT.opener else None


def _inkling_text(span: Span, name: str) -> Parse[None]:
    """Bare text up to the message's end: the one parameter of a tool that takes one string."""
    if not name:
        raise NotACall(Reason.MISSING_NAME)
    call = span.begin(name)
    key = only_string(call)
    if key is None:
        raise NotACall(Reason.NOT_OBJECT)
    call.write(f'{{{quote(key)}: "')
    yield from copy_until(span.reader, marks_of(*_INKLING_ENDS), lambda piece: call.write(escape(piece)))
    call.write('"}')
    call.end()
    yield from span.finish(*_INKLING_ENDS)


def _render_inkling(calls: Sequence[WrittenCall]) -> str:
    return "".join(
        f"{_INKLING}{call.name}{_INKLING_JSON}{dump({'name': call.name, 'args': call.arguments})}<|end_message|>"
        for call in calls
    )


def _render_harmony(calls: Sequence[WrittenCall]) -> str:
    return "<|start|>assistant".join(
        f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>{dump(call.arguments)}<|call|>"
        for call in calls
    )


def _render_muse(calls: Sequence[WrittenCall]) -> str:
    tags = invoke_tags("atem:")

    def one(call: WrittenCall) -> str:
        parameters = "".join(
            f'{tags.parameter}"{plain_key(key, "muse_glimmer")}">'
            f"{plain_value(value, 'muse_glimmer', tags.ends.closer, tags.parameter, tags.call_end)}"
            f"{tags.ends.closer}\n"
            for key, value in call.arguments.items()
        )
        return (
            f"<|start|>assistant to={call.name}<|message|><atem:function_calls>\n"
            f'{tags.call}"{call.name}">\n{parameters}{tags.call_end}\n</atem:function_calls><|eom|>'
        )

    return "".join(one(call) for call in calls)


def _begun(span: Span) -> Parse[None]:
    """A header of which the prompt wrote the beginning, up to the role or into the channel's name."""
    if span.marker.endswith(_MESSAGE):
        span.reader.position -= len(_MESSAGE)
    yield from _message(span, before="" if span.marker.startswith("assistant") else "<|channel|>")


_OPENERS = (
    Opener(_START, _message),
    Opener(" to=", _unopened, anchor=Anchor.FIRST, soft=True),
    Opener("to=", _unopened, anchor=Anchor.FIRST, soft=True),
)

DIALECTS = (
    Dialect(
        "harmony",
        "channels",
        "gpt-oss",
        (
            Opener("<|channel|>", _message),
            *_OPENERS,
            *(Opener(f"{channel}{_MESSAGE}", _begun, anchor=Anchor.FIRST, soft=True) for channel in _CHANNELS),
            *(Opener(f"{channel} to=", _begun, anchor=Anchor.FIRST, soft=True) for channel in _CHANNELS),
            *(Opener(f"assistant{token}", _begun, anchor=Anchor.FIRST, soft=True) for token in ("<|channel|>", " to=")),
        ),
        _ENDS,
        _render_harmony,
    ),
    Dialect(
        "inkling",
        "channels",
        "Inkling",
        (
            Opener(_INKLING, _inkling),
            Opener(_INKLING_JSON, _inkling_call, ("{",)),
            Opener(_INKLING_TEXT, _inkling_call),
        ),
        _INKLING_ENDS,
        _render_inkling,
    ),
    Dialect(
        "muse_glimmer",
        "channels",
        "Muse Glimmer",
        _OPENERS,
        ("<|eom|>", "<|end|>"),
        _render_muse,
    ),
)
