"""What a caller got, read from the raw bytes of its wire: these tests are also about bytes that must not be there.

Written from the public APIs alone; nothing is taken from mustcall's codecs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from support.http import Response

__all__ = ["Outcome", "data_of", "read_outcome"]

Json = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a caller got. `calls` are names and arguments, `error` is the wire's error object (empty if there is none).

    `finish` is `stop`, `calls`, `length` or the wire's own word.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, Json], ...] = ()
    ids: tuple[str, ...] = ()
    finish: str = ""
    error: Json = field(default_factory=dict[str, Any])
    status: int = 200
    raw: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def verdicts(self) -> str:
        """The verdict of each attempt, as the header lists them."""
        return self.headers.get("x-mustcall-verdicts", "")

    @property
    def attempts(self) -> int:
        """The number of upstream calls the header tells."""
        return int(self.headers.get("x-mustcall-attempts", "0"))

    @property
    def adaptations(self) -> list[str]:
        """What was adapted, as the header lists it."""
        return [entry for entry in self.headers.get("x-mustcall-adaptations", "").split(", ") if entry]

    @property
    def message(self) -> str:
        """The error's sentence."""
        return str(self.error.get("message", ""))


def data_of(answer: bytes) -> list[Json]:
    """Return the JSON of each server-sent event; comments and `[DONE]` are left out."""
    lines = answer.decode().splitlines()
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]


def _is_stream(answer: Response) -> bool:
    return answer.headers.get("content-type", "").startswith("text/event-stream")


def _error_of(body: Json) -> Json:
    inner = body.get("error")
    return inner if isinstance(inner, dict) else body


def _arguments(text: str) -> Json:
    value = json.loads(text)
    assert type(value) is dict, f"arguments are an object: {text}"
    return value


def _finish(word: str | None) -> str:
    known = {
        "tool_calls": "calls",
        "tool_use": "calls",
        "end_turn": "stop",
        "max_tokens": "length",
        "max_output_tokens": "length",
    }
    return known.get(word or "", word or "")


def _read_chat(answer: Response) -> Outcome:
    if not _is_stream(answer):
        choice = answer.json["choices"][0]
        message = choice["message"]
        made: list[Json] = message.get("tool_calls") or []
        return Outcome(
            text=(message["content"] or "") + (message.get("refusal") or ""),
            thinking=message.get("reasoning_content") or "",
            calls=tuple((call["function"]["name"], _arguments(call["function"]["arguments"])) for call in made),
            ids=tuple(call["id"] for call in made),
            finish=_finish(choice["finish_reason"]),
        )
    text, thinking, finish = "", "", ""
    error: Json = {}
    calls: dict[int, list[str]] = {}
    for chunk in data_of(answer.body):
        error = chunk.get("error") or error
        for choice in chunk.get("choices", ()):
            delta = choice["delta"]
            text += (delta.get("content") or "") + (delta.get("refusal") or "")
            thinking += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls") or ():
                call = calls.setdefault(piece["index"], ["", "", ""])
                call[0] += piece.get("id") or ""
                call[1] += piece["function"].get("name") or ""
                call[2] += piece["function"].get("arguments") or ""
            finish = choice.get("finish_reason") or finish
    assert error or answer.body.endswith(b"data: [DONE]\n\n"), "a whole stream says so"
    return Outcome(
        text=text,
        thinking=thinking,
        # What came before an error event is no call: the caller was told that the turn failed.
        calls=() if error else tuple((name, _arguments(written)) for _, name, written in calls.values()),
        ids=tuple(call[0] for call in calls.values()),
        finish=_finish(finish),
        error=error,
    )


def _read_responses(answer: Response) -> Outcome:
    if not _is_stream(answer):
        return _response(answer.json)
    events = data_of(answer.body)
    last = events[-1]
    text = "".join(
        event["delta"] for event in events if event["type"] in ("response.output_text.delta", "response.refusal.delta")
    )
    if last["type"] in ("response.completed", "response.incomplete"):
        outcome = _response(last["response"])
        assert outcome.text == text, "the deltas are the text"
        return outcome
    error = last["response"]["error"] if last["type"] == "response.failed" else last
    return Outcome(text=text, error=error)


def _response(response: Json) -> Outcome:
    text, thinking = "", ""
    calls: list[tuple[str, Json]] = []
    ids: list[str] = []
    for item in response["output"]:
        match item["type"]:
            case "message":
                text += "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
            case "reasoning":
                parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                thinking += "".join(part["text"] for part in parts)
            case "function_call":
                assert item["status"] == "completed", "half a call is none"
                calls.append((item["name"], _arguments(item["arguments"])))
                ids.append(item["call_id"])
            case _:
                pass
    details: Json = response.get("incomplete_details") or {}
    finish = _finish(details.get("reason")) or ("calls" if calls else "stop")
    return Outcome(text=text, thinking=thinking, calls=tuple(calls), ids=tuple(ids), finish=finish)


def _read_messages(answer: Response) -> Outcome:
    if not _is_stream(answer):
        return _message(answer.json)
    blocks: dict[int, Json] = {}
    message: Json = {}
    error: Json = {}
    for event in data_of(answer.body):
        match event["type"]:
            case "message_start":
                message = dict(event["message"])
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            case "content_block_delta":
                _grow(blocks[event["index"]], event["delta"])
            case "message_delta":
                message |= event["delta"]
            case "error":
                error = event["error"]
            case _:
                pass
    for block in blocks.values():
        written = block.pop("json")
        if block["type"] == "tool_use" and written and not error:
            block["input"] = _arguments(written)
    return replace(_message({**message, "content": list(blocks.values())}), error=error)


def _grow(block: Json, delta: Json) -> None:
    for name, key in (("text", "text"), ("thinking", "thinking"), ("partial_json", "json")):
        if name in delta:
            block[key] += delta[name]


def _message(message: Json) -> Outcome:
    blocks = message["content"]
    used = [block for block in blocks if block["type"] == "tool_use"]
    return Outcome(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        thinking="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        calls=tuple((block["name"], block["input"]) for block in used),
        ids=tuple(block["id"] for block in used),
        finish=_finish(message.get("stop_reason")),
    )


_READERS = {"chat": _read_chat, "responses": _read_responses, "messages": _read_messages}


def read_outcome(wire: str, answer: Response) -> Outcome:
    """Return what a caller of this wire got."""
    outcome = _READERS[wire](answer) if answer.status == 200 else Outcome(error=_error_of(answer.json))
    return replace(outcome, status=answer.status, raw=answer.body, headers=answer.headers)
