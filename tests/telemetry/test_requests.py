"""A line for each request: what it says, and that it never stands in anybody's way."""

import asyncio
import json
import logging
import sys
import threading
from collections.abc import Callable

import pytest

from mustcall.telemetry import console
from mustcall.telemetry.requests import RequestLine, RequestLog, as_json, as_text

LINE = RequestLine(
    at=0.25,
    request_id="req_1",
    route="chat",
    status=200,
    seconds=1.23456,
    outcome="calls",
    model="m",
    upstream="up",
    calls=3,
    verdicts=("force_missed", "text_call", "called"),
    force="met",
    input_tokens=75,
    output_tokens=36,
    adaptations=("field_mapped",),
)


def test_a_line_for_people() -> None:
    """It says how the turn got there; a healthy one is short."""
    said = as_text(LINE).split("  ")[1:]
    assert said == [
        "200",
        "chat",
        "m at up",
        "calls",
        "3 calls: force_missed → text_call → called",
        "force met",
        "75+36 tokens",
        "1.235 s",
        "req_1",
    ]
    healthy = RequestLine(
        at=0.0, request_id="r", route="chat", status=200, seconds=0.1, outcome="answer", calls=1, verdicts=("answered",)
    )
    assert as_text(healthy).split("  ")[1:] == ["200", "chat", "answer", "0.100 s", "r"]
    gone = RequestLine(at=0.0, request_id="r", route="chat", status=0, seconds=0.1)
    assert as_text(gone).split("  ")[1] == "gone"


def test_a_line_for_programs() -> None:
    """One JSON object, with every figure as a figure."""
    told = json.loads(as_json(LINE))
    assert (told["event"], told["at"], told["seconds"]) == ("request", "1970-01-01T00:00:00.250Z", 1.2346)
    assert told["verdicts"] == ["force_missed", "text_call", "called"]
    assert (told["input_tokens"], told["output_tokens"], told["calls"]) == (75, 36, 3)


@pytest.mark.parametrize("form", [as_json, as_text])
def test_a_name_of_a_callers_choice_is_one_line(form: Callable[[RequestLine], str]) -> None:
    """A model's name cannot forge a line, or do anything to a terminal."""
    said = form(RequestLine(at=0.0, request_id="r", route="chat", status=404, seconds=0.0, model="a\n\x1b[2J" * 1000))
    assert "\n" not in said
    assert "\x1b" not in said
    assert len(said) < 1200


async def test_lines_are_written_in_order_and_together() -> None:
    """What waits when the gateway stops is written."""
    written: list[str] = []
    log = RequestLog(lambda line: line.request_id, written.append)
    for number in range(5):
        log.put(RequestLine(at=0.0, request_id=str(number), route="chat", status=200, seconds=0.0))
    await log.close()
    assert written == ["0\n1\n2\n3\n4\n"]


async def test_whoever_reads_slowly_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 98: lines beyond what may wait are dropped and counted, and the next one says so."""
    monkeypatch.setattr("mustcall.telemetry.requests._MOST", 3)
    monkeypatch.setattr("mustcall.telemetry.requests._EVERY", 0.0)
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    written: list[str] = []

    def slow(lines: str) -> None:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(180)
        written.append(lines)

    log = RequestLog(lambda line: line.request_id, slow)
    line = RequestLine(at=0.0, request_id="r", route="chat", status=200, seconds=0.0)
    log.put(line)
    await begun.wait()
    for _ in range(10):
        log.put(line)  # returns at once: the first is still being written
    assert log.dropped == 7
    go_on.set()
    await log.close()
    assert "".join(written).count("r\n") == 4
    assert "7 requests have no line" in written[-1]


async def test_a_pipe_that_nobody_reads_does_not_keep_the_gateway_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last lines are waited for, but not for ever."""
    monkeypatch.setattr("mustcall.telemetry.requests._LAST", 0.05)
    never = threading.Event()
    log = RequestLog(as_json, lambda _: never.wait(60))
    log.put(LINE)
    try:
        await log.close()
        assert not never.is_set()
    finally:
        never.set()


async def test_a_log_that_cannot_be_written_fails_nobody() -> None:
    """Rule 98: a full disk or a closed pipe loses lines, and they are counted."""

    def broken(lines: str) -> None:
        raise OSError(28, "No space left on device", lines)

    log = RequestLog(as_json, broken)
    log.put(LINE)
    await log.close()
    assert log.dropped == 1


@pytest.mark.parametrize(("level", "wanted"), [("debug", True), ("info", True), ("warning", False), ("error", False)])
def test_requests_have_lines_from_info_on(level: console.LogLevel, wanted: bool) -> None:
    """`warning` is for those who want to read of faults alone."""
    assert (console.request_log(level, "json") is not None) is wanted


def test_other_lines_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that reads the log gets JSON alone, tracebacks included."""
    root, own = logging.getLogger(), logging.getLogger("mustcall")
    before, level = root.handlers[:], (root.level, own.level)
    try:
        console.log_to_stderr("warning", "json")
        own.error("it %s", "failed", exc_info=ValueError("wrong"))
        own.info("not said")
        sys.stderr.flush()
    finally:
        root.handlers[:] = before
        root.setLevel(level[0])
        own.setLevel(level[1])
    [line] = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"], told["logger"], told["message"]) == ("log", "error", "mustcall", "it failed")
    assert "ValueError: wrong" in told["traceback"]
