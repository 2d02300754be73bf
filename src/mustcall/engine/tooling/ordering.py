"""Which tools come before which: what a call waits for, and what a run may not end without.

Pure: it reads settings and the names of the tools that have succeeded. A call whose prerequisites have not is not run,
whatever the model says; a required step that an answer leaves out is demanded. Both are the loop's to do.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from mustcall.core.errors import ConfigError, ForceUnmet
from mustcall.engine.tooling.roster import Roster

__all__ = ["check_order", "missing_steps", "unmet", "unmet_step"]


def unmet(name: str, roster: Roster, done: AbstractSet[str]) -> tuple[str, ...]:
    """Return the prerequisites of a tool that have not succeeded, in the order they were named."""
    tool = roster.tools.get(name)
    return () if tool is None else tuple(each for each in tool.settings.prerequisites if each not in done)


def missing_steps(required: Sequence[str], roster: Roster, done: AbstractSet[str]) -> tuple[str, ...]:
    """Return the tools that must still succeed, in an order in which they can be called.

    These are the required steps that have not succeeded, each after its own prerequisites.
    """
    missing: dict[str, None] = {}
    for name in required:
        _add_missing(name, roster, done, missing)
    return tuple(missing)


def _add_missing(name: str, roster: Roster, done: AbstractSet[str], missing: dict[str, None]) -> None:
    if name in done or name in missing:
        return
    for before in unmet(name, roster, done):
        _add_missing(before, roster, done, missing)
    missing[name] = None


def check_order(roster: Roster, required: Sequence[str]) -> None:
    """Raise `ConfigError` for steps and prerequisites that are no tools, and for tools that wait for each other."""
    for name in required:
        if name not in roster.tools:
            raise ConfigError(f"required_steps names {name!r}, which is no tool of the agent: {_known(roster)}")
    for name, tool in roster.tools.items():
        for before in tool.settings.prerequisites:
            if before not in roster.tools:
                raise ConfigError(
                    f"tool {name!r}: its prerequisite {before!r} is no tool of the agent: {_known(roster)}"
                )
    settled: set[str] = set()
    for name in roster.tools:
        _walk(name, roster, settled, [])


def _walk(name: str, roster: Roster, settled: set[str], path: list[str]) -> None:
    if name in path:
        circle = " → ".join([*path[path.index(name) :], name])
        raise ConfigError(f"prerequisites go in a circle, so none of them can be called: {circle}")
    if name in settled:
        return
    path.append(name)
    for before in roster.tools[name].settings.prerequisites:
        _walk(before, roster, settled, path)
    path.pop()
    settled.add(name)


def _known(roster: Roster) -> str:
    return ", ".join(roster.tools) or "it has none"


def unmet_step(missing: str, number: int) -> ForceUnmet:
    """Return the error of a run that may call nothing more and has left out a required step."""
    return ForceUnmet(
        f"ForceUnmet: the run may not answer before `{missing}` has succeeded, and step {number} may call nothing "
        "more; raise max_steps (before a structured answer, hops), or see in the trace why the call failed",
        details={"tool": missing},
    )
