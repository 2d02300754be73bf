"""Text that must stay text, and its counterpart: replies that are calls because they stand alone."""

from itertools import groupby

import jsonschema_rs
import pytest

from field.corpus import Case, read_cases
from mustcall.policy.facts.profile import Protocol
from support.examples import PROFILE
from support.replaying import CHUNKINGS, Outcome, ReplyText, assert_none, chat_body, replay

STAYS_TEXT = list(read_cases("stays_text"))
ARE_CALLS = list(read_cases("are_calls"))
#: Whole, and streamed in small pieces and line by line.
CUTS = (None, "3", "lines")

PROTOCOLS = (Protocol.HYBRID, Protocol.PROMPT)

protocols = pytest.mark.parametrize("protocol", PROTOCOLS)
cuts = pytest.mark.parametrize("cut", CUTS, ids=["whole", "3", "lines"])


def shared(cases: list[Case], protocol: Protocol, cut: str | None) -> list[Case]:
    """Return the cases to take in this way: under `ci` the subjects of a shape share the ways, `deep` takes all."""
    if PROFILE != "ci":
        return cases
    turn = PROTOCOLS.index(protocol) + CUTS.index(cut)
    taken: list[Case] = []
    for _, group in groupby(cases, lambda case: case.id.rpartition("/")[0]):
        subjects = list(group)
        taken += [case for number, case in enumerate(subjects) if (turn + number) % len(subjects) == 0]
    return taken


async def take(case: Case, protocol: Protocol, cut: str | None) -> Outcome:
    """Take the turn of a case."""
    return await replay(
        chat_body([{"role": "user", "content": case.user}], case.tools, case.choice),
        ReplyText(case.text, case.finish),
        chunking=None if cut is None else CHUNKINGS[cut],
        protocol=protocol,
    )


def test_corpus_is_sound() -> None:
    """There are as many cases as promised, under ids of their own, with no mark left and valid calls."""
    assert len(STAYS_TEXT) >= 500
    assert len(ARE_CALLS) >= 250
    every = [*STAYS_TEXT, *ARE_CALLS]
    for cases in (STAYS_TEXT, ARE_CALLS):
        assert len({case.id for case in cases}) == len({(case.user, case.text) for case in cases}) == len(cases)
    for case in every:
        schemas = {tool["name"]: tool["parameters"] for tool in case.tools}
        assert all(jsonschema_rs.is_valid(schemas[name], arguments) for name, arguments in case.calls), case.id
        assert not [word for word in (case.user + case.text).split() if word[0] == word[-1] == "@"], case.id


@pytest.mark.parametrize("cases", [STAYS_TEXT, ARE_CALLS], ids=["stays text", "are calls"])
def test_every_shape_is_taken_in_every_way(cases: list[Case]) -> None:
    """Each shape of a reply meets both protocols and every cut, in one subject at least."""
    shapes = {case.id.rpartition("/")[0] for case in cases}
    for protocol in PROTOCOLS:
        for cut in CUTS:
            assert {case.id.rpartition("/")[0] for case in shared(cases, protocol, cut)} == shapes


@protocols
@cuts
async def test_stays_text(protocol: Protocol, cut: str | None) -> None:
    """Rules 63, 122: none of these is a call, and each is delivered as it was written, in one upstream request."""
    found: list[str | None] = []
    for case in shared(STAYS_TEXT, protocol, cut):
        outcome = await take(case, protocol, cut)
        if outcome != Outcome(text=case.text, finish="stop", requests=1):
            found.append(f"{case.id}: {outcome}")
    assert_none(found)


@protocols
@cuts
async def test_are_calls(protocol: Protocol, cut: str | None) -> None:
    """Rules 63, 137: each of these is its calls, none of the JSON is shown, in one upstream request."""
    found: list[str | None] = []
    for case in shared(ARE_CALLS, protocol, cut):
        outcome = await take(case, protocol, cut)
        shown = "{" in outcome.text or "`" in outcome.text.replace(f"`{case.tools[0]['name']}`", "")
        forced = case.choice != "auto"
        got = outcome.calls[:1] if forced else outcome.calls
        if (got, outcome.requests) != (case.calls, 1) or shown:
            found.append(f"{case.id}: {outcome}")
    assert_none(found)
