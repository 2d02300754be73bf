"""A structured answer beside tools: how it is asked for where an upstream cannot do both, and what a reply says of it.

Calls and an answer by schema are two things a request can ask for at once; many upstreams refuse that, or keep the
model from calling. There the schema goes through a tool of its own, or is put in words; what comes back is read here
and is an answer like any other. Whether it is asked for again is `remedy`'s. Where the upstream can do what was asked,
or nothing is known of it, nothing changes (rules 86, 140): a refusal is learnt, and the next way is taken.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role, holds_result
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Text
from mustcall.core.request import OutputFormat, OutputKind, Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.policy.facts.profile import Forcing, Profile, Protocol
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.history.mended import needs_tools
from mustcall.policy.request.json_call import answer_problems, read_calls
from mustcall.policy.request.plan import Plan
from mustcall.policy.schema.arguments import check_arguments
from mustcall.policy.schema.subschemas import types_of
from mustcall.policy.schema.tool_schemas import compile_schema
from mustcall.policy.schema.validation import Problem, validator_for

__all__ = [
    "AnswerRead",
    "AnswerWay",
    "answer_way",
    "asked_apart",
    "asked_in_words",
    "can_go_alone",
    "read_answer",
    "written_answer",
]

_FENCED = re.compile(r"```[A-Za-z]*[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)
_ANY_OBJECT: JsonObject = {"type": "object"}
_AN_ENVELOPE = Problem("", "an answer, not a tool call")
_NAME = "answer"


class AnswerWay(StrEnum):
    """How the schema of an answer reaches the model."""

    ASKED = "asked"  # as the caller asked: by the wire's own setting, beside the tools
    TOOL = "tool"  # as a tool that takes the answer
    WORDS = "words"  # in the instructions
    ALONE = "alone"  # by the wire's own setting and without tools: none may be called
    LATER = "later"  # not at all: a call is demanded


def answer_way(request: Request, plan: Plan, profile: Profile, *, kept: bool = False) -> AnswerWay:
    """Return how an answer is asked for. `kept` says that the upstream keeps replies: a call there wants a result."""
    output = request.output
    if output is None or output.kind is OutputKind.TEXT:
        return AnswerWay.ASKED
    if not request.tools:  # a schema that is known to be refused is put in words; what is not known is tried (rule 140)
        refused = output.kind is OutputKind.SCHEMA and profile.schema_output is False
        return AnswerWay.WORDS if refused else AnswerWay.ASKED
    # Constrained decoding would leave no room for a call in text.
    text = plan.protocol is Protocol.PROMPT
    if profile.schema_with_tools is not False and not text:
        return AnswerWay.ASKED
    if plan.demand.forced:
        return AnswerWay.LATER
    if plan.demand.forbids:
        return AnswerWay.ALONE if can_go_alone(request, profile) else AnswerWay.WORDS
    schema = output.schema if output.kind is OutputKind.SCHEMA else None
    rooted = schema is not None and types_of(schema, schema) == frozenset({"object"})
    room = not profile.most_tools or len(request.tools) < profile.most_tools
    return AnswerWay.TOOL if rooted and room and not text and not kept else AnswerWay.WORDS


def can_go_alone(request: Request, profile: Profile, *, tries: bool = False) -> bool:
    """Tell whether the answer can be asked for by schema with the tools left out (rule 104: some need them).

    Where it is not known whether schemas are taken, that is only done if it `tries` (rule 140).
    """
    schema = request.output is not None and request.output.kind is OutputKind.SCHEMA
    unknown = tries and schema and profile.schema_output is None
    if not (profile.schema_output or unknown) or profile.prefix_bound:
        return False
    called = any(message.calls or holds_result(message) for message in request.messages)
    return not (called and needs_tools(request, profile))


def written_answer(request: Request, profile: Profile, wording: Wording) -> Tool:
    """Return the tool that takes the answer, under a name no other tool has."""
    assert request.output is not None, "an answer was asked for"
    taken = {tool.name if isinstance(tool, Tool) else str(tool.value.get("name")) for tool in request.tools}
    name = _NAME
    while name in taken:
        name = f"final_{name}"
    schema = compile_schema(request.output.schema or _ANY_OBJECT, profile.schema_target).schema
    said = request.output.description
    return Tool(
        name=name, description=wording.answer_tool if not said else f"{wording.answer_tool} {said}", parameters=schema
    )


def asked_apart(
    request: Request,
    way: AnswerWay,
    tool: Tool | None,
    plan: Plan,
    *,
    profile: Profile,
    wording: Wording,
    log: AdaptationLog,
) -> Request:
    """Return the request with its answer asked for in this way; the same object where that is as the caller asked."""
    output = request.output
    if way is AnswerWay.ASKED or output is None:
        return request
    if way is AnswerWay.ALONE:
        log.add(AdaptationKind.TOOL_DROPPED, "tools", "for the answer: not together with a schema here")
        return request.evolve(tools=(), tool_choice=None, parallel_tool_calls=None)
    if way is AnswerWay.LATER:
        log.add(AdaptationKind.FIELD_DROPPED, "output", "a call is demanded: not together with a schema here")
        return request.evolve(output=None)
    if way is AnswerWay.TOOL and tool is not None:
        log.add(AdaptationKind.FIELD_MAPPED, "output", f"the schema is that of the tool {tool.name}")
        log.add(AdaptationKind.TOOL_ADDED, tool.name, "it takes the answer")
        changes: dict[str, Any] = {"output": None, "tools": (*request.tools, tool)}
        return request.evolve(**changes, tool_choice=_choice(request, tool, plan, profile))
    log.add(AdaptationKind.FIELD_MAPPED, "output", "the schema is put in words")
    words = asked_in_words(output, wording)
    return _instructed(request.evolve(output=None), words)


def _choice(request: Request, tool: Tool, plan: Plan, profile: Profile) -> ToolChoice | None:
    """Return a choice under which the answer, too, is a call, where that is known to work (rule 91)."""
    choice = request.tool_choice
    works = profile.forced is Forcing.ALWAYS or (profile.forced is Forcing.WITHOUT_REASONING and not plan.reasoning)
    allowed = None if choice is None or choice.allowed is None else (*choice.allowed, tool.name)
    if works and all(isinstance(each, Tool) for each in request.tools):  # a hosted tool is no call of ours
        return ToolChoice(mode=ChoiceMode.REQUIRED, allowed=allowed)
    return choice if choice is None or allowed is None else choice.evolve(allowed=allowed)


def asked_in_words(output: OutputFormat, wording: Wording) -> str:
    """Return the sentence that asks for an answer of this form."""
    schema = output.schema if output.kind is OutputKind.SCHEMA and output.schema is not None else _ANY_OBJECT
    return fill(wording.answer_as_json, schema=msgspec.json.encode(schema, order="deterministic").decode())


def _instructed(request: Request, words: str) -> Request:
    """Put words last in the instructions, wherever the caller keeps them: alike in every turn, so they stay cached.

    Instructions that say them already, as an agent's do before a schema is refused, stay as they are.
    """
    messages = request.messages
    first = messages[0] if messages and messages[0].role in (Role.SYSTEM, Role.DEVELOPER) else None
    kept = request.system or first
    if kept is None:
        return request.evolve(system=Message(role=Role.SYSTEM, parts=(Text(text=words),)))
    if any(isinstance(part, Text) and words in part.text for part in kept.parts):
        return request
    told = kept.evolve(parts=(*kept.parts, Text(text=f"\n\n{words}")))
    return request.evolve(messages=(told, *messages[1:])) if request.system is None else request.evolve(system=told)


class AnswerRead(msgspec.Struct, frozen=True):
    """A text as an answer: the JSON it is, or what is wrong with it."""

    text: str
    problems: tuple[Problem, ...] = ()
    truncated: bool = False
    #: Not all of the schema could be checked.
    unchecked: bool = False


def read_answer(output: OutputFormat, text: str, tools: Sequence[Tool], *, lenient: bool) -> AnswerRead:
    """Read a text as the answer asked for; JSON that calls one of `tools` is none (rule 81).

    Blanks and one code fence around it are tolerated: what was to be held to a schema need not have been. Lenient is
    what no grammar held for certain: what can be mended without loss is mended.
    """
    if tools and read_calls(text, tools) is not None:
        return AnswerRead(text, (_AN_ENVELOPE,))
    schema = output.schema if output.kind is OutputKind.SCHEMA else None
    checker = None if schema is None else validator_for(schema)
    unchecked = schema is not None and (checker is None or not checker.whole)
    if not lenient and not answer_problems(schema, checker, text):
        return AnswerRead(text, unchecked=unchecked)
    bare = text.strip()
    fenced = _FENCED.match(bare)
    written = fenced[1] if fenced is not None else bare
    problems = answer_problems(schema, checker, written)
    if not problems:
        return AnswerRead(written, unchecked=unchecked)
    if not lenient or schema is None or types_of(schema, schema) != frozenset({"object"}):
        return AnswerRead(text, problems)
    checked = check_arguments(Tool(name=_NAME, parameters=schema), written, null_is_absent=True)
    return AnswerRead(checked.arguments, checked.problems, checked.truncated, unchecked)
