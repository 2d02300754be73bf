"""The real embedded model through the gateway: calls that are valid every time, on every wire, with real clients."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import anthropic
import jsonschema_rs
import openai
import pytest

from mustcall.testing.gateway import RunningGateway
from support import warm
from support.answered import kept_answers
from support.embedded import TOOLS, Endless, offered, readied, schema_of
from support.http import Response, call
from support.ports import listeners
from support.tiny import tiny_model

WIRES = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

#: A message, the tools on offer, the tool that is named (None for `required`).
FORCED: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("What is the weather in Oslo?", ("get_weather", "calculator"), None),
    ("Set a timer for 10 minutes.", ("set_timer", "send_email", "calculator"), None),
    ("Good morning!", ("list_directory", "send_email"), None),
    ("Put the tags red and blue on it", ("tag", "calculator"), "tag"),
    ("¿Qué tiempo hace? 天气 🌧", ("get_weather", "send_email"), "send_email"),
)


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Generator[None]:
    """What the model was asked before is answered from its kept answers."""
    with kept_answers():
        yield


@pytest.fixture(scope="module")
def gateway() -> Generator[RunningGateway]:
    """One gateway on the embedded model."""
    with RunningGateway(readied()) as running:
        yield running


def post(url: str, value: object) -> Response:
    """Post a JSON value and wait as long as a model on a busy machine may take."""
    return call("POST", url, json.dumps(value).encode(), timeout=300)


def body(wire: str, message: str, names: tuple[str, ...], choice: str | None, **more: Any) -> dict[str, Any]:
    """Return a request of a wire; `choice` is `auto`, `required` or a tool's name."""
    words: dict[str, Any] = {
        "chat": {"messages": [{"role": "user", "content": message}], "max_tokens": 400},
        "responses": {"input": message, "max_output_tokens": 400},
        "messages": {"messages": [{"role": "user", "content": message}], "max_tokens": 400},
    }[wire]
    forms: dict[str, Any] = {
        "chat": {"type": "function", "function": {"name": choice}},
        "responses": {"type": "function", "name": choice},
        "messages": {"type": "tool", "name": choice},
    }
    chosen: Any = forms[wire]
    if choice in ("auto", "required"):
        chosen = choice if wire != "messages" else {"type": "any" if choice == "required" else "auto"}
    return {"model": "local", "tools": offered(wire, *names), "tool_choice": chosen, **words, **more}


def calls_in(wire: str, reply: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a reply."""
    if wire == "chat":
        made: list[Any] = reply["choices"][0]["message"].get("tool_calls") or []
        return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made]
    if wire == "responses":
        items = [item for item in reply["output"] if item["type"] == "function_call"]
        return [(item["name"], json.loads(item["arguments"])) for item in items]
    return [(block["name"], block["input"]) for block in reply["content"] if block["type"] == "tool_use"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_demanded_call_is_always_made(gateway: RunningGateway, wire: str) -> None:
    """Rules 1 and 76: `required` and a named choice give one valid call of a tool that satisfies them, every time."""
    for message, names, named in FORCED:
        answer = post(gateway.url + PATHS[wire], body(wire, message, names, named or "required"))
        assert answer.status == 200, answer.body
        ((name, arguments),) = calls_in(wire, answer.json)
        assert name == named if named else name in names
        assert jsonschema_rs.is_valid(schema_of(name), arguments)
        assert answer.headers["x-mustcall-force"] == "met"


def test_the_message_decides_between_a_call_and_an_answer(gateway: RunningGateway) -> None:
    """Under `auto` a message about a tool gives its call, another one text; both are reported as adaptations."""
    names = ("get_weather", "list_directory")
    about = post(gateway.url + PATHS["chat"], body("chat", "List the files in /tmp", names, "auto"))
    assert [name for name, _ in calls_in("chat", about.json)] == ["list_directory"]
    other = post(gateway.url + PATHS["chat"], body("chat", "Hello!", names, "auto", max_tokens=30))
    assert not calls_in("chat", other.json)
    assert other.json["choices"][0]["message"]["content"].strip()
    for answer in (about, other):
        assert "tool_dropped:tools" in answer.headers["x-mustcall-adaptations"]


@pytest.mark.parametrize("wire", WIRES)
def test_structured_answers(gateway: RunningGateway, wire: str) -> None:
    """An answer by schema fits it, on every wire."""
    schema = {
        "type": "object",
        "properties": {"country": {"type": "string"}, "people": {"type": "integer"}},
        "required": ["country", "people"],
        "additionalProperties": False,
    }
    form: dict[str, Any] = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}},
        "responses": {"text": {"format": {"type": "json_schema", "name": "place", "schema": schema}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    }[wire]
    asked = {key: value for key, value in body(wire, "Tell me about Paris.", (), "auto").items() if "tool" not in key}
    reply = post(gateway.url + PATHS[wire], asked | form)
    assert reply.status == 200, reply.body
    said: Any = {
        "chat": lambda: reply.json["choices"][0]["message"]["content"],
        "responses": lambda: reply.json["output"][-1]["content"][0]["text"],
        "messages": lambda: reply.json["content"][-1]["text"],
    }[wire]()
    assert jsonschema_rs.is_valid(schema, json.loads(said))


def weather(city: str) -> str:
    """The tool of these tests."""
    return json.dumps({"city": city, "temperature": 7, "sky": "rain"})


def test_question_call_result_answer_with_openai(gateway: RunningGateway) -> None:
    """The official OpenAI client: a streamed question gives a call, its result an answer in text."""
    untyped: Any = openai.OpenAI(base_url=gateway.base_url, api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    tools = offered("chat", "get_weather")
    with untyped.chat.completions.stream(model="local", messages=messages, tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    (made,) = message.tool_calls
    result = weather(city=json.loads(made.function.arguments)["city"])
    messages += [message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": made.id, "content": result}]
    done = untyped.chat.completions.create(model="local", messages=messages, tools=tools, max_tokens=80)
    assert done.choices[0].finish_reason in ("stop", "length")
    assert done.choices[0].message.content.strip()
    assert not done.choices[0].message.tool_calls


def test_question_call_result_answer_with_anthropic(gateway: RunningGateway) -> None:
    """The official Anthropic client: the same."""
    untyped: Any = anthropic.Anthropic(base_url=gateway.url, api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    tools = offered("messages", "get_weather")
    first = untyped.messages.create(model="local", max_tokens=200, messages=messages, tools=tools)
    assert first.stop_reason == "tool_use"
    made = next(block for block in first.content if block.type == "tool_use")
    result = {"type": "tool_result", "tool_use_id": made.id, "content": weather(made.input["city"])}
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    with untyped.messages.stream(model="local", max_tokens=80, messages=messages, tools=tools) as stream:
        last = stream.get_final_message()
    assert last.stop_reason in ("end_turn", "max_tokens")
    assert "".join(block.text for block in last.content if block.type == "text").strip()


def test_question_call_result_answer_with_responses(gateway: RunningGateway) -> None:
    """The official OpenAI client on Responses: the same."""
    untyped: Any = openai.OpenAI(base_url=gateway.base_url, api_key="none", max_retries=0)
    items: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    tools = offered("responses", "get_weather")
    first = untyped.responses.create(model="local", input=items, tools=tools, store=False)
    made = next(item for item in first.output if item.type == "function_call")
    result = weather(json.loads(made.arguments)["city"])
    output = {"type": "function_call_output", "call_id": made.call_id, "output": result}
    items += [made.model_dump(exclude_none=True), output]
    last = untyped.responses.create(model="local", input=items, tools=tools, store=False, max_output_tokens=80)
    assert last.output_text.strip()


def test_twenty_at_once(gateway: RunningGateway) -> None:
    """Twenty requests wait for the one model, and each gets its own valid call."""
    cities = ["Oslo", "Paris", "Rome", "Lima", "Cairo"] * 4

    def one(city: str) -> list[tuple[str, dict[str, Any]]]:
        asked = body("chat", f"What is the weather in {city}?", ("get_weather",), "required")
        return calls_in("chat", post(gateway.url + PATHS["chat"], asked).json)

    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(one, cities))
    assert [len(calls) for calls in made] == [1] * 20
    assert all(jsonschema_rs.is_valid(schema_of("get_weather"), calls[0][1]) for calls in made)


def test_a_client_that_leaves_frees_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stream cut off in the middle ends its generation, which would have no end: the next client is served."""
    endless = Endless.installed(monkeypatch)
    file = tmp_path / "endless.gguf"
    file.write_bytes(b"GGUF")
    asked = {"model": "local", "messages": [{"role": "user", "content": "Tell me a story."}], "stream": True}
    data = json.dumps(asked).encode()
    with RunningGateway(f"local:chat=embedded:{file}") as running:
        host, _, port = running.url.removeprefix("http://").partition(":")
        for number in range(1, 3):
            with socket.create_connection((host, int(port)), timeout=180) as line:
                head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n\r\n"
                line.sendall(head.encode() + data)
                received = b""
                while b"data: " not in received:
                    received += line.recv(4096)
            assert len(endless.begun) == number


@pytest.mark.parametrize("wire", WIRES)
def test_a_prompt_over_the_context(gateway: RunningGateway, wire: str) -> None:
    """A prompt that does not fit is the error each wire's clients act on, forced or not."""
    for choice in ("auto", "required"):
        answer = post(gateway.url + PATHS[wire], body(wire, "word " * 9000, ("get_weather",), choice))
        assert answer.status == 400
        said = json.dumps(answer.json)
        assert "context_length_exceeded" in said or "prompt is too long" in said


def test_a_schema_the_grammar_cannot_express(gateway: RunningGateway) -> None:
    """What the grammar engine has no form for is asked in a narrower one and checked by the caller's: a typed error."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 50_000}}, "required": ["text"]}
    tool = {"type": "function", "function": {"name": "write", "description": "Write a text.", "parameters": schema}}
    messages = [{"role": "user", "content": "Write a text about Oslo."}]
    asked = {"model": "local", "messages": messages, "tools": [tool], "tool_choice": "required", "max_tokens": 60}
    answer = post(gateway.url + PATHS["chat"], asked)
    assert answer.status == 422
    assert answer.json["error"]["code"] in ("bad_arguments", "force_unmet", "text_tool_call", "truncated")
    assert "schema_reduced" in answer.headers["x-mustcall-adaptations"]
    after = post(gateway.url + PATHS["chat"], body("chat", *FORCED[0][:2], "required"))
    assert len(calls_in("chat", after.json)) == 1  # one schema that failed says nothing of others


def test_killed_in_the_middle_of_a_generation(tmp_path: Path) -> None:
    """SIGTERM in the middle of a generation ends the process in order; SIGKILL leaves nothing behind, either."""
    address = f"embedded:{tiny_model(tmp_path, slow=True)}"
    (tmp_path / "mustcall.toml").write_text(
        f'[server]\nshutdown_grace = 0.2\n[[upstream]]\nname = "local"\nwire = "chat"\nbase_url = "{address}"\n',
        encoding="utf-8",
    )
    for sign, code in ((signal.SIGTERM, {0, -signal.SIGTERM}), (signal.SIGKILL, {-signal.SIGKILL})):
        environment = {**os.environ, "MUSTCALL_UPSTREAM": ""}
        process = warm.start(
            *("serve", "--port", "0"),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=tmp_path,
            env=environment,
        )
        assert process.stdout is not None
        with process:
            url = process.stdout.readline().split()[-1]
            while "Ctrl-C" not in process.stdout.readline():
                pass
            listening = listeners(url)
            asked = {"model": "local", "messages": [{"role": "user", "content": "Tell me a story."}], "stream": True}
            untyped: Any = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            stream = untyped.chat.completions.create(**asked, max_tokens=8000)
            next(iter(stream))
            process.send_signal(sign)
            whole = False
            with suppress(Exception):  # whatever the library under the SDK raises when its connection breaks
                whole = any(chunk.choices and chunk.choices[0].finish_reason for chunk in stream)
            assert not whole  # it was cut off, with an error event or without
            assert process.wait(warm.PATIENCE) in code
            assert "Traceback" not in process.stdout.read()
        assert listening or sys.platform != "linux"
        assert not listening & listeners(url)


def test_every_tool_is_described() -> None:
    """The tools of these tests are tools."""
    assert all(said and schema["type"] == "object" for said, schema in TOOLS.values())
