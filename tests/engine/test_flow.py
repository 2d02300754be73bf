"""One attempt's stream, however its bytes are cut and whatever stands between its events."""

import itertools
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.limits import GatewayLimits
from mustcall.core.origin import Wire
from mustcall.core.parts import Text
from mustcall.core.reply import Reply
from mustcall.core.tools import Tool
from mustcall.engine.replies import stream_relay
from mustcall.policy.scanning.reply_scanner import ScanTargets
from mustcall.testing import Call, Say, Think, Turn
from mustcall.testing.render import Stamp as Written
from mustcall.testing.render import stream_reply
from mustcall.wire.chat.stream_decode import ChatStreamDecoder
from mustcall.wire.delta_template import DeltaTemplate, TextRun
from mustcall.wire.sse import Silence
from support.exchanging import CROSSINGS, assembled
from support.flowing import Flowing

BODY: dict[str, Any] = {"model": "m", "messages": [], "input": [], "stream": True}
TOOLS = (Tool(name="get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}}),)
NOISE = [b"", b"", b"\n", b"\n\n", b": still here\n\n", b"\n\n\n"]
sentences = st.lists(
    st.one_of(
        st.sampled_from(['He said "no" ', "\\ a \\n b ", "é 日本 🙂 ", "<tag> [x] {y} ", "line\n", "word "]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=15),
    ),
    min_size=1,
    max_size=12,
).map("".join)


_ANNOUNCED = re.compile(rb"event: (?:response.output_item.added|content_block_start)\r?\ndata: .*?index\": ?(\d+)")


def carried(wire: Wire, pieces: Sequence[bytes]) -> tuple[bytes, bool]:
    """What goes out if the reply is accepted as it is, and whether that is the upstream's own bytes."""
    return Flowing(wire, ScanTargets(tools=TOOLS)).carry(list(pieces))


def text_of(wire: Wire, stream: bytes) -> str:
    """The text a client of this wire reads."""
    return "".join(part.text for part in assembled(wire, stream).parts if isinstance(part, Text))


@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.RESPONSES])  # Messages counts from the start
@pytest.mark.parametrize("size", [1, 5, 1000])
@pytest.mark.parametrize("to", Wire)
def test_deltas_that_come_together_are_counted_one_by_one(wire: Wire, to: Wire, size: int) -> None:
    """Rule 114: a reply that is settled early has no count of the server's; one delta stands for a token."""
    turn = Turn(Think("one two three four five six"), Say("word " * 40))
    frames = stream_reply(turn, wire, BODY, Written(1, "s"))[:-3]
    flow = Flowing(wire, held=True, to=to).flow
    for start in range(0, len(frames), size):
        flow.feed(b"".join(frames[start : start + size]))
    flow.settle(7)
    usage = flow.reply().usage
    assert usage is not None
    said = sum(frame.count(b"delta") > 0 and (b"word" in frame or b"two" in frame) for frame in frames)
    assert said <= usage.output_tokens <= len(frames)


@pytest.mark.parametrize("wire", Wire)
@given(said=sentences, noise=st.lists(st.sampled_from(NOISE), max_size=30), cuts=st.lists(st.integers(0, 9000)))
@example(said="So it is fine, all week long.", noise=[b"", b"", b"", b"\n"], cuts=[])
@example(said="So it is fine, all week long.", noise=[b"", b"", b"", b"\n\n\n"], cuts=[])
def test_the_text_arrives_once(wire: Wire, said: str, noise: list[bytes], cuts: list[int]) -> None:
    """Rule 135: nothing is lost and nothing doubled, in whatever pieces a stream comes and whatever is in between."""
    frames = stream_reply(Turn(Say(said or "x")), wire, BODY, Written(1, "s"))
    stream = b"".join(
        frame + between for frame, between in itertools.zip_longest(frames, noise[: len(frames)], fillvalue=b"")
    )
    places = sorted({0, len(stream), *(place for place in cuts if place < len(stream))})
    pieces = [stream[one:other] for one, other in itertools.pairwise(places)]
    sent, raw = carried(wire, pieces)
    assert text_of(wire, sent) == text_of(wire, stream)
    if raw:
        assert stream.startswith(sent)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("bent", ["again", "behind"])
def test_numbers_that_do_not_rise_are_not_forwarded(held: bool, size: int, bent: str) -> None:
    """Rule 113: a Responses stream whose numbers stand still, or fall behind its deltas, is written anew."""
    frames = stream_reply(Turn(Say("word " * 40)), Wire.RESPONSES, BODY, Written(1, "s"))
    deltas = [place for place, frame in enumerate(frames) if b"output_text.delta" in frame]
    place, number = (deltas[20], deltas[10]) if bent == "again" else (deltas[-1] + 1, deltas[0])
    frames[place] = re.sub(rb'"sequence_number": ?\d+', b'"sequence_number":%d' % number, frames[place])
    given_pieces = [b"".join(frames[start : start + size]) for start in range(0, len(frames), size)]
    flowing = Flowing(Wire.RESPONSES, held=held)
    flowing.flow.raw = True
    sent, raw = flowing.carry(given_pieces)
    assert not raw
    assert text_of(Wire.RESPONSES, sent) == "word " * 40


@pytest.mark.parametrize(("wire", "to"), [(Wire.CHAT, Wire.CHAT), (Wire.CHAT, Wire.MESSAGES)])
def test_what_comes_behind_the_end_fails_nothing(wire: Wire, to: Wire) -> None:
    """A complete reply stays one, whatever its upstream sends behind it in the same piece."""
    stream = b"".join(stream_reply(Turn(Say("It is fine.")), wire, BODY, Written(1, "s"))) + b": bye\n\n" * 60
    flowing = Flowing(wire, to=to)
    flowing.flow.silence = Silence(GatewayLimits(silent_lines=100))
    sent, _ = flowing.carry([stream])
    assert text_of(to, sent.replace(b": bye\n\n", b"")) == "It is fine."


@pytest.mark.parametrize("to", [Wire.CHAT, Wire.RESPONSES])
def test_what_went_out_before_a_fault_is_not_lost(to: Wire) -> None:
    """Rule 135: an event nested too deeply fails the stream; the text before it in the same piece is out."""
    frames = stream_reply(Turn(Say("It is fine."), Call("f", {})), Wire.MESSAGES, BODY, Written(1, "s"))
    start = next(place for place, frame in enumerate(frames) if b"tool_use" in frame and b"block_start" in frame)
    for depth in range(900, 1_000, 3):
        deep = frames[start].replace(b'"input":{}', b'"input":' + b'{"a":' * depth + b"1" + b"}" * depth)
        assert deep != frames[start]
        flow = Flowing(Wire.MESSAGES, to=to).flow
        try:
            sent = flow.feed(b"".join([*frames[:start], deep, *frames[start + 1 :]]))
        except UpstreamGarbage:
            assert not flow.began
        else:
            assert b"fine" in sent


@pytest.mark.parametrize("to", [Wire.CHAT, Wire.MESSAGES])
def test_deltas_without_a_stencil_are_tried_a_few_times(to: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose deltas have fields of its own costs a second look at sixteen of them, not at each."""
    frames = stream_reply(Turn(Say("word " * 200)), Wire.CHAT, BODY, Written(1, "s"))
    frames = [frame.replace(b'"index":0', b'"index":0,"own":null') for frame in frames]
    tried: list[bytes] = []
    peel = ChatStreamDecoder.peel

    def counted(self: ChatStreamDecoder, event: bytes) -> tuple[int, str] | None:
        tried.append(event)
        return peel(self, event)

    monkeypatch.setattr(ChatStreamDecoder, "peel", counted)
    sent, _ = Flowing(Wire.CHAT, to=to).carry(frames)
    assert text_of(to, sent) == "word " * 200
    assert 1 <= len(tried) <= 16


turns = st.lists(
    st.one_of(
        sentences.map(lambda said: Say(said or "x")),
        sentences.map(lambda thought: Think(thought or "x")),
        sentences.map(lambda city: Call("get_weather", {"city": city})),
    ),
    min_size=1,
    max_size=4,
).map(lambda said: Turn(*said))


@pytest.mark.parametrize(("wire", "to"), CROSSINGS)
@pytest.mark.parametrize("held", [False, True])
@given(turn=turns, noise=st.lists(st.sampled_from(NOISE), max_size=30), cuts=st.lists(st.integers(0, 9000)))
def test_a_stencil_changes_nothing_that_is_translated(
    wire: Wire, to: Wire, *, held: bool, turn: Turn, noise: list[bytes], cuts: list[int]
) -> None:
    """Rule 135: text that is read by its stencil means what it means when every event is parsed, on any other wire."""
    frames = stream_reply(turn, wire, BODY, Written(1, "s"))
    stream = b"".join(
        frame + between for frame, between in itertools.zip_longest(frames, noise[: len(frames)], fillvalue=b"")
    )
    places = sorted({0, len(stream), *(place for place in cuts if place < len(stream))})
    pieces = [stream[one:other] for one, other in itertools.pairwise(places)]

    def translated() -> Reply:
        sent, raw = Flowing(wire, ScanTargets(tools=TOOLS), held=held, to=to).carry(pieces)
        assert not raw
        return assembled(to, sent)

    quick = translated()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(stream_relay, "_STENCILS", 0)
        assert translated() == quick


@pytest.mark.parametrize("wire", Wire)
def test_a_run_of_deltas_is_read_once(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each delta is read once, also those before the end of a stream, whichever pieces they come in."""
    frames = stream_reply(Turn(Say("The wind over Oslo turns north before noon. " * 20)), wire, BODY, Written(1, "s"))
    half = len(frames) // 2
    read: list[int] = []
    whole = DeltaTemplate.run

    def run(self: DeltaTemplate, block: bytes, start: int) -> TextRun | None:
        found = whole(self, block, start)
        read.append(0 if found is None else found.deltas)
        return found

    monkeypatch.setattr(DeltaTemplate, "run", run)
    for to in Wire:
        read.clear()
        Flowing(wire, ScanTargets(tools=TOOLS), to=to).carry([b"".join(frames[:half]), b"".join(frames[half:])])
        assert 20 * 8 - 4 <= sum(read) <= 20 * 8  # a delta for each word; the first show what they look like
        assert sum(map(bool, read)) == 2  # one for each piece


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 20])
def test_a_regular_stream_is_forwarded(wire: Wire, size: int) -> None:
    """A healthy reply leaves as the very bytes it came in, in pieces of any size."""
    said = 'The wind over Oslo turns north before noon.\nHe said "rain", \\ and it rained: é 🙂. ' * 8
    stream = b"".join(stream_reply(Turn(Say(said)), wire, BODY, Written(1, "s")))
    sent, raw = carried(wire, [stream[at : at + size] for at in range(0, len(stream), size)])
    assert raw
    assert sent == stream
    assert text_of(wire, sent) == said


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("line", [b"\n", b"\r\n"])
def test_another_writer_announces_nothing_again(wire: Wire, line: bytes) -> None:
    """A stream that turns irregular at its end is written anew from what the caller has seen, wherever it was cut."""
    turn = Turn(Think("Let me see."), Say("The answer is fine. It took 9 steps."))
    frames = [frame.replace(b"\n", line) for frame in stream_reply(turn, wire, BODY, Written(1, "s"))]
    frames.insert(-1, b"retry: 10" + line * 2)
    for one, other in itertools.combinations(range(1, len(frames)), 2):
        sent, _ = carried(wire, [b"".join(frames[:one]), b"".join(frames[one:other]), b"".join(frames[other:])])
        announced = re.findall(
            rb"event: (?:response.output_item.added|content_block_start)\r?\ndata: .*?index\": ?(\d+)", sent
        )
        assert len(announced) == len(set(announced)), (one, other)
        assert text_of(wire, sent) == "The answer is fine. It took 9 steps."
