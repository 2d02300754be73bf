"""A long run in a small context: older results give way, what is pinned stays, and the history keeps everything."""

import os

from mustcall import Agent, Compaction, Message, Role, Text, Upstream, tool
from mustcall.testing import Call, ScriptedModel

RULES = Message(role=Role.USER, parts=(Text(text="Give every price in euros."),), pinned=True)


@tool(side_effect=False)
def read_page(number: int) -> str:
    """Read a page of the catalogue."""
    return f"page {number}: " + "candles and lamps, " * 60


def upstream() -> Upstream:
    """Return the model: the one that was named, else one that keeps to a script."""
    where = os.environ.get("MUSTCALL_EXAMPLE")
    if where is not None:
        return Upstream(where, model=os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local"))
    return ScriptedModel([*(Call("read_page", {"number": page}) for page in range(1, 5)), "I have read four pages."])


def main() -> None:
    """Read a catalogue that is longer than the context."""
    agent = Agent(upstream(), tools=[read_page], compaction=Compaction(max_tokens=600, keep_rounds=1))
    question = Message(role=Role.USER, parts=(Text(text="Read the first four pages."),))
    result = agent.run_sync([RULES, question])
    for number, step in enumerate(result.steps, 1):
        print(f"step {number}:", "; ".join(note.detail for note in step.adaptations) or "sent whole")
    print("kept:", sum(len(message.results) for message in result.messages), "results")
    print("answer:", result.text)


if __name__ == "__main__":
    main()
