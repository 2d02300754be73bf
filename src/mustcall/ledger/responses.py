"""Responses that callers go on from: stored with their parent, read back as a chain, found again by their items.

A chain is read by conversation and depth in one statement and its parents are walked in memory; a branch of the same
conversation is left out by the walk. A tenant sees its own responses only.
"""

from collections.abc import Sequence

from mustcall.core.errors import AlreadyRecorded
from mustcall.ledger.encrypting import PLAIN, Cipher
from mustcall.ledger.stores import statements as sql
from mustcall.ledger.stores.program import LedgerStatement, Program, Row, ask
from mustcall.ledger.values import StoredResponse

__all__ = ["are_held", "chain_of", "delete_response", "find_items", "get_response", "hold", "put_response"]


def _response(row: Row, cipher: Cipher) -> StoredResponse:
    return StoredResponse(
        id=row[0],
        conversation=row[1],
        parent=row[2],
        depth=row[3],
        wire=row[4],
        model=row[5],
        tenant=row[6],
        input=cipher.decrypt(bytes(row[7]), _place(row[0], "input")),
        body=cipher.decrypt(bytes(row[8]), _place(row[0], "body")),
        settings=cipher.decrypt(bytes(row[9]), _place(row[0], "settings")),
        created=row[10],
    )


def _place(response: str, column: str) -> str:
    """Return what encrypted bytes are bound to: nobody can put them into another response or column."""
    return f"response {response}: {column}"


def put_response(response: StoredResponse, cipher: Cipher = PLAIN) -> Program[None]:
    """Store a response, once; raise `AlreadyRecorded` if another one has its id. The same one again is no other."""
    values = {
        "id": response.id,
        "conversation": response.conversation,
        "parent": response.parent,
        "depth": response.depth,
        "wire": response.wire,
        "model": response.model,
        "tenant": response.tenant,
        "input": cipher.encrypt(response.input, _place(response.id, "input")),
        "body": cipher.encrypt(response.body, _place(response.id, "body")),
        "settings": cipher.encrypt(response.settings, _place(response.id, "settings")),
    }
    _, put, *_ = yield [
        LedgerStatement(sql.CONVERSATION_TOUCH, {"id": response.conversation}),
        LedgerStatement(sql.RESPONSE_PUT, values),
        *(LedgerStatement(sql.ITEM_PUT, {"id": item, "response": response.id}) for item in response.items),
    ]
    if put:
        return
    there = yield from get_response(response.id, response.tenant, cipher)
    if there is None or (there.input, there.body) != (response.input, response.body):
        raise AlreadyRecorded(f"another response is stored under the id {response.id!r}; this one is not")


def get_response(response: str, tenant: str, cipher: Cipher = PLAIN) -> Program[StoredResponse | None]:
    """Return a response."""
    rows = yield from ask(sql.RESPONSE_GET, id=response, tenant=tenant)
    return _response(rows[0], cipher) if rows else None


def delete_response(response: str, tenant: str) -> Program[bool]:
    """Delete a response; False if there is none. What was said after it can no longer be gone on from."""
    rows = yield from ask(sql.RESPONSE_DELETE, id=response, tenant=tenant)
    if rows:
        yield from ask(sql.ITEM_DELETE, response=response)
    return bool(rows)


def chain_of(response: str, tenant: str, cipher: Cipher = PLAIN) -> Program[list[StoredResponse] | None]:
    """Return a response and all before it, the first one first; None if it, or one before it, is not there."""
    rows = yield from ask(sql.RESPONSE_GET, id=response, tenant=tenant)
    if not rows:
        return None
    last = _response(rows[0], cipher)
    if last.parent is None:
        return [last]
    rows = yield from ask(sql.RESPONSE_CHAIN, conversation=last.conversation, depth=last.depth, tenant=tenant)
    known = {row[0]: row for row in rows}
    chain = [last]
    while chain[-1].parent is not None:
        row = known.pop(chain[-1].parent, None)
        if row is None:
            return None
        chain.append(_response(row, cipher))
    chain.reverse()
    return chain


def find_items(items: tuple[str, ...], tenant: str, cipher: Cipher = PLAIN) -> Program[dict[str, StoredResponse]]:
    """Return, for each item that is known, the newest response that has it."""
    answers = yield [LedgerStatement(sql.ITEM_FIND, {"id": item, "tenant": tenant}) for item in items]
    return {item: _response(rows[0], cipher) for item, rows in zip(items, answers, strict=True) if rows}


def hold(identifiers: Sequence[str], tenant: str) -> Program[None]:
    """Note whose the ids of a response are that is kept elsewhere; who had one first has it."""
    yield [LedgerStatement(sql.HOLDER_PUT, {"id": one, "tenant": tenant}) for one in identifiers]


def are_held(identifiers: Sequence[str], tenant: str) -> Program[bool]:
    """Tell whether all these ids are this tenant's."""
    answers = yield [LedgerStatement(sql.HOLDER_GET, {"id": one, "tenant": tenant}) for one in identifiers]
    return all(answers)
