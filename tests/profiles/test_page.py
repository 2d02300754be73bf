"""The reference page of profiles."""

from pathlib import Path

from mustcall.policy.facts.profile import Profile
from mustcall.policy.failures.rejection import Rejection
from mustcall.profiles import load, markdown
from mustcall.profiles.page import MEANINGS

PAGE = Path(__file__).parents[2] / "docs" / "profiles.md"


def test_the_page_is_up_to_date() -> None:
    """Rule 120: docs/profiles.md says what the data says; `mustcall.profiles.markdown()` writes it."""
    assert PAGE.read_text(encoding="utf-8") == markdown()


def test_everything_is_on_the_page() -> None:
    """Rule 120: every field, entry, note and refusal is documented."""
    page = markdown()
    assert set(MEANINGS) == set(Profile.__struct_fields__)
    for field in Profile.__struct_fields__:
        assert f"| `{field}` | {MEANINGS[field]} |" in page
    for entry in load():
        assert f"| {entry.name} |" in page
        for fact in entry.facts.values():
            assert fact.note.replace("|", "\\|") in page
    for rejection in Rejection:
        assert f"| `{rejection}` |" in page


def test_tables_are_tables() -> None:
    """Rule 120: no cell breaks its row."""
    width = 0
    for line in markdown().splitlines():
        if not line.startswith("|"):
            width = 0
            continue
        cells = line.replace("\\|", "").count("|")
        width = width or cells
        assert cells == width, line
