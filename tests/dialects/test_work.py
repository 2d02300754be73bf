"""Rule 68 by counting: twice the text is about twice the work, in lines run and characters searched, not in time."""

from typing import Any

import pytest

from dialects.scanning import scan
from mustcall.core.tools import Tool
from mustcall.dialects import DIALECTS, Dialect, WrittenCall
from mustcall.dialects.dialect import TOOL
from mustcall.dialects.scanning import marks
from support.counting import counted_lines
from support.examples import PROFILE

TOOLS = (
    Tool(name="ping", parameters={"type": "object", "properties": {}}),
    Tool(name="put", parameters={"type": "object", "properties": {"v": {"type": "array"}, "s": {"type": "string"}}}),
)
CALL = '<tool_call>{"name":"ping","arguments":{}}</tool_call>'

HOSTILE = {
    "indented lines": ("So.\n\n", "    x\n"),
    "indented calls": ("So.\n\n", f"    {CALL}\n"),
    "brackets in indented code": ("So.\n\n", "    [\n"),
    "blanks behind a bracket in code": ("So.\n\n    [", " "),
    "comments": ("", f"// {CALL}\n"),
    "quotations": ("", '"<tool_call>\n{}\n</tool_call>"\n'),
    "open quotations": ("", '"<tool_call>\n'),
    "guillemets": ("", "« a "),
    "escaped openers": ("", "&lt;tool_call&gt; "),
    "stray closers": ("", "</tool_call>\n"),
    "stray tokens": ("", "<|tool_call_end|>"),
    "channel tokens": ("", "<|channel|>"),
    "headers that are none": ("", "<|start|>assistant x "),
    "message tokens": ("", "<|message_model|>a b "),
    "late ends": ("", "a\n</think>\n"),
    "calls before late ends": ("", f"{CALL}\n</think>\n"),
    "closers in strings of an array": ('<invoke name="put"><parameter name="v">["', "</parameter></invoke>"),
    "arrays that are none": ('<invoke name="put"><parameter name="v">[', "a,"),
    "python lists": ("<|tool_calls|>[", "{'name': 'ping', 'arguments': {}}, "),
    "bare text": ("<|tool_call>call:put{s:", "ab "),
    "cdata": ('<function name="put"><param name="s">', "<![CDATA[a]]>"),
}


def cut(text: str, size: int) -> list[str]:
    """Return a text in pieces of a size."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def work(text: str, size: int, **options: Any) -> int:
    """Return how many lines a scan runs for a text in pieces of a size."""
    pieces = cut(text, size)
    with counted_lines() as lines:
        scan(pieces, tools=TOOLS, **options)
    return lines.run


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("size", [7, 100_000])
def test_twice_the_text_is_twice_the_work(kind: str, size: int) -> None:
    """Rule 68: hostile text costs no more than its length, in one piece and in small ones."""
    before, unit = HOSTILE[kind]
    small = 120  # of what looks back at each unit before it, half a line for each pair is more than all the rest
    scan(cut(before + unit * small, size), tools=TOOLS)  # what is made once and kept
    assert work(before + unit * 2 * small, size) < 2.5 * work(before + unit * small, size) + 500


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the characters that each search for a marker looks at from here on."""
    looked: list[int] = []
    find = marks.Marks.find

    def counting(self: marks.Marks, text: str, position: int, closed: bool) -> tuple[int, str]:
        at, marker = find(self, text, position, closed)
        looked.append((at if marker or at < len(text) else len(text)) - position + len(marker) + 1)
        return at, marker

    monkeypatch.setattr(marks.Marks, "find", counting)
    return looked


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("size", [5, 100_000])
def test_characters_looked_at(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 68: searches look at each character fed a few times at most, however much there is."""
    looked = counted(monkeypatch)
    before, unit = HOSTILE[kind]
    for count in (200, 800):
        looked.clear()
        text = before + unit * count
        scan(cut(text, size), tools=TOOLS)
        assert sum(looked) <= 8 * len(text) + 100, count


def attacks(dialect: Dialect) -> dict[str, tuple[str, str]]:
    """What a text in a dialect can be spoilt to: what stands before, and what is repeated."""
    call = dialect.render([WrittenCall("put", {"s": "ab"})])
    half = call[: len(call) // 2]
    at = call.find("ab")
    return {
        "calls": ("", f"{call}\n"),
        "halves": ("", half),
        "ends": ("", call[len(call) // 2 :]),
        "openers": ("", dialect.openers[0].marker.replace(TOOL, "put")),
        "a text without an end": (call[:at], "ab "),
        "quotes without an end": (call[:at], '"\\'),
        "brackets without an end": (call[:at], "{[("),
        "its own beginning in a text": (call[:at], call[:at]),
    }


@pytest.mark.parametrize("size", [11, 100_000])
@pytest.mark.parametrize("name", [dialect.name for dialect in DIALECTS])
def test_every_form_costs_its_length(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 68: whatever is done to a text in any form, lines run and characters looked at grow with its length."""
    looked = counted(monkeypatch)
    dialect = next(one for one in DIALECTS if one.name == name)
    for number, (kind, (before, unit)) in enumerate(attacks(dialect).items(), DIALECTS.index(dialect)):
        if PROFILE == "ci" and number % 2 == (size > 11):  # each kind whole in one dialect, in pieces in the next
            continue
        spent: list[int] = []
        count = max(4, 300 // len(unit))
        once = cut(before + unit * count, size)
        scan(once, tools=TOOLS, loose=True, dialects=("auto", name))  # what is made once and kept
        for times in (1, 2):
            looked.clear()
            text = before + unit * count * times
            spent.append(work(text, size, loose=True, dialects=("auto", name)))
            assert sum(looked) <= 8 * len(text) + 100, (kind, times)
        assert spent[1] < 2.5 * spent[0] + 500, kind
