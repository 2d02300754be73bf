"""Formats that look like ordinary prose or code: they count on a line of their own, with an offered name (rule 64).

All of them are soft: until the name is known and the arguments have begun, the line is text. They belong to the prompt
protocol, where the model was asked to write so: an offered tool with arguments that cannot be read, alone on its line,
is a call that went wrong and is reported (rule 69). ReAct, which models write unasked, is a call elsewhere, too, if it
is the reply (rule 63).
"""

import re
from collections.abc import Sequence

from mustcall.dialects.dialect import A_NAME, TOOL, Anchor, Dialect, Opener, Standing, WrittenCall
from mustcall.dialects.events import Reason
from mustcall.dialects.families.python_calls import read_python_call, write_python_call
from mustcall.dialects.reading.envelope import HeldCalls, dump, read_alone
from mustcall.dialects.reading.reader import NotACall, Parse, accept, accept_any, blanks, expect, run
from mustcall.dialects.reading.span import OpenCall, Span

__all__ = ["DIALECTS"]

_SPACES = re.compile(r"[ \t]*+")
_ACTIONS = ("Action:", "**Action:**", "**Action**:")
_INPUTS = ("Action Input:", "**Action Input:**", "**Action Input**:")
_LINE = re.compile(r"[^\n]*+")
_LONGEST_LINE = 1000
_REST = re.compile(r"[^\s\"'{}\[\]()]*+")


def _tool_line(span: Span) -> Parse[None]:
    """`Tool: name(arg=value)`."""
    try:
        yield from read_alone(span, lambda held: read_python_call(span, held), "")
    except NotACall as fault:
        if fault.reason is Reason.TRUNCATED and span.call is not None:
            _report(span, span.call)
        if fault.reason is Reason.POSITIONAL and span.soft and span.call is not None:
            rest = yield from run(span.reader, _LINE, _LONGEST_LINE, Reason.POSITIONAL)
            if not rest.rpartition(")")[2].strip() or ")" not in rest:
                _report(span, span.call)
        raise


def _report(span: Span, call: OpenCall) -> None:
    """Have the fault that follows reported, if the tool is one that was offered and not just any name."""
    if not span.offered.anything:
        call.commit()


def _python_line(span: Span) -> Parse[None]:
    """A line that begins with an offered tool's name and an opening parenthesis."""
    span.reader.position -= len(span.marker)
    yield from read_alone(span, lambda held: read_python_call(span, held), "")


def _react(span: Span) -> Parse[None]:
    """`Action: name`, then on a line of its own `Action Input: {…}`, the object bare or in a fence."""
    yield from read_alone(span, lambda held: _read_action(span, held), "")


def _read_action(span: Span, held: HeldCalls) -> Parse[None]:
    reader = span.reader
    name = yield from run(reader, _REST, 256, Reason.MISSING_NAME)
    yield from run(reader, _SPACES, 256, Reason.BAD_MARKUP)
    if not (yield from accept_any(reader, ("\n", "\r\n"))):
        raise NotACall(Reason.BAD_MARKUP)
    yield from blanks(reader)
    if not (yield from accept_any(reader, _INPUTS)):
        raise NotACall(Reason.BAD_MARKUP)
    yield from blanks(reader)
    fence = yield from accept_any(reader, ("```json", "```"))
    first = yield from blanks(reader)
    call = span.begin(held.name(name))
    if first != "{":
        _report(span, call)
        yield from run(reader, _LINE, _LONGEST_LINE, Reason.NOT_OBJECT)
        raise NotACall(Reason.NOT_OBJECT if first else Reason.TRUNCATED)
    call.commit()
    yield from call.read_arguments()
    if fence:
        yield from blanks(reader)
        yield from expect(reader, "```")
    held.hold(call)


def _pair(span: Span) -> Parse[None]:
    """`[name, {…}]`, the name bare or quoted."""
    yield from read_alone(span, lambda held: _read_pair(span, held), "")


def _read_pair(span: Span, held: HeldCalls) -> Parse[None]:
    reader = span.reader
    quote = yield from accept_any(reader, ('"', "'"))
    name = yield from run(reader, _PAIR_NAME, 256, Reason.MISSING_NAME)
    yield from expect(reader, quote)
    yield from blanks(reader)
    yield from expect(reader, ",")
    if (yield from blanks(reader)) != "{":
        raise NotACall(Reason.NOT_OBJECT)
    call = span.begin(held.name(name))
    call.commit()
    yield from call.read_arguments()
    yield from blanks(reader)
    if not (yield from accept(reader, "]")):
        ended = reader.closed and reader.position == len(reader.buffer)
        raise NotACall(Reason.TRUNCATED if ended else Reason.BAD_JSON)
    held.hold(call)


_PAIR_NAME = re.compile(r"[A-Za-z0-9_.\-]*+")


def _render_tool_lines(calls: Sequence[WrittenCall]) -> str:
    return "\n".join(f"Tool: {write_python_call(call)}" for call in calls)


def _render_python_lines(calls: Sequence[WrittenCall]) -> str:
    return "\n".join(write_python_call(call) for call in calls)


def _render_react(calls: Sequence[WrittenCall]) -> str:
    return "\n".join(f"Action: {call.name}\nAction Input: {dump(call.arguments)}" for call in calls)


def _render_pairs(calls: Sequence[WrittenCall]) -> str:
    return "\n".join(f"[{dump(call.name)}, {dump(call.arguments)}]" for call in calls)


DIALECTS = (
    Dialect(
        "tool_line",
        "loose lines",
        "prompt-engineered",
        (Opener("Tool:", _tool_line, (A_NAME,), Anchor.LINE, soft=True),),
        (),
        _render_tool_lines,
        Standing.LOOSE,
        "Result of {name}: {content}",
    ),
    Dialect(
        "react",
        "loose lines",
        "ReAct prompts",
        tuple(Opener(action, _react, (A_NAME,), Anchor.LINE, soft=True) for action in _ACTIONS),
        (),
        _render_react,
        Standing.REPLY,
        "Observation: {content}",
    ),
    Dialect(
        "name_and_object",
        "loose lines",
        "prompt-engineered",
        (Opener("[", _pair, (A_NAME + ",", '"', "'"), Anchor.BARE, soft=True),),
        (),
        _render_pairs,
        Standing.LOOSE,
    ),
    Dialect(
        "python_line",
        "loose lines",
        "prompt-engineered",
        (Opener(f"{TOOL}(", _python_line, anchor=Anchor.BARE, soft=True),),
        (),
        _render_python_lines,
        Standing.NAMED,
    ),
)
