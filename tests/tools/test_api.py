"""The public API against the one of the latest release: what breaks code is named in the changelog."""

from functools import cache
from pathlib import Path

from api import BASELINE, breaking, named_breaks, render

from mustcall.core.errors import __all__ as errors

ROOT = Path(__file__).parents[2]

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
TODAY = render()
compared = cache(breaking)


def unnamed(old: str, new: str, changelog: str) -> list[str]:
    """What breaks code and is named nowhere."""
    known = named_breaks(changelog)
    found = [(name.removesuffix(".__init__"), what) for name, what in compared(old, new)]
    return [f"{name}: {what}" for name, what in found if name not in known]


def test_every_break_is_in_the_changelog() -> None:
    """A change that breaks users' code has a line under `### Breaking`."""
    assert unnamed(BASELINE.read_text(encoding="utf-8"), TODAY, CHANGELOG) == []


def test_a_break_that_nobody_names_is_found() -> None:
    """A name, a parameter or a field that is gone is found, unless the changelog names it; an addition is no break."""
    for old, new, name in (
        ("class Caps(", "class Limit(", "Caps"),
        ("hops: int | None = None, ", "", "Agent.run"),
        ("    retries: int = 0\n", "", "ToolSettings"),
        ("check: Check | None = None, ", "", "tool"),
    ):
        assert old in TODAY
        broken = TODAY.replace(old, new)
        found = unnamed(TODAY, broken, "## 1.0\n\n### Breaking\n\n- nothing\n")
        assert any(each.startswith(f"{name}") for each in found), (name, found)
        words = "".join(f"- `{each.partition(':')[0]}` is gone\n" for each in found)
        assert unnamed(TODAY, broken, f"## 1.0\n\n### Breaking\n\n{words}") == []
        assert unnamed(TODAY, broken, f"## 1.0\n\n### Added\n\n{words}") == found, "only under that heading"
        assert unnamed(TODAY, broken, f"## 2.0\n\nNone.\n\n## 1.0\n\n### Breaking\n\n{words}") == found, (
            "of this version"
        )
    assert (
        unnamed(TODAY, TODAY.replace("hops: int | None = None", "hops: int | None = None, new: int = 0"), "## 1") == []
    )


def test_the_api_is_whole() -> None:
    """Every error is in it, and every signature can be read as Python."""
    assert all(f"class {name}" in TODAY for name in errors)
    compile(TODAY, "api", "exec")
