"""Replies and the cases they are judged in."""

from typing import Any

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.parts import ToolCall
from mustcall.core.reply import Reply
from mustcall.core.tools import Tool
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.history.names import NameMap
from mustcall.policy.reply.judge import Case, Judgement, judge
from mustcall.policy.request.plan import Rung, RungKind
from mustcall.policy.scanning.reply_scanner import ReplyScanner, ScanTargets
from support.values import asked, demand

GOOD = ToolCall(id="c1", name="get_weather", arguments_json='{"city":"Paris"}')
OTHER = ToolCall(id="c2", name="search", arguments_json='{"q":"x"}')
TEXT_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
BAD_TEXT_CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": 5, "x"}}</tool_call>'
CUT_TEXT_CALL = '<tool_call>{"name": "get_weather", "argu'
GONE_TEXT_CALL = '<tool_call>{"name": "gone", "arguments": {}}</tool_call>'


def case_of(**fields: Any) -> Case:
    """A case with two tools on offer, of an unknown model, nothing forced."""
    values: dict[str, Any] = {
        "request": asked(),
        "demand": demand(),
        "profile": Profile(),
        "controls": Controls(),
        "protocol": Protocol.HYBRID,
        "rung": Rung(RungKind.PLAIN),
        "token": "t",
    }
    values |= fields
    names = NameMap.of(values["request"], values["profile"])
    tools = names.outgoing(values["request"]).tools
    offered = tuple(tool for tool in tools if isinstance(tool, Tool))
    return Case(names=names, offered=offered, **values)


def verdict_on(reply: Reply, case: Case | None = None) -> Judgement:
    """Judge a reply as the engine does: looked through, then judged."""
    case = case or case_of()
    lookout = None if case.rung.constrains else ScanTargets(tools=case.offered, loose=case.reads_text)
    return judge(case, reply, ReplyScanner(lookout, case.token).read(reply))


def kinds(judged: Judgement) -> list[AdaptationKind]:
    """What was changed or reported."""
    return [note.kind for note in judged.notes]
