"""Measured profiles: what a document may say, how it is written, and whose word stands."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.policy.facts.profile import Forcing
from mustcall.profiles import Learnt, MeasuredFact, MeasuredProfile, parse_profile, read_measured, read_profile
from mustcall.profiles.facts import PRECEDENCE, Observed
from mustcall.profiles.overrides import read_overrides
from mustcall.profiles.resolving import resolve

URL = "http://127.0.0.1:9000/v1"
DAY = "2026-11-17"


def _fact(field: str, value: object, held: int = 24, of: int = 24) -> MeasuredFact:
    return MeasuredFact(field=field, value=value, day=DAY, held=held, of=of)


def _profile(*facts: MeasuredFact, model: str = "qwen-0.5b") -> MeasuredProfile:
    return MeasuredProfile.of(URL, Wire.CHAT, model, facts, upstream="local")


IGNORED = _profile(_fact("forced", "ignored", 0), _fact("parallel", value=False, held=3))


def test_every_kind_of_knowledge_has_a_rank() -> None:
    """Rule 139: the order of whose word stands is one table over all kinds."""
    assert set(PRECEDENCE) == set(Observed)
    assert PRECEDENCE[Observed.CONFIG] > PRECEDENCE[Observed.PROBED] > PRECEDENCE[Observed.LEARNT]
    assert all(rank < PRECEDENCE[Observed.LEARNT] for kind, rank in PRECEDENCE.items() if kind not in _ABOVE)


_ABOVE = (Observed.LEARNT, Observed.PROBED, Observed.CONFIG)


def test_a_profile_file_reads_as_it_was_written(tmp_path: Path) -> None:
    """A file holds the same facts, with the day and the counts of each."""
    file = tmp_path / "qwen.json"
    file.write_bytes(IGNORED.encode())
    assert read_profile(file) == IGNORED
    assert json.loads(file.read_text())["facts"]["forced"] == {"value": "ignored", "measured": "2026-11-17 0/24"}


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "forced": st.sampled_from([str(value) for value in Forcing]),
    "parallel": st.booleans(),
    "schema_output": st.booleans(),
    "most_tools": st.integers(0, 4096),
    "context_length": st.integers(0, 1_000_000),
    "dialects": st.lists(st.sampled_from(["hermes", "auto"]), max_size=2),
    "reasoning_field": st.text(max_size=8),
}


@given(st.fixed_dictionaries({}, optional=_VALUES), st.integers(1, 99), st.data())
def test_any_profile_survives_its_document(values: dict[str, Any], of: int, data: st.DataObject) -> None:
    """Writing and reading is the identity on checked profiles, as JSON and as plain tables."""
    facts = [_fact(field, value, data.draw(st.integers(0, of)), of) for field, value in values.items()]
    profile = _profile(*facts, model=data.draw(st.text("ab*?[]/:-.", min_size=1).filter(str.strip)))
    assert parse_profile(profile.encode(), "f") == profile
    assert read_measured([profile.document()]) == (profile,)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"facts": {"forced": {"value": "often", "measured": "2026-11-17 1/2"}}}, ("forced", "'often'", "always")),
        (
            {"facts": {"forcing": {"value": "never", "measured": "2026-11-17 1/2"}}},
            ("'forcing'", "did you mean 'forced'?"),
        ),
        ({"facts": {"name": {"value": "x", "measured": "2026-11-17 1/2"}}}, ("'name'", "[[profile]]")),
        ({"facts": {"named": {"value": True, "measured": "yesterday"}}}, ("named", "'yesterday'", "2026-11-17 24/24")),
        ({"facts": {"named": {"value": True, "measured": "2026-11-17 3/2"}}}, ("named", "3/2", "0 <= n <= m")),
        ({"facts": {"named": {"value": True, "measured": "2026-11-17 0/0"}}}, ("named", "0/0")),
        ({"facts": {"named": {"value": True, "measured": "2026-13-17 1/2"}}}, ("named", "2026-13-17")),
        ({"facts": {"named": {"value": None, "measured": "2026-11-17 1/2"}}}, ("named is null", "leave")),
        ({"facts": {"named": {"measured": "2026-11-17 1/2"}}}, ("value",)),
        ({"wire": "telex"}, ("telex", "chat, responses, messages")),
        ({"version": 2}, ("version 2", "measure again")),
        ({"model": " "}, ("model is empty",)),
        ({"endpoint": ""}, ("endpoint is empty",)),
        ({"colour": "red"}, ("colour",)),
    ],
)
def test_a_wrong_document_is_an_error_with_its_fix(change: dict[str, Any], words: tuple[str, ...]) -> None:
    """The error names the file, the value, and what to write in its place."""
    document = {**IGNORED.document(), **change}
    with pytest.raises(ConfigError) as caught:
        parse_profile(json.dumps(document), "qwen.json")
    assert caught.value.message.startswith("qwen.json")
    for word in words:
        assert word in caught.value.message
    with pytest.raises(ConfigError, match="measured 1"):
        read_measured([document])


def test_what_is_no_document_is_an_error(tmp_path: Path) -> None:
    """Unreadable files name the command that writes one."""
    with pytest.raises(ConfigError, match="not valid JSON"):
        parse_profile("{", "qwen.json")
    with pytest.raises(ConfigError, match="mustcall probe"):
        read_profile(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="twice"):
        _profile(_fact("named", value=True), _fact("named", value=False))


def test_measured_facts_stand_over_the_catalogue() -> None:
    """What came with mustcall gives way to what was measured at this endpoint, and the source is told."""
    url = "https://api.openai.com/v1"
    before = resolve("gpt-5", url, Wire.CHAT)
    assert before.profile.forced is Forcing.ALWAYS
    measured = MeasuredProfile.of(url, Wire.CHAT, "gpt-5", [_fact("forced", "never", 0)])
    known = resolve("gpt-5", url, Wire.CHAT, [measured.override("gpt.json")])
    assert known.profile.forced is Forcing.NEVER
    fact = known.facts["forced"]
    assert (fact.observed, fact.note, fact.source) == (Observed.PROBED, "measured 2026-11-17 0/24", "gpt.json")
    assert "forced" in known.settled
    assert not known.configured


def test_the_operators_word_stands_over_measured_facts_in_any_order() -> None:
    """A `[[profile]]` table wins over a measured fact, whichever is read first; other fields stay measured."""
    said = read_overrides([{"forced": "always"}])
    measured = IGNORED.override()
    for overrides in ([*said, measured], [measured, *said]):
        known = resolve("qwen-0.5b", URL, Wire.CHAT, overrides)
        assert known.profile.forced is Forcing.ALWAYS
        assert known.profile.parallel is False
        assert known.configured == {"forced"}
        assert known.settled == {"forced", "parallel"}


def test_what_turns_teach_does_not_change_measured_facts() -> None:
    """A learnt fact of a measured field is not believed; one of another field is."""
    known = resolve("qwen-0.5b", URL, Wire.CHAT, [IGNORED.override()])
    learnt = Learnt()
    learnt.learn("local", "qwen-0.5b", "forced", "never", "refused")
    learnt.learn("local", "qwen-0.5b", "named", False, "refused")
    taught = learnt.apply("local", "qwen-0.5b", known.profile, configured=known.configured, settled=known.settled)
    assert taught.forced is Forcing.IGNORED
    assert taught.named is False


@pytest.mark.parametrize(
    ("model", "url", "wire", "applies"),
    [
        ("qwen-0.5b", URL, Wire.CHAT, True),
        ("QWEN-0.5B", f"{URL}/", Wire.CHAT, True),
        ("qwen-0.5b-instruct", URL, Wire.CHAT, False),
        ("qwen-0.5b", "http://127.0.0.1:9001/v1", Wire.CHAT, False),
        ("qwen-0.5b", "http://127.0.0.1:90001/v1", Wire.CHAT, False),
        ("qwen-0.5b", URL, Wire.RESPONSES, False),
    ],
)
def test_measured_facts_are_of_one_model_at_one_endpoint(model: str, url: str, wire: Wire, applies: bool) -> None:
    """They say nothing of another model, port or wire."""
    known = resolve(model, url, wire, [IGNORED.override()])
    assert (known.profile.forced is Forcing.IGNORED) is applies


def test_signs_of_patterns_in_a_name_mean_themselves() -> None:
    """A model called `a*` is not every model that begins with a."""
    override = _profile(_fact("named", value=False), model="a*[b]?").override()
    assert resolve("a*[b]?", URL, Wire.CHAT, [override]).profile.named is False
    assert resolve("axb-", URL, Wire.CHAT, [override]).profile.named is True
