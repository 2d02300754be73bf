"""The scanner: finds tool calls in text while it streams, in many dialects at once.

    feed(text) -> events      close() -> events

This file decides what a caller can choose; how the text is read is told in `scan.py`, what the events mean in
`events.py`. A scanner reads one reply and never raises on any text.
"""

import itertools
from collections.abc import Iterable
from typing import Literal

from mustcall.core.tools import Tool
from mustcall.dialects.catalogue import select
from mustcall.dialects.dialect import Dialect
from mustcall.dialects.grammar import compile_grammar
from mustcall.dialects.names import Offered
from mustcall.dialects.reasoning import THINK
from mustcall.dialects.scan import Scan

__all__ = ["Scanner"]


class Scanner(Scan):
    """One scan of one reply.

    `dialects` is `"auto"` (every unambiguous one) or the ones to look for, by name or as values of your own; `"auto"`
    may be one of them.
    `tools` are the ones on offer; None means that every name counts. `loose` adds to `auto` the formats that need the
    prompt protocol to be trusted (rule 64). `reasoning` says who separates it: `"marked"` - the markers in the
    text do; `"opened"` - so they do, and the prompt opened a section; `"separated"` - the upstream already did.
    """

    def __init__(
        self,
        *,
        dialects: Literal["auto"] | Iterable[str | Dialect] = "auto",
        tools: Iterable[Tool] | None = None,
        loose: bool = False,
        reasoning: Literal["marked", "opened", "separated"] = "marked",
    ) -> None:
        offered = Offered(tools)
        grammar = compile_grammar(select(dialects, loose=loose), offered.names)
        super().__init__(grammar, offered, itertools.count(), sections=reasoning != "separated")
        if reasoning == "opened":
            self._enter(THINK)
