"""What a scanner says about the text it reads: one closed union of frozen values.

The contract of the stream:

- `ScannedText` joined is the input without the markup of complete calls and of reasoning sections, each character once
  and in order. What is not a complete call is text: a malformed call's span is released as `ScannedText`, unchanged,
  and the `Malformed` that follows describes it. Behind a call that stayed text, what separates it from the next call
  and the closer of a wrapper they share are text, too.
- `CallStart` is provisional. Only `CallEnd` makes a call; a `Malformed` with the same `index` takes the start back,
  and the fragments that came with it are void.
- The `ArgumentDelta`s of a call joined are exactly its `CallEnd.arguments`: a JSON object as text.
- An index is never given twice. Indices grow in order of appearance; one taken back leaves a gap.
- A call inside a reasoning section carries `in_reasoning` and is no call: its markup stays in the `ScannedReasoning`.
"""

from enum import StrEnum

import msgspec

__all__ = [
    "ArgumentDelta",
    "CallEnd",
    "CallStart",
    "LateReasoningEnd",
    "Malformed",
    "Reason",
    "ScanEvent",
    "ScannedReasoning",
    "ScannedText",
]


class Reason(StrEnum):
    """Why a span that looked like a call is none; the stable word in reports."""

    TRUNCATED = "truncated"
    BAD_JSON = "bad_json"
    BAD_LITERAL = "bad_literal"
    BAD_MARKUP = "bad_markup"
    DUPLICATE_KEY = "duplicate_key"
    TOO_DEEP = "too_deep"
    NOT_OBJECT = "arguments_not_object"
    MISSING_NAME = "missing_name"
    MISSING_ARGUMENTS = "missing_arguments"
    AMBIGUOUS_ARGUMENTS = "ambiguous_arguments"
    POSITIONAL = "positional_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    STRAY_MARKER = "stray_marker"
    UNKNOWN_MARKUP = "unknown_markup"
    TOO_MUCH = "too_much_markup"


class ScannedText(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """Text for the reader, released as soon as it can be nothing else."""

    text: str


class ScannedReasoning(msgspec.Struct, frozen=True, gc=False, tag="reasoning"):
    """Text of a reasoning section, byte for byte, without the section's own markers."""

    text: str


class CallStart(msgspec.Struct, frozen=True, gc=False, tag="call_start"):
    """A call of an offered tool has begun. `written` is the name as the model wrote it."""

    index: int
    name: str
    dialect: str
    written: str
    in_reasoning: bool = False


class ArgumentDelta(msgspec.Struct, frozen=True, gc=False, tag="argument_delta"):
    """The next fragment of a call's arguments, as JSON text."""

    index: int
    text: str


class CallEnd(msgspec.Struct, frozen=True, gc=False, tag="call_end"):
    """The call is complete; `arguments` is its whole JSON object as text.

    Calls that stand in one list have its number in `listed`: the index of the first of them.
    """

    index: int
    name: str
    arguments: str
    dialect: str
    in_reasoning: bool = False
    listed: int | None = None


class Malformed(msgspec.Struct, frozen=True, gc=False, tag="malformed"):
    """Markup that is not a call: why, and the span, which was released as text (or reasoning) unchanged.

    `index` is the start it takes back, if there was one; `name` is the tool as written, where it got that far.
    """

    reason: Reason
    raw: str
    dialect: str
    index: int | None = None
    name: str | None = None
    in_reasoning: bool = False


class LateReasoningEnd(msgspec.Struct, frozen=True, gc=False, tag="late_reasoning_end"):
    """A section's end came without its start: the prompt had opened it, so all text so far was reasoning.

    So were the calls in it, which are none (rule 65).
    """


ScanEvent = ScannedText | ScannedReasoning | CallStart | ArgumentDelta | CallEnd | Malformed | LateReasoningEnd
