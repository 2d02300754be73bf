"""One name for one thing, and folders that can be read at a glance."""

import ast
import re
from collections import defaultdict
from pathlib import Path

_SOURCES = Path(__file__).parents[1] / "src" / "mustcall"


def test_public_classes_have_names_of_their_own() -> None:
    """A reader who searches for a class finds one."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(_SOURCES.rglob("*.py")):
        for name in re.findall(r"^class ([^_\W]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places[name].append(str(path.relative_to(_SOURCES)))
    assert len(places) > 500, "the sources were not found"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_folders_hold_few_modules() -> None:
    """No folder has more than 15 modules at one level."""
    counts = {
        str(folder.relative_to(_SOURCES)): len([file for file in folder.glob("*.py") if file.name != "__init__.py"])
        for folder in (_SOURCES, *_SOURCES.rglob("*"))
        if folder.is_dir()
    }
    assert counts["engine"] > 5, "the sources were not found"
    assert {folder: count for folder, count in counts.items() if count > 15} == {}


def test_modules_are_short() -> None:
    """No module of the product has more than 450 lines."""
    lengths = {
        str(path.relative_to(_SOURCES)): len(path.read_bytes().splitlines()) for path in sorted(_SOURCES.rglob("*.py"))
    }
    assert len(lengths) > 500, "the sources were not found"
    assert {name: length for name, length in lengths.items() if length > 450} == {}


def test_private_names_are_used_at_home() -> None:
    """No module of the product imports a private name of another one; ruff sees attributes only."""
    imported: list[str] = []
    for path in sorted(_SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mustcall"):
                names = [alias.name for alias in node.names if re.match("_[^_]", alias.name)]
                imported += [f"{path.relative_to(_SOURCES)}: {node.module}.{name}" for name in names]
    assert imported == []
