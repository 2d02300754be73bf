"""The pydantic-ai model: a tool task on a model that misbehaves, with mustcall and without it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Generator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, ModelAPIError, ModelHTTPError, RunContext, UnexpectedModelBehavior
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from mustcall import Controls, OnUnmet, Upstream
from mustcall.adapters.pydantic_ai import MustcallModel
from mustcall.core.origin import Wire
from mustcall.testing import Call, Fail, Hang, Recorded, Say, ScriptedModel, ScriptedUpstream, Think, Turn

QUESTION = "What does a hat cost?"
ANSWER = "A hat costs 12 euros."
MARKUP = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'
GOOD, DONE = Turn(Call("price", {"item": "hat"})), Turn(Say(ANSWER))


class Price(BaseModel):
    """A price."""

    euros: int


async def _run(model: Model[Any], *, streams: bool = False) -> tuple[str, list[str]]:
    """Do the task; return the answer and what the tool was asked for."""
    asked: list[str] = []

    def price(item: str) -> str:
        """Look up a price."""
        asked.append(item)
        return "12 euros"

    async def listen(_: RunContext[object], events: AsyncIterable[object]) -> None:
        async for _event in events:
            pass

    agent = Agent(model, tools=[price])
    result = await agent.run(QUESTION, event_stream_handler=listen if streams else None)
    return result.output, asked


@asynccontextmanager
async def _bare(wire: Wire, upstream: ScriptedUpstream) -> AsyncGenerator[Model[Any]]:
    """Yield pydantic-ai's own model on the upstream, without mustcall."""
    if wire is Wire.MESSAGES:
        async with AsyncAnthropic(base_url=upstream.url, api_key="key", max_retries=0) as claude:
            yield AnthropicModel("m", provider=AnthropicProvider(anthropic_client=claude))
        return
    kind = OpenAIChatModel if wire is Wire.CHAT else OpenAIResponsesModel
    async with AsyncOpenAI(base_url=upstream.base_url, api_key="key", max_retries=0) as client:
        yield kind("m", provider=OpenAIProvider(openai_client=client))


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", Wire)
async def test_a_call_as_text(wire: Wire, streams: bool) -> None:
    """Rule 50: a call written as text is a call; without mustcall the markup is the answer."""
    async with ScriptedUpstream([Turn(Say(MARKUP)), DONE]) as upstream, _bare(wire, upstream) as bare:
        output, asked = await _run(bare, streams=streams)
        assert (output, asked, len(upstream.requests)) == (MARKUP, [], 1)
        alone = upstream.requests[0].body
    async with ScriptedUpstream([Turn(Say(MARKUP)), DONE]) as upstream:
        model = MustcallModel(Upstream(f"{wire}={upstream.base_url}", model="m", api_key="key"))
        assert await _run(model, streams=streams) == (ANSWER, ["hat"])
        first, second = upstream.requests
        assert first.body == alone
        assert "12 euros" in str(second.body)
        assert "tool_call>" not in str(second.body)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    "bad",
    [Turn(Call("price", '{"item": ')), Turn(Call("weather", {"city": "Rome"})), Turn(Call("price", {"thing": 1}))],
    ids=["broken arguments", "unknown tool", "wrong arguments"],
)
async def test_bad_calls_cost_no_step(bad: Turn, streams: bool) -> None:
    """Rules 69, 96: a bad call is asked again inside its turn: the framework sees one call, and no retry prompt."""
    model = ScriptedModel([bad, GOOD, DONE])
    assert await _run(MustcallModel(model), streams=streams) == (ANSWER, ["hat"])
    assert len(model.requests) == 3
    last = model.requests[-1].body["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "tool"]


async def test_a_structured_output() -> None:
    """Rule 25: an output tool is a forced one. A model that ignores the force is climbed past; bare, the run fails."""

    def answer(request: Recorded) -> Turn:
        if "response_format" in request.body:
            return Turn(Say('{"name": "final_result", "arguments": {"euros": 12}}'))
        return Turn(Say("It costs 12 euros."))

    async with ScriptedUpstream(answer) as upstream, _bare(Wire.CHAT, upstream) as bare:
        with pytest.raises(UnexpectedModelBehavior):
            await Agent(bare, output_type=Price).run(QUESTION)
    async with ScriptedUpstream(answer) as upstream:
        model = MustcallModel(Upstream(f"chat={upstream.base_url}", model="m", api_key="key"))
        result = await Agent(model, output_type=Price).run(QUESTION)
        assert result.output == Price(euros=12)
        first, second = upstream.requests
        assert first.body["tool_choice"] == "required"
        assert "response_format" in second.body


async def test_usage_and_settings() -> None:
    """Settings reach the upstream, and what it counted comes back."""
    model = ScriptedModel([DONE])
    agent = Agent(MustcallModel(model, settings={"temperature": 0.5, "max_tokens": 77}))
    result = await agent.run(QUESTION)
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.requests) == (25, 12, 1)
    (request,) = model.requests
    assert request.body == {
        "model": "scripted",
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0.5,
        "max_completion_tokens": 77,
        "stream": False,
    }


async def test_reasoning_goes_back_to_its_issuer() -> None:
    """Rule 124: signed thoughts come back to the upstream as it made them, in a strict upstream's eyes."""
    thought = Turn(Think("A hat?", signature="sig"), Call("price", {"item": "hat"}))
    model = ScriptedModel([thought, DONE], wire=Wire.MESSAGES, strict=True)
    settings: Any = {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4096}
    output, asked = await _run(MustcallModel(model, settings=settings))
    assert (output, asked) == (ANSWER, ["hat"])
    first, second = model.requests
    assert first.refused_by is second.refused_by is None
    blocks = second.body["messages"][1]["content"]
    assert blocks[0] == {"type": "thinking", "thinking": "A hat?", "signature": "sig"}


async def test_errors_are_the_frameworks() -> None:
    """A failure is pydantic-ai's `ModelHTTPError`, with our code in its body; the turn is not asked again."""
    model = ScriptedModel(default="No.")
    with pytest.raises(ModelHTTPError) as caught:
        await Agent(MustcallModel(model), output_type=Price, retries=0).run(QUESTION)
    assert caught.value.status_code == 422
    body: Any = caught.value.body
    assert body["code"] == "force_unmet"
    assert len(model.requests) == 4  # native, schema, soft, text: grammars are tried on local servers only
    refusing = ScriptedModel([Fail(401, "no such key")])
    with pytest.raises(ModelHTTPError, match="no such key"):
        await Agent(MustcallModel(refusing)).run(QUESTION)


async def test_controls() -> None:
    """Controls are those of every turn: with `answer` a force that stays unmet gives the text that came."""
    model = ScriptedModel(default="It costs 12 euros.")
    agent = Agent(MustcallModel(model, controls=Controls(on_unmet=OnUnmet.ANSWER)), output_type=Price, retries=0)
    with pytest.raises(UnexpectedModelBehavior):
        await agent.run(QUESTION)


@pytest.fixture
def loop() -> Generator[None]:
    """A loop for `run_sync`, which otherwise makes one and leaves it open."""
    with closing(asyncio.new_event_loop()) as made:
        asyncio.set_event_loop(made)
        yield
        asyncio.set_event_loop(None)


@pytest.mark.usefixtures("loop")
def test_run_sync_leaves_nothing_open() -> None:
    """Each run of `run_sync` opens and closes its own connections."""
    with ScriptedUpstream([GOOD, DONE] * 2) as upstream:
        model = MustcallModel(Upstream(f"chat={upstream.base_url}", model="m"))
        agent = Agent(model)

        @agent.tool_plain
        def price(item: str) -> str:
            return f"{item}: 12 euros"

        assert agent.run_sync(QUESTION).output == ANSWER
        assert agent.run_sync(QUESTION).output == ANSWER
        upstream.wait_for_connections(0)


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", Wire)
async def test_a_timeout_of_one_request(wire: Wire, streams: bool) -> None:
    """Rule 97: `timeout` in the settings of a run ends the turn, and no further attempt is made."""
    long = Turn(Say("A hat costs " * 400))
    for fault in (Hang(long), Hang(long, after=600)):
        async with ScriptedUpstream(default=fault) as upstream:
            model = MustcallModel(
                Upstream(f"{wire}={upstream.base_url}", model="m", api_key="key"), settings=ModelSettings(timeout=0.05)
            )
            with pytest.raises(ModelAPIError, match=r"[Tt]ime|nothing came"):
                await _run(model, streams=streams)
            upstream.release()
            assert len(upstream.requests) <= 1  # none where the time was over before it was sent
