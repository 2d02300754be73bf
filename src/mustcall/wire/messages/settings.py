"""Everything of a Messages request beside its messages: thinking, output, tools and the choice among them.

Reads these fields into canonical values and writes them for an upstream. A setting the wire has no form for is
noted in the log, never dropped silently. Keys inside `thinking` and `output_config` that have no canonical word are
kept in the request's `fields` under the same two names, without the known keys.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.origin import JsonObject, Origin, Wire
from mustcall.core.request import OutputFormat, OutputKind, ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.crossing.effort import budget_for_effort
from mustcall.wire.crossing.naming import flat_name
from mustcall.wire.crossing.offer import ToolOffer
from mustcall.wire.reading import ShapeError, as_object, at, maybe_object, opt_bool, opt_int, opt_object, opt_str, rest

__all__ = [
    "Thinking",
    "plan_thinking",
    "read_choice",
    "read_output",
    "read_reasoning",
    "read_tool",
    "unknown_settings",
    "write_choice",
    "write_output_config",
    "write_tool",
]

_WIRE = Wire.MESSAGES

_TOOL_KEYS = frozenset({"type", "name", "description", "input_schema", "strict", "defer_loading"})
_CHOICE_KEYS = frozenset({"type", "name", "disable_parallel_tool_use"})
_THINKING_KEYS = frozenset({"type", "budget_tokens", "display"})
_OUTPUT_KEYS = frozenset({"effort", "format"})
_FORMAT_KEYS = frozenset({"type", "schema"})

_MODES = {mode.value: mode for mode in ReasoningMode}
_DISPLAYS = frozenset({"summarized", "omitted", "updates"})
#: Efforts that mean "do not think"; Anthropic's smallest budget is 1,024 tokens, far above what they ask for.
_NO_THINKING = frozenset({"none", "minimal"})
_SMALLEST_BUDGET = 1_024

_CHOICE_MODES = {
    "auto": ChoiceMode.AUTO,
    "any": ChoiceMode.REQUIRED,
    "tool": ChoiceMode.NAMED,
    "none": ChoiceMode.NONE,
}


def read_tool(value: Any) -> Tool | ProviderTool:
    """Read one tool: client-side without a type or with `custom`, the provider's otherwise."""
    tool = as_object(value)
    kind = opt_str(tool, "type")
    if kind is not None and kind != "custom":
        return ProviderTool(type=kind, value=tool, origin=Origin(_WIRE, raw=tool))
    name = opt_str(tool, "name")
    if not name:
        raise ShapeError("is required", path="name")
    return Tool(
        name=name,
        description=opt_str(tool, "description"),
        parameters=opt_object(tool, "input_schema"),
        strict=opt_bool(tool, "strict"),
        deferred=opt_bool(tool, "defer_loading") or False,
        origin=Origin(_WIRE, rest(tool, _TOOL_KEYS), tool),
    )


def write_tool(tool: Tool | ProviderTool, log: AdaptationLog) -> JsonObject:
    """Write one tool; a schema without `type: object` gets it, because the wire demands it."""
    raw = tool.raw_for(_WIRE)
    if raw is not None:
        return raw
    if isinstance(tool, ProviderTool):
        return tool.value
    origin = tool.origin
    native = origin is not None and origin.wire is _WIRE
    if origin is not None and not native:
        for field in origin.fields:
            log.add(AdaptationKind.FIELD_DROPPED, field, "a tool field of another wire")
    written: JsonObject = {"name": flat_name(tool.namespace, tool.name)}
    if tool.description is not None:
        written["description"] = tool.description
    written["input_schema"] = _object_schema(tool, log)
    if tool.strict or (tool.strict is not None and (native or origin is None)):
        written["strict"] = tool.strict
    if tool.deferred and native:
        written["defer_loading"] = True
    return {**written, **tool.fields_for(_WIRE)}


def _object_schema(tool: Tool, log: AdaptationLog) -> JsonObject:
    schema = tool.parameters
    if schema is None:
        return {"type": "object", "properties": {}}
    if schema.get("type") == "object":
        return schema
    log.add(AdaptationKind.TOOL_RESHAPED, tool.name, "its schema was given `type: object`")
    return {**schema, "type": "object"}


def read_choice(body: JsonObject) -> tuple[ToolChoice | None, bool | None]:
    """Read `tool_choice` and the parallel setting inside it."""
    choice = opt_object(body, "tool_choice")
    if choice is None:
        return None, None
    with at("tool_choice"):
        kind = opt_str(choice, "type")
        mode = _CHOICE_MODES.get(kind or "")
        if mode is None:
            raise ShapeError("one of auto, any, tool, none", kind, "type")
        name = opt_str(choice, "name")
        if mode is ChoiceMode.NAMED and not name:
            raise ShapeError("is required", path="name")
        disabled = opt_bool(choice, "disable_parallel_tool_use")
    read = ToolChoice(
        mode=mode,
        name=name if mode is ChoiceMode.NAMED else None,
        origin=Origin(_WIRE, rest(choice, _CHOICE_KEYS), choice),
    )
    return read, None if disabled is None else not disabled


def write_choice(offer: ToolOffer, request: Request, log: AdaptationLog) -> JsonObject | None:
    """Write `tool_choice` with the parallel setting, None where the body must not have it (rules 2, 3, 4, 6)."""
    if not offer.tools:
        return None
    choice, parallel = offer.choice, request.parallel_tool_calls
    if choice is None:
        if parallel is not False:
            return None
        log.add(AdaptationKind.FIELD_MAPPED, "parallel_tool_calls", "tool_choice auto with disable_parallel_tool_use")
        return {"type": "auto", "disable_parallel_tool_use": True}
    raw = maybe_object(choice.raw_for(_WIRE))
    if raw is not None:
        disabled = raw.get("disable_parallel_tool_use")
        if parallel == (None if disabled is None else not disabled):
            return raw
    written: JsonObject = {**choice.fields_for(_WIRE)}
    match choice.mode:
        case ChoiceMode.NONE:
            if parallel is not None:
                log.add(AdaptationKind.FIELD_DROPPED, "parallel_tool_calls", "nothing may be called")
            return {**written, "type": "none"}
        case ChoiceMode.AUTO:
            written["type"] = "auto"
        case ChoiceMode.REQUIRED:
            written["type"] = "any"
        case ChoiceMode.NAMED:
            name = flat_name(choice.namespace, choice.name or "")
            only = offer.tools[0] if len(offer.tools) == 1 else None
            if isinstance(only, Tool) and flat_name(only.namespace, only.name) == name:
                log.add(AdaptationKind.FIELD_MAPPED, "tool_choice", "the only tool on offer is forced by `any`")
                written["type"] = "any"
            else:
                written |= {"type": "tool", "name": name}
        case _:
            assert_never(choice.mode)
    if parallel is not None:
        written["disable_parallel_tool_use"] = not parallel
    return written


def read_reasoning(body: Mapping[str, Any]) -> ReasoningConfig | None:
    """Read `thinking` and `output_config.effort`."""
    thinking, output = opt_object(body, "thinking"), opt_object(body, "output_config")
    effort: str | None = None
    if output is not None:
        with at("output_config"):
            effort = opt_str(output, "effort")
    if thinking is None:
        return None if effort is None else ReasoningConfig(effort=effort)
    with at("thinking"):
        return ReasoningConfig(
            mode=_MODES.get(opt_str(thinking, "type") or ""),
            effort=effort,
            budget_tokens=opt_int(thinking, "budget_tokens"),
            summary=opt_str(thinking, "display"),
        )


def read_output(body: Mapping[str, Any]) -> OutputFormat | None:
    """Read `output_config.format`; a kind this version has no word for stays among the unknown settings."""
    output = opt_object(body, "output_config")
    if output is None:
        return None
    with at("output_config"):
        form = opt_object(output, "format")
        if form is None or form.get("type") != "json_schema":
            return None
        with at("format"):
            return OutputFormat(kind=OutputKind.SCHEMA, schema=opt_object(form, "schema"))


def unknown_settings(body: JsonObject) -> JsonObject:
    """Return the parts of `thinking` and `output_config` without a canonical word, under their own names."""
    unknown: JsonObject = {}
    thinking, output = maybe_object(body.get("thinking")), maybe_object(body.get("output_config"))
    if thinking is not None:
        extra = rest(thinking, _THINKING_KEYS)
        kind = thinking.get("type")
        if kind not in _MODES and kind is not None:
            extra["type"] = kind
        if extra:
            unknown["thinking"] = extra
    if output is not None:
        extra = rest(output, _OUTPUT_KEYS)
        form = maybe_object(output.get("format"))
        if form is not None:
            form_extra = rest(form, _FORMAT_KEYS) if form.get("type") == "json_schema" else form
            if form_extra:
                extra["format"] = form_extra
        if extra:
            unknown["output_config"] = extra
    return unknown


class Thinking:
    """What goes out for reasoning: the `thinking` object, the effort word, and whether thinking is on."""

    __slots__ = ("effort", "value")

    def __init__(self, value: JsonObject | None = None, effort: str | None = None) -> None:
        self.value = value
        self.effort = effort

    @property
    def budget(self) -> int:
        """The tokens thinking may use, 0 if that is not said."""
        budget = (self.value or {}).get("budget_tokens")
        return budget if isinstance(budget, int) else 0

    @property
    def on(self) -> bool:
        """Whether the model is asked to think."""
        return self.value is not None and self.value.get("type") in ("enabled", "adaptive")


def plan_thinking(request: Request, *, native: bool, log: AdaptationLog) -> Thinking:
    """Write the caller's reasoning settings; `native` ones (from this wire) word for word, others by budget."""
    config = request.reasoning
    extra = maybe_object(request.fields_for(_WIRE).get("thinking")) or {}
    if config is None:
        return Thinking(extra if "type" in extra else None)
    written: JsonObject = dict(extra)
    mode, effort, budget = config.mode, config.effort, config.budget_tokens
    if not native and (mode is None or effort in _NO_THINKING):
        return _thinking_from_effort(config, log)
    if mode is not None:
        written["type"] = mode.value
    if mode is ReasoningMode.ENABLED and budget is None:
        budget = budget_for_effort(effort or "medium")
        log.add(AdaptationKind.FIELD_DEFAULTED, "thinking.budget_tokens", str(budget))
    if budget is not None and (native or mode is ReasoningMode.ENABLED):
        written["budget_tokens"] = budget
    if config.summary is not None:
        if native or config.summary in _DISPLAYS:
            written["display"] = config.summary
        else:
            log.add(AdaptationKind.FIELD_DROPPED, "reasoning.summary", "the model decides how thinking is shown")
    return Thinking(written if "type" in written else None, effort)


def _thinking_from_effort(config: ReasoningConfig, log: AdaptationLog) -> Thinking:
    if config.summary is not None:
        log.add(AdaptationKind.FIELD_DROPPED, "reasoning.summary", "the model decides how thinking is shown")
    effort, budget = config.effort, config.budget_tokens
    if budget is None:
        if effort is None:
            return Thinking()
        if effort in _NO_THINKING:
            log.add(AdaptationKind.FIELD_MAPPED, "reasoning.effort", f"{effort}: no thinking")
            return Thinking()
        budget = budget_for_effort(effort)
    budget = max(budget, _SMALLEST_BUDGET)
    log.add(AdaptationKind.FIELD_MAPPED, "reasoning.effort", f"{effort or 'budget'}: {budget} thinking tokens")
    return Thinking({"type": "enabled", "budget_tokens": budget})


def write_output_config(request: Request, effort: str | None, log: AdaptationLog) -> JsonObject | None:
    """Write `output_config` from effort, output format and what else the caller had there."""
    extra: Mapping[str, Any] = maybe_object(request.fields_for(_WIRE).get("output_config")) or {}
    written: JsonObject = {key: value for key, value in extra.items() if key != "format"}
    if effort is not None:
        written["effort"] = effort
    form = maybe_object(extra.get("format")) or {}
    output = request.output
    if output is None:
        if "type" in form:
            written["format"] = form
        return written or None
    match output.kind:
        case OutputKind.TEXT:
            pass
        case OutputKind.JSON:
            log.add(AdaptationKind.FIELD_DROPPED, "response_format", "json_object has no counterpart; give a schema")
        case OutputKind.SCHEMA:
            if output.schema is None:
                log.add(AdaptationKind.FIELD_DROPPED, "response_format", "json_schema without a schema")
            else:
                written["format"] = {**form, "type": "json_schema", "schema": output.schema}
            if output.description is not None:
                log.add(AdaptationKind.FIELD_DROPPED, "response_format.description", "schemas have no description here")
        case _:
            assert_never(output.kind)
    return written or None
