"""The first mustcall.toml: what `mustcall init` writes, commented, from the upstreams that were chosen.

Pure text from values. Lines that begin with `#` and no blank are settings that are switched off; they work as they
stand once the sign is gone.
"""

import json
from collections.abc import Mapping, Sequence

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.gateway.config.environment import Keyless
from mustcall.gateway.config.settings import ServerSettings, settings_from_flags
from mustcall.gateway.config.upstream_settings import parse_upstream_flag
from mustcall.upstream.address import read_address
from mustcall.upstream.providers import EMBEDDED, provider_at
from mustcall.upstream.variables import check_variable

__all__ = ["FirstUpstream", "compose", "plan_upstreams", "quoted"]

_HEAD = """\
# Written by `mustcall init`. Serve it with `mustcall serve`, check it with `mustcall doctor`.
# docs/gateway.md and docs/turns.md explain every setting. Keys are never written here, only the names of variables.

[server]
host = {host}  # "0.0.0.0" lets other machines in; then ask callers for keys
port = {port}
#client_keys_env = "MUSTCALL_KEYS"  # the variable with the keys callers must present, separated by commas
"""
_TAIL = """
# Another upstream. Callers choose by the model's name, or with NAME/model.
#[[upstream]]
#use = "ollama:qwen3"  # a provider and a model: docs/setup.md lists them

# A name of your own for a model. With routes, only what they name is served.
#[[route]]
#model = "fast"
#upstream = {first}
#send_as = "the-name-the-upstream-knows"

# Questions that must be answered from a tool: when these words come up, the tool is called first.
#[[grounding]]
#name = "orders"
#triggers = "order|invoice"
#tool = "find_order"

# The most a session may use.
#[budget]
#cost_usd = 5.0
#tokens = 2000000

# Where state is kept, and for how long.
#[ledger]
#keep = "30d"
"""


class FirstUpstream(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream as it will stand in the file."""

    name: str
    wire: Wire
    base_url: str
    model: str = ""
    #: The variable with its key, where it has one.
    key_env: str | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether it is a model inside the process."""
        return self.base_url.startswith(EMBEDDED.base_url)


def plan_upstreams(
    addresses: Sequence[str], environment: Mapping[str, str], *, key_env: str | None = None
) -> tuple[FirstUpstream, ...]:
    """Return the upstreams that addresses mean; raise `ConfigError` for one that could not be served.

    A key that is not there yet is no reason: its variable is written down.
    """
    planned: list[FirstUpstream] = []
    for address in addresses:
        taken = [upstream.name for upstream in planned]
        read, settings = read_address(address), parse_upstream_flag(address, taken)
        provider = read.provider or provider_at(read.base_url)
        name = key_env
        if name is not None:
            check_variable(name, "--key-env")
        if name is None and provider is not None and provider.key_env is not None:
            wanted = provider.needs_key or environment.get(provider.key_env, "").strip()
            name = provider.key_env if wanted else None
        if settings.name in taken:
            raise ConfigError(f"two upstreams are called {settings.name!r}; give each a name of its own")
        planned.append(
            FirstUpstream(name=settings.name, wire=read.wire, base_url=read.base_url, model=read.model, key_env=name)
        )
        if not planned[-1].is_embedded:
            settings_from_flags(address, environment=Keyless(environment))
    return tuple(planned)


def compose(upstreams: Sequence[FirstUpstream], server: ServerSettings) -> str:
    """Return the text of the file."""
    parts = [_HEAD.format(host=quoted(server.host), port=server.port)]
    parts += [_table(upstream) for upstream in upstreams]
    return "".join([*parts, _TAIL.replace("{first}", quoted(upstreams[0].name))])


def _table(upstream: FirstUpstream) -> str:
    lines = [
        "",
        "[[upstream]]",
        f"name = {quoted(upstream.name)}",
        f"wire = {quoted(str(upstream.wire))}  # what it speaks: {', '.join(Wire)}",
        f"base_url = {quoted(upstream.base_url)}",
    ]
    if upstream.key_env is not None:
        lines.append(f"api_key_env = {quoted(upstream.key_env)}  # the variable that holds its key")
    elif not upstream.is_embedded:
        lines.append(
            '#api_key_env = "SOME_KEY"  # the variable that holds its key; without it callers\' keys are passed on'
        )
    if upstream.model:
        lines.append(f"model = {quoted(upstream.model)}  # asked for whatever name callers use; without it they choose")
    elif not upstream.is_embedded:
        lines.append('#model = "some-model"  # ask for this one whatever name callers use')
    return "\n".join([*lines, ""])


def quoted(text: str) -> str:
    """Return text as a string of TOML; raise `ConfigError` for what no file can hold."""
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise ConfigError(f"{text!r} is not text")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
