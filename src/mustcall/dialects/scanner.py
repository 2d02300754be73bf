"""The scanner: finds tool calls in text while it streams, in many dialects at once.

    feed(text) -> events      close() -> events

This file decides what a caller can choose; how the text is read is told in `scan.py`, what the events mean in
`events.py`. A scanner reads one reply and never raises on any text.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, TypeGuard

from mustcall.core.memo import Remembered
from mustcall.core.tools import Tool
from mustcall.dialects.catalogue import select, version
from mustcall.dialects.dialect import Dialect
from mustcall.dialects.names import Offered
from mustcall.dialects.reading.span import Indices
from mustcall.dialects.reasoning import OPENED
from mustcall.dialects.scanning.anchored import mentions_called
from mustcall.dialects.scanning.grammar import Grammar, compile_grammar
from mustcall.dialects.scanning.machine import Scan
from mustcall.dialects.scanning.state import Alone, Sections

__all__ = ["Scanner", "is_plain"]


def _look_up(
    dialects: Literal["auto"] | Iterable[str | Dialect], tools: Iterable[Tool] | None, *, loose: bool
) -> tuple[Offered, Grammar]:
    offered = Offered(tools)
    return offered, compile_grammar(select(dialects, loose=loose), offered.names)


def _look_up_named(
    tools: tuple[Tool, ...], dialects: Literal["auto"] | tuple[str, ...], loose: bool, _version: int
) -> tuple[Offered, Grammar]:
    return _look_up(dialects, tools, loose=loose)


#: The tables for the tools of an agent, who offers the same ones with every request.
_tables = Remembered(_look_up_named)


@lru_cache(maxsize=4)
def _without_tools(loose: bool, version: int) -> tuple[Offered, Grammar]:
    """Return the tables of all who offer nothing."""
    return _look_up_named((), "auto", loose, version)


def _are_names(dialects: Iterable[str | Dialect]) -> TypeGuard[Literal["auto"] | tuple[str, ...]]:
    return dialects == "auto" or (isinstance(dialects, tuple) and all(isinstance(each, str) for each in dialects))


_SECTIONS = {
    "marked": Sections.READ,
    "opened": Sections.READ,
    "noted": Sections.SHOWN,
    "inside": Sections.UNREAD,
    "separated": Sections.UNREAD,
}


class Scanner(Scan):
    """One scan of one reply.

    `dialects` is `"auto"` (every unambiguous one) or the ones to look for, by name or as values of your own; `"auto"`
    may be one of them.
    `tools` are the ones on offer; None means that every name counts. `loose` adds to `auto` the formats that need the
    prompt protocol to be trusted (rule 64). `reasoning` says who separates it: `"marked"` - the markers in the
    text do; `"opened"` - so they do, and the prompt opened a section; `"noted"` - the same, but sections stay text, and
    only the calls in them are no calls; `"inside"` - all of the text is a section's; `"separated"` - the upstream
    already did.
    `alone` says what a JSON call object without markup of its own is, and a call in a code fence (rule 63): `"reply"` -
    a call where it is the reply; `"anywhere"` - a call as soon as it is complete, for a caller who demanded one;
    `"never"` - text. Where it is the reply, `shown` is asked, once, whether the user wanted to see it.
    """

    def __init__(
        self,
        *,
        dialects: Literal["auto"] | Iterable[str | Dialect] = "auto",
        tools: Iterable[Tool] | None = None,
        loose: bool = False,
        reasoning: Literal["marked", "opened", "noted", "inside", "separated"] = "marked",
        alone: Literal["reply", "anywhere", "never"] = "reply",
        shown: Callable[[], bool] | None = None,
    ) -> None:
        if isinstance(tools, tuple) and not tools and dialects == "auto":
            offered, grammar = _without_tools(loose, version())
        elif isinstance(tools, tuple) and _are_names(dialects):
            offered, grammar = _tables.of(tools, dialects, loose, version())
        else:
            offered, grammar = _look_up(dialects, tools, loose=loose)
        super().__init__(
            grammar,
            offered,
            Indices(),
            sections=_SECTIONS[reasoning],
            in_reasoning=reasoning == "inside",
            alone=Alone(alone),
        )
        self._shown = shown
        if reasoning == "opened":
            self._enter(OPENED)


def is_plain(text: str, *, tools: tuple[Tool, ...], loose: bool = False) -> bool:
    """Tell quickly whether a whole reply is certain to be text and nothing else for a scanner with these `tools`.

    True for most answers there are, at the cost of two searches; False tells nothing: then scan it.
    """
    offered, grammar = _tables.of(tools, "auto", loose, version()) if tools else _without_tools(loose, version())
    return (
        bool(text)
        and grammar.first.at(text, 0, closed=True) is None
        and grammar.marks.is_plain(f"\n{text}")
        and not mentions_called(text, offered)
    )
