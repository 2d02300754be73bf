"""What `explain` shows is what a turn sends, on every wire and rung."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import CallerError
from mustcall.core.origin import Wire
from mustcall.engine.explaining import explain, guess_wire
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.policy.facts.controls import Controls, Limits
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.request.plan import RungKind
from mustcall.policy.words.grounding import GroundingRule
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.compared import leave
from support.http import post

PATHS = {Wire.CHAT: "/v1/chat/completions", Wire.RESPONSES: "/v1/responses", Wire.MESSAGES: "/v1/messages"}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = {"role": "user", "content": "Weather in Paris?"}

#: A forced request on each wire, with a history that needs mending on one of them.
FORCED: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {
        "messages": [
            {"role": "user", "content": ""},
            {"role": "assistant", "content": "", "tool_calls": []},
            QUESTION,
        ],
        "tools": [
            {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
            {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
    },
    Wire.RESPONSES: {
        "input": [QUESTION],
        "tools": [{"type": "function", "name": "get_weather", "parameters": CITY, "strict": False}],
        "tool_choice": "required",
    },
    Wire.MESSAGES: {
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "messages": [QUESTION],
        "tools": [{"name": "get_weather", "input_schema": CITY}, {"name": "other", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "get_weather"},
    },
}
#: One model of each kind of ladder.
MODELS = ("claude-sonnet-4-5", "claude-opus-5-5", "gpt-4o", "glm-4.6", "claude-2.1", "nobody-knows")

STAMPS = frozenset({"id", "status", "annotations", "logprobs"})

RULE = GroundingRule(name="weather", triggers="weather", tool="get_weather", directive="Look it up first.")


def settle(
    body: Mapping[str, Any], wire: Wire, upstream: ScriptedUpstream, flag: str, operator: OperatorSettings
) -> tuple[list[Any], list[Any]]:
    """Return the bodies that were shown, and those a gateway sent to an upstream that never calls the tool."""
    leave(upstream, "what was sent is compared with what is shown, both without a provider's stamps")
    endpoint = settings_from_flags(flag).endpoints[0]
    shown = [rung.body for rung in explain(json.dumps(body).encode(), wire, endpoint, body["model"], operator).rungs]
    with RunningGateway(flag, operator=operator) as gateway:
        post(gateway.url + PATHS[wire], dict(body))
    sent = [request.body for request in upstream.requests[: len(shown)]]
    return [unstamped(one) for one in shown], [unstamped(one) for one in sent]


def unstamped(value: Any) -> Any:
    """Return a body without what a provider stamps on its own answers, which nobody can foretell."""
    if isinstance(value, list):
        return [unstamped(item) for item in cast("list[Any]", value)]  # JSON knows no item type
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    return {name: unstamped(item) for name, item in fields.items() if name not in STAMPS}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("upstream_wire", Wire)
@pytest.mark.parametrize("wire", Wire)
def test_what_is_shown_is_sent(wire: Wire, upstream_wire: Wire, model: str) -> None:
    """Rules 20, 23, 28, 118: each rung's body is the one a turn sends there, with the answers before it in context."""
    script = [Turn(Say(f"(what the model said in attempt {number})")) for number in range(1, 8)]
    with ScriptedUpstream(script, strict=False) as upstream:
        flag = f"{upstream_wire}={upstream.base_url}"
        shown, sent = settle({"model": model, **FORCED[wire]}, wire, upstream, flag, OperatorSettings())
    assert shown == sent


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize(
    "operator",
    [
        OperatorSettings(controls=Controls(force_tools=True)),
        OperatorSettings(controls=Controls(protocol=Protocol.PROMPT)),
        OperatorSettings(controls=Controls(protocol=Protocol.OFF)),
        OperatorSettings(controls=Controls(limits=Limits(extra_calls=1))),
        OperatorSettings(rules=(RULE,)),
    ],
    ids=["forced", "prompt", "off", "one extra call", "grounded"],
)
def test_settings_are_seen(wire: Wire, operator: OperatorSettings) -> None:
    """Rules 9, 12, 71, 96: settings, limits and grounding rules shape what is shown as they shape what is sent."""
    body = {"model": "nobody-knows", **FORCED[wire]}
    if operator.rules or operator.controls.force_tools:
        del body["tool_choice"]
    script = [Turn(Say(f"(what the model said in attempt {number})")) for number in range(1, 8)]
    with ScriptedUpstream(script, strict=False) as upstream:
        shown, sent = settle(body, wire, upstream, f"{wire}={upstream.base_url}", operator)
    assert shown == sent


ANSWERS: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {"response_format": {"type": "json_schema", "json_schema": {"name": "w", "schema": CITY}}},
    Wire.RESPONSES: {"text": {"format": {"type": "json_schema", "name": "w", "schema": CITY}}},
    Wire.MESSAGES: {"output_config": {"format": {"type": "json_schema", "schema": CITY}}},
}


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "claude-3-5-haiku", "claude-2.1", "gpt-4o", "nobody-knows"])
@pytest.mark.parametrize("upstream_wire", Wire)
@pytest.mark.parametrize("wire", Wire)
def test_answers_beside_tools_are_shown_as_sent(wire: Wire, upstream_wire: Wire, model: str) -> None:
    """Rule 91: how a structured answer is asked for beside tools is shown as it is done, kept replies included."""
    body = {"model": model, **FORCED[wire], **ANSWERS[wire]}
    del body["tool_choice"]
    with ScriptedUpstream(default=Turn(Say('{"city": "Paris"}')), strict=False) as upstream:
        shown, sent = settle(body, wire, upstream, f"{upstream_wire}={upstream.base_url}", OperatorSettings())
    assert shown == sent


def test_untouched() -> None:
    """Rule 105: a request that needs nothing is said to be sent as it is."""
    endpoint = settings_from_flags("chat=http://upstream.invalid/v1").endpoints[0]
    body = json.dumps({"model": "m", "messages": [QUESTION], "mine": 1}).encode()
    (rung,) = explain(body, Wire.CHAT, endpoint, "m", OperatorSettings()).rungs
    assert rung.untouched
    assert rung.rung.kind is RungKind.PLAIN
    (renamed,) = explain(body, Wire.CHAT, endpoint, "n", OperatorSettings()).rungs
    assert not renamed.untouched
    assert renamed.body == {"model": "n", "messages": [QUESTION], "mine": 1}


def test_mended() -> None:
    """Rules 101, 103: what is mended is told apart from what a rung does."""
    endpoint = settings_from_flags("chat=http://upstream.invalid/v1").endpoints[0]
    body = json.dumps({"model": "m", **FORCED[Wire.CHAT]}).encode()
    explained = explain(body, Wire.CHAT, endpoint, "m", OperatorSettings())
    assert [f"{entry.kind} {entry.subject}" for entry in explained.mended] == [
        "history_mended assistant",
        "history_mended user",
    ]
    for rung in explained.rungs:
        assert not any(entry.kind == "history_mended" for entry in rung.adaptations)


GUESSES: list[tuple[dict[str, Any], Wire]] = [
    ({"input": "hi"}, Wire.RESPONSES),
    ({"messages": []}, Wire.CHAT),
    ({"messages": [], "system": "x"}, Wire.MESSAGES),
    ({"messages": [], "tools": [{"name": "f", "input_schema": {}}]}, Wire.MESSAGES),
    ({"messages": [], "tool_choice": {"type": "any"}}, Wire.MESSAGES),
    ({"messages": [], "tool_choice": {"type": "function", "function": {"name": "f"}}}, Wire.CHAT),
    ({"messages": [], "tool_choice": {"type": 1}}, Wire.CHAT),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, Wire.MESSAGES),
    ({"messages": [{"role": "user", "content": 'say "tool_result"'}]}, Wire.CHAT),
    ({"messages": [], "model": "claude-sonnet-4-5", "max_tokens": 5}, Wire.MESSAGES),
    ({"messages": [], "model": "claude-sonnet-4-5"}, Wire.CHAT),
    ({"messages": [], "thinking": {}, "tools": [{"type": "function", "function": {}}]}, Wire.CHAT),
    ({}, Wire.CHAT),
]


@pytest.mark.parametrize(("body", "wire"), GUESSES)
def test_guess(body: dict[str, Any], wire: Wire) -> None:
    """A wire is known by what only it has; what could be either is taken for the common one."""
    assert guess_wire(json.dumps(body).encode()) is wire


NAMES = st.sampled_from(["messages", "input", "tools", "tool_choice", "model", "type", "role", "content"])
JSON = st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner))


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body(body: bytes) -> None:
    """Whatever the body is, it is explained or refused as the caller's fault."""
    endpoint = settings_from_flags("chat=http://upstream.invalid/v1").endpoints[0]
    with suppress(CallerError):
        assert explain(body, guess_wire(body), endpoint, "m", OperatorSettings()).rungs
