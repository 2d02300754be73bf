"""`data:` URLs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.wire.dataurl import from_data_url, to_data_url


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("data:image/png;base64,AAAA", ("image/png", "AAAA")),
        ("DATA:image/png;BASE64,AAAA", ("image/png", "AAAA")),
        ("data:text/plain;charset=utf-8;base64,QQ==", ("text/plain", "QQ==")),
        ("data:;base64,QQ==", ("application/octet-stream", "QQ==")),
        ("data:image/png;base64,", ("image/png", "")),
        ("data:text/plain,hello", None),
        ("https://example.com/a.png", None),
        ("", None),
    ],
)
def test_reading(url: str, parsed: tuple[str, str] | None) -> None:
    """Only base64 data URLs are taken apart."""
    assert from_data_url(url) == parsed


@given(st.from_regex(r"[a-z]+/[a-z.+-]+", fullmatch=True), st.from_regex(r"[A-Za-z0-9+/]*={0,2}", fullmatch=True))
def test_round_trip(media_type: str, data: str) -> None:
    """What is written is read back."""
    assert from_data_url(to_data_url(media_type, data)) == (media_type, data)


def test_unknown_media_type() -> None:
    """Data without a type is written as bytes of any kind."""
    assert to_data_url(None, "QQ==") == "data:application/octet-stream;base64,QQ=="
