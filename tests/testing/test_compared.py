"""The helper that sees whether a test of retries compared the body of each call."""

import pytest

from support.compared import Comparing, check_compared, forget

ONE, TWO = {"a": 1}, {"a": 2}


def ended(*, calls: int = 2, asked: int = 1) -> Comparing:
    """A script of two calls for one request that has ended."""
    script = Comparing()
    script.end(calls, asked)
    return script


def test_whole_bodies_count() -> None:
    """Rule 118: each body is compared, alone or in a list, on either side of the sign."""
    bodies = ended().bodies([ONE, TWO])
    assert bodies == [ONE, TWO]
    check_compared()
    forget()
    first, second = ended().bodies([ONE, TWO])
    assert first == ONE
    assert TWO == second  # noqa: SIM300  the other way round
    check_compared()


@pytest.mark.parametrize("look", ["none", "count", "key", "substring", "one", "unequal"])
def test_less_does_not(look: str) -> None:
    """Rule 118: no look, a count, a key, a substring, one of two, or a difference is no comparison of both."""
    bodies = ended().bodies([ONE, TWO])
    match look:
        case "count":
            assert len(bodies) == 2
        case "key":
            assert [body["a"] for body in bodies] == [1, 2]
        case "substring":
            assert "1" in str(bodies[0])
        case "one":
            assert bodies[0] == ONE
        case "unequal":
            assert bodies[0] != TWO
            assert not bodies[1] == ONE  # noqa: SIM201  the other sign
        case _:
            pass
    missing = "2" if look == "one" else "1, 2"
    with pytest.raises(
        AssertionError, match=f"rule 118: of 2 upstream calls the bodies of {missing} were not compared"
    ):
        check_compared()
    forget()


def test_what_is_not_asked_about() -> None:
    """Rule 118: one call for each request needs no comparison, and what a test leaves has its reason."""
    ended(calls=3, asked=3)
    ended().leave("it is about something else")
    check_compared()
