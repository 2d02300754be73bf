"""Calls in a provider's own form: those it asks the client to carry out, and those it ran by itself.

A shell command, a patch or a click is a call in all but its shape: it must be on offer and allowed, it counts among
parallel calls, and it meets a demand. Its arguments have no schema, so that they cannot be checked. What the provider
ran by itself is no call (rule 35), but where its tool is on offer a demand for any tool is met by it, as the provider
has it.
"""

from mustcall.core.parts import Part, ProviderItem
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool
from mustcall.policy.request.demand import Demand, has_tools_elsewhere

__all__ = ["is_client_call", "is_offered_item", "met_by_provider"]


def is_client_call(part: Part) -> bool:
    """Tell whether a part that begins is such a call for the client; whether its result follows is not known yet."""
    return isinstance(part, ProviderItem) and bool(part.client_tools)


def is_offered_item(item: ProviderItem, request: Request) -> bool:
    """Tell whether a tool of the item's type is on offer, or may be where the request does not show it."""
    kinds = item.client_tools
    shown = any(isinstance(tool, ProviderTool) and tool.type.startswith(kinds) for tool in request.tools)
    return shown or has_tools_elsewhere(request)


def met_by_provider(demand: Demand, request: Request, reply: Reply) -> bool:
    """Tell whether the provider ran a tool of its own that is on offer and that a demand for any tool can mean."""
    if demand.choice is None or demand.choice.mode is not ChoiceMode.REQUIRED:
        return False
    ran = tuple([kind for part in reply.parts if isinstance(part, ProviderItem) and (kind := _ran(part))])
    if not ran:
        return False
    names = demand.names
    offered = [tool.type for tool in request.tools if isinstance(tool, ProviderTool)]
    return any(kind.startswith(ran) for kind in offered if names is None or kind in names)


def _ran(item: ProviderItem) -> str:
    """Return the type of the tool that the provider ran, empty if the item is none of that."""
    if item.client_tools:
        return ""
    if item.type == "server_tool_use":
        name = item.value.get("name")
        return name if isinstance(name, str) else ""
    return item.type.removesuffix("_call") if item.type.endswith("_call") else ""
