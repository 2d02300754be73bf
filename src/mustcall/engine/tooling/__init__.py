"""Tools of the library: made from functions, from schemas, or from a server; run within limits."""

from mustcall.engine.tooling.definition import (
    Approve,
    FunctionTool,
    SourcedTool,
    ToolContext,
    ToolReturn,
    ToolSettings,
    ToolSource,
)
from mustcall.engine.tooling.functions import tool

__all__ = [
    "Approve",
    "FunctionTool",
    "SourcedTool",
    "ToolContext",
    "ToolReturn",
    "ToolSettings",
    "ToolSource",
    "tool",
]
