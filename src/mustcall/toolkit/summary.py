"""A run and a conversation, written down: for programs as JSON, for people as Markdown and as lines of a trace."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from mustcall.core.reply import Usage
from mustcall.core.request import Request
from mustcall.engine.records import AttemptRecord, TurnRecord
from mustcall.engine.run_records.results import RunResult
from mustcall.engine.tooling.outcomes import ExecutedCall
from mustcall.toolkit.reports import ChangeReports
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

__all__ = ["conversation_as_json", "conversation_as_markdown", "describe_change", "run_as_json", "trace_lines"]


def run_as_json(result: RunResult[Any], reports: ChangeReports, *, model: str, upstream: str) -> JsonObject:
    """Return a run as one JSON object: the answer, the calls, every attempt, and what it cost."""
    summary: JsonObject = {
        "answer": result.text,
        "stopped": str(result.stopped),
        "force_satisfied": result.force_satisfied,
        "model": model,
        "upstream": upstream,
        "calls": [_call(call, reports) for call in result.calls],
        "attempts": [
            {"step": number, **attempt.summary()}
            for number, step in enumerate(result.steps, 1)
            for attempt in step.attempts
        ],
        "adaptations": [
            {"step": number, **msgspec.to_builtins(change)}
            for number, step in enumerate(result.steps, 1)
            for change in step.adaptations
        ],
        "usage": _usage(result.usage),
    }
    if result.error is not None:
        summary["error"] = {"code": result.error.code, "message": result.error.message}
    return summary


def _call(call: ExecutedCall, reports: ChangeReports) -> JsonObject:
    return {
        "id": call.call.id,
        "name": call.call.name,
        "arguments": _arguments(call.call),
        "status": str(call.status),
        "result": call.result,
        "seconds": round(call.seconds, 3),
        "adaptations": [msgspec.to_builtins(change) for change in reports.of(call.call.id)],
    }


def _arguments(call: ToolCall) -> Any:
    try:
        return msgspec.json.decode(call.arguments_json)
    except msgspec.DecodeError:
        return call.arguments_json


def _usage(usage: Usage) -> JsonObject:
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


def describe_change(change: Adaptation) -> str:
    """Return a change in a few words."""
    return f"{change.kind} {change.subject}{': ' + change.detail if change.detail else ''}"


# --- the trace ------------------------------------------------------------------------------------------------------


def trace_lines(result: RunResult[Any], reports: ChangeReports) -> Iterator[str]:
    """Return what happened in a run, a line for each step, attempt, change and call."""
    calls = list(result.calls)
    for number, step in enumerate(result.steps, 1):
        yield f"step {number}: {_outcome(step)} (protocol {step.protocol}, force {step.force})"
        yield from (f"  attempt {index}: {_attempt(one)}" for index, one in enumerate(step.attempts, 1))
        yield from (f"  changed: {describe_change(change)}" for change in step.adaptations)
        for call in (call for call in calls if call.step == number):
            yield f"  call {call.call.name}: {call.status}, {call.seconds:.2f} s"
            yield from (f"    changed: {describe_change(change)}" for change in reports.of(call.call.id))
    used = result.usage
    yield f"ended: {result.stopped}; {used.input_tokens} tokens in, {used.output_tokens} out"
    if result.error is not None:
        yield f"error: {result.error.code}: {result.error.message}"


def _outcome(step: TurnRecord) -> str:
    return str(step.outcome) if step.outcome is not None else "no outcome"


def _attempt(attempt: AttemptRecord) -> str:
    words = [str(attempt.rung.kind), str(attempt.verdict) if attempt.verdict is not None else "not judged"]
    if attempt.remedy is not None:
        words.append(str(attempt.remedy))
    if attempt.error is not None:
        words.append(attempt.error)
    words.append(f"{attempt.seconds:.2f} s")
    return ", ".join(words)


# --- a conversation -------------------------------------------------------------------------------------------------


def conversation_as_json(history: Sequence[Message], *, model: str) -> bytes:
    """Return a conversation as a Chat Completions body: other programs, and `mustcall explain`, can read it."""
    request = Request(model=model, messages=tuple(history))
    body = codec_for(Wire.CHAT).encode_request(request, Target(), AdaptationLog())
    return msgspec.json.format(msgspec.json.encode(body), indent=2) + b"\n"


def conversation_as_markdown(history: Sequence[Message], *, model: str) -> bytes:
    """Return a conversation for people."""
    blocks = [f"# Conversation with {model}"]
    for message in history:
        title = {Role.USER: "You", Role.ASSISTANT: "Model", Role.TOOL: "Tools"}.get(message.role, str(message.role))
        parts = [shown for part in message.parts if (shown := _part(part))]
        if parts:
            blocks += [f"## {title}", *parts]
    return ("\n\n".join(blocks) + "\n").encode("utf-8", "replace")


def _part(part: Part) -> str:
    match part:
        case Text(text=text) | Refusal(text=text):
            return text
        case Reasoning(text=text):
            return "\n".join(f"> {line}" for line in text.splitlines())
        case ToolCall():
            return _fenced(f"{part.name} {part.arguments_json}")
        case ToolResult():
            return _fenced("\n".join(piece.text for piece in part.content if isinstance(piece, Text)))
        case _:
            return f"({type(part).__name__.lower()})"


def _fenced(text: str) -> str:
    """Return text in a fence longer than any it holds."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
