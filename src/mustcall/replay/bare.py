"""What a reply is to a client without mustcall: the verdict of a bare reply, by the same judge and the same demand.

The client reads the wire's own calls and nothing else, so a call that came as text is a text call here, whatever the
profile would make of it. Pure.
"""

from typing import Literal

import msgspec

from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.tools import functions_of
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.history.names import UNCHANGED
from mustcall.policy.reply.cut_prompt import prompt_bound
from mustcall.policy.reply.judge import Case, Judgement, judge
from mustcall.policy.request.demand import Demand, settle_demand
from mustcall.policy.request.plan import Rung, RungKind
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanTargets
from mustcall.policy.words.grounding import latest_input
from mustcall.policy.words.shown_examples import asks_to_be_shown

__all__ = ["judge_bare"]


def judge_bare(
    request: Request, reply: Reply, *, written: int, operator: OperatorSettings, controls: Controls
) -> Judgement:
    """Judge a reply that came without mustcall; `written` is the number of bytes of the request."""
    lenient = msgspec.structs.replace(controls, strict_force=False)
    demand = settle_demand(request, lenient, operator.rules, notice=operator.wording.step_cap)
    tools = functions_of(request.tools)

    def shows() -> bool:
        return asks_to_be_shown(latest_input(request).texts)

    lookout = ScanTargets(tools=tools, separated=True, alone=_alone(demand), shown=shows)
    case = Case(
        request=request,
        demand=demand,
        profile=Profile(),
        controls=lenient,
        protocol=Protocol.NATIVE,
        rung=Rung(RungKind.NATIVE if demand.forced else RungKind.PLAIN),
        names=UNCHANGED,
        offered=tools,
        token=reply.id,
        prompt_bound=prompt_bound(request, written, reply.usage),
        sent_limit=request.max_tokens,
        shows=shows,
    )
    return judge(case, reply, ReplyScanner(lookout if tools else None, reply.id).read(reply))


def _alone(demand: Demand) -> Literal["reply", "anywhere"]:
    """Return what JSON without markup is, as in a turn."""
    return "anywhere" if demand.forced else "reply"
