"""Other gateways: how they are named, and how their process is found."""

import os
import socket
import subprocess
import sys

import pytest

from mustcall.bench.peers import find_peer, read_pairs, read_peers
from mustcall.bench.system import family, listening_pid, resident_mb
from mustcall.core.errors import ConfigError


def test_peers_are_read() -> None:
    """Name, address, path, process and model of a peer."""
    (one, two) = read_peers(
        {"litellm": "http://127.0.0.1:4000", "tz": "http://localhost:3000/openai/v1/"},
        {"tz": "77"},
        {"tz": "tensorzero::model_name::{model}"},
    )
    assert (one.host, one.port, one.base, one.pid, one.model) == ("127.0.0.1", 4000, "/v1", None, "{model}")
    assert (two.host, two.port, two.base, two.pid) == ("localhost", 3000, "/openai/v1", 77)
    assert two.model == "tensorzero::model_name::{model}"


@pytest.mark.parametrize(
    ("urls", "pids", "models", "words"),
    [
        ({"a": "https://x/v1"}, {}, {}, "plain http"),
        ({"a": "127.0.0.1:4000"}, {}, {}, "plain http"),
        ({"a": "http://x:nine"}, {}, {}, "cannot be read"),
        ({"a": "http://x"}, {"b": "1"}, {}, "no --peer"),
        ({"a": "http://x"}, {"a": "one"}, {}, "process id"),
        ({"a": "http://x"}, {}, {"a": "gpt"}, "{model}"),
    ],
)
def test_mistakes_are_named(urls: dict[str, str], pids: dict[str, str], models: dict[str, str], words: str) -> None:
    """What cannot be a peer is said before anything is started."""
    with pytest.raises(ConfigError) as caught:
        read_peers(urls, pids, models)
    assert words in caught.value.message


def test_pairs() -> None:
    """NAME=VALUE, the value may hold further equals signs; no name twice."""
    assert read_pairs("--peer", ["a=b=c"]) == {"a": "b=c"}
    for wrong in (["a"], ["=b"], ["a="], ["a=1", "a=2"]):
        with pytest.raises(ConfigError, match="--peer"):
            read_pairs("--peer", wrong)


def test_the_listening_process_is_found() -> None:
    """Whoever listens on a port is found by itself; its children belong to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert listening_pid(port) == os.getpid()
        (peer,) = read_peers({"me": f"http://127.0.0.1:{port}"}, {}, {})
        server = find_peer(peer)
        assert server.pid == os.getpid()
        assert server.memory_mb >= resident_mb(os.getpid()) * 0.9 > 0
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            assert {os.getpid(), child.pid} <= set(family(os.getpid()))
            child.communicate(b"\n")
    (gone,) = read_peers({"gone": f"http://127.0.0.1:{port}"}, {}, {})
    with pytest.raises(ConfigError, match="--peer-pid gone=PID"):
        find_peer(gone)


def test_the_eldest_of_those_who_share_a_port() -> None:
    """A parent and its workers hold the same socket: the parent is the one, so that all of them are counted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.fileno()
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[number]) as child:
            assert listening_pid(listener.getsockname()[1]) == os.getpid()
            child.communicate(b"\n")


def test_an_ended_process_holds_nothing() -> None:
    """Memory of a process that is gone is none."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert resident_mb(child.pid) == 0.0
