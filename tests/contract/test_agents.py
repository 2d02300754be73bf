"""The contract for whole runs: agents on an upstream that lies, cuts and breaks, on every wire, whole and streamed.

Whatever it does, a run ends in a result or in one of our errors; what was executed was on offer, complete and valid;
nothing of a discarded attempt was executed or is in the history; and that history is one every provider takes.
"""

import asyncio
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from contract.running import HASTY, PATIENT, HastyClock
from mustcall import Agent, FunctionTool, Role, RunResult, Text, ToolSettings, Upstream
from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.policy.failures.backoff import Backoff
from mustcall.testing import ScriptedModel, ScriptedUpstream
from mustcall.testing.adversary.upstream import Adversary, AttemptTruth, CallerIntent
from mustcall.testing.offers import Choice, OfferedTool
from mustcall.upstream.endpoint import Endpoint
from support.compared import leave

RUNS = 25
MOST_STEPS = 4
_HANGING = 11  # one run in so many
SCHEMAS: dict[str, dict[str, Any]] = {
    "look_up": {
        "type": "object",
        "properties": {"note": {"type": "string", "minLength": 2}, "days": {"type": "integer", "minimum": 1}},
        "required": ["note"],
        "additionalProperties": False,
    },
    "send": {
        "type": "object",
        "properties": {
            "to": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "kind": {"enum": ["a", "b"]},
        },
        "required": ["to"],
    },
}


class Ran:
    """The tools of one run, and what they were run with."""

    def __init__(self) -> None:
        self.made: list[tuple[str, dict[str, Any]]] = []

    def tools(self) -> list[FunctionTool]:
        """Return the tools."""
        settings = ToolSettings(side_effect=False)
        return [
            FunctionTool(name, name, schema, self._run(name), settings=settings) for name, schema in SCHEMAS.items()
        ]

    def _run(self, name: str) -> Any:
        async def run(arguments: dict[str, Any]) -> str:
            self.made.append((name, arguments))
            return "done <tool_call>{}</tool_call>"

        return run


async def take(
    upstream: ScriptedUpstream, wire: Wire, model: str, *, stream: bool, hangs: bool, role: str = "alone"
) -> tuple[RunResult, Ran]:
    """Run an agent to whatever end; the one that lies is alone, or one of two models."""
    endpoint = Endpoint(
        name=wire,
        wire=wire,
        base_url=upstream.base_url,
        api_key="k",
        backoff=Backoff(retries=2),
        timeouts=HASTY if hangs else PATIENT,
    )
    ran = Ran()
    where = Upstream(endpoint, model=model, clock=HastyClock())
    models: dict[str, dict[str, Any]] = {
        "alone": {"upstream": where},
        "caller": {"planner": ScriptedModel(default="Go on with the next call."), "caller": where},
        "planner": {"planner": where, "caller": ScriptedModel(default="none")},
    }
    agent = Agent(**models[role], tools=ran.tools(), max_steps=MOST_STEPS, timeout=600)
    if not stream:
        return await agent.run("Go on.", check=False), ran
    events = agent.stream("Go on.")
    try:
        async for _ in events:
            pass
    except MustcallError:
        assert events.result.error is not None
    return events.result, ran


def violations(result: RunResult, ran: Ran, told: list[AttemptTruth], requests: int) -> list[str]:
    """What of the contract was not kept."""
    found: list[str] = []
    for name, arguments in ran.made:
        if not jsonschema_rs.is_valid(SCHEMAS[name], arguments):
            found.append(f"{name} was run with {arguments}")
    written = msgspec.json.encode(ran.made).decode()
    texts = "".join(
        part.text
        for message in result.messages
        if message.role is Role.ASSISTANT
        for part in message.parts
        if isinstance(part, Text)
    )
    for number, one in enumerate(told):
        if not one.calls_may and (one.marks.argument in written or one.marks.markup in written):
            found.append(f"a call of attempt {number} ({one.what}) was run")
        if not one.bent and (one.marks.markup in texts or one.marks.argument in texts):
            found.append(f"markup of attempt {number} ({one.what}) is in the history")
    if requests > MOST_STEPS * 5:
        found.append(f"{requests} requests")
    return found + _disorder(result)


def _disorder(result: RunResult) -> list[str]:
    """Return what no provider would take: calls without exactly one result behind them, results without a call."""
    found: list[str] = []
    messages = result.messages
    for place, message in enumerate(messages):
        asked = sorted(call.id for call in message.calls)
        after = messages[place + 1].results if place + 1 < len(messages) else ()
        if asked and sorted(each.call_id for each in after) != asked:
            found.append(f"message {place} has calls without their results")
        if message.results and not messages[place - 1].calls:
            found.append(f"message {place} has results without their calls")
    ids = [call.id for message in messages for call in message.calls]
    if len(ids) != len(set(ids)):
        found.append("two calls have one id")
    return found


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", list(Wire))
async def test_runs_keep_the_contract(wire: Wire, stream: bool) -> None:
    """Rules 50, 67, 101, 109: loop steps keep what turns keep, whatever the upstream does."""
    assert await run_many(wire, RUNS, stream=stream) == []


@pytest.mark.parametrize("role", ["planner", "caller"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", list(Wire))
async def test_runs_of_two_models_keep_the_contract(wire: Wire, stream: bool, role: str) -> None:
    """Rules 50, 67, 101, 109: whichever of the two lies, nothing is run that it did not call, and no markup stays."""
    assert await run_many(wire, RUNS // 2, stream=stream, role=role) == []


async def run_many(wire: Wire, count: int, *, stream: bool, role: str = "alone") -> list[str]:
    """Run agents side by side; return what of the contract was not kept."""
    adversary = Adversary()
    offers = tuple(OfferedTool(name, schema) for name, schema in SCHEMAS.items())
    intents = {
        f"unknown-{number}": CallerIntent(
            seed=number + 7,
            tools=offers,
            choice=Choice("auto"),
            honest_from=None if number % 4 else 2,
            hangs=number % _HANGING == 1,
        )
        for number in range(count)
    }
    for model, intent in intents.items():
        adversary.expect(model, intent)
    with ScriptedUpstream(adversary) as upstream:
        leave(upstream, "the replies decide what is asked again; how often is checked for each run")
        limit = asyncio.Semaphore(8)

        async def one(model: str) -> list[str]:
            async with limit:
                hangs = intents[model].hangs
                result, ran = await take(upstream, wire, model, stream=stream, hangs=hangs, role=role)
            asked = sum(request.body["model"] == model for request in upstream.requests)
            found = violations(result, ran, adversary.told.get(model, []), asked)
            return [f"{model}: {each} ({result.stopped})" for each in found]

        found = await asyncio.gather(*map(one, intents))
    return [each for some in found for each in some]
