"""What an upstream really does, as far as is known: the facts every decision about a turn is made from.

A profile is plain data. Where nothing is known, what the caller sent is sent as it came: a refusal is immediate and
costs no tokens (rule 74). Which profile belongs to which endpoint and model is decided in `mustcall.profiles`.
"""

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["Forcing", "Profile", "Protocol", "ReasoningHabit", "ReasoningPolicy", "SchemaTarget"]


class Protocol(StrEnum):
    """How tools are used with an upstream."""

    NATIVE = "native"
    PROMPT = "prompt"
    HYBRID = "hybrid"
    OFF = "off"


class Forcing(StrEnum):
    """What the upstream does with a forced tool choice."""

    ALWAYS = "always"  # obeyed, reasoning or not
    WITHOUT_REASONING = "without_reasoning"  # obeyed; refused while reasoning is on
    NEVER = "never"  # refused with a 400
    IGNORED = "ignored"  # accepted and not obeyed
    UNKNOWN = "unknown"


class ReasoningHabit(StrEnum):
    """When the model reasons."""

    NEVER = "never"
    ASKED = "asked"  # when the request turns it on
    DEFAULT = "default"  # unless the request turns it off
    ALWAYS = "always"
    UNKNOWN = "unknown"


class ReasoningPolicy(StrEnum):
    """What happens to reasoning of earlier turns (rule 124)."""

    KEEP = "keep"
    DROP = "drop"


class SchemaTarget(StrEnum):
    """Which subset of JSON Schema the upstream takes for tool parameters (rule 130)."""

    FULL = "full"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a turn must know of its upstream. The defaults are those of an unknown model."""

    name: str = "unknown"
    #: native, prompt, hybrid or off (rule 70).
    protocol: Protocol = Protocol.HYBRID
    forced: Forcing = Forcing.UNKNOWN
    #: Whether a tool choice is taken at all; if not, none is sent, and a demand is a directive (rule 7).
    takes_choice: bool = True
    #: Whether one tool can be forced by name; if not, the tools are reduced to it and `required` is sent (rule 7).
    named: bool = True
    #: Whether the only tool on offer is forced by `required` rather than by its name (rule 6).
    single_as_any: bool = False
    reasoning: ReasoningHabit = ReasoningHabit.UNKNOWN
    #: Whether reasoning can be turned off for one request; None if that is not known.
    reasoning_off: bool | None = None
    #: Extra body fields that turn it off; empty where the wire's own setting does (`thinking: {type: disabled}`).
    reasoning_off_fields: dict[str, Any] = {}
    #: Whether a request may end on an assistant turn (rule 100).
    prefill: bool = False
    #: Whether reasoning handed back is bound to everything before it, so nothing may change there (rule 134).
    prefix_bound: bool = False
    #: Whether answers can be constrained to a JSON schema by the wire's own setting; None if that is not known.
    schema_output: bool | None = None
    #: Whether that works while tools are on offer; None if that is not known. Where it does not, the answer is asked
    #: for through a tool of its own, or in words.
    schema_with_tools: bool | None = None
    #: The body field that takes a JSON schema for constrained decoding (`guided_json`), if the server has one.
    grammar_field: str | None = None
    #: Whether the server takes such a field at all; None if that is not known, and then it is tried where it is local.
    grammar_output: bool | None = None
    #: Whether the server runs on this machine or in its network, where such fields are worth a try (rule 140).
    local: bool = False
    #: The rungs of the ladder that made forced calls here, the best first; they are tried before the others (rule 139).
    forced_by: tuple[str, ...] = ()
    #: Whether an upstream of the Responses wire keeps its replies under their ids; else they are kept here (rule 78).
    stateful: bool = True
    #: Whether streams are answered; if not, what the caller wants streamed is asked for whole.
    streams: bool = True
    #: Whether forced turns may be streamed although the caller does not stream (rule 137); None if that is not known.
    streams_forced: bool | None = None
    #: Whether constrained rungs come first when a call is forced (small local models).
    constrain_first: bool = False
    #: Whether texts, lists and integers without a limit get one in the schema of a constrained answer, because the
    #: model runs on in them.
    bounded_schemas: bool = False
    #: Whether a constrained call is asked for by example, and results are told in plain words (small local models).
    worked_examples: bool = False
    #: Whether the words of the message narrow the tools of a constrained call and decide, under `auto`, between a call
    #: and an answer: for models too small to choose.
    words_choose: bool = False
    #: Whether free text in a constrained call's arguments is held to what the message says: for models too small to
    #: write them.
    arguments_from_message: bool = False
    #: Whether the setting that allows or forbids several calls in one reply is taken; if not, it is enforced here.
    parallel: bool = True
    #: Whether call arguments may be released as they stream, before they are complete (design, "Streaming").
    trusted_arguments: bool = False
    #: What call ids must look like; the empty string means no rule beyond the wire's.
    id_pattern: str = ""
    id_length: int = 64
    #: What tool names must look like. The default is what every provider takes.
    name_pattern: str = "^[a-zA-Z0-9_-]+$"
    name_length: int = 64
    #: The chat field that carries reasoning text back to the model (`reasoning_content`, `reasoning`), if any.
    reasoning_field: str | None = None
    reasoning_history: ReasoningPolicy = ReasoningPolicy.KEEP
    #: Whether a reply of nothing but reasoning is this family's way to answer (rule 38).
    reasoning_only_final: bool = False
    #: Whether a history with tool calls needs tools on offer (rule 104).
    history_needs_tools: bool = False
    schema_target: SchemaTarget = SchemaTarget.FULL
    #: Digests of tool schemas that were refused as they are: these alone go out in the narrowest subset (rule 139).
    narrowed_schemas: tuple[str, ...] = ()
    #: Digests of tools that were refused in every form: these alone are left out (rules 130, 139).
    refused_tools: tuple[str, ...] = ()
    #: Tokens the context holds, prompt and reply together; 0 if that is not known. The upstream itself enforces it.
    context_length: int = 0
    #: The most tools one request may offer; 0 for no limit.
    most_tools: int = 0
    #: Dialects looked for in text (`auto`, or names), and the one tools are rendered in under `prompt`.
    dialects: tuple[str, ...] = ("auto",)
    prompt_dialect: str = "hermes"
    #: Characters that the tools may take there; those that do not fit are named without a description (rule 72). 0 for
    #: no limit.
    prompt_limit: int = 0
    #: Whether the upstream itself separates reasoning from text.
    separates_reasoning: bool = False
