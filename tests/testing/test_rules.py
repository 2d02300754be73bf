"""Every strict rule of every wire, on requests it lets through and on requests it refuses, as the tables say."""

from typing import Any

import pytest

from mustcall.testing.rules import RULES, SeenRequest, find_violation
from support import rules_chat, rules_messages, rules_responses

TABLES: list[Any] = [rules_chat, rules_messages, rules_responses]


def rows(*, passing: bool) -> list[Any]:
    """Return one case per request of the tables."""
    return [
        pytest.param(table, rule, body, id=f"{table.WIRE}-{rule}-{number}")
        for table in TABLES
        for rule, good, bad in table.TABLE
        for number, body in enumerate(good if passing else bad)
    ]


@pytest.mark.parametrize(("table", "rule", "body"), rows(passing=True))
def test_rules_let_good_requests_pass(table: Any, rule: str, body: dict[str, Any]) -> None:
    """No rule of the wire objects to a request that is right, whichever rule it was written for."""
    assert rule
    assert find_violation(table.WIRE, SeenRequest(body, table.KEYS, table.ISSUED)) is None


@pytest.mark.parametrize(("table", "rule", "body"), rows(passing=False))
def test_rules_refuse_bad_requests(table: Any, rule: str, body: dict[str, Any]) -> None:
    """The rule a request breaks is the one that answers, with a 400 that says something; waived, it is silent."""
    found = find_violation(table.WIRE, SeenRequest(body, table.KEYS, table.ISSUED))
    assert found is not None
    assert (found[0], found[1].status) == (rule, 400)
    assert len(found[1].message) > 20 or "required" in found[1].message
    again = find_violation(table.WIRE, SeenRequest(body, table.KEYS, table.ISSUED), waived={rule})
    assert again is None or again[0] != rule


@pytest.mark.parametrize(("table", "junk"), [(table, junk) for table in TABLES for junk in table.JUNK])
def test_rules_survive_junk(table: Any, junk: dict[str, Any]) -> None:
    """A request of the wrong shape is refused, not crashed on."""
    assert find_violation(table.WIRE, SeenRequest(junk, table.KEYS)) is not None
    assert find_violation(table.WIRE, SeenRequest(table.HALF | junk, table.KEYS)) is not None


@pytest.mark.parametrize("table", TABLES)
def test_every_rule_has_its_rows(table: Any) -> None:
    """The tables leave no rule out; those on headers have a test of their own."""
    on_headers = {"needs_api_key", "needs_version"}
    assert {rule for rule, _, _ in table.TABLE} == {rule.__name__ for rule in RULES[table.WIRE]} - on_headers


def test_messages_needs_its_headers() -> None:
    """Without a key it is a 401, without a version a 400; a bearer token is a key."""
    version = {"anthropic-version": "2023-06-01"}
    wire, body = rules_messages.WIRE, rules_messages.messages()
    refused = [find_violation(wire, SeenRequest(body, headers)) for headers in ({}, version, {"x-api-key": "k"})]
    assert [found and (found[0], found[1].status) for found in refused] == [
        ("needs_api_key", 401),
        ("needs_api_key", 401),
        ("needs_version", 400),
    ]
    assert find_violation(wire, SeenRequest(body, version | {"authorization": "Bearer t"})) is None
