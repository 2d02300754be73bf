"""Durable runs, interrupted on purpose: what is done again, what is not, and what is said of it."""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall import Agent, FunctionTool, RunFinished, RunResult, Stopped, ToolCall, tool
from mustcall.core.errors import (
    ConfigError,
    FenceLost,
    InvalidRequest,
    LoopBlocked,
    MustcallError,
    RunBusy,
    StructuredOutputError,
    ToolError,
    UnknownRun,
    UpstreamRejected,
    UpstreamUnavailable,
)
from mustcall.engine.durable import holding
from mustcall.engine.durable.owners import is_gone, new_owner
from mustcall.engine.tooling import SourcedTool
from mustcall.ledger import Ledger, NewEvent, RunEnd, RunStatus, open_ledger
from mustcall.policy.facts.controls import Controls, ToolControls
from mustcall.policy.facts.wording import Wording, fill
from mustcall.profiles import read_overrides
from mustcall.testing import Call, Fail, Reset, Say, Turn
from mustcall.testing.model import Line, ScriptedModel
from support.agents import ask_body, offer, results, said, user, wrapped

SENDS = Turn(Call("send", {"to": "a"}), Call("send", {"to": "b"}))


SEND_SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}},
    "required": ["to"],
    "additionalProperties": False,
}


def sends(turns: list[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A request of an agent that can send."""
    offered = [offer("chat", "send", "Send it.", SEND_SCHEMA)] if tools is None else tools
    return ask_body("chat", turns, tools=offered, model="scripted")


class Cut(BaseException):
    """The process is gone."""


class Cutting(Ledger):
    """A ledger whose process dies right before or right after it writes what is looked for."""

    before: str = ""
    after: str = ""
    dead: bool = False

    async def append(
        self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
    ) -> None:
        """Write, or die."""
        told = " ".join([*(f"{event.kind}:{event.step}" for event in events), *([str(end.status)] if end else [])])
        self.dead = self.dead or bool(self.before and self.before in told)
        if self.dead:
            raise Cut
        await super().append(run, fence, events, end=end, again=again)
        self.dead = bool(self.after and self.after in told)
        if self.dead:
            raise Cut


class World:
    """What tools did."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def tools(self, **settings: Any) -> list[FunctionTool]:
        """A tool that acts."""

        @tool(**settings)
        async def send(to: str) -> str:
            """Send it."""
            self.sent.append(to)
            return f"sent to {to}"

        return [send]


def agent(model: ScriptedModel, place: Any, world: World | None = None, **settings: Any) -> Agent:
    """An agent that keeps its runs."""
    settings.setdefault("tools", (world or World()).tools())
    return Agent(model, ledger=place, **settings)


async def cut_off(place: str, script: Sequence[Line], world: World, *, before: str = "", after: str = "") -> None:
    """Run until the process dies, and leave nothing behind but the ledger."""
    opened = open_ledger(place)
    ledger = Cutting(opened.store)
    ledger.before, ledger.after = before, after
    async with ledger:
        one = agent(ScriptedModel(script), ledger, world, lease=0.05)
        with pytest.raises((Cut, BaseExceptionGroup)):
            await one.run("Go.", run_id="r")
    await asyncio.sleep(0.06)  # its lease


async def test_a_name_makes_a_run_durable(place: str) -> None:
    """The same name again is the same result, byte for byte, and no model is asked."""
    model, world = ScriptedModel([SENDS, "Done."]), World()
    one = agent(model, place, world)
    first = await one.run("Go.", run_id="r")
    again = await agent(ScriptedModel([]), place).run("Go.", run_id="r")
    later = await agent(ScriptedModel([]), place).resume("r")
    assert (first.text, first.run_id, len(model.requests), sorted(world.sent)) == ("Done.", "r", 2, ["a", "b"])
    assert msgspec.json.encode(again) == msgspec.json.encode(first) == msgspec.json.encode(later)


async def test_a_tool_turn_takes_two_commits(place: str) -> None:
    """What the model said and what is about to run are one commit, the results another, the end the last."""
    model, world = ScriptedModel([Call("send", {"to": "a"}), "Done."]), World()
    async with open_ledger(place) as ledger:
        counting = Counting(ledger.store)
        await agent(model, counting, world).run("Go.", run_id="r")
        events = await ledger.events("r")
    assert counting.written == [["model:m0", "intent:m0/c0"], ["result:m0/c0"], ["model:m1", "done"]]
    assert [(event.step, event.kind, event.fence) for event in events] == [
        ("m0", "model", 1),
        ("m0/c0", "intent", 1),
        ("m0/c0", "result", 1),
        ("m1", "model", 1),
    ]


class Counting(Ledger):
    """A ledger that tells what was written in one go."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.written: list[list[str]] = []

    async def append(
        self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
    ) -> None:
        """Write, and remember what."""
        told = [f"{event.kind}:{event.step}" for event in events]
        self.written.append(told + ([str(end.status)] if end else []))
        await super().append(run, fence, events, end=end, again=again)


async def test_finished_calls_are_not_made_again(place: str) -> None:
    """After a crash behind both results the model is asked for the rest, and no tool runs."""
    world = World()
    await cut_off(place, [SENDS], world, before="model:m1")
    assert sorted(world.sent) == ["a", "b"]
    model = ScriptedModel(["Done."])
    result = await agent(model, place, world).resume("r")
    assert sorted(world.sent) == ["a", "b"]
    assert [str(call.status) for call in result.calls] == ["ok", "ok"]
    assert len(model.requests) == 1
    assert [m["role"] for m in model.requests[0].body["messages"]] == ["user", "assistant", "tool", "tool"]
    assert len(result.steps) == 2
    assert result.usage == sum_usage(result)


def sum_usage(result: RunResult) -> Any:
    """The tokens of every turn."""
    first, *rest = [step.usage for step in result.steps if step.usage is not None]
    for usage in rest:
        first += usage
    return first


async def test_a_call_that_had_begun_is_unknown_and_not_made_again(place: str) -> None:
    """An intent without a result: the model is told in one line, the result says so, the tool does not run."""
    world = World()
    await cut_off(place, [Call("send", {"to": "a"})], world, before="result:m0/c0")
    model = ScriptedModel(["I do not know."])
    result = await agent(model, place, world).resume("r")
    assert world.sent == ["a"]
    assert [str(call.status) for call in result.calls] == ["unknown"]
    assert result.unknown == result.calls
    told = model.requests[0].body["messages"][-1]["content"]
    assert told == (
        "Error: The run was interrupted during the call of `send`: whether it took effect is not known. "
        "Find out before calling it again."
    )


async def test_what_never_began_is_begun(place: str) -> None:
    """Cut before the intents are written: the model's turn is not there, and everything is done once."""
    world = World()
    await cut_off(place, [SENDS], world, before="model:m0")
    assert world.sent == []
    result = await agent(ScriptedModel([SENDS, "Done."]), place, world).resume("r")
    assert (sorted(world.sent), result.unknown) == (["a", "b"], ())


async def test_the_end_is_written_once(place: str) -> None:
    """Cut right after the end: the result is there, and no model is asked for it."""
    world = World()
    await cut_off(place, ["Done."], world, after="done")
    assert (await agent(ScriptedModel([]), place).resume("r")).text == "Done."


async def test_an_idempotent_tool_is_run_again(place: str) -> None:
    """What may be repeated is repeated, with a second intent, under the same call id."""
    world = World()
    tools = world.tools(idempotent=True)
    opened = open_ledger(place)
    ledger = Cutting(opened.store)
    ledger.before = "result:"
    async with ledger:
        with pytest.raises((Cut, BaseExceptionGroup)):
            await agent(ScriptedModel([Call("send", {"to": "a"})]), ledger, tools=tools, lease=0.05).run(
                "Go.", run_id="r"
            )
    await asyncio.sleep(0.06)
    result = await agent(ScriptedModel(["Done."]), place, tools=tools).resume("r")
    assert (world.sent, str(result.calls[0].status)) == (["a", "a"], "ok")
    async with open_ledger(place) as ledger:
        events = [(event.kind, event.attempt) for event in await ledger.events("r") if event.step == "m0/c0"]
    assert events == [("intent", 0), ("intent", 1), ("result", 1)]


@pytest.mark.parametrize(
    ("answer", "sent", "status", "told"),
    [
        (False, ["a", "a"], "ok", "sent to a"),
        (True, ["a"], "ok", "The call of `send` took effect; its result was lost in an interruption."),
        ("it is number 7", ["a"], "ok", "it is number 7"),
        (None, ["a"], "unknown", "whether it took effect is not known"),
        (ValueError("?"), ["a"], "unknown", "whether it took effect is not known"),
    ],
)
async def test_a_check_says_what_became_of_a_call(
    tmp_path: Path, answer: Any, sent: list[str], status: str, told: str
) -> None:
    """`check` is asked about the call: not done, done, done with this result, or nobody can tell."""
    asked: list[str] = []

    def check(call: ToolCall) -> Any:
        asked.append(call.arguments_json)
        if isinstance(answer, Exception):
            raise answer
        return answer

    world, place = World(), str(tmp_path / "ledger.db")
    await cut_off(place, [Call("send", {"to": "a"})], world, before="result:")
    result = await agent(ScriptedModel(["Done."]), place, tools=world.tools(check=check)).resume("r")
    assert (world.sent, str(result.calls[0].status), asked) == (sent, status, ['{"to":"a"}'])
    assert told in result.calls[0].result


async def test_an_approval_stands_between_the_model_and_the_intent(tmp_path: Path) -> None:
    """A run that dies while somebody is asked has not begun the call: it is asked again, and nothing is unknown."""
    world, place = World(), str(tmp_path / "ledger.db")

    def dies(call: ToolCall) -> bool:
        raise Cut(call.name)

    def allows(call: ToolCall) -> bool:
        return call.name == "send"

    one = agent(ScriptedModel([Call("send", {"to": "a"})]), place, tools=world.tools(approve=dies), lease=0.05)
    with pytest.raises((Cut, BaseExceptionGroup)):
        await one.run("Go.", run_id="r")
    result = await agent(ScriptedModel(["Done."]), place, tools=world.tools(approve=allows)).resume("r")
    assert (world.sent, result.unknown) == (["a"], ())


async def test_a_run_is_driven_by_one_at_a_time(place: str) -> None:
    """A second process gets `RunBusy`, and one that comes after the lease stops the first by its fence."""
    started, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait(n: int) -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return str(n)

    first = agent(ScriptedModel([Call("wait", {"n": 1}), "First."]), place, tools=[wait])
    second = agent(ScriptedModel(["Second."]), place, tools=[wait])
    running = asyncio.create_task(first.run("Go.", run_id="r"))
    await started.wait()
    with pytest.raises(RunBusy, match="its lease lasts"):
        await second.run("Go.", run_id="r")
    with pytest.raises(RunBusy):
        await second.resume("r", check=False)
    taken = await second.resume("r", take=True)
    go_on.set()
    with pytest.raises(FenceLost):
        await running
    assert (taken.text, [str(call.status) for call in taken.calls]) == ("Second.", ["unknown"])
    assert (await first.resume("r")).text == "Second."


async def test_a_lease_is_renewed_while_a_tool_runs(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose tool takes its time stays with its process: its lease ends later and later."""
    monkeypatch.setattr(holding, "_RENEWALS", 1200)  # every 50 ms of a lease that no machine is too slow for
    renewed: asyncio.Queue[float] = asyncio.Queue()
    go_on = asyncio.Event()

    class Watched(Ledger):
        async def renew_lease(self, run: str, fence: int, *, lease: float) -> bool:
            held = await super().renew_lease(run, fence, lease=lease)
            now = await self.get_run(run)
            assert now is not None
            assert now.lease_until is not None
            renewed.put_nowait(now.lease_until)
            return held

    @tool
    async def wait() -> str:
        """Wait until the lease was renewed."""
        await go_on.wait()
        return "ok"

    async with Watched(open_ledger(place).store) as ledger:
        first = agent(ScriptedModel([Call("wait"), "First."]), ledger, tools=[wait], lease=60)
        running = asyncio.create_task(first.run("Go.", run_id="r"))
        ends = [await renewed.get() for _ in range(3)]
        assert ends == sorted(set(ends))
        with pytest.raises(RunBusy):
            await agent(ScriptedModel([]), place, tools=[wait]).resume("r")
        go_on.set()
        assert (await running).text == "First."


async def test_a_run_that_is_taken_away_is_stopped_in_its_tool(place: str) -> None:
    """Cancelled from outside, a run stops at the next beat of its lease, not only when it writes."""
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    one = agent(ScriptedModel([Call("hang"), "No."]), place, tools=[hang], lease=0.3)
    running = asyncio.create_task(one.run("Go.", run_id="r"))
    await started.wait()
    async with open_ledger(place) as ledger:
        assert await ledger.cancel_run("r") is not None
    with pytest.raises(FenceLost, match="ended from outside"):
        await running
    told = await one.resume("r")
    assert (told.stopped, [message.role for message in told.messages]) == (
        Stopped.CANCELLED,
        ["user", "assistant", "tool"],
    )


async def test_a_cancelled_task_leaves_the_run_to_be_gone_on_with(place: str) -> None:
    """Leaving a run in the middle gives it free at once; the call under way is unknown."""
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hang."""
        started.set()
        await asyncio.Event().wait()
        return ""

    one = agent(ScriptedModel([Call("hang"), "Done."]), place, tools=[hang])
    running = asyncio.create_task(one.run("Go.", run_id="r"))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (await one.runs.find("r")).status is RunStatus.WAITING
    assert [str(call.status) for call in (await one.resume("r")).calls] == ["unknown"]


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
