"""What is masked."""

import msgspec
import pytest

from mustcall.ledger.redacting import keep, redact
from mustcall.ledger.values import ContentsKept


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("my key is sk-proj-abcdefghijklmnop1234", "my key is [redacted key]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted key]"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer [redacted token]"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.sig_na-ture", "[redacted token]"),
        ("postgresql://me:hunter2@db/x", "postgresql://me:[redacted password]@db/x"),
        ("say password: hunter2", "say password: [redacted secret]"),
        ("api_key=abcd1234", "api_key=[redacted secret]"),
        ("write to ann.lee+x@mail.example.com now", "write to [redacted email] now"),
        ("card 4111 1111 1111 1111.", "card [redacted number]."),
        ("a\n-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted private key]\nb"),
        ("at 2026-11-15, 42 files, v1.2.3, id call_abc", "at 2026-11-15, 42 files, v1.2.3, id call_abc"),
    ],
)
def test_masks(text: str, masked: str) -> None:
    """Rule 136: secrets and personal marks go, in JSON texts and in plain text; ordinary text stays."""
    assert msgspec.json.decode(redact(msgspec.json.encode({"a": [text]}))) == {"a": [masked]}
    assert redact(text.encode()) == masked.encode()


def test_json_stays_json() -> None:
    """Numbers, names and structure are untouched; a field that names a secret loses its text."""
    body = b'{"created":1700000000123456,"authorization":"anything","n":null,"list":[1.5,true]}'
    assert (
        redact(body) == b'{"created":1700000000123456,"authorization":"[redacted secret]","n":null,"list":[1.5,true]}'
    )


def test_settings() -> None:
    """Kept, masked or dropped."""
    body = b'"ann@example.com"'
    assert [keep(body, setting) for setting in (ContentsKept.FULL, ContentsKept.REDACTED, ContentsKept.NONE)] == [
        body,
        b'"[redacted email]"',
        b"",
    ]
    assert redact(b"") == b""
    assert redact(b"\xff ann@example.com") == "\ufffd [redacted email]".encode()


@pytest.mark.parametrize("begin", [b"data: ", b"event: x\ndata: ", b": ping\n\ndata: ", b"\r\nid: 1\ndata: "])
def test_streams_are_not_masked_piece_by_piece(begin: bytes) -> None:
    """Rule 136: a secret spread over the events of a stream is found by no pattern, so none of the stream is kept."""
    stream = begin + b'{"t":"sk-proj-abcd"}\n\ndata: {"t":"efghijklmnop1234"}\n\n'
    assert keep(stream, ContentsKept.REDACTED) == b""
    assert keep(stream, ContentsKept.FULL) == stream
