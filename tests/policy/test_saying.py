import pytest

from mustcall.core.message import Message, Role
from mustcall.core.parts import Text
from mustcall.core.request import Request
from mustcall.policy.facts.wording import Wording
from mustcall.policy.words.user_text import said_by_user, without_demands

DEMANDS = [sentence.replace("{tool}", "get_weather") for sentence in (*Wording().call_named, *Wording().call_any)]


def talk(*turns: tuple[str, str]) -> Request:
    """A conversation."""
    return Request(
        model="m", messages=tuple(Message(role=Role(role), parts=(Text(text=text),)) for role, text in turns)
    )


@pytest.mark.parametrize("demand", DEMANDS)
def test_demands_of_ours_are_not_the_users_words(demand: str) -> None:
    """A demand behind the message, in a turn of its own or in the same one, is taken away and never quoted."""
    own = talk(("user", "Is it cold in Oslo?"))
    asked = talk(("user", "Is it cold in Oslo?"), ("user", demand))
    assert without_demands(asked).messages == own.messages
    assert said_by_user(asked) == ("Is it cold in Oslo?",)
    joined = own.evolve(messages=(own.messages[0].evolve(parts=(*own.messages[0].parts, Text(text=demand))),))
    assert said_by_user(joined) == ("Is it cold in Oslo?",)


def test_everything_the_user_said_counts() -> None:
    """The latest message comes first, earlier ones follow, and what the model said is not the user's."""
    request = talk(("user", "I live in Oslo."), ("assistant", "Shall I look in Bergen?"), ("user", "Yes please"))
    assert said_by_user(request) == ("Yes please", "I live in Oslo.")


def test_other_requests_stay_what_they_are() -> None:
    """A request that ends in the user's own words, or in nothing but a demand, is the same object."""
    for request in (talk(("user", "Use the tool I gave you.")), talk(("user", DEMANDS[0])), talk()):
        assert without_demands(request) is request
