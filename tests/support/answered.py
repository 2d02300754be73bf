"""Answers of the embedded model, kept: a request it has answered before is answered from a file, with the same pieces.

Generating takes nearly all the time of the tests on the embedded model, and most of them ask the same again. An answer
is kept under its whole request, the weights, the context and the version of the engine: whatever of these changes is a
new question, and the model itself answers it. What the tests run on the model alone is not kept: `upstream/embedded`,
and the commands that are started as processes.

`MUSTCALL_TEST_MODEL=real` uses nothing that is kept. `MUSTCALL_TEST_MODEL=record` keeps what the model is asked anew;
to drop answers that nobody asks for, remove the file first.
"""

import json
import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import pytest

from mustcall.upstream.embedded import engine
from support import misses

__all__ = ["FILE", "Answered", "kept_answers"]

FILE = Path(__file__).parent / "embedded_answers.jsonl"
_MODE = "MUSTCALL_TEST_MODEL"
#: What llama.cpp writes into every piece and nobody asserts: made up again when an answer is told from the file.
_STAMPS = ("id", "created", "model", "system_fingerprint", "object")


class Model(Protocol):
    """A model that answers piece by piece."""

    def handle_chat_completions(self, body: bytes, callback: Callable[[bytes], bool]) -> None: ...


class Answered:
    """A model that knows the answers of `known` by heart; others are `missed` and asked of the one of `load`."""

    def __init__(
        self,
        identity: str,
        load: Callable[[], Model],
        known: dict[str, list[Any]],
        keep: Path | None,
        *,
        missed: Callable[[], None] = lambda: None,
        hidden: str = "",
    ) -> None:
        self._hidden = hidden
        self._identity = identity
        self._missed = missed
        self._load = load
        self._known = known
        self._keep = keep
        self._model: Model | None = None

    def handle_chat_completions(self, body: bytes, callback: Callable[[bytes], bool]) -> None:
        """Answer from what is known, else from the model."""
        named = re.sub(self._hidden.encode(), b"", body)
        key = sha256(self._identity.encode() + b"\0" + named).hexdigest()
        if key in self._known:
            for piece in self._known[key]:
                if callback(_told(piece)):
                    return
            return
        pieces: list[Any] = []
        cut = False

        def take(data: bytes) -> bool:
            nonlocal cut
            pieces.append(_short(json.loads(data)))
            cut = callback(data)
            return cut

        if self._model is None:
            self._model = self._load()
        self._missed()
        self._model.handle_chat_completions(body, take)
        if self._keep is not None and not cut:
            self._known[key] = pieces
            with self._keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "pieces": pieces}, ensure_ascii=False) + "\n")


def _short(piece: dict[str, Any]) -> Any:
    """Return a piece without what is the same in every one; a piece of text as that text."""
    rest = {name: value for name, value in piece.items() if name not in (*_STAMPS, "timings")}
    text = rest.get("choices") and rest["choices"][0].get("delta", {}).get("content")
    return text if isinstance(text, str) and rest == _written(text) else rest


def _told(kept: Any) -> bytes:
    """Return the piece that was kept."""
    piece = _written(kept) if isinstance(kept, str) else kept
    return json.dumps({**piece, **dict.fromkeys(_STAMPS, "kept"), "created": 0}).encode()


def _written(text: str) -> dict[str, Any]:
    return {"choices": [{"finish_reason": None, "index": 0, "delta": {"content": text}}]}


@cache
def _known(file: Path) -> dict[str, list[Any]]:
    if not file.exists():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    return {kept["key"]: kept["pieces"] for kept in map(json.loads, lines)}


@contextmanager
def kept_answers(file: Path = FILE, hidden: str = "") -> Generator[None]:
    """Let models that are loaded in this process answer from the file what they have answered before.

    `hidden` is an expression for what differs from run to run, such as a folder: it makes no other request.
    """
    mode = os.environ.get(_MODE, "")
    if mode == "real":
        yield
        return
    load: Callable[[Path, int], Any] = engine._load

    def answered(path: Path, context: int) -> Answered:
        identity = f"{path.name} {path.stat().st_size} {context} {version('xllamacpp')}"
        keep = file if mode == "record" else None
        missed = partial(misses.count, file.name)
        return Answered(identity, lambda: load(path, context), _known(file), keep, missed=missed, hidden=hidden)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_load", answered)
        yield
