"""Log lines that cannot be written fail nobody (rule 98)."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mustcall.telemetry.logs import log_of
from mustcall.testing import RunningGateway, Say, ScriptedUpstream, Turn
from support.compared import leave
from support.http import post

SOURCE = Path(__file__).parents[2] / "src" / "mustcall"


class _Broken(logging.Handler):
    """A handler whose disk is full."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Fail."""
        self.asked += 1
        raise OSError(28, f"No space left on device for {record.name}")


@pytest.fixture
def broken() -> Iterator[_Broken]:
    """A handler on all loggers of ours that fails with every line."""
    handler, logger = _Broken(), logging.getLogger("mustcall")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("stream", [False, True])
def test_a_handler_that_raises_fails_no_request(broken: _Broken, stream: bool) -> None:
    """Rule 98: a turn that has something to log ends as it would have ended, typed and whole."""
    markup = Turn(Say('<tool_call>{"name": "nobody", "argu'))
    body = {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": "required",
        "stream": stream,
    }
    answers: list[tuple[int, object]] = []
    for noisy in (True, False):
        if not noisy:
            logging.getLogger("mustcall").removeHandler(broken)
        with ScriptedUpstream([markup] * 9) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
            leave(upstream, "what fails is the log, and not what is sent")
            answer = post(f"{gateway.base_url}/chat/completions", body)
            answers.append((answer.status, json.loads(answer.body)["error"]["code"]))
    assert broken.asked >= 1
    assert answers[0] == answers[1]
    assert answers[0][1] != "internal_error"


def test_what_is_told_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Levels, values and the place a line comes from are those of the standard library."""
    log = log_of("mustcall.test")
    with caplog.at_level(logging.DEBUG, "mustcall.test"):
        log.debug("a %d", 1)
        log.info("b")
        log.warning("c %s", "x")
        log.error("d")
        try:
            int("e")
        except ValueError:
            log.exception("f")
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("DEBUG", "a 1"),
        ("INFO", "b"),
        ("WARNING", "c x"),
        ("ERROR", "d"),
        ("ERROR", "f"),
    ]
    assert {one.filename for one in caplog.records} == {"test_logs.py"}
    assert caplog.records[-1].exc_info is not None
    assert log.lost == 0


def test_lost_lines_are_counted(broken: _Broken) -> None:
    """Rule 98: what a handler raises stays here."""
    log = log_of("mustcall.test")
    log.warning("x")
    assert (log.lost, broken.asked) == (1, 1)


def test_nobody_logs_past_it() -> None:
    """Rule 98: every line of the layer's own goes through such a log; commands only set levels and handlers."""
    pattern = re.compile(r'=\s*logging\.getLogger\("mustcall')
    assert [str(file) for file in SOURCE.rglob("*.py") if pattern.search(file.read_text(encoding="utf-8"))] == []
