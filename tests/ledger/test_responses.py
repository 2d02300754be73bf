"""Responses: chains, branches, tenants, items."""

import asyncio

import msgspec
import pytest

from mustcall.core.errors import AlreadyRecorded
from mustcall.ledger import Ledger, StoredResponse, open_ledger


def response(name: str, parent: StoredResponse | None = None, **changes: object) -> StoredResponse:
    """A response after its parent, in the same conversation."""
    made = StoredResponse(
        id=name,
        conversation=parent.conversation if parent else f"conv_{name}",
        parent=parent.id if parent else None,
        depth=parent.depth + 1 if parent else 0,
        wire="responses",
        model="m",
        tenant="t",
        input=f'["{name}"]'.encode(),
        body=b"{}",
    )
    return msgspec.structs.replace(made, **changes)


async def test_a_chain_is_read_from_its_beginning(ledger: Ledger) -> None:
    """Rule 78: a response brings all before it and nothing of another branch."""
    first = response("first")
    second = response("second", first)
    branch = response("branch", first)
    third = response("third", second)
    for one in (first, second, branch, third):
        await ledger.put_response(one)
    assert [one.id for one in await ledger.chain("third", "t") or []] == ["first", "second", "third"]
    assert [one.id for one in await ledger.chain("branch", "t") or []] == ["first", "branch"]
    assert [one.id for one in await ledger.chain("first", "t") or []] == ["first"]


async def test_a_response_comes_back_as_it_was_put(ledger: Ledger) -> None:
    """Every byte and field; the same put again changes nothing, another one under its id is refused and said."""
    odd = response("r", input=bytes(range(256)), body='{"ü":"\\ud800"}'.encode(), settings=b"[1]")
    await ledger.put_response(odd)
    await ledger.put_response(odd)
    for other in ({"body": b"other"}, {"tenant": "u"}):
        with pytest.raises(AlreadyRecorded, match="another response is stored under the id 'r'"):
            await ledger.put_response(msgspec.structs.replace(odd, items=("msg_9",), **other))
    assert await ledger.find_items(["msg_9"], "t") == {}
    found = await ledger.get_response("r", "t")
    assert found is not None
    assert found.created > 0
    assert msgspec.structs.replace(found, created=0.0) == odd


async def test_a_tenant_sees_its_own_only(ledger: Ledger) -> None:
    """Another key's response is not there: to get, to delete, to go on from, to refer to."""
    await ledger.put_response(response("r", items=("msg_1",)))
    assert await ledger.get_response("r", "other") is None
    assert await ledger.chain("r", "other") is None
    assert await ledger.find_items(["msg_1"], "other") == {}
    assert await ledger.delete_response("r", "other") is False
    assert await ledger.get_response("r", "t") is not None


async def test_what_follows_a_deleted_response_is_lost(ledger: Ledger) -> None:
    """A chain with a hole is not a chain."""
    first = response("first")
    await ledger.put_response(first)
    await ledger.put_response(response("second", first))
    assert await ledger.delete_response("first", "t") is True
    assert await ledger.delete_response("first", "t") is False
    assert await ledger.get_response("first", "t") is None
    assert await ledger.chain("second", "t") is None


async def test_items_are_found_by_their_id(ledger: Ledger) -> None:
    """A reference leads to the response that has the item; a deleted one has none."""
    await ledger.put_response(response("a", items=("msg_1", "fc_1")))
    await ledger.put_response(response("b", items=("msg_2",)))
    found = await ledger.find_items(["fc_1", "msg_2", "gone"], "t")
    assert {item: one.id for item, one in found.items()} == {"fc_1": "a", "msg_2": "b"}
    await ledger.delete_response("a", "t")
    assert await ledger.find_items(["fc_1"], "t") == {}
    assert await ledger.find_items([], "t") == {}


async def test_a_long_chain_is_walked(ledger: Ledger) -> None:
    """Two hundred turns come in order."""
    before: StoredResponse | None = None
    chain: list[StoredResponse] = []
    for number in range(200):
        before = response(f"r{number}", before)
        chain.append(before)
    await asyncio.gather(*map(ledger.put_response, chain))
    read = await ledger.chain("r199", "t")
    assert [one.id for one in read or []] == [one.id for one in chain]


async def test_another_replica_reads_what_one_wrote(place: str) -> None:
    """Two openings of one ledger are one ledger."""
    async with open_ledger(place) as one, open_ledger(place) as other:
        first = response("first")
        await one.put_response(first)
        await other.put_response(response("second", first))
        assert [found.id for found in await one.chain("second", "t") or []] == ["first", "second"]


async def test_what_is_kept_elsewhere_has_one_holder(ledger: Ledger) -> None:
    """Ids of an upstream's own responses belong to who got them first, all of them or it is no answer."""
    await ledger.hold(["resp_1", "msg_1"], "a")
    await ledger.hold(["resp_1", "msg_2"], "b")
    assert await ledger.are_held(["resp_1", "msg_1"], "a") is True
    assert await ledger.are_held(["resp_1"], "b") is False
    assert await ledger.are_held(["msg_1", "msg_2"], "a") is False
    assert await ledger.are_held(["\0"], "a") is False
