"""The text of pages: characters, and the words of HTML."""

import pytest

from mustcall.toolkit.builtin.pages import is_text, page_text


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"caf\xe9", "text/plain; charset=latin-1", "café"),
        (b"caf\xc3\xa9", "text/plain", "café"),
        (b"a\xff", "text/plain; charset=no-such-thing", "a\ufffd"),
        (b"\x83e\x83X\x83g", "text/plain; charset=Shift_JIS", "テスト"),
        (b"\xf4\xc5\xd3\xd4", "text/plain; charset=koi8-r", "Тест"),
        ("中文".encode("gb18030"), "text/plain; charset=gb18030", "中文"),
        ("中文".encode("big5"), "text/plain; charset=Big5", "中文"),
        ("é".encode("utf-16"), "text/plain; charset=utf-16", "é"),
        (b"\x93a\x94", "text/plain; charset=windows-1252", "“a”"),
        (b'{"a": "<b>"}', "application/json", '{"a": "<b>"}'),
        (b"<p>a</p>", "text/plain", "<p>a</p>"),
        (b"<p>a<br>b</p><ul><li>c<li>d</ul>", "text/html", "a\nb\nc\nd"),
        (b"<!DOCTYPE html><p>a", "", "a"),
        (b"1 < 2 <b>and</b> 3<4", "text/html", "1 < 2 and 3<4"),
        (b"a<SCRIPT>b</script >c<style/>d", "text/html", "acd"),
        (b"a<script>never closed", "text/html", "a"),
        (b"a<p unfinished", "text/html", "a"),
        (b"a<!-- <p>b --> c<?php d ?>e", "text/html", "a ce"),
        ("ẞ<script>x</script>İ<p>b".encode(), "text/html", "ẞİ\nb"),
        (b"", "text/html", ""),
    ],
)
def test_texts(body: bytes, kind: str, text: str) -> None:
    """What people read is left."""
    assert page_text(body, kind) == text


@pytest.mark.parametrize("codec", ["punycode", "idna", "undefined", "unicode_escape", "utf-7", "rot13", "zlib", "hex"])
def test_codecs_that_no_page_is_written_in(codec: str) -> None:
    """A server cannot name a codec that fails, or that takes the square of a page's length: it is read as UTF-8."""
    body = b"a" * 10 + b"-" + b"+b\\x41" * 200
    assert page_text(body, f"text/plain; charset={codec}") == body.decode()


@pytest.mark.parametrize("piece", ["<script>", "<!--", "<p", "<", "<script/", "</script", "<svg><style>"])
def test_hostile_pages_take_no_time(piece: str) -> None:
    """A page made of beginnings is read in one pass: a hundred kilobytes of it end."""
    assert len(page_text(piece.encode() * (100_000 // len(piece)), "text/html")) <= 100_000


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("text/html", True),
        ("application/json; charset=utf-8", True),
        ("application/ld+json", True),
        ("application/xhtml+xml", True),
        ("", True),
        ("application/octet-stream", False),
        ("image/svg", False),
        ("application/pdf", False),
    ],
)
def test_kinds(kind: str, read: bool) -> None:
    """Text is read, anything else is not."""
    assert is_text(kind) is read
