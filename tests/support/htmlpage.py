"""Reads a page of a report: what a reader sees, and that it is well formed."""

import re
from html.parser import HTMLParser

__all__ = ["Page"]

VOID = {"meta", "rect", "line"}


class Page(HTMLParser):
    """Reads a page: texts, attributes, and that every tag is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the attributes and what is open."""
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close what was opened last, and nothing else."""
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note what is shown."""
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        """What a reader sees."""
        return re.sub(r"\s+", " ", " ".join(self.texts))
