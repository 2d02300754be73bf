"""Turns asked through a real gateway by the official SDKs: one conversation in the words of each wire, what came back.

Bodies are written here from the public APIs alone and double as the bodies a test expects upstream. Nothing is read
from mustcall's codecs, so that agreement between the two sides is evidence.
"""

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import anthropic
import httpx2
import openai

from mustcall.engine.turns import OperatorSettings
from mustcall.testing import Answer, Recorded, RunningGateway, ScriptedUpstream
from support.compared import Comparing, keep_own_count

__all__ = [
    "BUDGET",
    "FAILED",
    "LIMIT",
    "TIME",
    "WAYS",
    "WEATHER",
    "WIRES",
    "Assistant",
    "Called",
    "Got",
    "Result",
    "Rig",
    "Step",
    "Tool",
    "User",
    "choice_on",
    "expect_body",
    "join_users",
    "turns_on",
    "typed_item",
    "write_body",
]

WIRES = ("chat", "responses", "messages")
#: Every caller's wire, whole and streamed.
#: The status of a typed model failure (rule 144).
FAILED = {"chat": 422, "responses": 400, "messages": 502}
WAYS = tuple((wire, stream) for wire in WIRES for stream in (False, True))

LIMIT = 4096
#: The thinking budget that effort `low` stands for.
BUDGET = 2048

#: Loading the system's certificates takes longer than a turn on loopback.
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True)
class Tool:
    """A tool with one required string."""

    name: str
    parameter: str
    description: str = "A tool."

    @property
    def schema(self) -> dict[str, Any]:
        """Its parameters."""
        return {"type": "object", "properties": {self.parameter: {"type": "string"}}, "required": [self.parameter]}


WEATHER = Tool("get_weather", "city", "The weather in a city.")
TIME = Tool("get_time", "zone", "The time in a zone.")


@dataclass(frozen=True)
class User:
    """What the user said."""

    text: str


@dataclass(frozen=True)
class Assistant:
    """What the model said."""

    text: str


@dataclass(frozen=True)
class Called:
    """A call the model made."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Result:
    """What a call returned."""

    id: str
    text: str


Step = User | Assistant | Called | Result


def write_body(
    wire: str,
    *steps: Step | str,
    model: str,
    tools: Sequence[Tool] = (WEATHER, TIME),
    choice: str | None = None,
    thinking: bool = False,
    stream: bool = False,
    **fields: Any,
) -> dict[str, Any]:
    """Return a request; `choice` is none, auto, required or the name of a tool. Extra fields go in as they are."""
    turns = turns_on(wire, [User(step) if isinstance(step, str) else step for step in steps])
    body: dict[str, Any] = {"model": model, "input" if wire == "responses" else "messages": turns}
    body[
        "max_completion_tokens" if wire == "chat" else "max_output_tokens" if wire == "responses" else "max_tokens"
    ] = LIMIT
    if tools:
        body["tools"] = [_tool_on(wire, tool) for tool in tools]
    if choice is not None:
        body["tool_choice"] = choice_on(wire, choice)
    if thinking:
        body |= {
            "chat": {"reasoning_effort": "low"},
            "responses": {"reasoning": {"effort": "low"}},
            "messages": {"thinking": {"type": "enabled", "budget_tokens": BUDGET}},
        }[wire]
    if stream:
        body["stream"] = True
        if wire == "chat":
            body["stream_options"] = {"include_usage": True}
    return body | fields


def choice_on(wire: str, choice: str) -> Any:
    """Return a choice in the words of a wire (rule 2)."""
    if choice in ("none", "auto", "required"):
        return {"type": "any" if choice == "required" else choice} if wire == "messages" else choice
    return {
        "chat": {"type": "function", "function": {"name": choice}},
        "responses": {"type": "function", "name": choice},
        "messages": {"type": "tool", "name": choice},
    }[wire]


def _tool_on(wire: str, tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {
        "chat": {"type": "function", "function": function},
        "responses": {"type": "function", **function, "strict": False},
        "messages": {"name": tool.name, "description": tool.description, "input_schema": tool.schema},
    }[wire]


def turns_on(wire: str, steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Return a conversation in the words of a wire."""
    return [_turn_on(wire, step) for step in steps]


def expect_body(caller: str, upstream: str, *steps: Step | str, **settings: Any) -> dict[str, Any]:
    """Return the body an upstream must get for what a caller of another (or the same) wire asked.

    What was written on the upstream's own wire stays as it is; crossing to Messages joins neighbouring user turns, and
    crossing to Responses writes typed items and leaves no state on the server.
    """
    body = write_body(upstream, *steps, **settings)
    if caller == upstream:
        return body
    if upstream == "messages":
        body["messages"] = join_users(body["messages"])
    if upstream == "responses":
        body["input"] = [typed_item(item) for item in body["input"]]
        body |= {"store": False, "include": ["reasoning.encrypted_content"]}
    if (caller, upstream) == ("responses", "chat"):  # `strict` was said, and has a place there
        for tool in body.get("tools", ()):
            tool["function"]["strict"] = False
    return body


def join_users(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join neighbouring user turns into one of several blocks."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"] == "user":
            blocks = _blocks(joined[-1]["content"]) + _blocks(message["content"])
            joined[-1] = {"role": "user", "content": blocks}
        else:
            joined.append(message)
    return joined


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def typed_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return a Responses message as mustcall writes its own: with a type, and typed text."""
    if "role" not in item:
        return item
    text: dict[str, Any] = {"type": "input_text", "text": item["content"]}
    if item["role"] == "assistant":
        text = {"type": "output_text", "text": item["content"], "annotations": [], "logprobs": []}
    return {"type": "message", "role": item["role"], "content": [text]}


def _turn_on(wire: str, step: Step) -> dict[str, Any]:
    match step:
        case User(text):
            return {"role": "user", "content": text}
        case Assistant(text):
            return {"role": "assistant", "content": text}
        case Called(call_id, name, arguments):
            written = json.dumps(arguments, separators=(",", ":"))
            function = {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}
            block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
            return {
                "chat": {"role": "assistant", "content": None, "tool_calls": [function]},
                "responses": {"type": "function_call", "call_id": call_id, "name": name, "arguments": written},
                "messages": {"role": "assistant", "content": [block]},
            }[wire]
        case Result(call_id, text):
            block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            return {
                "chat": {"role": "tool", "tool_call_id": call_id, "content": text},
                "responses": {"type": "function_call_output", "call_id": call_id, "output": text},
                "messages": {"role": "user", "content": [block]},
            }[wire]


@dataclass(frozen=True)
class Got:
    """What the SDK made of a turn. `calls` are names and arguments; `error` is the wire's error object."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    finish: str = ""
    tokens: tuple[int, int] = (0, 0)
    status: int = 200
    error: dict[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)

    @property
    def outcome(self) -> tuple[str, str, str, str]:
        """What the headers say: outcome, upstream calls made, force, verdicts."""
        said = self.headers.get
        force, verdicts = said("x-mustcall-force", ""), said("x-mustcall-verdicts", "")
        return said("x-mustcall-outcome", ""), said("x-mustcall-attempts", ""), force, verdicts

    @property
    def adaptations(self) -> list[str]:
        """The adaptations the headers name."""
        noted = self.headers.get("x-mustcall-adaptations", "")
        return noted.split(", ") if noted else []


class Rig:
    """A scripted upstream, strict unless said otherwise, a gateway before it and SDK clients before that.

    A `model` answers each request by what it says, in place of a script.
    """

    def __init__(
        self,
        *script: Answer,
        upstream: str = "messages",
        operator: OperatorSettings | None = None,
        strict: bool = True,
        model: Callable[[Recorded], Answer] | None = None,
        **server: Any,
    ) -> None:
        self._upstream = ScriptedUpstream(script if model is None else model, strict=strict)
        keep_own_count(self._upstream)
        self._wire = upstream
        self._operator = operator
        self._server = server
        self._gateway: RunningGateway | None = None
        #: Which bodies the test has compared: all of several must be (rule 118).
        self.comparing = Comparing()
        self._asked = 0

    def __enter__(self) -> Self:
        self._upstream.start()
        flag = f"{self._wire}={self._upstream.base_url}"
        self._gateway = RunningGateway(flag, operator=self._operator, **self._server).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._gateway is not None:
            self._gateway.close()
        self._upstream.close()
        if error is None:
            self.comparing.end(len(self.requests), self._asked)

    @property
    def requests(self) -> list[Recorded]:
        """What the upstream received, refused or not."""
        return self._upstream.requests

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The bodies the upstream received, each of which it must have accepted."""
        refused = [(one.number, one.refused_by) for one in self.requests if one.refused_by]
        assert not refused, f"the strict upstream refused: {refused}"
        return self.received

    @property
    def received(self) -> list[dict[str, Any]]:
        """The bodies the upstream received, those it refused included."""
        return self.comparing.bodies([one.body for one in self.requests])

    @property
    def url(self) -> str:
        """Where the gateway listens, for one request."""
        assert self._gateway is not None, "use it with `with`"
        self._asked += 1
        return self._gateway.url

    def ask(self, wire: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Got:
        """Ask as the wire's SDK does."""
        seen: dict[str, str] = {}

        def keep(response: httpx2.Response) -> None:
            seen.update({name.lower(): value for name, value in response.headers.items()})

        with httpx2.Client(event_hooks={"response": [keep]}, timeout=180, verify=_NO_CERTIFICATES) as http:
            ask = {"chat": _ask_chat, "responses": _ask_responses, "messages": _ask_messages}[wire]
            try:
                got = ask(self.url, http, dict(body), dict(headers or {}))
            except (openai.APIStatusError, anthropic.APIStatusError) as failed:
                got = Got(status=failed.status_code, error=_error_of(failed.body))
        return replace(got, headers=seen)


def _error_of(body: Any) -> dict[str, Any]:
    """Return the error object: the anthropic SDK gives the whole body, the openai SDK what is under `error`."""
    return body.get("error", body)


def _arguments(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    assert type(value) is dict
    return value


def _untyped(client: Any) -> Any:
    """Let a test send any body: the SDKs type every field."""
    return client


def _ask_chat(url: str, http: httpx2.Client, body: dict[str, Any], headers: dict[str, str]) -> Got:
    client = _untyped(openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=http))
    streamed = body.pop("stream", False)
    options = {"model": body.pop("model"), "messages": body.pop("messages"), "extra_headers": headers}
    if not streamed:
        whole = client.chat.completions.create(**options, extra_body=body)
        message = whole.choices[0].message
        calls = [(call.function.name, _arguments(call.function.arguments)) for call in message.tool_calls or ()]
        usage = whole.usage
        return Got(
            text=(message.content or "") + (message.refusal or ""),
            thinking=getattr(message, "reasoning_content", None) or "",
            calls=tuple(calls),
            finish=whole.choices[0].finish_reason,
            tokens=(usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0),
        )
    said, thought, finish, tokens = "", "", "", (0, 0)
    pieces: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(**options, stream=True, extra_body=body):
        if chunk.usage is not None:
            tokens = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
        for choice in chunk.choices:
            said += (choice.delta.content or "") + (choice.delta.refusal or "")
            thought += getattr(choice.delta, "reasoning_content", None) or ""
            for piece in choice.delta.tool_calls or ():
                call = pieces.setdefault(piece.index, ["", ""])
                call[0] += piece.function.name or ""
                call[1] += piece.function.arguments or ""
            finish = choice.finish_reason or finish
    made = tuple((name, _arguments(text)) for name, text in pieces.values())
    return Got(text=said, thinking=thought, calls=made, finish=finish, tokens=tokens)


def _ask_responses(url: str, http: httpx2.Client, body: dict[str, Any], headers: dict[str, str]) -> Got:
    client = _untyped(openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0, http_client=http))
    streamed = body.pop("stream", False)
    options = {"model": body.pop("model"), "input": body.pop("input"), "extra_headers": headers}
    if not streamed:
        return _responses_got(client.responses.create(**options, extra_body=body))
    last: Got | None = None
    for event in client.responses.create(**options, stream=True, extra_body=body):
        if event.type in ("response.completed", "response.incomplete"):
            last = _responses_got(event.response)
    assert last is not None, "the stream has a last event"
    return last


def _responses_got(response: Any) -> Got:
    said, thought = "", ""
    calls: list[tuple[str, dict[str, Any]]] = []
    for item in response.output:
        match item.type:
            case "message":
                said += "".join(part.text if part.type == "output_text" else part.refusal for part in item.content)
            case "reasoning":
                thought += "".join(part.text for part in (*(item.summary or ()), *(item.content or ())))
            case "function_call":
                calls.append((item.name, _arguments(item.arguments)))
            case _:
                pass
    usage = response.usage
    return Got(
        text=said,
        thinking=thought,
        calls=tuple(calls),
        finish="tool_calls" if calls else response.incomplete_details.reason if response.incomplete_details else "stop",
        tokens=(usage.input_tokens, usage.output_tokens) if usage else (0, 0),
    )


def _ask_messages(url: str, http: httpx2.Client, body: dict[str, Any], headers: dict[str, str]) -> Got:
    client = _untyped(anthropic.Anthropic(base_url=url, api_key="sk-test", max_retries=0, http_client=http))
    streamed = body.pop("stream", False)
    options = {name: body.pop(name) for name in ("model", "messages", "max_tokens")} | {"extra_headers": headers}
    if streamed:
        with client.messages.stream(**options, extra_body=body) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**options, extra_body=body)
    finish = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "max_output_tokens"}
    reason: str = message.stop_reason
    return Got(
        text="".join(block.text for block in message.content if block.type == "text"),
        thinking="".join(block.thinking for block in message.content if block.type == "thinking"),
        calls=tuple((block.name, block.input) for block in message.content if block.type == "tool_use"),
        finish=finish.get(reason, reason),
        tokens=(message.usage.input_tokens, message.usage.output_tokens),
    )
