"""Rule 124: reasoning state travels through clients of another wire and returns only to its issuer."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.core.parts import OpaqueState
from mustcall.wire.crossing.sealing import SEAL_PREFIX, open_state, seal, unseal

_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(Wire), _json, st.text())
def test_sealed_state_comes_back(form: Wire, data: object, issuer: str) -> None:
    """Rule 124: the state is the same to the last byte after its trip."""
    state = OpaqueState(form, data, issuer)
    sealed = seal(state)
    assert sealed.startswith(SEAL_PREFIX)
    assert sealed.isascii()
    assert unseal(sealed) == state


@given(
    st.text()
    | st.text().map(lambda text: SEAL_PREFIX + text)
    | st.binary().map(lambda data: SEAL_PREFIX + base64.urlsafe_b64encode(data).decode())
)
def test_anything_else_is_no_seal(text: str) -> None:
    """Rule 124: a foreign, cut or forged string never raises and is never state."""
    assert unseal(text) is None


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"form":"chat"}',
        b'{"form":"smoke","data":1}',
        b'{"form":"chat","data":1,"issuer":2}',
        b"[" * 9999,
    ],
)
def test_sealed_nonsense(body: bytes) -> None:
    """Rule 124: what is sealed must be state."""
    assert unseal(SEAL_PREFIX + base64.urlsafe_b64encode(body).decode()) is None


def test_cut_seal_is_none() -> None:
    """Rule 124: a partial block is never sent."""
    sealed = seal(OpaqueState(Wire.MESSAGES, {"signature": "s" * 40}, "up"))
    assert all(unseal(sealed[:length]) is None for length in range(len(sealed)))


@pytest.mark.parametrize(
    ("state", "opened"),
    [
        (OpaqueState(Wire.CHAT, 1, "up"), True),
        (OpaqueState(Wire.CHAT, 1, ""), True),
        (OpaqueState(Wire.CHAT, 1, "other"), False),
        (OpaqueState(Wire.MESSAGES, 1, "up"), False),
        (None, False),
    ],
)
def test_only_the_issuer_opens(state: OpaqueState | None, opened: bool) -> None:
    """Rule 124: state goes to its own wire and its own issuer, or where its maker is not known."""
    assert open_state(state, Wire.CHAT, "up") is (state if opened else None)
