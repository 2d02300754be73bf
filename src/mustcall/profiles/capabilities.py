"""What a model can do, as clients may ask it at `/v1/models`: a table of names over the fields of a profile.

Each capability says how it is known: `measured` by a probe, `configured` by the operator, else `assumed`, with who says
so. What turns taught is left out: that is their callers' own.
"""

from typing import Any

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.profiles.facts import Fact, Observed
from mustcall.profiles.resolving import Resolved

__all__ = ["CAPABILITIES", "describe_capabilities", "markdown"]

#: Each capability, the field it is read from, and what it says.
CAPABILITIES: dict[str, tuple[str, str]] = {
    "tools": ("protocol", "how tools are used with it: `native`, `hybrid`, `prompt` or `off`"),
    "forced_tool_choice": ("forced", "what the upstream itself does with `required`; the gateway sees to the call"),
    "named_tool_choice": ("named", "whether the upstream takes a tool by name"),
    "parallel_tool_calls": ("parallel", "whether it obeys the setting that forbids several calls"),
    "structured_output": ("schema_output", "whether answers can be held to a JSON schema; null if not known"),
    "structured_output_with_tools": ("schema_with_tools", "whether that works beside tools; null if not known"),
    "reasoning": ("reasoning", "when it reasons: `never`, `asked`, `default`, `always` or `unknown`"),
    "context_length": ("context_length", "tokens of prompt and reply together; 0 if not known"),
    "max_tools": ("most_tools", "the most tools in one request; 0 for no known limit"),
}

_KNOWN = {Observed.PROBED: "measured", Observed.CONFIG: "configured"}
_ASSUMED = "assumed"


def describe_capabilities(known: Resolved) -> JsonObject:
    """Return each capability with its value and how that is known."""
    return {
        name: _capability(getattr(known.profile, field), known.facts.get(field))
        for name, (field, _) in CAPABILITIES.items()
    }


def _capability(value: Any, fact: Fact | None) -> JsonObject:
    said: JsonObject = {"value": msgspec.to_builtins(value), "known": _ASSUMED}
    if fact is None:
        return said | {"by": "default"}
    if fact.observed is Observed.PROBED:
        return said | {"known": "measured", "by": fact.note.removeprefix("measured ")}
    return said | {"known": _KNOWN.get(fact.observed, _ASSUMED), "by": str(fact.observed)}


def markdown() -> str:
    """Return the table for the docs."""
    lines = ["| capability | profile field | what it says |", "|---|---|---|"]
    lines += [f"| `{name}` | `{field}` | {says} |" for name, (field, says) in CAPABILITIES.items()]
    return "\n".join(lines) + "\n"
