"""Turns driven through real gateways before one strict scripted upstream: what was sent, what the caller got.

Starting a gateway costs more than a turn, so a module shares one `Stage` and puts a script on for each turn. Bodies
are written here from the public APIs; nothing is taken from mustcall's codecs.
"""

import asyncio
import http.client
import itertools
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Answer, Chunking, Fail, Recorded, RunningGateway, ScriptedUpstream
from mustcall.upstream.retry import SystemClock
from rules.outcomes import Outcome, read_outcome
from support.compared import Comparing, keep_own_count
from support.forcing import TIME, WEATHER, WIRES, Tool, User, turns_on, write_body
from support.http import Response, post

__all__ = [
    "GRID",
    "LIMIT_FIELD",
    "NATIVE",
    "PATHS",
    "PROMPT",
    "UNKNOWN",
    "WAYS",
    "WORDS",
    "Stage",
    "arriving",
    "as_grammar",
    "as_schema",
    "ask_slowly",
    "kept",
    "prompted",
    "request",
    "stranger",
]

Json = dict[str, Any]

#: Native on every wire, obeys a force, does not reason: what is seen is the text-call rules and nothing else.
NATIVE = "gpt-4o"
#: No profile knows it: hybrid.
UNKNOWN = "some-model"

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
LIMIT_FIELD = {"chat": "max_completion_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}

#: The sentences a turn may add.
WORDS = Wording()

#: The tools of `request` as the default grammar renders them.
PROMPT = """You can call tools. To call one, write exactly this, with the tool's name and its arguments:

<tool_call>
{"name": "TOOL_NAME", "arguments": {"PARAMETER": "VALUE"}}
</tool_call>

Write nothing after a call; its result will be given to you. These are the tools:

## get_weather
The weather in a city.
Parameters:
- city (string, required)

## get_time
The time in a zone.
Parameters:
- zone (string, required)"""

_KEYS = {
    "chat": {"authorization": "Bearer sk-test"},
    "responses": {"authorization": "Bearer sk-test"},
    "messages": {"x-api-key": "sk-test", "anthropic-version": "2023-06-01"},
}

#: Every caller's wire, whole and streamed.
WAYS = tuple((wire, stream) for wire in WIRES for stream in (False, True))
#: Every caller's wire on every upstream's wire, whole and streamed.
GRID = tuple((caller, upstream, stream) for caller in WIRES for upstream in WIRES for stream in (False, True))


def request(
    wire: str, *steps: Any, model: str = NATIVE, tools: tuple[Tool, ...] = (WEATHER, TIME), **fields: Any
) -> Json:
    """Return a request in the words of a wire; without steps the user asks for the weather.

    On Responses nothing is stored, so that an attempt can follow another in one stream (rule 78).
    """
    if wire == "responses":
        fields = {"store": False, **fields}
    return write_body(wire, *(steps or ("Weather in Paris?",)), model=model, tools=tools, **fields)


def arriving(caller: str, upstream: str, *added: str, **fields: Any) -> Json:
    """Return what `request` becomes at an upstream, with user turns of ours behind the user's.

    On one wire it is the caller's own body; on the others each wire's plain way to say the same.
    """
    body = request(upstream, **fields)
    if upstream == "responses":
        if caller != upstream:
            body["input"] = [_item(turn["content"]) for turn in body["input"]]
            body |= {"include": ["reasoning.encrypted_content"]}
        body["input"] += [_item(text) for text in added]
        return body
    turns = [*body["messages"], *turns_on(upstream, [User(text) for text in added])]
    if upstream == "messages" and caller != upstream and added:
        blocks = [{"type": "text", "text": turn["content"]} for turn in turns]
        turns = [{"role": "user", "content": blocks}]
    if (caller, upstream) == ("responses", "chat"):
        body["store"] = False
        body["tools"] = [{**tool, "function": {**tool["function"], "strict": False}} for tool in body["tools"]]
    return {**body, "messages": turns}


def prompted(wire: str, *added: str, system: str = PROMPT, **fields: Any) -> Json:
    """Return the caller's own request with its tools rendered as text in the system prompt (rule 71)."""
    body = arriving(wire, wire, *added, **fields)
    del body["tools"]
    if wire == "chat":
        return {**body, "messages": [{"role": "system", "content": system}, *body["messages"]]}
    return {**body, "instructions" if wire == "responses" else "system": system}


def kept(wire: str, text: str) -> Json:
    """Return an answer of the model's as it stays in the context of the next attempt (rule 25)."""
    if wire != "responses":
        return {"role": "assistant", "content": text}
    content: list[Json] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "role": "assistant", "content": content}


def as_schema(caller: str, upstream: str, choice: str, *, closed: bool = False, **fields: Any) -> Json:
    """Return the request of the schema rung: no tools, the call's schema in the wire's own setting (rules 28, 140).

    `closed` is for a provider that is known to take strict schemas, in which every object is closed.
    """
    forms = _call_forms(choice, closed=closed)
    schema = forms[0] if len(forms) == 1 else _closed({"call": {"anyOf": forms}})
    named = {"name": "tool_call", "schema": schema, "strict": True}
    setting: Json = {
        "chat": {"response_format": {"type": "json_schema", "json_schema": named}},
        "responses": {"text": {"format": {"type": "json_schema", **named}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    }[upstream]
    return _asked_as_json(caller, upstream, choice, **fields) | setting


def as_grammar(
    caller: str, upstream: str, choice: str, *, names: tuple[str, ...] = ("json_schema", "guided_json"), **fields: Any
) -> Json:
    """Return the request of the grammar rung: no tools, the call's schema in fields of the server's (rules 76, 140)."""
    forms = _call_forms(choice)
    schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
    return _asked_as_json(caller, upstream, choice, **fields) | dict.fromkeys(names, schema)


def _asked_as_json(caller: str, upstream: str, choice: str, **fields: Any) -> Json:
    listed = "\n".join(
        f"- {tool.name}: {tool.description}\n  arguments: {json.dumps(tool.schema, separators=(',', ':'))}"
        for tool in _meant(choice)
    )
    body = arriving(caller, upstream, WORDS.call_as_json.format(tools=listed), **fields)
    del body["tools"]
    return body


def _call_forms(choice: str, *, closed: bool = False) -> list[Json]:
    shut: Json = {"additionalProperties": False} if closed else {}
    return [
        _closed({"name": {"type": "string", "enum": [tool.name]}, "arguments": tool.schema | shut})
        for tool in _meant(choice)
    ]


def _meant(choice: str) -> list[Tool]:
    return [tool for tool in (WEATHER, TIME) if choice in ("required", tool.name)]


def _closed(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_numbers = itertools.count(1)


def stranger(family: str = UNKNOWN) -> str:
    """Return the name of a model of which nothing was learnt yet: turns before a shared gateway teach (rule 139)."""
    return f"{family}-{next(_numbers)}"


def _item(text: str) -> Json:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


class _Hasty(SystemClock):
    async def sleep(self, seconds: float) -> None:
        """Wait no longer than the loop needs."""
        await asyncio.sleep(0)
        del seconds


class Stage:
    """One strict upstream behind a gateway per wire; `play` puts a script on, `ask` takes a turn.

    With `compares` a test that made retries must have compared the body of each call (rule 118).
    """

    def __init__(self, operator: OperatorSettings | None = None, *, compares: bool = False) -> None:
        self._compares = compares
        self._answers: list[Answer] = []
        self._upstream = ScriptedUpstream(self._next, strict=True)
        keep_own_count(self._upstream)
        # Turns of one module ask for the same things: each is to be taken.
        operator = operator or OperatorSettings()
        controls: Controls = msgspec.structs.replace(operator.controls, remember_failures=0)
        self._operator: OperatorSettings = msgspec.structs.replace(operator, controls=controls)
        self._gateways: dict[str, RunningGateway] = {}
        #: Which bodies of the script the test has compared.
        self.comparing = Comparing()
        self._asked = 0

    def _next(self, recorded: Recorded) -> Answer:
        del recorded
        # A 400 is not tried again, so a call too many is seen as one call too many.
        return self._answers.pop(0) if self._answers else Fail(400, "the script is exhausted")

    def __enter__(self) -> Self:
        self._upstream.start()
        for wire in WIRES:
            flag = f"{wire}={self._upstream.base_url}"
            self._gateways[wire] = RunningGateway(flag, operator=self._operator, clock=_Hasty()).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gateway in self._gateways.values():
            gateway.close()
        self._upstream.close()

    def forget(self) -> None:
        """Let the gateways forget what turns have taught them (rule 139): what one test teaches changes the next."""
        for gateway in self._gateways.values():
            service = gateway.app._service
            if service is not None:
                service.learnt.__init__()

    def play(self, *answers: Answer, chunking: Chunking = None) -> Self:
        """Put a script on; what was recorded before is forgotten."""
        self.comparing.settle()
        self.comparing = Comparing()
        if self._compares:
            self.comparing.watch(self._counted)
        self._asked = 0
        self._upstream.requests.clear()
        self._upstream.chunking = chunking
        self._answers = list(answers)
        return self

    def prepare(self, *answers: Answer) -> Self:
        """Put a script on for a turn that only prepares the next: its bodies are compared elsewhere."""
        self.play(*answers).comparing.leave("it prepares the next turn")
        return self

    def ask(
        self, caller: str, body: Json, upstream: str | None = None, headers: dict[str, str] | None = None
    ) -> Outcome:
        """Take one turn: from this wire, to an upstream of that wire (the same unless said otherwise)."""
        gateway = self._gateways[upstream or caller]
        self._asked += 1
        answer = post(gateway.url + PATHS[caller], body, _KEYS[caller] | (headers or {}))
        return read_outcome(caller, answer)

    def url(self, upstream: str) -> str:
        """Where the gateway before an upstream of this wire listens, for one request."""
        self._asked += 1
        return self._gateways[upstream].url

    @property
    def sent(self) -> list[Recorded]:
        """Every request the upstream received."""
        return list(self._upstream.requests)

    @property
    def ends(self) -> list[str]:
        """How each request ended for the upstream, once all have."""
        return [str(one.ended) for one in self._upstream.wait_until_done()]

    @property
    def bodies(self) -> list[Json]:
        """The bodies the upstream received, each of which it must have accepted."""
        refused = [(one.number, one.refused_by) for one in self.sent if one.refused_by]
        assert not refused, f"the strict upstream refused: {refused}"
        return self.received

    @property
    def received(self) -> list[Json]:
        """The bodies the upstream received, those it refused included."""
        return self.comparing.bodies([one.body for one in self.sent])

    def _counted(self) -> tuple[int, int]:
        return len(self._upstream.requests), self._asked


def ask_slowly(url: str, wire: str, body: Json, until: bytes, then: Callable[[], None]) -> Outcome:
    """Ask for a stream, call `then` once these bytes have come, and read the rest."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=180)
    try:
        headers = {"content-type": "application/json", **_KEYS[wire]}
        connection.request("POST", PATHS[wire], json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        read = b""
        while until not in read:
            piece = answer.read1()
            assert piece, f"the stream ended before {until!r} came: {read!r}"
            read += piece
        then()
        read += answer.read()
        got = Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, read)
    finally:
        connection.close()
    return read_outcome(wire, got)
