"""Signs of life: often enough while a turn holds, never on a stream that flows; on a clock that never waits."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from mustcall.engine.records import TurnProgress
from mustcall.gateway.connections.heartbeat import Heartbeat
from mustcall.testing import Call, Hang, Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.gated import Listener, events_of
from support.jumping import run
from support.laddering import climbed


@contextmanager
def begun(seconds: float, progress: TurnProgress, send: Callable[[], Awaitable[None]]) -> Generator[Heartbeat]:
    """Open a heartbeat, and let the turn say that a stream was asked for."""
    with Heartbeat(seconds, progress, send) as heartbeat:
        assert progress.streams is not None
        progress.streams()
        yield heartbeat


class _Stage:
    """A heartbeat's surroundings: whether the turn holds, and when signs were sent."""

    def __init__(self, *, holding: bool) -> None:
        self.progress = TurnProgress()
        self.progress.holding = holding
        self.beats: list[float] = []
        self.seconds = 0.0

    async def send(self) -> None:
        """Send a sign; takes as long as it is told to."""
        self.beats.append(round(asyncio.get_running_loop().time(), 3))
        if self.seconds:
            await asyncio.sleep(self.seconds)


def test_signs_come_while_a_turn_holds() -> None:
    """Rules 113, 145: the first after a second, then one for each silent stretch, none after the end."""
    stage = _Stage(holding=True)

    async def scene() -> None:
        with begun(5, stage.progress, stage.send):
            await asyncio.sleep(23)
        await asyncio.sleep(60)

    run(scene)
    assert stage.beats == pytest.approx([1, 6, 11, 16, 21], abs=0.01)


def test_no_sign_while_nothing_is_held() -> None:
    """Rule 112: a stream that only waits for its upstream gets no bytes of ours."""
    stage = _Stage(holding=False)

    async def scene() -> None:
        with begun(5, stage.progress, stage.send):
            await asyncio.sleep(60)

    run(scene)
    assert stage.beats == []


@pytest.mark.parametrize(
    ("patience", "beats"), [(10.0, [10, 12, 14, 16]), (0.5, [1, 3, 5, 7, 9, 11, 13, 15, 17]), (0.0, [])]
)
def test_an_upstream_without_a_first_byte_gets_patience(patience: float, beats: list[float]) -> None:
    """Rule 145: signs begin when nothing came for so long, and go on until something does; 0 is never."""
    stage = _Stage(holding=False)
    stage.progress.waiting = True

    async def scene() -> None:
        with Heartbeat(2, stage.progress, stage.send, patience=patience) as heartbeat:
            heartbeat.start()
            await asyncio.sleep(17.5)
            stage.progress.waiting = False
            await asyncio.sleep(60)

    run(scene)
    assert stage.beats == pytest.approx(beats, abs=0.01)


def test_zero_seconds_is_off() -> None:
    """Rule 113: a setting of 0 sends no signs."""
    stage = _Stage(holding=True)

    async def scene() -> None:
        with begun(0, stage.progress, stage.send):
            await asyncio.sleep(60)

    run(scene)
    assert stage.beats == []


def test_what_was_sent_lately_is_a_sign() -> None:
    """Rule 113: silence is counted from the last write, whoever made it."""
    stage = _Stage(holding=True)

    async def scene() -> None:
        with begun(5, stage.progress, stage.send) as heartbeat:
            for _ in range(14):
                await asyncio.sleep(0.9)
                heartbeat.note()
            await asyncio.sleep(7)

    run(scene)
    assert stage.beats == pytest.approx([13.6, 18.6], abs=0.01)


def test_holding_begins_later() -> None:
    """Rules 113, 145: a turn that starts to hold after it streamed gets its sign within a second."""
    stage = _Stage(holding=False)

    async def scene() -> None:
        with begun(5, stage.progress, stage.send):
            await asyncio.sleep(12)
            stage.progress.holding = True
            await asyncio.sleep(5)

    run(scene)
    assert len(stage.beats) == 1
    assert 12 <= stage.beats[0] <= 13.01


def test_signs_do_not_pile_up() -> None:
    """Rule 113: a client that reads slowly gets one sign at a time, and others wait until it has it."""
    stage = _Stage(holding=True)
    stage.seconds = 12.0
    settled: list[float] = []

    async def scene() -> None:
        with begun(5, stage.progress, stage.send) as heartbeat:
            await asyncio.sleep(8)
            await heartbeat.settle()
            settled.append(asyncio.get_running_loop().time())
            stage.progress.holding = False
            await heartbeat.settle()
            await asyncio.sleep(30)

    run(scene)
    assert stage.beats == pytest.approx([1], abs=0.01)
    assert settled == pytest.approx([13], abs=0.01)


KEEPALIVES = {"chat": b": keepalive\n\n", "responses": b": keepalive\n\n", "messages": b"event: ping\n"}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "model": "m",
        "stream": True,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        "tool_choice": "required",
    },
    "responses": {
        "model": "m",
        "stream": True,
        "input": "hi",
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
        "tool_choice": "required",
    },
    "messages": {
        "model": "m",
        "stream": True,
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any"},
    },
}


@pytest.mark.parametrize("wire", BODIES)
def test_a_held_turn_ends_well_after_signs(wire: str) -> None:
    """Rules 53, 113: prose is held, signs go out, the second attempt's call is all that follows them."""
    script = [Hang(Turn(Say("Some prose.")), after=400), Turn(Call("f", {"q": "x"}))]
    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.02) as gateway,
        Listener(gateway.url, wire, BODIES[wire]) as client,
    ):
        early = client.wait_for(KEEPALIVES[wire], 3)
        assert b"prose" not in early
        upstream.release()
        rest = client.read_rest()
        assert [request.body for request in upstream.requests] == climbed(wire, BODIES[wire])[:2]
    assert client.response.status == 200
    assert b"prose" not in rest
    assert b'"f"' in rest
    assert events_of(rest)


@pytest.mark.parametrize("wire", BODIES)
def test_a_held_turn_fails_in_its_stream_after_signs(wire: str) -> None:
    """Rules 48, 113, 135: the first sign begins the answer, so the failure is an event with the error's name."""
    script = [Hang(Turn(Say("Some prose.")), after=400), *[Turn(Say("Some prose."))] * 4]
    with (
        ScriptedUpstream(script) as upstream,
        RunningGateway(f"{wire}={upstream.base_url}", keepalive=0.02) as gateway,
        Listener(gateway.url, wire, BODIES[wire]) as client,
    ):
        client.wait_for(KEEPALIVES[wire], 1)
        upstream.release()
        rest = client.read_rest()
        told = "## f\nParameters:\n- q (string, optional)"
        sent = [request.body for request in upstream.requests]
        assert sent == climbed(wire, BODIES[wire], "Some prose.", told)
    assert client.response.status == 200
    assert "ForceUnmet: " in str(events_of(rest)[-1])
