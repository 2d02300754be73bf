"""What is masked in contents that are kept redacted: keys, tokens, passwords, and marks that point at a person.

Patterns find what looks like a secret; they cannot find a secret that looks like prose. Who may keep nothing of what
was said keeps none of it. Pure: bytes in, bytes out; JSON stays JSON, because only its texts are touched.
"""

import re
from typing import Any, cast

import msgspec

from mustcall.ledger.values import ContentsKept

__all__ = ["keep", "redact"]

#: What is masked, by the word that stands in its place. A group before the secret is kept.
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "private key",
        re.compile(r"()-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    ("token", re.compile(r"()\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    ("key", re.compile(r"()\b(?:(?:sk|pk|rk)[-_][\w-]{12,}|gh[pousr]_\w{20,}|xox[abeprs]-[\w-]{10,})")),
    ("key", re.compile(r"()\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}\b|AIza[\w-]{30,}|hf_\w{20,}|glpat-[\w-]{16,})")),
    ("token", re.compile(r"(?i)(\bbearer\s+)[\w.~+/=-]{8,}")),
    ("password", re.compile(r"(://[^\s/:@]{1,200}:)[^\s/@]{1,200}(?=@)")),
    (
        "secret",
        re.compile(
            r"""(?i)((?:passw(?:or)?d|secret|api_?key|access_?token)[\\"']{0,3}\s?[:=]\s?[\\"']{0,3})[^\s"'\\,;&}]{4,}"""
        ),
    ),
    ("email", re.compile(r"()(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")),
    ("number", re.compile(r"()(?<![\w.])\+?\d(?:[ -]?\d){11,18}(?!\w|\.\d)")),
)

#: How a stream of events begins.
_EVENTS = re.compile(rb"\s*(?:(?:data|event|id|retry):|:)")

#: Fields whose text is a secret whatever it looks like.
_SECRET_FIELDS = frozenset(
    {"authorization", "api_key", "apikey", "api-key", "x-api-key", "password", "passwd", "secret", "access_token"}
)


def keep(contents: bytes, setting: ContentsKept) -> bytes:
    """Return what may be kept of contents."""
    match setting:
        case ContentsKept.FULL:
            return contents
        case ContentsKept.REDACTED:
            # A secret can be spread over the events of a stream, where no pattern finds it.
            return b"" if _EVENTS.match(contents) else redact(contents)
        case ContentsKept.NONE:
            return b""


def redact(contents: bytes) -> bytes:
    """Return contents with every secret and personal mark that is found replaced by `[redacted KIND]`."""
    if not contents:
        return contents
    try:
        return msgspec.json.encode(_walk(msgspec.json.decode(contents)))
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError):
        return _mask(contents.decode("utf-8", "replace")).encode("utf-8", "replace")


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return _mask(value)
    if isinstance(value, list):
        return [_walk(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            name: "[redacted secret]" if name.lower() in _SECRET_FIELDS and isinstance(held, str) else _walk(held)
            for name, held in cast("dict[str, Any]", value).items()
        }
    return value


def _mask(text: str) -> str:
    for kind, pattern in _PATTERNS:
        text = pattern.sub(rf"\1[redacted {kind}]", text)
    return text
