"""Calls in a provider's own form: those it asks the client to carry out, and those it ran by itself.

A shell command, a patch or a click is a call in all but its shape: it must be on offer and allowed, it counts among
parallel calls, and it meets a demand. Its arguments have no schema, so that they cannot be checked. What the provider
ran by itself is no call (rule 35), but where its tool is on offer a demand for any tool is met by it, as the provider
has it. A shell runs at the provider where its tool names a container as its environment.
"""

from collections.abc import Callable, Iterable

from mustcall.core.parts import Part, ProviderItem
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool
from mustcall.policy.request.demand import Demand, has_tools_elsewhere

__all__ = ["client_calls", "is_client_call", "is_offered_item", "met_by_provider", "passing_items"]


def is_client_call(part: Part) -> bool:
    """Tell whether a part has the form of such a call for the client; who carries it out is not known yet."""
    return isinstance(part, ProviderItem) and bool(part.client_tools)


def client_calls(reply: Reply, request: Request) -> tuple[ProviderItem, ...]:
    """Return the calls of a reply that the client carries out: those without a result whose tool is not hosted."""
    items = reply.client_items
    if not items:
        return ()
    hosted, own = _offered(request)
    return tuple([item for item in items if _is_of(item, own) or not _is_of(item, hosted)])


def is_offered_item(item: ProviderItem, request: Request) -> bool:
    """Tell whether a tool of the item's type is on offer, or may be where the request does not show it."""
    _, own = _offered(request)
    return _is_of(item, own) or has_tools_elsewhere(request)


def passing_items(request: Request, *, trusted: bool) -> Callable[[ProviderItem], bool]:
    """Return what tells whether an item may go out before the verdict: a hosted one, or one whose calls are trusted."""

    def passes(item: ProviderItem) -> bool:
        hosted, own = _offered(request)  # looked for when there is such an item: most replies have none
        if _is_of(item, own):
            return trusted
        return _is_of(item, hosted)

    return passes


def met_by_provider(demand: Demand, request: Request, reply: Reply) -> bool:
    """Tell whether the provider ran a tool of its own that is on offer and that a demand for any tool can mean."""
    if demand.choice is None or demand.choice.mode is not ChoiceMode.REQUIRED:
        return False
    asked = {id(item) for item in client_calls(reply, request)}
    items = [part for part in reply.parts if isinstance(part, ProviderItem) and id(part) not in asked]
    ran = tuple([kind for item in items if (kind := _ran(item))])
    if not ran:
        return False
    names = demand.names
    offered = [tool.type for tool in request.tools if isinstance(tool, ProviderTool)]
    return any(kind.startswith(ran) for kind in offered if names is None or kind in names)


def _offered(request: Request) -> tuple[list[str], list[str]]:
    """Return the types of the provider's tools on offer: those that run in its containers, and all others."""
    hosted: list[str] = []
    own: list[str] = []
    for tool in request.tools:
        if isinstance(tool, ProviderTool):
            environment = tool.value.get("environment")
            kind = environment.get("type") if isinstance(environment, dict) else None
            (hosted if isinstance(kind, str) and kind.startswith("container") else own).append(tool.type)
    return hosted, own


def _is_of(item: ProviderItem, kinds: Iterable[str]) -> bool:
    return any(kind.startswith(item.client_tools) for kind in kinds)


def _ran(item: ProviderItem) -> str:
    """Return how the type of the tool begins that the provider ran, or asks to run; empty if the item is none."""
    if item.type == "server_tool_use":
        name = item.value.get("name")
        return name if isinstance(name, str) else ""
    if item.type == "mcp_approval_request":
        return "mcp"
    return item.type.removesuffix("_call") if item.type.endswith("_call") else ""
