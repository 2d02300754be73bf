"""Small requests, demands and replies for tests of decisions: values, no wire."""

from typing import Any

from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, Text
from mustcall.core.reply import FinishReason, Reply, Usage, derive_finish
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.policy.request.demand import Demand, DemandSource

__all__ = ["ANY", "NOTHING", "SEARCH", "TOOLS", "WEATHER", "asked", "demand", "named", "replied", "user"]

WEATHER = Tool(
    name="get_weather",
    description="Tells the weather.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
SEARCH = Tool(name="search", parameters={"type": "object", "properties": {"q": {"type": "string"}}})
TOOLS = (WEATHER, SEARCH)
ANY = ToolChoice(mode=ChoiceMode.REQUIRED)
NOTHING = ToolChoice(mode=ChoiceMode.NONE)


def user(text: str) -> Message:
    """A user turn."""
    return Message(role=Role.USER, parts=(Text(text=text),))


def named(name: str = "get_weather") -> ToolChoice:
    """The demand for one tool."""
    return ToolChoice(mode=ChoiceMode.NAMED, name=name)


def asked(*messages: Message, **fields: Any) -> Request:
    """A request with two tools on offer."""
    values: dict[str, Any] = {"model": "m", "messages": messages or (user("Weather in Paris?"),), "tools": TOOLS}
    return Request(**(values | fields))


def demand(choice: ToolChoice | None = None, **fields: Any) -> Demand:
    """What a turn must come to."""
    source = DemandSource.DEFAULT if choice is None else DemandSource.CALLER
    return Demand(choice=choice, source=source, **fields)


def replied(*parts: Part, reported: str | None = "stop", usage: Usage | None = None) -> Reply:
    """A reply with these parts that ended with this word."""
    words = {"tool_calls": FinishReason.TOOL_CALLS, "tool_use": FinishReason.TOOL_CALLS, "completed": FinishReason.STOP}
    known = {str(reason): reason for reason in FinishReason} | words
    reason = FinishReason.STOP if reported is None else known.get(reported, FinishReason.UNKNOWN)
    return Reply(
        id="r",
        model="m",
        parts=parts,
        finish=derive_finish(reason, parts),
        reported_finish=reported,
        usage=usage,
    )
