"""What an upstream's answer to a list of models means for a checkup: keys, errors, other servers."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mustcall.gateway.config.checkup import Check, CheckState, CheckupRequest, examine
from mustcall.upstream.http import HttpTransport
from support.loopback import PROXY_VARIABLES, listening

#: Longer than any machine needs.
LONG = 60.0


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No proxy, no model files."""
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path))
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def looked_at(answer: bytes, folder: Path, environment: Mapping[str, str], more: str = "") -> Check:
    """Return what is said of an upstream that answers so."""
    transport = HttpTransport()
    try:
        async with listening(answer) as listener:
            file = folder / "m.toml"
            file.write_text(
                f'[[upstream]]\nname = "up"\nwire = "chat"\nbase_url = "{listener.url}/v1"\n{more}', encoding="utf-8"
            )
            asked = CheckupRequest(file=file, ledger="off", port=0, seconds=LONG)
            checks = await examine(asked, transport, environment)
            assert len(listener.requests) == 1
    finally:
        await transport.close()
    return next(check for check in checks if check.name == "upstream up")


def answer(status: int, body: str = "{}") -> bytes:
    """An answer of HTTP."""
    return f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


async def test_the_fix_names_the_file(tmp_path: Path) -> None:
    """The command that reads a configuration again reads the one that was wrong, not that of the folder."""
    file = tmp_path / "my own.toml"
    file.write_bytes(b"\xff\xfe")
    transport = HttpTransport()
    try:
        checks = await examine(CheckupRequest(file=file, ledger="off", port=0, seconds=LONG), transport, {})
    finally:
        await transport.close()
    (found,) = (check for check in checks if check.name == "configuration")
    assert found.state is CheckState.FAILED
    assert found.fix == f"correct {file}; `mustcall config check '{file}'` reads it again"


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    ("more", "environment", "state", "words"),
    [
        ("", {}, CheckState.OK, "callers send their own"),
        ('api_key_env = "K"\n', {"K": "sekret"}, CheckState.FAILED, "the key is refused"),
        ("forward_key = false\n", {}, CheckState.FAILED, "it wants a key"),
        ("", {"MUSTCALL_CLIENT_KEYS": "sekret"}, CheckState.FAILED, "it wants a key"),
    ],
    ids=["callers' keys", "own key", "no key", "keys that open the gateway"],
)
async def test_keys(
    *, tmp_path: Path, status: int, more: str, environment: dict[str, str], state: CheckState, words: str
) -> None:
    """A refusal means a wrong key, a missing one, or nothing at all where callers send their own."""
    found = await looked_at(answer(status), tmp_path, environment, more)
    assert (found.state, words in found.found) == (state, True)
    assert bool(found.fix) == (state is CheckState.FAILED)
    assert "sekret" not in repr(found)


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        (answer(200, '{"data": []}'), CheckState.OK, "0 models"),
        (answer(200, '{"data": [{"id": "a"}]}'), CheckState.OK, "1 model"),
        (answer(200, "<html>"), CheckState.WARNING, "lists no models"),
        (answer(404), CheckState.WARNING, "HTTP 404"),
        (answer(500), CheckState.FAILED, "HTTP 500"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", CheckState.FAILED, "did not answer in HTTP"),
        (b"", CheckState.FAILED, "closed the connection"),
    ],
    ids=["no models", "a model", "a page", "no list", "broken", "other protocol", "hangs up"],
)
async def test_answers(tmp_path: Path, said: bytes, state: CheckState, words: str) -> None:
    """Who answers can serve, also without a list; who breaks cannot."""
    found = await looked_at(said, tmp_path, {})
    assert (found.state, words in found.found) == (state, True), found
    assert bool(found.fix) == (state is not CheckState.OK)


async def test_an_upstream_that_redirects(tmp_path: Path) -> None:
    """The target is named without its query, and the fix is base_url."""
    redirect = b"HTTP/1.1 302 X\r\nlocation: https://new.example/v1/models?key=sekret\r\ncontent-length: 0\r\n\r\n"
    found = await looked_at(redirect, tmp_path, {})
    assert found.state is CheckState.FAILED
    assert "redirects (HTTP 302) to https://new.example/v1/models; redirects are not followed" in found.found
    assert "sekret" not in found.found
    assert found.fix == "correct base_url in the file, so that it names where the server answers"
