"""Rule 141 through a real gateway with the official SDKs: each row of the table on every wire, streamed and not.

What a row costs is counted at the upstream: nothing for reading and coercion, one call for the retry. What the
SDKs asked is compared there as whole bodies.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from mustcall.policy.schema.repairs import TABLE, Repair
from mustcall.policy.schema.repairs import Stage as Order
from mustcall.testing import Answer, Call, Say, Turn
from rules.asked import expect_asked
from rules.driving import GRID, WORDS, Stage, request, stranger
from support.sdk import Ask, Failure, Seen, ask

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "direct": {"type": "boolean"}},
    "required": ["city"],
    "additionalProperties": False,
}
FREE: dict[str, Any] = {**CITY, "required": []}
GOOD = {"city": "Oslo"}
KIND = {Order.READ: "arguments_read", Order.COERCE: "arguments_coerced", Order.SALVAGE: "arguments_salvaged"}
#: What is said of the example of a lossy row: the field and what it takes, nothing of what was written.
MISFIT = {
    name: WORDS.bad_arguments.format(problem=f"plan: top level: {problem}")
    for name, problem in {
        "undeclared_dropped": "no fields but city, days, direct",
        "brackets_closed": "complete JSON, which ended too early",
    }.items()
}
#: A whole Messages reply holds arguments as JSON: what is none, or a string, is an object there already.
SILENT = {"empty", "json_string"}

Way = tuple[str, str, bool]
grid = pytest.mark.parametrize("way", GRID, ids=lambda way: f"{way[0]}-{way[1]}-{'stream' if way[2] else 'whole'}")


def rows(*stages: Order) -> list[Repair]:
    """The rows of some stages."""
    return [row for row in TABLE if row.stage in stages]


def turn(arguments: str | dict[str, Any]) -> Turn:
    """A reply that calls the tool of the table's examples."""
    return Turn(Call("plan", arguments))


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Gateways that all turns of the module share."""
    with Stage(compares=True) as shared:
        yield shared


class Asked:
    """Turns taken by an SDK of one wire before an upstream of another, or the same."""

    def __init__(self, stage: Stage, way: Way) -> None:
        self._stage = stage
        self._caller, self._upstream, self._stream = way
        self._last = Ask()

    def ask(
        self, *script: Answer, schema: Mapping[str, Any] = CITY, **options: Any
    ) -> tuple[Seen | Failure, list[str]]:
        """Ask once, and return what the client saw and which adaptations it was told of."""
        heard: dict[str, str] = {}
        self._stage.play(*script)
        asked = Ask(model=stranger(), tools=(("plan", dict(schema)),), heard=heard, **options)
        seen = ask(self._caller, self._stage.url(self._upstream), asked, stream=self._stream)
        self._last = asked
        told = heard.get("x-mustcall-adaptations", "")
        return seen, [entry for entry in told.split(", ") if entry.startswith("arguments_")]

    def check_sent(self, *reminders: str, about: str) -> None:
        """The upstream got the last question, and then the question with each of these reminders in its place.

        A call that nothing is known to enforce is streamed, whoever asks (rule 137).
        """
        stream = self._stream or self._last.choice is not None
        said = [(), *((reminder,) for reminder in reminders)]
        expected = [expect_asked(self._caller, self._upstream, self._last, *added, stream=stream) for added in said]
        assert self._stage.bodies == expected, about


def calls_of(seen: Seen | Failure) -> list[tuple[str, dict[str, Any]]]:
    """The calls a client would run."""
    assert isinstance(seen, Seen), seen
    return [(name, arguments) for _, name, arguments in seen.calls]


@grid
def test_reading_and_coercion_cost_nothing(stage: Stage, way: Way) -> None:
    """Rules 131, 141: each row of (a) and (b) is delivered as the table says, reported by its name, in one call."""
    asked = Asked(stage, way)
    for row in rows(Order.READ, Order.COERCE):
        seen, told = asked.ask(turn(row.written), schema=FREE if row.name == "empty" else CITY)
        assert calls_of(seen) == [("plan", json.loads(row.delivered))], row.name
        asked.check_sent(about=row.name)
        if way[1] != "messages" or row.name not in SILENT:
            assert told == [f"{KIND[row.stage]}:plan:{row.name}"], row.name


@grid
def test_a_retry_comes_before_a_salvage(stage: Stage, way: Way) -> None:
    """Rule 141: (c) is one call, and what it brings is delivered with no word of a salvage."""
    asked = Asked(stage, way)
    for row in rows(Order.SALVAGE):
        seen, told = asked.ask(turn(row.written), turn(GOOD))
        assert (calls_of(seen), told) == ([("plan", GOOD)], []), row.name
        asked.check_sent(MISFIT[row.name], about=row.name)


@grid
def test_a_salvage_follows_the_retry(stage: Stage, way: Way) -> None:
    """Rule 141: where the retry is no better, (d) delivers what is left, and says what it did."""
    asked = Asked(stage, way)
    for row in rows(Order.SALVAGE):
        seen, told = asked.ask(turn(row.written), turn(row.written))
        assert calls_of(seen) == [("plan", json.loads(row.delivered))], row.name
        assert told == [f"arguments_salvaged:plan:{row.name}"]
        asked.check_sent(MISFIT[row.name], about=row.name)


@grid
def test_what_is_cut_in_a_string_is_an_error(stage: Stage, way: Way) -> None:
    """Rules 123, 141: a string cut in the middle is never completed, whatever the finish says."""
    asked = Asked(stage, way)
    for written in ('{"city": "Ro', '{"city": "Rome", "days": 1', '{"city": "Rome",', "{'city': 'Ro"):
        seen, _ = asked.ask(turn(written), turn(written))
        assert isinstance(seen, Failure), written
        asked.check_sent(WORDS.truncated, about=written)


@grid
def test_a_reply_that_ended_by_length_is_not_closed(stage: Stage, way: Way) -> None:
    """Rules 40, 141: brackets that the token limit cut off are not added."""
    asked = Asked(stage, way)
    cut = Turn(Call("plan", '{"city": "Rome"'), finish="length")
    seen, _ = asked.ask(cut, cut)
    assert isinstance(seen, Failure)
    asked.check_sent(WORDS.truncated, about="length")


@grid
def test_a_forced_call_is_repaired(stage: Stage, way: Way) -> None:
    """Rules 137, 141: the same under a force, where (a) costs nothing and (d) one call."""
    asked = Asked(stage, way)
    seen, _ = asked.ask(turn("{'city': 'Rome',}"), choice="plan")
    assert calls_of(seen) == [("plan", {"city": "Rome"})]
    asked.check_sent(about="read")
    seen, _ = asked.ask(*[turn('{"city": "Rome", "mood": "good"}')] * 2, choice="plan")
    assert calls_of(seen) == [("plan", {"city": "Rome"})]
    asked.check_sent(MISFIT["undeclared_dropped"], about="salvaged")


@grid
def test_text_before_a_repaired_call_stays(stage: Stage, way: Way) -> None:
    """Rules 113, 135, 141: what was streamed before the call is not said twice, whichever stage repairs it."""
    asked = Asked(stage, way)
    say = Say("Let me look.")
    seen, told = asked.ask(Turn(say, Call("plan", "{'city': 'Rome',}")))
    assert calls_of(seen) == [("plan", {"city": "Rome"})]
    asked.check_sent(about="read")
    assert told in ([], ["arguments_read:plan:trailing_comma", "arguments_read:plan:single_quotes"][::-1])
    assert isinstance(seen, Seen)
    assert seen.text == say.text
    again = Turn(say, Call("plan", '{"city": "Rome"'))
    seen, _ = asked.ask(again, again)
    assert calls_of(seen) == [("plan", {"city": "Rome"})]
    asked.check_sent(MISFIT["brackets_closed"], about="salvaged")
    assert isinstance(seen, Seen)
    assert seen.text == say.text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("upstream", ["chat", "messages"])
@pytest.mark.parametrize("name", ["patch", "functions.patch"])
def test_the_stand_in_of_a_custom_tool_is_repaired(stage: Stage, upstream: str, stream: bool, name: str) -> None:
    """Rules 141, 142: a custom tool crosses as a function; what it is given is read by the same table."""
    body = request("responses", model=stranger(), tools=(), stream=stream)
    body |= {"tools": [{"type": "custom", "name": "patch", "description": "Free text."}]}
    for written in ('{"input": "a\nb"}', "{'input': 'a\\nb',}", '{"arguments": {"input": "a\\nb"}}'):
        got = stage.play(Turn(Call(name, written))).ask("responses", body, upstream)
        assert len(stage.bodies) == 1, written
        events = [json.loads(line[6:]) for line in got.raw.splitlines() if line.startswith(b"data: ")]
        (item,) = (events[-1]["response"] if stream else json.loads(got.raw))["output"]
        assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", "a\nb"), written
