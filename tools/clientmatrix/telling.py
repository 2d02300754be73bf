"""Write a `Reply` on a wire: as the events of a stream, each with the seconds to wait before it, or as one body.

Without defects both are the complete canonical form of the wire.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from clientmatrix.reading import Asked
from clientmatrix.replies import Call, Defect, Reply

_CREATED = 1_760_000_000
_PIECES = 4

Timed = tuple[float, bytes]


def tell_stream(asked: Asked, reply: Reply, serial: int) -> Iterator[Timed]:
    """The stream's bytes."""
    match asked.wire:
        case "chat":
            yield from _Chat(asked, reply, serial).stream()
        case "responses":
            yield from _Responses(asked, reply, serial).stream()
        case "messages":
            yield from _Messages(asked, reply, serial).stream()


def tell_body(asked: Asked, reply: Reply, serial: int) -> dict[str, Any]:
    """The body of a request that does not stream."""
    match asked.wire:
        case "chat":
            return _Chat(asked, reply, serial).body()
        case "responses":
            return _Responses(asked, reply, serial).response("completed", _Responses(asked, reply, serial).items())
        case "messages":
            return _Messages(asked, reply, serial).body()


def cut_pieces(text: str, seconds: int) -> list[tuple[float, str]]:
    """The text in pieces: a few at once, or one a second."""
    count = max(1, min(len(text), seconds or _PIECES))
    edges = [len(text) * n // count for n in range(count + 1)]
    pause = seconds / count
    return [(pause, text[a:b]) for a, b in pairwise(edges) if b > a]


class _Chat:
    def __init__(self, asked: Asked, reply: Reply, serial: int) -> None:
        self.asked, self.reply, self.id = asked, reply, f"chatcmpl-{serial}"

    def frame(self, kind: str, **fields: Any) -> dict[str, Any]:
        created = {} if Defect.NO_CREATED in self.reply.defects else {"created": _CREATED}
        return {"id": self.id, "object": kind, **created, "model": self.asked.model, **fields}

    def usage(self) -> dict[str, int]:
        given, made = self.reply.usage
        return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}

    def finish(self) -> str:
        return "tool_calls" if self.reply.calls else "stop"

    def body(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.reply.text or None}
        if self.reply.reasoning:
            message["reasoning_content"] = self.reply.reasoning
        if self.reply.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
                for c in self.reply.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish()}
        return self.frame("chat.completion", choices=[choice], usage=self.usage())

    def stream(self) -> Iterator[Timed]:
        for pause, delta, finish in self.deltas():
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            yield pause, _data(self.frame("chat.completion.chunk", choices=[choice]))
        if self.asked.usage_wanted:
            yield 0, _data(self.frame("chat.completion.chunk", choices=[], usage=self.usage()))
        yield 0, b"data: [DONE]\n\n"

    def deltas(self) -> Iterator[tuple[float, dict[str, Any], str | None]]:
        if Defect.NO_ROLE not in self.reply.defects:
            yield 0, {"role": "assistant", "content": ""}, None
        for _, piece in cut_pieces(self.reply.reasoning, 0):
            yield 0, {"reasoning_content": piece}, None
        for _, piece in cut_pieces(self.reply.text, 0):
            yield 0, {"content": piece}, None
        for index, call in enumerate(self.reply.calls):
            head = {"index": index, "id": call.id, "type": "function"}
            yield 0, {"tool_calls": [head | {"function": {"name": call.name, "arguments": ""}}]}, None
            for pause, piece in cut_pieces(call.arguments, self.reply.seconds):
                yield pause, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}, None
        yield 0, {}, self.finish()


class _Responses:
    def __init__(self, asked: Asked, reply: Reply, serial: int) -> None:
        self.asked, self.reply, self.serial, self.number = asked, reply, serial, 0

    def response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        given, made = self.reply.usage
        usage = {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + made,
        }
        shown: dict[str, Any] = {"id": f"resp_{self.serial}", "object": "response", "status": status}
        full = {
            "created_at": _CREATED,
            "model": self.asked.model,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
        }
        if Defect.NO_CREATED in self.reply.defects:
            del full["created_at"]
        if Defect.MINIMAL_RESPONSE not in self.reply.defects:
            shown |= full
        if status == "completed":
            return shown | {"output": output, "usage": usage}
        return shown if Defect.MINIMAL_RESPONSE in self.reply.defects else shown | {"output": [], "usage": None}

    def items(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if self.reply.reasoning:
            summary = [{"type": "summary_text", "text": self.reply.reasoning}]
            items.append({"type": "reasoning", "id": f"rs_{self.serial}", "summary": summary})
        if self.reply.text:
            content = [{"type": "output_text", "text": self.reply.text, "annotations": []}]
            items.append(self.item("message", f"msg_{self.serial}", role="assistant", content=content))
        return items + [self.call(index, call) for index, call in enumerate(self.reply.calls)]

    def item(self, kind: str, identity: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "id": identity, "status": "completed", **fields}

    def call(self, index: int, call: Call) -> dict[str, Any]:
        fields = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        if call.namespace:
            fields["namespace"] = call.namespace
        return self.item("function_call", f"fc_{self.serial}_{index}", **fields)

    def event(self, kind: str, **fields: Any) -> bytes:
        number = 0 if Defect.WRONG_SEQUENCE in self.reply.defects else self.number
        self.number += 1
        return _event(kind, {"type": kind, "sequence_number": number, **fields})

    def stream(self) -> Iterator[Timed]:
        for kind in ("response.created", "response.in_progress"):
            yield 0, self.event(kind, response=self.response("in_progress", []))
        for index, item in enumerate(self.items()):
            begun = {k: v for k, v in item.items() if k != "status"} | {"status": "in_progress"}
            match item["type"]:
                case "reasoning":
                    begun = {"type": "reasoning", "id": item["id"], "summary": []}
                case "message":
                    begun["content"] = []
                case _:
                    begun["arguments"] = ""
            yield 0, self.event("response.output_item.added", output_index=index, item=begun)
            if Defect.NO_TEXT_DELTAS not in self.reply.defects:
                yield from self.deltas(index, item)
            yield 0, self.event("response.output_item.done", output_index=index, item=item)
        yield 0, self.event("response.completed", response=self.response("completed", self.items()))

    def deltas(self, index: int, item: dict[str, Any]) -> Iterator[Timed]:
        place: dict[str, Any] = {"item_id": item["id"], "output_index": index}
        match item["type"]:
            case "function_call":
                text = item["arguments"]
                for pause, piece in cut_pieces(text, self.reply.seconds):
                    yield pause, self.event("response.function_call_arguments.delta", **place, delta=piece)
                yield 0, self.event("response.function_call_arguments.done", **place, arguments=text, name=item["name"])
            case "message":
                place |= {"content_index": 0}
                yield from self.text(place, "content_part", "output_text", "output_text", item["content"][0])
            case _:
                place |= {"summary_index": 0}
                part = item["summary"][0]
                yield from self.text(place, "reasoning_summary_part", "reasoning_summary_text", "summary_text", part)

    def text(self, place: dict[str, Any], part: str, name: str, kind: str, whole: dict[str, Any]) -> Iterator[Timed]:
        extra: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        yield 0, self.event(f"response.{part}.added", **place, part=whole | {"text": ""})
        for _, piece in cut_pieces(whole["text"], 0):
            yield 0, self.event(f"response.{name}.delta", **place, delta=piece, **extra)
        yield 0, self.event(f"response.{name}.done", **place, text=whole["text"], **extra)
        yield 0, self.event(f"response.{part}.done", **place, part=whole)


class _Messages:
    def __init__(self, asked: Asked, reply: Reply, serial: int) -> None:
        self.asked, self.reply, self.serial = asked, reply, serial

    def stop(self) -> str:
        return "tool_use" if self.reply.calls else "end_turn"

    def message(self, content: list[dict[str, Any]], stop: str | None, made: int) -> dict[str, Any]:
        given = self.reply.usage[0]
        return {
            "id": f"msg_{self.serial}",
            "type": "message",
            "role": "assistant",
            "model": self.asked.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": given,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": made,
            },
        }

    def blocks(self) -> list[tuple[dict[str, Any], list[tuple[float, dict[str, Any]]]]]:
        """Each block as it begins, and its deltas."""
        reply, blocks = self.reply, []
        whole = Defect.NO_TEXT_DELTAS in reply.defects
        if reply.reasoning:
            deltas = [(0.0, {"type": "thinking_delta", "thinking": p}) for _, p in cut_pieces(reply.reasoning, 0)]
            deltas.append((0.0, {"type": "signature_delta", "signature": "c2NyaXB0ZWQ="}))
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        if reply.text:
            deltas = [(0.0, {"type": "text_delta", "text": p}) for _, p in cut_pieces(reply.text, 0)]
            blocks.append(({"type": "text", "text": reply.text if whole else ""}, [] if whole else deltas))
        for call in reply.calls:
            begun: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            deltas = [
                (pause, {"type": "input_json_delta", "partial_json": p})
                for pause, p in cut_pieces(call.arguments, reply.seconds)
            ]
            blocks.append((begun | {"input": _loaded(call.arguments)} if whole else begun, [] if whole else deltas))
        return blocks

    def body(self) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if self.reply.reasoning:
            content.append({"type": "thinking", "thinking": self.reply.reasoning, "signature": "c2NyaXB0ZWQ="})
        if self.reply.text:
            content.append({"type": "text", "text": self.reply.text})
        content += [
            {"type": "tool_use", "id": c.id, "name": c.name, "input": _loaded(c.arguments)} for c in self.reply.calls
        ]
        return self.message(content, self.stop(), self.reply.usage[1])

    def stream(self) -> Iterator[Timed]:
        yield 0, _event("message_start", {"type": "message_start", "message": self.message([], None, 1)})
        for index, (begun, deltas) in enumerate(self.blocks()):
            start = {"type": "content_block_start", "index": index, "content_block": begun}
            yield 0, _event("content_block_start", start)
            for pause, delta in deltas:
                block = {"type": "content_block_delta", "index": index, "delta": delta}
                yield pause, _event("content_block_delta", block)
            yield 0, _event("content_block_stop", {"type": "content_block_stop", "index": index})
        ending = {"stop_reason": self.stop(), "stop_sequence": None}
        usage = {"output_tokens": self.reply.usage[1]}
        yield 0, _event("message_delta", {"type": "message_delta", "delta": ending, "usage": usage})
        yield 0, _event("message_stop", {"type": "message_stop"})


def _loaded(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _data(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def _event(kind: str, value: dict[str, Any]) -> bytes:
    return f"event: {kind}\n".encode() + _data(value)
