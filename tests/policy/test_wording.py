"""The sentences: whatever an operator writes in place of one, a place that nobody fills is found when it is read."""

from string import Formatter

import msgspec
import pytest

from mustcall.core.errors import ConfigError
from mustcall.policy.facts.wording import Wording, check_wording


def places(value: str | tuple[str, ...]) -> set[str]:
    """The places of a sentence, or of each of several."""
    sentences = (value,) if isinstance(value, str) else value
    return {name for sentence in sentences for _, name, _, _ in Formatter().parse(sentence) if name}


WITH_PLACES = [name for name in Wording.__struct_fields__ if places(getattr(Wording(), name))]


def test_the_default_sentences_can_be_filled() -> None:
    """What is shipped passes its own check, and sentences with places are many."""
    check_wording(Wording())
    assert len(WITH_PLACES) > 10


@pytest.mark.parametrize("name", WITH_PLACES)
def test_a_place_that_nobody_fills_is_named(name: str) -> None:
    """A sentence with another place is refused, and the message names the sentence and the places it may have."""
    default: str | tuple[str, ...] = getattr(Wording(), name)
    odd = "{nonsense}" if isinstance(default, str) else ("{nonsense}",) * len(default)
    with pytest.raises(ConfigError, match=f"wording.{name}: ") as raised:
        check_wording(msgspec.structs.replace(Wording(), **{name: odd}))
    assert all(f"{{{place}}}" in str(raised.value) for place in places(default))
