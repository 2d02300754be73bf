"""The upstreams of a configuration: `[[upstream]]` and addresses given as flags, checked and made into endpoints."""

import re
from collections.abc import Mapping, Sequence
from math import inf
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.policy.facts.checking import check_number
from mustcall.policy.failures.backoff import Backoff
from mustcall.upstream.address import read_address
from mustcall.upstream.embedded.engine import engine_problem
from mustcall.upstream.embedded.store import (
    SCHEME,
    is_embedded,
    locate,
    named_address,
    stand_in_note,
    weights_without_name,
)
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http1.request import FRAMING
from mustcall.upstream.providers import Provider, find_key, server_name
from mustcall.upstream.seam import Timeouts
from mustcall.upstream.variables import read_variable, shown_url
from mustcall.wire.registry import CODECS

__all__ = [
    "ANOTHER_UPSTREAM",
    "NEEDED",
    "UpstreamSettings",
    "embedded_upstream",
    "make_endpoint",
    "parse_upstream_flag",
    "spell_out",
    "upstreams_from_flags",
]

#: What is said where the embedded model, the upstream nobody has to name, cannot be used.
ANOTHER_UPSTREAM = (
    "Or name an upstream of your own: --upstream chat=http://127.0.0.1:9000/v1, the same in MUSTCALL_UPSTREAM, or a "
    "mustcall.toml"
)

#: What an upstream cannot be without.
NEEDED = ("name", "wire", "base_url")

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class UpstreamSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[upstream]]`: one endpoint. `use` names a provider, and what it says need not be said again."""

    #: A provider, and a model if one is to be asked for whatever callers name: "openai:gpt-5".
    use: str = ""
    #: What the upstream is called in routes, logs and `NAME/model`; the provider's or the wire's name by default.
    name: str = ""
    #: `chat`, `responses` or `messages`.
    wire: Wire | None = None
    #: Its address up to and including the version, as in `https://api.openai.com/v1`.
    base_url: str = ""
    #: The model every request is for; empty: the one the caller names.
    model: str = ""
    #: The environment variable with its key. Without it the caller's own key is forwarded.
    api_key_env: str | None = None
    #: Whether the caller's key is forwarded where `api_key_env` is not set.
    forward_key: bool = True
    #: Headers sent with every request.
    headers: dict[str, str] = {}
    #: Seconds until a connection is made.
    connect_timeout: float = Timeouts().connect
    #: Seconds until the first byte of a reply.
    read_timeout: float = Timeouts().read
    #: Seconds between two pieces of a reply.
    idle_timeout: float = Timeouts().idle
    #: Retries after 429, 5xx, timeouts and resets, before anything has reached the caller.
    retries: int = Backoff().retries
    #: Seconds before the first retry, doubled for each that follows, at most `backoff_cap`.
    backoff_base: float = Backoff().base
    backoff_cap: float = Backoff().cap
    #: Seconds of a Retry-After that are waited here; a longer one is left to the caller.
    longest_wait: float = Backoff().longest_wait
    #: The limit where the wire demands one and the caller gave none.
    default_max_tokens: int = 8192
    #: The most that a caller of another wire may ask for.
    max_output_tokens: int | None = None
    #: For the wire responses: whether it keeps responses itself. If not, the gateway keeps them.
    stateful: bool = True


def parse_upstream_flag(flag: str, taken: Sequence[str] = ()) -> UpstreamSettings:
    """Read an address; without a name the provider or the wire is the name, numbered if it is taken."""
    address = read_address(flag)
    word = address.provider.name if address.provider is not None else str(address.wire)
    return UpstreamSettings(
        use=flag if address.provider is not None else "",
        name=address.name or _free_name(word, taken),
        wire=address.wire,
        base_url=address.base_url,
        model=address.model,
    )


def _free_name(word: str, taken: Sequence[str]) -> str:
    name, number = word, 2
    while name in taken:
        name, number = f"{word}{number}", number + 1
    return name


def upstreams_from_flags(flags: Sequence[str]) -> tuple[UpstreamSettings, ...]:
    """Read addresses, each under a name of its own."""
    upstreams: list[UpstreamSettings] = []
    for flag in flags:
        upstreams.append(parse_upstream_flag(flag, [upstream.name for upstream in upstreams]))
    return tuple(upstreams)


def spell_out(upstreams: Sequence[UpstreamSettings], file: str) -> tuple[UpstreamSettings, ...]:
    """Return the upstreams of a file with what `use` says of each; raise for what neither says."""
    named = [upstream.name for upstream in upstreams if upstream.name]
    spelt: list[UpstreamSettings] = []
    for number, upstream in enumerate(upstreams, 1):
        where = f"{file}: upstream {repr(upstream.name) if upstream.name else number}"
        usual = UpstreamSettings()
        if upstream.use:
            try:
                usual = parse_upstream_flag(upstream.use, named)
            except ConfigError as error:
                raise ConfigError(f"{where}: use: {error.message}") from None
        changes = {field: getattr(upstream, field) or getattr(usual, field) for field in NEEDED}
        for field, value in changes.items():
            if not value:
                raise ConfigError(f'{where} has no {field}; write one, or name a provider with use = "openai:gpt-5"')
        model = upstream.model or usual.model
        spelt.append(msgspec.structs.replace(upstream, use=usual.use, model=model, **changes))
        named.append(spelt[-1].name)
    return tuple(spelt)


def embedded_upstream(name: str) -> tuple[tuple[UpstreamSettings, ...], tuple[str, ...]]:
    """Return the upstream of those who named none, the model in this process, and what they should know of it."""
    weights = weights_without_name()
    upstream = UpstreamSettings(name="local", wire=Wire.CHAT, base_url=f"{SCHEME}:{name or weights.name}")
    try:
        _check_embedded(upstream, "the embedded model")
    except ConfigError as error:
        raise ConfigError(f"{error.message}. {ANOTHER_UPSTREAM}") from None
    note = None if name else stand_in_note(weights)
    return (upstream,), () if note is None else (note,)


def make_endpoint(upstream: UpstreamSettings, env: Mapping[str, str], key_env: str | None = None) -> Endpoint:
    """Return the endpoint of an upstream that is spelt out; raise `ConfigError` for what it cannot be."""
    assert upstream.wire is not None  # spelt out before
    where = f"upstream {upstream.name!r}"
    if is_embedded(upstream.base_url):
        _check_embedded(upstream, where)
    else:
        _check_address(upstream, where)
    for name, value in upstream.headers.items():
        if not _HEADER_NAME.fullmatch(name) or not value.isprintable():
            raise ConfigError(f"{where}: the header {name!r} is not one HTTP can carry")
        if name.lower() in FRAMING:
            raise ConfigError(f"{where}: the header {name!r} is the transport's own; take it out of headers")
    provider = read_address(upstream.use).provider if upstream.use else None
    key = _key(upstream, provider, where, env, key_env)
    for field in ("connect_timeout", "read_timeout", "idle_timeout"):
        check_number(f"{where}: {field}", getattr(upstream, field), above=0, unit=" seconds")
    for field in ("default_max_tokens", "max_output_tokens"):
        limit = getattr(upstream, field)
        if limit is not None and limit < 1:
            raise ConfigError(f"{where}: {field} must be 1 or more, got {limit}")
    for field in ("retries", "backoff_base", "backoff_cap", "longest_wait"):
        if not 0 <= getattr(upstream, field) < inf:
            raise ConfigError(f"{where}: {field} must be 0 or more, got {getattr(upstream, field)}")
    return Endpoint(
        name=upstream.name,
        server=server_name(provider, upstream.name),
        wire=upstream.wire,
        base_url=named_address(upstream.base_url.rstrip("/")),
        api_key=key,
        forward_key=upstream.forward_key,
        headers=upstream.headers,
        timeouts=Timeouts(connect=upstream.connect_timeout, read=upstream.read_timeout, idle=upstream.idle_timeout),
        backoff=Backoff(
            retries=upstream.retries,
            base=upstream.backoff_base,
            cap=upstream.backoff_cap,
            longest_wait=upstream.longest_wait,
        ),
        default_max_tokens=upstream.default_max_tokens,
        max_output_tokens=upstream.max_output_tokens,
        stateful=upstream.stateful,
        model=upstream.model,
    )


def _key(
    upstream: UpstreamSettings, provider: Provider | None, where: str, env: Mapping[str, str], key_env: str | None
) -> str | None:
    """Return the key in the variable that is named, else, at the provider's own address, in the provider's."""
    if upstream.api_key_env is not None:
        name, setting = upstream.api_key_env, "api_key_env"
    elif key_env is not None and provider is not None:
        name, setting = key_env, "--key-env"
    else:
        if provider is None or upstream.base_url != provider.base_url:
            return None
        return find_key(provider, where, env)
    return read_variable(name, setting, env, where)


def _check_embedded(upstream: UpstreamSettings, where: str) -> None:
    """Raise unless the model is there and is asked on the wire it speaks."""
    if upstream.wire is not Wire.CHAT:
        raise ConfigError(f"{where}: the embedded model speaks the wire chat, not {upstream.wire}")
    problem = engine_problem()
    if problem is not None:
        raise ConfigError(f"{where}: {problem}")
    try:
        locate(upstream.base_url.removeprefix(f"{SCHEME}:"))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}") from None


def _check_address(upstream: UpstreamSettings, where: str) -> None:
    """Raise unless the address is one that HTTP calls can be made of."""
    try:
        parts = urlsplit(upstream.base_url)
        _ = parts.port  # read here because a wrong one is only noticed when it is asked for
    except ValueError:  # its words quote the address
        raise ConfigError(
            f"{where}: base_url cannot be read; it must be an http(s) URL with a number for its port"
        ) from None
    shown = shown_url(upstream.base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{where}: base_url must be an http(s) URL like http://127.0.0.1:9000/v1, got {shown!r}")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{where}: base_url {shown!r} must have no user, query or fragment; keys go into api_key_env, "
            "other things an endpoint needs into headers"
        )
    for codec in CODECS.values():
        if parts.path.rstrip("/").endswith(codec.path):
            raise ConfigError(f"{where}: base_url {shown!r} must end before {codec.path}, which the gateway adds")
