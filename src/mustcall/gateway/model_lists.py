"""The list of models on offer, in the shape that each wire's clients read."""

from collections.abc import Mapping
from typing import Any

from mustcall.core.origin import JsonObject, Wire

__all__ = ["list_models"]


def list_models(names: Mapping[str, str], wire: Wire) -> JsonObject:
    """Return the list; `names` are the models, each with the upstream that serves it."""
    return _anthropic_list(names) if wire is Wire.MESSAGES else _openai_list(names)


def _openai_list(names: Mapping[str, str]) -> JsonObject:
    data = [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in names.items()]
    return {"object": "list", "data": data}


def _anthropic_list(names: Mapping[str, str]) -> JsonObject:
    data: list[dict[str, Any]] = [
        {"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"} for name in names
    ]
    ids = list(names)
    return {
        "data": data,
        "has_more": False,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }
