"""Upstreams as library users write them, and agents that cannot be made."""

import json
from typing import Any

import pytest

from mustcall import Agent, Controls, OnUnmet, Upstream
from mustcall.core.errors import ConfigError, ForceUnmet
from mustcall.core.origin import Wire
from mustcall.policy.facts.wording import Wording
from mustcall.policy.words.grounding import GroundingRule
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Say, ScriptedUpstream, Turn
from mustcall.testing.render import Stamp, build_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.endpoint import Endpoint
from support.agent_ladder import ladder
from support.agents import get_weather


def test_addresses() -> None:
    """A wire and a URL, with a name or the host's."""
    plain = Upstream("chat=http://127.0.0.1:9000/v1/", model="m").endpoint
    assert (plain.name, plain.wire, plain.base_url) == ("127.0.0.1:9000", Wire.CHAT, "http://127.0.0.1:9000/v1")
    named = Upstream("mine:messages=https://example.org/v1", model="m", api_key="k", headers={"x-a": "b"}).endpoint
    assert (named.name, named.wire, named.api_key, named.headers) == ("mine", Wire.MESSAGES, "k", {"x-a": "b"})
    assert "k'" not in repr(Upstream("chat=http://h/v1", model="m", api_key="k"))


def test_an_address_can_name_the_model() -> None:
    """`#model` behind the URL, as on the command line; a planner and an agent need no more than the text."""
    named = Upstream("mine:chat=http://h/v1#org/model:7b")
    assert (named.endpoint.base_url, named.endpoint.name, named.model) == ("http://h/v1", "mine", "org/model:7b")
    assert Upstream("chat=http://h/v1#one", model="other").model == "other"
    agent = Agent("chat=http://h/v1#one", planner="chat=http://h/v1#two")
    assert agent.planner is not None
    assert (agent.model, agent.planner.model) == ("one", "two")


@pytest.mark.parametrize(
    "where",
    [
        "http://h/v1",
        "smoke=http://h/v1",
        "chat=",
        "chat=h",
        "chat=ftp:/x",
        "chat=ftp://h/v1",
        "chat=http:/h/v1",
        "chat=EMBEDDED:",
        "chat=http://u:p@h/v1",
        "chat=http://h:x/v1",
        "chat=http://h/v1?a=b",
        "chat=http://h/v1/chat/completions",
        "mine:messages=http://u@h/v1",
    ],
)
def test_bad_addresses(where: str) -> None:
    """What cannot be called is said when the upstream is made."""
    with pytest.raises(ConfigError):
        Upstream(where, model="m")


def test_secrets_are_not_repeated() -> None:
    """A password in a URL is refused without being printed."""
    with pytest.raises(ConfigError) as raised:
        Upstream("chat=http://user:hunter2@h/v1", model="m")
    assert "hunter2" not in raised.value.message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": None}, "no model"),
        ({"max_steps": 0}, "max_steps"),
        ({"concurrency": 0}, "concurrency"),
        ({"timeout": 0}, "timeout"),
        ({"wording": Wording(tool_failed="{who}")}, "tool_failed"),
        ({"rules": [GroundingRule(name="r", triggers=(), tool="t")]}, "r"),
    ],
)
def test_agents_that_cannot_be_made(settings: dict[str, Any], words: str) -> None:
    """Each setting is checked, and the message names it."""
    given: dict[str, Any] = {"model": "m", **settings}
    with pytest.raises(ConfigError, match=words):
        Agent("chat=http://127.0.0.1:9/v1", **given)


async def test_a_transport_of_ones_own() -> None:
    """An endpoint and a transport are enough: no network, no second path; it is not closed."""
    replies = [Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say("Sunny."))]
    body: dict[str, Any] = {"model": "m", "messages": []}
    transport = FakeTransport(
        FakeReply(json.dumps(build_reply(turn, Wire.CHAT, body, Stamp(number))).encode())
        for number, turn in enumerate(replies)
    )
    endpoint = Endpoint(name="fake", wire=Wire.CHAT, base_url="fake://x")
    upstream = Upstream(endpoint, model="m", transport=transport, clock=FakeClock())
    result = await Agent(upstream, tools=[get_weather]).run("Weather?")
    assert result.text == "Sunny."
    assert [call.url for call in transport.calls] == ["fake://x/chat/completions"] * 2


def test_any_url_for_a_transport_of_ones_own() -> None:
    """Who sends calls himself may name where they go as he likes."""
    upstream = Upstream("chat=http+unix://sock/v1", model="m", transport=FakeTransport([]))
    assert upstream.endpoint.base_url == "http+unix://sock/v1"


async def test_facts_of_the_user() -> None:
    """What a user knows of a model steers the turn: forcing works here, so it is used at once."""
    facts = read_overrides([{"models": ["m"], "forced": "always", "protocol": "native"}])
    with ScriptedUpstream([Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say("Sunny."))]) as upstream:
        where = Upstream(f"chat={upstream.base_url}", model="m", overrides=facts)
        await Agent(where, tools=[get_weather]).run("Weather?", force=True)
        assert upstream.requests[0].body["tool_choice"] == "required"


async def test_what_refusals_teach_is_shared() -> None:
    """Agents on one upstream learn together."""
    where = Upstream("chat=http://127.0.0.1:9/v1", model="m")
    first, second = Agent(where), Agent(where)
    async with first, second:
        pass
    assert first.upstream.learnt is second.upstream.learnt


async def test_on_unmet_is_the_librarys() -> None:
    """Rule 27: `answer` is the default, whatever else the controls say."""
    with ScriptedUpstream(default=Turn(Say("No."))) as upstream:
        where = Upstream(f"chat={upstream.base_url}", model="m")
        result = await Agent(where, tools=[get_weather], controls=Controls(hold=True)).run("Weather?", force=True)
        assert (result.text, result.force_satisfied) == ("No.", False)
        with pytest.raises(ForceUnmet):
            await Agent(where, tools=[get_weather], on_unmet=OnUnmet.ERROR).run("Weather?", force=True)
    assert [one.body for one in upstream.requests] == ladder("chat", "Weather?", "No.") * 2


# --- shorthands ---------------------------------------------------------------------------------------------------


def test_shorthands(monkeypatch: pytest.MonkeyPatch) -> None:
    """`provider:model` is the provider's endpoint with the key of its usual variable, and the model."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    made = Upstream("openai:gpt-5")
    assert (made.endpoint.name, made.endpoint.base_url, made.endpoint.api_key, made.model) == (
        "openai",
        "https://api.openai.com/v1",
        "sk-env",
        "gpt-5",
    )
    assert Upstream("openai:gpt-5", api_key="sk-mine").endpoint.api_key == "sk-mine"
    assert Upstream("openai", model="gpt-5-mini").model == "gpt-5-mini"
    assert "sk-env" not in repr(made) + repr(made.endpoint)


def test_a_shorthand_without_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that is not set is named in one sentence; a key that is handed in needs none."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"'openai:gpt-5': the environment variable OPENAI_API_KEY is not set; "):
        Upstream("openai:gpt-5")
    assert Upstream("openai:gpt-5", api_key="k").endpoint.api_key == "k"


def test_the_model_in_this_process_as_a_shorthand() -> None:
    """`embedded:NAME` needs no wire and no model."""
    made = Upstream("embedded:smollm2-135m")
    assert (made.endpoint.base_url, made.model) == ("embedded:smollm2-135m", "local")
