"""The lens: what streams through it looks the same however it was cut, and a clean text is not touched at all."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState, Part, Reasoning, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.coalesce import coalesce
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
    StateDelta,
)
from mustcall.core.streams.unroll import unroll, unroll_part
from mustcall.core.tools import Tool
from mustcall.policy.reply.gate import Gate, Released
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanFindings, ScanTargets
from support.splits import text_splits
from support.values import replied

FIXTURES = Path(__file__).parents[1] / "dialects" / "fixtures"


class Fixture(msgspec.Struct, frozen=True):
    """A text and what must come of it, as the dialects' own tests have it."""

    kind: str
    text: str
    calls: list[dict[str, Any]]
    remains: str
    malformed: list[str]
    reasoning: str = ""
    loose: bool = False


def _schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


#: The tools the fixtures call.
TOOLS = (
    Tool(
        name="get_weather",
        parameters={**_schema(city={"type": "string"}, days={"type": "integer"}), "required": ["city"]},
    ),
    Tool(name="get_time", parameters=_schema(zone={"type": "string"})),
    Tool(
        name="search",
        parameters=_schema(
            query={"type": "string"},
            filter=_schema(
                tags={"type": "array", "items": {"type": "string"}},
                depth=_schema(max={"type": "integer"}, strict={"type": "boolean"}),
            ),
            limit={"type": ["integer", "null"]},
        ),
    ),
    Tool(name="note", parameters=_schema(text={"type": "string"})),
    Tool(name="now", parameters=_schema()),
)
NAMES = sorted(path.stem for path in FIXTURES.glob("*.json"))
STARTED = Started("r", "m")


def load(name: str) -> list[Fixture]:
    """Return the fixtures of one dialect."""
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes(), type=list[Fixture])


def lens_for(*, dialect: str = "auto", loose: bool = False, separated: bool = False) -> ReplyScanner:
    """A lens that looks for every dialect, or for one."""
    return ReplyScanner(ScanTargets(tools=TOOLS, dialects=(dialect,), loose=loose, separated=separated), "t")


def streamed(pieces: Iterable[str]) -> list[Event]:
    """A text part in pieces."""
    return [STARTED, PartStarted(0, Text(text="")), *(PartTextDelta(0, piece) for piece in pieces), PartEnded(0)]


def look(lens: ReplyScanner, events: Iterable[Event]) -> list[Event]:
    """Return what a lens shows of these events, neighbouring deltas joined."""
    return coalesce(shown for event in events for shown in lens.feed(event))


def told(found: ScanFindings) -> tuple[object, ...]:
    """What was found, without the places in a stream."""
    calls = [(call.name, call.arguments, call.dialect) for call in found.calls]
    return (calls, [entry.reason for entry in found.malformed], found.thought, found.cleaned, found.promoted)


@pytest.mark.parametrize("name", NAMES)
def test_every_fixture_at_every_split(name: str) -> None:
    """Rules 53, 58, 121: events and findings do not depend on where the stream was cut; calls are never shown."""
    for fixture in load(name):
        reply = replied(Text(text=fixture.text))
        whole = lens_for(dialect=name, loose=fixture.loose)
        expected = look(whole, streamed([fixture.text]))
        findings = told(whole.found(reply))
        assert told(lens_for(dialect=name, loose=fixture.loose).read(reply)) == findings
        for pieces in text_splits(fixture.text, alone=20):  # the scanner behind it has tests of its own
            lens = lens_for(dialect=name, loose=fixture.loose)
            assert look(lens, streamed(pieces)) == expected
            assert told(lens.found(reply)) == findings
            assert lens.marked or not lens.pending
        shown = Assembler()
        for event in expected:
            shown.feed(event)
        before = "".join(part.text for part in shown.parts() if isinstance(part, Text))
        assert fixture.remains.startswith(before)
        if not whole.marked:
            assert before == fixture.remains


@pytest.mark.parametrize("name", NAMES)
def test_fixtures_are_promoted_in_place(name: str) -> None:
    """Rules 58, 62, 66: calls become call parts in their order, their markup is gone, the prose stays."""
    for fixture in load(name):
        found = lens_for(dialect=name, loose=fixture.loose).read(replied(Text(text=fixture.text)))
        made = [part for part in found.promoted or () if isinstance(part, ToolCall)]
        assert [{"name": call.name, "arguments": json.loads(call.arguments_json)} for call in made] == fixture.calls
        assert [call.id for call in made] == [f"call_t_{number}" for number in range(len(made))]
        if found.promoted is not None and found.cleaned is not None:
            prose = [part for part in found.promoted if not isinstance(part, ToolCall)]
            assert list(found.cleaned) == prose
            text = "".join(part.text for part in prose if isinstance(part, Text))
            assert text.replace("\n", "") == fixture.remains.replace("\n", "")
            thought = "".join(part.text for part in prose if isinstance(part, Reasoning))
            assert thought == fixture.reasoning or not found.thought


plain = st.text(st.sampled_from("abc .,\nàé1"), min_size=1, max_size=12)
#: A reply's first character may begin a header (` to=…`, `analysis<|message|>`), so it is held until the next one.
first = plain.filter(lambda text: text not in (" ", "a", "c"))


@given(first, st.lists(plain, max_size=5))
@settings(deadline=None)
def test_clean_text_passes_as_the_same_events(head: str, rest: list[str]) -> None:
    """Rules 105, 113: text without a sign of markup is not held, and nothing is found in it."""
    pieces = [head, *rest]
    lens = lens_for()
    lens.feed(STARTED)
    assert lens.feed(PartStarted(0, Text(text=""))) == []
    for number, piece in enumerate(pieces):
        delta = PartTextDelta(0, piece)
        out = lens.feed(delta)
        assert out[-1] == delta
        if number:
            assert len(out) == 1
            assert out[0] is delta
        assert not (lens.pending)
        assert not (lens.touched)
        assert not (lens.marked)
    end = PartEnded(0)
    assert lens.feed(end)[-1] is end
    assert lens.found(replied(Text(text="".join(pieces)))) == ScanFindings()


def test_a_lens_that_looks_for_nothing() -> None:
    """Rule 112: everything passes as it is."""
    lens = ReplyScanner(None, "t")
    events = list(unroll(replied(Text(text="<tool_call>{}</tool_call>"))))
    assert all(lens.feed(event)[0] is event for event in events)
    assert lens.read(replied(Text(text='<invoke name="now"></invoke>'))) == ScanFindings()


def test_only_the_ambiguous_end_is_held() -> None:
    """Rule 113: what could begin markup waits, what came before it does not, and it is let go when it is none."""
    lens = lens_for()
    out = look(lens, [STARTED, PartStarted(0, Text(text="")), PartTextDelta(0, "a <"), PartTextDelta(0, "tool")])
    assert out == [STARTED, PartStarted(0, Text(text="")), PartTextDelta(0, "a ")]
    assert lens.pending
    assert look(lens, [PartTextDelta(0, "box> b"), PartEnded(0)]) == [PartTextDelta(0, "<toolbox> b"), PartEnded(0)]
    assert not (lens.touched)
    assert not (lens.marked)


@pytest.mark.parametrize("pieces", [["<think>hm</think>Yes."], list("<think>hm</think>Yes.")], ids=["whole", "cut"])
def test_leaked_reasoning_is_a_reasoning_part(pieces: list[str]) -> None:
    """Rule 65: a reasoning section in the text is shown as reasoning, and the reply is cleaned of it."""
    lens = lens_for()
    out = look(lens, streamed(pieces))
    assert out == [
        STARTED,
        PartStarted(0, Reasoning()),
        PartReasoningDelta(0, "hm"),
        PartEnded(0),
        PartStarted(1, Text(text="")),
        PartTextDelta(1, "Yes."),
        PartEnded(1),
    ]
    found = lens.found(replied(Text(text="".join(pieces))))
    assert found.thought
    assert found.cleaned == (Reasoning(text="hm"), Text(text="Yes."))


@pytest.mark.parametrize("pieces", [["Hm.\n</think>\n\nYes."], list("Hm.\n</think>\n\nYes.")], ids=["whole", "cut"])
def test_reasoning_that_ends_without_a_start(pieces: list[str]) -> None:
    """Rule 65: a prompt that opened the section itself: what came before its end was reasoning, the rest is text."""
    lens = lens_for()
    out = look(lens, streamed(pieces))
    assert [type(event) for event in out].count(PartStarted) == 2
    assert [event.text for event in out if isinstance(event, PartTextDelta)] == ["Hm.\n", "Yes."]
    found = lens.found(replied(Text(text="".join(pieces))))
    assert found.thought
    assert found.cleaned == (Reasoning(text="Hm.\n"), Text(text="Yes."))


def test_an_end_of_reasoning_with_nothing_before_it() -> None:
    """Rule 65: the marker is taken out, and no empty reasoning is made up."""
    found = lens_for().read(replied(Text(text="</think>\n\nYes.")))
    assert found.cleaned == (Text(text="Yes."),)
    assert found.thought


@pytest.mark.parametrize(("text", "rest"), [("<think></think>Yes.", "Yes."), ("<think>", "")])
def test_an_empty_section_is_taken_out(text: str, rest: str) -> None:
    """Rule 65: markers with nothing between them are no part of the answer, however they came."""
    for pieces in text_splits(text):
        lens = lens_for()
        out = look(lens, streamed(pieces))
        assert "".join(event.text for event in out if isinstance(event, PartTextDelta)) == rest
        found = lens.found(replied(Text(text=text)))
        assert found.thought
        assert found.cleaned == (Text(text=rest),)


def test_separated_reasoning_is_text() -> None:
    """Rule 65: where the upstream separates reasoning itself, a mention of the marker is text."""
    text = "Write <think>hm</think> so."
    lens = lens_for(separated=True)
    assert look(lens, streamed([text])) == streamed([text])
    assert not lens.touched


CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def test_other_parts_keep_their_order() -> None:
    """Rule 62: parts after a text that became several move up, and every event of theirs with them."""
    native = ToolCall(id="c1", name="search", arguments_json='{"query":"x"}')
    state = OpaqueState(Wire.MESSAGES, "c2ln", "up")
    reply = replied(Text(text=f"a{CALL}b"), native, Reasoning(text="t", state=state), reported="tool_calls")
    lens = lens_for()
    out = [shown for event in unroll(reply) for shown in lens.feed(event)]
    starts = [(event.index, type(event.part).__name__) for event in out if isinstance(event, PartStarted)]
    assert starts == [(0, "Text"), (3, "ToolCall"), (4, "Reasoning")]  # text behind the markup waits
    assert [event.index for event in out if isinstance(event, ArgumentsDelta)] == [3]
    assert [event.index for event in out if isinstance(event, StateDelta)] == [4]
    found = lens.found(reply)
    assert found.cleaned == (Text(text="a"), Text(text="b"), native, reply.parts[2])
    assert found.promoted == (
        Text(text="a"),
        ToolCall(id="call_t_0", name="now", arguments_json="{}"),
        Text(text="b"),
        native,
        reply.parts[2],
    )


def test_nothing_is_shown_from_markup_on() -> None:
    """Rule 53: the text before a call comes out, and nothing behind its first character."""
    lens = lens_for()
    seen = ""
    for event in streamed(["Let me see. ", *CALL, " Done."]):
        out = lens.feed(event)
        seen += "".join(shown.text for shown in out if isinstance(shown, PartTextDelta))
        assert "<" not in seen
    assert lens.marked
    assert seen == "Let me see. "


def test_a_final_word_longer_than_the_deltas() -> None:
    """Rule 127: what the upstream's last word has beyond its deltas is looked through, too."""
    final = Text(text=f"Hello {CALL}")
    lens = lens_for()
    out = look(lens, [STARTED, PartStarted(0, Text(text="")), PartTextDelta(0, "Hel"), PartEnded(0, final)])
    assert [event.text for event in out if isinstance(event, PartTextDelta)] == ["Hello "]
    assert [call.name for call in lens.found(replied(final)).calls] == ["now"]


texts = st.lists(
    st.sampled_from(
        [
            "Hi. ",
            "\n",
            " ",
            CALL,
            "<tool_call>",
            "</tool_call>",
            "<think>",
            "</think>",
            '<invoke name="note"><parameter name="text">x</parameter></invoke>',
            '<invoke name="gone">',
            "```",
            "`",
            "<",
            '[{"name": "now"',
            "word",
        ]
    ),
    max_size=6,
).map("".join)


@given(texts, st.lists(st.integers(0, 200), max_size=6), st.booleans(), st.booleans())
@settings(deadline=None)
def test_any_text_at_any_cut(text: str, places: list[int], loose: bool, separated: bool) -> None:
    """Contract 8, rule 53: nothing raises, cuts change nothing, and what is shown is what the findings say."""
    reply = replied(Text(text=text))
    whole = lens_for(loose=loose, separated=separated)
    expected = look(whole, streamed([text]))
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(bounds)]
    lens = lens_for(loose=loose, separated=separated)
    got = look(lens, streamed(pieces))
    assert told(lens.found(reply)) == told(whole.found(reply))
    if not whole.found(reply).malformed:
        # The text of what is known not to be a call may come out before it is reported as such.
        assert got == expected


texts_and_more: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, text=texts),
    st.builds(Reasoning, text=st.sampled_from(["t", "<think>"])),
    st.just(ToolCall(id="c1", name="now", arguments_json="{}")),
)


@given(st.lists(texts_and_more, max_size=3), st.booleans())
@settings(deadline=None)
def test_what_the_gate_let_out_is_completed(parts: list[Part], promote: bool) -> None:
    """Rules 53, 66, 135: seen through the lens and the gate, a reply is completed to what was found in it."""
    reply = Reply(id="r", model="m", parts=tuple(parts), finish=FinishReason.STOP)
    lens, gate, shown = lens_for(), Gate(closed=False), Released()
    out: list[Event] = []
    for event in unroll_all(reply):
        for seen in lens.feed(event):
            out += gate.feed(seen)
        if lens.marked:
            gate.stop()
    shown.record(out)
    found = lens.found(reply)
    wanted = found.promoted if promote else found.cleaned
    if wanted is None:
        wanted = reply.parts
    assembler = Assembler()
    for event in [*out, *shown.rest(reply.evolve(parts=wanted))]:
        assembler.feed(event)
    visible = [part for part in wanted if not (isinstance(part, Text) and not part.text)]
    told_of = [part for part in assembler.parts() if not (isinstance(part, Text) and not part.text)]
    if lens.late:  # text that went out before its section ended was shown as text, and stays it
        assert [getattr(part, "text", part) for part in told_of] == [getattr(part, "text", part) for part in visible]
    else:
        assert told_of == visible


def unroll_all(reply: Reply) -> Iterable[Event]:
    """The events of a reply, each text by character."""
    yield STARTED
    for index, part in enumerate(reply.parts):
        for event in unroll_part(index, part):
            if isinstance(event, PartTextDelta):
                yield from (PartTextDelta(index, character) for character in event.text)
            else:
                yield event
    yield Finished(FinishReason.STOP)
    yield Ended()
