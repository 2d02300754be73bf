"""Hostile text is bounded: markup counts towards one limit, and nothing depends on how the text was cut."""

import pytest

from dialects.scanning import cuts, reasons_of, scan, text_of
from mustcall.core.tools import Tool
from mustcall.dialects import CallEnd, ScanEvent, WrittenCall, find_dialect
from mustcall.dialects.scanning import effort
from support.counting import counted_lines

PING = (Tool(name="ping", parameters={"type": "object", "properties": {}}),)
CALL = '<tool_call>{"name":"ping","arguments":{}}</tool_call>'


def made(events: list[ScanEvent]) -> int:
    """Return how many calls were made."""
    return sum(isinstance(event, CallEnd) for event in events)


@pytest.mark.parametrize(
    ("unit", "limit"),
    [
        ("<|im_end|>", 25_000),
        *((unit, 2_500) for unit in ("` a\n\n", "`a`b", '"<tool_call>"\n', "<think>x</think>", "x <think>")),
    ],
)
def test_markup_is_counted(unit: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 68: behind too much markup of any kind the reply is text, and a call in it is seen and reported.

    One kind is counted up to the limit as it is, the others up to a tenth of it.
    """
    if limit != effort._MOST:
        monkeypatch.setattr(effort, "_MOST", limit)
    few, many = unit * 100 + "\n\n" + CALL, unit * (limit * 6 // 5) + "\n\n" + CALL
    assert made(scan([few], tools=PING)) == 1
    events = scan([many], tools=PING)
    assert made(events) == 0
    assert reasons_of(events)[-1] == "unknown_markup"
    pieces = [many[start : start + 1001] for start in range(0, len(many), 1001)]
    assert scan(pieces, tools=PING) == events


@pytest.mark.parametrize(
    ("before", "unit", "made_at_most"),
    [
        ("", CALL, 2500),
        ("<tool_calls>[", '{"name":"ping","arguments":{}},', 2500),
        ("<tool_code>", "ping()\n", 2500),
        # The calls of a bare list are made together, at the end of its line: of too long a list none is.
        ("[", "ping(),", 0),
    ],
)
def test_calls_are_counted(before: str, unit: str, made_at_most: int) -> None:
    """Rule 68: a reply makes so many calls and no more, in one wrapper or in many; within the limit all are made."""
    text = before + unit * 4000
    events = scan([text], tools=PING)
    assert made_at_most * 0.8 <= made(events) <= made_at_most
    assert "too_much_markup" in reasons_of(events) or before == ""
    pieces = [text[start : start + 1001] for start in range(0, len(text), 1001)]
    assert scan(pieces, tools=PING) == events
    assert made(scan([before + unit * 1000], tools=PING)) == 1000


def test_reasoning_in_reasoning() -> None:
    """A section's header inside a section is part of it, however often it comes."""
    header = "<|channel|>analysis<|message|>"
    text = header * 5000 + "hm<|end|>" + CALL
    events = scan([text], tools=PING)
    assert (made(events), text_of(events)) == (1, "")


def test_look_alikes_count_the_same_in_every_cut() -> None:
    """A cut behind a bracket makes no bare call of a link: 1,000 links turn nothing off."""
    text = "[*link*](#x)\n" * 1100 + '{"name": "ping", "arguments": {}}'
    for pieces in cuts(text):
        assert made(scan(pieces, tools=PING, alone="anywhere")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`` a ` b ``` c `` " + CALL,
        "``` a\n b `` c ```` d\n" + CALL,
        "` a\n  b\n \t\n" + CALL,
        "`a\u00a0\n\u00a0\n" + CALL,
        "~~~~\n~~~\n" + CALL + "\n~~~~\n" + CALL,
        "`" * 70 + " a " + "`" * 6 + CALL,
        "``\n" + CALL + "\n``" + CALL,
    ],
)
def test_code_reads_the_same_in_every_cut(text: str) -> None:
    """Rule 63: what is skipped in code in one step is what would be skipped character by character."""
    whole = scan([text], tools=PING)
    for pieces in cuts(text):
        assert scan(pieces, tools=PING) == whole


@pytest.mark.parametrize("dialect", ["qwen3_coder", "anthropic", "minicpm5", "glm", "minimax_m3"])
@pytest.mark.parametrize("key", ["declared_{}", "unknown_{}"])
def test_many_parameters(dialect: str, key: str) -> None:
    """Rule 68: neither a tool with many parameters nor a call with many unknown ones costs more than its text."""

    def steps(count: int) -> int:
        properties = {f"declared_{number}": {"type": "string"} for number in range(count)}
        tool = Tool(name="wide", parameters={"type": "object", "properties": properties})
        text = find_dialect(dialect).render([WrittenCall("wide", {key.format(number): "v" for number in range(count)})])
        scan(["warm up"], tools=[tool])
        with counted_lines() as lines:
            events = scan([text], tools=[tool])
        assert made(events) == 1
        return lines.run

    steps(10)  # what is made once and kept
    assert steps(300) < 2.5 * steps(150)
