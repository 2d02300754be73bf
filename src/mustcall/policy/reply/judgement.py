"""What a reply is judged by, and what the judge says of it. Values only; judging is `judge`'s."""

from collections.abc import Callable

import msgspec

from mustcall.core.adaptation import Adaptation
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.core.verdict import Verdict
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.history.names import NameMap
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.plan import Rung, RungKind
from mustcall.policy.request.structured_answer import AnswerWay

__all__ = ["Case", "Judgement"]


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a reply is judged by.

    `request` is the caller's; `offered` are its tools under the `names` the upstream knows; `sent_limit` is the cap on
    tokens that was sent.
    """

    request: Request
    demand: Demand
    profile: Profile
    controls: Controls
    protocol: Protocol
    rung: Rung
    names: NameMap
    offered: tuple[Tool, ...]
    token: str
    #: How the ids of calls begin at the upstream.
    call_start: str = "call_"
    prompt_bound: int = 0
    sent_limit: int | None = None
    answer_way: AnswerWay = AnswerWay.ASKED
    #: Tells whether the user asked to be shown how a call is written (rule 63).
    shows: Callable[[], bool] | None = None
    #: The tool that takes a structured answer, where one was added for it.
    answer_tool: Tool | None = None

    @property
    def reads_text(self) -> bool:
        """Whether text is the primary channel for calls."""
        return self.protocol is Protocol.PROMPT or self.rung.kind is RungKind.TEXT


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and what goes with it.

    `reply` is what may be delivered if the verdict is accepted. `salvage` is the reply with its text calls promoted,
    where they are complete, on offer and valid. `problem` is one neutral line for a reminder; `keeps` tells whether
    the text may stay in context; `cut_call` whether a call was cut off; `unreadable` whether its arguments are no JSON.
    `dialect` is the format of calls that were read from text.
    """

    verdict: Verdict
    reply: Reply
    salvage: Reply | None = None
    problem: str = ""
    keeps: bool = False
    cut_call: bool = False
    unreadable: bool = False
    blocks: bool = False
    dialect: str = ""
    notes: tuple[Adaptation, ...] = ()
