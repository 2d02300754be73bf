"""Questions about your product are answered from your documents, never from what the model thinks it remembers."""

import os

from mustcall import Agent, GroundingRule, Options, Upstream, tool

PAGES = {
    "hero os": "Hero OS is an operating system that runs agents as processes. It was released in 2025.",
    "pricing": "Hero OS is free for teams of up to five people.",
}


@tool
def search_hero_docs(query: str) -> str:
    """Search the documentation of Hero OS."""
    found = [text for title, text in PAGES.items() if any(word in query.lower() for word in title.split())]
    return "\n".join(found) or "nothing was found"


def main() -> None:
    """Ask two questions; only the one about the product has to be looked up."""
    where = os.environ.get("MUSTCALL_EXAMPLE", "chat=embedded:")
    model = os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local")
    agent = Agent(
        Upstream(where, model=model),
        tools=[search_hero_docs],
        options=Options(max_tokens=60),
        rules=[GroundingRule(name="product", triggers=("hero os", "hero_*"), tool="search_hero_docs")],
    )
    for question in ("What is Hero OS?", "What is the capital of France?"):
        result = agent.run_sync(question)
        looked_up = ", ".join(f"{call.name}({call.call.arguments_json})" for call in result.calls) or "nothing"
        print(f"{question}\n  looked up: {looked_up}\n  {result.text.strip()}\n")


if __name__ == "__main__":
    main()
