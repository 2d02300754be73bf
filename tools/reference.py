"""Writes docs/reference.md: every public name with its signature, its fields and what it says of itself.

Read from the code, so that page and code cannot drift. What is not in `__all__` is not public and not here.
"""

import enum
import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

import mustcall
import mustcall.testing

__all__ = ["reference"]

_HEAD = """\
# Reference

Every public name, written from the code by `make docs`. [library.md](library.md) explains how they go together,
[testing.md](testing.md) what is there for tests.
"""
_FIELD = re.compile(r"    (\w+): ")
_UNSET = inspect.Parameter.empty


def reference() -> str:
    """Return the page."""
    parts = [_HEAD]
    for module in (mustcall, mustcall.testing):
        names = [name for name in module.__all__ if not name.startswith("__") and _is_ours(module, name)]
        parts.append(f"## `{module.__name__}`\n")
        parts.append(" · ".join(f"[{name}](#{_anchor(module, name)})" for name in names) + "\n")
        for name in names:
            parts += _entry(module, name)
    return "\n".join(parts)


def _is_ours(module: types.ModuleType, name: str) -> bool:
    """Tell whether a name is documented under this module: `mustcall.testing` repeats some of `mustcall`'s."""
    return module is mustcall or name not in mustcall.__all__


def _anchor(module: types.ModuleType, name: str) -> str:
    return f"{module.__name__}.{name}".replace(".", "").lower()


def _entry(module: types.ModuleType, name: str) -> Iterator[str]:
    value: Any = getattr(module, name)
    yield f"### `{module.__name__}.{name}`\n"
    match value:
        case type() if issubclass(value, enum.Enum):
            yield _said(value)
            yield "Values: " + ", ".join(f"`{member.value}`" for member in value) + "\n"
        case type():
            yield from _class(name, value)
        case types.FunctionType():
            yield f"```python\n{_signature(name, value)}\n```\n"
            yield _said(value)
        case _:
            yield f"```text\n{name} = {_type(value)}\n```\n"  # no block of Python: the code formatter would rewrap it


def _class(name: str, value: type[Any]) -> Iterator[str]:
    fields = getattr(value, "__struct_fields__", None)
    if fields is None and not issubclass(value, Exception) and not getattr(value, "_is_protocol", False):
        yield f"```python\n{_signature(name, value)}\n```\n"
    yield _said(value)
    if fields:
        yield _fields(value)
    if issubclass(value, Exception):
        if code := getattr(value, "code", ""):
            yield f"`code` is `{code}`.\n"
        return
    for method, member in sorted(vars(value).items()):
        if method.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"- `{method}`: {_lowered(_said(member))}"
        elif inspect.isfunction(member):
            yield f"```python\n{_signature(method, member)}\n```\n"
            yield _said(member)


def _fields(value: type[Any]) -> str:
    lines = ["| field | type | default | |", "|---|---|---|---|"]
    hints, notes = typing.get_type_hints(value), _notes(value)
    for field in msgspec.structs.fields(value):
        default = "" if field.required else f"`{_default(field)}`"
        shown = _type(hints[field.name]).replace("|", "\\|")
        lines.append(f"| `{field.name}` | `{shown}` | {default} | {notes.get(field.name, '')} |")
    return "\n".join(lines) + "\n"


def _notes(value: type[Any]) -> dict[str, str]:
    """Return what the comments over a class's fields say (`#: …`)."""
    found: dict[str, str] = {}
    said: list[str] = []
    for line in inspect.getsource(value).splitlines():
        field = _FIELD.match(line)
        if line.strip().startswith("#:"):
            said.append(line.strip().removeprefix("#:").strip())
        elif field is not None and said:
            found[field[1]] = " ".join(said).replace("|", "\\|")
            said = []
        else:
            said = []
    return found


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return _value(field.default)
    return _value(field.default_factory())


def _value(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return repr(value.value)
    if isinstance(value, msgspec.Struct):
        return f"{type(value).__name__}()"
    if not isinstance(value, dict) and hasattr(value, "keys"):
        return repr({**value})
    return repr(value)


def _signature(name: str, value: Any) -> str:
    """Return a call as a reader would write it: a line, or one for each parameter."""
    called = inspect.signature(value, eval_str=False)
    shown: list[str] = []
    starred = False
    for parameter in called.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        prefix = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        starred = starred or prefix == "*"
        typed = "" if parameter.annotation is _UNSET else f": {_type(parameter.annotation)}"
        default = "" if parameter.default is _UNSET else f" = {_value(parameter.default)}"
        shown.append(f"{prefix}{parameter.name}{typed}{default}")
    returned = called.return_annotation
    after = "" if isinstance(value, type) or returned is _UNSET else f" -> {_type(returned)}"
    before = "async " if inspect.iscoroutinefunction(value) else ""
    line = f"{before}{name}({', '.join(shown)}){after}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {each},\n" for each in shown)
    return f"{before}{name}(\n{inner}){after}"


def _type(hint: Any) -> str:
    """Return a type as it is written, without the modules it comes from."""
    if hint is None or hint is type(None):
        return "None"
    if isinstance(hint, str):
        return hint
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    written = str(hint).replace("typing.", "").replace("collections.abc.", "").replace("NoneType", "None")
    words = [word.rpartition(".")[2] if "mustcall." in word else word for word in _words(written)]
    return "".join(words)


def _words(text: str) -> Iterator[str]:
    word = ""
    for character in text:
        if character.isalnum() or character in "._":
            word += character
            continue
        if word:
            yield word
            word = ""
        yield character
    if word:
        yield word


def _said(value: Any) -> str:
    return inspect.cleandoc(inspect.getdoc(value) or "") + "\n"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
