"""README: its Python runs as printed, it is short, its figures and pictures are current, and what it names exists."""

import re
from pathlib import Path
from typing import Any

import pytest

from mustcall.dialects import DIALECTS
from mustcall.testing import ScriptedUpstream, demo_turn
from mustcall.testing.gateway import RunningGateway
from support.answered import kept_answers
from support.embedded import small_cache

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_readme_is_short() -> None:
    """A reader decides in half a minute."""
    assert len(README.splitlines()) < 150


@pytest.mark.parametrize("block", BLOCKS, ids=["gateway", "library"])
def test_readme_block(
    block: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block runs and prints what a tool call gives; the smallest model is the one that is here."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(small_cache(tmp_path)))
    demo = ScriptedUpstream(demo_turn)
    with kept_answers(), demo as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        left: dict[str, Any] = {}
        exec(block.replace("http://127.0.0.1:8484", gateway.url), left)  # noqa: S102  our own README
        if "client" in left:
            left["client"].close()  # or its sockets are found unclosed some time later
    assert re.search(r"name='get_weather'|Sunny in \w+, 21 degrees", capsys.readouterr().out)


def test_the_picture_is_current() -> None:
    """The picture was drawn from the recorded turn and from the page as it is now, and is small."""
    from readme_picture import PICTURE, is_current  # noqa: PLC0415  needs Pillow, which only pictures do

    assert is_current(), "run python tools/readme_picture.py"
    assert PICTURE.stat().st_size < 100_000
    assert "docs/pictures/before-after.png" in README


@pytest.mark.parametrize(
    "page", ["README.md", "CHANGELOG.md", *(f"docs/{one}" for one in ("dialects.md", "compare.md"))]
)
def test_the_number_of_formats_is_the_codes(page: str) -> None:
    """Wherever a page counts the formats of calls, it is the number of dialects in the catalogue."""
    text = re.sub(r"<!-- .*? -->", "", (ROOT / page).read_text(encoding="utf-8"))
    counts = re.findall(r"\b(\d+) (?:text )?(?:formats|forms)\b(?! that)", text)
    assert set(counts) - {"3"} <= {str(len(DIALECTS))}
    assert page == "docs/compare.md" or counts


def test_readme_names_real_commands_and_files() -> None:
    """What README points at exists."""
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target.partition("#")[0]).exists(), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE)
