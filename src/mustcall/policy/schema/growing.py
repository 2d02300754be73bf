"""Arguments that are checked while they are still being written (rule 139): the first wrong byte is told at once.

A reader of JSON that takes text in any pieces and follows the schema as it goes: a key that is not allowed, a value of
another type, a text that is none of an enum, a byte that cannot stand where it stands. Only words of JSON Schema that
are certain on the way are read (`type`, `properties`, `additionalProperties`, `required`, `items`, `enum`); a schema
that says more says it to the whole check at the end, which is the definition. So what is refused here is never valid
there; what passes here may still be refused there.

Cost: linear in the text, whatever its pieces; of texts without an `enum` nothing is kept.
"""

import re
from typing import Any, cast

from mustcall.core.origin import JsonObject
from mustcall.policy.schema.subschemas import MAX_DEPTH

__all__ = ["Growing"]

#: Up to the end of a string's plain characters.
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_BLANKS = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"true": "boolean", "false": "boolean", "null": "null"}
#: Words beside which `properties` and `type` do not decide alone.
_OPEN = frozenset({"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "nullable"})
_DEEPEST = MAX_DEPTH
#: Keys and texts of an enum that are longer are not looked at on the way.
_LONGEST = 1024


class _Level:
    """An object or an array that is open, and what may stand in it."""

    __slots__ = ("is_object", "item", "properties", "sealed", "seen", "wanted")

    def __init__(self, schema: JsonObject | None, *, is_object: bool) -> None:
        self.is_object = is_object
        schema = schema or {}
        self.properties = _object(schema.get("properties")) or {}
        self.sealed = is_object and schema.get("additionalProperties") is False
        self.wanted: set[str] = set(map(str, _list(schema.get("required")))) if is_object else set()
        self.item = _known(schema.get("items"))
        self.seen: set[str] = set()

    def opens(self, key: str) -> bool:
        """Take a key; tell whether it may stand here, once."""
        if (self.sealed and key not in self.properties) or key in self.seen:
            return False
        self.seen.add(key)
        return True


class Growing:
    """Reads the arguments of one call. `feed` tells whether they may still become valid; once not, never again."""

    __slots__ = ("_enum", "_expects", "_held", "_levels", "_schema", "_string", "done", "failed")

    def __init__(self, schema: JsonObject | None) -> None:
        self._levels: list[_Level] = []
        #: What may come next: a value, a key, a key or the end, a colon, a comma or the end, a value or the end.
        self._expects = "value"
        #: The schema of the value that is next.
        self._schema = _known(schema)
        #: What is kept of a string or a scalar that is being read; the characters behind a backslash.
        self._held: list[str] | None = None
        self._string: str | None = None
        self._enum: frozenset[str] | None = None
        self.failed = False
        #: Whether a whole value was read.
        self.done = False

    def feed(self, text: str) -> bool:
        """Take a piece; return False if no text that begins like this is valid."""
        at = 0
        while at < len(text) and not self.failed:
            at = self._in_string(text, at) if self._string is not None else self._between(text, at)
        return not self.failed

    def _fail(self, at: int) -> int:
        self.failed = True
        return at

    def _between(self, text: str, at: int) -> int:
        """Read structure, and scalars up to where they end."""
        if self._held is not None:
            return self._in_scalar(text, at)
        match = _BLANKS.match(text, at)
        at = match.end() if match is not None else at
        if at >= len(text):
            return at
        sign = text[at]
        if self.done:
            return self._fail(at)
        match self._expects:
            case "colon":
                self._expects = "value"
                return at + 1 if sign == ":" else self._fail(at)
            case "comma" if sign == ",":
                level = self._levels[-1]
                self._expects, self._schema = ("key", None) if level.is_object else ("value", level.item)
                return at + 1
            case "comma" | "key or end" | "value or end" if sign in "]}":
                return self._close(sign, at)
            case "key" | "key or end":
                return self._begin(None, at) if sign == '"' else self._fail(at)
            case "value" | "value or end":
                return self._value(sign, at)
            case _:
                return self._fail(at)

    def _value(self, sign: str, at: int) -> int:
        schema = self._schema
        if sign in "{[":
            is_object = sign == "{"
            if len(self._levels) >= _DEEPEST or not _takes(schema, "object" if is_object else "array"):
                return self._fail(at)
            level = _Level(schema, is_object=is_object)
            self._levels.append(level)
            self._expects = "key or end" if is_object else "value or end"
            self._schema = level.item
            return at + 1
        if sign == '"':
            enum = _list(schema.get("enum")) if schema is not None else []
            self._enum = frozenset(one for one in enum if isinstance(one, str)) if enum else None
            return self._begin(self._enum, at) if _takes(schema, "string") else self._fail(at)
        self._held = []
        return self._in_scalar(text=sign, at=0) + at if _SCALAR.fullmatch(sign) else self._fail(at)

    def _begin(self, enum: frozenset[str] | None, at: int) -> int:
        """Begin a string: a key, which is kept, or a value, which is kept where an enum has to know it."""
        self._string = ""
        self._held = [] if enum is not None or self._expects.startswith("key") else None
        return at + 1

    def _in_string(self, text: str, at: int) -> int:
        held = self._held
        if self._string:  # behind a backslash
            self._string += text[at]
            if len(self._string) == (6 if self._string[1] == "u" else 2):
                self._string = ""
            elif self._string[1] not in 'u"\\/bfnrt':
                return self._fail(at)
            if held is not None:
                held.append(text[at])
            return at + 1
        match = _PLAIN.match(text, at)
        end = match.end() if match is not None else at
        if held is not None:
            held.append(text[at:end])
            begun = "".join(held)
            if not self._may_become(begun):
                return self._fail(at)
            # One that is too long is like one with escapes: which it is shows in the whole check.
            held[:] = (begun,) if len(begun) <= _LONGEST else ("\\",)
        if end == len(text):
            return end
        if text[end] == "\\":
            self._string = "\\"
            if held is not None:
                held.append("\\")
            return end + 1
        return self._end_string(end + 1) if text[end] == '"' else self._fail(end)

    def _may_become(self, begun: str) -> bool:
        """Tell whether a text that begins like this may be one of the enum; with escapes that is not asked."""
        if self._enum is None or self._expects.startswith("key") or "\\" in begun or len(begun) > _LONGEST:
            return True
        return any(one.startswith(begun) for one in self._enum)

    def _end_string(self, at: int) -> int:
        read = "".join(self._held) if self._held is not None else ""
        escaped = "\\" in read
        self._string = self._held = None
        if self._expects.startswith("key"):
            level = self._levels[-1]
            self._expects = "colon"
            self._schema = None
            if escaped:
                level.wanted.clear()  # which key it is shows in the whole check
            else:
                self._schema = _known(level.properties.get(read))
            return at if escaped or level.opens(read) else self._fail(at)
        wrong = self._enum is not None and not escaped and read not in self._enum
        self._enum = None
        return self._fail(at) if wrong else self._end_value(at)

    def _in_scalar(self, text: str, at: int) -> int:
        """Read a number or a word; it ends where something else stands."""
        held = self._held
        assert held is not None, "a scalar is being read"
        match = _SCALAR.match(text, at)
        end = match.end() if match is not None else at
        held.append(text[at:end])
        if end == len(text):
            return end
        read = "".join(held)
        self._held = None
        kind = _WORDS.get(read) or ("number" if _NUMBER.fullmatch(read) else "")
        if not kind or not _takes(self._schema, kind):
            return self._fail(end)
        return self._end_value(end)

    def _end_value(self, at: int) -> int:
        self._schema = None
        self._expects = "comma"
        self.done = not self._levels
        return at

    def _close(self, sign: str, at: int) -> int:
        level = self._levels.pop() if self._levels else None
        if level is None or level.is_object != (sign == "}") or not level.wanted <= level.seen:
            return self._fail(at)
        return self._end_value(at + 1)


def _takes(schema: JsonObject | None, kind: str) -> bool:
    """Tell whether a schema takes values of a kind."""
    named = schema.get("type") if schema is not None else None
    kinds = [named] if isinstance(named, str) else _list(named)
    # 1.0 and 1e3 are integers too, which the whole check knows.
    return not kinds or kind in kinds or (kind == "number" and "integer" in kinds)


def _known(schema: Any) -> JsonObject | None:
    """Return a schema if what it says is certain on the way; None for any other."""
    found = _object(schema)
    return None if found is None or not _OPEN.isdisjoint(found) else found


def _object(value: Any) -> JsonObject | None:
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
