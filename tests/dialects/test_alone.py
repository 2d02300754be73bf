"""JSON call objects without markup and ReAct steps: a call where they are the reply, text elsewhere (rule 63)."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.scanning import TOOLS, cuts, scan
from mustcall.dialects import CallEnd, Malformed, ScannedText, Scanner
from mustcall.dialects.scanning.candidate import Candidate
from mustcall.dialects.scanning.fences import Unfenced

OBJECT = '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
OTHER = '{"name": "get_time", "arguments": {"zone": "CET"}}'
FENCE = f"```json\n{OBJECT}\n```"
ACTION = 'Action: get_weather\nAction Input: {"city": "Oslo"}'
STEP = f"Thought: The user asked for the weather.\n{ACTION}"


def names(text: str, **options: Any) -> list[str]:
    """Return the tools called in a text; the same for every cut of it."""
    found = [[e.name for e in scan(pieces, **options) if isinstance(e, CallEnd)] for pieces in cuts(text)]
    assert all(one == found[0] for one in found)
    return found[0]


def text_of(text: str, **options: Any) -> str:
    """Return what of a text stays text."""
    return "".join(event.text for event in scan([text], **options) if isinstance(event, ScannedText))


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (OBJECT, 1),
        (FENCE, 1),
        (f"\n\n{FENCE}\n\n\n", 1),
        (f"```\n{OBJECT}\n```", 1),
        (f"```tool_call\n{OBJECT}\n```", 1),
        (f"```JSON\n{OBJECT}\n```", 1),
        (f"~~~json\n{OBJECT}\n~~~", 1),
        (f"````\n{OBJECT}\n````\n", 1),
        (f"```json {OBJECT}```", 1),
        (f"```xml\n<tool_call>\n{OBJECT}\n</tool_call>\n```", 1),
        (f"```json\n{OBJECT}\n{OTHER}\n```", 2),
        ('```json\n{"name": "note", "arguments": {"text": "```sh\\nls\\n```"}}\n```', 1),
        (f"I'll check the weather.\n\n{FENCE}", 1),
        (f"Let me read the file first:\n{FENCE}\nDone.", 1),
        (f"[{OBJECT}, {OTHER}]", 2),
        (f"```json\n[{OBJECT}, {OTHER}]\n```", 2),
        (f"{FENCE}\n```json\n{OTHER}\n```", 2),
        (f"{OBJECT}\n{OTHER}", 2),
        (f"{FENCE}<|im_end|>", 1),
        (f"{FENCE}\n\n<|im_e", 1),
        (ACTION, 1),
        (STEP, 1),
        (f"{STEP}<|im_end|>", 1),
        (f"{STEP}\nObservation:", 1),
        (f"**Thought:** An example would help.\n{ACTION}", 1),
        (f"Sure.\n\n{ACTION}\n", 1),
        (f"{ACTION}\n{ACTION}", 2),
        (f"```\n{ACTION}\n```", 1),
        ('Action: get_weather\nAction Input:\n```json\n{"city": "Oslo"}\n```', 1),
        ("Action: get_weather\nAction Input: {}", 1),
    ],
)
def test_a_call_that_is_the_reply(text: str, calls: int) -> None:
    """Rule 63: a JSON call object, fenced or bare, alone or behind a short lead-in, is a call."""
    assert len(names(text)) == calls


@pytest.mark.parametrize(
    "text",
    [
        f"Here is an example of a call:\n\n{FENCE}",
        f"The format is as follows.\n{FENCE}",
        f"You can use it like this:\n{FENCE}",
        f"Write this:\n\n```\n{OBJECT}\n```\n\nDone.",
        f"Sure. Paste the following there:\n{FENCE}",
        f"{FENCE}\n\nThis asks for the weather in Oslo.",
        f"{OBJECT}\nis how the request looks on the wire.",
        f"First paragraph.\n\nSecond paragraph.\n\n{FENCE}",
        "A long lead-in. " * 40 + f"\n{FENCE}",
        f"# Calling a tool\n{FENCE}",
        f"- step one\n{FENCE}",
        f"> {OBJECT}",
        f"```python\n{OBJECT}\n```",
        f"{FENCE}\n```python\nprint('the weather in Oslo')\n```",
        '```json\n{"name": "web", "arguments": {"city": "Oslo"}}\n```',
        '```json\n{"name": "get_weather", "version": "1.0.0"}\n```',
        f"[{OBJECT}]\n\nThis asks for the weather in Oslo.",
        f"[{OBJECT}, {OTHER}]\nis how the request looks on the wire.",
        f"Here is an example of a step:\n{ACTION}",
        f"The format is as follows.\n{ACTION}",
        f"{STEP}\nObservation: It is raining in Oslo.\nFinal Answer: Rain.",
        f"{STEP}\n\nThe runtime stops the model here.",
        f"{ACTION} is what the model writes",
        f"First paragraph.\n\n{STEP}",
        f"- step one\n{ACTION}",
        f"    {ACTION}\nand so on and on and on",
        "Thought: I need it.\nAction: buy\nAction Input: {}",
        "Action: get_weather\nAction Input: Oslo",
        "Action: get_weather\nOwner: Robin",
        "Action: get_weather" + " " * 70 + "\n" + "\n" * 70 + "Owner: Robin",
    ],
)
def test_text_that_holds_a_call(text: str) -> None:
    """Rules 63, 122: what is shown, quoted, explained or not on offer stays text, unchanged."""
    assert names(text) == []
    assert text_of(text) == text


@pytest.mark.parametrize(
    "text",
    [f"Here is an example of a call:\n\n{FENCE}", f"{FENCE}\nand so on and on and on", f"{STEP}\nObservation: Rain"],
)
def test_a_demanded_call_counts_at_once(text: str) -> None:
    """Rule 137: under a force the object is a call as soon as it is complete, whatever stands around it."""
    assert names(text, alone="anywhere") == ["get_weather"]
    scanner = Scanner(tools=TOOLS, alone="anywhere")
    events = list(itertools.chain.from_iterable(scanner.feed(c) for c in text[: text.rindex("}") + 3]))
    assert any(isinstance(event, CallEnd) for event in events)


@pytest.mark.parametrize("text", [FENCE, OBJECT, f"[{OBJECT}]", STEP])
def test_never(text: str) -> None:
    """Rule 63: where the user asked for JSON, the object is text; marked calls are still calls."""
    assert names(text, alone="never") == []
    assert text_of(text, alone="never") == text
    assert names(f"<tool_call>\n{OBJECT}\n</tool_call>", alone="never") == ["get_weather"]


def test_a_named_dialect_counts_anywhere() -> None:
    """Rule 57: a format that is named explicitly is read wherever it stands, `auto` beside it."""
    text = f"Here is an example of a call:\n\n{FENCE}\n\nIt asks for the weather in Oslo."
    assert names(text, dialects=["auto", "fenced_json"]) == ["get_weather"]
    assert names(text) == []


def test_a_cut_call_is_reported() -> None:
    """Rule 40: a fenced call that the end cuts off is no call, and is reported as truncated."""
    text = FENCE[:-12]
    events = scan([text])
    assert [event.reason for event in events if isinstance(event, Malformed)] == ["truncated"]
    assert text_of(text) == text


def test_other_fences_flow_line_by_line() -> None:
    """Rule 113: the text of a fence that cannot become a call is released as it comes."""
    scanner = Scanner(tools=TOOLS)
    out = [
        len("".join(e.text for e in scanner.feed(c) if isinstance(e, ScannedText)))
        for c in '```json\n{"key": 1,\n"b": 2}\n'
    ]
    assert sum(out[:20]) >= 12
    assert sum(out) == len(out)


@given(
    lead=st.sampled_from(["", "Sure.\n", "I'll look.\n\n", "An example:\n", "x" * 500 + "\n", "- item\n"]),
    body=st.sampled_from([OBJECT, FENCE, f"[{OTHER}]", FENCE + "\n" + FENCE, FENCE[:30], ACTION, STEP[:60], "Action:"]),
    tail=st.text(alphabet="ab `{}\n.", max_size=60),
    seed=st.integers(0, 1000),
)
def test_no_character_is_lost(lead: str, body: str, tail: str, seed: int) -> None:
    """Rule 63: cuts change nothing, and whatever is no call comes out as the text that went in."""
    text = lead + body + tail
    whole = scan([text])
    place = seed % (len(text) + 1)
    assert scan([text[:place], text[place:]]) == whole
    if not any(isinstance(event, CallEnd) for event in whole):
        assert "".join(event.text for event in whole if isinstance(event, ScannedText)) == text


@pytest.mark.parametrize("alone", ["reply", "anywhere"])
@pytest.mark.parametrize(
    "unit",
    [
        '```json\n{"a": 1}\n```\n',
        '```json\n{"name": "unknown", "arguments": {}}\n```\n',
        '{"name": 1}\n',
        '{"name":\n',
        "[1, 2]\n",
        "```\na\n```\n",
        f"{OBJECT}\n",
        f"{ACTION}\n",
        "Action: get_weather\nAction Input: a\n",
        "Action:\n",
    ],
)
def test_linear_in_the_reply(monkeypatch: pytest.MonkeyPatch, alone: str, unit: str) -> None:
    """Rule 68: what is tried as calls and given back grows with the text, not with its square, fed at once."""
    tried: list[int] = []
    feed = Candidate.feed

    def counted(candidate: Candidate, text: str, *, closed: bool) -> bool:
        tried.append(len(text))
        return feed(candidate, text, closed=closed)

    monkeypatch.setattr(Candidate, "feed", counted)
    for count in (50, 400):
        tried.clear()
        text = unit * count
        scan([text], alone=alone)  # pyrefly: ignore[bad-argument-type]
        assert sum(tried) <= 8 * len(text)


def test_fences_are_read_line_by_line() -> None:
    """Rule 68: reading a line copies that line, not all that follows it: many lines are one pass."""
    unfenced = Unfenced()
    lines = "a\n" * 300_000
    assert unfenced.feed("```json\n" + lines) == lines
    assert unfenced.feed("```\n") + unfenced.close() == ""


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n```json\n{OBJECT}\n```\n",
        f"```json\n```json {OBJECT}",
        f"Sure.\n```json\n\n```\n```\n{OBJECT}\n```",
        f"```json\n```\n{OBJECT}",
        "```json\n<think>\n1``",
        "```json",
        "```json\n",
    ],
)
def test_named_fences_at_every_cut(text: str) -> None:
    """Rules 57, 63: a cut behind the opening of a named fence makes no difference, and nothing is read twice."""
    assert names(text, dialects=["auto", "fenced_json", "react"]) == ["get_weather"] * (OBJECT in text)


@pytest.mark.parametrize("alone", ["reply", "anywhere", "never"])
@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"name": "unknown", "arguments": {}}\n```' + "\n" * 50,
        '{"name": "unknown", "arguments": {}}\n' * 3,
        '{"name": "get_weather", "arguments": {"city": \n\n{"name": "get_weather", "arguments": {"city": "Oslo"}}',
        "[1, 2]\n[{}]\n```\n[\n```\n{",
    ],
)
def test_what_is_no_call_is_read_on(alone: str, text: str) -> None:
    """Rules 63, 68: a text that was given back is not tried again at the same place, in any mode."""
    assert text_of(text, alone=alone) == text or names(text, alone=alone)
