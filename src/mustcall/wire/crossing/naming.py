"""Names and ids as an upstream accepts them, by deterministic maps.

The same input always gives the same output, so an unchanged history gives unchanged upstream bytes without any
stored state; the way back from a name to the caller's tool is found among the tools on offer (`wire.crossing.binding`).
"""

import hashlib
import re

__all__ = ["flat_name", "legal_id"]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
_DIGEST_LENGTH = 8


def flat_name(namespace: str | None, name: str) -> str:
    """Return a tool's name for a wire without namespaces: `ns__name`, made legal where it is not.

    Legal everywhere means 1 to 64 of letters, digits, `_` and `-`. A name that must be changed ends in a digest of
    the original. Two tools can still meet (`b` in the namespace `a`, and a plain `a__b`);
    `wire.crossing.offer` refuses those.
    """
    joined = f"{namespace}__{name}" if namespace else name
    if _NAME.fullmatch(joined):
        return joined
    return _digested(joined)


def legal_id(identifier: str) -> str:
    """Return a call id legal on every wire: 1 to 64 of letters, digits, `_` and `-`."""
    if _ID.fullmatch(identifier):
        return identifier
    return _digested(identifier)


def _digested(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    stem = _ILLEGAL.sub("_", text)[: 64 - _DIGEST_LENGTH - 1].strip("_")
    return f"{stem}_{digest}" if stem else f"x_{digest}"
