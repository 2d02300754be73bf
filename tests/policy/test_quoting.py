"""Schemas whose free texts are what the message says."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.policy.words.quoted_values import phrases_of, quote_schema

TEXT: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("What is the weather in Oslo?", "Oslo"),
        ("List files in /srv/a", "/srv/a"),
        ('Translate "good morning" into French.', "good morning"),
        ("Compute (12 + 8) / 5.", "(12 + 8) / 5"),
        ("Mail bob@example.com, please", "bob@example.com"),
        ("Play New York, New York!", "New York, New York"),
    ],
)
def test_what_may_be_an_argument(text: str, phrase: str) -> None:
    """Runs of words are arguments, without the marks around them; none begins or ends in a small word."""
    found = phrases_of(text)
    assert phrase in found
    assert not {"in Oslo", "in", "the weather", "into French", "(12"} & set(found)


def test_texts_and_numbers_are_held_to_the_message() -> None:
    """Free text is one of the phrases, an integer one of the numbers that fit its limits."""
    schema = {
        "type": "object",
        "properties": {"room": {"type": "string"}, "percent": {"type": "integer", "minimum": 5, "maximum": 100}},
    }
    properties = quote_schema(schema, "Dim 3 lights in the kitchen to 30 percent, not 200")["properties"]
    assert "kitchen" in properties["room"]["enum"]
    assert properties["percent"]["enum"] == [30]


@pytest.mark.parametrize(
    "node",
    [
        {"type": "string", "enum": ["a", "b"]},
        {"type": "string", "pattern": "^x+$"},
        {"type": "string", "format": "date"},
        {"type": "string", "minLength": 500},
        {"type": "boolean"},
    ],
)
def test_what_the_schema_narrows_itself_stays(node: dict[str, Any]) -> None:
    """A choice, a pattern, a format or a length no phrase has is left as it is."""
    schema = {"type": "object", "properties": {"x": node}}
    assert quote_schema(schema, "Play the song Yesterday")["properties"]["x"] == node


def test_a_message_that_says_nothing_changes_nothing() -> None:
    """Without phrases and numbers, or with too many words, the schema is the same object."""
    assert quote_schema(TEXT, "?") is TEXT
    assert quote_schema(TEXT, "many words " * 200) is TEXT


@given(text=st.text(max_size=200))
def test_what_fits_the_quoted_schema_fits_the_callers(text: str) -> None:
    """Every phrase is an argument the caller's own schema takes, and the number of phrases is bounded."""
    quoted = quote_schema(TEXT, text)
    allowed = quoted["properties"]["x"].get("enum", [])
    assert len(allowed) <= 300
    assert all(jsonschema_rs.is_valid(TEXT, {"x": phrase}) for phrase in allowed)


@pytest.mark.parametrize(
    ("text", "name", "allowed"),
    [
        ("List files in /srv/a", "path", ["/srv/a"]),
        ("What files are in $HOME/notes?", "path", ["$HOME/notes"]),
        ("Show ~/x and ./y", "directory", ["~/x", "./y"]),
        ("Read the file a.txt", "file_path", ["a.txt"]),
        ("List files in src", "path", ["List", "files", "src", "List files", "files in src", "List files in src"]),
        ("List files in /srv/a", "query", ["List", "files", "/srv/a", "List files", "files in /srv/a"]),
    ],
)
def test_a_place_is_what_looks_like_one(text: str, name: str, allowed: list[str]) -> None:
    """A parameter named like a place takes the places of the message, if it has any; others take any phrase."""
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": "string"}}}
    held = quote_schema(schema, text)["properties"][name]["enum"]
    assert held[: len(allowed)] == allowed
    assert len(held) == len(allowed) or not allowed[0].startswith(("/", "$", "~", "a."))
