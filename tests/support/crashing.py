"""Runs that are killed and gone on with, and a witness that nobody can talk round.

A run is carried out in a child of its own, forked from this process once everything is imported. Its tools act by
writing a line to a file of their own (appended and synced): that file is the witness, and the ledger is judged by it.
Children are killed (or stopped) at random moments, or at a point they were given: before or after every write of the
journal and every effect.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from mustcall import Agent, FunctionTool, tool
from mustcall.core.errors import FenceLost, LedgerUnavailable, RunBusy, UnknownRun
from mustcall.core.parts import ToolCall
from mustcall.engine.run_records.results import RunResult
from mustcall.ledger import Claim, Ledger, NewEvent, RunEnd, open_ledger
from mustcall.testing import Call, Recorded, Turn
from mustcall.testing.model import ScriptedModel

__all__ = [
    "AGAIN",
    "AWAY",
    "BROKEN",
    "DONE",
    "LOST",
    "ONCE",
    "TOOLS",
    "Arena",
    "Job",
    "Seen",
    "count_points",
    "finish",
    "launch",
    "told",
    "violations",
    "warm_up",
]

PROMPT = "Do what has to be done."
ANSWER = "All done."
#: Tools that must never act twice, one of which can say whether it did; and one that may.
ONCE = ("pay", "note")
CHECKED = "book"
AGAIN = "store"
TOOLS = (*ONCE, CHECKED, AGAIN)

#: How a child ends.
DONE, BROKEN, LOST, BUSY, AWAY = 0, 1, 3, 4, 5


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the calls of each of its steps, as (tool, key)."""

    run_id: str
    place: str
    folder: str
    steps: tuple[tuple[tuple[str, str], ...], ...]
    lease: float = 30.0
    #: Seconds a tool takes, at most.
    pace: float = 0.003

    @property
    def witness(self) -> Path:
        """The file that tells what really happened."""
        return Path(self.folder) / f"{self.run_id}.witness"

    @property
    def report(self) -> Path:
        """The file in which the child that finished tells what the run came to."""
        return Path(self.folder) / f"{self.run_id}.json"

    @property
    def keys(self) -> dict[str, str]:
        """Every call's key, and its tool."""
        return {key: name for step in self.steps for name, key in step}


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to: its calls with their status, its model's turns, and the journal without contents."""

    text: str
    statuses: dict[str, str]
    calls: int
    turns: int
    events: tuple[tuple[str, int, str, int], ...]


class _Points:
    """The moments at which a child can be struck; `at` is the one at which it is. Effects may be left out."""

    def __init__(self, at: int, blow: int, *, effects: bool) -> None:
        self.count = 0
        self._at = at
        self._blow = blow
        self._effects = effects

    def reach(self, *, effect: bool = False) -> None:
        if effect and not self._effects:
            return
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), self._blow)
            if self._blow == signal.SIGKILL:  # another thread may be quick
                time.sleep(60)


class _Struck(Ledger):
    """A ledger with a point before and after everything it writes for a run."""

    points: _Points

    async def start_run(self, run: str, data: bytes, **claim: Any) -> Claim:
        self.points.reach()
        claimed = await super().start_run(run, data, **claim)
        self.points.reach()
        return claimed

    async def append(
        self, run: str, fence: int, events: Sequence[NewEvent], *, end: RunEnd | None = None, again: bool = False
    ) -> None:
        self.points.reach()
        await super().append(run, fence, events, end=end, again=again)
        self.points.reach()


class Arena:
    """Makes jobs from seeds, all in one ledger and one folder."""

    def __init__(
        self, place: str, folder: Path, *, lease: float = 30.0, pace: float = 0.003, tools: Sequence[str] = TOOLS
    ) -> None:
        self._place = place
        self._folder = folder
        self._lease = lease
        self._pace = pace
        self._tools = tools

    def job(self, seed: int) -> Job:
        """Return the run of a seed: two to four steps of one to three calls."""
        dice = random.Random(seed)
        steps = tuple(
            tuple((dice.choice(self._tools), f"{step}.{call}") for call in range(dice.randint(1, 3)))
            for step in range(dice.randint(2, 4))
        )
        return Job(
            run_id=f"run{seed}",
            place=self._place,
            folder=str(self._folder),
            steps=steps,
            lease=self._lease,
            pace=self._pace,
        )


def warm_up() -> None:
    """Load what a run needs once, here, so that no child has to."""
    import_module("mustcall.engine.durable.runs")

    async def nothing() -> str:
        """Do nothing."""
        return "nothing"

    asyncio.run(Agent(ScriptedModel([Call("nothing"), "Yes."]), tools=[nothing]).run("Nothing?"))


# --- the child ----------------------------------------------------------------------------------------------------


def launch(job: Job, *, at: int = 0, blow: int = signal.SIGKILL, effects: bool = True) -> int:  # pyrefly: ignore[bad-return]
    """Begin or go on with a run in a child; return its process id. `at` is the point at which it is struck."""
    pid = os.fork()
    if pid:
        return pid
    code = BROKEN
    try:
        code = asyncio.run(_carry_out(job, _Points(at, blow, effects=effects)))
    except LedgerUnavailable:
        code = AWAY
    except BaseException as error:  # noqa: BLE001  this process has nobody to tell
        _append(job.witness, f"error {type(error).__name__}: {error}")
    finally:
        os._exit(code)


async def _carry_out(job: Job, points: _Points) -> int:
    model = ScriptedModel(lambda asked: _reply(job, asked))
    opened = open_ledger(job.place)
    ledger = _Struck(opened.store, limit=20.0)
    ledger.points = points
    async with ledger:
        agent = Agent(model, tools=_tools(job, points), ledger=ledger, lease=job.lease)
        try:
            try:
                result = await agent.resume(job.run_id)
            except UnknownRun:
                result = await agent.run(PROMPT, run_id=job.run_id)
        except FenceLost:
            return LOST
        except RunBusy:
            return BUSY
        events = await ledger.events(job.run_id)
    seen = Seen(
        text=result.text,
        statuses=_statuses(result),
        calls=len(result.calls),
        turns=len(result.steps),
        events=tuple((event.step, event.attempt, event.kind, event.fence) for event in events),
    )
    part = job.report.with_suffix(f".{os.getpid()}")
    part.write_bytes(msgspec.json.encode(seen))
    part.replace(job.report)
    (job.report.with_suffix(".points")).write_text(str(points.count), encoding="ascii")
    return DONE


def _statuses(result: RunResult) -> dict[str, str]:
    return {msgspec.json.decode(each.call.arguments_json)["key"]: str(each.status) for each in result.calls}


def _reply(job: Job, asked: Recorded) -> Turn | str:
    """Return the model's next reply, by how often it has called already: it knows nothing of processes."""
    done = sum(1 for message in asked.body["messages"] if message.get("tool_calls"))
    _append(job.witness, f"model {done}")
    if done >= len(job.steps):
        return ANSWER
    return Turn(*(Call(name, {"key": key}, id=f"call_{key.replace('.', '_')}") for name, key in job.steps[done]))


def _tools(job: Job, points: _Points) -> list[FunctionTool]:
    dice = random.Random(os.getpid())

    def act(key: str) -> str:
        _append(job.witness, f"begin {key}")
        time.sleep(dice.random() * job.pace)
        points.reach(effect=True)
        _append(job.witness, f"effect {key}")
        points.reach(effect=True)
        time.sleep(dice.random() * job.pace)
        _append(job.witness, f"end {key}")
        return f"did {key}"

    def happened(call: ToolCall) -> bool:
        return f"effect {msgspec.json.decode(call.arguments_json)['key']}" in _lines(job)

    @tool
    def pay(key: str) -> str:
        """Pay something."""
        return act(key)

    @tool
    async def note(key: str) -> str:
        """Note something, without a thread of its own."""
        await asyncio.sleep(0)
        return act(key)

    @tool(check=happened)
    def book(key: str) -> str:
        """Book something that can be looked up."""
        return act(key)

    @tool(idempotent=True)
    def store(key: str) -> str:
        """Store something under its key."""
        return act(key)

    return [pay, note, book, store]


def _append(path: Path, line: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, f"{line}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)


# --- the judge ----------------------------------------------------------------------------------------------------


def finish(job: Job) -> int:
    """Wait for a run to finish undisturbed; return how its last child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(launch(job), 0)[1])


def count_points(job: Job) -> int:
    """Carry a run out undisturbed; return the points its child passed."""
    assert finish(job) == DONE, _lines(job)
    return int(job.report.with_suffix(".points").read_text(encoding="ascii"))


def _lines(job: Job) -> list[str]:
    with suppress(FileNotFoundError):
        return job.witness.read_text(encoding="utf-8").splitlines()
    return []


def told(job: Job) -> int:
    """Return how many lines the witness has."""
    return len(_lines(job))


def violations(job: Job, kills: int) -> list[str]:
    """Return what a finished run did that it must not, by its witness."""
    lines = _lines(job)
    count = Counter(lines)
    if not job.report.exists():
        return [f"{job.run_id}: never finished: {lines[-3:]}"]
    seen = msgspec.json.decode(job.report.read_bytes(), type=Seen)
    wrong: list[str] = [f"died of {line}" for line in lines if line.startswith("error ")]
    if seen.text != ANSWER or set(seen.statuses) != set(job.keys) or seen.calls != len(job.keys):
        wrong.append(f"steps are lost: {seen.statuses} of {sorted(job.keys)}, {seen.text!r}")
    if seen.turns != len(job.steps) + 1:
        wrong.append(f"{seen.turns} turns of the model's for {len(job.steps)} steps")
    paid = sum(times - 1 for line, times in count.items() if line.startswith("model "))
    if paid > kills:
        wrong.append(f"{paid} turns were paid again after {kills} kills")
    fences = {(step, kind): fence for step, _, kind, fence in seen.events}
    for step, calls in enumerate(job.steps):
        for index, (name, key) in enumerate(calls):
            path = f"m{step}/c{index}"
            wrong += _judge(
                key,
                name,
                status=seen.statuses.get(key, "missing"),
                begun=count[f"begin {key}"],
                effects=count[f"effect {key}"],
                ended=count[f"end {key}"],
                interrupted=fences.get((path, "intent"), 0) < fences.get((path, "result"), 0),
            )
    return [f"{job.run_id}: {each}" for each in wrong]


def _judge(key: str, name: str, *, status: str, begun: int, effects: int, ended: int, interrupted: bool) -> list[str]:
    """Return what is wrong with one call."""
    said = f"{name} {key} is {status}: begun {begun}, effects {effects}, ended {ended}"
    wrong: list[str] = []
    if name != AGAIN and effects > 1:
        wrong.append(f"acted twice: {said}")
    if status == "unknown":
        if name not in ONCE or not interrupted:
            wrong.append(f"unknown where nothing was interrupted: {said}")
    elif status != "ok" or effects < 1:
        wrong.append(f"said to be done and was not: {said}")
    elif name in ONCE and ended != 1:
        wrong.append(f"interrupted and not unknown: {said}")
    return wrong
