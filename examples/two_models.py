"""Two models: one that thinks and cannot call tools plans in prose; another turns its plans into calls.

The planner is scripted here, because a model that plans well is larger than what runs inside a test; set
MUSTCALL_EXAMPLE_PLANNER (and _PLANNER_MODEL) to use a real one. The caller is the embedded model.
"""

import os

from mustcall import Agent, Upstream, tool
from mustcall.testing import ScriptedModel


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"{city}: rain, 7 degrees"


def planner() -> Upstream:
    """Return the model that plans."""
    where = os.environ.get("MUSTCALL_EXAMPLE_PLANNER")
    if where is not None:
        return Upstream(where, model=os.environ.get("MUSTCALL_EXAMPLE_PLANNER_MODEL", "local"))
    return ScriptedModel(["Look up the weather in Oslo first.", "Answer: yes, take one: it rains in Oslo."])


def main() -> None:
    """Ask a question that takes a call."""
    where = os.environ.get("MUSTCALL_EXAMPLE", "chat=embedded:")
    caller = Upstream(where, model=os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local"))
    agent = Agent(planner=planner(), caller=caller, tools=[get_weather])
    result = agent.run_sync("Do I need an umbrella for the weather in Oslo?")
    print("called:", [(call.name, call.call.arguments_json) for call in result.calls])
    print("answer:", result.text)
    print("tokens:", {model: usage.output_tokens for model, usage in result.usage_by_model.items()})


if __name__ == "__main__":
    main()
