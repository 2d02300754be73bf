"""Which facts a result settles: every one is a value that its field may have, and says no more than the tries do."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.tools import ChoiceMode
from mustcall.policy.facts.profile import Forcing, Protocol
from mustcall.probe import profile_of
from mustcall.probe.catalogue import CELLS
from mustcall.probe.catalogue.limits import limit_in
from mustcall.probe.facts import RULES, facts_of
from mustcall.probe.results import CellResult, ProbeResult
from mustcall.probe.values import Level, Outcome
from mustcall.probe.verdicts import count, settle_verdict
from mustcall.testing.probed import Lie, LyingServer, find_lie, ways
from mustcall.testing.probed.lying import ProbedRequest
from support.probing import measure

H, N, R, C, U = Outcome.HELD, Outcome.NOT_DONE, Outcome.REFUSED, Outcome.CRASHED, Outcome.UNMEASURED


def measured(outcomes: dict[str, list[Outcome]]) -> ProbeResult:
    """Return a result in which these cells came out so."""
    known = {cell.id: cell for cell in CELLS}
    return ProbeResult(
        upstream="up",
        base_url="http://127.0.0.1:9/v1",
        wire=Wire.CHAT,
        model="m",
        level=Level.DEFAULT,
        started="2026-11-17T09:00:00+00:00",
        cells=tuple(
            CellResult(
                id=name,
                guarantee=known[name].guarantee,
                group=known[name].group,
                required=known[name].required,
                verdict=settle_verdict(each),
                owner=known[name].duty if N in each else None,
                outcomes=tuple(each),
                held=count(each).hits,
                measured=count(each).of,
            )
            for name, each in outcomes.items()
        ),
    )


@given(
    st.dictionaries(
        st.sampled_from([cell.id for cell in CELLS]), st.lists(st.sampled_from(Outcome), max_size=12), max_size=20
    )
)
def test_every_fact_is_one_that_a_profile_takes(outcomes: dict[str, list[Outcome]]) -> None:
    """Any result makes a legal profile; a field has a rule and is stated once; its counts are tries that were made."""
    result = measured(outcomes)
    profile = profile_of(result)
    assert {fact.field for fact in profile.facts} <= RULES.keys()
    made = sum(count(each).of for each in outcomes.values())
    assert all(0 <= fact.held <= fact.of <= made for fact in profile.facts)


def test_nothing_measured_settles_nothing() -> None:
    """No tries, no facts; nor do tries that taught nothing."""
    assert facts_of(measured({})) == ()
    assert facts_of(measured({cell.id: [U, U, U] for cell in CELLS})) == ()


@pytest.mark.parametrize(
    ("outcomes", "field", "value"),
    [
        ({"required": [H] * 6, "required+reasoning": [H] * 6}, "forced", Forcing.ALWAYS),
        ({"required": [H] * 6, "required+reasoning": [R, R]}, "forced", Forcing.WITHOUT_REASONING),
        ({"required": [H] * 6, "required+reasoning": [N] * 6}, "forced", Forcing.WITHOUT_REASONING),
        ({"required": [N] * 6}, "forced", Forcing.IGNORED),
        ({"required": [H, N, H]}, "forced", Forcing.IGNORED),
        ({"auto": [H], "required": [R] * 3}, "forced", Forcing.NEVER),
        ({"required": [H] * 6}, "forced", None),  # what it does while reasoning is not known
        ({"required": [N]}, "forced", None),  # one try is none
        ({"required": [H] * 6, "named": [N] * 6}, "named", False),
        ({"required": [N] * 6, "named": [N] * 6}, "named", None),
        ({"required": [H] * 6, "required+stream": [N] * 6}, "streams_forced", False),
        ({"stop": [H], "auto": [R, R]}, "protocol", Protocol.PROMPT),
        ({"auto": [H] * 4}, "protocol", None),
        ({"parallel.off": [N] * 4}, "parallel", False),
        ({"format": [H] * 6}, "schema_output", True),
        ({"auto": [H], "format": [R, R]}, "schema_output", False),
        ({"required": [R] * 3, "format": [R, R]}, "forced", None),
        ({"tools.128": [R], "tools.32": [H]}, "most_tools", 32),
        ({"strict": [H] * 73, "arguments": [H] * 100}, "trusted_arguments", True),
        ({"strict": [H] * 73, "arguments": [H] * 20}, "trusted_arguments", None),
    ],
)
def test_what_a_cell_settles(outcomes: dict[str, list[Outcome]], field: str, value: object) -> None:
    """The table of fields, row by row."""
    found = {fact.field: fact.value for fact in facts_of(measured(outcomes))}
    assert found.get(field) == value


def found_by(name: str, *only: str) -> dict[str, object]:
    """Return the facts that a probe of a lying server settles."""
    lie = find_lie(name)
    cells = {lie.breaks, "none", *only}
    return {fact.field: fact.value for fact in facts_of(asyncio.run(measure(LyingServer(lie), lie.wire, only=cells)))}


@pytest.mark.parametrize(
    ("lie", "only", "field", "value"),
    [
        ("cuts_prompts", (), "context_length", 2_048),
        ("cuts_names", (), "name_length", 32),
        ("folds_names", (), "name_pattern", "^[a-z0-9_]+$"),
        ("refuses_returned_reasoning", ("reasoning.dropped",), "reasoning_history", "drop"),
        ("forgets_previous_response", (), "stateful", False),
        ("stores_nothing", (), "stateful", False),
        ("crashes_streaming_tools", ("required",), "streams", False),
    ],
)
def test_what_a_lie_settles(lie: str, only: tuple[str, ...], field: str, value: object) -> None:
    """Limits of names and contexts, reasoning that is not taken back, replies that are not kept, streams that break."""
    assert found_by(lie, *only).get(field) == value


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in 15000 tokens.", 8_192),
        ("request (15463 tokens) exceeds the available context size (4096 tokens), try increasing it", 4_096),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
        ("input is too long for this model", None),
    ],
)
def test_a_refusal_names_the_context(message: str, tokens: int | None) -> None:
    """The limit as OpenAI and vLLM, llama.cpp and Anthropic write it; not the length of the prompt."""
    assert limit_in(message) == tokens


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("refuses_long_ids", {"id_pattern": "^[a-zA-Z0-9_-]+$", "id_length": 9}),
        ("refuses_odd_ids", {"id_pattern": "^[a-zA-Z0-9]+$"}),
        ("wants_ids_of_nine_letters", {"id_pattern": "^[a-zA-Z0-9]{9}$", "id_length": 9}),
    ],
)
def test_call_ids_that_are_refused_settle_what_ids_must_look_like(name: str, facts: dict[str, object]) -> None:
    """A limit of the length comes with a pattern, without which it is not applied; nothing else is settled of ids."""
    assert id_facts(find_lie(name)) == facts


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (ways.NONE, "tool_choice 'none' is not supported"),
        (ways.has_id(lambda _: True), "tool messages are not supported"),
        (ways.chooses(ChoiceMode.AUTO), "tool_choice 'auto' is not supported"),
    ],
)
def test_a_refusal_of_something_else_settles_nothing_of_ids(
    test: Callable[[ProbedRequest], bool], message: str
) -> None:
    """Rule 75: a server that refuses a choice, or every history with tools, says nothing of what ids look like."""
    refuses = Lie(name="refuses", breaks="none", owner="server", sends=ways.fails(test, 400, message))
    assert id_facts(refuses) == {}


def id_facts(lie: Lie) -> dict[str, object]:
    """Return the facts of ids that a probe of a lying server settles."""
    cells = ["id.long", "id.odd", "none", "required", "result.round_trip"]
    result = asyncio.run(measure(LyingServer(lie), Wire.CHAT, only=cells))
    return {fact.field: fact.value for fact in facts_of(result) if fact.field.startswith("id_")}
