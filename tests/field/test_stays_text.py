"""Text that must stay text, and its counterpart: replies that are calls because they stand alone."""

import jsonschema_rs
import pytest

from field.corpus import Case, read_cases
from mustcall.policy.facts.profile import Protocol
from support.replaying import CHUNKINGS, Outcome, ReplyText, assert_none, chat_body, replay

STAYS_TEXT = list(read_cases("stays_text"))
ARE_CALLS = list(read_cases("are_calls"))
#: Whole, and streamed in small pieces and line by line.
CUTS = (None, "3", "lines")

protocols = pytest.mark.parametrize("protocol", [Protocol.HYBRID, Protocol.PROMPT])
cuts = pytest.mark.parametrize("cut", CUTS, ids=["whole", "3", "lines"])


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


@protocols
@cuts
async def test_stays_text(protocol: Protocol, cut: str | None) -> None:
    """Rules 63, 122: none of these is a call, and each is delivered as it was written, in one upstream request."""
    found: list[str | None] = []
    for case in STAYS_TEXT:
        outcome = await take(case, protocol, cut)
        if outcome != Outcome(text=case.text, finish="stop", requests=1):
            found.append(f"{case.id}: {outcome}")
    assert_none(found)


@protocols
@cuts
async def test_are_calls(protocol: Protocol, cut: str | None) -> None:
    """Rules 63, 137: each of these is its calls, none of the JSON is shown, in one upstream request."""
    found: list[str | None] = []
    for case in ARE_CALLS:
        outcome = await take(case, protocol, cut)
        shown = "{" in outcome.text or "`" in outcome.text.replace(f"`{case.tools[0]['name']}`", "")
        forced = case.choice != "auto"
        got = outcome.calls[:1] if forced else outcome.calls
        if (got, outcome.requests) != (case.calls, 1) or shown:
            found.append(f"{case.id}: {outcome}")
    assert_none(found)
