"""Errors of the model: every attempt failed the contract."""

import msgspec

from mustcall.core.errors.root import ErrorInfo, MustcallError

__all__ = [
    "BadArguments",
    "EmptyReply",
    "ForceUnmet",
    "LoopBlocked",
    "ModelError",
    "PhantomCall",
    "StarvedPrompt",
    "StructuredOutputError",
    "TextToolCallError",
    "ThinkingOnly",
    "TruncatedReply",
    "UnknownToolCalled",
]


class ModelError(MustcallError):
    """The model did not keep the contract in any attempt. `details` holds the record of them."""

    code = "model_error"
    status = 502

    def info(self) -> ErrorInfo:
        """Return the error as one that asking again does not mend."""
        return msgspec.structs.replace(super().info(), by_model=True)


class TextToolCallError(ModelError):
    """Tool calls came as text, attempt after attempt (rule 48)."""

    code = "text_tool_call"


class PhantomCall(ModelError):
    """The reply ended "with tool calls" and held none."""

    code = "phantom_call"


class ForceUnmet(ModelError):
    """The tool the request demands was not called, on any rung of the ladder (rule 27)."""

    code = "force_unmet"


class UnknownToolCalled(ModelError):
    """The model called a tool that is not on offer."""

    code = "unknown_tool"


class BadArguments(ModelError):
    """The model's arguments do not fit the tool's schema."""

    code = "bad_arguments"


class StructuredOutputError(ModelError):
    """The model's answer does not fit the schema the caller asked for."""

    code = "bad_answer"


class TruncatedReply(ModelError):
    """The reply was cut off before it was complete."""

    code = "truncated"


class EmptyReply(ModelError):
    """The model said nothing."""

    code = "empty"


class ThinkingOnly(ModelError):
    """The model thought, and said nothing."""

    code = "thinking_only"


class LoopBlocked(ModelError):
    """The model makes the same call again and again, and its tool's setting blocks that."""

    code = "looping"


class StarvedPrompt(ModelError):
    """The server cut the prompt silently, so its answer cannot be trusted."""

    code = "starved"
