"""A coordinated answer, written down: for programs as JSON, for people as lines."""

from typing import Any

import msgspec

from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import JsonObject
from mustcall.core.reply import Usage
from mustcall.engine.coordinating.results import CoordinateResult, RoleRun

__all__ = ["coordination_as_json", "coordination_lines"]


def coordination_as_json(result: CoordinateResult) -> JsonObject:
    """Return the whole of it. What is said of tools is there only if some were asked for."""
    metadata = result.worker_tools is not None
    told: JsonObject = {
        "answer": result.answer,
        "confidence": None if result.synthesis is None else result.synthesis.confidence,
        "open_points": [] if result.synthesis is None else list(result.synthesis.open_points),
        "session": result.session,
        "rounds": result.rounds,
        "attempts": result.attempts,
        "usage": _usage(result.usage),
        "cost_usd": result.cost_usd,
        "estimated": result.estimated,
        "roles": [_role(role, metadata=metadata) for role in result.roles],
    }
    if metadata:
        told["worker_tools"] = msgspec.to_builtins(result.worker_tools)
    if result.error is not None:
        told["error"] = _error(result.error)
    return told


def coordination_lines(result: CoordinateResult) -> list[str]:
    """Return what people want to know besides the answer."""
    lines: list[str] = []
    if result.synthesis is not None:
        lines.append(f"confidence: {result.synthesis.confidence}")
        lines += [f"open: {point}" for point in dict.fromkeys(result.synthesis.open_points)]
    tools = result.worker_tools
    if tools is not None and tools.rejected:
        lines.append(f"not allowed as a tool: {', '.join(tools.rejected)}")
    usage = result.usage
    rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
    lines.append(
        f"{rounds}, {result.attempts} model calls, {usage.input_tokens} tokens in and {usage.output_tokens} out, "
        f"{_cost(result)}, session {result.session}"
    )
    return lines


def _role(role: RoleRun, *, metadata: bool) -> JsonObject:
    told: JsonObject = {
        "role": str(role.role),
        "name": role.name,
        "round": role.round,
        "model": role.model,
        "upstream": role.upstream,
        "output": msgspec.to_builtins(role.output),
        "attempts": role.attempts,
        "usage": _usage(role.usage),
        "cost_usd": role.cost_usd,
        "estimated": role.estimated,
        "seconds": round(role.seconds, 3),
    }
    if metadata:
        told["inner_tool_calls"] = msgspec.to_builtins(role.inner_tool_calls)
    if role.error is not None:
        told["error"] = _error(role.error)
    return told


def _cost(result: CoordinateResult) -> str:
    if not result.estimated:
        return f"${result.cost_usd:.4f}"
    return f"${result.cost_usd:.4f} or more" if result.cost_usd else "cost not known"


def _usage(usage: Usage) -> JsonObject:
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


def _error(error: ErrorInfo) -> dict[str, Any]:
    return {"code": error.code, "message": error.message}
