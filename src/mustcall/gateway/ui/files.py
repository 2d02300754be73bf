"""The page's own files, read once: their bytes, type and digest. Nothing outside the folder can be named."""

import hashlib
from importlib.resources import files

import msgspec

__all__ = ["HEADERS", "PageFile", "read_files"]

_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}

#: On every answer of the page: nothing from elsewhere is loaded, nothing inline runs, nobody frames it.
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
            b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
            b"require-trusted-types-for 'script'; trusted-types 'none'"
        ),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
)


class PageFile(msgspec.Struct, frozen=True):
    """One file of the page."""

    body: bytes
    type: bytes
    tag: bytes


def read_files() -> dict[str, PageFile]:
    """Return every file by its name."""
    found: dict[str, PageFile] = {}
    for file in files("mustcall.gateway.ui").joinpath("static").iterdir():
        kind = _TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'.encode()
            found[file.name] = PageFile(body, kind, tag)
    return found
