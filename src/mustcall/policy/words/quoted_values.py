"""A tool's schema in which free text is something the message says: arguments are chosen, not invented.

For models too small to write arguments (a profile fact): a 135M model held to the schema alone invents most of them;
held to the message's own words it rarely can. Numbers are those of the message where it has any. A parameter whose name
says that it is a file or a folder takes what looks like one: "list files in /tmp" is about `/tmp`, not about `files`.
What the schema itself narrows (`enum`, `pattern`, `format`) stays, and the caller's own schema is what the call is
checked by.

Cost: at most `_MOST` phrases of at most `_LONGEST` words, whatever the message.
"""

import re

from mustcall.core.origin import JsonObject
from mustcall.policy.schema.subschemas import Path, rewrite

__all__ = ["phrases_of", "quote_schema"]

_LONGEST = 8
_MOST = 300
_MOST_WORDS = 120

_EDGES = frozenset(
    """
    a an the in on of to for from at is are was be am do does did what which who how why when where me my i you
    your it its and or with into by as that this there please tell show give right now can could
    """.split()  # noqa: SIM905  a hundred quoted words are harder to read
)
_OUTER = "\"'“”‘’«»`"  # noqa: RUF001  these are the quotation marks people write
_END = ".,;:!?…"
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.]*\d)")
#: Parameters that hold a place in a file system, by their names; and what such a place looks like: it has a slash, or
#: begins like a path, or ends like a file's name.
_PLACES = frozenset({"path", "file", "folder", "directory", "dir", "filename", "filepath", "file_path", "file_name"})
_PLACE = re.compile(r"(?:[~$.][\w./\\{]|.*[/\\]|.*\w\.[A-Za-z]\w{0,7}$)\S*")
_NARROWED = frozenset({"enum", "const", "pattern", "format", "$ref", "anyOf", "oneOf", "allOf"})


def phrases_of(text: str) -> tuple[str, ...]:
    """Return the phrases of a message that may be arguments: runs of words that neither begin nor end in a small word.

    None for a message that is too long for one of its phrases to be an argument by itself.
    """
    words = text.split()
    if len(words) > _MOST_WORDS:
        return ()
    small = [word.strip(_END + _OUTER).lower() in _EDGES for word in words]
    found: dict[str, None] = {}
    for length in range(1, min(_LONGEST, len(words)) + 1):  # the short ones first: they are the likely ones
        for start in range(len(words) - length + 1):
            if small[start] or small[start + length - 1]:
                continue
            phrase = " ".join(words[start : start + length]).strip(_OUTER).rstrip(_END).strip(_OUTER)
            if phrase and phrase.count("(") == phrase.count(")"):
                found[phrase] = None
    return tuple(found)[:_MOST]


def quote_schema(schema: JsonObject, *texts: str) -> JsonObject:
    """Return the schema with its free texts and numbers held to what these messages say, the likeliest first.

    It is the same object if they have nothing to be held to.
    """
    phrases = tuple(dict.fromkeys(phrase for text in texts for phrase in phrases_of(text)))[:_MOST]
    places = tuple(phrase for phrase in phrases if " " not in phrase and _PLACE.fullmatch(phrase))
    written = dict.fromkeys(number for text in texts for number in _NUMBER.findall(text))
    numbers = [int(number) for number in written if len(number) < 16]

    def quoted(node: JsonObject, path: Path) -> JsonObject:
        if not _NARROWED.isdisjoint(node):
            return node
        match node.get("type"):
            case "string":
                said = places if places and path and str(path[-1]).lower() in _PLACES else phrases
                allowed: list[str] | list[int] = [phrase for phrase in said if _fits(node, len(phrase), "Length")]
            case "integer" | "number":
                allowed = [number for number in numbers if _fits(node, number, "imum")]
            case _:
                return node
        return {**node, "enum": allowed} if allowed else node

    return rewrite(schema, quoted) if phrases or numbers else schema


def _fits(node: JsonObject, value: int, ending: str) -> bool:
    low, high = node.get(f"min{ending}"), node.get(f"max{ending}")
    if isinstance(low, int | float) and value < low:
        return False
    return not (isinstance(high, int | float) and value > high)
