"""Stored responses encrypted at rest: what is on the disk, whose key opens it, and what is said when none does."""

import base64
import sys
from pathlib import Path

import msgspec
import pytest

from mustcall.core.errors import AlreadyRecorded, ConfigError, LedgerBroken
from mustcall.ledger.encrypting import KEY, PLAIN, Cipher, read_cipher
from mustcall.ledger.ledger import Ledger
from mustcall.ledger.stores.sqlite import SqliteStore
from mustcall.ledger.values import StoredResponse

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
PLACE = "response r: body"
RESPONSE = StoredResponse(
    id="resp_1",
    conversation="c",
    parent=None,
    depth=0,
    wire="responses",
    model="m",
    tenant="t",
    input=b'["vermilion"]',
    body=b'{"text":"ultramarine"}',
    settings=b"{}",
    items=("msg_1",),
)


def cipher(*keys: str) -> Cipher:
    """The cipher of these keys."""
    return read_cipher({KEY: ", ".join(keys)})


@pytest.mark.parametrize("data", [b"", b"x", b"\0", b"ultramarine" * 1000])
def test_what_goes_in_comes_out(data: bytes) -> None:
    """Rule 136: nothing of it can be seen, and twice the same text is never the same bytes."""
    one, other = (cipher(NEW).encrypt(data, PLACE) for _ in range(2))
    assert one != other
    assert b"ultramarine" not in one
    assert [cipher(NEW).decrypt(each, PLACE) for each in (one, other)] == [data, data]


def test_keys_can_be_replaced() -> None:
    """The first key encrypts, all decrypt; without its key nothing is read."""
    old = cipher(OLD).encrypt(b"x", PLACE)
    both = cipher(NEW, OLD)
    assert both.decrypt(old, PLACE) == b"x"
    assert cipher(NEW).decrypt(both.encrypt(b"y", PLACE), PLACE) == b"y"
    with pytest.raises(LedgerBroken, match="a key that MUSTCALL_LEDGER_KEY does not hold"):
        cipher(NEW).decrypt(old, PLACE)
    with pytest.raises(LedgerBroken, match="MUSTCALL_LEDGER_KEY is not set"):
        PLAIN.decrypt(old, PLACE)


def test_what_was_changed_is_not_read() -> None:
    """Bytes of another place, changed or cut off at any byte, are refused and never returned."""
    stored = cipher(NEW).encrypt(b"ultramarine", PLACE)
    with pytest.raises(LedgerBroken, match="was changed"):
        cipher(NEW).decrypt(stored, "response s: body")
    for at in range(8, len(stored)):
        for bad in (stored[:at], stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]):
            with pytest.raises(LedgerBroken, match="was changed"):
                cipher(NEW).decrypt(bad, PLACE)


def test_what_was_stored_before_is_read() -> None:
    """A ledger from before there was a key goes on as it is."""
    assert cipher(NEW).decrypt(b'{"text":"x"}', PLACE) == b'{"text":"x"}'
    assert read_cipher({}) is read_cipher({KEY: " "}) is PLAIN
    assert PLAIN.decrypt(PLAIN.encrypt(b"x", PLACE), PLACE) == b"x"


@pytest.mark.parametrize("text", ["secret", "c2hvcnQ=", f"{NEW},", f"{NEW},secret", NEW[:-4]])
def test_a_key_that_is_none(text: str) -> None:
    """Rule 136: it is refused with what a key is, and not shown."""
    with pytest.raises(ConfigError, match="is not 32 bytes in base64") as caught:
        read_cipher({KEY: text})
    assert "secret" not in str(caught.value)
    assert NEW not in str(caught.value)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that cannot be used is said at the start, with the fix: nothing is stored in clear instead."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigError, match=r"mustcall\[encryption\]"):
        cipher(NEW)


async def test_a_ledger_with_a_key(tmp_path: Path) -> None:
    """Rule 136: one response is read alone, in its chain and by its items; the same one again is no other."""
    store = SqliteStore(tmp_path / "l.db")
    async with Ledger(store, cipher=cipher(NEW)) as ledger:
        await ledger.put_response(RESPONSE)
        await ledger.put_response(RESPONSE)
        with pytest.raises(AlreadyRecorded):
            await ledger.put_response(msgspec.structs.replace(RESPONSE, body=b"{}"))
        alone = await ledger.get_response("resp_1", "t")
        chain = await ledger.chain("resp_1", "t")
        found = await ledger.find_items(["msg_1"], "t")
        assert chain is not None
        for one in (alone, chain[0], found["msg_1"]):
            assert one is not None
            assert (one.input, one.body, one.settings) == (RESPONSE.input, RESPONSE.body, RESPONSE.settings)
    written = _written(tmp_path)
    assert b"resp_1" in written
    assert not any(word in written for word in (b"vermilion", b"ultramarine"))
    async with Ledger(SqliteStore(tmp_path / "l.db")) as plain:
        with pytest.raises(LedgerBroken, match="MUSTCALL_LEDGER_KEY is not set"):
            await plain.get_response("resp_1", "t")


def _written(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("l.db*"))
