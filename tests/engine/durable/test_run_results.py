"""Durable runs by how they end: failures, answers that are read back, and other ways to start one."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall import Agent, RunFinished, Stopped
from mustcall.core.errors import (
    ConfigError,
    FenceLost,
    InvalidRequest,
    LoopBlocked,
    MustcallError,
    StructuredOutputError,
    ToolError,
    UnknownRun,
    UpstreamRejected,
    UpstreamUnavailable,
)
from mustcall.engine.durable.owners import is_gone, new_owner
from mustcall.engine.tooling import SourcedTool
from mustcall.ledger import RunStatus
from mustcall.policy.facts.controls import Controls, ToolControls
from mustcall.policy.facts.wording import Wording, fill
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Reset, Say, Turn
from mustcall.testing.model import Line, ScriptedModel
from support.agents import results, said, user, wrapped
from support.durable_runs import SENDS, World, agent, sends


@pytest.mark.parametrize(
    ("line", "error"), [(Fail(401, "no such key"), UpstreamRejected), (Reset(Turn(Say("No."))), UpstreamUnavailable)]
)
async def test_an_upstream_that_fails_leaves_the_run_waiting(
    tmp_path: Path, line: Line, error: type[Exception]
) -> None:
    """What may pass ends nothing: the run goes on where it was once the upstream is back."""
    world, place = World(), str(tmp_path / "ledger.db")
    model = ScriptedModel([Call("send", {"to": "a"}), *[line] * 10])
    one = agent(model, place, world)
    with pytest.raises(error):
        await one.run("Go.", run_id="r")
    asked = [user("chat", "Go.")]
    called = [*asked, *said("chat", 0, ("send", {"to": "a"})), *results("chat", 0, wrapped("sent to a", "send"))]
    tried = 3 if error is UpstreamUnavailable else 1  # a refusal is none to wait for
    assert [one.body for one in model.requests] == [sends(asked), *[sends(called)] * tried]
    assert (await one.runs.find("r")).status is RunStatus.WAITING
    result = await agent(ScriptedModel(["Done."]), place, world).run("Go.", run_id="r")
    assert (result.text, world.sent) == ("Done.", ["a"])


class Waking:
    """A tool server that is down the first time."""

    name = "waking"

    def __init__(self) -> None:
        self._opened = 0

    async def open(self) -> None:
        """Be up from the second time on."""
        self._opened += 1
        if self._opened == 1:
            raise ToolError("the server is not up")

    async def list(self) -> list[SourcedTool]:
        """Name the one tool."""
        return [SourcedTool(name="nap", schema={"type": "object"})]

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        """Do nothing."""
        return f"{name} {arguments}"

    async def close(self) -> None:
        """Do nothing."""


async def test_what_fails_before_the_first_step_holds_no_run(place: str) -> None:
    """A run whose tools could not be opened is left at once: nobody waits for its lease to try again."""
    one = agent(ScriptedModel(["Done."]), place, tools=[Waking()], lease=600.0)
    with pytest.raises(ToolError, match="not up"):
        await one.run("Go.", run_id="r")
    left = await one.runs.find("r")
    assert (left.status, left.owner) == (RunStatus.WAITING, None)
    assert (await one.run("Go.", run_id="r")).text == "Done."


async def test_a_model_that_fails_ends_the_run(tmp_path: Path) -> None:
    """A failure of the model's is the run's end: the same error again, without asking."""
    place = str(tmp_path / "ledger.db")
    same = [Call("send", {"to": "a"})] * 4
    controls = Controls(tools={"send": ToolControls(loop_block=2)})
    one = agent(ScriptedModel(same), place, controls=controls)
    with pytest.raises(LoopBlocked) as first:
        await one.run("Go.", run_id="r")
    with pytest.raises(LoopBlocked) as again:
        await agent(ScriptedModel([]), place).run("Go.", run_id="r")
    assert again.value.message == first.value.message
    told = await agent(ScriptedModel([]), place).resume("r", check=False)
    assert (told.stopped, told.error is not None and told.error.code) == (Stopped.FAILED, "looping")


async def test_a_name_stands_for_one_question(tmp_path: Path) -> None:
    """Another prompt under the same name is refused; so is a name that cannot be one, and one that is not there."""
    one = agent(ScriptedModel(["Yes."]), str(tmp_path / "ledger.db"))
    await one.run("Go.", run_id="r")
    for wrong in ("Stop.", "Go. "):
        with pytest.raises(InvalidRequest, match="another prompt"):
            await one.run(wrong, run_id="r")
    with pytest.raises(InvalidRequest, match="another prompt"):
        await one.run("Go.", run_id="r", force=True)
    for name in ("", "a\nb", "x" * 201):
        with pytest.raises(InvalidRequest, match="cannot be called"):
            await one.run("Go.", run_id=name)
    with pytest.raises(UnknownRun, match="no run 's'"):
        await one.resume("s")


@dataclasses.dataclass
class City:
    """An answer."""

    name: str


CITY_ASKED = fill(
    Wording().answer_as_json,
    schema='{"description":"An answer.","properties":{"name":{"type":"string"}},'
    '"required":["name"],"title":"City","type":"object"}',
)


@pytest.mark.parametrize(
    ("output", "answer", "value"), [(City, '{"name":"Oslo"}', City("Oslo")), (int, '{"value":7}', 7)]
)
async def test_a_structured_answer_is_read_back_as_its_type(
    tmp_path: Path, output: Any, answer: str, value: Any
) -> None:
    """The value of a stored answer is of the type asked for; without a type it is what JSON says."""
    place = str(tmp_path / "ledger.db")
    first = await agent(ScriptedModel([answer]), place, tools=()).run("Go.", run_id="r", output=output)
    again = await agent(ScriptedModel([]), place, tools=()).run("Go.", run_id="r", output=output)
    plain = await agent(ScriptedModel([]), place, tools=()).resume("r")
    assert first.output == again.output == value
    assert plain.output == msgspec.to_builtins(value)


async def test_a_bad_answer_is_not_asked_for_a_third_time_after_a_crash(tmp_path: Path) -> None:
    """What was wrong with an answer asked for in words is remembered over an interruption (rule 84)."""
    place = str(tmp_path / "ledger.db")
    words = read_overrides([{"schema_output": False}])
    away = [Fail(503, "away")] * 10
    first = ScriptedModel(["Oslo?", *away], overrides=words)
    bad = agent(first, place, tools=())
    with pytest.raises(MustcallError):
        await bad.run("Go.", run_id="r", output=City)
    system = {"role": "system", "content": CITY_ASKED}
    asked = [system, user("chat", "Go.")]
    again = [*asked, user("chat", fill(Wording().bad_answer, problem="top level: valid JSON"))]
    tools: list[Any] = []
    assert [one.body for one in first.requests] == [sends(asked, tools), *[sends(again, tools)] * 3]
    model = ScriptedModel(["Oslo!"], overrides=words)
    with pytest.raises(StructuredOutputError, match="2 attempts"):
        await agent(model, place, tools=()).resume("r", output=City)
    assert [one.body for one in model.requests] == [sends(again, tools)]


async def test_a_stream_can_be_durable(place: str) -> None:
    """A stream under a name is kept; streamed again it is one event with the stored result."""
    world = World()
    one = agent(ScriptedModel([SENDS, "Done."]), place, world)
    async with one.stream("Go.", run_id="r") as events:
        seen = [event async for event in events]
    async with one.stream("Go.", run_id="r") as again:
        told = [event async for event in again]
    assert isinstance(seen[-1], RunFinished)
    assert told == [seen[-1]]
    assert again.result == seen[-1].result


async def test_two_models_are_not_paid_twice(tmp_path: Path) -> None:
    """The planner's turn is kept also where the caller's fails: it is not asked again."""
    world, place = World(), str(tmp_path / "ledger.db")
    planner = ScriptedModel(["Send it to a.", "Answer: sent."], model="planner")
    away = ScriptedModel([Fail(503, "away")] * 9)
    one = Agent(planner=planner, caller=away, tools=world.tools(), ledger=place)
    with pytest.raises(MustcallError):
        await one.run("Go.", run_id="r")
    told = {"role": "system", "content": fill(Wording().plan_into_calls, plan="Send it to a.")}
    asked = sends([told, user("chat", "Go.")])
    assert [one.body for one in away.requests] == [asked] * 3
    caller = ScriptedModel([Call("send", {"to": "a"})])
    result = await Agent(planner=planner, caller=caller, tools=world.tools(), ledger=place).resume("r")
    assert (result.text, world.sent, len(planner.requests), len(caller.requests)) == ("sent.", ["a"], 2, 1)


async def test_a_queued_run_is_carried_out_by_resume(tmp_path: Path) -> None:
    """`submit` writes a run down and asks nobody; whoever resumes it carries it out."""
    model = ScriptedModel(["Done."])
    one = agent(model, str(tmp_path / "ledger.db"))
    await one.submit("Go.", run_id="r")
    assert (len(model.requests), (await one.runs.find("r")).status) == (0, RunStatus.QUEUED)
    assert (await one.resume("r")).text == "Done."


def test_a_run_without_a_loop_can_be_durable(tmp_path: Path) -> None:
    """`run_sync` takes a name too."""
    one = agent(ScriptedModel(["Done."]), str(tmp_path / "ledger.db"))
    assert one.run_sync("Go.", run_id="r").run_id == "r"
    assert one.run_sync("Go.", run_id="r").text == "Done."


async def test_a_bad_lease_is_said_at_once(tmp_path: Path) -> None:
    """A lease of nothing holds nothing."""
    with pytest.raises(ConfigError, match="lease must be above 0"):
        await agent(ScriptedModel(["Yes."]), str(tmp_path / "l.db"), lease=0).run("Go.", run_id="r")


async def test_the_ledger_is_the_one_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `ledger` runs are kept where MUSTCALL_LEDGER says."""
    monkeypatch.setenv("MUSTCALL_LEDGER", str(tmp_path / "own.db"))
    await agent(ScriptedModel(["Yes."]), None).run("Go.", run_id="r")
    assert (tmp_path / "own.db").exists()


def test_only_a_process_that_is_seen_to_be_dead_is_gone() -> None:
    """An owner of this machine that lives, or of another machine, is not gone."""
    mine = new_owner()
    machine, _, began, rest = mine.split("/")
    assert not is_gone(mine)
    assert not is_gone(f"elsewhere/1/{began}/{rest}")
    assert not is_gone("somebody")
    assert is_gone(f"{machine}/4194304/{began}/{rest}") or not machine


async def test_claims_are_reported_with_the_result(tmp_path: Path) -> None:
    """`claims="report"`: says it sent; no call did. It is kept with a durable run."""
    place = str(tmp_path / "ledger.db")
    one = agent(ScriptedModel(["I've sent the mail."]), place, claims="report")
    result = await one.run("Go.", run_id="r")
    assert [(claim.act, str(claim.backing)) for claim in result.claims] == [("send", "nothing")]
    assert (await one.resume("r")).claims == result.claims
    assert (await agent(ScriptedModel(["I've sent the mail."]), place).run("Go.")).claims == ()
    called = ScriptedModel([Call("send", {"to": "a"}), "I've sent the mail."])
    assert (await agent(called, place, claims="report").run("Go.")).claims == ()
    with pytest.raises(ConfigError, match="claims must be one of"):
        agent(ScriptedModel([]), place, claims="maybe")


async def test_the_end_of_a_run_is_no_loss_of_its_lease(place: str) -> None:
    """A lease that is renewed all the time never takes a run's own end for another's claim."""
    for number in range(5):
        one = agent(ScriptedModel([SENDS, "Done."]), place, lease=0.03)
        try:
            result = await one.run("Go.", run_id=f"r{number}")
        except FenceLost:  # the lease itself may run out on a slow machine; that is said before the end is written
            assert (await one.runs.find(f"r{number}")).status is not RunStatus.DONE
        else:
            assert result.text == "Done."


async def test_an_open_agent_keeps_its_ledger_open(tmp_path: Path) -> None:
    """Inside `async with` the runs of an agent share one open ledger."""
    async with agent(ScriptedModel(["Yes."] * 2), str(tmp_path / "ledger.db")) as one, one.runs.ledger() as ledger:
        await one.run("Go.", run_id="a")
        async with one.runs.ledger() as again:
            assert again is ledger
        assert (await one.run("Go.", run_id="b")).text == "Yes."


def test_resume_sync(tmp_path: Path) -> None:
    """A run that has ended is told again without an event loop of one's own; inside one it is refused."""
    agent = Agent(ScriptedModel(["Sunny."]), ledger=str(tmp_path / "ledger.db"))
    first = agent.run_sync("Weather?", run_id="r")
    assert agent.resume_sync("r") == first

    async def inside() -> None:
        agent.resume_sync("r")

    with pytest.raises(ConfigError, match=r"await agent\.resume"):
        asyncio.run(inside())
