"""Settings of a turn as code writes them."""

from enum import StrEnum
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import ConfigError
from mustcall.policy.facts.controls import Controls, OnUnmet, OtherTool, Salvage
from mustcall.policy.facts.profile import Protocol


@pytest.mark.parametrize(
    ("name", "kind"), [("protocol", Protocol), ("on_unmet", OnUnmet), ("other_tool", OtherTool), ("salvage", Salvage)]
)
def test_words_are_taken_for_their_values(name: str, kind: type[StrEnum]) -> None:
    """A word that is no member would be compared by identity, and mean the default without a sign of it."""
    for value in kind:
        given: dict[str, Any] = {name: str(value)}
        assert getattr(Controls(**given), name) is value
        assert getattr(msgspec.structs.replace(Controls(), **given), name) is value
        assert getattr(msgspec.convert(given, Controls), name) is value
    wrong: dict[str, Any] = {name: "anser"}
    with pytest.raises(ConfigError, match=f"{name} is 'anser'; it can be '{next(iter(kind))}'"):
        Controls(**wrong)


def test_only_the_protocol_may_be_none() -> None:
    """Then the profile decides; the others have no such value."""
    assert Controls(protocol=None).protocol is None
    nothing: dict[str, Any] = {"on_unmet": None}
    with pytest.raises(ConfigError, match="on_unmet is None; it can be 'answer', 'error'"):
        Controls(**nothing)
