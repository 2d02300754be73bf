"""The public API as text, and what changed in it for people who use it.

`tools/api.txt` is the API of the latest release, in the form of a Python stub: every name that can be imported from
`mustcall`, with its fields and signatures. `breaking` compares it with today's sources by griffe; nothing is imported
or run. A change that breaks code has to be named under `### Breaking` in the changelog's first section
(`tests/tools/test_api.py`). `python tools/api.py --write` makes today's API the one to compare with, at a release.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

__all__ = ["BASELINE", "breaking", "named_breaks", "render"]

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "tools" / "api.txt"


def render(source: Path = ROOT / "src") -> str:
    """Return the public API of a source tree as a stub."""
    homes = _homes(source)
    parts: list[str] = []
    for home, names in sorted(homes.items()):
        folder = source.joinpath(*home.split("."))
        paths = sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
        modules = [griffe.visit(home, filepath=path, code=path.read_text(encoding="utf-8")) for path in paths]
        found = {name: each for module in modules for name, each in module.members.items() if not each.is_alias}
        parts += [block for name in names if (block := "\n".join(_object(found[name], "")))]
    return "\n\n".join(sorted(parts)) + "\n"


def breaking(old: str, new: str) -> list[tuple[str, str]]:
    """Return what breaks code between two stubs: the name of the object, and what happened to it."""
    before, after = (griffe.visit("mustcall", filepath=Path("mustcall.pyi"), code=text) for text in (old, new))
    found = {
        (breakage.obj.path.removeprefix("mustcall."), f"{breakage.kind.value}: {_plain(breakage)}")
        for breakage in griffe.find_breaking_changes(before, after)
    }
    return sorted(found)


def named_breaks(changelog: str) -> set[str]:
    """Return the names under `### Breaking` in the first section of a changelog."""
    first = re.split(r"^## ", changelog, flags=re.MULTILINE)[1]
    section = re.search(r"^### Breaking\n(.*?)(?=^### |\Z)", first, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([\w.]+)(?:\([^`]*\))?`", section[1])) if section is not None else set()


def _homes(source: Path) -> dict[str, tuple[str, ...]]:
    """Return where each public name lives, as the package itself says it."""
    tree = ast.parse((source / "mustcall" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_HOMES":
            homes: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return homes
    raise SystemExit("mustcall/__init__.py has no _HOMES")


def _object(given: Any, indent: str) -> Iterator[str]:
    if given.is_class:
        bases = ", ".join(str(base) for base in given.bases)
        yield f"{indent}class {given.name}({bases}):" if bases else f"{indent}class {given.name}:"
        members = [each for each in given.members.values() if _is_public(each)]
        if any(str(base).rpartition(".")[2] in _STRUCTS for base in given.bases) and (made := _made_of(members)):
            yield f"{indent}    def __init__({made}) -> None: ..."
        yield from (line for each in members for line in _object(each, f"{indent}    "))
        if not members:
            yield f"{indent}    ..."
    elif given.is_function:
        yield from (f"{indent}@{each.value}" for each in given.decorators if str(each.value) in _KEPT)
        returns = f" -> {given.returns}" if given.returns is not None else ""
        started = "async " if "async" in given.labels else ""
        yield f"{indent}{started}def {given.name}({_parameters(given.parameters)}){returns}: ..."
    elif "property" in given.labels:
        yield f"{indent}@property"
        yield f"{indent}def {given.name}(self) -> {given.annotation}: ..."
    else:
        kind = f": {given.annotation}" if given.annotation is not None else ""
        yield (
            f"{indent}{given.name}{kind} = {given.value}" if given.value is not None else f"{indent}{given.name}{kind}"
        )


#: The decorators that change how something is called.
_KEPT = ("classmethod", "staticmethod")


#: The bases of classes whose fields are what they are made of.
_STRUCTS = ("Struct", "Value")


def _made_of(members: list[Any]) -> str:
    """Return what a struct is made of, as parameters: to take a field away breaks those who make one."""
    fields = [each for each in members if each.is_attribute and "property" not in each.labels and each.annotation]
    written = [
        f"{each.name}: {each.annotation}" + (f" = {each.value}" if each.value is not None else "") for each in fields
    ]
    return ", ".join(["self", "*", *written]) if written else ""


def _is_public(member: Any) -> bool:
    if member.is_alias or (not member.is_function and not member.is_class and not member.is_attribute):
        return False
    if "instance-attribute" in member.labels and member.annotation is None and member.value is None:
        return False
    return member.name == "__init__" or not member.name.startswith("_")


def _parameters(parameters: Any) -> str:
    written: list[str] = []
    starred = False
    previous = None
    for each in parameters:
        kind = each.kind.value
        if previous == "positional-only" and kind != "positional-only":
            written.append("/")
        if kind == "keyword-only" and not starred:
            written.append("*")
            starred = True
        mark = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        starred = starred or mark == "*"
        hint = f": {each.annotation}" if each.annotation is not None else ""
        default = f" = {each.default}" if each.default is not None and not mark else ""
        written.append(f"{mark}{each.name}{hint}{default}")
        previous = kind
    if previous == "positional-only":
        written.append("/")
    return ", ".join(written)


def _plain(breakage: Any) -> str:
    told = breakage.as_dict()
    return f"{told.get('old_value')} → {told.get('new_value')}"


if __name__ == "__main__":
    source = Path(sys.argv[sys.argv.index("--from") + 1]) if "--from" in sys.argv else ROOT / "src"
    if "--write" in sys.argv:
        BASELINE.write_text(render(source), encoding="utf-8")
    else:
        for name, what in breaking(BASELINE.read_text(encoding="utf-8"), render(source)):
            print(f"{name}: {what}")
