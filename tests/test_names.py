"""One name for one thing: no public class is defined twice."""

import ast
from collections import defaultdict
from pathlib import Path

_SOURCES = Path(__file__).parents[1] / "src" / "mustcall"


def test_public_classes_have_names_of_their_own() -> None:
    """A reader who searches for a class finds one."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(_SOURCES.rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(_SOURCES)))
    assert len(places) > 500, "the sources were not found"
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
