"""Rule 116: what one request came to changes nothing for the next, but for what docs/security.md lists."""

import asyncio
import json
from pathlib import Path

import pytest

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls
from mustcall.testing import Answer, Call, Cut, Fail, RunningGateway, Say, ScriptedUpstream, StreamError, Think, Turn
from mustcall.upstream.retry import SystemClock
from rules.driving import NATIVE, PATHS, WAYS, request
from rules.forms import INVOKE
from support.compared import leave
from support.http import post

SECURITY = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
GOOD = Turn(Call("get_weather", {"city": "Paris"}, id="call_1"), id="reply_1")
#: The exception that is about the very same request is switched off; the others are about other things.
QUIET = OperatorSettings(controls=Controls(remember_failures=0))

#: What a request before may have come to, each long enough for every retry.
BEFORE: dict[str, list[Answer]] = {
    "an answer": [Turn(Say("Fine."))],
    "a call": [GOOD],
    "reasoning": [Turn(Think("Hm."), Say("Fine."))],
    "text calls": [Turn(Say(INVOKE), finish="tool_calls")] * 3,
    "nothing": [Turn(Say(" "))] * 3,
    "an unknown tool": [Turn(Call("no_such", {}))] * 3,
    "a misfit": [Turn(Call("get_weather", {"town": 1}))] * 2,
    "a refusal": [Fail(400, "no")],
    "an outage": [Fail(529, "Overloaded")] * 3,
    "half a reply": [Cut(Turn(Say("Fine, thank you.")), 150)] * 3,
    "a broken stream": [StreamError(Turn(Say("Fine.")), after=1)] * 3,
}


class _Hasty(SystemClock):
    async def sleep(self, seconds: float) -> None:
        """Wait no longer than the loop needs."""
        await asyncio.sleep(0)
        del seconds


KEYS = {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}


def answered(wire: str, stream: bool, *before: Answer) -> tuple[list[bytes], bytes]:
    """What the last of some requests sent and got, on a gateway of its own."""
    first = request(wire, "Something else?", stream=stream, model=NATIVE)
    last = request(wire, stream=stream, model=NATIVE)
    with (
        ScriptedUpstream([*before, GOOD]) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", operator=QUIET, clock=_Hasty()) as gateway,
    ):
        if before:
            leave(upstream, "the request before only has to come to something; the last one's bytes are compared below")
            post(gateway.url + PATHS[wire], first, KEYS)
            assert len(upstream.requests) == len(before)
        upstream.requests.clear()
        got = post(gateway.url + PATHS[wire], last, KEYS)
        sent = [one.raw for one in upstream.requests]
    assert sent == [json.dumps(last).encode()]
    return sent, masked(got.body)


def masked(body: bytes) -> bytes:
    """The bytes without what counts requests and seconds."""
    for number in range(9):
        body = body.replace(b"scripted_000%d" % number, b"scripted_0000")
    return body


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_no_request_changes_the_next(wire: str, stream: bool) -> None:
    """Rule 116: whatever the one before came to, a request sends the same bytes and gets the same bytes."""
    fresh = answered(wire, stream)
    for name, answers in BEFORE.items():
        assert answered(wire, stream, *answers) == fresh, name


@pytest.mark.parametrize(
    "exception",
    [
        "learnt facts",
        "trust",
        "remembered failures",
        "breakers",
        "accounts of keys",
        "stored responses",
        "digests of issued reasoning",
        "what repeats in bodies",
    ],
)
def test_the_exceptions_are_named(exception: str) -> None:
    """Rule 116: what does outlive a request stands in the docs, with what it changes and how long it is kept."""
    section = SECURITY.partition("## What outlives a request")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split("|") for row in section.splitlines() if row.startswith(f"| {exception}")]
    assert [len(row) >= 3 and all(cell.strip() for cell in row[:3]) for row in rows] == [True]
