"""Which tools are on offer, and which of them a written name means (rules 59, 106, 142).

Exact names win. Else the readings of `READINGS` are tried in order, each of which removes more of what models put
around a name; the first that fits a tool decides, exactly or apart from case and separators. A reading that fits two
tools ends the search: then no tool is meant. Native, text and translated calls are all read here. With no tools given
every name counts as offered. It decides nothing about arguments.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.text.possessive import at_least_one
from mustcall.core.tools import Tool

__all__ = ["READINGS", "NameReading", "Offered", "fold", "names_markdown"]

_SEPARATORS = str.maketrans("", "", "-_.")
_NAME_SEPARATORS = str.maketrans("", "", "-_./:")
#: Longer ones are nobody's name, and no name has more prefixes: reading any costs no more than reading these.
_LONGEST = 256
_MOST_PREFIXES = 8

_AROUND = " \t\r\n\f\v\xa0\"'`\u201c\u201d\u2018\u2019"
_LEADING_TOKENS = re.compile(at_least_one(r"<[^<>]*>\s*"))
_TRAILING_TOKENS = re.compile(r"<.*\Z", re.DOTALL)
_CALL_NUMBER = re.compile(r":[0-9]{1,9}\Z")
_JOINT = re.compile(r"\.|__|/|:")


class NameReading(msgspec.Struct, frozen=True):
    """One row: the name it is reported by, what is removed, and a name as it was written."""

    name: str
    removes: str
    example: str


#: In the order they are tried. A name that needs several is reported by the last of them.
READINGS = (
    NameReading("spelling", "other case, other or missing `-` `_` `.` `/` `:`", "`ReadFile`"),
    NameReading("surroundings", "blanks and quotes around the name", '` "read_file"`'),
    NameReading(
        "control_tokens", "control tokens before it, and all from the first behind it", r"`read_file<\|channel\|>…`"
    ),
    NameReading("call_number", "the number of the call behind it", "`read_file:0`"),
    NameReading(
        "prefix",
        "an API, MCP or namespace prefix joined by `.` `__` `/` or `:`, as little of it as makes a tool's name",
        "`functions.read_file`, `default_api.read_file`, `mcp__fs__read_file`",
    ),
    NameReading("namespace", "a namespace that is missing, or written into the name", "`fs.read` for `read` of `fs`"),
)


def fold(name: str) -> str:
    """Return the name without what models get wrong: case and separators."""
    return name.casefold().translate(_SEPARATORS)


def _fold_name(name: str) -> str:
    return name.casefold().translate(_NAME_SEPARATORS)


def _candidates(written: str) -> Iterator[tuple[str, str]]:
    """Yield the names that may be meant with the reading that found each, the least removed first."""
    yield written, "spelling"
    bare = written.strip(_AROUND)
    yield bare, "surroundings"
    leading = _LEADING_TOKENS.match(bare)
    clean = _TRAILING_TOKENS.sub("", bare[leading.end() :] if leading is not None else bare).strip(_AROUND)
    if clean != bare:
        yield clean, "control_tokens"
    unnumbered = _CALL_NUMBER.sub("", clean)
    if unnumbered != clean:
        yield unnumbered, "call_number"
    for joint in islice(_JOINT.finditer(unnumbered), _MOST_PREFIXES):
        yield unnumbered[joint.end() :].strip(_AROUND), "prefix"


class Offered:
    """The tools of one request, by name. `anything` is true when none were given.

    A tool is known by a label: its bare name, or `NAMESPACE__NAME` where tools of two namespaces share the bare one.
    """

    __slots__ = ("_folded", "_tools", "anything", "evidence", "names")

    def __init__(self, tools: Iterable[Tool] | None) -> None:
        listed = {(tool.namespace, tool.name): tool for tool in tools or ()}
        counts: dict[str, int] = {}
        for _, name in listed:
            counts[name] = counts.get(name, 0) + 1
        self.anything = tools is None
        #: What shows a name to be called, compiled for those that were found behind markup (`scanning.anchored`).
        self.evidence: dict[str, re.Pattern[str]] = {}
        #: The offered names, in order.
        self.names = tuple(counts)
        self._tools: dict[str, Tool] = {}
        self._folded: dict[str, list[str]] = {}
        for (namespace, name), tool in listed.items():
            label = f"{namespace}__{name}" if namespace and counts[name] > 1 else name
            self._tools[label] = tool
            spellings = {_fold_name(name), _fold_name(f"{namespace}__{name}")} if namespace else {_fold_name(name)}
            for spelling in spellings:
                self._folded.setdefault(spelling, []).append(label)

    def resolve(self, written: str) -> str | None:
        """Return the label of the tool that was meant, None if there is none or more than one."""
        if self.anything or written in self._tools:
            return written or None
        found = self._read(written)
        return found[0] if found is not None else None

    def find(self, written: str, namespace: str | None = None) -> tuple[Tool, str] | None:
        """Return the tool that was meant and the reading that found it, None if there is none or more than one."""
        spelled = f"{namespace}__{written}" if namespace else written
        if spelled in self._tools:
            tool = self._tools[spelled]
            return tool, "namespace" if tool.namespace != namespace else "spelling"
        found = self._read(spelled)
        if found is None:
            return None
        tool, reading = self._tools[found[0]], found[1]
        moved = tool.namespace != namespace and reading in ("spelling", "prefix")
        return tool, "namespace" if moved and tool.namespace else reading

    def _read(self, written: str) -> tuple[str, str] | None:
        if len(written) > _LONGEST:
            return None
        for candidate, reading in _candidates(written):
            if not candidate:
                continue
            if candidate in self._tools:
                return candidate, reading
            matches = self._folded.get(_fold_name(candidate), ())
            if matches:
                return (matches[0], reading) if len(matches) == 1 else None
        return None

    def parameters(self, name: str) -> JsonObject | None:
        """Return the JSON schema of a tool's arguments, if it has one."""
        tool = self._tools.get(name)
        return tool.parameters if tool is not None else None

    def tool(self, label: str) -> Tool | None:
        """Return the tool of a label."""
        return self._tools.get(label)


def names_markdown() -> str:
    """Return the table as Markdown."""
    rows = (f"| `{row.name}` | {row.removes} | {row.example} |" for row in READINGS)
    return "\n".join(("| reading | what is removed or mended | example |", "|---|---|---|", *rows)) + "\n"
