"""The embedded model for tests: its weights, fetched once, tools to offer it, and one that never ends its answer."""

import json
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest

from mustcall.upstream.embedded import engine
from mustcall.upstream.embedded.catalogue import FALLBACK, find_weights
from mustcall.upstream.embedded.fetching import pull
from mustcall.upstream.embedded.store import WeightStore

__all__ = ["BASE_URL", "FLAG", "NAME", "TOOLS", "Endless", "offered", "readied", "schema_of", "small_cache"]

#: Tests run the smallest model; the default one is five times as large to fetch.
NAME = FALLBACK
BASE_URL = f"embedded:{NAME}"
FLAG = f"local:chat={BASE_URL}"


@cache
def readied() -> str:
    """Return the upstream flag of the model once its weights are here; test workers wait for the one that fetches."""
    pull(find_weights(NAME), WeightStore())
    return FLAG


def small_cache(folder: Path) -> Path:
    """Return a cache (for `MUSTCALL_CACHE`) that holds this model and no other, whatever this machine's own holds."""
    readied()
    (folder / "models").mkdir(parents=True)
    kept = WeightStore().path(find_weights(NAME))
    (folder / "models" / kept.name).symlink_to(kept)
    return folder


def _schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_TEXT = {"type": "string"}
_WHOLE = {"type": "integer"}

#: Name, description, schema.
TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "get_weather": (
        "Get the weather of a city.",
        _schema(["city"], city=_TEXT, unit={"type": "string", "enum": ["celsius", "fahrenheit"]}),
    ),
    "calculator": ("Compute an arithmetic expression.", _schema(["expression"], expression=_TEXT)),
    "list_directory": ("List the files of a directory.", _schema(["path"], path=_TEXT)),
    "set_timer": ("Set a timer.", _schema(["minutes"], minutes=_WHOLE)),
    "send_email": ("Send an email.", _schema(["to", "subject"], to=_TEXT, subject=_TEXT, body=_TEXT)),
    "tag": ("Put tags on a note.", _schema(["tags"], tags={"type": "array", "items": _TEXT, "minItems": 1})),
}


def schema_of(name: str) -> dict[str, Any]:
    """Return a tool's schema, a copy of its own."""
    return json.loads(json.dumps(TOOLS[name][1]))


def offered(wire: str, *names: str) -> list[dict[str, Any]]:
    """Return tools as a wire offers them."""
    described = [(name, *TOOLS[name]) for name in names]
    match wire:
        case "chat":
            return [
                {"type": "function", "function": {"name": name, "description": said, "parameters": schema}}
                for name, said, schema in described
            ]
        case "responses":
            return [
                {"type": "function", "name": name, "description": said, "parameters": schema}
                for name, said, schema in described
            ]
        case _:
            return [{"name": name, "description": said, "input_schema": schema} for name, said, schema in described]


_PIECE = json.dumps({"choices": [{"index": 0, "delta": {"content": "on and "}}]}).encode()


class Endless:
    """A model that never ends by itself; it remembers which bodies it began."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self._never = threading.Event()

    @classmethod
    def installed(cls, patch: pytest.MonkeyPatch) -> Self:
        """Return one that is loaded for every model file of this test."""
        made = cls()

        def load(_path: Path, _context: int) -> Self:
            return made

        patch.setattr(engine, "_load", load)
        return made

    def handle_chat_completions(self, body: bytes, callback: Callable[[bytes], bool]) -> None:
        """Write until the callback says that nobody listens."""
        self.begun.append(body)
        while not callback(_PIECE):
            self._never.wait(0.001)  # the pace of a fast model, so that pieces do not pile up
