"""docs/ui.md says what the page does: its keys, its limits, its setting, and pictures that are there and small."""

import inspect
import re
from pathlib import Path

from mustcall.gateway.config.settings import ServerSettings
from mustcall.gateway.state.raw_replies import MOST_RAW
from mustcall.gateway.state.recent_turns import Ring
from mustcall.gateway.ui.lock import LONGEST_VISIT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/ui.md").read_text(encoding="utf-8")
STATIC = ROOT / "src/mustcall/gateway/ui/static"


def test_every_key_is_named() -> None:
    """The keys of the help on the page are the keys of this page."""
    script = (STATIC / "app.js").read_text(encoding="utf-8")
    (keys,) = re.findall(r"const keys = \[(\[.*\])\];", script)
    named = [key for words in re.findall(r'\["([^"]+)", "', keys) for key in words.split()]
    assert {"o", "t", "j", "k", "Enter", "/", "Esc"} == set(named)
    for key in named:
        assert f"`{key}`" in PAGE, key


def test_the_numbers_are_those_of_the_code() -> None:
    """Turns in memory, bytes of a raw reply, hours of a cookie, turns of a list, and the setting."""
    assert f"the last {inspect.signature(Ring).parameters['most'].default} turns" in PAGE
    assert f"first {MOST_RAW:,} bytes" in PAGE
    assert (LONGEST_VISIT, "twelve hours" in PAGE) == (12 * 3600, True)
    assert "const PAGE = 50;" in (STATIC / "list.js").read_text(encoding="utf-8")
    assert "a page of 50" in PAGE
    assert ServerSettings().ui is True
    assert "`ui = false` in `[server]`" in PAGE


def test_the_pictures_are_small() -> None:
    """Each picture is there and has less than 150 kB."""
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE)
    assert len(pictures) == 2
    for name in pictures:
        assert 1000 < (ROOT / "docs" / name).stat().st_size < 150_000, name
