"""Tools first, then an answer of your own type: checked against its schema, asked for again if it does not fit."""

import os
from dataclasses import dataclass

from mustcall import Agent, Upstream, tool


@dataclass
class Report:
    """The weather of a city."""

    city: str
    degrees: int


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"{city}: 21 degrees, sunny"


def main() -> None:
    """Ask for a report; the answer is a `Report`, whatever the model is like."""
    where = os.environ.get("MUSTCALL_EXAMPLE", "chat=embedded:")
    model = os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local")
    agent = Agent(Upstream(where, model=model), tools=[get_weather])
    result = agent.run_sync("What is the weather in Oslo?", output=Report, hops=1)
    print("called:", [(call.name, str(call.status)) for call in result.calls])
    print("answer:", result.output)


if __name__ == "__main__":
    main()
