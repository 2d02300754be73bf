"""Raw replies: what was read is kept, attempt by attempt, up to a limit, and only for who asked."""

import pytest

from mustcall.gateway.state.raw_replies import MOST_RAW, Tap, raw_replies


@pytest.mark.parametrize("size", [1, 7, 100_000, MOST_RAW, MOST_RAW + 1])
def test_a_reply_is_kept_up_to_the_limit(size: int) -> None:
    """However it came in pieces, the first million bytes are kept, and a longer one says that it was cut."""
    whole = bytes(range(256)) * 4000  # 1,024,000 bytes
    tap = Tap()
    for start in range(0, len(whole), max(size, 1000)):
        tap.add(whole[start : start + max(size, 1000)])
    kept = tap.read()
    assert kept.startswith(whole[:MOST_RAW])
    assert kept[MOST_RAW:].startswith(b"\n[cut here")
    short = Tap()
    short.add(b"a")
    short.add(b"b")
    assert short.read() == b"ab"


def test_a_reply_of_exactly_the_limit_is_not_cut() -> None:
    """The note is for what is missing."""
    tap = Tap()
    tap.add(b"x" * MOST_RAW)
    assert tap.read() == b"x" * MOST_RAW
    tap.add(b"y")
    assert tap.read().endswith(b"bytes are kept]")


def test_an_attempt_has_the_reply_of_its_last_call() -> None:
    """Calls are counted by attempt; what is not there is nothing."""
    taps = [Tap() for _ in range(3)]
    for number, tap in enumerate(taps):
        tap.add(b"%d" % number)
    assert raw_replies(taps, [2, 1]) == [b"1", b"2"]
    assert raw_replies(taps, [1, 1, 1, 1]) == [b"0", b"1", b"2", b""]
    assert raw_replies([], [1]) == [b""]
