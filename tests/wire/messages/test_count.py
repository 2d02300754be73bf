"""The token estimate and the bodies of count_tokens."""

import json
from typing import Any

import pytest

from mustcall.core.errors import UpstreamGarbage
from mustcall.wire.messages import MessagesCodec, decode_count, encode_count, estimate_tokens

Shapes = dict[str, dict[str, Any]]


def estimate(shape: dict[str, Any]) -> int:
    """Estimate a body."""
    return estimate_tokens(MessagesCodec().decode_request(json.dumps(shape).encode()))


def test_four_characters_a_token() -> None:
    """400 characters are 100 tokens, and a message has a small cost of its own."""
    message = {"role": "user", "content": "x" * 400}
    assert estimate({"model": "m", "messages": [message]}) == 104
    assert estimate({"model": "m", "messages": [message, message]}) == 208


def test_images_cost_the_same_whatever_their_size() -> None:
    """An image has a fixed price, not one by its base64 length."""

    def with_image(size: int) -> int:
        source = {"type": "base64", "media_type": "image/png", "data": "A" * size}
        return estimate(
            {"model": "m", "messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
        )

    assert with_image(4) == with_image(400_000) == 1004


def test_tools_count_by_their_json() -> None:
    """A tool costs its description and schema."""
    plain: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    tool = {"name": "abcd", "description": "y" * 40, "input_schema": {"type": "object"}}
    # 4 + 40 + len('{"type":"object"}') = 61 characters, 62 with the message's one: 16 tokens, not 1; plus 8.
    assert estimate({**plain, "tools": [tool]}) - estimate(plain) == 23


def test_every_shape_can_be_counted(request_shape: dict[str, Any]) -> None:
    """Every recorded request has a count, missing max_tokens or not."""
    assert estimate(request_shape) >= 1


def test_count_bodies() -> None:
    """The reply of count_tokens in both directions."""
    assert decode_count(json.dumps(encode_count(7)).encode()) == 7
    for body in (b"", b"{}", b'{"input_tokens":"x"}', b'{"input_tokens":-1}'):
        with pytest.raises(UpstreamGarbage):
            decode_count(body)
