"""Runs of cells against a scripted upstream: what is sent, what is waited for, and whose fault is found."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import pytest

from mustcall.core.origin import Wire
from mustcall.core.reply import Usage
from mustcall.policy.limits.budget import Price
from mustcall.probe import CellResult, CellVerdict, Level, Owner, Prober, ProbeResult, Subject, cells_for, plan_probe
from mustcall.probe.facts import facts_of
from mustcall.testing import Answer, Call, Cut, Fail, Raw, Recorded, Say, ScriptedUpstream, Think, Turn
from mustcall.testing.probed import LyingServer, find_lie
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import HttpTransport
from support.probing import plan_for

SAID = Turn(Say("Here is a sentence."))


class PausedClock:
    """A clock that stands still and notes what was waited for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def monotonic(self) -> float:
        """Return the seconds that were waited for."""
        return sum(self.waits)

    def now(self) -> float:
        """Return a day of November 2026."""
        return 1_794_900_000.0

    def jitter(self) -> float:
        """Return no jitter."""
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """Note the wait."""
        self.waits.append(seconds)


def probe(
    script: Callable[[Recorded], Answer] | Sequence[Answer],
    *only: str,
    wire: Wire = Wire.CHAT,
    level: Level = Level.DEFAULT,
    price: Price | None = None,
    max_usd: float | None = None,
    max_requests: int | None = None,
    clock: PausedClock | None = None,
) -> tuple[ProbeResult, list[Recorded]]:
    """Measure some cells of a scripted upstream; return the result and every request."""

    async def run(base_url: str) -> ProbeResult:
        transport = HttpTransport()
        try:
            endpoint = Endpoint(name="up", wire=wire, base_url=base_url)
            subject = Subject(
                endpoint=endpoint, model="m", transport=transport, clock=clock or PausedClock(), price=price
            )
            plan = plan_probe(
                cells_for(wire, level, None, only), wire, level, price, max_usd=max_usd, max_requests=max_requests
            )
            prober = Prober(subject, plan)
            async for _ in prober.run():
                pass
            return prober.result
        finally:
            await transport.close()

    with ScriptedUpstream(script) as upstream:
        result = asyncio.run(run(upstream.base_url))
    assert len(upstream.requests) == result.spent.requests <= result.announced_requests
    return result, upstream.requests


def only(result: ProbeResult, name: str) -> CellResult:
    """Return one cell."""
    return next(cell for cell in result.cells if cell.id == name)


def obedient(recorded: Recorded) -> Answer:
    """Call what is demanded, else speak."""
    choice = recorded.body.get("tool_choice")
    if choice not in (None, "auto", "none", "required"):
        return Turn(Call(choice["function"]["name"], {"city": "Oslo"}))
    return Turn(Call("add_note", {"text": "hello"})) if choice == "required" else SAID


def test_a_cell_that_holds_is_tried_as_often_as_planned() -> None:
    """12 tries whole, each its own request, and nothing else."""
    result, requests = probe(obedient, "required")
    cell = only(result, "required")
    assert (cell.verdict, cell.held, cell.measured) == (CellVerdict.HELD, 12, 12)
    assert [each.verdict for each in result.cells] == [CellVerdict.HELD] * 4
    assert len(requests) == 12 + 3 * 8
    assert len({one.raw for one in requests}) == len(requests)


def test_a_forced_choice_that_is_ignored_is_the_servers() -> None:
    """200 and prose: ignored, the server's; without streaming and without reasoning it was asked once more each."""
    result, requests = probe(lambda _: SAID, "required")
    assert {(cell.verdict, cell.owner) for cell in result.cells} == {(CellVerdict.IGNORED, Owner.SERVER)}
    again = 1 + 1 + 2  # stream: whole; reasoning: without; both: both
    assert len(requests) == 12 + 3 * 8 + again
    (fact,) = [fact for fact in facts_of(result) if fact.field == "forced"]
    assert (fact.value, fact.held, fact.of, fact.day) == ("ignored", 0, 20, "2026-11-17")


def test_a_call_in_the_text_is_the_parsers() -> None:
    """Our own dialects find it, and the note names the dialect; nothing is asked again."""
    text = '<tool_call>\n{"name": "add_note", "arguments": {"text": "cats"}}\n</tool_call>'
    result, requests = probe(lambda _: Turn(Say(text)), "required", "leaks")
    required = only(result, "required")
    assert (required.verdict, required.owner) == (CellVerdict.IGNORED, Owner.PARSER)
    assert "hermes" in required.note
    assert (only(result, "leaks").verdict, only(result, "leaks").owner) == (CellVerdict.IGNORED, Owner.PARSER)
    assert len(requests) == 36


def test_what_holds_whole_and_not_streamed_is_the_transports() -> None:
    """The stream loses the call, the whole reply has it."""
    result, _ = probe(lambda one: SAID if one.body.get("stream") else obedient(one), "required")
    assert only(result, "required").verdict is CellVerdict.HELD
    streamed = only(result, "required+stream")
    assert (streamed.verdict, streamed.owner) == (CellVerdict.IGNORED, Owner.TRANSPORT)


def test_what_fails_with_reasoning_alone_says_so() -> None:
    """It holds without: the note tells it, and the fact is that forcing works without reasoning."""
    result, _ = probe(lambda one: SAID if "reasoning_effort" in one.body else obedient(one), "required")
    assert only(result, "required+reasoning").note == "it holds without reasoning"
    assert {fact.field: fact.value for fact in facts_of(result)}["forced"] == "without_reasoning"


def test_refusals_and_crashes_stop_after_two() -> None:
    """A 400 is refused, a 500 crashed, a cut answer crashed by the transport; each repeats itself."""
    refused, requests = probe(lambda _: Fail(400, "tool_choice is not supported"), "named")
    assert {(cell.verdict, cell.owner) for cell in refused.cells} == {(CellVerdict.REFUSED, Owner.SERVER)}
    assert len(requests) == 4 * 2
    crashed, requests = probe(lambda _: Fail(500, "boom"), "named")
    assert {(cell.verdict, cell.owner) for cell in crashed.cells} == {(CellVerdict.CRASHED, Owner.SERVER)}
    assert len(requests) == 4 * 2
    cut, _ = probe(lambda _: Cut(SAID, after=10), "format")
    assert (cut.cells[0].verdict, cut.cells[0].owner) == (CellVerdict.CRASHED, Owner.TRANSPORT)


def test_what_the_server_could_not_parse_is_the_parsers() -> None:
    """llama.cpp answers 500 with what its model wrote."""
    result, _ = probe(lambda _: Fail(500, "Failed to parse input at pos 12: <tool_call>"), "format")
    assert (result.cells[0].verdict, result.cells[0].owner) == (CellVerdict.CRASHED, Owner.PARSER)


def test_a_rate_limit_is_waited_for_as_asked() -> None:
    """Retry-After is honoured, else waits double; each request counts; the waits are seen by their own cell."""
    clock = PausedClock()
    limits = [
        Fail(429, "slow down", headers={"retry-after": "7"}),
        Fail(429, "slow down"),
        *[Turn(Say('{"colour": "red", "count": 1}'))] * 6,
    ]
    result, requests = probe(limits, "format", "retry_after", clock=clock)
    assert clock.waits == [7.0, 2.0]
    assert len(requests) == 8
    assert only(result, "format").verdict is CellVerdict.HELD
    waits = only(result, "retry_after")
    assert (waits.held, waits.measured, waits.verdict) == (1, 2, CellVerdict.FLAKY)


def test_a_rate_limit_that_never_ends_ends_the_run_and_not_the_budget() -> None:
    """Nothing was measured, nothing more than announced was sent."""
    result, requests = probe(lambda _: Fail(429, "slow down"), "format")
    assert result.cells[0].verdict is CellVerdict.UNMEASURED
    assert len(requests) == result.announced_requests
    assert "budget" in result.partial


def test_a_closed_connection_is_tried_once_more_and_a_dead_upstream_given_up() -> None:
    """Three exchanges in a row without an answer: the run ends and says why."""
    result, requests = probe(lambda _: Cut(SAID), "format", "stop")
    assert len(requests) == 3
    assert "could not be reached" in result.partial


@pytest.mark.parametrize("most", [1, 5, 13])
def test_no_more_requests_than_announced(most: int) -> None:
    """A smaller limit cuts the run; every cell still has a result."""
    result, requests = probe(lambda _: SAID, "required", "named", max_requests=most)
    assert len(requests) == most == result.announced_requests
    assert "budget" in result.partial
    assert len(result.cells) == 8


def test_no_more_money_than_announced() -> None:
    """Each request is paid for before it is sent, with all tokens that it may take; the usage settles it."""
    price = Price(input=10.0, output=100.0)
    free, _ = probe(lambda _: SAID, "required", price=price)
    assert free.spent.cost_usd is not None
    assert free.announced_usd is not None
    assert 0 < free.spent.cost_usd < free.announced_usd
    capped, requests = probe(lambda _: SAID, "required", price=price, max_usd=0.05)
    assert capped.announced_usd == 0.05
    assert capped.spent.cost_usd is not None
    assert capped.spent.cost_usd <= 0.05
    assert 0 < len(requests) < free.spent.requests
    assert "budget" in capped.partial


def test_eight_at_once_are_eight_requests_and_a_mixed_up_reply_is_seen() -> None:
    """Each reply must be about its own city."""
    result, requests = probe(
        lambda one: Turn(Call("get_weather", {"city": one.body["messages"][0]["content"].split()[5]})), "concurrency.8"
    )
    assert (result.cells[0].verdict, len(requests)) == (CellVerdict.HELD, 8)
    mixed, _ = probe(lambda _: Turn(Call("get_weather", {"city": "Rome"})), "concurrency.8")
    assert (mixed.cells[0].verdict, mixed.cells[0].owner) == (CellVerdict.IGNORED, Owner.SERVER)


def test_reports_are_read_as_they_came_and_not_as_codecs_mend_them() -> None:
    """Two calls with one id, a finish that denies a call, no usage: each is its own cell."""
    glued = Turn(Call("get_weather", {"city": "Oslo"}, id="call_1"), Call("get_weather", {"city": "Rome"}, id="call_1"))
    result, _ = probe(lambda _: glued, "parallel.on", "ids", "ids+several", "finish", "usage")
    assert (only(result, "parallel.on").verdict, only(result, "ids+several").verdict) == (
        CellVerdict.HELD,
        CellVerdict.IGNORED,
    )
    denied = Turn(Call("get_weather", {"city": "Oslo"}), finish="stop", usage=None)
    result, _ = probe(lambda _: denied, "auto", "ids", "finish", "usage")
    assert only(result, "ids").verdict is CellVerdict.HELD
    assert (only(result, "finish").verdict, only(result, "finish").owner) == (CellVerdict.IGNORED, Owner.SERVER)
    assert only(result, "usage").verdict is CellVerdict.IGNORED


def test_reasoning_is_handed_back_whole_dropped_and_altered() -> None:
    """The second request of each try has the signature as it came, none, and another one."""

    def script(one: Recorded) -> Answer:
        last = one.body["messages"][-1]["content"]
        if isinstance(last, str) or last[0]["type"] != "tool_result":
            return Turn(
                Think("Hm.", signature="a-signature-of-the-server-0123456789"), Call("get_weather", {"city": "x"})
            )
        signatures = [
            block["signature"]
            for message in one.body["messages"]
            if not isinstance(message["content"], str)
            for block in message["content"]
            if block["type"] == "thinking"
        ]
        if any(signature != "a-signature-of-the-server-0123456789" for signature in signatures):
            return Fail(400, "invalid signature in thinking block")
        return SAID

    names = ("reasoning.returned", "reasoning.dropped", "reasoning.altered")
    result, requests = probe(script, *names, wire=Wire.MESSAGES)
    assert {cell.id: cell.verdict for cell in result.cells} == dict.fromkeys(names, CellVerdict.HELD)
    assert len(requests) == 6
    lax, _ = probe(lambda one: Fail(400, "x") if one.number > 99 else _lax(one), *names, wire=Wire.MESSAGES)
    assert only(lax, "reasoning.altered").verdict is CellVerdict.IGNORED


def _lax(one: Recorded) -> Answer:
    last = one.body["messages"][-1]["content"]
    if isinstance(last, str) or last[0]["type"] != "tool_result":
        return Turn(Think("Hm."), Call("get_weather", {"city": "x"}))
    return SAID


def test_a_silent_cut_of_the_prompt_is_seen_in_the_usage() -> None:
    """Fewer tokens than the prompt has, and no password: the server cut it. An open refusal is honest."""
    small, _ = probe(lambda _: SAID, "context")
    assert (small.cells[0].verdict, small.cells[0].owner) == (CellVerdict.IGNORED, Owner.SERVER)
    honest, _ = probe(lambda _: Fail(400, "This model's maximum context length is 4096 tokens"), "context")
    assert honest.cells[0].verdict is CellVerdict.HELD


def test_garbage_is_a_crash_and_never_an_exception() -> None:
    """Whatever comes back, every cell gets a verdict."""
    for answer in (Raw(200, b"not json"), Raw(200, b'{"choices": 3}'), Raw(200, b"[]"), Raw(418, b"\xff")):
        result, _ = probe(lambda _, answer=answer: answer, level=Level.QUICK)
        assert all(cell.verdict is not CellVerdict.HELD for cell in result.cells if cell.guarantee == "required")


async def _stopped_after(most: int, before: ProbeResult | None, server: LyingServer) -> ProbeResult:
    """Measure the default set until so many cells changed; return what is known then."""
    endpoint = Endpoint(name="up", wire=Wire.CHAT, base_url="http://probed.invalid/v1", api_key="key")
    subject = Subject(endpoint=endpoint, model="m", transport=server, clock=PausedClock())
    prober = Prober(subject, plan_for(Wire.CHAT), before)
    changes = 0
    async with contextlib.aclosing(prober.run()) as run:
        async for _ in run:
            changes += 1
            if changes == most:
                break
    return prober.result


@pytest.mark.parametrize(
    ("name", "most"),
    [
        (None, 9),
        ("ignores_required", 9),
        ("leaks_hermes_in_streams", 9),
        ("ignores_named_in_streams", 9),
        ("ignores_named_in_streams", 1),
    ],
)
async def test_a_run_goes_on_from_one_that_was_stopped(name: str | None, most: int) -> None:
    """Every request is made once, all of them count against one plan, and the result is that of a single run.

    That holds wherever it is stopped, also between the last try of a cell and the search for the owner.
    """
    lie = None if name is None else find_lie(name)
    whole = await _stopped_after(0, None, LyingServer(lie))
    server, result = LyingServer(lie), None
    for _ in range(360 // most):
        result = await _stopped_after(most, result, server)
        assert result.spent.requests == len(server.requests) <= result.announced_requests
        if not result.partial:
            break
    assert result is not None
    assert not result.partial
    assert len(server.requests) == whole.spent.requests
    assert _found(result) == _found(whole)


def _found(result: ProbeResult) -> dict[str, tuple[object, ...]]:
    """Return what each cell came to. The tries of a cell have an order; exchanges that others made have none."""
    return {
        cell.id: (cell.verdict, cell.owner, cell.outcomes if cell.planned else tuple(sorted(cell.outcomes)))
        for cell in result.cells
    }


def test_many_tools_and_long_arguments_are_part_of_the_prompt() -> None:
    """A count that fits all of what was sent is plausible, however little of it is text."""

    def counted(recorded: Recorded) -> Answer:
        usage = Usage(input_tokens=len(recorded.raw) // 3, output_tokens=20)
        return Turn(Call("open_drawer_1", {"reason": "a long one"}), usage=usage)

    result, requests = probe(counted, "tools.128", "result.8k", "usage")
    assert max(len(one.raw) for one in requests) > 20_000
    assert (only(result, "usage").verdict, only(result, "usage").measured) == (CellVerdict.HELD, len(requests))
