"""`import mustcall`: what is public, that it is all there, and that it costs nothing until it is used."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mustcall
from mustcall.core import errors

HEAVY = ("msgspec", "asyncio", "aiohttp", "jsonschema_rs", "pydantic", "rich", "mcp", "xllamacpp", "matplotlib")


def test_every_public_name_is_there() -> None:
    """Each name of `__all__` can be loaded, from where it lives, once; there are at most 40 (style 7)."""
    assert list(mustcall.__all__) == sorted(mustcall.__all__, key=lambda name: (not name[0].isupper(), name))
    assert len(mustcall.__all__) <= 40
    for name in mustcall.__all__:
        assert getattr(mustcall, name) is getattr(mustcall, name)
    assert set(dir(mustcall)) == set(mustcall.__all__)


def test_every_error_can_be_imported() -> None:
    """What may be raised can be caught by its class: every error of the tree is importable from the package."""
    for name in errors.__all__:
        assert getattr(mustcall, name) is getattr(errors, name)


def test_docs_import_from_public_places_only() -> None:
    """What docs and examples import comes from the package, its test kit, tools, ledger, events or adapters."""
    root = Path(__file__).parents[1]
    docs = (*(root / "docs").glob("*.md"), *(root / "docs" / "adapters").glob("*.md"))
    pages = [root / "README.md", *docs, *(root / "examples").glob("*.py")]
    named = {
        (page.name, found)
        for page in pages
        for found in re.findall(r"^from (mustcall[a-z_.]*) import", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    public = ("mustcall.testing", "mustcall.toolkit", "mustcall.ledger", "mustcall.telemetry", "mustcall.adapters")
    assert len(named) > 10
    assert [one for one in sorted(named) if one[1] != "mustcall" and not one[1].startswith(public)] == []


def test_what_the_library_page_makes_can_be_imported() -> None:
    """Each class that the page on the library makes an object of is importable from the package or its test kit."""
    page = (Path(__file__).parents[1] / "docs" / "library.md").read_text(encoding="utf-8")
    made = set(re.findall(r"(?<![\w.])([A-Z][a-z]\w+)\(", page))
    elsewhere = re.findall(r"^from (?!mustcall import)[\w.]+ import (.*)|^class (\w+)", page, re.MULTILINE)
    others = {"Field", *re.findall(r"\w+", " ".join(map(" ".join, elsewhere)))}  # `Field` is pydantic's
    assert len(made - others) > 10
    assert sorted(name for name in made - others if not hasattr(mustcall, name)) == []


def test_no_other_name_is_there() -> None:
    """A name that is not public is an ordinary AttributeError."""
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        mustcall.Nothing  # noqa: B018


def test_a_plain_import_loads_nothing() -> None:
    """Style 13: the package alone loads none of what makes imports slow; an agent loads no extras."""
    code = f"import sys, mustcall\nprint([n for n in {HEAVY} if n in sys.modules])"
    assert _python(code) == "[]"
    code = f"import sys, mustcall\nmustcall.Agent\nprint([n for n in {HEAVY[4:]} if n in sys.modules])"
    assert _python(code) == "[]"
    sdks = ("openai", "anthropic", "httpx", "httpx2", "aiohttp")
    code = f"import sys, mustcall\nmustcall.wrap\nprint([n for n in {sdks} if n in sys.modules])"
    assert _python(code) == "[]"


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603  our own line
