"""Reasoning state of one wire, carried through the clients of another.

A client hands reasoning back in the one slot its wire has for it (a signature, encrypted content). State that a
different wire issued is put into that slot as a sealed string that says which wire and upstream it belongs to; when
it returns, it is unsealed and given back only to its issuer (rule 124). The seal hides nothing and proves nothing:
what is inside is already opaque and already in the client's hands.
"""

import base64
import binascii

import msgspec

from mustcall.core.parts import OpaqueState

__all__ = ["SEAL_PREFIX", "holds_seal", "open_state", "seal", "unseal"]

SEAL_PREFIX = "mc1."

_SEALED = f'"{SEAL_PREFIX}'.encode()

_decoder = msgspec.json.Decoder(OpaqueState)


def seal(state: OpaqueState) -> str:
    """Write state as one string that any client carries back unchanged."""
    return SEAL_PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(state)).decode()


def unseal(text: str) -> OpaqueState | None:
    """Read a sealed string; None for anything else."""
    if not text.startswith(SEAL_PREFIX):
        return None
    try:
        return _decoder.decode(base64.b64decode(text[len(SEAL_PREFIX) :].encode(), altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, ValueError, RecursionError):
        return None


def holds_seal(body: bytes) -> bool:
    """Tell whether a body may hold a sealed string, so that its bytes must not be forwarded as they are."""
    return _SEALED in body


def open_state(state: OpaqueState | None, form: object, issuer: str) -> OpaqueState | None:
    """Return the state if the upstream it is meant for can read it: same wire, same issuer (or issuer unknown)."""
    if state is None or state.form is not form:
        return None
    return state if not state.issuer or state.issuer == issuer else None
