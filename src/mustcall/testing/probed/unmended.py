"""Lies that a gateway leaves as they are, each with what is broken behind it and why: a table, printed in the docs.

A row is `measured` where a profile that the probe wrote mends it: nothing in one exchange gives the lie away. It is
`by_chance` where the lie shows only if requests meet at the server.
"""

import msgspec

__all__ = ["UNMENDED", "Unmended", "markdown"]


class Unmended(msgspec.Struct, frozen=True, kw_only=True):
    """What is still broken, and why no gateway can do more in one turn."""

    broken: frozenset[str]
    why: str
    measured: bool = False
    by_chance: bool = False


def _left(why: str, *broken: str, measured: bool = False, by_chance: bool = False) -> Unmended:
    return Unmended(broken=frozenset(broken), why=why, measured=measured, by_chance=by_chance)


_MODELS_CHOICE = "under `auto` the model decides whether and how often it calls"
_NOT_TOLD = "the answer does not show that state was lost; a measured profile keeps conversations in the gateway"
_ID_RULE = "ids go out as the caller sent them until a rule is known; a measured profile renames those that are refused"

UNMENDED: dict[str, Unmended] = {
    "never_calls_alone": _left(_MODELS_CHOICE, "auto", "parallel.on", "tools.1", "tools.32", "tools.128"),
    "never_parallel": _left(_MODELS_CHOICE, "parallel.on"),
    "ignores_format": _left(
        "the answer is asked for again and then refused as `bad_answer`; a model that writes prose cannot be held",
        "format",
        "format+tools",
    ),
    "ignores_format_with_tools": _left("as above, beside tools: without them a call could not be made", "format+tools"),
    "counts_nothing": _left("only the upstream knows what it counted; an invented number would be billed by", "usage"),
    "counts_too_little": _left("as above; the number is passed on as it came", "usage"),
    "cuts_prompts": _left("reported as `starved`; an error with `refuse_starved = true`", "context"),
    "loses_results": _left("the model was sent the result, and does not name it", "result.round_trip"),
    "refuses_images": _left("without the image the answer would be about something not seen", "result.image"),
    "loses_reasoning": _left("reasoning that is not shown cannot be shown", "reasoning.shown"),
    "takes_any_signature": _left("the gateway drops state that its upstream refuses, and asks again"),
    "forgets_previous_response": _left(_NOT_TOLD, "previous_response", measured=True),
    "stores_nothing": _left(_NOT_TOLD, "stored_response", measured=True),
    "refuses_long_ids": _left(_ID_RULE, "id.long", measured=True),
    "refuses_odd_ids": _left(_ID_RULE, "id.odd", measured=True),
    "wants_ids_of_nine_letters": _left(_ID_RULE, "id.long", "id.odd", measured=True),
    "refuses_128_tools": _left("which tools to leave out is the caller's choice; the refusal says so", "tools.128"),
    "crashes_with_32_tools": _left("as above; a 500 does not say so", "tools.32", "tools.128"),
    "mixes_up_requests": _left("whose answer one is cannot be told", "concurrency.8", by_chance=True),
    "garbles_unicode": _left("what was garbled cannot be told from what was meant", "unicode"),
}


def markdown() -> str:
    """Return the table for the docs."""
    lines = ["| the upstream | what stays broken | why |", "|---|---|---|"]
    for name, left in UNMENDED.items():
        broken = ", ".join(f"`{guarantee}`" for guarantee in sorted(left.broken)) or "nothing"
        until = " until it is measured" if left.measured else ""
        lines.append(f"| {name.replace('_', ' ')} | {broken}{until} | {left.why} |")
    return "\n".join(lines) + "\n"
