"""Reading JSON from outside: each value is checked where it is used, and a wrong one is named by its path.

`ShapeError` is private to the wire layer: codecs turn it into `InvalidRequest` or `UpstreamGarbage`. Its path is
built while the error travels up (`at`), so a healthy value pays nothing for it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from mustcall.core.errors import InvalidRequest, UpstreamGarbage
from mustcall.core.origin import JsonObject

__all__ = [
    "FOREIGN_DEMANDS",
    "Anything",
    "Count",
    "Given",
    "ShapeError",
    "as_list",
    "as_object",
    "as_str",
    "at",
    "decode_json",
    "each",
    "is_utf8",
    "list_field",
    "maybe_object",
    "opt_bool",
    "opt_float",
    "opt_int",
    "opt_list",
    "opt_object",
    "opt_str",
    "read",
    "read_outline",
    "reading_reply",
    "reading_request",
    "rest",
    "str_field",
]

T = TypeVar("T")

#: A text that says something.
Given = Annotated[str, msgspec.Meta(min_length=1)]
#: A number of tokens, or a place in a list.
Count = Annotated[int, msgspec.Meta(ge=0)]


class Anything(msgspec.Struct, gc=False):
    """Any object: what is in it is nobody's business here."""


#: How Messages spells a demand. As the type of a choice on another wire each is a mistake that would force nothing.
FOREIGN_DEMANDS = frozenset({"any", "tool"})


class ShapeError(Exception):
    """A value is not of the shape its place demands."""

    def __init__(self, expected: str, value: object = ..., path: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.path = path

    def __str__(self) -> str:
        where = f"`{self.path}`" if self.path else "the body"
        if self.value is ...:
            return f"{where} {self.expected}"
        return f"{where} must be {self.expected}, got {_describe(self.value)}"


def _describe(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value!r:.40}"
        case str():
            return f"the string {value[:40]!r}"
        case list():
            return "an array"
        case _:
            return "an object"


class at:  # noqa: N801  it reads as the preposition it is
    """`with at("messages"):` names the place a `ShapeError` passes through on its way up."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ShapeError):
            if not error.path:
                error.path = self._place
            elif error.path.startswith("["):
                error.path = self._place + error.path
            else:
                error.path = f"{self._place}.{error.path}"


def each(values: Iterable[Any], read: Callable[[Any], T], place: str = "") -> list[T]:
    """Read every element of a list, naming the one that fails."""
    result: list[T] = []
    number = 0
    try:
        for number, value in enumerate(values):  # noqa: B007  the number is read when the loop fails
            result.append(read(value))
    except ShapeError as error:
        with at(f"{place}[{number}]"):
            raise error from None
    return result


class reading_request:  # noqa: N801  as above
    """Turns a `ShapeError` into the caller's error."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ShapeError):
            raise InvalidRequest(str(error), param=error.path or None) from None
        if isinstance(error, RecursionError):
            raise InvalidRequest("the body is nested too deeply") from None


class reading_reply:  # noqa: N801  as above
    """Turns a `ShapeError` into the upstream's error."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ShapeError | RecursionError):
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UpstreamGarbage(f"the upstream's reply cannot be read: {why}") from None


def decode_json(body: bytes) -> Any:
    """Parse JSON; raise `ShapeError` for anything that is not."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise ShapeError("is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ShapeError(f"is not valid JSON: {error}") from None


def read_outline(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """Check a request against an outline, in C and without building it; raise `InvalidRequest` naming the place."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        path = place.strip("`").removeprefix("$").removeprefix(".")
        where = f"`{path}`" if path else "the body"
        raise InvalidRequest(f"{where} cannot be read: {what}", param=path or None) from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}") from None


def as_object(value: Any) -> JsonObject:
    """Return a JSON object."""
    found: JsonObject = value  # JSON objects have string keys; a cast would be a call for each of them
    if not isinstance(value, dict):
        raise ShapeError("an object", value)
    return found


def maybe_object(value: Any) -> JsonObject | None:
    """Return a JSON object, None for anything else."""
    found: JsonObject = value  # as above
    return found if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any]:
    """Return a JSON array."""
    found: list[Any] = value  # elements are checked by their reader
    if not isinstance(value, list):
        raise ShapeError("an array", value)
    return found


def as_str(value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise ShapeError("a string", value)
    return value


def str_field(obj: Mapping[str, Any], key: str) -> str:
    """Return a required string field."""
    value = obj.get(key, ...)
    if value is ...:
        raise ShapeError("is required", path=key)
    if not isinstance(value, str):
        raise ShapeError("a string", value, key)
    return value


def list_field(obj: Mapping[str, Any], key: str) -> list[Any]:
    """Return a required array field."""
    value = obj.get(key, ...)
    found: list[Any] = value  # elements are checked by their reader
    if value is ...:
        raise ShapeError("is required", path=key)
    if not isinstance(value, list):
        raise ShapeError("an array", value, key)
    return found


def opt_str(obj: Mapping[str, Any], key: str) -> str | None:
    """Return a string field, None if absent or null."""
    value = obj.get(key)
    if value is None or isinstance(value, str):
        return value
    raise ShapeError("a string", value, key)


def opt_int(obj: Mapping[str, Any], key: str) -> int | None:
    """Return an integer field (a whole float counts), None if absent or null."""
    value: object = obj.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, float) and value.is_integer():  # pyrefly: ignore[missing-attribute]  no bool comes here
        return int(value)
    raise ShapeError("an integer", value, key)


def opt_float(obj: Mapping[str, Any], key: str) -> float | None:
    """Return a number field, None if absent or null."""
    value = obj.get(key)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise ShapeError("a number", value, key)


def opt_bool(obj: Mapping[str, Any], key: str) -> bool | None:
    """Return a boolean field, None if absent or null."""
    value = obj.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise ShapeError("a boolean", value, key)


def opt_object(obj: Mapping[str, Any], key: str) -> JsonObject | None:
    """Return an object field, None if absent or null."""
    value = obj.get(key)
    found: JsonObject | None = value  # JSON objects have string keys
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ShapeError("an object", value, key)
    return found


def opt_list(obj: Mapping[str, Any], key: str) -> list[Any] | None:
    """Return an array field, None if absent or null."""
    value = obj.get(key)
    found: list[Any] | None = value  # elements are checked by their reader
    if value is None:
        return None
    if not isinstance(value, list):
        raise ShapeError("an array", value, key)
    return found


def rest(obj: JsonObject, known: frozenset[str]) -> JsonObject:
    """Return the fields a codec has no word for."""
    if obj.keys() <= known:
        return {}
    return {key: value for key, value in obj.items() if key not in known}


def read(decoder: msgspec.json.Decoder[T], data: bytes | memoryview | msgspec.Raw) -> T | None:
    """Return what the bytes are, None if they are not that."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def is_utf8(body: bytes) -> bool:
    """Tell whether every byte is text: what no field asks for is not looked at by a typed decoder."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
