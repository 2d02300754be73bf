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
    """No attempt of the model met the contract. `details` contains the record of the attempts."""

    code = "model_error"
    status = 502

    def info(self) -> ErrorInfo:
        """Return the error, marked as not retryable."""
        return msgspec.structs.replace(super().info(), by_model=True)


class TextToolCallError(ModelError):
    """Every attempt wrote its tool calls as text (rule 48)."""

    code = "text_tool_call"


class PhantomCall(ModelError):
    """The finish reason announced tool calls, but the reply had none."""

    code = "phantom_call"


class ForceUnmet(ModelError):
    """No rung of the ladder produced a call of the demanded tool (rule 27)."""

    code = "force_unmet"


class UnknownToolCalled(ModelError):
    """The model called a tool that is not offered."""

    code = "unknown_tool"


class BadArguments(ModelError):
    """The arguments of the model's call do not match the tool's schema."""

    code = "bad_arguments"


class StructuredOutputError(ModelError):
    """The answer does not match the requested schema."""

    code = "bad_answer"


class TruncatedReply(ModelError):
    """The reply ended before it was complete."""

    code = "truncated"


class EmptyReply(ModelError):
    """The model's reply was empty in every attempt."""

    code = "empty"


class ThinkingOnly(ModelError):
    """Every reply had reasoning only, without text and calls."""

    code = "thinking_only"


class LoopBlocked(ModelError):
    """The model repeats the same call, and the tool's settings block that."""

    code = "looping"


class StarvedPrompt(ModelError):
    """The server cut the prompt without an error, so its answer is unreliable."""

    code = "starved"
