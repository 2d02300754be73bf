"""Which clients send a failed request again by themselves: our own tries would be multiplied by theirs (rule 144).

A client that says that this is a retry has had our tries with its first request. One that is known to try again does
so whatever we do. `x-stainless-retry-count: 0` says nothing: an SDK that is told not to retry sends it, too.
"""

from collections.abc import Mapping

__all__ = ["AGENTS", "retries_itself"]

#: How the user agents begin of clients that were seen to try again by themselves. Libraries are not listed: whether
#: they do is their user's setting.
AGENTS = ("codex", "claude-cli/", "qwencode/", "opencode/", "pi (", "ai/", "ai-sdk/")
_COUNT = "x-stainless-retry-count"


def retries_itself(headers: Mapping[str, str]) -> bool:
    """Tell whether a client is known to try again by itself; `headers` has lower-case names."""
    count = headers.get(_COUNT, "")
    if count.isdecimal() and int(count) > 0:
        return True
    return headers.get("user-agent", "").lower().startswith(AGENTS)
