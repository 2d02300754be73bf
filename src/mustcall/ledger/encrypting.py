"""Stored responses encrypted at rest: AES-256-GCM, by a key from the environment (rule 136).

`MUSTCALL_LEDGER_KEY` holds 32 random bytes in base64, as `openssl rand -base64 32` writes them. Several keys are
separated by commas: the first one encrypts, and all of them decrypt, so that a key can be replaced. What is decrypted
must be what was encrypted for the same response and column. Rows from before a key was set are read as they are.

It needs the extra `mustcall[encryption]`. Ids, dates and names of models are not encrypted: they are looked up.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from typing import Protocol

from mustcall.core.errors import ConfigError, LedgerBroken

__all__ = ["KEY", "PLAIN", "Cipher", "read_cipher"]

KEY = "MUSTCALL_LEDGER_KEY"
#: How encrypted bytes begin; stored JSON never does.
_MARK = b"\0mc1"
_NAME, _NONCE, _SIZE = 4, 12, 32


class Cipher(Protocol):
    """Encrypts and decrypts what is stored at a place."""

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return the bytes to be stored."""
        ...

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return what was stored; raise `LedgerBroken` if it cannot be read."""
        ...


class _Plain:
    """No encryption."""

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return them as they are."""
        del place
        return data

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return them as they are."""
        if data.startswith(_MARK):
            raise LedgerBroken(f"{place} is encrypted, and {KEY} is not set")
        return data


PLAIN: Cipher = _Plain()


class _Keyed:
    """AES-256-GCM. Before the ciphertext stand the mark, the key's name and the nonce."""

    def __init__(self, keys: list[bytes]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  an extra
        except ImportError:
            raise ConfigError(f"{KEY} is set, which needs an extra: pip install 'mustcall[encryption]'") from None
        self._ciphers = {hashlib.sha256(key).digest()[:_NAME]: AESGCM(key) for key in keys}
        self._first = next(iter(self._ciphers))

    def encrypt(self, data: bytes, place: str) -> bytes:
        """Return the bytes encrypted with the first key."""
        nonce = os.urandom(_NONCE)
        return _MARK + self._first + nonce + self._ciphers[self._first].encrypt(nonce, data, place.encode())

    def decrypt(self, data: bytes, place: str) -> bytes:
        """Return the bytes decrypted with their key."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  an extra

        if not data.startswith(_MARK):
            return data
        name, rest = data[len(_MARK) :][:_NAME], data[len(_MARK) + _NAME :]
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise LedgerBroken(f"{place} is encrypted with a key that {KEY} does not hold")
        try:
            return cipher.decrypt(rest[:_NONCE], rest[_NONCE:], place.encode())
        except (InvalidTag, ValueError):
            raise LedgerBroken(f"{place} was changed since it was encrypted, or is not whole") from None


def read_cipher(environment: Mapping[str, str] | None = None) -> Cipher:
    """Return the cipher of the key in the environment, `PLAIN` without one; raise `ConfigError`, which shows no key."""
    text = (os.environ if environment is None else environment).get(KEY, "")
    if not text.strip():
        return PLAIN
    keys: list[bytes] = []
    for number, each in enumerate(text.split(","), 1):
        try:
            key = base64.b64decode(each.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _SIZE:
            raise ConfigError(f"{KEY}: key {number} is not 32 bytes in base64; make one with `openssl rand -base64 32`")
        keys.append(key)
    return _Keyed(keys)
