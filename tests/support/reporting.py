"""What a worker of pytest-xdist tells the process that prints: how tests came out, and little else.

For each test it sends six messages, and receiving them took as much time as the cheapest half of the tests. That a test
begins, was set up and was taken down is printed by nobody unless it failed or the names of tests are asked for (`-v`).
"""

from typing import Any

import pytest

__all__ = ["is_told", "tell_less"]


def tell_less(config: pytest.Config) -> None:
    """Keep a worker from sending what is not printed; nothing happens elsewhere, nor where more is to be printed."""
    if not hasattr(config, "workerinput") or config.option.verbose > 0 or config.option.durations is not None:
        return
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor":
            _filter(plugin)


def _filter(worker: Any) -> None:
    send = worker.sendevent

    def send_what_is_told(name: str, **values: Any) -> None:
        if is_told(name, values):
            send(name, **values)

    worker.sendevent = send_what_is_told


def is_told(name: str, values: dict[str, Any]) -> bool:
    """Whether the process that prints needs a message."""
    if name == "logstart":
        return False
    report = values.get("data", {})
    return name != "testreport" or report["when"] == "call" or report["outcome"] != "passed"
