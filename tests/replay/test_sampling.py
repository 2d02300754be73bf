"""A recorded request sent again, on every wire."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from mustcall.core.errors import ContentsNotKept, InvalidRequest
from mustcall.core.origin import Wire
from mustcall.evals.asking.rows import Arm
from mustcall.ledger import AttemptTrace, TurnTrace
from mustcall.replay import (
    RecordedRequest,
    ReplaySample,
    ReplaySubject,
    announce,
    as_bundle,
    from_file,
    from_turn,
    replay,
    summarise,
)
from mustcall.testing import Answer, Call, Fail, FakeClock, Say, ScriptedUpstream, Turn
from mustcall.testing import Recorded as Seen
from mustcall.testing.transport import FakeTransport
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import HttpTransport
from mustcall.wire.registry import codec_for
from support.laddering import climbed

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASKED: dict[Wire, dict[str, Any]] = {
    Wire.CHAT: {
        "model": "m",
        "messages": [{"role": "user", "content": "Oslo?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
        "tool_choice": "required",
    },
    Wire.RESPONSES: {
        "model": "m",
        "input": "Oslo?",
        "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}],
        "tool_choice": "required",
    },
    Wire.MESSAGES: {
        "model": "m",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Oslo?"}],
        "tools": [{"name": "weather", "input_schema": SCHEMA}],
        "tool_choice": {"type": "any"},
    },
}
CALL = Turn(Call("weather", {"city": "Oslo"}))
TALK = Turn(Say("It is sunny."))
#: The tool as text.
TOLD = "## weather\nParameters:\n- city (string, required)"


def of(wire: Wire, **changes: Any) -> RecordedRequest:
    """A recorded request on this wire."""
    return from_file(json.dumps(ASKED[wire] | changes).encode(), "request.json", wire)


async def collect(
    upstream: ScriptedUpstream, wire: Wire, recorded: RecordedRequest, *, times: int = 1, model: str = "m"
) -> list[ReplaySample]:
    """Every sample of a replay."""
    transport = HttpTransport()
    endpoint = Endpoint(name="up", wire=wire, base_url=upstream.base_url)
    subject = ReplaySubject(endpoint=endpoint, model=model, transport=transport, clock=FakeClock())
    try:
        samples: AsyncGenerator[ReplaySample] = replay(recorded, subject, times=times)
        return [sample async for sample in samples]
    finally:
        await transport.close()


def forced(answers: list[Answer]) -> Callable[[Seen], Answer]:
    """Answers in order."""
    left = iter(answers)
    return lambda _seen: next(left)


@pytest.mark.parametrize("wire", list(Wire))
def test_bare_is_one_call_with_the_callers_bytes_and_the_turn_is_the_gateways(wire: Wire) -> None:
    """Rule 118: the bare arm sends the recorded bytes once; the turn goes on where the bare reply is a failure."""
    recorded = of(wire)
    with ScriptedUpstream([TALK, TALK, CALL]) as upstream:
        bare, through = asyncio.run(collect(upstream, wire, recorded))
        assert upstream.requests[0].raw == recorded.body
        asked = json.loads(recorded.body)
        assert [one.body for one in upstream.requests] == [asked, *climbed(wire, asked)[:2]]
    assert bare.arm is Arm.BARE
    assert (bare.verdicts, bare.ok, bare.sends) == (("force_missed",), False, 1)
    assert through.arm is Arm.MUSTCALL
    assert (through.verdicts, through.ok, through.sends) == (("force_missed", "called"), True, 2)
    assert [call.name for call in through.calls] == ["weather"]


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize("to", list(Wire))
def test_a_request_is_replayed_to_an_upstream_of_another_wire(wire: Wire, to: Wire) -> None:
    """What is sent bare is what a client of the upstream's own wire would send."""
    with ScriptedUpstream([CALL, CALL]) as upstream:
        bare, through = asyncio.run(collect(upstream, to, of(wire), model="other"))
        assert [one.wire for one in upstream.requests] == [to, to]
        assert upstream.requests[0].body["model"] == "other"
    assert bare.ok
    assert through.ok
    assert bare.verdict == through.verdict == "called"


@pytest.mark.parametrize("wire", list(Wire))
def test_streams_are_read_to_their_end(wire: Wire) -> None:
    """A recorded stream is replayed as one, on every wire."""
    with ScriptedUpstream([TALK, TALK, CALL]) as upstream:
        recorded = of(wire, stream=True)
        bare, through = asyncio.run(collect(upstream, wire, recorded))
        asked = json.loads(recorded.body)
        assert [one.body for one in upstream.requests] == [asked, *climbed(wire, asked)[:2]]
    assert bare.text == "It is sunny."
    assert through.ok


def test_a_call_in_text_is_a_text_call_to_a_client_without_mustcall() -> None:
    """Rule 44: what the hybrid protocol promotes is a failure for who reads the wire alone."""
    text = Turn(Say('<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'))
    recorded = of(Wire.CHAT, tool_choice="auto")
    with ScriptedUpstream([text, text]) as upstream:
        bare, through = asyncio.run(collect(upstream, Wire.CHAT, recorded))
    assert (bare.verdict, bare.ok) == ("text_call", False)
    assert (through.verdict, through.ok, through.sends) == ("called", True, 1)


def test_refusals_and_faults_are_verdicts_and_bare_never_asks_again() -> None:
    """A 400 is `rejected`, a 500 `unavailable`; the bare arm makes one call whatever comes."""
    recorded = of(Wire.CHAT)
    with ScriptedUpstream([Fail(400, "no"), Fail(400, "no")]) as upstream:
        bare, through = asyncio.run(collect(upstream, Wire.CHAT, recorded))
        assert len(upstream.requests) == 2
    assert (bare.verdict, bare.reached, bare.message) == ("rejected", True, "no")
    assert (through.verdict, through.ok, through.outcome) == ("rejected", False, "failure")
    with ScriptedUpstream(default=Fail(500, "down")) as upstream:
        bare, _ = asyncio.run(collect(upstream, Wire.CHAT, recorded))
        asked = json.loads(recorded.body)
        streamed, schema, *_ = climbed("chat", asked)
        assert [one.body for one in upstream.requests] == [asked, *[streamed] * 3, asked, schema]
    assert bare.verdict == "unavailable"


def test_an_upstream_that_is_not_there_is_told_from_one_that_refuses() -> None:
    """`reached` is what an exit code is made of."""
    with ScriptedUpstream() as gone:
        pass
    bare, through = asyncio.run(collect(gone, Wire.CHAT, of(Wire.CHAT)))
    assert (bare.reached, bare.verdict, bare.error) == (False, "unavailable", "upstream_unavailable")
    assert not through.reached


def test_the_announcement_bounds_the_calls() -> None:
    """Rules 96, 130: a turn makes at most 4 extra calls, and 2 to find out that its one tool is refused."""
    recorded = of(Wire.CHAT)
    with ScriptedUpstream(default=TALK) as upstream:
        samples = asyncio.run(collect(upstream, Wire.CHAT, recorded, times=2))
        made = len(upstream.requests)
        asked = json.loads(recorded.body)
        turn = climbed("chat", asked, "It is sunny.", TOLD)
        assert [one.body for one in upstream.requests] == [asked, *turn, *turn, asked]
        endpoint = Endpoint(name="up", wire=Wire.CHAT, base_url=upstream.base_url)
        subject = ReplaySubject(endpoint=endpoint, model="m", transport=FakeTransport([]), clock=FakeClock())
    told = announce(recorded, subject, times=2)
    assert (told.least_calls, told.most_calls, told.most_usd) == (4, 16, None)
    assert sum(sample.sends for sample in samples) == made
    assert told.least_calls <= made <= told.most_calls
    priced = announce(recorded, _of_model(subject, "gpt-5"), times=2)
    assert priced.most_usd is not None
    assert priced.most_usd > 0


def _of_model(subject: ReplaySubject, model: str) -> ReplaySubject:
    return ReplaySubject(endpoint=subject.endpoint, model=model, transport=subject.transport, clock=subject.clock)


def test_the_summary_counts_what_came() -> None:
    """The recovery rate is over turns whose first attempt failed, with Wilson's interval."""
    answers: list[Answer] = [TALK, TALK, CALL, CALL, CALL, TALK]  # bare, turn (2 calls); turn, bare; bare …
    with ScriptedUpstream(forced(answers)) as upstream:
        samples = asyncio.run(collect(upstream, Wire.CHAT, of(Wire.CHAT), times=2))
        asked = json.loads(of(Wire.CHAT).body)
        forced_one, schema, *_ = climbed("chat", asked)
        assert [one.body for one in upstream.requests] == [asked, forced_one, schema, forced_one, asked]
    told = summarise(of(Wire.CHAT), samples)
    bare, through = told.arm(Arm.BARE), told.arm(Arm.MUSTCALL)
    assert bare is not None
    assert through is not None
    assert (bare.ok.hits, bare.ok.of, bare.calls) == (1, 2, 2)
    assert (through.ok.hits, through.ok.of, through.calls) == (2, 2, 3)
    assert through.verdicts == {"force_missed → called": 1, "called": 1}
    assert told.recovered is not None
    assert (told.recovered.hits, told.recovered.of) == (1, 1)
    assert told.recovered.high == 1.0
    assert "served: 1 of 2 bare, 2 of 2 through mustcall" in told.differs


def a_turn(**given: Any) -> TurnTrace:
    """A kept turn."""
    usual: dict[str, Any] = {
        "id": "req_1",
        "at": 1.0,
        "wire": "chat",
        "model": "m",
        "upstream": "up",
        "protocol": "hybrid",
        "force": "met",
        "outcome": "calls",
        "status": 200,
        "seconds": 1.0,
        "tenant": "digest-of-a-key",
        "attempts": (
            AttemptTrace(
                number=1,
                rung="native",
                verdict="force_missed",
                remedy="climb",
                digest="d",
                seconds=0.5,
                sends=1,
                request=b'{"a":1}',
                reply=b'{"finish":"stop","parts":[]}',
            ),
        ),
        "request": json.dumps(ASKED[Wire.CHAT]).encode(),
        "reply": b"data: not JSON\n\n",
    }
    return TurnTrace(**(usual | given))


def test_a_bundle_is_the_turn_again_without_its_tenant() -> None:
    """Rule 136: what is exported replays as the turn does, and holds nothing of the caller's key."""
    turn = a_turn()
    bundle = as_bundle(turn, "1.2.3")
    assert b"digest-of-a-key" not in bundle
    read, own = from_file(bundle, "bad.json"), from_turn(turn)
    assert json.loads(read.body) == json.loads(own.body)
    assert (read.wire, read.model, read.upstream, read.verdicts) == (own.wire, own.model, own.upstream, own.verdicts)
    assert read.source == "bad.json"
    assert json.loads(bundle)["attempts"][0]["request"] == {"a": 1}


def test_what_was_not_kept_says_which_setting_keeps_it() -> None:
    """The error names the setting."""
    turn = a_turn(request=b"")
    with pytest.raises(ContentsNotKept, match=r'\[ledger\] contents = "full"'):
        from_turn(turn)
    with pytest.raises(ContentsNotKept, match="cannot be sent again"):
        as_bundle(turn, "1")


@pytest.mark.parametrize(
    "contents", [b"{", b"[]", b'{"mustcall_bundle": 2}', b'{"mustcall_bundle": 1, "id": 3, "request": {}}', b"\xff"]
)
def test_a_file_that_is_no_request_is_refused_in_words(contents: bytes) -> None:
    """Only our own error, and it names the file."""
    with pytest.raises(InvalidRequest, match=r"x\.json"):
        from_file(contents, "x.json")


@pytest.mark.parametrize("wire", list(Wire))
def test_the_wire_of_a_file_is_told_by_its_fields(wire: Wire) -> None:
    """No option is needed for an ordinary request."""
    body = json.dumps(ASKED[wire]).encode()
    assert from_file(body, "r.json").wire is wire
    assert codec_for(wire).peek(body).model == "m"
