"""Arguments of the built-in tools, held to what the person asked: for models too small to be trusted with them.

Measured with a 0.5B model: asked for "the files in this folder" it lists `/path/to/folder`, asked to read a file it
begins at line 10, asked for 17.5% it computes something else. What such a model passes and the question does not say is
replaced by what the question says, or left out, and each change is reported. Whether a model is that small is decided
elsewhere; no tool is held unless it is given a question.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ToolError
from mustcall.core.origin import JsonObject
from mustcall.policy.words.relevance import words_of
from mustcall.policy.words.signs import files_in
from mustcall.policy.words.sums import sums_in
from mustcall.toolkit.builtin.arithmetic import compute, readable
from mustcall.toolkit.builtin.clock import zone_in
from mustcall.toolkit.builtin.numbers import Number

__all__ = ["hold_arguments"]

_PATH = re.compile(r"(?<![\w.:/$~])(?:~|\$\{?\w+\}?|\.{1,2})?/[\w.$/{}-]*|(?<![\w.])(?:~|\$HOME\b)")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")
_HERE = "."
#: Words for folders that have another name.
_PLACES = frozenset({"home", "temporary", "temp", "root", "parent", "above"})

_Hold = Callable[[JsonObject, str], Mapping[str, object]]


def hold_arguments(tool: str, arguments: JsonObject, question: str, log: AdaptationLog) -> JsonObject:
    """Return the arguments as far as the question bears them out; the same object if nothing is to be done."""
    hold = _HOLDS.get(tool)
    if hold is None or not question.strip():
        return arguments
    held = dict(arguments)
    for name, value in hold(arguments, question).items():
        if value is None:
            held.pop(name, None)
            log.add(AdaptationKind.ARGUMENTS_COERCED, f"{tool}.{name}", "left out: the question does not say it")
        else:
            held[name] = value
            why = "the question names no other" if value == _HERE else "as in the question"
            log.add(AdaptationKind.ARGUMENTS_COERCED, f"{tool}.{name}", f"{value} ({why})")
    return held if held != arguments else arguments


def _list_directory(arguments: JsonObject, question: str) -> Mapping[str, object]:
    path = str(arguments.get("path", _HERE))
    named = tuple(dict.fromkeys(found[0].rstrip(".") or _HERE for found in _PATH.finditer(question)))
    if path in named or (not named and _is_said(path, question)):
        return {}
    if len(named) == 1:
        return {"path": named[0]}
    return {} if named or path == _HERE or not _PLACES.isdisjoint(_words(question)) else {"path": _HERE}


def _read_file(arguments: JsonObject, question: str) -> Mapping[str, object]:
    changes: dict[str, object] = {}
    named = files_in(question)
    path = str(arguments.get("path", ""))
    if len(named) == 1 and path != named[0] and not _same_file(path, named[0]):
        changes["path"] = named[0]
    first = arguments.get("first_line")
    if first not in (None, 1) and str(first) not in _NUMBER.findall(question):
        changes["first_line"] = None
    return changes


def _calculator(arguments: JsonObject, question: str) -> Mapping[str, object]:
    asked = sums_in(question)
    if len(asked) != 1:
        return {}
    expression = str(arguments.get("expression", ""))
    given, wanted = _value(readable(expression)), _value(asked[0])
    return {} if wanted is None or given == wanted else {"expression": asked[0]}


def _current_time(arguments: JsonObject, question: str) -> Mapping[str, object]:
    zone = arguments.get("zone")
    asked = zone_in(question)
    if asked is not None:
        return {} if zone == asked else {"zone": asked}
    said = zone is None or not _words(str(zone)).isdisjoint(_words(question))
    return {} if said else {"zone": None}


def _search_docs(arguments: JsonObject, question: str) -> Mapping[str, object]:
    query = str(arguments.get("query", ""))
    return {} if not words_of(query).isdisjoint(words_of(question)) else {"query": question[:1000]}


_HOLDS: Mapping[str, _Hold] = MappingProxyType(
    {
        "list_directory": _list_directory,
        "read_file": _read_file,
        "calculator": _calculator,
        "current_time": _current_time,
        "search_docs": _search_docs,
    }
)


def _value(expression: str) -> Number | None:
    try:
        return compute(expression)
    except ToolError:
        return None


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))


def _is_said(path: str, question: str) -> bool:
    """Tell whether a question names a folder: by its path, or by the words its last part is made of."""
    last = path.rstrip("/").rpartition("/")[2]
    words = _words(last)
    return bool(words) and words <= _words(question) and not words <= {"folder", "directory", "files", "path"}


def _same_file(path: str, named: str) -> bool:
    """Tell whether a path is the named file with a folder that may be right before it."""
    return path.startswith(("./", "~", "$")) and path.endswith(f"/{named.removeprefix('./')}")
