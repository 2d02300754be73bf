"""What each known client needs of an endpoint: its wire, and the guarantees it cannot do without. A table."""

import msgspec

from mustcall.core.origin import Wire
from mustcall.probe.values import Client

__all__ = ["NEEDS", "Needs"]

#: What every agent needs: it offers tools, reads calls and sends their results back.
_AGENT = frozenset(
    {
        "auto", "none", "ids", "arguments", "finish", "leaks", "usage", "cut", "context", "result.round_trip",
        "result.parallel", "result.error", "parallel.on", "unicode", "cancel", "error.shape", "retry_after",
    }
)  # fmt: skip


class Needs(msgspec.Struct, frozen=True):
    """The wire a client speaks and the guarantees it needs."""

    wire: Wire
    guarantees: frozenset[str]


NEEDS = {
    # Claude Code sends 20 and more tools with nested schemas, thinking, images in results, and counts tokens.
    Client.CLAUDE_CODE: Needs(
        Wire.MESSAGES,
        _AGENT
        | {
            "count_tokens", "schema.nested", "schema.union", "schema.empty", "tools.32", "result.image", "result.8k",
            "reasoning.shown", "reasoning.returned", "named", "concurrency.8",
        },
    ),
    # Codex sends strict and custom tools, keeps its own history and hands encrypted reasoning back.
    Client.CODEX: Needs(
        Wire.RESPONSES,
        _AGENT
        | {
            "strict", "schema.nested", "reasoning.shown", "reasoning.returned", "reasoning.dropped", "result.8k",
            "format",
        },
    ),
    # opencode speaks chat through an OpenAI-compatible provider; titles and summaries run beside the main turn.
    Client.OPENCODE: Needs(
        Wire.CHAT,
        _AGENT
        | {"schema.nested", "schema.union", "schema.empty", "tools.32", "result.8k", "concurrency.8", "required"},
    ),
    # Programs on the OpenAI SDK use whatever is documented.
    Client.OPENAI_SDK: Needs(
        Wire.CHAT,
        _AGENT
        | {
            "required", "named", "parallel.off", "strict", "format", "format+tools", "schema.nested", "schema.ref",
            "schema.enum", "stop", "name.long", "name.odd", "error.not_offered", "concurrency.8", "tools.32",
        },
    ),
}  # fmt: skip
