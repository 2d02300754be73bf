"""Several models on one question: one proposes, one checks, one concludes, each held to its own schema.

Proposer and critic are scripted here, because models that argue well are larger than what runs inside a test; set
MUSTCALL_EXAMPLE (and _MODEL) to let a real one play every role. The one who concludes is the embedded model. The tool
is for proposer and critic, never for the one who concludes.
"""

import os

from mustcall import Upstream, coordinate_sync, tool
from mustcall.testing import Call, ScriptedModel


@tool
def get_height(tower: str) -> str:
    """Look up how high a tower is."""
    return f"{tower}: 330 metres since 2022"


def role(*script: str | Call) -> Upstream:
    """Return the model that plays a role: the one that was named, else one that keeps to a script."""
    where = os.environ.get("MUSTCALL_EXAMPLE")
    if where is None:
        return ScriptedModel(script) if script else Upstream("chat=embedded:", model="local")
    return Upstream(where, model=os.environ.get("MUSTCALL_EXAMPLE_MODEL", "local"))


def main() -> None:
    """Let three roles answer one question."""
    result = coordinate_sync(
        "Get the height of the Eiffel Tower.",
        proposer=role(
            Call("get_height", {"tower": "Eiffel Tower"}), '{"answer": "330 metres", "reasons": ["looked up"]}'
        ),
        critics=[role('{"stance": "revise", "problems": ["say since when"]}')],
        synthesizer=role(),
        worker_tools=[get_height],
        hop_budget=1,
    )
    for done in result.roles:
        print(f"{done.name}: {[call.status.value for call in done.inner_tool_calls]}, {done.output}")
    print("answer:", result.answer)


if __name__ == "__main__":
    main()
