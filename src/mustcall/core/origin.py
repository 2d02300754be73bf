"""Where a value came from, so that what nobody changed goes out exactly as it came in.

Every value decoded from a wire carries an `Origin`: the fields no codec has a word for, and the exact wire form.
The exact form is only true while the value is untouched: `evolve` is the one way to change a value, and it drops
the exact form while the unknown fields live on.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self

import msgspec

__all__ = ["JsonObject", "Origin", "Value", "Wire"]

JsonObject = dict[str, Any]

_NO_FIELDS: Mapping[str, Any] = {}


class Wire(StrEnum):
    """A provider protocol that is both served and called."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


class Origin(msgspec.Struct, frozen=True):
    """The wire a value was read from, its unknown fields, and its exact form while untouched.

    `spelling` holds known fields as the caller wrote them: a codec sends them again in that spelling as long as
    their meaning is unchanged (`max_tokens` or `max_completion_tokens`, an absent field or a null one).
    """

    wire: Wire
    fields: Mapping[str, Any] = _NO_FIELDS
    raw: Any = None
    spelling: Mapping[str, Any] = _NO_FIELDS


class Value(msgspec.Struct, frozen=True, kw_only=True, tag_field="is"):
    """A frozen value that remembers its origin."""

    origin: Origin | None = None

    def __repr__(self) -> str:
        """Show what it says: neither where it came from nor what nobody set."""
        said = (
            f"{field.name}={value!r}"
            for field in msgspec.structs.fields(self)
            if field.name != "origin" and (value := getattr(self, field.name)) != field.default
        )
        return f"{type(self).__name__}({', '.join(said)})"

    def evolve(self, **changes: Any) -> Self:
        """Return a changed copy; unknown fields are kept, the exact wire form is not."""
        origin = self.origin
        if origin is not None and origin.raw is not None:
            origin = Origin(origin.wire, origin.fields, None, origin.spelling)
        return msgspec.structs.replace(self, **{"origin": origin, **changes})

    def raw_for(self, wire: Wire) -> Any:
        """Return the exact form on this wire, or None if there is none or the value was changed."""
        origin = self.origin
        return origin.raw if origin is not None and origin.wire is wire else None

    def fields_for(self, wire: Wire) -> Mapping[str, Any]:
        """Return the unknown fields that may be sent on this wire: only those that came from it."""
        origin = self.origin
        return origin.fields if origin is not None and origin.wire is wire else _NO_FIELDS

    def spelling_for(self, wire: Wire) -> Mapping[str, Any]:
        """Return the known fields as they were written on this wire."""
        origin = self.origin
        return origin.spelling if origin is not None and origin.wire is wire else _NO_FIELDS
