"""What MkDocs is told beside mkdocs.yml: links out of docs/, and pages without a place in the nav.

A link to a file of the repository that is no page (a test, a module, the Dockerfile) becomes its name: the site stands
by itself. README, changelog and the pages of examples/ and benchmarks/ are pages of the site, too. A page that exists
and has no place in the nav is put at the end of *Guides*.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).resolve().parent.parent
#: Pages of the repository that stand outside docs/, and where they are in the site.
OUTSIDE = {
    "CHANGELOG.md": "more/changelog.md",
    "CONTRIBUTING.md": "more/contributing.md",
    "SECURITY.md": "more/security-policy.md",
    "examples/README.md": "more/examples.md",
    "benchmarks/README.md": "more/benchmarks.md",
}
#: Pages that have their place in the nav as soon as they are there.
PLACES = {
    "probe.md": ("Tasks", "Probe a model"),
    "wrap.md": ("Clients", "Wrap a client object"),
    "frameworks.md": ("Clients", "Adapters for frameworks"),
}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def _named(nav: Any) -> set[str]:
    """Return the pages that a nav names."""
    match nav:
        case str():
            return {nav}
        case list():
            return set().union(*map(_named, nav)) if nav else set()
        case dict():
            return set().union(*map(_named, nav.values()))
        case _:
            return set()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages without a place into the nav, and the pages from outside behind them."""
    docs = Path(config.docs_dir)
    named = _named(config.nav)
    found = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    guides = next(entry["Guides"] for entry in config.nav or [] if "Guides" in entry)
    for page, (section, title) in PLACES.items():
        if page in found - named:
            next(entry[section] for entry in guides if isinstance(entry, dict) and section in entry).append(
                {title: page}
            )
    rest = sorted(found - named - set(PLACES))
    if rest:
        guides.append({"More": rest})
    config.nav = [*(config.nav or []), {"More": [{_title(place): place} for place in OUTSIDE.values()]}]
    return config


def _title(place: str) -> str:
    return posixpath.basename(place).removesuffix(".md").replace("-", " ").capitalize()


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside."""
    for source, place in OUTSIDE.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=relinked(text, posixpath.dirname(source), place)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links out of docs/ to their page of the site, or to nothing."""
    place = page.file.src_uri
    if place in OUTSIDE.values():
        return markdown
    return relinked(markdown, posixpath.join("docs", posixpath.dirname(place)), place)


def relinked(markdown: str, folder: str, place: str) -> str:
    """Return a page whose links fit the site; `folder` is where it stands in the repository, `place` in the site."""

    def lead(found: re.Match[str]) -> str:
        words, target = found[1], found[2]
        file, _, anchor = target.partition("#")
        if not file or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(folder, file))
        if path in OUTSIDE:
            path = OUTSIDE[path]
        elif path == "README.md":
            path = "index.md"
        elif path in ("docs", "examples"):
            path = "index.md" if path == "docs" else OUTSIDE["examples/README.md"]
        elif path.startswith("docs/") and (_ROOT / path).is_dir():
            path = f"{path.removeprefix('docs/')}/README.md"
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        else:
            return words if words.startswith("`") else f"{words} (`{path}`)" if words != path else f"`{path}`"
        led = posixpath.relpath(path, posixpath.dirname(place) or ".")
        return f"[{words}]({led}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(lead, markdown)
