"""The agent loop on the real embedded model: no server, no key."""

from collections.abc import Generator

import pytest

from mustcall import Agent, Upstream, tool
from support.answered import kept_answers
from support.embedded import BASE_URL, readied


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Generator[None]:
    """What the model was asked before is answered from its kept answers."""
    with kept_answers():
        yield


async def test_a_run_in_one_process() -> None:
    """A question is called for, the tool is run with what the question says, and the run ends in text."""
    readied()
    asked: list[str] = []

    @tool
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        asked.append(city)
        return f"Rain in {city}, 7 degrees"

    agent = Agent(Upstream(f"chat={BASE_URL}", model="local"), tools=[get_weather])
    result = await agent.run("What is the weather in Oslo?")
    assert len(asked) == 1
    assert [call.call.name for call in result.calls] == ["get_weather"]
    assert result.text.strip()
