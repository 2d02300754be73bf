"""The chat wire's bodies on both sides of the engine: what it is asked, what it answered, what it refused.

Pure. Requests keep the fields the engine knows and lose the others, as with any endpoint; replies are written the way
an HTTP endpoint of this wire would write them.
"""

import re
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.upstream.embedded.engine import EngineRefused
from mustcall.upstream.embedded.repetition import Repetition
from mustcall.wire.overflow import OVERFLOW_CODE, is_overflow

__all__ = [
    "DONE",
    "Assembly",
    "EndlessAnswer",
    "EngineRequest",
    "HttpFault",
    "Stamped",
    "error_body",
    "fault_of",
    "read_request",
    "spelt_out",
]

DONE = b"data: [DONE]\n\n"

#: Fields handed to the engine; anything else (ids of slots, adapters, paths) is not for callers to say.
_TAKEN = frozenset(
    {
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "stop",
        "presence_penalty",
        "frequency_penalty",
        "repeat_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "n",
        "response_format",
        "json_schema",
        "grammar",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "chat_template_kwargs",
        "reasoning_format",
    }
)
#: What a caller gets who says nothing: small models ramble, and are worse the hotter they are.
_DEFAULT_MAX_TOKENS = 1024
_DEFAULT_TEMPERATURE = 0.2

#: Sets of characters that the engine's grammar does not know by these names: it would take any text. Of the blanks a
#: space is the only one that stands in a JSON text as it is.
_SETS = {r"\d": "0-9", r"\w": "_A-Za-z0-9", r"\s": " "}
_CHARACTER = re.compile(r"\\?.", re.DOTALL)
_NO_END = re.compile(r"\{\d+,\}")
_NOT_BLANK = re.compile(r"\[\^[^]]*\\s")
#: What of a request holds schemas, and what of a schema holds values that are none.
_WITH_SCHEMAS = ("tools", "response_format", "json_schema")
_VALUES = frozenset({"const", "enum", "default", "examples"})

_SCHEMA_WORDS = ("json schema", "grammar")
#: How llama.cpp begins where it goes on with the caller's own words, which may be any.
_QUOTING = ("failed to parse messages", "failed to parse tools")


class EngineRequest(msgspec.Struct, frozen=True):
    """A request as the engine takes it, how its answer is wanted, and whether it offers tools."""

    body: bytes
    stream: bool
    usage: bool
    tools: bool = False


class HttpFault(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer, as HTTP says it."""

    status: int
    message: str
    code: str
    type: str = "invalid_request_error"
    param: str | None = None


def read_request(body: bytes) -> EngineRequest | HttpFault:
    """Read a request; return what is wrong with it where the engine could not say so itself."""
    try:
        given = msgspec.json.decode(body, type=JsonObject)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return HttpFault(status=400, message="the body is not a JSON object", code="invalid_request")
    if not isinstance(given.get("messages"), list) or not given["messages"]:
        message = "messages must be a list of one message or more"
        return HttpFault(status=400, message=message, code="invalid_request", param="messages")
    if given.get("functions") or isinstance(given.get("function_call"), dict):
        message = "functions and function_call are not supported; use tools and tool_choice"
        return HttpFault(status=400, message=message, code="unsupported_feature", param="functions")
    taken = {name: value for name, value in given.items() if name in _TAKEN and value is not None}
    limit = given.get("max_completion_tokens") or taken.get("max_tokens") or _DEFAULT_MAX_TOKENS
    options = given.get("stream_options")
    usage = isinstance(options, dict) and bool(cast("JsonObject", options).get("include_usage"))
    # Always streamed: only between two pieces can a request be given up. Progress makes the prompt come in pieces, too.
    taken |= {"max_tokens": limit, "stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
    taken.setdefault("temperature", _DEFAULT_TEMPERATURE)
    try:
        taken |= {name: _with_known_sets(taken[name]) for name in _WITH_SCHEMAS if name in taken}
        encoded = msgspec.json.encode(taken)
    except (ValueError, RecursionError):
        return HttpFault(status=400, message="the body is nested too deeply", code="invalid_request")
    return EngineRequest(encoded, bool(given.get("stream")), usage, bool(taken.get("tools")))


def _with_known_sets(value: Any) -> Any:
    """Return a schema, or what holds some, with patterns that the engine's grammar can hold, and without others."""
    if isinstance(value, list):
        return [_with_known_sets(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    out: JsonObject = {}
    for key, inner in cast("JsonObject", value).items():
        held = inner if key in _VALUES else _with_known_sets(inner)
        if key == "pattern" and isinstance(inner, str):
            held = spelt_out(inner)
            if held is None:
                continue
        out[key] = held
    return out


def spelt_out(pattern: str) -> str | None:
    """Return a pattern with the characters of its sets in place of their short names; None where that is no help.

    The engine takes any text for a pattern with a name it does not know. Of a pattern without an end it would let a
    small model write characters of one set for ever, where any text has a limit. What is not blank cannot be spelt.
    """
    out: list[str] = []
    inside = named = endless = False
    for character in _CHARACTER.findall(pattern):
        if character in _SETS:
            named = True
            out.append(_SETS[character] if inside else f"[{_SETS[character]}]")
            continue
        endless = endless or (not inside and character in "*+")
        inside = character != "]" if inside else character == "["
        out.append(character)
    if not named:
        return pattern
    return None if endless or _NO_END.search(pattern) or _NOT_BLANK.search(pattern) else "".join(out)


def fault_of(refused: EngineRefused, context: int) -> HttpFault:
    """Return what a refusal of the engine is in the words of the wire."""
    error = refused.error or {}
    status = error.get("code")
    if is_overflow(refused.message, str(error.get("type"))):
        used = error.get("n_prompt_tokens")
        has = f"the prompt has {used}" if isinstance(used, int) else "the prompt has more"
        message = f"This model's maximum context length is {context} tokens, and {has}; shorten it"
        return HttpFault(status=400, message=message, code=OVERFLOW_CODE, param="messages")
    lowered = refused.message.lower()
    if any(word in lowered for word in _SCHEMA_WORDS) and not lowered.startswith(_QUOTING):
        reason = _short(refused.message.rpartition("generation failed: ")[2])
        message = f"the grammar engine cannot express this schema: {reason}"
        return HttpFault(status=400, message=message, code="invalid_schema", param="response_format")
    if isinstance(status, int) and status >= 500:
        return HttpFault(status=status, message=_short(refused.message), code="server_error", type="server_error")
    return HttpFault(status=400, message=_short(refused.message), code="invalid_request")


def _short(message: str) -> str:
    return message if len(message) <= 500 else f"{message[:499]}…"


def error_body(fault: HttpFault) -> bytes:
    """Write a fault as the body of an error answer or of an error event."""
    error = {"message": fault.message, "type": fault.type, "param": fault.param, "code": fault.code}
    return msgspec.json.encode({"error": error})


class Stamped:
    """Writes the pieces of one answer as events, each with the id and the name of the model."""

    def __init__(self, model: str, *, usage: bool) -> None:
        self._model = model
        self._usage = usage
        self._begun = False

    def event(self, chunk: JsonObject) -> bytes:
        """Return the event of a piece, nothing for one that says nothing."""
        choices = _choices(chunk)
        head = _head(chunk, self._model, "chat.completion.chunk")
        if not choices:
            if not self._usage or "usage" not in chunk:
                return b""
            return _data(head | {"choices": [], "usage": chunk["usage"]})
        choice = choices[0]
        delta = {key: value for key, value in _object(choice.get("delta")).items() if value is not None}
        delta.pop("role", None)
        finish = choice.get("finish_reason")
        if not delta and finish is None:
            return b""
        if not self._begun:
            self._begun = True
            delta = {"role": "assistant", "content": "", **delta}
        written: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish}
        if choice.get("logprobs") is not None:
            written["logprobs"] = choice["logprobs"]
        return _data(head | {"choices": [written]} | ({"usage": None} if self._usage else {}))


class Assembly:
    """Puts the pieces of one answer together."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, JsonObject] = {}
        self._logprobs: list[Any] = []
        self._last: JsonObject = {}
        self._finish: Any = None
        self._usage: Any = None

    def add(self, chunk: JsonObject) -> None:
        """Take one piece."""
        self._last = chunk
        self._usage = chunk.get("usage", self._usage)
        for choice in _choices(chunk):
            delta = _object(choice.get("delta"))
            for key in ("content", "reasoning_content"):
                if isinstance(delta.get(key), str):
                    self._texts.setdefault(key, []).append(delta[key])
            for call in cast("list[JsonObject]", delta.get("tool_calls") or []):
                self._add_call(call)
            self._logprobs += _object(choice.get("logprobs")).get("content") or []
            self._finish = choice.get("finish_reason") or self._finish

    def _add_call(self, call: JsonObject) -> None:
        kept = self._calls.setdefault(
            call.get("index", 0), {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        kept["id"] = call.get("id") or kept["id"]
        for key, value in _object(call.get("function")).items():
            if isinstance(value, str):
                kept["function"][key] = kept["function"].get(key, "") + value

    def body(self) -> bytes:
        """Return the whole answer."""
        message: JsonObject = {"role": "assistant", "content": None}
        message |= {key: "".join(texts) for key, texts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        choice: JsonObject = {"index": 0, "message": message, "finish_reason": self._finish}
        if self._logprobs:
            choice["logprobs"] = {"content": self._logprobs}
        head = _head(self._last, self._model, "chat.completion")
        return msgspec.json.encode(head | {"choices": [choice], "usage": self._usage})


class EndlessAnswer:
    """Watches an answer for one piece again and again, and ends it as one that was cut.

    The engine counts tokens at the end of an answer. Before that, those of the prompt are in its progress, and each
    piece is one.
    """

    def __init__(self) -> None:
        self._repetition = Repetition()
        self._prompt = 0
        self._pieces = 0

    def takes(self, chunk: JsonObject) -> bool:
        """Take a piece; return whether the answer has to be ended behind it."""
        self._prompt = _object(chunk.get("prompt_progress")).get("total") or self._prompt
        text = "".join(_object(choice.get("delta")).get("content") or "" for choice in _choices(chunk))
        self._pieces += bool(text)
        return self._repetition.feed(text)

    def ending(self, chunk: JsonObject) -> tuple[JsonObject, JsonObject]:
        """Return the two pieces that end an answer behind this one: the finish, and the tokens."""
        counts = {"prompt_tokens": self._prompt, "completion_tokens": self._pieces}
        usage = {**counts, "total_tokens": sum(counts.values())}
        finish: JsonObject = {"index": 0, "delta": {}, "finish_reason": "length"}
        return {**chunk, "choices": [finish]}, {**chunk, "choices": [], "usage": usage}


def _choices(chunk: JsonObject) -> list[JsonObject]:
    return cast("list[JsonObject]", chunk.get("choices") or [])  # made by llama.cpp's own server


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _head(chunk: JsonObject, model: str, kind: str) -> JsonObject:
    return {"id": chunk.get("id"), "object": kind, "created": chunk.get("created"), "model": model}


def _data(value: JsonObject) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
