"""Other gateways in the same run: where they listen, what they call our models, and which process is theirs."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from mustcall.bench.processes import Server
from mustcall.bench.system import listening_pid
from mustcall.core.errors import ConfigError

__all__ = ["Peer", "find_peer", "read_pairs", "read_peers"]


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway that somebody else started: `model` is how it names ours, `{model}` standing for the name we use."""

    name: str
    host: str
    port: int
    base: str
    pid: int | None = None
    model: str = "{model}"


def read_pairs(flag: str, given: Sequence[str]) -> dict[str, str]:
    """Read flags of the form NAME=VALUE; raise `ConfigError`."""
    pairs: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise ConfigError(f"{flag} must be NAME=VALUE, got {text!r}")
        if name in pairs:
            raise ConfigError(f"{flag} names {name!r} twice; give each its own name")
        pairs[name] = value
    return pairs


def read_peers(urls: Mapping[str, str], pids: Mapping[str, str], models: Mapping[str, str]) -> list[Peer]:
    """Return the peers of a run; raise `ConfigError` for what cannot be one."""
    for flag, names in (("--peer-pid", pids), ("--peer-model", models)):
        for name in names:
            if name not in urls:
                raise ConfigError(f"{flag} names {name!r}, which no --peer does")
    return [_peer(name, url, pids.get(name), models.get(name)) for name, url in urls.items()]


def _peer(name: str, url: str, pid: str | None, model: str | None) -> Peer:
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError as error:
        raise ConfigError(f"--peer {name}: {url!r} cannot be read: {error}") from None
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(f"--peer {name}: must be a plain http URL like http://127.0.0.1:4000/v1, got {url!r}")
    if pid is not None and not pid.isdecimal():
        raise ConfigError(f"--peer-pid {name}: must be a process id, got {pid!r}")
    if model is not None and "{model}" not in model:
        raise ConfigError(f"--peer-model {name}: must have {{model}} in it, where our name goes; got {model!r}")
    return Peer(
        name=name,
        host=parts.hostname,
        port=port,
        base=parts.path.rstrip("/") or "/v1",
        pid=int(pid) if pid is not None else None,
        model=model or "{model}",
    )


def find_peer(peer: Peer) -> Server:
    """Return a peer as a server whose CPU can be measured; raise `ConfigError` if its process is not to be seen."""
    pid = peer.pid if peer.pid is not None else listening_pid(peer.port)
    if pid is None:
        raise ConfigError(
            f"--peer {peer.name}: no process of yours listens on port {peer.port}; start it, or name its process with "
            f"--peer-pid {peer.name}=PID"
        )
    return Server(name=peer.name, host=peer.host, port=peer.port, base=peer.base, pid=pid)
