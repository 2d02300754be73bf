"""An agent by its import path: `module:attribute`, the attribute an `Agent` or a function that makes one."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from mustcall.core.errors import ConfigError
from mustcall.engine.agent.agent import Agent

__all__ = ["load_agent"]


def load_agent(path: str, place: str | None = None) -> Agent[Any, Any]:
    """Return the agent at an import path, its runs in the ledger `place` if one is named; raise `ConfigError`."""
    module, colon, name = path.partition(":")
    if not module or not colon or not name:
        raise ConfigError(f"the agent {path!r} must be MODULE:ATTRIBUTE, like app.agents:support")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and not module.startswith(error.name):
            raise
        raise ConfigError(f"there is no module {module!r} in {here} or among the installed ones") from None
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise ConfigError(f"the module {module!r} has no {name!r}")
    if callable(found) and not issubclass(type(found), Agent):
        found = found()
    if not issubclass(type(found), Agent):
        raise ConfigError(f"{path} is a {type(found).__name__}, not an Agent or a function that makes one")
    agent = cast("Agent[Any, Any]", found)  # what its tools need and what it answers is its own
    if place is not None:
        agent.runs.place = place
    return agent
