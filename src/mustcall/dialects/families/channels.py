"""Messages with a header that names a channel or a recipient: harmony (gpt-oss) and Muse Glimmer.

The header decides what the message is: a call if it is addressed to a tool, reasoning on the analysis channel or if it
is addressed to the model itself, text otherwise. Headers are markup in every case. Where the prompt ended with
`<|start|>assistant`, the reply begins in the middle of a header.
"""

import re
from collections.abc import Sequence

from mustcall.dialects.dialect import Anchor, Dialect, Opener, WrittenCall
from mustcall.dialects.envelope import dump
from mustcall.dialects.events import Reason
from mustcall.dialects.families.xml_params import invoke_tags, plain_key, plain_value, read_calls
from mustcall.dialects.reader import Fault, Parse, accept, accept_any, ahead, blanks, run
from mustcall.dialects.reasoning import Section
from mustcall.dialects.span import Span

__all__ = ["DIALECTS"]

_MESSAGE = "<|message|>"
_TOKENS = (_MESSAGE, "<|channel|>", "<|constrain|>")
_HEADER = re.compile(r"[^<\n]*+")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_ADDRESS = re.compile(r"[^\s<]*+")
_SPACES = re.compile(r"[ \t]*+")
_NOBODY = frozenset({"user", "all", "assistant"})
_ENDS = ("<|call|>", "<|end|>", "<|eom|>")
_ANALYSIS = Section("", ("<|end|>", "<|return|>", "<|call|>", "<|start|>assistant"))
_TO_SELF = Section("", ("<|eom|>", "<|end|>"))


def _unopened(span: Span) -> Parse[None]:
    """A header whose beginning the prompt wrote: an address, then at once one of the header's tokens."""
    reader = span.reader
    address = yield from run(reader, _ADDRESS, 256, Reason.STRAY_MARKER)
    if not address:
        raise Fault(Reason.STRAY_MARKER)
    yield from run(reader, _SPACES, 16, Reason.STRAY_MARKER)
    if (yield from ahead(reader)) != "<":
        raise Fault(Reason.STRAY_MARKER)
    yield from _message(span, address)


def _message(span: Span, address: str = "") -> Parse[None]:
    reader = span.reader
    header = yield from _read_header(span, address)
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
        span.silences = _TO_SELF.closers


def _atem(span: Span) -> Parse[bool]:
    """Read Muse's calls, if that is what the message holds; the recipient is only an address there."""
    reader = span.reader
    tags = invoke_tags("atem:")
    wrapped = yield from accept(reader, "<atem:function_calls>")
    yield from blanks(reader)
    if not (yield from accept(reader, tags.call)):
        if wrapped:
            raise Fault(Reason.BAD_MARKUP)
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
    raise Fault(Reason.TRUNCATED if cut else Reason.STRAY_MARKER)


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


_OPENERS = (
    Opener("<|start|>", _message),
    Opener(" to=", _unopened, anchor=Anchor.FIRST, soft=True),
    Opener("to=", _unopened, anchor=Anchor.FIRST, soft=True),
)

DIALECTS = (
    Dialect(
        "harmony",
        "channels",
        "gpt-oss",
        (Opener("<|channel|>", _message), *_OPENERS),
        _ENDS,
        _render_harmony,
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
