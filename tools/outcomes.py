"""A plugin of pytest: writes each test's outcome to the file named by `OUTCOMES`, an assertion told from other errors.

One JSON object a line: `test`, `result` (`passed`, `skipped`, `failed`, `raised` or `error`) and `said`. `failed` means
that an assertion of the test (or `pytest.fail`, `pytest.raises`) did not hold; `raised` that another exception left the
test; `error` that the test could not be collected, set up or torn down.
"""

import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

_ASSERTIONS = (AssertionError, pytest.fail.Exception)


def _write(test: str, result: str, said: str) -> None:
    with Path(os.environ["OUTCOMES"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "result": result, "said": said[:300]}) + "\n")


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group: hypothesis raises one for several distinct failures."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write down one phase of a test."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if report.skipped:
        _write(item.nodeid, "skipped", "")
    elif report.failed and error is not None:
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        asserted = all(isinstance(leaf, _ASSERTIONS) for leaf in _leaves(error))
        _write(item.nodeid, "error" if report.when != "call" else "failed" if asserted else "raised", first)
    elif report.when == "call":
        _write(item.nodeid, "passed", "")
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write down what could not be collected."""
    if report.failed:
        lines = report.longreprtext.strip().splitlines()
        _write(report.nodeid, "error", lines[-1] if lines else "not collected")
