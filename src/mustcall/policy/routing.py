"""Which upstream serves a model, as a table read from top to bottom."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from mustcall.core.errors import UnknownModel
from mustcall.core.origin import Wire

__all__ = ["Destination", "Door", "Route", "choose"]


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model pattern (`gpt-*`, or one name) and the upstream it goes to, under another name if `send_as` is set."""

    model: str
    upstream: str
    send_as: str | None = None


class Door(msgspec.Struct, frozen=True):
    """An upstream as routing sees it."""

    name: str
    wire: Wire


class Destination(msgspec.Struct, frozen=True):
    """Where a request goes and the model name it goes under."""

    upstream: str
    model: str


def choose(model: str, caller: Wire, routes: Sequence[Route], doors: Sequence[Door]) -> Destination:
    """Return the destination of a model; raise `UnknownModel`.

    The first route that matches wins. Without any route every name is served: `upstream/model` by the upstream of
    that name, any other by the first upstream on the caller's own wire, else by the first.
    """
    for route in routes:
        if fnmatchcase(model, route.model):
            return Destination(route.upstream, route.send_as or model)
    if routes:
        known = ", ".join(route.model for route in routes)
        raise UnknownModel(f"no route serves the model {model!r}; routes exist for: {known}", param="model")
    name, slash, rest = model.partition("/")
    if slash and rest:
        for door in doors:
            if door.name == name:
                return Destination(door.name, rest)
    for door in doors:
        if door.wire is caller:
            return Destination(door.name, model)
    if doors:
        return Destination(doors[0].name, model)
    raise UnknownModel(f"no upstream is configured, so the model {model!r} cannot be served", param="model")
