"""Measured profiles in mustcall.toml: what is written, and that nothing else changes."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.profiles import MeasuredFact, MeasuredProfile, read_measured
from mustcall.profiles.toml_file import with_measured

URL = "http://127.0.0.1:9000/v1"


def _profile(model: str = "qwen", day: str = "2026-11-17", **facts: Any) -> MeasuredProfile:
    said = facts or {"forced": "ignored", "parallel": False}
    made = [MeasuredFact(field=field, value=value, day=day, held=0, of=24) for field, value in said.items()]
    return MeasuredProfile.of(URL, Wire.CHAT, model, made, upstream="local")


FILE = '''\
# The house file.   Two  spaces stay.
[server]
port = 8484  # ours

[[upstream]]
name = "local"
wire = 'chat'
base_url = "http://127.0.0.1:9000/v1"
headers = { "x" = "[[measured]]" }

[[grounding]]
tool = "t"
pattern = """
[[measured]]
model = "not a table"
"""
lists = [
  [1, 2],  # a row
[3, 4],
]
'''
BLOCK = """\
[[measured]]
version = 1
upstream = "local"
endpoint = "127.0.0.1:9000/v1"
wire = "chat"
model = "qwen"
[measured.facts]
forced = { value = "ignored", measured = "2026-11-17 0/24" }
parallel = { value = false, measured = "2026-11-17 0/24" }
"""


def test_a_profile_is_put_at_the_end() -> None:
    """The file before it stays byte for byte; the table reads as the profile."""
    made = with_measured(FILE, _profile())
    assert made == f"{FILE}\n{BLOCK}"
    assert read_measured(tomllib.loads(made)["measured"]) == (_profile(),)
    assert with_measured("", _profile()) == BLOCK
    assert with_measured("a = 1", _profile()) == f"a = 1\n\n{BLOCK}"


def test_a_profile_takes_the_place_of_the_older_one_of_its_model() -> None:
    """The table of the same model is written anew where it stands; others, and comments around it, stay."""
    other = _profile("other", forced="always")
    text = with_measured(with_measured(FILE, _profile()), other) + "\n# the end\n[contract]\nbroad = true\n"
    newer = _profile(day="2026-12-01", forced="never")
    made = with_measured(text, newer)
    old, new = BLOCK, BLOCK.replace("2026-11-17", "2026-12-01").replace("ignored", "never")
    new = "".join(line for line in new.splitlines(keepends=True) if not line.startswith("parallel"))
    assert made == text.replace(old, new)
    assert with_measured(made, newer) == made


def test_lines_end_as_they_do_in_the_file() -> None:
    """A file with Windows line ends gets a table with Windows line ends."""
    made = with_measured("a = 1\r\n", _profile())
    assert made == f"a = 1\r\n\r\n{BLOCK}".replace("\r\n", "\n").replace("\n", "\r\n")


@pytest.mark.parametrize(
    "text",
    ["a = ", "measured = 3\n", "measured = [{ endpoint = 'h', wire = 'chat', model = 'm' }]\n", "[measured]\nx = 1\n"],
)
def test_a_file_that_cannot_be_changed_is_refused(text: str) -> None:
    """The error says what to do, and nothing is returned."""
    with pytest.raises(ConfigError, match=r"measured|not valid TOML"):
        with_measured(text, _profile())


def test_the_same_model_twice_is_refused() -> None:
    """Which of two tables is meant cannot be told."""
    with pytest.raises(ConfigError, match="each once"):
        with_measured(f"{BLOCK}{BLOCK}", _profile(day="2026-12-01"))


_LINES = st.sampled_from(
    [
        "# [[measured]]\n",
        "\n",
        "[a]\n",
        "[[b]]\nx = '[[measured]]'\n",
        '[[c]]\ny = """\n[[measured]]\n\\""" # no\n"""\n',
        "[[d]]\nz = [\n[1],\n]\n",
        "[[e]]\nw = '''\n[measured]\n''''\n",
        "[[f]]\nv = { a = [1, 2] }  # ]\n",
        BLOCK,
        BLOCK.replace("qwen", "other"),
    ]
)


@given(st.lists(_LINES, max_size=8, unique=True), st.booleans())
def test_whatever_is_in_the_file_stays(lines: list[str], cut: bool) -> None:
    """Every byte outside the model's own table is in the new text, in the same order."""
    text = "".join(lines)
    text = text.removesuffix("\n") if cut else text
    newer = _profile(day="2026-12-01", forced="never")
    made = with_measured(text, newer)
    before, after = tomllib.loads(text), tomllib.loads(made)
    assert {**before, "measured": 0} == {**after, "measured": 0}
    head, _, tail = text.partition(BLOCK.removesuffix("\n"))
    assert made.startswith(head)
    assert made.endswith(tail) or not tail
    assert newer in read_measured(after["measured"])


@given(st.text(min_size=1).filter(str.strip), st.dictionaries(st.text(), st.text() | st.integers(0, 9), max_size=3))
def test_any_value_is_written_as_toml_reads_it(model: str, fields: dict[str, Any]) -> None:
    """Names and values with quotes, control characters and dots come back as they were."""
    profile = _profile(model, reasoning_off_fields=fields)
    assert read_measured(tomllib.loads(with_measured("", profile))["measured"]) == (profile,)
