"""Coordination on the real embedded model: no server, no key."""

from collections.abc import Generator

import pytest

from mustcall import Options, Upstream, coordinate
from mustcall.engine.coordinating import Critique, Proposal, RoleKind, Synthesis
from support.answered import kept_answers
from support.embedded import BASE_URL, readied

KINDS = {RoleKind.PROPOSER: Proposal, RoleKind.CRITIC: Critique, RoleKind.SYNTHESIZER: Synthesis}


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Generator[None]:
    """What the model was asked before is answered from its kept answers."""
    with kept_answers():
        yield


async def test_every_role_hands_over_its_envelope() -> None:
    """The smallest of models plays every role: whatever it says fits the role's schema."""
    readied()
    where = Upstream(f"chat={BASE_URL}", model="local")
    result = await coordinate(
        "What is the capital of Norway?",
        proposer=where,
        critics=[where],
        synthesizer=where,
        options=Options(max_tokens=400),
    )
    assert [type(role.output) for role in result.roles] == [KINDS[role.role] for role in result.roles]
    assert result.answer
