"""Draws the pictures of the docs from what they show: layers, a turn, badges, and those of docs/concepts.

    python tools/pictures.py           # write them
    python tools/pictures.py --check   # say which are old

Plain SVG with the reader's own light or dark colours; nothing in it depends on the machine.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from mustcall.core.verdict import Verdict
from mustcall.policy.turn.remedy import TABLE, Remedy

sys.path.append(str(Path(__file__).resolve().parent))  # scripts beside this one, also where this one is loaded

from concept_pictures import dialects, ladder, ledger, verdicts
from drawing import WIDTH, arrow, box, svg, text

__all__ = ["PICTURES", "drawn", "main"]

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src" / "mustcall"
# Layers


def _modules(package: Path) -> list[Path]:
    return sorted(path for path in package.rglob("*.py") if "__pycache__" not in path.parts)


def _purpose(package: Path) -> str:
    doc = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return doc.split("\n")[0].rstrip(".")


def _imported(package: Path) -> set[str]:
    """Return the other packages that a package imports from."""
    seen: set[str] = set()
    for path in _modules(package):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.module for node in _statements(tree) if isinstance(node, ast.ImportFrom) and node.module}
        parts = {name.split(".")[1] for name in names if name.startswith("mustcall.")}
        seen.update(parts - {package.name})
    return seen


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement, without the expressions, which are most of a tree and hold none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def _layers() -> list[list[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    rows: list[str] = next(one["layers"] for one in settings["contracts"] if one.get("containers") == ["mustcall"])
    return [names for row in rows if (names := [name for name in row.split(" | ") if (SOURCES / name).is_dir()])]


def _folders(package: Path) -> list[str]:
    return sorted(path.name for path in package.iterdir() if (path / "__init__.py").is_file())


def layers() -> str:
    """Draw the packages from top to bottom as the contract orders them, with their folders."""
    parts: list[str] = []
    y = 10
    for names in _layers():
        for name in names:
            package = SOURCES / name
            folders = _folders(package)
            height = 78 if folders else 56
            uses = ", ".join(sorted(_imported(package))) or "nothing of ours"
            parts += [box(10, y, WIDTH - 20, height), text(22, y + 22, name, "name")]
            parts += [text(120, y + 22, _purpose(package)), text(120, y + 42, f"imports {uses}", "small")]
            if folders:
                parts.append(text(120, y + 63, f"folders: {', '.join(folders)}", "small"))
            y += height + (3 if name != names[-1] else 10)
    return svg(y, "The layers of mustcall; imports point down", parts)


# A turn


_STEPS = (
    ("request", "decoded", "wire"),
    ("demand", "which call it must come to", "policy/request/demand"),
    ("plan", "protocol and rungs", "policy/request/plan"),
    ("attempt", "the request of one rung", "policy/request/attempt_request"),
    ("upstream", "sent, with retries", "upstream"),
    ("scan", "calls and reasoning in text", "policy/scanning"),
    ("judge", "one verdict", "policy/reply/judge"),
    ("remedy", "the first row that fits", "policy/turn/remedy"),
)
_AGAIN = (Remedy.RESAMPLE, Remedy.REMIND, Remedy.CLIMB)


def _verdicts(*remedies: Remedy) -> list[str]:
    """Name the verdicts that can come to one of these remedies, in the order of their definition."""
    found = {row.verdict for row in TABLE if row.remedy in remedies}
    return [str(verdict) for verdict in Verdict if verdict in found]


def _lines(words: list[str], each: int) -> Iterator[str]:
    for start in range(0, len(words), each):
        yield ", ".join(words[start : start + each])


def turn() -> str:
    """Draw one turn: its steps, and what each group of verdicts leads to."""
    parts: list[str] = []
    width, height, gap = 210, 62, 33
    for number, (name, what, where) in enumerate(_STEPS):
        row, place = divmod(number, 4)
        x, y = 10 + (place if row == 0 else 3 - place) * (width + gap), 10 + row * (height + 50)
        parts += [box(x, y, width, height), text(x + 12, y + 20, name, "name")]
        parts += [text(x + 12, y + 38, what), text(x + 12, y + 54, where, "small")]
        if number % 4 < 3:
            ahead = x + width if row == 0 else x
            parts.append(arrow((ahead, y + 31), (ahead + (gap if row == 0 else -gap), y + 31)))
        elif row == 0:
            parts.append(arrow((x + width // 2, y + height), (x + width // 2, y + height + 50)))
    y = 10 + 2 * height + 50 + 40
    foot = 10 + 2 * height + 50
    groups = (
        ("accept", "delivered", (Remedy.ACCEPT, Remedy.SALVAGE)),
        ("again", "asked again", _AGAIN),
        ("fail", "a typed error", (Remedy.FAIL,)),
    )
    wide = (WIDTH - 40) // 3
    tall = 74 + 18 * max(-(-len(_verdicts(*remedies)) // 2) for _, _, remedies in groups)
    for place, (kind, title, remedies) in enumerate(groups):
        x = 10 + place * (wide + 10)
        parts += [box(x, y, wide, tall, kind), text(x + 12, y + 24, title, "name")]
        parts.append(text(x + 12, y + 44, "by " + ", ".join(map(str, remedies)), "small"))
        names = _lines(_verdicts(*remedies), 2)
        parts += [text(x + 12, y + 68 + 18 * line, words) for line, words in enumerate(names)]
        parts.append(arrow((115, foot), (115, foot + 20), (x + wide // 2, foot + 20), (x + wide // 2, y)))
    note = "A verdict stands in each group that one of its rows leads to; the conditions are in remedies.md."
    parts.append(text(10, y + tall + 24, note, "small"))
    return svg(y + tall + 36, "One turn from request to outcome", parts)


# Badges


_BADGE_STYLE = """<style>text { font: 11px system-ui, sans-serif; fill: #fff }
.left { fill: #57606a } .right { fill: #0f6b52 }</style>"""


def _badge(left: str, right: str) -> str:
    """Draw a fact about the project as two fields."""
    first, second = 12 + 7 * len(left), 12 + 7 * len(right)
    size = f'width="{first + second}" height="20" viewBox="0 0 {first + second} 20"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(left)}: {escape(right)}">\n'
        f"{_BADGE_STYLE}\n"
        f'<rect class="right" width="{first + second}" height="20" rx="3"/>'
        f'<path class="left" d="M3 0h{first - 3}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z"/>\n'
        f'<text x="{first // 2}" y="14" text-anchor="middle">{escape(left)}</text>'
        f'<text x="{first + second // 2}" y="14" text-anchor="middle">{escape(right)}</text>\n</svg>\n'
    )


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def python_badge() -> str:
    """Draw the versions of Python that the package names."""
    found = [one.rpartition(" :: ")[2] for one in _project()["classifiers"] if " :: 3." in one]
    return _badge("python", f"{found[0]} to {found[-1]}")


def licence_badge() -> str:
    """Draw the licence."""
    return _badge("licence", _project()["license"])


def typed_badge() -> str:
    """Draw that the package has types of its own."""
    assert (SOURCES / "py.typed").is_file()
    return _badge("typing", "strict")


PICTURES = {
    "badge-licence.svg": licence_badge,
    "badge-python.svg": python_badge,
    "badge-typed.svg": typed_badge,
    "dialects.svg": dialects,
    "ladder.svg": ladder,
    "layers.svg": layers,
    "ledger.svg": ledger,
    "turn.svg": turn,
    "verdicts.svg": verdicts,
}


def drawn() -> Iterator[tuple[Path, str]]:
    """Yield each picture's place and what belongs there."""
    for name, draw in PICTURES.items():
        yield ROOT / "docs" / "pictures" / name, draw()


def main(words: list[str]) -> int:
    """Run the command."""
    old = [path for path, drawing in drawn() if not path.is_file() or path.read_text(encoding="utf-8") != drawing]
    if "--check" in words:
        for path in old:
            print(f"{path.relative_to(ROOT)} is old: run `make docs`")
        return 1 if old else 0
    for path, drawing in drawn():
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawing, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
