"""A prompt that does not fit: the one error clients act on by themselves, so its meaning must cross wires.

Claude Code compacts its history when it reads "prompt is too long"; Codex does when it sees the code
`context_length_exceeded` in a stream (both observed, November 2026). Providers and servers say it in other words.
"""

__all__ = ["OVERFLOW_CODE", "OVERFLOW_WORDS", "is_overflow"]

OVERFLOW_CODE = "context_length_exceeded"

#: How providers and servers say it, in lower case: OpenAI and vLLM, Anthropic, llama.cpp, others.
OVERFLOW_WORDS = (
    OVERFLOW_CODE,
    "maximum context length",
    "prompt is too long",
    "exceeds the context window",
    "exceeds the available context size",
    "exceed_context_size_error",
    "input is too long for",
)


def is_overflow(*said: str | None) -> bool:
    """Tell whether an error's type, code or message says that the prompt does not fit."""
    text = " ".join(part for part in said if part).lower()
    return any(words in text for words in OVERFLOW_WORDS)
