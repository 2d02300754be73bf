"""The model provider of the OpenAI Agents SDK: a tool task on a model that misbehaves, with mustcall and without it."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager

import agents
import openai
import pytest
from agents import (
    Agent,
    ModelBehaviorError,
    ModelProvider,
    ModelSettings,
    OpenAIProvider,
    RunConfig,
    Runner,
    function_tool,
)
from pydantic import BaseModel

from mustcall import Upstream
from mustcall.adapters.openai_agents import MustcallProvider
from mustcall.core.origin import Wire
from mustcall.testing import Call, Fail, Hang, Say, ScriptedModel, ScriptedUpstream, Turn

QUESTION = "What does a hat cost?"
ANSWER = "A hat costs 12 euros."
MARKUP = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'
GOOD, DONE = Turn(Call("price", {"item": "hat"})), Turn(Say(ANSWER))


class Price(BaseModel):
    """A price."""

    euros: int


@pytest.fixture(autouse=True)
def untraced() -> Generator[None]:
    """Keep the SDK from sending traces to its maker."""
    agents.set_tracing_disabled(disabled=True)
    yield
    agents.set_tracing_disabled(disabled=False)


async def _run(
    provider: ModelProvider, *, streams: bool = False, settings: ModelSettings | None = None
) -> tuple[str, list[str]]:
    """Do the task; return the answer and what the tool was asked for."""
    asked: list[str] = []

    @function_tool
    def price(item: str) -> str:
        """Look up a price."""
        asked.append(item)
        return "12 euros"

    agent = Agent(name="shop", tools=[price], model="m", model_settings=settings or ModelSettings())
    config = RunConfig(model_provider=provider)
    if streams:
        running = Runner.run_streamed(agent, QUESTION, run_config=config)
        async for _ in running.stream_events():
            pass
        return running.final_output, asked
    result = await Runner.run(agent, QUESTION, run_config=config)
    return result.final_output, asked


@asynccontextmanager
async def _bare(wire: Wire, upstream: ScriptedUpstream) -> AsyncGenerator[ModelProvider]:
    """Yield the SDK's own provider on the upstream, without mustcall."""
    async with openai.AsyncOpenAI(base_url=upstream.base_url, api_key="key", max_retries=0) as client:
        yield OpenAIProvider(openai_client=client, use_responses=wire is Wire.RESPONSES)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", Wire)
async def test_a_call_as_text(wire: Wire, streams: bool) -> None:
    """Rule 50: a call written as text is a call; without mustcall the markup is the answer."""
    alone = None
    if wire is not Wire.MESSAGES:  # the SDK alone does not speak it
        async with ScriptedUpstream([Turn(Say(MARKUP)), DONE]) as upstream, _bare(wire, upstream) as bare:
            assert await _run(bare, streams=streams) == (MARKUP, [])
            (alone,) = upstream.requests
    async with ScriptedUpstream([Turn(Say(MARKUP)), DONE]) as upstream:
        provider = MustcallProvider(Upstream(f"{wire}={upstream.base_url}", model="m", api_key="key"))
        assert await _run(provider, streams=streams) == (ANSWER, ["hat"])
        first, second = upstream.requests
        assert alone is None or first.body == alone.body
        assert "12 euros" in str(second.body)
        assert "tool_call>" not in str(second.body)
        await provider.aclose()


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
async def test_an_unknown_tool(streams: bool) -> None:
    """Rule 69: an unknown tool is asked again inside its turn; without mustcall the run ends in an error."""
    script = [Turn(Call("weather", {"city": "Rome"})), GOOD, DONE]
    async with ScriptedUpstream(script) as upstream, _bare(Wire.CHAT, upstream) as bare:
        with pytest.raises(ModelBehaviorError, match="weather"):
            await _run(bare, streams=streams)
    model = ScriptedModel(script)
    assert await _run(MustcallProvider(model), streams=streams) == (ANSWER, ["hat"])
    assert len(model.requests) == 3
    assert [message["role"] for message in model.requests[-1].body["messages"]] == ["user", "assistant", "tool"]


async def test_a_force_that_is_ignored() -> None:
    """Rule 25: a required tool is called; without mustcall the prose is the answer, and no tool ran."""
    script = [Turn(Say("12 euros, I guess.")), GOOD, DONE]
    settings = ModelSettings(tool_choice="required")
    async with ScriptedUpstream(script) as upstream, _bare(Wire.CHAT, upstream) as bare:
        assert await _run(bare, settings=settings) == ("12 euros, I guess.", [])
    model = ScriptedModel(script)
    assert await _run(MustcallProvider(model), settings=settings) == (ANSWER, ["hat"])
    assert len(model.requests) == 3


async def test_a_structured_output() -> None:
    """Rule 83: an answer that does not fit the output type is asked again; without mustcall the run fails."""
    script = [Turn(Say("Twelve euros.")), Turn(Say('{"euros": 12}'))]
    agent = Agent(name="shop", output_type=Price, model="m")
    async with ScriptedUpstream(script) as upstream, _bare(Wire.CHAT, upstream) as bare:
        with pytest.raises(ModelBehaviorError):
            await Runner.run(agent, QUESTION, run_config=RunConfig(model_provider=bare))
    model = ScriptedModel(script)
    result = await Runner.run(agent, QUESTION, run_config=RunConfig(model_provider=MustcallProvider(model)))
    assert result.final_output == Price(euros=12)
    assert len(model.requests) == 2


async def test_names_usage_and_errors() -> None:
    """The upstream's own model is asked for; usage is counted; errors are the OpenAI SDK's, with our code."""
    model = ScriptedModel([DONE])
    provider = MustcallProvider(model)
    result = await Runner.run(Agent(name="a", model="any"), QUESTION, run_config=RunConfig(model_provider=provider))
    assert model.requests[0].body["model"] == "scripted"
    assert result.context_wrapper.usage.total_tokens == 37
    unwilling = ScriptedModel(default="No.")
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        await _run(MustcallProvider(unwilling), settings=ModelSettings(tool_choice="required"))
    assert caught.value.code == "force_unmet"
    assert len(unwilling.requests) == 4
    assert caught.value.response.headers["x-mustcall-attempts"] == "4"
    refusing = ScriptedModel([Fail(401, "no such key")])
    with pytest.raises(openai.AuthenticationError, match="no such key"):
        await _run(MustcallProvider(refusing))


@pytest.mark.parametrize("wire", Wire)
async def test_a_timeout_of_one_request(wire: Wire) -> None:
    """Rule 97: `timeout` in the settings of an agent ends the turn, and no further attempt is made."""
    async with ScriptedUpstream(default=Hang(DONE)) as upstream:
        provider = MustcallProvider(Upstream(f"{wire}={upstream.base_url}", model="m", api_key="key"))
        with pytest.raises(openai.APITimeoutError):
            await _run(provider, settings=ModelSettings(extra_args={"timeout": 0.05}))
        await provider.aclose()
        upstream.release()
        assert len(upstream.requests) <= 1  # none where the time was over before it was sent
