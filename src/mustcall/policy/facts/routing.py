"""Which upstream serves a model, as a table read from top to bottom."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from mustcall.core.errors import UnknownModel
from mustcall.core.origin import Wire

__all__ = ["Destination", "Route", "WireEndpoint", "choose", "is_routed"]


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model pattern (`gpt-*`, or one name) and the upstream it goes to, under another name if `send_as` is set."""

    model: str
    upstream: str
    send_as: str | None = None


class WireEndpoint(msgspec.Struct, frozen=True):
    """An upstream as routing sees it. `model` is what it is asked for where the caller names another."""

    name: str
    wire: Wire
    model: str = ""


class Destination(msgspec.Struct, frozen=True):
    """Where a request goes and the model name it goes under.

    `stands_in`: no route and no upstream knows the name that was asked for; the upstream's own model answers instead.
    """

    upstream: str
    model: str
    stands_in: bool = False


def choose(
    model: str, caller: Wire, routes: Sequence[Route], doors: Sequence[WireEndpoint], *, verbatim: bool = False
) -> Destination:
    """Return the destination of a model; raise `UnknownModel`.

    The first route that matches wins. Without any route every name is served: `upstream/model` by the upstream of
    that name, an upstream's own model by that upstream, any other by an upstream that has no model of its own, else
    under the model of one that has; of several by the first on the caller's own wire, else by the first. With
    `verbatim` no model of an upstream stands in for the one that was asked for.
    """
    for route in routes:
        if fnmatchcase(model, route.model):
            own = next((door.model for door in doors if door.name == route.upstream and not verbatim), "")
            return Destination(route.upstream, route.send_as or own or model)
    if routes:
        known = ", ".join(route.model for route in routes)
        raise UnknownModel(f"no route serves the model {model!r}; routes exist for: {known}", param="model")
    name, slash, rest = model.partition("/")
    if slash and rest:
        for door in doors:
            if door.name == name:
                return Destination(door.name, rest)
    for door in doors:
        if door.model == model and model:
            return Destination(door.name, model)
    open_doors = [door for door in doors if not door.model] or doors
    for door in (*(door for door in open_doors if door.wire is caller), *open_doors):
        own = "" if verbatim else door.model
        return Destination(door.name, own or model, stands_in=bool(own and model))
    raise UnknownModel(f"no upstream is configured, so the model {model!r} cannot be served", param="model")


def is_routed(model: str, upstream: str, routes: Sequence[Route]) -> bool:
    """Tell whether the first route that matches a model sends it, under its own name, to this upstream."""
    for route in routes:
        if fnmatchcase(model, route.model):
            return route.upstream == upstream and route.send_as in (None, model)
    return False
