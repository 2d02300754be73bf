"""What is done to arguments that do not fit, in order: the one table of rule 141, printed into docs/repairs.md.

Read from top to bottom. Rows of one stage may apply together; the next stage begins where those before it did not
make the arguments fit. Each row's name is what `x-mustcall-adaptations` says. It carries nothing out: reading is
`leniency`'s and `arguments`', coercion `mending`'s, the retry `remedy`'s.
"""

from enum import StrEnum

import msgspec

from mustcall.core.adaptation import AdaptationKind

__all__ = ["KINDS", "TABLE", "Repair", "RepairMade", "Stage", "markdown"]


class Stage(StrEnum):
    """The order of rule 141."""

    READ = "a"
    COERCE = "b"
    RETRY = "c"
    SALVAGE = "d"
    ERROR = "e"


class Repair(msgspec.Struct, frozen=True):
    """One row: its name, what it reads, when it applies, and what is written and delivered."""

    stage: Stage
    name: str
    reads: str
    when: str
    written: str = ""
    delivered: str = ""


class RepairMade(msgspec.Struct, frozen=True):
    """One repair that was made: the row's name, and what was done in words that do not repeat the text."""

    repair: str
    words: str


_UNREAD = "the text is not JSON, and has one reading"
_MISFIT = "the object does not fit its schema, and does so afterwards"

TABLE: tuple[Repair, ...] = (
    Repair(
        Stage.READ,
        "snapshots",
        "complete objects in a row, of which each repeats the one before or adds fields to it: the last counts",
        "the text is several JSON objects",
        '{"city": "Rome"}{"city": "Rome", "days": 3}',
        '{"city": "Rome", "days": 3}',
    ),
    Repair(
        Stage.READ,
        "fence",
        "a code fence around the object",
        _UNREAD,
        '```json\n{"city": "Rome"}\n```',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.READ,
        "trailing_comma",
        "a comma before a closing bracket",
        _UNREAD,
        '{"city": "Rome",}',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.READ,
        "comment",
        "comments that begin with `//` or `#`, or stand between `/*` and `*/`",
        _UNREAD,
        '{"city": "Rome" /* or Oslo */}',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.READ,
        "single_quotes",
        "strings in single quotes, and `\\'` in any string",
        _UNREAD,
        "{'city': 'Rome'}",
        '{"city":"Rome"}',
    ),
    Repair(Stage.READ, "bare_key", "a key without quotes", _UNREAD, '{city: "Rome"}', '{"city":"Rome"}'),
    Repair(
        Stage.READ,
        "control_character",
        "line breaks, tabs and other control characters as they are in a string",
        _UNREAD,
        '{"city": "Ro\nme"}',
        '{"city":"Ro\\nme"}',
    ),
    Repair(
        Stage.READ,
        "python_constant",
        "`True`, `False` and `None`",
        _UNREAD,
        '{"city": "Rome", "direct": True}',
        '{"city":"Rome","direct":true}',
    ),
    Repair(
        Stage.READ,
        "wrapper",
        "an object whose only field is `arguments`, `parameters` or `args`, alone or beside the tool's `name`",
        f"{_MISFIT}; no such field is declared",
        '{"arguments": {"city": "Rome"}}',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.READ,
        "tool_name_key",
        "an object whose only field is the tool's own name",
        f"{_MISFIT}; no such field is declared",
        '{"plan": {"city": "Rome"}}',
        '{"city":"Rome"}',
    ),
    Repair(Stage.COERCE, "empty", 'no text, blanks, `null` or `""`', "the schema requires nothing", "null", "{}"),
    Repair(
        Stage.COERCE,
        "json_string",
        "a JSON string that holds the object",
        "the text is a JSON string, unwrapped once",
        '"{\\"city\\": \\"Rome\\"}"',
        '{"city": "Rome"}',
    ),
    Repair(
        Stage.COERCE,
        "key_spelling",
        "a field in other case or separators",
        "one declared field differs in nothing else",
        '{"City": "Rome"}',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.COERCE,
        "string_as_type",
        "a string that spells a value of the declared type",
        _MISFIT,
        '{"city": "Rome", "days": "3"}',
        '{"city":"Rome","days":3}',
    ),
    Repair(
        Stage.COERCE,
        "list_of_one",
        "a list of one item where a single value of the item's type is declared",
        _MISFIT,
        '{"city": ["Rome"]}',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.COERCE,
        "null_left_out",
        "`null` in an optional field that does not take it",
        _MISFIT,
        '{"city": "Rome", "days": null}',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.RETRY,
        "retry",
        "nothing; the turn is dropped, the problem is named in one line and the call asked for again",
        "the limit `bad_arguments` (1) is not spent and nothing of a call was released",
    ),
    Repair(
        Stage.SALVAGE,
        "undeclared_dropped",
        "fields that the schema does not declare: they are left out",
        f"`additionalProperties` is false; {_MISFIT}; `salvage_arguments` is on",
        '{"city": "Rome", "mood": "good"}',
        '{"city":"Rome"}',
    ),
    Repair(
        Stage.SALVAGE,
        "brackets_closed",
        "closing brackets that are missing at the end: they are added",
        "every string is closed, the last value is whole, the reply did not end by length, and the object then fits; "
        "`salvage_arguments` is on",
        '{"city": "Rome"',
        '{"city":"Rome"}',
    ),
    Repair(Stage.ERROR, "bad_arguments", "nothing", "none of the above made the arguments fit"),
)

_KIND_OF_STAGE = {
    Stage.READ: AdaptationKind.ARGUMENTS_READ,
    Stage.COERCE: AdaptationKind.ARGUMENTS_COERCED,
    Stage.SALVAGE: AdaptationKind.ARGUMENTS_SALVAGED,
}
#: How each repair is reported.
KINDS = {row.name: _KIND_OF_STAGE[row.stage] for row in TABLE if row.stage in _KIND_OF_STAGE}


def markdown() -> str:
    """Return the table as Markdown."""
    lines = ["| stage | repair | what it reads | when | written | delivered |", "|---|---|---|---|---|---|"]
    for row in TABLE:
        cells = (row.reads, row.when, _code(row.written), _code(row.delivered))
        lines.append(f"| {row.stage} | `{row.name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    ticks = "````" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}".replace("\n", "⏎") if text else ""
