"""Asks a contender once, reads the answer the way a client would, and says what a correct one looks like.

The load generator then only compares sizes and endings, which costs next to nothing.
"""

import http.client
import time
from typing import Any, cast

import msgspec

from mustcall.bench.bodies import ARGUMENTS, DELTAS, TEXT, TOOL, Reply, Wire

__all__ = ["Expected", "SeenFlow", "WrongAnswer", "ask", "fetch", "read_flow", "streamed_call"]

_ENDINGS: dict[Wire, bytes] = {
    "chat": b"data: [DONE]\n\n",
    "messages": b'{"type":"message_stop"}\n\n',
    "responses": b"\n\n",
}
_TIMEOUT = 60.0
Json = dict[str, Any]


class WrongAnswer(Exception):
    """A contender answered wrongly: there is nothing to measure."""


class Expected(msgspec.Struct, frozen=True):
    """What every further answer must look like."""

    length: int
    ending: str


def fetch(
    address: tuple[str, int], path: str, headers: dict[str, str], body: bytes, *, wire: Wire, reply: Reply
) -> Expected:
    """Ask once and check the answer's meaning; raise `WrongAnswer`."""
    raw = ask(address, path, headers, body)
    try:
        problem = _check_whole(wire, reply, raw) if reply in ("text", "call") else _check_stream(wire, raw)
    except (KeyError, IndexError, TypeError, msgspec.DecodeError) as error:
        problem = f"cannot be read: {error!r}"
    if problem:
        raise WrongAnswer(f"a wrong answer on the {wire} wire: {problem}; it ends in {raw[-300:]!r}")
    if reply in ("text", "call"):
        return Expected(len(raw), "}")
    return Expected(len(raw), _ENDINGS[wire].decode())


def ask(address: tuple[str, int], path: str, headers: dict[str, str], body: bytes) -> bytes:
    """Ask once and return the answer's body; raise `WrongAnswer` if there is none, or not with status 200."""
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT)
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        raw = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise WrongAnswer(f"no answer from {address[0]}:{address[1]}: {error!r}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise WrongAnswer(f"status {response.status}: {raw[:500].decode(errors='replace')}")
    return raw


class SeenFlow(msgspec.Struct, frozen=True):
    """A streamed call as it came: when each line was there, each piece of its arguments, comments before the first."""

    moments: tuple[float, ...]
    arguments: tuple[tuple[float, str], ...]
    signs: int


def read_flow(address: tuple[str, int], path: str, headers: dict[str, str], body: bytes) -> SeenFlow:
    """Ask on the Chat Completions wire and take the time of every line; raise `WrongAnswer` if no call comes."""
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT)
    moments: list[float] = []
    arguments: list[tuple[float, str]] = []
    signs = 0
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        while line := response.readline():
            now = time.monotonic()
            moments.append(now)
            signs += line.startswith(b":") and not arguments
            if piece := streamed_call(line):
                arguments.append((now, piece))
    except (OSError, http.client.HTTPException) as error:
        raise WrongAnswer(f"no answer from {address[0]}:{address[1]}: {error!r}") from None
    finally:
        connection.close()
    if response.status != 200 or not arguments:
        raise WrongAnswer(f"status {response.status}, and no call was streamed")
    return SeenFlow(tuple(moments), tuple(arguments), signs)


def _check_whole(wire: Wire, reply: Reply, raw: bytes) -> str:
    text, call = _read_whole(wire, msgspec.json.decode(raw))
    if reply == "text":
        return "" if text == TEXT else f"the text is {text!r}"
    return "" if call == (TOOL, ARGUMENTS) else f"the call is {call!r}"


def _read_whole(wire: Wire, body: Json) -> tuple[str, tuple[str, Json] | None]:
    """Return the text and the call of a reply."""
    match wire:
        case "chat":
            message: Json = body["choices"][0]["message"]
            calls = [
                (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()
            ]
            text: str = message.get("content") or ""
        case "messages":
            text = "".join(block["text"] for block in body["content"] if block["type"] == "text")
            calls = [(block["name"], block["input"]) for block in body["content"] if block["type"] == "tool_use"]
        case "responses":
            items: list[Json] = body["output"]
            text = "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])
            calls = [(item["name"], item["arguments"]) for item in items if item["type"] == "function_call"]
    if not calls:
        return text, None
    name, arguments = calls[0]
    return text, (name, msgspec.json.decode(arguments) if isinstance(arguments, str) else arguments)


def _check_stream(wire: Wire, raw: bytes) -> str:
    if not raw.endswith(_ENDINGS[wire]):
        return "the end is missing"
    deltas: list[str] = []
    last: Json = {}
    for block in raw.split(b"\n\n"):
        data = block.partition(b"data: ")[2]
        if data and data != b"[DONE]":
            last = cast("Json", msgspec.json.decode(data))  # server-sent events hold objects
            deltas.append(_delta(wire, last))
    if wire == "responses" and last["type"] != "response.completed":
        return f"the last event is {last['type']}"
    # Deltas that arrive together may be joined on the way to another wire; their text is what counts.
    found, sent = "".join(deltas), "".join(DELTAS)
    return "" if found == sent else f"{len(found)} characters of text, or others than the {len(sent)} that were sent"


def streamed_call(raw: bytes) -> str:
    """Return the arguments of the one call that was streamed on the Chat Completions wire."""
    pieces: list[str] = []
    for block in raw.split(b"\n\n"):
        data = block.partition(b"data: ")[2].rstrip()
        if data and data != b"[DONE]":
            for choice in msgspec.json.decode(data)["choices"]:
                pieces += [call["function"].get("arguments") or "" for call in choice["delta"].get("tool_calls") or ()]
    return "".join(pieces)


def _delta(wire: Wire, event: Json) -> str:
    """Return the text an event adds."""
    match wire:
        case "chat":
            return str(event["choices"][0]["delta"].get("content") or "") if event["choices"] else ""
        case "messages":
            return str(event["delta"]["text"]) if event["type"] == "content_block_delta" else ""
        case "responses":
            return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""
