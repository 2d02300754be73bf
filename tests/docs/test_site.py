"""The site: built with every warning an error, every link leads somewhere, and nothing is loaded from elsewhere."""

import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.browser import open_browser

ROOT = Path(__file__).parents[2]
#: Attributes by which a page loads something without being asked.
LOADING = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Found(HTMLParser):
    """What a page links to, loads and names."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        for name, value in given.items():
            if (tag, name) in LOADING and given.get("rel") not in ("canonical", "next", "prev"):
                self.loads.append(value)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make site` builds it."""
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(place)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert made.returncode == 0, made.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Found]:
    """Every page with what it has."""
    return {path: Found(path) for path in sorted(site.rglob("*.html"))}


def local(pages: dict[Path, Found], site: Path, what: str) -> Iterator[tuple[Path, str, Path, str]]:
    """Every address within the site: the page it is on, as written, the file and the anchor it leads to."""
    for page, found in pages.items():
        for address in found.links if what == "links" else found.loads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            path = unquote(parts.path)
            base = site if path.startswith("/") else page.parent
            yield page, address, _file_at(base, path.lstrip("/")) if path else page, unquote(parts.fragment)


@cache
def _file_at(base: Path, path: str) -> Path:
    """Return the file that an address leads to; the pages of a folder share most of theirs."""
    target = (base / path).resolve()
    return target / "index.html" if target.is_dir() else target


def test_links_lead_somewhere(site: Path, pages: dict[Path, Found]) -> None:
    """Every link within the site leads to a file, and to a place in it where it names one."""
    assert len(pages) > 80
    for page, address, target, anchor in local(pages, site.resolve(), "links"):
        if page.name == "404.html":
            continue  # it stands for pages at any depth
        assert target.is_file(), f"{page.relative_to(site)}: {address}"
        if anchor and not anchor.startswith("__") and target in pages:
            assert anchor in pages[target].names, f"{page.relative_to(site)}: {address}"


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Found]) -> None:
    """Scripts, styles, fonts and pictures are files of the site."""
    for page, found in pages.items():
        for address in found.loads:
            assert not urlsplit(address).scheme or address.startswith("data:"), f"{page.relative_to(site)}: {address}"
    for page, address, target, _ in local(pages, site.resolve(), "loads"):
        if page.name != "404.html":
            assert target.is_file(), f"{page.relative_to(site)}: {address}"


def test_every_page_is_there_and_can_be_found(site: Path) -> None:
    """Each page of docs/ is a page of the site, and its words are in the index of the search."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    for page in (ROOT / "docs").rglob("*.md"):
        place = page.relative_to(ROOT / "docs").as_posix().replace("README.md", "index.md").replace(".md", ".html")
        assert (site / place).is_file()
        assert place in found or (place == "index.html" and "" in found), place


@pytest.mark.parametrize("width", [1280, 390])
async def test_pages_fit_the_screen(site: Path, width: int) -> None:
    """On a desktop and on a phone no page is wider than the screen; tables and code scroll by themselves."""
    async with open_browser() as browser:
        tab = await browser.tab()
        await tab.size(width, 844)
        for name in (
            "index",
            "start/gateway",
            "guides/claude-code",
            "concepts/ladder",
            "reference/configuration",
            "compare",
        ):
            await tab.go((site / f"{name}.html").as_uri())
            await tab.until("document.querySelector('article h1')")
            wide = await tab.run("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth")
            assert wide <= 0, name
