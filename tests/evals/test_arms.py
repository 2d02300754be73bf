"""One question asked one way: how tools are given to servers without a place for them, and what a gateway tells."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.engine.turns import Turns
from mustcall.evals.asking.arms import EvalSubject, GatewayPath, ask_bare, ask_engine, ask_gateway, settle_form
from mustcall.evals.asking.client_requests import ask
from mustcall.evals.asking.counting import CountedTransport
from mustcall.evals.asking.rows import Arm, Ending, EvalRow, Form
from mustcall.evals.prompts import as_question
from mustcall.evals.questions import AskedCall, Question, Said, Speaker
from mustcall.policy.failures.backoff import Backoff
from mustcall.testing import Answer, Call, Fail, RunningGateway, Say, Script, ScriptedUpstream, Turn
from mustcall.testing.transport import FakeClock
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import HttpTransport
from support.compared import leave
from support.evaluating import OSLO, PROMPTS, SAMPLING, right_arguments

QUESTION = as_question(OSLO)
PROSE = Turn(Say("Rainy, I should think."))
RIGHT = Turn(Call(OSLO.wants, right_arguments(OSLO)))


@asynccontextmanager
async def measuring(
    script: Script | list[Answer], wire: Wire = Wire.CHAT, *, stream: bool = False
) -> AsyncGenerator[tuple[EvalSubject, ScriptedUpstream]]:
    """A subject on a scripted upstream."""
    transport, clock = HttpTransport(), FakeClock()
    with ScriptedUpstream(script, strict=True) as upstream:
        endpoint = Endpoint(
            name="it", wire=wire, base_url=f"{upstream.url}/v1", api_key="any", backoff=Backoff(retries=0)
        )
        subject = EvalSubject(
            endpoint=endpoint,
            model="m",
            turns=Turns(transport, clock),
            transport=transport,
            clock=clock,
            sampling=SAMPLING,
            stream=stream,
        )
        try:
            yield subject, upstream
        finally:
            await transport.close()


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("asked", [ask_bare, ask_engine], ids=["bare", "engine"])
async def test_streams_are_read_like_whole_replies(
    wire: Wire, asked: Callable[[EvalSubject, Question, int], Awaitable[EvalRow]]
) -> None:
    """Streamed or not, on each wire, a row has the same calls, text, finish and tokens."""
    found: list[tuple[object, ...]] = []
    for stream in (False, True):
        for answer in (RIGHT, PROSE):
            question = msgspec.structs.replace(QUESTION, demand=AskedCall.AUTO)
            async with measuring(lambda _, answer=answer: answer, wire, stream=stream) as (subject, upstream):
                row = await asked(subject, question, 3)
            assert upstream.requests[0].body == ask(question, wire, "m", SAMPLING, stream=stream)
            assert (row.stream, row.turn, row.sends, row.wire) == (stream, 3, 1, wire)
            found.append((row.ending, row.calls, row.text, row.finish, row.input_tokens, row.output_tokens))
    assert found[:2] == found[2:]
    assert [each[0] for each in found[:2]] == [Ending.CALLED, Ending.ANSWERED]


async def test_another_wire_than_the_upstreams() -> None:
    """The mustcall arm's caller may speak another wire; the bare arm speaks the upstream's."""
    async with measuring(lambda _: RIGHT) as (subject, upstream):
        crossing = msgspec.structs.replace(subject, wire=Wire.MESSAGES)
        bare, must = await ask_bare(crossing, QUESTION), await ask_engine(crossing, QUESTION)
    assert (bare.wire, must.wire) == (Wire.CHAT, Wire.MESSAGES)
    assert bare.calls == must.calls
    assert [request.path for request in upstream.requests] == ["/v1/chat/completions"] * 2


async def test_tools_in_words() -> None:
    """Without a place for tools they are told in words, with the form to answer in, and that form is read back."""
    written = json.dumps({"name": OSLO.wants, "arguments": right_arguments(OSLO)})
    async with measuring([Turn(Say(written)), PROSE]) as (subject, upstream):
        wordy = msgspec.structs.replace(subject, form=Form.WORDS)
        called, answered = await ask_bare(wordy, QUESTION), await ask_bare(wordy, QUESTION)
    body = upstream.requests[0].body
    assert "tools" not in body
    assert "tool_choice" not in body
    system, user = body["messages"]
    assert (system["role"], user["content"]) == ("system", OSLO.says)
    for tool in OSLO.tools:
        assert tool.name in system["content"]
    assert "You must call a function" in system["content"]
    assert (called.form, called.ending) == (Form.WORDS, Ending.CALLED)
    assert json.loads(called.calls[0].arguments) == right_arguments(OSLO)
    assert (answered.form, answered.ending) == (Form.WORDS, Ending.ANSWERED)


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("demand", AskedCall)
def test_words_join_a_system_message(wire: Wire, demand: AskedCall) -> None:
    """The words stand before a question's own system message, wherever the wire has that."""
    question = Question(
        id="q",
        set="s",
        messages=(Said(Speaker.SYSTEM, "Be brief."), Said(Speaker.USER, "Weather?"), Said(Speaker.ASSISTANT, "Where?")),
        tools=OSLO.tools,
        demand=demand,
        named=OSLO.wants,
    )
    body = ask(question, wire, "m", SAMPLING, form=Form.WORDS)
    system = body["messages"][0]["content"] if wire is Wire.CHAT else body.get("instructions") or body.get("system")
    assert isinstance(system, str)
    assert system.endswith("\n\nBe brief.")
    assert (f"the function {OSLO.wants};" in system) is (demand is AskedCall.NAMED)
    turns = body["input"] if wire is Wire.RESPONSES else body["messages"]
    assert [turn["role"] for turn in turns[-2:]] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        (RIGHT, Form.NATIVE),
        (Fail(400, "tiny does not support tools: its chat template has no place for them"), Form.WORDS),
        (Fail(500, "down"), Form.NATIVE),
    ],
    ids=["takes them", "refuses them", "down"],
)
async def test_settling_how_tools_are_given(answer: Answer, form: Form) -> None:
    """Tools that are refused as such go into words; any other trouble is left for the first question to tell."""
    async with measuring([answer]) as (subject, upstream):
        assert await settle_form(subject, QUESTION) is form
    assert [request.body["max_tokens"] for request in upstream.requests] == [1]


async def test_what_a_gateway_tells() -> None:
    """Verdicts, request id and upstream calls of a turn come from the headers; a counter also works for streams."""
    prompt = PROMPTS["list-tmp"]
    question = msgspec.structs.replace(as_question(prompt), demand=AskedCall.REQUIRED)
    script: list[Answer] = [PROSE, Turn(Call(prompt.wants, right_arguments(prompt)))]
    async with measuring(script * 2) as (subject, upstream):
        leave(upstream, "what a forced turn sends rung by rung is compared in tests/rules")
        counted = CountedTransport(HttpTransport)
        with RunningGateway(f"chat={upstream.base_url}", transport=counted) as gateway:
            path = GatewayPath(base_url=gateway.base_url, model="m")
            told = await ask_gateway(subject, path, question)
            assert counted.sent == 2
            streaming = msgspec.structs.replace(subject, stream=True)
            counting = msgspec.structs.replace(path, sent=lambda: counted.sent)
            streamed = await ask_gateway(streaming, counting, question, 2)
    assert (told.arm, told.sends, told.verdicts) == (Arm.MUSTCALL, 2, ("force_missed", "called"))
    assert told.request_id.startswith("req_")
    assert told.request_id != streamed.request_id
    assert streamed.calls == told.calls
    assert streamed.sends >= 1
    assert streamed.verdicts == ()


async def test_errors_of_a_gateway() -> None:
    """A model that fails the contract is the model's fault, a gateway that is not there the upstream's."""
    async with measuring(lambda _: PROSE) as (subject, upstream):
        leave(upstream, "what a forced turn sends rung by rung is compared in tests/rules")
        with RunningGateway(f"chat={upstream.base_url}") as gateway:
            unmet = await ask_gateway(subject, GatewayPath(base_url=gateway.base_url, model="m"), QUESTION)
            gone = gateway.base_url
        away = await ask_gateway(subject, GatewayPath(base_url=gone, model="m"), QUESTION)
    assert unmet.fault is not None
    assert (unmet.fault.code, unmet.fault.upstream, unmet.ending) == ("force_unmet", False, Ending.FAILED)
    assert unmet.sends > 1
    assert away.fault is not None
    assert away.fault.upstream
