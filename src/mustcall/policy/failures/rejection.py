"""What an upstream's refusal means for the plan: which assumption it contradicts, and what that teaches (rule 33).

A table of words, each with who says them and how that was observed, read from top to bottom. Also takes the model's
generation out of errors that carry one (rule 128). Decides neither what is tried next nor where lessons are kept.
"""

import re
from enum import StrEnum
from typing import Any

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.policy.facts.profile import Forcing, Protocol, ReasoningPolicy, SchemaTarget
from mustcall.wire.overflow import is_overflow

__all__ = [
    "LESSONS",
    "SIGNS",
    "Rejection",
    "RejectionSign",
    "classify_rejection",
    "harvest",
    "holds_whole_generation",
    "lesson",
    "read_rejection",
    "without_generation",
]


class Rejection(StrEnum):
    """What an upstream refused."""

    FORCE_WITH_REASONING = "force_with_reasoning"  # a forced choice while reasoning is on
    FORCE_UNSUPPORTED = "force_unsupported"  # any forced choice
    CHOICE_UNSUPPORTED = "choice_unsupported"  # the field itself: `auto` too
    NAMED_UNSUPPORTED = "named_unsupported"  # a choice that names a tool; `required` may do
    PARALLEL_UNSUPPORTED = "parallel_unsupported"  # the parallel setting
    PREFILL = "prefill"  # a request that ends on an assistant turn
    RESULTS_TOGETHER = "results_together"  # several calls of one turn with their results in a row
    REASONING_STATE = "reasoning_state"  # reasoning handed back that it does not accept
    REASONING_MISSING = "reasoning_missing"  # a history without the reasoning it wants back
    REASONING_FIELD = "reasoning_field"  # the field in which reasoning was handed back
    REASONING_OFF_REFUSED = "reasoning_off_refused"  # to answer without reasoning
    TOOLS_UNSUPPORTED = "tools_unsupported"  # tools as such
    SCHEMA_UNSUPPORTED = "schema_unsupported"  # the schema of a tool
    TOOL_REFUSED = "tool_refused"  # one of the tools, for another reason than its schema
    SCHEMA_INEXPRESSIBLE = "schema_inexpressible"  # one schema that its grammar engine has no form for
    OUTPUT_UNSUPPORTED = "output_unsupported"  # an answer by JSON schema
    OUTPUT_WITH_TOOLS = "output_with_tools"  # an answer by JSON schema while tools are on offer
    GENERATION = "generation"  # nothing: the model's own output could not be read by the server
    OVERFLOW = "overflow"  # a prompt that does not fit
    OTHER = "other"


class RejectionSign(msgspec.Struct, frozen=True):
    """Words (lower case, all of them) that mean a rejection, who says them, and how that was observed.

    `assumed` is a wording that was not seen in a thread or a page, only known or generalised from others. One that is
    not `lasting` is about what this one request holds, and teaches nothing about others.
    """

    rejection: Rejection
    words: tuple[str, ...]
    who: str
    observed: str
    lasting: bool = True


_R = Rejection

#: Read from top to bottom; the first sign whose words all occur decides.
SIGNS: tuple[RejectionSign, ...] = (
    RejectionSign(_R.GENERATION, ("tool_use_failed",), "Groq", "issue"),
    RejectionSign(_R.GENERATION, ("output_parse_failed",), "Groq", "assumed"),
    RejectionSign(_R.GENERATION, ("failed_generation",), "Groq", "issue"),
    RejectionSign(_R.GENERATION, ("failed to parse input at pos",), "llama.cpp", "issue"),
    RejectionSign(_R.GENERATION, ("error parsing tool call: raw=",), "Ollama", "assumed"),
    RejectionSign(
        _R.SCHEMA_INEXPRESSIBLE, ("the grammar engine cannot express this schema",), "embedded model", "measured"
    ),
    RejectionSign(_R.OUTPUT_WITH_TOOLS, ("json mode cannot be combined with tool",), "Groq", "issue"),
    RejectionSign(_R.OUTPUT_WITH_TOOLS, ("function calling", "with a response mime type"), "Gemini", "issue"),
    RejectionSign(_R.OUTPUT_WITH_TOOLS, ("instead of populating 'response_mime_type'",), "Vertex", "issue"),
    RejectionSign(_R.OUTPUT_WITH_TOOLS, ("cannot use custom grammar constraints with tools",), "llama.cpp", "assumed"),
    RejectionSign(_R.OUTPUT_WITH_TOOLS, ("response_format", "with tools"), "several", "assumed"),
    RejectionSign(_R.OUTPUT_WITH_TOOLS, ("response_format", "tools", "same time"), "several", "assumed"),
    RejectionSign(_R.OUTPUT_WITH_TOOLS, ("response_format", "tools", "incompatible"), "several", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("does not support tools",), "Ollama", "issue"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("no endpoints found that support tool use",), "OpenRouter", "issue"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("--enable-auto-tool-choice",), "vLLM", "code"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("requires --tool-call-parser",), "vLLM", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("tools param requires --jinja",), "llama.cpp", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("function calling is not enabled",), "Gemini (Gemma)", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("does not support function calling",), "several", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("doesn't support tool use",), "Bedrock", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("does not support tool use",), "several", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("tool calling` is not supported",), "Groq", "assumed"),
    RejectionSign(_R.TOOLS_UNSUPPORTED, ("'tools' is not supported with this model",), "OpenAI", "assumed"),
    RejectionSign(_R.FORCE_WITH_REASONING, ("thinking may not be enabled when tool_choice",), "Anthropic", "docs"),
    RejectionSign(_R.FORCE_WITH_REASONING, ("thinking mode does not support this tool_choice",), "DeepSeek", "issue"),
    RejectionSign(_R.FORCE_WITH_REASONING, ("tool_choice", "in thinking mode"), "DashScope", "issue"),
    RejectionSign(_R.FORCE_WITH_REASONING, ("tool_choice", "incompatible with thinking"), "Moonshot", "issue"),
    RejectionSign(_R.FORCE_WITH_REASONING, ("tool_choice", "when thinking is enabled"), "several", "assumed"),
    RejectionSign(_R.PARALLEL_UNSUPPORTED, ("'parallel_tool_calls' is not supported",), "OpenAI", "issue"),
    RejectionSign(_R.PARALLEL_UNSUPPORTED, ("parallel_tool_calls", "not supported"), "several", "assumed"),
    RejectionSign(_R.PARALLEL_UNSUPPORTED, ("parallel_tool_calls", "unsupported"), "several", "assumed"),
    RejectionSign(_R.PARALLEL_UNSUPPORTED, ("parallel_tool_calls", "extra inputs"), "several", "assumed"),
    RejectionSign(
        _R.PARALLEL_UNSUPPORTED, ("disable_parallel_tool_use", "extra inputs"), "Messages endpoints", "assumed"
    ),
    RejectionSign(_R.CHOICE_UNSUPPORTED, ("unsupported parameter: 'tool_choice'",), "OpenAI endpoints", "assumed"),
    RejectionSign(_R.CHOICE_UNSUPPORTED, ("unknown parameter", "tool_choice"), "OpenAI endpoints", "assumed"),
    RejectionSign(_R.CHOICE_UNSUPPORTED, ("unknown field", "tool_choice"), "Rust and Go servers", "assumed"),
    RejectionSign(_R.CHOICE_UNSUPPORTED, ("unrecognized", "tool_choice"), "several", "assumed"),
    RejectionSign(_R.CHOICE_UNSUPPORTED, ("unexpected keyword", "tool_choice"), "Python servers", "assumed"),
    RejectionSign(_R.CHOICE_UNSUPPORTED, ("tool_choice", "extra inputs"), "pydantic", "assumed"),
    RejectionSign(_R.NAMED_UNSUPPORTED, ("invalid tool_choice type: 'object'",), "LM Studio", "issue"),
    RejectionSign(_R.NAMED_UNSUPPORTED, ("tool_choice", "supported string values"), "LM Studio", "issue"),
    RejectionSign(
        _R.NAMED_UNSUPPORTED, ("tool_choice", "invalid type: map, expected a string"), "Rust servers", "assumed"
    ),
    RejectionSign(
        _R.NAMED_UNSUPPORTED, ("tool_choice", "input should be 'none', 'auto' or 'required'"), "pydantic", "assumed"
    ),
    RejectionSign(
        _R.FORCE_UNSUPPORTED, ('tool_choice: type "tool" and "any" are not supported',), "Anthropic", "issue"
    ),
    RejectionSign(_R.FORCE_UNSUPPORTED, ("does not support this tool_choice",), "DeepSeek", "assumed"),
    RejectionSign(_R.FORCE_UNSUPPORTED, ("no endpoints found", "tool_choice"), "OpenRouter", "assumed"),
    RejectionSign(_R.FORCE_UNSUPPORTED, ("tool_choice must either be a named tool",), "vLLM", "issue"),
    RejectionSign(_R.FORCE_UNSUPPORTED, ("tool_choice", "not supported"), "several", "assumed"),
    RejectionSign(_R.FORCE_UNSUPPORTED, ("tool_choice", "unsupported"), "several", "assumed"),
    RejectionSign(_R.FORCE_UNSUPPORTED, ("tool_choice", "does not support"), "several", "assumed"),
    RejectionSign(_R.PREFILL, ("assistant message prefill",), "Anthropic, Bedrock", "issue"),
    RejectionSign(_R.PREFILL, ("must end with a user message",), "Anthropic", "issue"),
    RejectionSign(_R.PREFILL, ("`assistant` message in the final position",), "Anthropic", "assumed"),
    RejectionSign(_R.PREFILL, ("expected last role user or tool",), "Mistral", "assumed"),
    RejectionSign(_R.PREFILL, ("assistant response prefill is incompatible",), "llama.cpp", "assumed"),
    RejectionSign(_R.PREFILL, ("end with a user role",), "Gemini", "assumed"),
    RejectionSign(_R.RESULTS_TOGETHER, ("only supports single tool-calls at once",), "Llama's template", "issue"),
    RejectionSign(_R.RESULTS_TOGETHER, ("only one tool message",), "several", "assumed", lasting=False),
    RejectionSign(_R.RESULTS_TOGETHER, ("only one tool result",), "several", "assumed", lasting=False),
    RejectionSign(_R.REASONING_MISSING, ("reasoning_content is missing",), "Moonshot", "issue"),
    RejectionSign(_R.REASONING_MISSING, ("reasoning_content", "must be passed back"), "DeepSeek", "issue"),
    RejectionSign(_R.REASONING_MISSING, ("missing a thought_signature",), "Gemini", "issue"),
    RejectionSign(_R.REASONING_MISSING, ("expected `thinking` or `redacted_thinking`",), "Anthropic", "issue"),
    RejectionSign(_R.REASONING_STATE, ("bound to a different conversation",), "Anthropic", "issue"),
    RejectionSign(_R.REASONING_STATE, ("invalid `signature` in `thinking` block",), "Anthropic", "issue"),
    RejectionSign(_R.REASONING_STATE, ("invalid `data` in `redacted_thinking` block",), "Anthropic", "issue"),
    RejectionSign(_R.REASONING_STATE, ("redacted_thinking", "cannot be modified"), "Anthropic", "issue"),
    RejectionSign(
        _R.REASONING_STATE, ("blocks must match the parameters during the original request",), "Anthropic", "issue"
    ),
    RejectionSign(_R.REASONING_STATE, ("invalid_encrypted_content",), "OpenAI", "issue"),
    RejectionSign(_R.REASONING_STATE, ("encrypted content", "could not be verified"), "OpenAI", "issue"),
    RejectionSign(_R.REASONING_STATE, ("without its required 'reasoning' item",), "OpenAI", "issue"),
    RejectionSign(
        _R.REASONING_STATE, ("of type 'reasoning'", "without its required following item"), "OpenAI", "issue"
    ),
    RejectionSign(_R.REASONING_STATE, ("corrupted thought signature",), "Gemini", "assumed"),
    RejectionSign(_R.REASONING_STATE, ("thought signature is not valid",), "Gemini", "assumed"),
    RejectionSign(_R.REASONING_FIELD, ("reasoning_content", "unsupported"), "Cerebras", "assumed"),
    RejectionSign(_R.REASONING_FIELD, ("reasoning_content", "extra inputs"), "Cerebras, pydantic", "assumed"),
    RejectionSign(_R.REASONING_FIELD, ("reasoning_content", "not supported"), "several", "assumed"),
    RejectionSign(_R.REASONING_FIELD, ("reasoning_details", "extra inputs"), "several", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("thinking.type.disabled", "not supported"), "Anthropic", "docs"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("between_tools", "not supported"), "Anthropic", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("reasoning_effort", "does not support 'none'"), "OpenAI", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("reasoning.effort", "'none' is not supported"), "OpenAI", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("reasoning is mandatory",), "OpenRouter", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("only works in thinking mode",), "Gemini", "issue"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("enable_thinking", "restricted to true"), "DashScope", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("enable_thinking", "extra inputs"), "several", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("chat_template_kwargs", "extra inputs"), "several", "assumed"),
    RejectionSign(_R.REASONING_OFF_REFUSED, ("unknown parameter: 'thinking'",), "several", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("response_format", "unavailable"), "DeepSeek", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("response format `json_schema`",), "Groq", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("response_format", "not supported"), "several", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("response_format", "unsupported"), "several", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("invalid schema for response_format",), "OpenAI", "assumed", lasting=False),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("output_config.format", "not supported"), "Messages endpoints", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("output_config", "extra inputs"), "Messages endpoints", "assumed"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("invalid_function_parameters",), "OpenAI", "issue"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("invalid schema for function",), "OpenAI", "issue"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("input_schema", "json schema is invalid"), "Anthropic", "issue"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("input_schema", "does not support"), "Anthropic", "assumed"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("function_declarations", "unknown name"), "Gemini", "issue"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("function_declarations", "parameters", "schema"), "Gemini", "assumed"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("too many states for serving",), "Gemini", "assumed"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("moonshot flavored json schema",), "Moonshot", "assumed"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("json schema conversion failed",), "llama.cpp", "assumed"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("failed to parse grammar",), "llama.cpp", "assumed"),
    RejectionSign(_R.SCHEMA_UNSUPPORTED, ("schema contains features not supported by",), "vLLM", "assumed"),
    RejectionSign(_R.TOOL_REFUSED, ("input_schema",), "Messages endpoints", "assumed"),
    RejectionSign(_R.TOOL_REFUSED, ("tools[",), "OpenAI endpoints", "assumed"),
    RejectionSign(_R.TOOL_REFUSED, ("invalid tools",), "several", "assumed"),
    RejectionSign(_R.TOOL_REFUSED, ("invalid tool definition",), "several", "assumed"),
    RejectionSign(_R.TOOL_REFUSED, ("tool schema",), "several", "assumed"),
    RejectionSign(_R.TOOL_REFUSED, ("function.parameters",), "several", "assumed"),
    # Whatever else a refusal says of the setting by which an answer is held to a schema: that is tried on servers of
    # which nothing is known (rule 140).
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("response_format",), "several", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("json_schema",), "several", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("output_config",), "Messages endpoints", "assumed"),
    RejectionSign(_R.OUTPUT_UNSUPPORTED, ("text.format",), "Responses endpoints", "assumed"),
)

#: What a rejection teaches about the upstream: a profile field and its value. The rest teaches nothing lasting.
LESSONS: dict[Rejection, tuple[str, object]] = {
    Rejection.FORCE_WITH_REASONING: ("forced", Forcing.WITHOUT_REASONING),
    Rejection.FORCE_UNSUPPORTED: ("forced", Forcing.NEVER),
    Rejection.CHOICE_UNSUPPORTED: ("takes_choice", False),
    Rejection.NAMED_UNSUPPORTED: ("named", False),
    Rejection.PARALLEL_UNSUPPORTED: ("parallel", False),
    Rejection.PREFILL: ("prefill", False),
    Rejection.REASONING_FIELD: ("reasoning_history", ReasoningPolicy.DROP),
    Rejection.REASONING_OFF_REFUSED: ("reasoning_off", False),
    Rejection.TOOLS_UNSUPPORTED: ("protocol", Protocol.PROMPT),
    # Of the subsets known here Gemini's is the narrowest; local validation enforces what it drops (rule 130). It is
    # learnt of the refused schemas alone.
    Rejection.SCHEMA_UNSUPPORTED: ("schema_target", SchemaTarget.GEMINI),
    Rejection.OUTPUT_UNSUPPORTED: ("schema_output", False),
    Rejection.OUTPUT_WITH_TOOLS: ("schema_with_tools", False),
}

#: Statuses that are about keys, money and load, whatever words come with them.
_UNRELATED = frozenset({401, 402, 403, 408, 409, 429, 503, 504, 529})
#: No more of a message is read than this: what is longer quotes the request or the reply.
_READ = 4_000
_TAIL = re.compile(r"\s*(?:.{0,200}?\b)?failed to parse input at pos (\d{1,9}): ?", re.IGNORECASE | re.DOTALL)
#: What Groq writes in the place of a generation when it has none to show.
_NO_GENERATION = "tool use failed:"
_KEPT_OUT = "the model's output could not be read by the server"


def classify_rejection(error: ErrorInfo) -> Rejection:
    """Return what an upstream's error refuses."""
    return read_rejection(error)[0]


def read_rejection(error: ErrorInfo) -> tuple[Rejection, RejectionSign | None]:
    """Return what an upstream's error refuses, and the sign that says so where it was told by one."""
    if error.status in _UNRELATED:
        return Rejection.OTHER, None
    if _generation(error) is not None:
        return Rejection.GENERATION, None
    said = _said(error)
    for sign in SIGNS[:_GENERATION_SIGNS]:
        if all(words in said for words in sign.words):
            return sign.rejection, sign
    if is_overflow(said):
        return Rejection.OVERFLOW, None
    for sign in SIGNS[_GENERATION_SIGNS:]:
        if all(words in said for words in sign.words):
            return sign.rejection, sign
    return Rejection.OTHER, None


def lesson(rejection: Rejection) -> tuple[str, object] | None:
    """Return the profile field a rejection corrects and its value, None if it is about this one request only."""
    return LESSONS.get(rejection)


def harvest(error: ErrorInfo) -> str | None:
    """Return the model's generation inside an error, None if there is none (rule 128).

    llama.cpp shows only what follows the place where its parser gave up: see `holds_whole_generation`.
    """
    return _generation(error)


def holds_whole_generation(error: ErrorInfo) -> bool:
    """Tell whether `harvest` returns all that the model wrote, rather than its end only."""
    if _failed_generation(error) is not None:
        return True
    tail = _TAIL.match(error.message)
    return tail is not None and int(tail[1]) == 0


def without_generation(error: ErrorInfo) -> ErrorInfo:
    """Return the error without the model's text, which is not the caller's to see; the same object if it has none."""
    details = error.details
    if details is not None and "failed_generation" in details:
        kept = {key: value for key, value in details.items() if key != "failed_generation"}
        error = msgspec.structs.replace(error, details=kept or None)
    tail = _TAIL.match(error.message)
    if tail is not None and tail.end() < len(error.message):
        message = f"{error.message[: tail.end()].rstrip(': ')} ({_KEPT_OUT})"
        error = msgspec.structs.replace(error, message=message)
    return error


_GENERATION_SIGNS = sum(sign.rejection is Rejection.GENERATION for sign in SIGNS)


def _said(error: ErrorInfo) -> str:
    told: list[Any] = [error.code, error.type, error.param, error.message[:_READ]]
    provider = (error.details or {}).get("provider_error")  # what a router was told by the provider behind it
    if isinstance(provider, str):
        told.append(provider[:_READ])
    return "\n".join(part for part in told if part).lower()


def _generation(error: ErrorInfo) -> str | None:
    failed = _failed_generation(error)
    if failed is not None:
        return failed
    tail = _TAIL.match(error.message)
    return error.message[tail.end() :] or None if tail is not None else None


def _failed_generation(error: ErrorInfo) -> str | None:
    failed = (error.details or {}).get("failed_generation")
    if not isinstance(failed, str) or not failed.strip() or failed.lower().startswith(_NO_GENERATION):
        return None
    return failed
