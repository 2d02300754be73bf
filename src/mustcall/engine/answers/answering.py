"""How a structured answer is asked for, and whether a text is one.

By what is known of the upstream: its own schema output beside the tools where the two are known to go together; a tool
that takes the answer where they are known not to, which the turn itself adds and reads
(`policy.request.structured_answer`); words in the instructions while tools may be called, and schema output once none
may, also where nothing is known of it (rule 140); words alone where it is known to be refused. Whatever the way, the
text is checked against the shape itself: JSON that fits, and never one that is a call (rule 81).
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.request import OutputFormat, OutputKind
from mustcall.core.tools import Tool
from mustcall.engine.answers.shapes import AnswerShape, Output, shape_of
from mustcall.engine.tooling.reading import Unfit
from mustcall.policy.facts.profile import Profile, Protocol, SchemaTarget
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.request.json_call import read_calls
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.schema.tool_schemas import compile_schema
from mustcall.policy.schema.validation import describe_problems

__all__ = ["Answering", "BadAnswer", "Way", "answering_for"]

_FENCED = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)


class Way(StrEnum):
    """How the schema reaches the model."""

    NATIVE = "native"  # the wire's own setting, beside the tools
    TOOL = "tool"  # a tool of its own, which the turn adds and takes the answer from
    LAST = "last"  # words while tools are on offer, the wire's own setting without them
    TRIED = "tried"  # words while tools may be called; else the wire's own setting too, and a refusal is learnt
    WORDS = "words"  # words in the instructions


class BadAnswer(Exception):
    """A text is not the answer asked for; the words name at most five fields and repeat nothing. Stays inside."""


class Answering(msgspec.Struct, frozen=True, kw_only=True):
    """The structured answer of one run. `hops` are the tool executions before it (rule 82)."""

    shape: AnswerShape
    hops: int = 2

    def way(self, profile: Profile) -> Way:
        """Return how this upstream is asked. Schema output is tried where nothing is known of it (rule 140)."""
        if profile.schema_with_tools is False and profile.protocol in (Protocol.NATIVE, Protocol.HYBRID):
            return Way.TOOL
        if profile.schema_output is None:
            return Way.TRIED
        if not profile.schema_output:
            return Way.WORDS
        together = profile.protocol is Protocol.NATIVE and (
            profile.schema_with_tools or profile.schema_target in _TOGETHER
        )
        return Way.NATIVE if together else Way.LAST

    def enforced_alone(self, profile: Profile) -> bool:
        """Tell whether the server enforces the schema, and only in a request without tools."""
        return bool(profile.schema_output) and self.way(profile) in (Way.TOOL, Way.LAST)

    def form(self, profile: Profile, *, tools: bool) -> OutputFormat | None:
        """Return the output format of a request, None where the schema is put in words."""
        if self._in_words(profile, tools=tools) or (tools and self.way(profile) in _WORDS_FIRST):
            return None
        compiled = compile_schema(self.shape.schema, profile.schema_target, strict=True)
        strict = True if compiled.expressible and profile.schema_target in _TOGETHER else None
        return OutputFormat(kind=OutputKind.SCHEMA, schema=compiled.schema, name="answer", strict=strict)

    def _in_words(self, profile: Profile, *, tools: bool) -> bool:
        """Tell whether words are all there is: a tool for the answer is one beside others."""
        way = self.way(profile)
        return way is Way.WORDS or (way is Way.TOOL and not tools and not profile.schema_output)

    def instructions(self, given: str | None, profile: Profile, wording: Wording, *, tools: bool = True) -> str | None:
        """Return the instructions with the schema in words, where it takes some."""
        if self.way(profile) not in _WORDS_FIRST and not self._in_words(profile, tools=tools):
            return given
        asked = self.in_words(wording)
        return asked if given is None else f"{given}\n\n{asked}"

    def in_words(self, wording: Wording) -> str:
        """Return the sentence that asks for the answer."""
        schema = msgspec.json.encode(self.shape.schema, order="deterministic").decode()
        return fill(wording.answer_as_json, schema=schema)

    def read(self, text: str, tools: Sequence[Tool]) -> Any:
        """Return the value a text is; raise `BadAnswer`. Blanks and one code fence around it are tolerated."""
        bare = text.strip()
        fenced = _FENCED.match(bare)
        written = fenced[1] if fenced is not None else bare
        if tools and read_calls(written, tools) is not None:
            raise BadAnswer("an answer, not a tool call, was expected")
        # Strict forms make a model write null for what may be left out.
        checked = check_arguments(Tool(name="answer", parameters=self.shape.schema, strict=True), written)
        if not checked.valid:
            raise BadAnswer(describe_problems(checked.problems))
        try:
            return self.shape.read(checked.arguments)
        except Unfit as unfit:
            raise BadAnswer(str(unfit)) from None


_WORDS_FIRST = (Way.LAST, Way.TRIED)
_TOGETHER = (SchemaTarget.OPENAI, SchemaTarget.ANTHROPIC)


def answering_for(output: Output | None, hops: int) -> Answering | None:
    """Return how to get an answer of this type or schema; None where any text is one. Raise `ConfigError`."""
    if hops < 0:
        raise ConfigError(f"hops must be 0 or more, got {hops}")
    return None if output is None else Answering(shape=shape_of(output), hops=hops)
