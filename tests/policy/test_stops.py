"""Stop sequences that an upstream sends past: where a text is cut, at every split, and what passes untouched."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.parts import Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.streams.events import Event, PartEnded, PartStarted, PartTextDelta
from mustcall.policy.scanning.echoes import Echoes
from mustcall.policy.scanning.stops import StoppedScanner, StopSequences, enforced_stops, stopped
from mustcall.wire.registry import codec_for

_STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=3)


def cut(text: str, stops: list[str]) -> str:
    """Return the text before the first stop sequence that is complete behind leading blanks, character by character.

    A text that begins with a tag is left alone.
    """
    lead = next((place for place, character in enumerate(text) if not character.isspace()), len(text))
    if text[lead : lead + 1] == "<":
        return text
    for end in range(lead + 1, len(text) + 1):
        ended = [stop for stop in stops if text[lead:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))]
    return text


@given(st.text("abc\n<", max_size=24), _STOPS, st.lists(st.integers(0, 24), max_size=6))
def test_every_split_cuts_at_the_same_place(text: str, stops: list[str], cuts: list[int]) -> None:
    """What comes out is the text before the sequence that a model would have stopped at, whatever the pieces."""
    watch = StopSequences(stops)
    places = [0, *sorted(min(place, len(text)) for place in cuts), len(text)]
    shown = "".join(watch.feed(text[a:b]) for a, b in pairwise(places)) + watch.close()
    assert shown == cut(text, stops)
    assert (watch.found is None) == (shown == text)
    whole = stopped(Reply(id="r", model="m", parts=(Text(text=text),), finish=FinishReason.STOP), stops)
    assert [part.text for part in whole.parts if isinstance(part, Text)] == [shown]


@given(st.text("abc\n", max_size=24), _STOPS)
def test_only_the_beginning_of_a_sequence_waits(text: str, stops: list[str]) -> None:
    """Less than the longest sequence waits, and only what one of them begins with."""
    watch = StopSequences(stops)
    shown = watch.feed(text)
    if watch.found is None:
        held = text[len(shown) :]
        assert not held or any(len(held) < len(stop) and stop.startswith(held) for stop in stops)
        assert watch.holds is bool(held)


def test_text_without_a_sequence_is_the_same_object() -> None:
    """A healthy reply and a healthy delta are passed on as they are."""
    reply = Reply(id="r", model="m", parts=(Text(text="one two"),), finish=FinishReason.LENGTH)
    assert stopped(reply, ["three"]) is reply
    lens = StoppedScanner(None, "t", Echoes(), ["three"])
    events: list[Event] = [
        PartStarted(0, Text(text="")),
        PartTextDelta(0, "one"),
        PartTextDelta(0, " two"),
        PartEnded(0),
    ]
    assert all(shown is event for event in events for shown in lens.feed(event))
    assert not lens.touched


def test_calls_stay_and_later_text_goes() -> None:
    """A call is no text: it stays with its finish, and text in later parts is empty."""
    call = ToolCall(id="c", name="f", arguments_json="{}")
    parts = (Text(text="a STOP b"), call, Text(text="c"))
    left = stopped(Reply(id="r", model="m", parts=parts, finish=FinishReason.TOOL_CALLS), ["STOP"])
    assert left.parts == (Text(text="a "), call, Text(text=""))
    assert (left.finish, left.stop_sequence) == (FinishReason.TOOL_CALLS, None)


def test_what_is_enforced() -> None:
    """Nothing where the text is a call or a structured answer; no empty, very long or very many sequences."""
    codec = codec_for(Wire.CHAT)
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"stop":["a","b"]}'
    request = codec.decode_request(body)
    assert enforced_stops(request, as_call=False) == ("a", "b")
    assert enforced_stops(request, as_call=True) == ()
    many = request.evolve(stop=("", "x" * 201, *map(str, range(40))))
    assert enforced_stops(many, as_call=False) == tuple(map(str, range(16)))
