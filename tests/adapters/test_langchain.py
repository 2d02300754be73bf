"""The LangChain chat model: a tool task on a model that misbehaves, with the contract and with protocol `off`."""

import asyncio
import gc
import json
import signal
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from pydantic import BaseModel, ValidationError

from mustcall import Controls, ForceUnmet, Upstream, UpstreamRejected, UpstreamTimeout, UpstreamUnavailable
from mustcall.adapters.langchain import ChatMustcall
from mustcall.core.origin import Wire
from mustcall.policy.facts.profile import Protocol
from mustcall.testing import Call, Cut, End, Fail, Hang, Say, ScriptedModel, ScriptedUpstream, Think, Turn

QUESTION = "What does a hat cost?"
ANSWER = "A hat costs 12 euros."
MARKUP = '<tool_call>{"name": "price", "arguments": {"item": "hat"}}</tool_call>'
GOOD, DONE = Turn(Call("price", {"item": "hat"})), Turn(Say(ANSWER))
OFF = Controls(protocol=Protocol.OFF)
MODES = ["invoke", "stream", "ainvoke", "astream"]


class Price(BaseModel):
    """A price."""

    euros: int


@tool
def price(item: str) -> str:
    """Look up a price."""
    return f"{item}: 12 euros"


def _said(model: Runnable[Any, AIMessage], mode: str, messages: Sequence[BaseMessage]) -> AIMessage:
    """Return what the model says, asked in one of the four ways."""

    async def later() -> AIMessage:
        if mode == "ainvoke":
            return await model.ainvoke(list(messages))
        return _whole([chunk async for chunk in model.astream(list(messages))])

    match mode:
        case "invoke":
            return model.invoke(list(messages))
        case "stream":
            return _whole(list(model.stream(list(messages))))
        case _:
            return asyncio.run(later())


def _whole(chunks: Sequence[Any]) -> AIMessage:
    whole: Any = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert isinstance(whole, AIMessageChunk)
    return whole


def _run(model: ChatMustcall, mode: str, choice: str | None = None) -> tuple[str, list[Any]]:
    """Do the task; return the answer and what the tool was asked for."""
    asked: list[Any] = []
    messages: list[BaseMessage] = [HumanMessage(QUESTION)]
    while True:
        reply = _said(model.bind_tools([price], tool_choice=None if asked else choice), mode, messages)
        messages.append(reply)
        if not reply.tool_calls:
            return str(reply.content), asked
        for call in reply.tool_calls:
            asked.append(call["args"])
            messages.append(ToolMessage(price.invoke(call["args"]), tool_call_id=call["id"]))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wire", Wire)
def test_a_call_as_text(wire: Wire, mode: str) -> None:
    """Rule 50: a call written as text is a call; without the contract the markup is the answer."""
    script = [Turn(Say(MARKUP)), DONE]
    assert _run(ChatMustcall(upstream=ScriptedModel(script, wire=wire), controls=OFF), mode) == (MARKUP, [])
    model = ScriptedModel(script, wire=wire)
    assert _run(ChatMustcall(upstream=model), mode) == (ANSWER, [{"item": "hat"}])
    _, second = model.requests
    assert "hat: 12 euros" in str(second.body)
    assert "tool_call>" not in str(second.body)


#: What the model does first, the choice, and what the task comes to without the contract: an answer, or an exception.
FAULTS: dict[str, tuple[Turn, str | None, str | type[Exception]]] = {
    "force ignored": (Turn(Say("12 euros, I guess.")), "any", "12 euros, I guess."),
    "named force ignored": (Turn(Say("12 euros, I guess.")), "price", "12 euros, I guess."),
    "no arguments": (Turn(Call("price", "hat, please")), None, ""),
    "unknown tool": (Turn(Call("weather", {"city": "Rome"})), None, ValidationError),
    "wrong arguments": (Turn(Call("price", {"thing": 1})), None, ValidationError),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_misbehaving_model(fault: str, mode: str) -> None:
    """Rules 25, 69, 96: what is wrong is asked again inside its turn; without the contract the task is not done."""
    bad, choice, bare = FAULTS[fault]
    model = ScriptedModel([bad, GOOD, DONE])
    assert _run(ChatMustcall(upstream=model), mode, choice) == (ANSWER, [{"item": "hat"}])
    assert len(model.requests) == 3
    assert [message["role"] for message in model.requests[-1].body["messages"]] == ["user", "assistant", "tool"]
    alone = ChatMustcall(upstream=ScriptedModel([bad, GOOD, DONE]), controls=OFF)
    if isinstance(bare, str):
        assert _run(alone, mode, choice) == (bare, [])
    else:
        with pytest.raises(bare):
            _run(alone, mode, choice)


@pytest.mark.parametrize("mode", ["invoke", "ainvoke"])
def test_structured_output(mode: str) -> None:
    """Rule 25: `with_structured_output` forces its tool; prose is asked again."""
    model = ScriptedModel(["It costs 12 euros.", Call("Price", {"euros": 12})])
    structured = ChatMustcall(upstream=model).with_structured_output(Price)
    made = structured.invoke(QUESTION) if mode == "invoke" else asyncio.run(structured.ainvoke(QUESTION))
    assert made == Price(euros=12)
    assert len(model.requests) == 2
    alone = ChatMustcall(upstream=ScriptedModel(["It costs 12 euros."]), controls=OFF)
    assert alone.with_structured_output(Price).invoke(QUESTION) is None


def test_the_body() -> None:
    """Messages, settings, stops and what a call adds are written as Chat Completions has them."""
    model = ScriptedModel([DONE])
    chat = ChatMustcall(upstream=model, settings={"temperature": 0.5, "max_tokens": 50})
    chat.bind(max_tokens=70).invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)], stop=["\n\n"])
    (request,) = model.requests
    assert request.body == {
        "model": "scripted",
        "temperature": 0.5,
        "max_tokens": 70,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}],
        "stop": ["\n\n"],
    }


@pytest.mark.parametrize("mode", MODES)
def test_usage_and_metadata(mode: str) -> None:
    """What the upstream counted and what the turn came to stand on the message."""
    reply = _said(ChatMustcall(upstream=ScriptedModel([DONE])), mode, [HumanMessage(QUESTION)])
    assert reply.usage_metadata is not None
    assert (reply.usage_metadata["input_tokens"], reply.usage_metadata["total_tokens"]) == (25, 37)
    assert reply.response_metadata["finish_reason"] == "stop"
    assert reply.response_metadata["mustcall"]["protocol"] == "hybrid"
    assert reply.text == ANSWER


@pytest.mark.parametrize("mode", MODES)
def test_reasoning_goes_back_to_its_issuer(mode: str) -> None:
    """Rule 124: signed thoughts come back to a strict upstream of another wire as it made them."""
    thought = Turn(Think("A hat?", signature="sig"), Call("price", {"item": "hat"}))
    model = ScriptedModel([thought, DONE], wire=Wire.MESSAGES, strict=True)
    chat = ChatMustcall(upstream=model, settings={"reasoning_effort": "low"})
    assert _run(chat, mode) == (ANSWER, [{"item": "hat"}])
    second = model.requests[1]
    assert second.refused_by is None
    assert second.body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "A hat?", "signature": "sig"}


@pytest.mark.parametrize("mode", MODES)
def test_errors(mode: str) -> None:
    """A failure is mustcall's own error, before a stream begins and after."""
    unwilling = ScriptedModel(default="No.")
    with pytest.raises(ForceUnmet) as caught:
        _run(ChatMustcall(upstream=unwilling), mode, "any")
    assert not caught.value.retryable
    assert len(unwilling.requests) == 4
    with pytest.raises(UpstreamRejected, match="no such key"):
        _run(ChatMustcall(upstream=ScriptedModel([Fail(401, "no such key")])), mode)
    cut = ScriptedModel(default=Cut(Turn(Say(ANSWER * 300)), after=3000))
    with pytest.raises(UpstreamUnavailable) as broke:
        _run(ChatMustcall(upstream=cut), mode)
    assert broke.value.retryable


def test_a_stream_that_is_given_up() -> None:
    """A caller that stops reading ends the upstream's work, and leaves no thread and no connection."""
    before = threading.active_count()
    with ScriptedUpstream([Turn(Say("A hat costs 12 euros. " * 2000))]) as upstream:
        running = threading.active_count()
        chat = ChatMustcall(upstream=Upstream(f"chat={upstream.base_url}", model="m"))
        stream = chat.stream(QUESTION)
        next(stream)
        close: Any = stream
        close.close()
        assert [request.ended for request in upstream.wait_until_done()] == [End.DISCONNECTED]
        upstream.wait_for_connections(0)
        assert threading.active_count() == running
    assert threading.active_count() == before


async def test_inside_a_running_loop() -> None:
    """The blocking calls work where an event loop runs, as in a notebook."""
    model = ScriptedModel([GOOD, DONE])
    chat = ChatMustcall(upstream=model).bind_tools([price])
    assert chat.invoke(QUESTION).tool_calls[0]["args"] == {"item": "hat"}
    assert _whole(list(chat.stream(QUESTION))).text == ANSWER


def test_batches() -> None:
    """Threads of LangChain's own ask side by side."""
    with ScriptedUpstream(lambda request: Turn(Say(request.body["messages"][0]["content"].upper()))) as upstream:
        chat = ChatMustcall(upstream=Upstream(f"chat={upstream.base_url}", model="m"))
        assert [reply.content for reply in chat.batch(["a", "b", "c"])] == ["A", "B", "C"]
        upstream.wait_for_connections(0)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, None),
        ("auto", "auto"),
        ("none", "none"),
        ("any", "required"),
        (True, "required"),
        ("price", {"type": "function", "function": {"name": "price"}}),
        ({"type": "function", "function": {"name": "price"}}, {"type": "function", "function": {"name": "price"}}),
    ],
)
def test_tool_choice(given: Any, sent: Any) -> None:
    """Each of LangChain's words for a choice is the wire's own."""
    model = ScriptedModel([DONE if given in (None, "auto", "none") else GOOD])
    ChatMustcall(upstream=model).bind_tools([price], tool_choice=given).invoke(QUESTION)
    assert model.requests[0].body.get("tool_choice") == sent
    offered = model.requests[0].body["tools"]
    assert json.loads(json.dumps(offered))[0]["function"]["name"] == "price"


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
def test_an_interrupt_inside_a_running_loop(streams: bool) -> None:
    """A caller who is interrupted beside a running loop gets the interrupt, and the upstream's work ends."""
    main = threading.get_ident()
    with ScriptedUpstream([Hang(Turn(Say("No.")))]) as upstream:
        model = ChatMustcall(upstream=Upstream(f"chat={upstream.base_url}#m"))

        def interrupt() -> None:
            upstream.wait_for_requests(1)
            signal.pthread_kill(main, signal.SIGINT)

        async def asked() -> None:
            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    list(model.stream("Hi")) if streams else model.invoke("Hi")
            finally:
                thread.join()

        before = set(threading.enumerate())
        with asyncio.Runner() as runner:
            runner.get_loop().run_until_complete(asked())
        for thread in set(threading.enumerate()) - before:
            thread.join()
        assert [request.ended for request in upstream.wait_until_done()] == [End.DISCONNECTED]
    gc.collect()  # which tells of a loop that was not closed


@pytest.mark.parametrize("mode", MODES)
def test_a_timeout_of_one_request(mode: str) -> None:
    """Rule 97: `timeout` of a call ends the turn, is not sent upstream, and no further attempt is made."""
    with ScriptedUpstream(default=Hang(DONE)) as upstream:
        model = ChatMustcall(upstream=Upstream(f"chat={upstream.base_url}", model="m"), settings={"timeout": 0.05})
        with pytest.raises(UpstreamTimeout, match=r"the caller's timeout of 0\.05 s"):
            _said(model, mode, [HumanMessage(QUESTION)])
        upstream.release()
        assert len(upstream.requests) <= 1  # none where the time was over before it was sent
        assert all("timeout" not in request.body for request in upstream.requests)


def test_threads_of_a_batch_share_what_is_learnt() -> None:
    """Rule 139: a batch runs in threads; every call that a text format made is counted once."""
    with ScriptedUpstream(default=Turn(Say(MARKUP))) as upstream:
        where = Upstream(f"chat={upstream.base_url}", model="m")
        model = ChatMustcall(upstream=where).bind_tools([price], tool_choice="any")
        replies = model.batch([QUESTION] * 24, config={"max_concurrency": 8})
        assert [len(reply.tool_calls) for reply in replies] == [1] * 24
        assert len(upstream.requests) == 24
    counts = {tally.subject: tally.count.made for tally in where.learnt.tallies.all()}
    assert counts["dialect:hermes"] == 24
