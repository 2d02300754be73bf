"""No byte of a discarded text call reaches a streaming caller (rule 53), wherever the upstream's stream is split."""

import json
from collections.abc import Iterator

import pytest

from mustcall.core.origin import Wire
from mustcall.testing import Call, Hang, RawStream, RunningGateway, Say, ScriptedUpstream, Turn
from mustcall.testing.render import Stamp, stream_reply
from rules.driving import WORDS, Stage, arriving, ask_slowly, request
from rules.forms import INVOKE, MALFORMED, MARKUP, OPEN, PROSE, check_no_trace
from support.forcing import WIRES
from support.splits import some_places

BAD = Turn(Say(INVOKE))
GOOD = Turn(Call("get_weather", {"city": "Paris"}))
CALLED = (("get_weather", {"city": "Paris"}),)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    with Stage(compares=True) as opened:
        yield opened


def _in_two(text: str, at: int, wire: str, finish: str | None = None) -> list[bytes]:
    """Return the events of a reply whose text comes in two deltas."""
    events = stream_reply(Turn(Say("QHEADQ QTAILQ"), finish=finish), Wire(wire), request(wire, stream=True), Stamp(0))
    head, tail = (json.dumps(part)[1:-1].encode() for part in (text[:at], text[at:]))
    return [event.replace(b" QTAILQ", tail).replace(b"QHEADQ", head) for event in events]


@pytest.mark.parametrize("form", [*MARKUP, *MALFORMED])
@pytest.mark.parametrize("wire", WIRES)
def test_no_split_of_the_text_leaks(stage: Stage, wire: str, form: str) -> None:
    """Rule 53: wherever discarded markup of any form is split between two events, the caller sees nothing of it."""
    body = request(wire, stream=True)
    text = {**MARKUP, **MALFORMED}[form]
    every = 5 if wire == "chat" else 12  # the text is scanned after decoding: the wires differ only in their events
    for at in some_places(1, len(text), every, f"{wire} {form}"):
        outcome = stage.play(RawStream(_in_two(text, at, wire)), GOOD).ask(wire, body)
        assert stage.bodies == [body, body], at
        assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED), at
        check_no_trace(outcome.raw)


@pytest.mark.parametrize("form", [*MARKUP, *MALFORMED])
@pytest.mark.parametrize(("caller", "upstream"), [("chat", "chat"), ("messages", "chat"), ("chat", "responses")])
def test_no_form_leaks_in_one_piece(stage: Stage, caller: str, upstream: str, form: str) -> None:
    """Rule 53: markup in one piece with the prose before it is held back just as well, attempt after attempt."""
    bad = RawStream(_in_two(PROSE + {**MARKUP, **MALFORMED}[form], 3, upstream))
    outcome = stage.play(bad, bad, bad).ask(
        caller, {**request(caller, stream=True), "mustcall": {"salvage": "never"}}, upstream
    )
    first = arriving(caller, upstream, stream=True)
    assert stage.bodies == [first, first, arriving(caller, upstream, WORDS.text_call, stream=True)]
    assert outcome.message.startswith("TextToolCallError: ")
    assert PROSE.startswith(outcome.text)
    check_no_trace(outcome.raw)


#: Markup of a tool that nobody offered: text, unless the finish says that it was meant as a call.
STRANGE = '<tool_call>{"name": "no_such_tool", "arguments": {"a": "bcd"}}</tool_call>'


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_markup_of_a_tool_nobody_offered_waits(stage: Stage, wire: str) -> None:
    """Rule 53: the finish decides whether it was a call: no split of it is shown before, and nothing if it was."""
    body = request(wire, stream=True)
    for at in some_places(1, len(STRANGE), 3, wire):
        bad = RawStream(_in_two(PROSE + STRANGE, len(PROSE) + at, wire, "tool_calls"))
        outcome = stage.play(bad, GOOD).ask(wire, body)
        assert stage.bodies == [body, body], at
        assert (outcome.error, outcome.calls) == ({}, CALLED), at
        assert outcome.text in ("", PROSE), at  # what was shown before the markup stays
        assert b"no_such_tool" not in outcome.raw


@pytest.mark.parametrize("wire", WIRES)
def test_markup_of_a_tool_nobody_offered_is_text(stage: Stage, wire: str) -> None:
    """Rules 44, 53: where the reply ends ordinarily it comes out whole, wherever it was split."""
    body = request(wire, stream=True)
    for at in range(1, len(STRANGE), 7):
        outcome = stage.play(RawStream(_in_two(STRANGE + " So.", at, wire))).ask(wire, body)
        assert stage.bodies == [body], at
        assert (outcome.error, outcome.text, outcome.calls) == ({}, STRANGE + " So.", ()), at


@pytest.mark.parametrize("wire", WIRES)
def test_no_split_of_the_bytes_leaks(stage: Stage, wire: str) -> None:
    """Rule 53: wherever the upstream's bytes are split in two, the caller sees nothing of the discarded attempt."""
    body = request(wire, stream=True)
    whole = b"".join(_in_two(INVOKE, len(INVOKE) // 2, wire))
    start, end = whole.index(b"<invoke") - 40, whole.rindex(b"/invoke>") + 40
    near = some_places(start, min(end, start + 240), 4, wire)
    for at in [*range(1, start, 29), *near, *range(start + 240, len(whole), 29)]:
        outcome = stage.play(RawStream([whole[:at], whole[at:]]), GOOD).ask(wire, body)
        assert stage.bodies == [body, body], at
        assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED), at
        check_no_trace(outcome.raw)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 4096])
@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_no_chunking_leaks(stage: Stage, caller: str, upstream: str, size: int) -> None:
    """Rule 53: byte by byte or all at once, on every pair of wires, discarded text never reaches the caller."""
    outcome = stage.play(BAD, BAD, GOOD, chunking=size).ask(caller, request(caller, stream=True), upstream)
    first = arriving(caller, upstream, stream=True)
    assert stage.bodies == [first, first, arriving(caller, upstream, WORDS.text_call, stream=True)]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("size", [1, 5, 4096])
@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_prose_before_a_discarded_call(stage: Stage, caller: str, upstream: str, size: int) -> None:
    """Rule 53: prose streamed before half a call stays; of the attempts after it only the call is added."""
    bad = Turn(Say(PROSE + OPEN))
    better = Turn(Say("Here it is."), Call("get_weather", {"city": "Paris"}))
    outcome = stage.play(bad, better, chunking=size).ask(caller, request(caller, stream=True), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=True)] * 2
    assert (outcome.error, outcome.calls) == ({}, CALLED)
    assert (outcome.text in PROSE and bool(outcome.text)) or outcome.text == "Here it is."
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_text_released_before_the_markup_stays(caller: str, upstream: str) -> None:
    """Rules 53, 135: what the caller has seen before the markup stays as it was; the retry adds its call, no text."""
    bad, better = Turn(Say(PROSE + OPEN)), Turn(Say("Here it is."), Call("get_weather", {"city": "Paris"}))
    body = arriving(caller, upstream, stream=True)
    before = b"".join(stream_reply(bad, Wire(upstream), body, Stamp(0))).index(b"<invoke")
    with (
        ScriptedUpstream([Hang(bad, before), better], strict=True) as scripted,
        RunningGateway(f"{upstream}={scripted.base_url}") as gateway,
    ):
        outcome = ask_slowly(gateway.url, caller, request(caller, stream=True), b"look.", scripted.release)
        assert [one.body for one in scripted.requests] == [body, body]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, PROSE, CALLED)
    assert b"Here it is" not in outcome.raw
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_held_text_of_a_discarded_attempt_is_never_seen(stage: Stage, caller: str, upstream: str) -> None:
    """Rule 53: with `hold` not even the text before the markup reaches the caller; the retry is the whole reply."""
    bad, better = Turn(Say(PROSE + OPEN)), Turn(Say("Here it is."), Call("get_weather", {"city": "Paris"}))
    asked = {**request(caller, stream=True), "mustcall": {"hold": True}}
    outcome = stage.play(bad, better, chunking=5).ask(caller, asked, upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=True)] * 2
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "Here it is.", CALLED)
    assert PROSE.strip().encode() not in outcome.raw
    check_no_trace(outcome.raw)


@pytest.mark.parametrize("wire", WIRES)
def test_ordinary_text_is_not_held(stage: Stage, wire: str) -> None:
    """Rule 53: text that only looks like markup for a while comes out whole, at every chunking."""
    text = "If a < b then <b>invoke</b> it: 3 <in 4, [TOOL"
    for size in (1, 3, 17, 4096):
        outcome = stage.play(Turn(Say(text)), chunking=size).ask(wire, request(wire, stream=True))
        assert stage.bodies == [request(wire, stream=True)]
        assert (outcome.text, outcome.finish) == (text, "stop")


@pytest.mark.parametrize("stored", [True, False])
def test_stored_reply_is_not_continued(stored: bool) -> None:
    """Rule 53: what the upstream stores under an id already sent is not continued by another: an error ends it."""
    body = request("responses", stream=True, store=stored)
    bad = Turn(Say(PROSE + OPEN))
    whole = b"".join(stream_reply(bad, Wire.RESPONSES, body, Stamp(0)))
    with (
        ScriptedUpstream([Hang(bad, whole.index(b"<invoke")), GOOD], strict=True) as upstream,
        RunningGateway(f"responses={upstream.base_url}") as gateway,
    ):
        outcome = ask_slowly(gateway.url, "responses", body, b"look.", upstream.release)
        assert [one.body for one in upstream.requests] == [body] * (1 if stored else 2)
    assert outcome.text.strip() == PROSE.strip()
    assert outcome.calls == (() if stored else CALLED)
    assert outcome.message.startswith("TextToolCallError: " if stored else "")
    check_no_trace(outcome.raw)
