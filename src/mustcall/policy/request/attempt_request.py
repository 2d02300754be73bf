"""The request as it goes out on one rung: choice, reasoning, tools and what is added at the tail.

Only the tail is ever added to; nothing before it changes except where the rung is another rendering of the tools
(`prompt` and `text`), so that caches and prefix-bound reasoning live on. A request that needs no change comes back as
the same object and is forwarded byte for byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.history import continued
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Origin
from mustcall.core.parts import CallKind, Part, Reasoning, Text, ToolCall, ToolResult
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.dialects import Prompt, WrittenCall, is_plain
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.request.demand import OWN_CHOICES, Demand, offers_nothing
from mustcall.policy.request.few_shot import answer_changes, call_changes
from mustcall.policy.request.json_call import bound_schema, call_schema
from mustcall.policy.request.plan import Plan, Rung, RungKind, candidates
from mustcall.policy.schema.tool_schemas import compile_schema
from mustcall.policy.words.grounding import latest_input
from mustcall.policy.words.quoted_values import quote_schema
from mustcall.policy.words.relevance import relevant_tools
from mustcall.policy.words.user_text import said_by_user, without_demands
from mustcall.wire.crossing.turns import result_text

__all__ = ["Shaped", "candidates", "demand_sentence", "kept_answer", "shape", "user_turn"]


#: Fields by which servers that people run themselves take a schema for constrained decoding: llama.cpp's, and that of
#: older vLLM. Each ignores the other's.
_GRAMMAR_FIELDS = ("json_schema", "guided_json")


class Shaped(msgspec.Struct, frozen=True):
    """A request for one attempt; `extra` are body fields that no wire has a word for."""

    request: Request
    extra: Mapping[str, Any] = {}


def shape(
    request: Request,
    plan: Plan,
    rung: Rung,
    tail: Sequence[Message],
    *,
    profile: Profile,
    wording: Wording,
    log: AdaptationLog,
) -> Shaped:
    """Return the request for an attempt on this rung, with `tail` behind the caller's messages."""
    demand = plan.demand
    extra: JsonObject = {}
    changes: dict[str, Any] = {}
    texts = [demand.directive] if demand.directive else []
    match rung.kind:
        case RungKind.PLAIN:
            choice = demand.choice
            if offers_nothing(request):  # then no choice is sent (rule 4)
                choice = None
                changes = _without_fields(request, OWN_CHOICES)
            # The `none` that came with stub tools stands (rule 104).
            if choice != request.tool_choice and (choice is not None or not request.tools):
                changes["tool_choice"] = choice
        case RungKind.NATIVE | RungKind.HARD:
            changes |= _forced(request, demand, profile, log)
            if plan.rungs[0].kind is RungKind.SOFT:  # the first attempt's prompt stays the prefix of this one
                texts.append(demand_sentence(demand, wording, 0))
        case RungKind.SOFT:
            log.add(AdaptationKind.FORCE_SOFTENED, "tool_choice", "auto and a directive")
            changes["tool_choice"] = _softened(demand.choice)
            texts.append(demand_sentence(demand, wording, 0))
        case RungKind.TEXT:
            texts.append(demand_sentence(demand, wording, rung.firmness))
        case RungKind.SCHEMA | RungKind.GRAMMAR:
            asked, constraint = _constrained(request, demand, rung, profile=profile, wording=wording, log=log)
            changes |= asked
            extra |= constraint
            if not profile.worked_examples:
                texts.append(fill(wording.call_as_json, tools=_listing(_narrowed(request, demand, profile, log))))
        case RungKind.ANSWER:
            if request.tools:
                log.add(AdaptationKind.TOOL_DROPPED, "tools", "the message asks for none of them, or one has answered")
            changes |= answer_changes(request, wording, wording.answer_worked)
    if rung.kind is RungKind.HARD:
        changes |= _without_reasoning(request, profile, extra, log)
    if profile.bounded_schemas and not rung.constrains:
        changes |= _bounded_output(request, log)
    if not (profile.parallel and profile.takes_choice):
        changes |= _not_taken(request, changes.get("tool_choice", request.tool_choice), profile, log)
    if texts:
        log.add(AdaptationKind.DIRECTIVE_ADDED, "messages", f"{len(texts)} at the tail")
        tail = [*map(user_turn, texts), *tail]
    if "tool_choice" in changes and changes["tool_choice"] == request.tool_choice:
        del changes["tool_choice"]
    shaped = request.evolve(**changes) if changes else request
    if tail:
        shaped = _with_tail(shaped, tail)
    if rung.kind is RungKind.TEXT or (plan.protocol is Protocol.PROMPT and rung.kind is RungKind.PLAIN):
        named = demand.choice.name if demand.choice is not None else None
        shaped = _as_text(shaped, profile, log, named)
    return Shaped(shaped, extra)


def _with_tail(request: Request, tail: Sequence[Message]) -> Request:
    """Return the request with messages behind its own; what is known of those stays known."""
    return continued(request.evolve(messages=(*request.messages, *tail)), request, tail)


def _not_taken(request: Request, choice: ToolChoice | None, profile: Profile, log: AdaptationLog) -> dict[str, Any]:
    """Return the changes that leave out settings which this upstream does not take; they are enforced here."""
    why = "it is not taken here; enforced by us instead"
    changes: dict[str, Any] = {}
    if not profile.parallel and request.parallel_tool_calls is not None:
        log.add(AdaptationKind.FIELD_DROPPED, "parallel_tool_calls", why)
        changes["parallel_tool_calls"] = None
    if not profile.takes_choice and choice is not None:
        log.add(AdaptationKind.FIELD_DROPPED, "tool_choice", why)
        changes |= {"tool_choice": None, "parallel_tool_calls": None}  # on one wire that is a part of the choice
    return changes


def _constrained(
    request: Request, demand: Demand, rung: Rung, *, profile: Profile, wording: Wording, log: AdaptationLog
) -> tuple[dict[str, Any], JsonObject]:
    """Return the changes that hold a reply to one call, and the body fields that do where no wire has a word."""
    tools = _narrowed(request, demand, profile, log)
    if profile.worked_examples:
        changes = call_changes(without_demands(request), tools, wording)
        log.add(AdaptationKind.TOOL_RESHAPED, "tools", "rendered as text, with worked examples")
    else:
        changes = _without_calling(request, profile)
    held = _quoted(request, tools, profile, log)
    if rung.kind is RungKind.SCHEMA:
        return changes | {"output": _call_as_answer(held, profile)}, {}
    fields = (profile.grammar_field,) if profile.grammar_field is not None else _GRAMMAR_FIELDS
    return changes, dict.fromkeys(fields, call_schema(held, single=True, bound=profile.bounded_schemas))


def demand_sentence(demand: Demand, wording: Wording, firmness: int) -> str:
    """Return the directive for a demand, built from the caller's own choice (rule 21)."""
    choice = demand.choice
    if choice is not None and choice.mode is ChoiceMode.NAMED:
        sentences = wording.call_named
        return fill(sentences[min(firmness, len(sentences) - 1)], tool=choice.name or "")
    return wording.call_any[min(firmness, len(wording.call_any) - 1)]


def user_turn(text: str) -> Message:
    """Return a user turn of our own."""
    return Message(role=Role.USER, parts=(Text(text=text),))


def kept_answer(parts: Iterable[Part], tools: tuple[Tool, ...]) -> Message | None:
    """Return what may stay in context of an attempt that answered in clean text (rule 25), None if there is none.

    Clean is what no dialect has a sign in, not even the loosest: a model that sees a garbled call writes another one.
    """
    kept = tuple(
        part for part in parts if isinstance(part, Reasoning) or (isinstance(part, Text) and part.text.strip())
    )
    texts = [part.text for part in kept if isinstance(part, Text)]
    if not texts or not all(is_plain(text, tools=tools, loose=True) for text in texts):
        return None
    return Message(role=Role.ASSISTANT, parts=kept)


def _softened(choice: ToolChoice | None) -> ToolChoice:
    if choice is not None and choice.mode is ChoiceMode.REQUIRED and choice.allowed is not None:
        return ToolChoice(mode=ChoiceMode.AUTO, allowed=choice.allowed)
    return ToolChoice(mode=ChoiceMode.AUTO)


def _forced(request: Request, demand: Demand, profile: Profile, log: AdaptationLog) -> dict[str, Any]:
    """Return the forced choice as this upstream takes it (rules 6, 7)."""
    choice = demand.choice
    assert choice is not None, "a forced demand has a choice"
    if choice.mode is not ChoiceMode.NAMED:
        return {"tool_choice": choice}
    required = ToolChoice(mode=ChoiceMode.REQUIRED)
    if profile.single_as_any and len(request.tools) == 1:
        log.add(AdaptationKind.FIELD_MAPPED, "tool_choice", "the only tool on offer is forced by `any`")
        return {"tool_choice": required}
    if profile.named:
        return {"tool_choice": choice}
    if profile.prefix_bound:
        return {"tool_choice": required}
    only = tuple(tool for tool in request.tools if isinstance(tool, Tool) and tool.name == choice.name)
    if len(only) != len(request.tools):
        log.add(AdaptationKind.TOOL_DROPPED, "tools", f"reduced to {choice.name}: it cannot be forced by name here")
    return {"tool_choice": required, "tools": only}


def _call_as_answer(tools: Sequence[Tool], profile: Profile) -> OutputFormat:
    """Return the output format whose answer is one call; strict where the upstream can hold all of it."""
    form = call_schema(tools, single=True, rooted=True, bound=profile.bounded_schemas)
    compiled = compile_schema(form, profile.schema_target, strict=True)
    strict = True if compiled.expressible else None
    return OutputFormat(kind=OutputKind.SCHEMA, schema=compiled.schema, name="tool_call", strict=strict)


def _narrowed(request: Request, demand: Demand, profile: Profile, log: AdaptationLog) -> Sequence[Tool]:
    """Return the tools a constrained call may be of: all that satisfy the demand, or those the message is about."""
    tools = candidates(request, demand)
    if not profile.words_choose or len(tools) < 2:
        return tools
    meant = relevant_tools(" ".join(latest_input(without_demands(request)).texts), tools)
    if not meant or len(meant) == len(tools):
        return tools
    log.add(
        AdaptationKind.TOOL_DROPPED, "tools", f"narrowed by the message to {', '.join(tool.name for tool in meant)}"
    )
    return meant


def _quoted(request: Request, tools: Sequence[Tool], profile: Profile, log: AdaptationLog) -> Sequence[Tool]:
    """Return the tools with arguments held to the message, where the profile wants that."""
    if profile.bounded_schemas:
        log.add(AdaptationKind.SCHEMA_REDUCED, "call", "limits added where the schema has none")
    if not profile.arguments_from_message:
        return tools
    texts = said_by_user(request)
    log.add(AdaptationKind.SCHEMA_REDUCED, "call", "free text held to the words of the user")
    return [
        tool if tool.parameters is None else tool.evolve(parameters=quote_schema(tool.parameters, *texts))
        for tool in tools
    ]


def _bounded_output(request: Request, log: AdaptationLog) -> dict[str, Any]:
    """Return a structured answer's schema with limits where it has none."""
    output = request.output
    if output is None or output.kind is not OutputKind.SCHEMA or output.schema is None:
        return {}
    bounded = bound_schema(output.schema)
    if bounded == output.schema:
        return {}
    log.add(AdaptationKind.SCHEMA_REDUCED, "answer", "limits added where the schema has none")
    return {"output": msgspec.structs.replace(output, schema=bounded)}


def _without_calling(request: Request, profile: Profile) -> dict[str, Any]:
    """Return the changes that let a reply be a JSON answer: no tools, or none to be called where they must stay."""
    called = any(isinstance(part, ToolCall) for message in request.messages for part in message.parts)
    if called or profile.prefix_bound:
        return {"tool_choice": ToolChoice(mode=ChoiceMode.NONE)}
    return {"tools": (), "tool_choice": None, "parallel_tool_calls": None}


def _without_reasoning(request: Request, profile: Profile, extra: JsonObject, log: AdaptationLog) -> dict[str, Any]:
    """Return the changes that turn reasoning off for one request; what needs reasoning goes with it (rules 24, 31)."""
    log.add(AdaptationKind.REASONING_OFF, "reasoning", "for this attempt only")
    changes: dict[str, Any] = {"reasoning": ReasoningConfig(mode=ReasoningMode.DISABLED)}
    extra.update(profile.reasoning_off_fields)
    if extra:
        changes["reasoning"] = None
    return changes | _without_fields(request, ("thinking",))


def _without_fields(request: Request, names: Sequence[str]) -> dict[str, Any]:
    """Return the changes that leave fields out that only the caller's own wire has a word for."""
    origin = request.origin
    if origin is None or not any(name in origin.fields for name in names):
        return {}
    fields, spelling = (
        {name: value for name, value in held.items() if name not in names} for held in (origin.fields, origin.spelling)
    )
    return {"origin": Origin(origin.wire, fields, None, spelling)}


def _listing(tools: Iterable[Tool]) -> str:
    """Return the tools with what a model must know to write their arguments; their own field is not sent."""
    return "\n".join(map(_listed, tools))


def _listed(tool: Tool) -> str:
    described = f"- {tool.name}: {tool.description}" if tool.description else f"- {tool.name}"
    if not tool.parameters or not tool.parameters.get("properties"):
        return described
    return f"{described}\n  arguments: {msgspec.json.encode(tool.parameters).decode()}"


def _as_text(request: Request, profile: Profile, log: AdaptationLog, named: str | None) -> Request:
    """Render tools, past calls and their results as text in one grammar (rules 71, 72); `named` is never left out."""
    prompt = Prompt(profile.prompt_dialect)
    tools = [tool for tool in request.tools if isinstance(tool, Tool) and tool.kind is CallKind.FUNCTION]
    messages = tuple(_rendered(request.messages, prompt))
    choice = request.tool_choice
    if not tools or (choice is not None and choice.mode is ChoiceMode.NONE):
        same = len(messages) == len(request.messages) and all(map(_is, messages, request.messages))
        if not request.tools and same:
            return request
        return request.evolve(messages=messages, tools=(), tool_choice=None, parallel_tool_calls=None)
    rendered = prompt.system(tools, limit=profile.prompt_limit or None, keep=named)
    log.add(AdaptationKind.TOOL_RESHAPED, "tools", f"rendered as text ({profile.prompt_dialect})")
    for name in rendered.cut:
        log.add(AdaptationKind.TOOL_RESHAPED, name, f"only named: more than {profile.prompt_limit} characters")
    system, messages = _with_system(request, rendered.text, messages)
    return request.evolve(system=system, messages=messages, tools=(), tool_choice=None, parallel_tool_calls=None)


def _is(one: Message, other: Message) -> bool:
    return one is other


def _with_system(
    request: Request, text: str, messages: tuple[Message, ...]
) -> tuple[Message | None, tuple[Message, ...]]:
    """Put the tools first in the system prompt, wherever the caller keeps it: what comes first stays cached."""
    if request.system is not None:
        return request.system.evolve(parts=(Text(text=text), *request.system.parts)), messages
    if messages and messages[0].role in (Role.SYSTEM, Role.DEVELOPER):
        first = messages[0].evolve(parts=(Text(text=f"{text}\n\n"), *messages[0].parts))
        return None, (first, *messages[1:])
    return Message(role=Role.SYSTEM, parts=(Text(text=text),)), messages


def _rendered(messages: Iterable[Message], prompt: Prompt) -> Iterable[Message]:
    names: dict[str, str] = {}
    for message in messages:
        if not any(isinstance(part, ToolCall | ToolResult) for part in message.parts):
            yield message
            continue
        parts: list[Part] = []
        calls: list[WrittenCall] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                names[part.id] = part.name
                calls.append(WrittenCall(part.name, _object(part)))
                continue
            if calls:
                parts.append(Text(text=prompt.calls(calls)))
                calls = []
            if isinstance(part, ToolResult):
                written = result_text(part)
                parts.append(Text(text=prompt.result(names.get(part.call_id, "tool"), written.text)))
                parts.extend(written.media)
            else:
                parts.append(part)
        if calls:
            parts.append(Text(text=prompt.calls(calls)))
        role = Role.USER if message.role is Role.TOOL else message.role
        yield Message(role=role, parts=tuple(parts))


def _object(call: ToolCall) -> JsonObject:
    """Return a past call's arguments; free text and what cannot be read are shown as one `input`."""
    try:
        return msgspec.json.decode(call.arguments_json, type=JsonObject)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return {"input": call.arguments_json}
