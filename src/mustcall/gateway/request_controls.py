"""What a caller may ask of a turn beside its request: by headers, or by a `mustcall` object in the body (rule 9).

The body wins over headers, both win over the operator's settings; but a caller can only lower limits, because the
operator pays for what they bound. The extension never reaches an upstream: it is taken out, every other byte stays.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from mustcall.core.errors import InvalidRequest
from mustcall.gateway.config.environment import SWITCHES
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.wire.opening import Fields

__all__ = ["CALLERS_HEADERS", "OPERATORS", "PREFIX", "CallersLimits", "take_controls"]

PREFIX = "x-mustcall-"
_KEY = b'"mustcall"'
_FIELD = "mustcall"

_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _truth(text: str) -> bool:
    switch = SWITCHES.get(text.strip().lower())
    if switch is None:
        raise ValueError("true or false is expected")
    return switch


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number is expected") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number is expected") from None


def _force(text: str) -> bool | str:
    """Read a force: a truth word, or the name of a tool."""
    folded = text.strip().lower()
    return True if folded in ("any", "required") else SWITCHES.get(folded, text.strip())


#: Headers, without their prefix, and the control each one sets.
CALLERS_HEADERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "force-tools": ("force_tools", _force),
    "protocol": ("protocol", str),
    "on-unmet": ("on_unmet", str),
    "other-tool": ("other_tool", str),
    "strict-force": ("strict_force", _truth),
    "force-after-results": ("force_after_results", _truth),
    "salvage": ("salvage", str),
    "salvage-arguments": ("salvage_arguments", _truth),
    "hold": ("hold", _truth),
    "step-cap": ("step_cap", _whole),
    "metadata": ("metadata", _truth),
    "remember-failures": ("remember_failures", _number),
    "session": ("session", str.strip),
    "turn-cost-usd": ("turn_cost_usd", _number),
    "extra-calls": ("extra_calls", _whole),
}


#: Settings that are not a caller's to make, or mean nothing to a gateway.
OPERATORS = frozenset({"tools", "refuse_starved", "hops", "result_cap"})


_Limit = Annotated[int, msgspec.Meta(ge=0)]


class CallersLimits(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The limits a caller may lower."""

    extra_calls: _Limit | None = None
    refused_tool: _Limit | None = None
    text_call: _Limit | None = None
    empty: _Limit | None = None
    thinking_only: _Limit | None = None
    bad_arguments: _Limit | None = None
    unknown_tool: _Limit | None = None
    bad_answer: _Limit | None = None
    truncated: _Limit | None = None
    reminders: _Limit | None = None


def take_controls(
    body: bytes, headers: Mapping[str, str], controls: Controls, fields: Fields | None = None
) -> tuple[Controls, bytes]:
    """Return the controls of one request and the body without its extension; raise `InvalidRequest`.

    `fields` are the body's top level, where it is known.
    """
    changes: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    if PREFIX in " ".join(headers):
        for name, value in headers.items():
            if not name.startswith(PREFIX):
                continue
            known = CALLERS_HEADERS.get(name[len(PREFIX) :])
            if known is None:
                names = ", ".join(PREFIX + one for one in CALLERS_HEADERS)
                raise InvalidRequest(f"there is no header {name[:80]!r}; there are: {names}")
            field, read = known
            into, kind = (limits, CallersLimits) if field in CallersLimits.__struct_fields__ else (changes, Controls)
            try:
                into[field] = read(value)
                msgspec.convert({field: into[field]}, kind)
            except ValueError as error:
                why = str(error).partition(" - at ")[0]
                raise InvalidRequest(f"the header {name} is {value[:80]!r}: {why}") from None
    if _KEY in body if fields is None else _FIELD in fields:
        body, extension = _split(body)
        bounds: Any = extension.pop("limits", None)
        if bounds is not None and not isinstance(bounds, dict):
            raise InvalidRequest("`mustcall.limits` must be an object", param=_FIELD)
        limits |= bounds or {}
        changes |= extension
    if not changes and not limits:
        return controls, body
    return _changed(controls, changes, limits), body


def _split(body: bytes) -> tuple[bytes, dict[str, Any]]:
    """Take the extension out of a body; a body that only mentions the word is left as it is."""
    try:
        fields = _top_level.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return body, {}  # the codec will say what is wrong with it
    given = fields.pop(_FIELD, None)
    if given is None:
        return body, {}
    try:
        extension = msgspec.json.decode(given, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"`mustcall` must be an object that can be read: {error}", param=_FIELD) from None
    return msgspec.json.encode(fields), extension


def _changed(controls: Controls, changes: dict[str, Any], limits: dict[str, Any]) -> Controls:
    operators = OPERATORS | {"limits"}
    unknown = [name for name in changes if name in operators or name not in Controls.__struct_fields__]
    if unknown:
        known = ", ".join(sorted({*Controls.__struct_fields__} - OPERATORS))
        raise InvalidRequest(f"`mustcall` has no setting {unknown[0]!r}; there are: {known}", param=_FIELD)
    try:
        lowered = msgspec.convert(limits, CallersLimits)
        asked = msgspec.convert({**msgspec.to_builtins(controls), **changes}, Controls)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"`mustcall`: {error}", param=_FIELD) from None
    bounds = {
        name: min(getattr(controls.limits, name), wanted)
        for name, wanted in msgspec.structs.asdict(lowered).items()
        if wanted is not None
    }
    if "extra_calls" in bounds:  # whoever sets the ceiling means it
        bounds.setdefault("refused_tool", 0)
    bounded: Limits = msgspec.structs.replace(controls.limits, **bounds)
    return msgspec.structs.replace(asked, limits=bounded, tools=controls.tools)
