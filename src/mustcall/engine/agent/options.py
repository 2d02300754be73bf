"""What every request of an agent asks the model for, besides messages and tools."""

from collections.abc import Mapping
from typing import Any

import msgspec

from mustcall.core.request import ReasoningConfig

__all__ = ["Options"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the model that every wire supports. None means the upstream's default.

    `extra` contains further fields of the upstream's wire, sent unchanged.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    reasoning: ReasoningConfig | None = None
    parallel_tool_calls: bool | None = None
    extra: Mapping[str, Any] = {}
