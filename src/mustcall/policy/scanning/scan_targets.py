"""What is looked for in a reply's text, and what was found there: the values between turn, scanner and judge."""

from collections.abc import Callable
from typing import Literal

import msgspec

from mustcall.core.parts import Part, ToolCall
from mustcall.core.tools import Tool
from mustcall.dialects import CallEnd, Malformed, Scanner, is_plain

__all__ = ["NOTHING", "ScanFindings", "ScanTargets"]

_AUTO = ("auto",)


class ScanTargets(msgspec.Struct, frozen=True, kw_only=True):
    """What to look for: the tools on offer, the dialects, who separates reasoning, and what a JSON object alone is."""

    tools: tuple[Tool, ...]
    dialects: tuple[str, ...] = ("auto",)
    loose: bool = False
    separated: bool = False
    alone: Literal["reply", "anywhere", "never"] = "reply"
    shown: Callable[[], bool] | None = None
    #: Tells whether a call is one that settles the reply: what follows it is not looked at (rule 137).
    demanded: Callable[[str, str], bool] | None = None
    #: How the ids of calls begin at the upstream.
    call_start: str = "call_"

    def scanner(self) -> Scanner:
        """Return a scanner for one text. Where the upstream separates reasoning, a section in it is text (rule 65)."""
        return self._scanner("noted" if self.separated else "marked", self.alone, self.shown)

    def watch(self) -> Scanner:
        """Return a scanner that watches reasoning: it takes nothing out of it."""
        return self._scanner("inside", "never", None)

    def reader(self) -> Scanner:
        """Return a scanner that reads the calls out of a reasoning's text."""
        return self._scanner("separated", "never", None)

    def _scanner(
        self,
        reasoning: Literal["marked", "noted", "separated", "inside"],
        alone: Literal["reply", "anywhere", "never"],
        shown: Callable[[], bool] | None,
    ) -> Scanner:
        return Scanner(
            dialects="auto" if self.dialects == _AUTO else self.dialects,
            tools=self.tools,
            loose=self.loose,
            reasoning=reasoning,
            alone=alone,
            shown=shown,
        )

    def is_plain(self, text: str) -> bool:
        """Tell quickly whether there is certainly nothing to find in a whole text."""
        return self.dialects == _AUTO and is_plain(text, tools=self.tools, loose=self.loose)


class ScanFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What the texts of a reply held.

    `cleaned` are the reply's parts without call markup and leaked reasoning, `promoted` the same with the calls in
    their places; both are None where there was nothing to take out. `settled` says that the calls are demanded ones,
    and that nothing behind them was looked at; `passed` is what was found before them.

    `reasoned` are calls in the reasoning of a reply that has nothing else (rule 148), `dialect` is their format, and
    `bare` are the reply's parts without their markup.
    """

    calls: tuple[CallEnd, ...] = ()
    malformed: tuple[Malformed, ...] = ()
    thought: bool = False
    ended_open: bool = False
    cleaned: tuple[Part, ...] | None = None
    promoted: tuple[Part, ...] | None = None
    settled: bool = False
    passed: tuple[CallEnd | Malformed, ...] = ()
    reasoned: tuple[ToolCall, ...] = ()
    dialect: str = ""
    bare: tuple[Part, ...] | None = None


NOTHING = ScanFindings()
