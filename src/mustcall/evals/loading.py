"""Opens a suite by its name, fetching its data where it is not here."""

from mustcall.core.errors import ConfigError
from mustcall.evals.bfcl.source import fetch_package
from mustcall.evals.bfcl.suite import BfclSuite
from mustcall.evals.builtin import BuiltinSuite
from mustcall.evals.suites import Suite
from mustcall.upstream.artifacts.fetching import Note, Watcher

__all__ = ["SUITES", "open_suite"]

#: Every suite and its line in `--help`.
SUITES = {
    "builtin": "mustcall's own 40 prompts, those of `mustcall demo`.",
    "bfcl": "The Berkeley Function Calling Leaderboard, by its AST rules (fetched once, 2 MB).",
}


def open_suite(name: str, watch: Watcher | None = None, note: Note | None = None) -> Suite:
    """Return a suite; raise `ConfigError` for a name that is none, `FetchFailed` where its data cannot be had."""
    match name:
        case "builtin":
            return BuiltinSuite()
        case "bfcl":
            return BfclSuite(fetch_package(watch, note))
        case _:
            raise ConfigError(f"there is no suite called {name!r}; there are: {', '.join(SUITES)}")
