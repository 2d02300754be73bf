"""The text of what a server sent: its characters, and of a page in HTML only what people read.

It tells nothing but text apart, and never fails on what is badly written. Cost: linear in the page, whatever it holds;
so a server may name only character sets that pages are written in, and none of Python's other codecs.
"""

import codecs
import html
import re

__all__ = ["is_text", "page_text"]

_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_TEXTUAL = re.compile(r"text/[\w.+-]+|application/(?:[\w.-]+\+)?(?:json|xml|javascript|x-ndjson|yaml)", re.IGNORECASE)
#: Character sets of pages, as Python calls them.
_PAGE_CODECS = re.compile(
    r"utf-(?:8(?:-sig)?|16(?:-[bl]e)?|32(?:-[bl]e)?)|ascii|iso8859-\d{1,2}|cp(?:125\d|874|932|949|950)|koi8-[rtu]"
    r"|shift_jis(?:_2004|x0213)?|euc_(?:jp|kr|jis_2004|jisx0213)|gb(?:2312|k|18030)|big5(?:hkscs)?"
)
#: How a tag, a comment or a declaration begins.
_TAG = re.compile(r"<(?:(/?)([A-Za-z][A-Za-z0-9]{0,20})|!--|[!?])")
#: Elements whose content nobody reads.
_HIDDEN = frozenset({"head", "iframe", "noscript", "script", "style", "svg", "template"})
#: Elements that begin a new line.
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "figure", "footer", "form",
        "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section",
        "table", "td", "th", "title", "tr", "ul",
    }
)  # fmt: skip


def is_text(content_type: str) -> bool:
    """Tell whether a content type is one that is read; none at all is."""
    kind = content_type.partition(";")[0].strip()
    return not kind or _TEXTUAL.fullmatch(kind) is not None


def page_text(body: bytes, content_type: str) -> str:
    """Return a body as text; of HTML what people read."""
    text = _decoded(body, content_type)
    kind = content_type.partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml") or (not kind and text.lstrip()[:15].lower().startswith("<!doc")):
        return _readable(text)
    return text


def _decoded(body: bytes, content_type: str) -> str:
    named = _CHARSET.search(content_type)
    try:
        codec = codecs.lookup(named[1]).name if named else "utf-8"
        return body.decode(codec if _PAGE_CODECS.fullmatch(codec) else "utf-8", "replace")
    except (LookupError, UnicodeError):
        return body.decode("utf-8", "replace")


def _readable(page: str) -> str:
    """Return a page's words, a line for each block."""
    kept: list[str] = []
    folded = page.lower() if page.isascii() else re.sub("[A-Z]", lambda found: found[0].lower(), page)  # same length
    at = 0
    while (start := page.find("<", at)) >= 0:
        kept.append(page[at:start])
        found = _TAG.match(page, start)
        if found is None:  # a `<` of the text
            kept.append("<")
            at = start + 1
            continue
        closing = "-->" if found[0] == "<!--" else ">"
        end = page.find(closing, start)
        name = (found[2] or "").lower()
        if end >= 0 and not found[1] and name in _HIDDEN and page[end - 1] != "/":
            closing = ">"
            end = folded.find(f"</{name}", end)
            end = page.find(closing, end) if end >= 0 else end
        if end < 0:  # it is not closed: what is left is no text
            at = len(page)
            break
        kept.append("\n" if name in _BLOCKS else "")
        at = end + len(closing)
    kept.append(page[at:])
    lines = (html.unescape(" ".join(line.split())) for line in _lines(kept))
    return "\n".join(line for line in lines if line)


def _lines(pieces: list[str]) -> list[str]:
    """Return pieces of text in lines that only the blocks break."""
    joined = "".join(piece if piece == "\n" else re.sub(r"\s+", " ", piece) for piece in pieces)
    return joined.split("\n")
