"""SIGHUP: a new configuration is taken over, a wrong one changes nothing, a terminal that hangs up ends the gateway."""

import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from mustcall.core.errors import ConfigError
from mustcall.engine.spending.budget_account import Budget, Caps
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.app import Gateway
from mustcall.gateway.config.reloading import Reloader, keep_fixed
from mustcall.gateway.config.settings import Settings, settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support import warm
from support.http import call, post
from support.metrics import samples
from support.warm import PATIENCE, Process, cold_start

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SETTINGS = settings_from_flags("chat=http://127.0.0.1:9/v1")


def configure(file: Path, upstream: ScriptedUpstream, more: str = "") -> None:
    """Write a configuration for one upstream."""
    table = f'[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "{upstream.base_url}"\n'
    file.write_text(f"{table}{more}", encoding="utf-8")


@contextmanager
def serving(file: Path, *arguments: str) -> Generator[tuple[str, Process, socket.socket]]:
    """A gateway under a manager that hears what it says."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"{folder}/notify")
        manager.settimeout(PATIENCE)
        # Workers start from the program's file, so such a gateway is started from it, too.
        starting = cold_start if "--workers" in arguments else warm.start
        process = starting(
            *("serve", "--config", str(file), "--port", "0", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"},
            start_new_session=True,
        )
        try:
            ready = manager.recv(4096).decode()
            found = re.search(r"READY=1\nSTATUS=listens on (http://\S+)", ready)
            assert found is not None, ready
            yield found[1], process, manager
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=PATIENCE)


def reload(process: Process, manager: socket.socket) -> str:
    """Ask for a reload and return what the gateway says of it."""
    process.send_signal(signal.SIGHUP)
    assert manager.recv(4096).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    ready, _, status = manager.recv(4096).decode().partition("\n")
    assert ready == "READY=1"
    return status.removeprefix("STATUS=")


def answer(url: str) -> str:
    """What the upstream behind the gateway says."""
    return post(f"{url}/v1/chat/completions", HELLO).json["choices"][0]["message"]["content"]


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["one process", "workers"])
def test_a_new_configuration_is_taken_over(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """SIGHUP reads the file again; new requests go by it; a wrong file is refused and changes nothing."""
    file = tmp_path / "mustcall.toml"
    old, new = (ScriptedUpstream([Turn(Say(word))] * 40) for word in ("old", "new"))
    with old, new:
        configure(file, old)
        with serving(file, *arguments) as (url, process, manager):
            assert answer(url) == "old"
            file.write_text("[nonsense]\n", encoding="utf-8")
            assert reload(process, manager).startswith("reload refused")
            assert answer(url) == "old"
            configure(file, new, '[server]\nport = 1\nmax_body_bytes = 300\n[ledger]\nkeep = "1d"\n')
            assert reload(process, manager) == "configuration reloaded: 1 upstreams, 0 routes"
            if not arguments:  # workers take it over one after the other
                assert answer(url) == "new"
                assert post(f"{url}/v1/chat/completions", b"x" * 301).status == 413
            else:
                while answer(url) != "new":
                    pass
            process.send_signal(signal.SIGTERM)
            assert manager.recv(4096).startswith(b"STOPPING=1")
            printed, _ = process.communicate(timeout=PATIENCE)
    assert printed.count("reload refused") == 1
    assert "[nonsense]" not in printed
    assert printed.count("configuration reloaded") == 1


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@contextmanager
def halting() -> Generator[tuple[str, threading.Event]]:
    """An upstream that streams one word, waits to be told, and then streams the rest; to others it says `old`."""
    told = threading.Event()
    message = {"role": "assistant", "content": "old"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    old = json.dumps({"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}).encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def stream(connection: socket.socket) -> None:
            with connection:
                connection.recv(65_536)
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                connection.sendall(head + _event({"role": "assistant", "content": "first "}))
                told.wait(PATIENCE)
                connection.sendall(_event({"content": "last"}) + _event({}, "stop") + b"data: [DONE]\n\n")

        def serve() -> None:
            server.settimeout(PATIENCE)
            connection, _ = server.accept()
            server.settimeout(0.2)
            streaming = threading.Thread(target=stream, args=(connection,), daemon=True)
            streaming.start()
            while not told.is_set():  # a worker that has not reloaded yet still asks here
                with suppress(TimeoutError):
                    other, _ = server.accept()
                    with other:
                        other.recv(65_536)
                        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
                        other.sendall(head + b"content-length: %d\r\n\r\n%b" % (len(old), old))
            streaming.join(PATIENCE)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1", told
        told.set()
        thread.join(PATIENCE)


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["one process", "workers"])
def test_a_stream_goes_on_over_a_reload(arguments: tuple[str, ...], tmp_path: Path) -> None:
    """SIGHUP cuts nobody off: what streams goes on to its own end, by the settings it began with."""
    file = tmp_path / "mustcall.toml"
    with halting() as (slow, told), ScriptedUpstream([Turn(Say("new"))] * 40) as new:
        file.write_text(f'[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "{slow}"\n', encoding="utf-8")
        with serving(file, *arguments) as (url, process, manager):
            parts = urlsplit(url)
            assert parts.hostname is not None
            asking = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE)
            asking.request(
                "POST",
                "/v1/chat/completions",
                json.dumps({**HELLO, "stream": True}),
                {"content-type": "application/json"},
            )
            answer_ = asking.getresponse()
            seen = answer_.readline()
            while b"first" not in seen:
                seen += answer_.readline()
            configure(file, new)
            assert reload(process, manager).startswith("configuration reloaded")
            while answer(url) != "new":
                pass
            told.set()
            rest = answer_.read()
            asking.close()
            assert b"last" in rest
            assert rest.rstrip().endswith(b"data: [DONE]")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)


def test_a_terminal_that_hangs_up_ends_the_gateway(tmp_path: Path) -> None:
    """The same signal from a terminal that was closed means the end, not a reload."""
    file = tmp_path / "mustcall.toml"
    master, slave = pty.openpty()

    with ScriptedUpstream([]) as upstream:
        configure(file, upstream)
        arguments = ("serve", "--config", str(file), "--port", "0")
        process = warm.start(*arguments, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, terminal=True)
        os.close(slave)
        assert process.stdout is not None
        assert any("Ctrl-C" in line for line in process.stdout)
        os.close(master)
        printed, _ = process.communicate(timeout=PATIENCE)
    assert "reloaded" not in printed
    assert "Traceback" not in printed
    assert process.returncode == -signal.SIGTERM


def test_what_needs_a_restart_is_kept_and_named(caplog: pytest.LogCaptureFixture) -> None:
    """Address and ledger stay as they are until a restart; everything else is new."""
    server = msgspec.structs.replace(SETTINGS.server, port=1, host="::1", max_concurrency=5)
    wanted = msgspec.structs.replace(SETTINGS, server=server, ledger=LedgerSettings(place="/x.db"))
    kept, fixed = keep_fixed(SETTINGS, wanted)
    assert fixed == ["host", "port", "ledger"]
    assert (kept.server.port, kept.server.host, kept.ledger) == (8484, "127.0.0.1", None)
    assert kept.server.max_concurrency == 5
    assert keep_fixed(SETTINGS, SETTINGS) == (SETTINGS, [])
    assert Reloader(lambda: wanted).read(SETTINGS) == kept
    assert caplog.messages == [f"the configuration is reloaded, but a restart is needed for: {', '.join(fixed)}"]


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        *[("server", "log_level", "warning"), ("server", "log_format", "json")],
        *[("limits", name, 7) for name in ("header_bytes", "header_count", "head_seconds", "body_seconds")],
        *[("limits", name, 7) for name in ("body_bytes_per_second", "connections", "connections_per_address")],
        *[("limits", name, 7) for name in ("reply_bytes", "reply_elements", "inflate_ratio")],
    ],
)
def test_the_log_and_limits_of_connections_need_a_restart(section: str, field: str, value: object) -> None:
    """What is read at the start alone is named and kept as it is, so that the next reload names it again."""
    before: msgspec.Struct = getattr(SETTINGS, section)
    wanted = msgspec.structs.replace(SETTINGS, **{section: msgspec.structs.replace(before, **{field: value})})
    kept, fixed = keep_fixed(SETTINGS, wanted)
    assert fixed == [field if section == "server" else f"limits.{field}"]
    assert kept == SETTINGS


def test_other_limits_change_at_once() -> None:
    """Limits of bodies, keys and host names hold from the reload on."""
    limits = msgspec.structs.replace(SETTINGS.limits, body_elements=5, hosts=("h",), key_concurrency=2, silent_lines=9)
    wanted = msgspec.structs.replace(SETTINGS, limits=limits)
    assert keep_fixed(SETTINGS, wanted) == (wanted, [])


def test_a_refused_reload_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The log says what was wrong, once, and the old settings stay."""

    def wrong() -> Settings:
        raise ConfigError("mustcall.toml: no such field")

    assert Reloader(wrong).read(SETTINGS) is None
    assert [record.getMessage() for record in caplog.records] == [
        "reload refused, the configuration stays as it was: mustcall.toml: no such field"
    ]


def test_accounts_live_on() -> None:
    """A budget that changes goes on with what was spent; one that is left out and comes back, too."""
    with ScriptedUpstream([Turn(Say("Hello."))] * 4) as upstream:
        flags = f"chat={upstream.base_url}"
        few, none, more = (
            settings_from_flags(flags, operator=OperatorSettings(budget=budget))
            for budget in (Budget(caps=Caps(calls=1)), None, Budget(caps=Caps(calls=2)))
        )
        session = {"x-mustcall-session": "s"}
        with RunningGateway(settings=few) as gateway:
            url = f"{gateway.base_url}/chat/completions"
            assert [post(url, HELLO, session).status for _ in range(2)] == [200, 429]
            gateway.app.reload(none)
            assert post(url, HELLO, session).status == 200
            gateway.app.reload(more)
            assert [post(url, HELLO, session).status for _ in range(2)] == [200, 429]
            gateway.app.reload(None)
            page = call("GET", f"{gateway.url}/metrics").body
    assert samples(page)['mustcall_config_reloads_total{result="ok"}'] == 2
    assert samples(page)['mustcall_config_reloads_total{result="failed"}'] == 1


def test_a_gateway_that_has_not_started_can_be_told() -> None:
    """Settings that come before the first request are simply the settings."""
    gateway = Gateway(SETTINGS)
    gateway.reload(settings_from_flags("messages=http://127.0.0.1:9/v1"))
    assert gateway.settings.endpoints[0].name == "messages"
