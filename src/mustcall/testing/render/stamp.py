"""What the renderers share: made-up but repeatable ids, the cutting of text into deltas, and SSE framing."""

import base64
import hashlib
import re
from typing import Any

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.testing.script import Call, Think

__all__ = ["Stamp", "arguments_text", "cut_arguments", "cut_text", "frame", "to_json"]

_WORDS = re.compile(r"\s*\S+(?:\s+\Z)?|\s+\Z")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_ISSUER = 24
_ARGUMENT_PIECE = 7
_EPOCH = 1_790_000_000


class Stamp(msgspec.Struct, frozen=True):
    """Identity of one reply: the number of its request and the name of the upstream that signs it."""

    number: int
    issuer: str = "scripted"

    @property
    def created(self) -> int:
        """A time in Unix seconds that is the same in every run."""
        return _EPOCH + self.number

    def make_id(self, prefix: str, index: int | None = None) -> str:
        """Return an id that is unique in this upstream and legal on every wire."""
        tail = "" if index is None else f"_{index}"
        return f"{prefix}{_ILLEGAL.sub('-', self.issuer)[:_LONGEST_ISSUER]}_{self.number:04d}{tail}"

    def sign(self, think: Think, index: int, purpose: str) -> str:
        """Return opaque state that looks like a provider's and differs for every thought, reply and issuer."""
        seed = f"{purpose}|{self.issuer}|{self.number}|{index}|{think.text}".encode()
        return base64.b64encode(hashlib.sha512(seed).digest()).decode()


def to_json(value: Any) -> bytes:
    """Return compact JSON."""
    return msgspec.json.encode(value)


def arguments_text(call: Call) -> str:
    """Return a call's arguments as the model wrote them."""
    return call.arguments if isinstance(call.arguments, str) else to_json(call.arguments).decode()


def cut_text(text: str) -> list[str]:
    """Cut text into deltas, about one per word."""
    return _WORDS.findall(text)


def cut_arguments(text: str) -> list[str]:
    """Cut arguments into deltas that respect no JSON boundary."""
    return [text[at : at + _ARGUMENT_PIECE] for at in range(0, len(text), _ARGUMENT_PIECE)]


def frame(data: JsonObject, event: str | None = None) -> bytes:
    """Return one server-sent event."""
    head = b"" if event is None else b"event: " + event.encode() + b"\n"
    return head + b"data: " + to_json(data) + b"\n\n"
