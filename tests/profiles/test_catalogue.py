"""The facts that come with mustcall."""

from importlib import resources

import pytest

from mustcall.core.errors import ConfigError
from mustcall.profiles import Observed, ProfileEntry, load
from mustcall.profiles.catalogue import read_entries

ENTRIES = load()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.file}:{entry.name}")
def test_every_fact_says_how_it_is_known(entry: ProfileEntry) -> None:
    """Rule 75: each fact carries how it was observed, and where it stands."""
    assert entry.facts
    for fact in entry.facts.values():
        assert fact.observed in (*list(Observed)[:4], Observed.ASSUMED)
        assert fact.source == f"{entry.file}: {entry.name}"
        assert fact.when == "" or (len(fact.when) == 7 and fact.when[:2] == "20" and fact.when[4] == "-")


def test_no_upstream_is_trusted_by_default() -> None:
    """Design, "Streaming": unfinished arguments are released only where the operator says so."""
    assert not [entry.name for entry in ENTRIES if "trusted_arguments" in entry.facts]


def test_every_file_is_read() -> None:
    """Rule 75: all data files take part, in the order of their names."""
    folder = resources.files("mustcall.profiles") / "data"
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    assert list(dict.fromkeys(entry.file for entry in ENTRIES)) == files
    assert {"claude.toml", "openai.toml", "gemini.toml", "servers.toml", "endpoints.toml"} <= set(files)


def test_reasoning_off_fields_come_with_a_word_for_it() -> None:
    """Rule 31: fields that turn reasoning off are never empty."""
    told = [entry.facts["reasoning_off_fields"].value for entry in ENTRIES if "reasoning_off_fields" in entry.facts]
    assert told
    assert all(told)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[profile", "not valid TOML"),
        ('[[profile]]\nmodels = ["x"]', "name"),
        ('[[profile]]\nname = "x"', "neither models nor endpoints"),
        ('[[profile]]\nname = "x"\nmodels = ["x"]\nforced = "never"', "Expected `object`"),
        ('[[profile]]\nname = "x"\nmodels = ["x"]\nforced = { value = "never" }', "observed"),
        ('[[profile]]\nname = "x"\nmodels = ["x"]\nforced = { value = 1, observed = "docs" }', "forced must be one of"),
        ('[[profile]]\nname = "x"\nmodels = ["x"]\nforged = { value = 1, observed = "docs" }', "is no field"),
        ('[[profile]]\nname = "x"\nmodels = ["x"]\nwires = ["tin"]', "wires"),
        ('[[profile]]\nname = "x"\nmodels = [""]', "empty pattern"),
    ],
)
def test_bad_data(text: str, problem: str) -> None:
    """Rule 75: a mistake in the data names its place."""
    with pytest.raises(ConfigError, match=problem):
        read_entries(text, "x.toml")
