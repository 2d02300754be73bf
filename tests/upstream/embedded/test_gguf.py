"""Reading a model file's metadata: whether its chat template has a place for tools."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mustcall.upstream.embedded.gguf import takes_tools

_numbers = iter(range(10_000))


def text(value: bytes) -> bytes:
    """Write a string as the format does."""
    return struct.pack("<Q", len(value)) + value


def model(*entries: bytes, keys: int | None = None) -> bytes:
    """Write a file of these entries."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries) if keys is None else keys) + b"".join(entries)


def entry(key: bytes, kind: int, value: bytes) -> bytes:
    """Write one key with its typed value."""
    return text(key) + struct.pack("<I", kind) + value


NUMBER = entry(b"general.version", 4, struct.pack("<I", 7))
NUMBERS = entry(b"scores", 9, struct.pack("<IQ", 6, 3) + struct.pack("<3f", 1, 2, 3))
TOKENS = entry(b"tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text(b"tools") + text(b"b"))
WITH = entry(b"tokenizer.chat_template", 8, text(b"{% if tools %}{{ tools }}{% endif %}"))
WITHOUT = entry(b"tokenizer.chat_template", 8, text(b"{{ messages }}"))


def told(data: bytes, folder: Path) -> bool:
    """Return what is told of a file of these bytes."""
    path = folder / f"{next(_numbers)}.gguf"
    path.write_bytes(data)
    return takes_tools(path)


@pytest.mark.parametrize(
    ("data", "takes"),
    [
        (model(NUMBER, NUMBERS, TOKENS, WITH), True),
        (model(NUMBER, NUMBERS, TOKENS, WITHOUT), False),
        (model(TOKENS), False),
        (model(WITH), True),
        (b"", False),
        (b"GGUF", False),
        (b"PK\x03\x04" + WITH, False),
        (model(NUMBER, WITH)[:60], False),
        (model(entry(b"x", 99, b"")), False),
        (model(entry(b"x", 9, struct.pack("<IQ", 8, 2**63))), False),
        (model(NUMBER, keys=2**60), False),
    ],
)
def test_templates(data: bytes, takes: bool, tmp_path: Path) -> None:
    """Only a template that mentions tools takes them; a file that is broken has none."""
    assert told(data, tmp_path) is takes


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is left to whoever opens it."""
    assert takes_tools(tmp_path / "none.gguf") is False


@given(st.binary(max_size=200), st.integers(0, 400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_damage_never_raises(tmp_path: Path, junk: bytes, place: int) -> None:
    """Whatever a file holds, the answer is a plain yes or no."""
    whole = model(NUMBER, NUMBERS, TOKENS, WITH)
    assert told(whole[:place] + junk + whole[place:], tmp_path) in (True, False)
