"""Runs of text deltas, read by the stencil of one of them."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from mustcall.wire import delta_template
from mustcall.wire.delta_template import DeltaTemplate, TextRun

Shape = Callable[[str, int], bytes]


def _event(value: Any, name: str = "", *, spaced: bool = False) -> bytes:
    separators = None if spaced else (",", ":")
    data = json.dumps(value, separators=separators).encode()
    return (b"event: %b\n" % name.encode() if name else b"") + b"data: %b\n\n" % data


def chat(text: str, number: int) -> bytes:
    """A chunk as most servers write it."""
    del number
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return _event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice]})


def padded(text: str, number: int) -> bytes:
    """A chunk with OpenAI's padding, which differs from one to the next."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    padding = "aB3" * (number % 4)
    return _event({"id": "chatcmpl-1", "choices": [choice], "usage": None, "obfuscation": padding}, spaced=True)


def numbered(text: str, number: int) -> bytes:
    """A Responses delta: numbered, and padded."""
    kind = "response.output_text.delta"
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    padding = "x" * (number % 3)
    return _event(
        {"type": kind, "sequence_number": number, **place, "delta": text, "logprobs": [], "obfuscation": padding}, kind
    )


def block(text: str, number: int) -> bytes:
    """A Messages delta."""
    del number
    kind = "content_block_delta"
    return _event({"type": kind, "index": 0, "delta": {"type": "text_delta", "text": text}}, kind)


SHAPES: list[Shape] = [chat, padded, numbered, block]


def read(event: bytes) -> str | None:
    """Read a delta's text, strictly."""
    *_, line, first, last = event.split(b"\n")
    assert (first, last) == (b"", b"")
    try:
        value = json.loads(line.removeprefix(b"data: "))
    except ValueError:
        return None
    if "choices" in value:
        return value["choices"][0]["delta"].get("content")
    delta = value["delta"]
    return delta if isinstance(delta, str) else delta["text"]


texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), min_size=1, max_size=12)


@pytest.mark.parametrize("shape", SHAPES)
@given(texts=texts, before=st.booleans(), after=st.booleans())
@example(texts=['say "hi"', "\\", "n", "é", "\u2028", "a\nb", "{}"], before=True, after=True)
def test_a_run_is_what_its_deltas_say(shape: Shape, texts: list[str], before: bool, after: bool) -> None:
    """The text of a run is the text of its deltas one by one, and it ends where they end."""
    stencil = DeltaTemplate.of(shape("sample text", 7), "sample text", read)
    assert stencil is not None
    head = b": ping\n\n" if before else b""
    tail = b'event: other\ndata: {"sequence_number":99,"content":""}\n\n' if after else b""
    run = b"".join(shape(text, number) for number, text in enumerate(texts, 8))
    found = stencil.run(head + run + tail, len(head))
    if found is not None:
        assert found[:3] == ("".join(texts), len(head) + len(run), len(texts))
    else:
        assume(any(not text.isascii() for text in texts))
        pytest.fail("a run of regular deltas was not read")


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_one_delta_is_read_as_a_run_of_one(shape: Shape, data: st.DataObject) -> None:
    """A short block is first taken for one delta: whatever of it is changed, it is read as any block would be."""
    stencil = DeltaTemplate.of(shape("sample text", 7), "sample text", read)
    assert stencil is not None
    words = st.text(st.sampled_from('ab \\"é\n\0'), max_size=6)
    whole = shape(data.draw(words), data.draw(st.integers(0, 30)))
    place = data.draw(st.integers(0, len(whole)))
    put = data.draw(st.sampled_from([b"", b"0", b'"', b"\\", b"x", b"\n", b"\n\n", whole]))
    changed = whole[:place] + put + whole[place + data.draw(st.integers(0, 2)) :]
    for given_block in (whole, changed):
        with pytest.MonkeyPatch.context() as patched:
            quick = stencil.run(given_block, 0)
            patched.setattr(delta_template, "_SHORT", 0)
            assert quick == stencil.run(given_block, 0)


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_what_differs_is_never_read_as_the_same(shape: Shape, data: st.DataObject) -> None:
    """Whatever bytes are bent in a run, what is read of it is what a strict reader reads there."""
    stencil = DeltaTemplate.of(shape("sample text", 7), "sample text", read)
    assert stencil is not None
    written = bytearray(b"".join(shape(text, number) for number, text in enumerate(("one", "two", "three"), 8)))
    place = data.draw(st.integers(0, len(written) - 1))
    if data.draw(st.booleans()):
        written[place] = data.draw(st.sampled_from(b'"\\\n\0{}[],: 0a\xc3u'))
    else:
        del written[place : place + data.draw(st.integers(1, 30))]
    bent = bytes(written)
    found = stencil.run(bent, 0)
    if found is None:
        return
    said, end, deltas, _ = found
    events = [event + b"\n\n" for event in bent[:end].split(b"\n\n")[:-1]]
    assert b"".join(events) == bent[:end]
    assert [read(event) is not None for event in events] == [True] * len(events)
    assert "".join(read(event) or "" for event in events) == said
    assert deltas == len(events)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ((b"\\", b"n"), "an escape over two texts"),
        ((b"\\u00", b"e9"), "a number over two texts"),
        ((b"\\ud83d", b"\\ude00"), "half a character each"),
        ((b"\xc3", b"\xa9"), "a character's bytes over two texts"),
        ((b"a\x01",), "a control character"),
        ((b'a"b',), "a quote"),
    ],
)
def test_texts_are_strings_each_by_itself(texts: tuple[bytes, ...], why: str) -> None:
    """Texts that are JSON only when joined are no run."""
    stencil = DeltaTemplate.of(block("sample", 0), "sample", read)
    assert stencil is not None
    head, tail = block("@", 0).split(b"@")
    assert stencil.run(b"".join(head + text + tail for text in texts), 0) is None, why


@pytest.mark.parametrize(
    ("numbers", "last"),
    [((3,), 3), ((3, 4, 9), 9), ((2,), None), ((1,), None), ((3, 3), None), ((3, 5, 4), None), ((2, 3), None)],
)
def test_numbers_rise(numbers: tuple[int, ...], last: int | None) -> None:
    """Deltas whose numbers do not rise are no run: clients count on them. After a run its last number counts."""
    stencil = DeltaTemplate.of(numbered("sample", 2), "sample", read)
    assert stencil is not None
    found = stencil.run(b"".join(numbered("a", number) for number in numbers), 0)
    assert (None if found is None else found.number) == last
    stencil.number = 9
    assert stencil.run(numbered("a", 9), 0) is None
    assert stencil.run(numbered("a", 10) + numbered("b", 11), 0) is not None


@given(
    written=st.lists(
        st.one_of(st.integers(0, 30).map(str), st.integers(0, 10**17).map(str), st.text("0123 x-", max_size=4)),
        min_size=1,
    )
    | st.integers(0, 990).flatmap(lambda first: st.just([str(number) for number in range(first, first + 20)])),
    above=st.integers(-1, 20),
)
def test_rising_numbers_are_told_from_others(written: list[str], above: int) -> None:
    """As reading each of them tells: JSON's form, no longer than counted, each higher than the one before it."""
    form = re.compile(r"(?:0|[1-9][0-9]{0,14})", re.ASCII)
    numbers = [int(each) for each in written] if all(form.fullmatch(each) for each in written) else []
    rises = bool(numbers) and all(one < other for one, other in pairwise([above, *numbers]))
    found = delta_template._last_rising([each.encode() for each in written], above)
    assert found == (numbers[-1] if rises else None)


@pytest.mark.parametrize(("first", "second"), [(b"007", None), (b"-1", None), (b"1e3", None), (b"1", b'x","y":"z')])
def test_holes_hold_what_belongs_there(first: bytes, second: bytes | None) -> None:
    """A number is a number, and padding is letters and digits."""
    stencil = DeltaTemplate.of(numbered("sample", 2), "sample", read)
    assert stencil is not None
    sample = numbered("sample", 5)
    assert stencil.run(sample, 0) == TextRun("sample", len(sample), 1, 5)
    bent = sample.replace(b'"sequence_number":5', b'"sequence_number":' + first)
    if second is not None:
        bent = bent.replace(b'"obfuscation":"xx"', b'"obfuscation":"%b"' % second)
    assert stencil.run(bent, 0) is None


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (chat("index", 0), "index"),
        (b'data: {"x":"hello","choices":[{"delta":{"content":"hello"}}]}\n\n', "hello"),
        (b'data: {"c":"a"}\n\n', "a"),
        (b'data: {"choices":[{"delta":{"content":"\\u0061b"}}]}\n\n', "ab"),
        (b'data: {"choices":[{"delta":{"content":"ab"}}]}\r\n\r\n', "ab"),
        (chat("", 0), ""),
    ],
)
def test_an_uncertain_place_makes_no_stencil(event: bytes, text: str) -> None:
    """Where the text stands twice, or is spelled otherwise, the next delta is waited for."""
    assert DeltaTemplate.of(event, text, lambda _: "a b-c") is None


def test_a_place_that_only_looks_right_makes_no_stencil() -> None:
    """The place is tried out: text put there must be read as the text."""
    event = b'data: {"note":"hello there","choices":[{"delta":{"content":"\\u0068ello there"}}]}\n\n'
    assert DeltaTemplate.of(event, "hello there", read) is None


def test_the_text_it_is_tried_out_with_tells_nothing() -> None:
    """A text that is the probe itself makes no stencil: trying out the wrong place would succeed."""
    event = b'data: {"model":"a b-c","choices":[{"index":0,"delta":{"content":"a b\\u002dc"}}]}\n\n'
    assert read(event) == "a b-c"
    assert DeltaTemplate.of(event, "a b-c", read) is None


def test_a_number_alone_is_no_delta() -> None:
    """What lacks everything between number and text is no JSON, and no part of a run."""
    sample = numbered("sample", 2).replace(b',"logprobs":[],"obfuscation":"xx"', b"")
    stencil = DeltaTemplate.of(sample, "sample", read)
    assert stencil is not None
    number, text = sample.index(b'"sequence_number":2') + len(b'"sequence_number":2'), sample.index(b"sample")
    cut = sample[:number] + sample[text + len(b"sample") :]
    assert read(cut) is None
    assert stencil.run(cut + sample, 0) is None


@pytest.mark.parametrize("place", ["before", "behind"])
def test_what_stands_twice_tells_no_deltas_apart(place: str) -> None:
    """Where the bytes before the text stand elsewhere in the delta too, each run would be of one delta."""
    same: dict[str, Any] = {"note": {"content": ""}}
    choices = {"choices": [{"index": 0, "delta": {"content": "sample"}}]}
    event = _event({**same, **choices} if place == "before" else {**choices, **same})
    assert read(event) == "sample"
    assert DeltaTemplate.of(event, "sample", read) is None
