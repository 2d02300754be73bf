"""Which upstream serves a model."""

import pytest

from mustcall.core.errors import UnknownModel
from mustcall.core.origin import Wire
from mustcall.policy.facts.routing import Destination, Route, WireEndpoint, choose

DOORS = (WireEndpoint("open", Wire.CHAT), WireEndpoint("claude", Wire.MESSAGES))
ROUTES = (
    Route(model="gpt-*", upstream="open"),
    Route(model="fast", upstream="open", send_as="gpt-4.1-mini"),
    Route(model="claude-*", upstream="claude"),
)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-5", Destination("open", "gpt-5")),
        ("fast", Destination("open", "gpt-4.1-mini")),
        ("claude-opus-4", Destination("claude", "claude-opus-4")),
    ],
)
def test_first_matching_route_wins(model: str, expected: Destination) -> None:
    """A pattern keeps the name, an alias sends another."""
    assert choose(model, Wire.CHAT, ROUTES, DOORS) == expected


def test_no_matching_route_names_what_exists() -> None:
    """With routes configured nothing else is served, and the message says what is."""
    with pytest.raises(UnknownModel, match=r"'llama'.*gpt-\*, fast, claude-\*"):
        choose("llama", Wire.CHAT, ROUTES, DOORS)


def test_patterns_match_case_exactly() -> None:
    """Model names are identifiers: `GPT-5` is not `gpt-5`."""
    with pytest.raises(UnknownModel):
        choose("GPT-5", Wire.CHAT, ROUTES, DOORS)


def test_without_routes_the_callers_wire_decides() -> None:
    """The lossless way is preferred; every name is served."""
    assert choose("m", Wire.MESSAGES, (), DOORS) == Destination("claude", "m")
    assert choose("m", Wire.CHAT, (), DOORS) == Destination("open", "m")
    assert choose("m", Wire.RESPONSES, (), DOORS) == Destination("open", "m")


def test_without_routes_a_prefix_names_the_upstream() -> None:
    """`claude/m` goes to the upstream called claude, as `m`; an unknown prefix is part of the name."""
    assert choose("claude/m", Wire.CHAT, (), DOORS) == Destination("claude", "m")
    assert choose("meta/llama", Wire.CHAT, (), DOORS) == Destination("open", "meta/llama")
    assert choose("claude/", Wire.CHAT, (), DOORS) == Destination("open", "claude/")


def test_no_upstream_at_all() -> None:
    """Nothing to serve from is an error that names the model."""
    with pytest.raises(UnknownModel, match="'m'"):
        choose("m", Wire.CHAT, (), ())


# --- upstreams with a model of their own ----------------------------------------------------------------------------

OWN = (WireEndpoint("openai", Wire.RESPONSES, "gpt-5"), WireEndpoint("ollama", Wire.CHAT, "qwen3"))


@pytest.mark.parametrize(
    ("model", "caller", "expected"),
    [
        ("gpt-5", Wire.CHAT, Destination("openai", "gpt-5")),
        ("qwen3", Wire.MESSAGES, Destination("ollama", "qwen3")),
        ("claude-opus-4", Wire.MESSAGES, Destination("openai", "gpt-5", stands_in=True)),
        ("claude-opus-4", Wire.CHAT, Destination("ollama", "qwen3", stands_in=True)),
        ("openai/gpt-5-mini", Wire.CHAT, Destination("openai", "gpt-5-mini")),
    ],
)
def test_an_upstream_with_a_model_of_its_own(model: str, caller: Wire, expected: Destination) -> None:
    """Its model's name selects it, any other name is asked as its model; `upstream/model` is taken at its word."""
    assert choose(model, caller, (), OWN) == expected


def test_names_go_to_an_upstream_that_takes_any() -> None:
    """A model of an upstream stands in only where no upstream takes every name."""
    doors = (*OWN, WireEndpoint("any", Wire.MESSAGES))
    assert choose("llama", Wire.CHAT, (), doors) == Destination("any", "llama")
    assert choose("gpt-5", Wire.CHAT, (), doors) == Destination("openai", "gpt-5")


def test_routes_over_a_model_of_ones_own() -> None:
    """A route sends as it says, else as the upstream's model, else as asked."""
    routes = (Route(model="fast", upstream="openai", send_as="gpt-5-mini"), Route(model="*", upstream="openai"))
    assert choose("fast", Wire.CHAT, routes, OWN) == Destination("openai", "gpt-5-mini")
    assert choose("claude-opus-4", Wire.CHAT, routes, OWN) == Destination("openai", "gpt-5")


def test_verbatim() -> None:
    """Who asks for exactly this model gets no other, and an upstream's own is still found by its name."""
    assert choose("gpt-5-mini", Wire.RESPONSES, (), OWN, verbatim=True) == Destination("openai", "gpt-5-mini")
    assert choose("qwen3", Wire.RESPONSES, (), OWN, verbatim=True) == Destination("ollama", "qwen3")
    routes = (Route(model="*", upstream="openai"),)
    assert choose("m", Wire.CHAT, routes, OWN, verbatim=True) == Destination("openai", "m")
