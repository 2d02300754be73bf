"""Tools whose names no text form of calls can hold: with a blank in them, or letters beyond ASCII.

No provider takes such names, so they go out under others; but a model may write the name itself, which stands in
prompts and histories. Dialects read names up to the first character that is in none, so such a call is never read: here
it is at least seen. With such tools on offer nothing streams before the verdict, and markup before the name is a call.
"""

import re

from mustcall.core.memo import Remembered
from mustcall.core.tools import ProviderTool, Tool
from mustcall.dialects import is_plain
from mustcall.dialects.names import Offered
from mustcall.dialects.scanning.anchored import mentions_called

__all__ = ["names_odd_tool", "odd_tools"]

_USUAL = re.compile(r"[A-Za-z0-9_.\-:/]*")
_Tools = tuple[Tool | ProviderTool, ...]


def odd_tools(tools: _Tools) -> tuple[Tool, ...]:
    """Return the tools with such names."""
    return _odd.of(tools) if tools else ()


def _odd_among(tools: _Tools) -> tuple[Tool, ...]:
    return tuple(tool for tool in tools if isinstance(tool, Tool) and _USUAL.fullmatch(tool.name) is None)


_odd = Remembered(_odd_among)


def names_odd_tool(text: str, tools: _Tools) -> bool:
    """Tell whether a text has such a name behind markup or before a bracket, where a call of it would have it."""
    odd = odd_tools(tools)
    if not odd or is_plain(text, tools=odd, loose=True):
        return False
    opened = any(f"{tool.name}{bracket}" in text for tool in odd for bracket in "({[")
    return opened or mentions_called(text, Offered(odd))
