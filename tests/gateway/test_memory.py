"""Stateful Responses and Messages threads over upstreams that keep nothing, with the official SDKs as witnesses."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from mustcall.testing import Answer, Call, Fail, Recorded, RunningGateway, Say, ScriptedUpstream, StreamError, Turn
from support.http import post
from support.postgres import postgres_server
from support.remembering import gateway_with_ledger

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
WIRES = ("chat", "messages")


def client(gateway: RunningGateway, key: str = "k1") -> openai.OpenAI:
    """The official client, pointed at a gateway."""
    return openai.OpenAI(base_url=gateway.base_url, api_key=key, max_retries=0)


def said(recorded: Recorded) -> list[tuple[str, str]]:
    """Return roles and texts of what an upstream was sent, on chat or messages."""
    out: list[tuple[str, str]] = []
    for message in recorded.body["messages"]:
        content: str | list[dict[str, Any]] | None = message["content"]
        if isinstance(content, list):
            content = " ".join(str(block.get("text") or block.get("content") or block["type"]) for block in content)
        out.append((message["role"], content or ""))
    return out


@pytest.fixture(params=WIRES)
def upstream(request: pytest.FixtureRequest) -> Iterator[tuple[str, ScriptedUpstream]]:
    """An upstream that knows a name when it was told, on each wire that keeps nothing."""

    def answer(recorded: Recorded) -> Turn:
        text = " ".join(words for _, words in said(recorded))
        return Turn(Say("You are Ann." if "I am Ann" in text else "I do not know."))

    with ScriptedUpstream(answer) as served:
        yield request.param, served


def test_a_conversation_goes_on(upstream: tuple[str, ScriptedUpstream], tmp_path: Path) -> None:
    """Rule 78: `previous_response_id` works over chat and messages; the upstream gets the whole conversation."""
    wire, served = upstream
    with gateway_with_ledger(tmp_path / "l.db", f"{wire}={served.base_url}") as gateway, client(gateway) as ai:
        first = ai.responses.create(model="m", input="I am Ann.", instructions="Be brief.")
        second = ai.responses.create(model="m", input="Who am I?", previous_response_id=first.id)
        third = ai.responses.create(
            model="m", input=[{"role": "user", "content": "Sure?"}], previous_response_id=second.id
        )
    assert second.output_text == third.output_text == "You are Ann."
    assert (second.previous_response_id, first.previous_response_id) == (first.id, None)
    assert first.to_dict()["store"] is True
    sent = said(served.requests[2])
    assert [pair for pair in sent if pair[0] != "system"] == [
        ("user", "I am Ann."),
        ("assistant", "You are Ann."),
        ("user", "Who am I?"),
        ("assistant", "You are Ann."),
        ("user", "Sure?"),
    ]
    assert "Be brief." not in str(served.requests[2].body)  # instructions are not carried on


def test_streams_are_kept_too(upstream: tuple[str, ScriptedUpstream], tmp_path: Path) -> None:
    """A streamed response can be gone on from, and a stream can go on from one."""
    wire, served = upstream
    with gateway_with_ledger(tmp_path / "l.db", f"{wire}={served.base_url}") as gateway, client(gateway) as ai:
        with ai.responses.stream(model="m", input="I am Ann.") as stream:
            first = stream.get_final_response()
        with ai.responses.stream(model="m", input="Who am I?", previous_response_id=first.id) as stream:
            events = list(stream)
            second = stream.get_final_response()
        again = ai.responses.retrieve(second.id)
    assert second.output_text == "You are Ann."
    assert {event.response.previous_response_id for event in events if event.type == "response.created"} == {first.id}
    assert again.output_text == "You are Ann."
    assert (again.id, again.status, again.previous_response_id) == (second.id, "completed", first.id)


def test_tools_over_a_chain(tmp_path: Path) -> None:
    """Rule 77: a call is answered by its output alone; the call itself comes from the ledger."""

    def answer(recorded: Recorded) -> Turn:
        told = [message for message in recorded.body["messages"] if message["role"] == "tool"]
        return Turn(Say(told[0]["content"])) if told else Turn(Call("get_weather", {"city": "Oslo"}))

    with (
        ScriptedUpstream(answer) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
    ):
        first = ai.responses.create(model="m", input="Weather in Oslo?", tools=[WEATHER])  # pyrefly: ignore[no-matching-overload]
        call = next(item for item in first.output if item.type == "function_call")
        second = ai.responses.create(  # pyrefly: ignore[no-matching-overload]
            model="m",
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}],
            previous_response_id=first.id,
            tools=[WEATHER],
        )
    assert second.output_text == "rain"
    roles = [message["role"] for message in served.requests[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool"]


def test_retrieve_list_and_delete(tmp_path: Path) -> None:
    """A stored response can be read, its input listed, and it can be deleted, once."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
    ):
        made = ai.responses.create(
            model="m", input=[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
        )
        assert ai.responses.retrieve(made.id) == made
        listed = ai.responses.input_items.list(made.id)
        assert [item.content[0].text for item in listed.data] == ["b", "a"]  # pyrefly: ignore[missing-attribute]
        ai.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError) as gone:
            ai.responses.retrieve(made.id)
        assert gone.value.body["message"] == f"Response with id '{made.id}' not found."  # pyrefly: ignore[bad-index, unsupported-operation]
        with pytest.raises(openai.NotFoundError):
            ai.responses.delete(made.id)
        with pytest.raises(openai.NotFoundError):
            ai.responses.create(model="m", input="x", previous_response_id=made.id)
        with pytest.raises(openai.NotFoundError) as long:
            ai.responses.create(model="m", input="x", previous_response_id="r" * 100_000)
        assert len(long.value.response.content) < 1000
        with pytest.raises(openai.NotFoundError):
            ai.responses.input_items.list(made.id)
        with pytest.raises(openai.APIStatusError) as wrong:
            ai.post(f"/responses/{made.id}", cast_to=object)
        assert wrong.value.status_code == 405
    assert len(served.requests) == 1


def test_an_unknown_id_is_the_apis_own_404(tmp_path: Path) -> None:
    """An id that never was is refused in the API's words, and no upstream is asked."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
    ):
        for stream in (False, True):
            with pytest.raises(openai.NotFoundError) as caught:
                ai.responses.create(model="m", input="x", previous_response_id="resp_none", stream=stream)
            assert caught.value.body == {
                "message": "Previous response with id 'resp_none' not found.",
                "type": "invalid_request_error",
                "param": "previous_response_id",
                "code": "previous_response_not_found",
                "request_id": caught.value.body["request_id"],  # pyrefly: ignore[bad-index, unsupported-operation]
            }
        with pytest.raises(openai.NotFoundError):
            ai.responses.create(model="m", input="x", previous_response_id="resp_\0")
    assert served.requests == []


def test_what_is_not_to_be_stored_is_not(tmp_path: Path) -> None:
    """`store: false` leaves nothing behind, and says so; a chain may still be read by such a request."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
    ):
        kept = ai.responses.create(model="m", input="a")
        unkept = ai.responses.create(model="m", input="b", store=False, previous_response_id=kept.id)
        assert (kept.to_dict()["store"], unkept.to_dict()["store"]) == (True, False)
        with pytest.raises(openai.NotFoundError):
            ai.responses.retrieve(unkept.id)
        with pytest.raises(openai.NotFoundError):
            ai.responses.create(model="m", input="c", previous_response_id=unkept.id)
    assert said(served.requests[1]) == [("user", "a"), ("assistant", "Hello."), ("user", "b")]


@pytest.mark.parametrize(("responses", "kept"), [(True, True), (False, False)])
def test_whether_what_was_said_is_written(tmp_path: Path, responses: bool, kept: bool) -> None:
    """Rule 136: without a key stored responses are in clear; with `responses = false` neither text is written."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("The answer is ultramarine."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}", responses=responses) as gateway,
        client(gateway) as ai,
    ):
        made = ai.responses.create(model="m", input="The prompt is vermilion.")
        assert made.output_text == "The answer is ultramarine."
    written = b"".join(file.read_bytes() for file in tmp_path.glob("l.db*"))
    assert (b"vermilion" in written, b"ultramarine" in written) == (kept, kept)


def test_another_key_sees_nothing(tmp_path: Path) -> None:
    """One caller's response is not there for another: not to read, not to delete, not to go on from."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
        client(gateway, "k2") as other,
    ):
        made = ai.responses.create(model="m", input="a")
        for attempt in (
            lambda: other.responses.retrieve(made.id),
            lambda: other.responses.delete(made.id),
            lambda: other.responses.create(model="m", input="x", previous_response_id=made.id),
        ):
            with pytest.raises(openai.NotFoundError):
                attempt()
        assert ai.responses.retrieve(made.id).id == made.id
    for line in (tmp_path / "l.db").read_bytes(), (tmp_path / "l.db-wal"):
        data = line if isinstance(line, bytes) else line.read_bytes() if line.exists() else b""
        assert b"Bearer" not in data


def test_item_references_are_resolved(tmp_path: Path) -> None:
    """The AI SDK refers to earlier items by id: they come from the ledger; an unknown one is the API's own 404."""

    def answer(recorded: Recorded) -> Turn:
        told = [message for message in recorded.body["messages"] if message["role"] == "tool"]
        return Turn(Say("It rains.")) if told else Turn(Call("get_weather", {"city": "Oslo"}))

    with (
        ScriptedUpstream(answer) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
    ):
        first = ai.responses.create(model="m", input="Weather?", tools=[WEATHER])  # pyrefly: ignore[no-matching-overload]
        call = next(item for item in first.output if item.type == "function_call")
        second = ai.responses.create(  # pyrefly: ignore[no-matching-overload]
            model="m",
            input=[
                {"role": "user", "content": "Weather?"},
                {"type": "item_reference", "id": call.id or ""},
                {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
            ],
            tools=[WEATHER],
        )
        assert second.output_text == "It rains."
        third = ai.responses.create(model="m", input="And now?", previous_response_id=second.id)
        assert third.output_text == "It rains."
        with pytest.raises(openai.NotFoundError, match=r"Item with id 'msg_none' not found\."):
            ai.responses.create(model="m", input=[{"type": "item_reference", "id": "msg_none"}])
    roles = [message["role"] for message in served.requests[2].body["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_upstreams_own_chain_is_carried_through_a_retry(*, stream: bool) -> None:
    """Rule 78: before a Responses upstream both attempts go on from the caller's id; the accepted one's is delivered.

    A stream is held, so that nothing of the discarded attempt was shown under its id.
    """
    leaked = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    answers = [Turn(Say("Hello, Ann.")), Turn(Say(leaked)), Turn(Call("get_weather", {"city": "Oslo"}))]
    headers = {"x-mustcall-protocol": "native", "x-mustcall-salvage": "never", "x-mustcall-hold": "true"}
    first = {"model": "m", "input": "I am Ann.", "store": True}
    with (
        ScriptedUpstream(answers, strict=True) as served,
        RunningGateway(f"responses={served.base_url}") as gateway,
    ):
        url = f"{gateway.base_url}/responses"
        known = post(url, first, headers).json["id"]
        second = {
            "model": "m",
            "input": "Weather?",
            "tools": [WEATHER],
            "store": True,
            "previous_response_id": known,
            "stream": stream,
        }
        answer = post(url, second, headers)
        assert [one.body for one in served.requests] == [first, second, second]
    assert known == "resp_scripted_0000"
    assert b"resp_scripted_0002" in answer.body
    assert b"resp_scripted_0001" not in answer.body


LEAKED = Turn(Say('<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'))
CALLS = Turn(Call("get_weather", {"city": "Oslo"}))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("first", "code"),
    [
        (LEAKED, "text_tool_call"),
        (Turn(Call("get_weather", {"town": 1})), "bad_arguments"),
    ],
    ids=["text", "arguments"],
)
def test_a_callers_conversation_gets_one_reply(stream: bool, first: Turn, code: str) -> None:
    """Rule 78: the upstream adds each answer to the conversation, so no attempt follows one that was answered."""
    headers = {"x-mustcall-protocol": "native", "x-mustcall-hold": "true"}
    asked = {"model": "m", "input": "Weather?", "tools": [WEATHER], "conversation": "conv_1", "stream": stream}
    with ScriptedUpstream([first, CALLS]) as served, RunningGateway(f"responses={served.base_url}") as gateway:
        answer = post(f"{gateway.base_url}/responses", asked, headers)
        assert [one.body for one in served.requests] == [asked]
    assert code.encode() in answer.body
    assert b'"in_conversation":true' in answer.body


@pytest.mark.parametrize("first", [LEAKED, StreamError(CALLS)], ids=["text", "failure"])
@pytest.mark.parametrize("conversation", ["conv_1", None])
def test_what_broke_off_in_a_callers_conversation_is_not_repeated(first: Answer, conversation: str | None) -> None:
    """Rule 78: what the upstream began to answer may be in the conversation; without one it is asked again."""
    headers = {"x-mustcall-protocol": "native", "x-mustcall-hold": "true", "x-mustcall-salvage": "never"}
    asked = {"model": "m", "input": "Weather?", "tools": [WEATHER], "conversation": conversation, "stream": True}
    with ScriptedUpstream([first, CALLS]) as served, RunningGateway(f"responses={served.base_url}") as gateway:
        answer = post(f"{gateway.base_url}/responses", asked, headers)
        assert [one.body for one in served.requests] == [asked] * (1 if conversation else 2)
    assert (b"response.completed" in answer.body) == (conversation is None)


def test_tools_are_not_probed_in_a_callers_conversation() -> None:
    """Rules 78, 130: a probe for the tool that is refused would leave its answer in the conversation."""

    def refuse(recorded: Recorded) -> Turn | Fail:
        names = [tool["name"] for tool in recorded.body["tools"]]
        return Fail(400, "invalid tool definition") if "get_rain" in names else Turn(Say("x"))

    tools = [{**WEATHER, "name": name} for name in ("get_weather", "get_rain", "get_snow", "get_sun")]
    asked = {"model": "m", "input": "Weather?", "tools": tools, "conversation": "conv_1"}
    with ScriptedUpstream(refuse) as served, RunningGateway(f"responses={served.base_url}") as gateway:
        assert post(f"{gateway.base_url}/responses", asked).status == 400
        assert [one.body for one in served.requests] == [asked]

    def named(recorded: Recorded) -> Turn | Fail:
        return Fail(400, "tools[1]: invalid tool definition") if len(recorded.body["tools"]) > 3 else CALLS

    with ScriptedUpstream(named) as served, RunningGateway(f"responses={served.base_url}") as gateway:
        assert post(f"{gateway.base_url}/responses", asked).status == 200
        assert [one.body for one in served.requests] == [asked, {**asked, "tools": [tools[0], *tools[2:]]}]


def test_a_discarded_attempts_id_is_never_handed_on(tmp_path: Path) -> None:
    """Rule 78: of a first attempt that wrote its call as text nothing is stored; the chain holds the accepted one."""
    leaked = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    answers = [Turn(Say(leaked)), Turn(Call("get_weather", {"city": "Oslo"})), Turn(Say("fine"))]
    with (
        ScriptedUpstream(answers) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        openai.OpenAI(
            base_url=gateway.base_url,
            api_key="k",
            max_retries=0,
            default_headers={"x-mustcall-protocol": "native", "x-mustcall-salvage": "never"},
        ) as ai,
    ):
        first = ai.responses.create(model="m", input="Weather?", tools=[WEATHER])  # pyrefly: ignore[no-matching-overload]
        call = next(item for item in first.output if item.type == "function_call")
        done = ai.responses.create(  # pyrefly: ignore[no-matching-overload]
            model="m",
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": "rain"}],
            previous_response_id=first.id,
            tools=[WEATHER],
        )
    assert done.output_text == "fine"
    function = {key: value for key, value in WEATHER.items() if key != "type"}
    asked = {
        "model": "m",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"type": "function", "function": function}],
    }
    written = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
    told = [
        *asked["messages"],
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_scripted_0001_0", "type": "function", "function": written}],
        },
        {"role": "tool", "tool_call_id": "call_scripted_0001_0", "content": "rain"},
    ]
    assert [one.body for one in served.requests] == [asked, asked, {**asked, "messages": told}]
    assert [message["role"] for message in served.requests[2].body["messages"]] == ["user", "assistant", "tool"]


def test_a_failed_turn_is_not_stored(tmp_path: Path) -> None:
    """An upstream's error leaves nothing to go on from."""
    with (
        ScriptedUpstream(lambda _: Fail(400, "no")) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
        pytest.raises(openai.BadRequestError),
    ):
        ai.responses.create(model="m", input="a")
    with (
        ScriptedUpstream(lambda _: Turn(Say("x"))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
        pytest.raises(openai.BadRequestError),
    ):
        ai.responses.create(model="m", input=7)  # pyrefly: ignore[no-matching-overload]


def test_a_stateful_upstream_is_left_alone(tmp_path: Path) -> None:
    """Ids of a Responses upstream pass through; a question for one that is not ours goes to it."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"responses={served.base_url}") as gateway,
        client(gateway) as ai,
    ):
        first = ai.responses.create(model="m", input="a")
        ai.responses.create(model="m", input="b", previous_response_id=first.id)
        assert served.requests[1].body["previous_response_id"] == first.id
        assert served.requests[1].body["input"] == "b"
        with pytest.raises(openai.APIStatusError):
            ai.responses.retrieve("resp_unknown")


def test_any_replica_goes_on(tmp_path: Path) -> None:
    """Two gateways on one PostgreSQL: a chain started on one goes on at the other, and back."""
    place = postgres_server().new_database()
    del tmp_path

    def answer(recorded: Recorded) -> Turn:
        return Turn(Say(f"{len(recorded.body['messages'])} messages"))

    with (
        ScriptedUpstream(answer) as served,
        gateway_with_ledger(place, f"chat={served.base_url}") as one,
        gateway_with_ledger(place, f"chat={served.base_url}") as two,
        client(one) as a,
        client(two) as b,
    ):
        first = a.responses.create(model="m", input="a")
        second = b.responses.create(model="m", input="b", previous_response_id=first.id)
        with a.responses.stream(model="m", input="c", previous_response_id=second.id) as stream:
            third = stream.get_final_response()
        fourth = b.responses.create(model="m", input="d", previous_response_id=third.id)
    assert [reply.output_text for reply in (first, second, third, fourth)] == [
        "1 messages",
        "3 messages",
        "5 messages",
        "7 messages",
    ]


@pytest.mark.parametrize("wire", ["chat", "messages"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_anthropic_tool_runner_keeps_its_thread(wire: str, stream: bool, tmp_path: Path) -> None:
    """Server-held threads: the SDK sends `thread: create`, then only what is new; the upstream gets everything."""

    def answer(recorded: Recorded) -> Turn:
        told = "rain" in str(recorded.body["messages"])
        return Turn(Say("It rains.")) if told else Turn(Call("get_weather", {"city": "Oslo"}))

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Tell the weather.

        Args:
            city: where
        """
        return f"rain in {city}"

    with (
        ScriptedUpstream(answer) as served,
        gateway_with_ledger(tmp_path / "l.db", f"{wire}={served.base_url}") as gateway,
        anthropic.Anthropic(base_url=gateway.url, api_key="k", max_retries=0) as ai,
    ):
        runner = ai.beta.messages.tool_runner(
            model="m",
            max_tokens=100,
            system="Be brief.",
            tools=[get_weather],
            messages=[{"role": "user", "content": "Weather in Oslo?"}],
            stream=stream,
        )
        final = runner.until_done()
    assert final.to_dict()["content"][0]["text"] == "It rains."  # pyrefly: ignore[bad-index]
    assert len(served.requests) == 2  # no replay: the state was there
    last = served.requests[1].body
    assert [message["role"] for message in last["messages"] if message["role"] != "system"][:2] == ["user", "assistant"]
    assert "Be brief." in str(last)
    assert last["tools"] == served.requests[0].body["tools"]
    assert "thread" not in last


def test_a_lost_thread_is_replayed(tmp_path: Path) -> None:
    """A thread that is not held is the API's own 404, from which the SDK recovers by sending everything."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        anthropic.Anthropic(base_url=gateway.url, api_key="k", max_retries=0) as ai,
    ):
        with pytest.raises(anthropic.NotFoundError) as caught:
            ai.beta.messages.create(
                model="m",
                max_tokens=10,
                messages=[{"role": "user", "content": "x"}],
                thread={"type": "continue", "previous_message_id": "msg_none"},
            )
        body: Any = caught.value.body
        assert body["error"]["type"] == "not_found_error"
        assert body["error"]["details"] == {"error_code": "thread_not_found"}
        with pytest.raises(anthropic.BadRequestError, match="`thread` must be"):
            ai.beta.messages.create(  # pyrefly: ignore[no-matching-overload]
                model="m",
                max_tokens=10,
                messages=[{"role": "user", "content": "x"}],
                thread={"type": "other"},
            )
    assert served.requests == []


def test_without_a_ledger_threads_are_declined_as_before() -> None:
    """No ledger: the refusal that makes the SDK fall back to sending its whole history."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as served,
        RunningGateway(f"chat={served.base_url}") as gateway,
        anthropic.Anthropic(base_url=gateway.url, api_key="k", max_retries=0) as ai,
        pytest.raises(anthropic.BadRequestError, match="thread"),
    ):
        ai.beta.messages.create(
            model="m", max_tokens=10, messages=[{"role": "user", "content": "x"}], thread={"type": "create"}
        )


class _Keeps(BaseHTTPRequestHandler):
    """An upstream that keeps one response."""

    def do_GET(self) -> None:
        """Answer with it."""
        body = b'{"id":"resp_1","object":"response","output":[]}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_a_ledger_that_is_away_hides_no_upstreams_response(tmp_path: Path) -> None:
    """A response that an upstream keeps is asked of it all the same; else callers learn that, and no path."""
    (tmp_path / "l.db").write_text("this is no ledger " * 100)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Keeps) as served:
        threading.Thread(target=served.serve_forever, args=(0.01,), daemon=True).start()
        address = f"http://127.0.0.1:{served.server_port}/v1"
        with gateway_with_ledger(tmp_path / "l.db", f"responses={address}") as gateway, client(gateway) as ai:
            assert ai.responses.retrieve("resp_1").id == "resp_1"
        with (
            gateway_with_ledger(tmp_path / "l.db", f"chat={address}") as gateway,
            client(gateway) as ai,
            pytest.raises(openai.InternalServerError) as failed,
        ):
            ai.responses.retrieve("resp_1")
        served.shutdown()
    assert failed.value.status_code == 503
    assert str(tmp_path) not in str(failed.value.body)


def test_what_was_said_is_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 136: with a key in the environment neither prompt nor answer is on the disk, and callers go on as before."""
    monkeypatch.setenv("MUSTCALL_LEDGER_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
    with (
        ScriptedUpstream(lambda _: Turn(Say("The answer is ultramarine."))) as served,
        gateway_with_ledger(tmp_path / "l.db", f"chat={served.base_url}") as gateway,
        client(gateway) as ai,
    ):
        made = ai.responses.create(model="m", input="The prompt is vermilion.")
        ai.responses.create(model="m", input="And now?", previous_response_id=made.id)
        assert ai.responses.retrieve(made.id).output_text == "The answer is ultramarine."
        turns = [turn["content"] for turn in served.requests[1].body["messages"]]
    assert turns == ["The prompt is vermilion.", "The answer is ultramarine.", "And now?"]
    written = b"".join(file.read_bytes() for file in tmp_path.glob("l.db*"))
    assert made.id.encode() in written
    assert (b"vermilion" in written, b"ultramarine" in written) == (False, False)
