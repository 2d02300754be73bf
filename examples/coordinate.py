"""Several models on one question: one proposes, one checks, one concludes, each held to its own schema.

All three are the embedded model here, which keeps to the form and knows little; point MUSTCALL_EXAMPLE at another
upstream for answers worth reading. The tool is for the proposer and the critic, never for the one who concludes.
"""

import os

from mustcall import Upstream, coordinate_sync, tool


@tool
def get_height(tower: str) -> str:
    """Look up how high a tower is."""
    return f"{tower}: 330 metres since 2022"


def model() -> Upstream:
    """Return the model that plays a role."""
    where = os.environ.get("MUSTCALL_EXAMPLE", "chat=embedded:smollm2-135m")
    return Upstream(where, model=os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local"))


def main() -> None:
    """Let three roles answer one question."""
    result = coordinate_sync(
        "Get the height of the Eiffel Tower.",
        proposer=model(),
        critics=[model()],
        synthesizer=model(),
        worker_tools=[get_height],
        hop_budget=1,
    )
    for role in result.roles:
        print(f"{role.name}: {[call.status.value for call in role.inner_tool_calls]}, {role.output}")
    print("answer:", result.answer)


if __name__ == "__main__":
    main()
