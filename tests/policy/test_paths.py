"""Rule 80: environment variables and `~` in declared path parameters."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.policy.schema.paths import expand_arguments, expand_path

VALUES = {"HOME": "/home/ada", "PROJECT": "/srv/p"}


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$HOME/notes", "/home/ada/notes"),
        ("${HOME}/notes", "/home/ada/notes"),
        ("~/notes", "/home/ada/notes"),
        ("~", "/home/ada"),
        ("$PROJECT", "/srv/p"),
        ("/mnt$PROJECT/x", "/mnt/srv/p/x"),
        ("$SECRET/x", "$SECRET/x"),
        ("$HOMELY", "$HOMELY"),
        ("${HOME", "${HOME"),
        ("~root/x", "~root/x"),
        ("a/~/b", "a/~/b"),
        ("$", "$"),
        ("", ""),
    ],
)
def test_what_expands(text: str, expanded: str) -> None:
    """Rule 80: variables of the allowlist and a leading `~` expand; everything else stays as it was written."""
    assert expand_path(text, VALUES) == expanded


def test_off_by_default() -> None:
    """Rule 80: with an empty allowlist nothing changes, `~` included, and the same object comes back."""
    arguments = {"path": "~/x/$HOME"}
    log = AdaptationLog()
    assert expand_arguments(arguments, ["path"], {}, log) is arguments
    assert log.entries == ()


def test_tilde_needs_home_on_the_list() -> None:
    """Rule 80: `~` is HOME by another name, so it needs HOME on the allowlist."""
    assert expand_path("~/x", {"PROJECT": "/srv/p"}) == "~/x"


def test_only_declared_parameters() -> None:
    """Rule 80: a field that is not declared a path is never touched; lists of paths are."""
    arguments = {"path": "$HOME/a", "note": "$HOME", "paths": ["~", 3], "depth": 2}
    log = AdaptationLog()
    done = expand_arguments(arguments, ["path", "paths", "depth", "gone"], VALUES, log, tool="copy")
    assert done == {"path": "/home/ada/a", "note": "$HOME", "paths": ["/home/ada", 3], "depth": 2}
    assert arguments["path"] == "$HOME/a"
    assert log.entries == (
        Adaptation(AdaptationKind.ARGUMENTS_EXPANDED, "copy.path", "$HOME"),
        Adaptation(AdaptationKind.ARGUMENTS_EXPANDED, "copy.paths", "~"),
    )


def test_values_are_not_expanded_again() -> None:
    """Rule 80: what a variable holds is data: no second variable can be reached through it."""
    assert expand_path("$A/$B", {"A": "$B", "B": "/b"}) == "$B//b"


@given(st.text(string.printable, max_size=60))
def test_text_without_signs_is_left_alone(text: str) -> None:
    """Rule 80: a path with neither `$` nor `~` is the same text, whatever is on the list."""
    plain = text.replace("$", "").replace("~", "")
    assert expand_path(plain, VALUES) == plain
