"""Plain SVG with the reader's own light or dark colours: boxes, texts and arrows."""

from collections.abc import Iterator, Sequence
from html import escape

__all__ = ["WIDTH", "arrow", "box", "svg", "text", "wrapped"]

WIDTH = 960
_STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .name { font-weight: 600; font-size: 15px }
.small { font-size: 12px; fill: #57606a } .box { fill: #f6f8fa; stroke: #8c959f }
.line { stroke: #57606a; fill: none } .head { fill: #57606a }
.accept { fill: #dafbe1; stroke: #2da44e } .again { fill: #fff8c5; stroke: #bf8700 }
.fail { fill: #ffebe9; stroke: #cf222e } .band { fill: #f6f8fa } .ground { fill: #fff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .box { fill: #161b22; stroke: #6e7681 }
.line { stroke: #9198a1 } .head { fill: #9198a1 }
.accept { fill: #12261e; stroke: #3fb950 } .again { fill: #272115; stroke: #d29922 }
.fail { fill: #25171c; stroke: #f85149 } .band { fill: #161b22 } .ground { fill: #0d1117 } }
</style>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0 0 8 4 0 8z"/></marker></defs>"""


def svg(height: int, label: str, parts: list[str]) -> str:
    """Return a picture of this height."""
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" rx="8"/>'  # the page may be of the other scheme
    return "\n".join([head, _STYLE, ground, *parts, "</svg>"]) + "\n"


def box(x: int, y: int, width: int, height: int, kind: str = "box") -> str:
    """Draw a box."""
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def text(x: int, y: int, words: str, kind: str = "", *, middle: bool = False) -> str:
    """Write words."""
    classes = f' class="{kind}"' if kind else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x}" y="{y}"{classes}{anchor}>{escape(words)}</text>'


def arrow(*points: tuple[int, int]) -> str:
    """Draw a line that ends in an arrow."""
    path = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline class="line" points="{path}" marker-end="url(#end)"/>'


def wrapped(words: Sequence[str], width: int) -> Iterator[str]:
    """Yield words in lines of at most so many characters."""
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            yield f"{line},"
            line = ""
        line = f"{line}, {word}" if line else word
    if line:
        yield line
