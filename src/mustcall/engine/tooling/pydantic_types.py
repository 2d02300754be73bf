"""What is pydantic's: its types wherever they stand inside others, its fields, and its messages.

Its objects are known by their attributes and by where their classes come from; pydantic itself is imported only by who
has found one, and asks for it.
"""

import dataclasses
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from mustcall.core.errors import ConfigError

__all__ = ["is_field", "load_pydantic", "misfits", "reason_of", "uses_pydantic"]

_MODULES = frozenset({"pydantic", "pydantic_core", "annotated_types"})
#: Attributes that a class has where pydantic reads and checks its values: models, dataclasses, and types of their own.
_MARKS = (
    "model_json_schema",
    "__pydantic_validator__",
    "__is_pydantic_dataclass__",
    "__get_pydantic_core_schema__",
    "__pydantic_config__",
)
#: Kinds of error whose message a validator of the user's wrote. Other messages may repeat the value.
_OWN_WORDS = frozenset({"value_error", "assertion_error"})
_MOST_MISFITS = 5
_ADVICE_FOR_MODELS = ". Set `arbitrary_types_allowed"
_LONGEST_WORDS = 300


def uses_pydantic(hint: Any) -> bool:
    """Tell whether a type is one of pydantic's, carries its constraints, or holds one that does."""
    return _uses(hint, {})


def is_field(default: Any) -> bool:
    """Tell whether a default is what `pydantic.Field(…)` returns, or a kind of it."""
    return any(each.__name__ == "FieldInfo" and _is_pydantics(each) for each in type(default).__mro__)


def load_pydantic() -> Any:
    """Return the package; raise `ConfigError` where it is not installed."""
    try:
        return import_module("pydantic")
    except ImportError:
        raise ConfigError("constraints of `annotated_types` are read by pydantic: pip install pydantic") from None


def misfits(error: Any, whole: str) -> str:
    """Return where pydantic's `ValidationError` says that values do not fit, never with the values.

    A validator's own message is told; `whole` names the place of an error that is about all.
    """
    found: list[Any] = error.errors(include_input=False, include_url=False)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or whole}: {_words_of(each)}" for each in found[:_MOST_MISFITS])


def reason_of(error: Exception) -> str:
    """Return in one line why a type has no schema: the first line of the message, as far as it is advice for here."""
    first = next(iter(str(error).splitlines()), "").partition(_ADVICE_FOR_MODELS)[0]
    return first[:_LONGEST_WORDS] or type(error).__name__


def _words_of(misfit: Any) -> str:
    own = " ".join(str(misfit["msg"]).split())[:_LONGEST_WORDS]
    return own if misfit["type"] in _OWN_WORDS else str(misfit["type"])


def _uses(hint: Any, seen: dict[int, Any]) -> bool:
    if id(hint) in seen:
        return False
    seen[id(hint)] = hint  # kept, so that no other type gets its id
    if isinstance(hint, type) and any(hasattr(hint, mark) for mark in _MARKS):
        return True
    if get_origin(hint) is Annotated:
        inner, *notes = get_args(hint)
        return any(map(_is_constraint, notes)) or _uses(inner, seen)
    named = getattr(hint, "__supertype__", None) or _aliased(hint)
    inside = (*get_args(hint), *_fields(hint), *(() if named is None else (named,)))
    origin = get_origin(hint)
    return any(_uses(each, seen) for each in inside) or (origin is not None and _uses(origin, seen))


def _is_constraint(note: Any) -> bool:
    return any(map(_is_pydantics, type(note).__mro__)) or hasattr(note, "__get_pydantic_core_schema__")


def _is_pydantics(kind: type[Any]) -> bool:
    return kind.__module__.partition(".")[0] in _MODULES


def _aliased(hint: Any) -> Any:
    """Return what a `type X = …` stands for; None for anything else, and for what cannot be looked up."""
    if type(hint).__name__ != "TypeAliasType":
        return None
    try:
        return hint.__value__
    except NameError:
        return None


def _fields(kind: Any) -> list[Any]:
    """Return the types of a dataclass's, TypedDict's or NamedTuple's fields, and of `Field`s that are defaults."""
    if not isinstance(kind, type):
        return []
    defaults: list[Any] = []
    if dataclasses.is_dataclass(kind):
        defaults = [each.default for each in dataclasses.fields(kind) if is_field(each.default)]
    elif not (issubclass(kind, dict) and hasattr(kind, "__total__")) and not (
        issubclass(kind, tuple) and hasattr(kind, "_fields")
    ):
        return []
    try:
        hints = get_type_hints(kind, include_extras=True)
    except (TypeError, NameError, AttributeError):
        hints = {}
    return [*hints.values(), *(Annotated[Any, default] for default in defaults)]
