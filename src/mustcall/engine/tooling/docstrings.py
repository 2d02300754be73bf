"""What a docstring says of a function and of its parameters, in the three styles people write.

Google (`Args:`), NumPy (`Parameters` underlined) and Sphinx (`:param x:`). What is none of them belongs to the
description; nothing here fails.
"""

import inspect
import re

import msgspec

__all__ = ["Described", "read_docstring"]

_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters|Params):\s*\Z")
_SECTION = re.compile(
    r"(?:Args|Arguments|Parameters|Params|Returns?|Yields?|Raises|Examples?|Notes?|Attributes|See Also|Warnings?):\s*\Z"
)
_UNDERLINE = re.compile(r"-{3,}\s*\Z")
_GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)\Z", re.DOTALL)
_NUMPY_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?\Z")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)\Z", re.DOTALL)
_SPHINX_FIELD = re.compile(r":\w+[^:]*:")


class Described(msgspec.Struct, frozen=True):
    """A function in its author's words."""

    description: str = ""
    parameters: dict[str, str] = {}


def read_docstring(docstring: str | None) -> Described:
    """Read a docstring."""
    if not docstring:
        return Described()
    lines = inspect.cleandoc(docstring).splitlines()
    kept: list[str] = []
    parameters: dict[str, str] = {}
    at = 0
    while at < len(lines):
        line = lines[at]
        after = lines[at + 1] if at + 1 < len(lines) else ""
        if _SECTION.match(line):
            body, at = _indented(lines, at + 1)
            if _GOOGLE.match(line):
                parameters |= _items(body, _GOOGLE_ITEM)
        elif line.strip() and _UNDERLINE.match(after.strip()):
            body, at = _underlined(lines, at + 2)
            if line.strip() in ("Parameters", "Other Parameters", "Arguments"):
                parameters |= _numpy_items(body)
        elif _SPHINX_FIELD.match(line):
            more, end = _indented(lines, at + 1)
            found = _SPHINX.match(" ".join([line, *(extra.strip() for extra in more)]))
            if found is not None:
                parameters[found[1]] = found[2].strip()
            at = end
        else:
            kept.append(line)
            at += 1
    return Described("\n".join(kept).strip(), {name: text for name, text in parameters.items() if text})


def _indented(lines: list[str], start: int) -> tuple[list[str], int]:
    """Return the indented lines from here on, and where they end."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith((" ", "\t"))):
        end += 1
    return lines[start:end], end


def _underlined(lines: list[str], start: int) -> tuple[list[str], int]:
    """Return the lines up to the next underlined heading."""
    end = start
    while end < len(lines) and not (end + 1 < len(lines) and _UNDERLINE.match(lines[end + 1].strip())):
        end += 1
    return lines[start:end], end


def _items(body: list[str], pattern: re.Pattern[str]) -> dict[str, str]:
    """Return the entries of a section: each begins at the least indentation and goes on where it is deeper."""
    filled = [line for line in body if line.strip()]
    if not filled:
        return {}
    margin = min(len(line) - len(line.lstrip()) for line in filled)
    entries: list[str] = []
    for line in filled:
        if len(line) - len(line.lstrip()) == margin or not entries:
            entries.append(line.strip())
        else:
            entries[-1] += f" {line.strip()}"
    return {found[1]: found[2].strip() for entry in entries if (found := pattern.match(entry)) is not None}


def _numpy_items(body: list[str]) -> dict[str, str]:
    items: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in body:
        if line.startswith((" ", "\t")):
            if current is not None:
                current.append(line.strip())
        elif (found := _NUMPY_ITEM.match(line.strip())) is not None:
            current = items.setdefault(found[1], [])
    return {name: " ".join(texts).strip() for name, texts in items.items()}
