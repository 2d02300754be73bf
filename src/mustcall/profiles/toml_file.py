"""Puts a measured profile into the text of a mustcall.toml; everything else in it stays byte for byte.

Only what TOML itself tells is known here: where tables begin. The text that comes out is read again and compared with
what went in; a file that cannot be changed that way is refused and stays as it is. Nothing here touches a file.
"""

import tomllib
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.profiles.measured import MeasuredProfile, read_measured

__all__ = ["with_measured"]

_NAME = "measured"
_QUOTES = ('"""', "'''", '"', "'")


def with_measured(text: str, profile: MeasuredProfile, where: str = "mustcall.toml") -> str:
    """Return the text with this profile in a `[[measured]]` table, in place of the one of the same model if any.

    Raise `ConfigError` for a text that is no TOML, or that writes its measured profiles in another form.
    """
    before = _read(text, where)
    block = _block(profile, "\r\n" if "\r\n" in text else "\n")
    known: Any = before.get(_NAME, [])
    place = next((span for span, one in _tables(text, known, where) if one.key == profile.key), None)
    if place is None:
        end = "" if not text or text.endswith("\n") else block[-1:]
        gap = "" if not text else block.splitlines(keepends=True)[0][len("[[measured]]") :]
        made = f"{text}{end}{gap}{block}"
    else:
        made = text[: place[0]] + block + text[place[1] :]
    _check(made, before, profile, where)
    return made


def _read(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not valid TOML: {error}; correct it, then write the profile again") from None


def _check(made: str, before: dict[str, Any], profile: MeasuredProfile, where: str) -> None:
    """Raise unless the new text says what the old one said, and what was measured of this model."""
    try:
        after = tomllib.loads(made)
        others = [one for one in read_measured(before.get(_NAME, []), where) if one.key != profile.key]
        kept = [one for one in read_measured(after.get(_NAME, []), where) if one.key != profile.key]
        ours = [one for one in read_measured(after.get(_NAME, []), where) if one.key == profile.key]
        same = {**before, _NAME: None} == {**after, _NAME: None} and kept == others and ours == [profile]
    except (tomllib.TOMLDecodeError, ConfigError):
        same = False
    if not same:
        raise ConfigError(
            f"{where}: the profile of {profile.model!r} cannot be put into this file; write measured profiles as "
            "[[measured]] tables, each once, or keep them in the ledger"
        )


def _block(profile: MeasuredProfile, newline: str) -> str:
    document = profile.document()
    facts: dict[str, Any] = document.pop("facts")
    lines = ["[[measured]]", *(f"{name} = {_value(value)}" for name, value in document.items())]
    lines += ["[measured.facts]", *(f"{name} = {_value(fact)}" for name, fact in facts.items())]
    return newline.join(lines) + newline


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else _value(name)


def _value(value: Any) -> str:
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            inner = ", ".join(f"{_key(name)} = {_value(one)}" for name, one in items)
            return f"{{ {inner} }}" if inner else "{}"
        case list() | tuple():
            return f"[{', '.join(_value(one) for one in cast('list[Any]', value))}]"
        case None:
            raise ConfigError("a measured value that is null cannot be written to TOML; leave the fact out")
        case _:  # JSON writes these as TOML does, but for one control character
            return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")


# --- where tables are ---------------------------------------------------------------------------------------------


def _tables(text: str, known: Any, where: str) -> Iterator[tuple[tuple[int, int], MeasuredProfile]]:
    """Yield where each `[[measured]]` table stands and what it says, from its header to its last line."""
    if not isinstance(known, list):
        raise ConfigError(f"{where}: measured must be tables with two brackets, [[measured]]")
    headers = list(_headers(text))
    spans: list[tuple[int, int]] = []
    for number, (at, name, many) in enumerate(headers):
        if name != [_NAME] or not many:
            continue
        after = next(
            (place for place, other, _ in headers[number + 1 :] if other[0] != _NAME or other == [_NAME]), None
        )
        spans.append((at, _end(text, at, len(text) if after is None else after)))
    profiles = read_measured(cast("list[Any]", known), where)
    if len(spans) == len(profiles):
        yield from zip(spans, profiles, strict=True)


def _end(text: str, start: int, end: int) -> int:
    """Return where a table ends: comments and blank lines before the next one belong to that."""
    lines = text[start:end].splitlines(keepends=True)
    while lines and (not lines[-1].strip() or lines[-1].lstrip().startswith("#")):
        end -= len(lines.pop())
    return end


def _headers(text: str) -> Iterator[tuple[int, list[str], bool]]:
    """Yield the place, the dotted name and the double bracket of each table header."""
    for start, line in _logical_lines(text):
        stripped = line.strip()
        if stripped.startswith("["):
            many = stripped.startswith("[[")
            name = stripped.partition("#")[0].strip().strip("[]")
            yield start, [part.strip().strip("\"'") for part in name.split(".")], many


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield what TOML takes for one line, a value over several lines included, and where it begins."""
    at = start = depth = 0
    valued = False
    while at < len(text):
        char = text[at]
        quote = next((one for one in _QUOTES if text.startswith(one, at)), None)
        if quote is not None:
            at = _string_end(text, at, quote)
            continue
        if char == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        if char == "=":
            valued = True
        elif valued and char in "[{":
            depth += 1
        elif valued and char in "]}":
            depth -= 1
        at += 1
        if char == "\n" and depth == 0:
            yield start, text[start:at]
            start, valued = at, False
    yield start, text[start:]


def _string_end(text: str, at: int, quote: str) -> int:
    """Return where a string ends that begins here."""
    at += len(quote)
    while at < len(text):
        if text[at] == "\\" and quote[0] == '"':
            at += 2
        elif text.startswith(quote, at):
            at += len(quote)
            while len(quote) == 3 and at < len(text) and text[at] == quote[0]:  # quotes right before the end
                at += 1
            return at
        else:
            at += 1
    return at
