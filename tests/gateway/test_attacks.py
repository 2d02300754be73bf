"""The short set of attacks: typed answers, a process that lives and stays small. tools/attack.py has all of them."""

import sys
from collections.abc import Generator

import pytest
from attack import MOST_MEMORY, running_gateway, running_upstream
from attacks import ALL
from attacks.measuring import forget_memory, memory_of
from attacks.sending import Attack, Place, turn

if sys.platform != "linux":
    pytest.skip("memory is read from /proc", allow_module_level=True)

QUICK = [one for one in ALL if one.quick]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[int, Place]]:
    """A gateway of limited memory in front of a hostile upstream: its process and its address."""
    with (
        running_upstream() as (_, port),
        running_gateway(port, tmp_path_factory.mktemp("attacked")) as (process, place),
    ):
        yield process.pid, place


@pytest.mark.parametrize("one", QUICK, ids=[one.name for one in QUICK])
def test_an_attack_is_answered_and_others_are_served(one: Attack, attacked: tuple[int, Place]) -> None:
    """A typed answer or a closed connection, memory under 400 MB, and the next request is served."""
    pid, place = attacked
    forget_memory(pid)
    assert one.run(place) <= one.expected
    assert memory_of(pid) < MOST_MEMORY
    assert turn(place, "good") == 200


def test_there_are_attacks_of_every_kind() -> None:
    """Rule 118: every finding has its attack, a hundred more are generated, and each has a name of its own."""
    assert len({one.name for one in ALL}) == len(ALL) > 110
    assert len(QUICK) > 20
