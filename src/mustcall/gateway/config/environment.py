"""Settings from the environment, over those of the file: a variable for each field of a section (rule 120).

`[contract] on_unmet` is `MUSTCALL_CONTRACT_ON_UNMET`. Lists are separated by commas, switches are `true` or `false`,
and a table of tables (tools) is written as JSON. Which upstreams and routes there are has no variable.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.text.nearest import nearest
from mustcall.gateway.config.advice import advice, takes_switch
from mustcall.ledger import differing

__all__ = ["SWITCHES", "Keyless", "over", "over_some", "refuse_unknown", "stated"]

S = TypeVar("S", bound=msgspec.Struct)

#: What people write for true and false.
SWITCHES = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)

#: Names that stand for keys, which any configuration may give to its own.
_SECRET = ("_KEY", "_KEYS", "_TOKEN", "_SECRET", "_PASSWORD")
#: What Kubernetes and Docker set for a service: `…_SERVICE_HOST`, `…_PORT_8484_TCP_ADDR`; `…_PORT` is `tcp://…`.
_LINK = re.compile(r"_SERVICE_(?:HOST|PORT)(?:_|$)|_PORT_\d+_|_PORT$")
_LINK_VALUE = re.compile(r"(?:tcp|udp|sctp)://")
#: What settings are called by those who know their section and not that they have a name of their own.
_OTHER_NAMES = {"MUSTCALL_SERVER_CLIENT_KEYS": "MUSTCALL_CLIENT_KEYS"}


class Keyless(Mapping[str, str]):
    """An environment with a stand-in for every key: for whoever reads settings and sends nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def __getitem__(self, name: str) -> str:
        own = name.startswith("MUSTCALL_") or name in self._environment
        return self._environment[name] if own else "none"

    def __iter__(self) -> Iterator[str]:
        return iter(self._environment)

    def __len__(self) -> int:
        return len(self._environment)


def stated(names: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return what variables of one meaning say; None where all are unset, or set to nothing.

    Raise `ConfigError` where two of them differ.
    """
    said = {name: text for name in names if (text := env.get(name, "").strip()) and not _LINK_VALUE.match(text)}
    if len(set(said.values())) > 1:
        raise ConfigError(differing(said))
    return next(iter(said.values()), None)


def refuse_unknown(sections: Mapping[str, Iterable[str]], env: Iterable[str], own: Container[str] = ()) -> None:
    """Raise `ConfigError` for a variable with a section's prefix that is none of its settings.

    `own` are names that the configuration itself gives to variables. Keys that another configuration names, and what
    an orchestrator sets for a service whose name begins like ours, are left alone.
    """
    known = {prefix + field.upper() for prefix, fields in sections.items() for field in fields}
    for name in env:
        prefix = next((one for one in sections if name.startswith(one)), None)
        if prefix is None or name in known or name in own or _LINK.search(name):
            continue
        meant = _meant(name, prefix, known)
        if meant is None and name.endswith(_SECRET):
            continue
        advised = f"did you mean {meant!r}?" if meant is not None else "docs/gateway.md lists them; unset it"
        raise ConfigError(f"{name} is no variable of mustcall; {advised}")


def _meant(name: str, prefix: str, known: Iterable[str]) -> str | None:
    """Return the variable that was probably meant: a near one of the section, or the same setting of another."""
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    field = name.removeprefix(prefix)
    fields = sorted(one.removeprefix(prefix) for one in known if one.startswith(prefix))
    near = next((one for one in fields if one.startswith(f"{field}_")), None) or nearest(field, fields)
    if near is not None:
        return prefix + near
    ends = [one for one in known if "_" in (other := one.split("_", 2)[2]) and name.endswith(f"_{other}")]
    return max(ends, key=len, default=None)


def over(given: S, prefix: str, env: Mapping[str, str], *, but: Iterable[str] = ()) -> S:
    """Return settings with what the environment says over them; raise `ConfigError` naming the variable."""
    return over_some(given, type(given), prefix, env, but=but) or given


def over_some(
    given: S | None, kind: type[S], prefix: str, env: Mapping[str, str], *, but: Iterable[str] = ()
) -> S | None:
    """Return the same where there may be no settings at all: None if neither file nor environment has any."""
    names = {prefix + name.upper(): name for name in kind.__struct_fields__ if name not in but}
    written = {name: env[variable] for variable, name in names.items() if variable in env}
    if not written:
        return given
    base = msgspec.structs.asdict(kind() if given is None else given)
    said: dict[str, Any] = {}
    for name, text in written.items():
        if isinstance(base[name], tuple):
            said[name] = [each.strip() for each in text.split(",") if each.strip()]
        elif isinstance(base[name], dict):
            try:
                said[name] = msgspec.json.decode(text)
            except (msgspec.DecodeError, RecursionError) as error:
                raise ConfigError(f"{prefix}{name.upper()} must be a JSON object: {error}") from None
        else:
            switch = SWITCHES.get(text.strip().lower())
            said[name] = text if switch is None or not takes_switch(kind, name) else switch  # a name could stand there
    try:
        return msgspec.convert({**msgspec.to_builtins(base), **said}, kind, strict=False)
    except msgspec.ValidationError as error:
        place = str(error).partition("`$.")[2].rstrip("`").partition(".")[0].partition("[")[0]
        at = [variable for variable, name in names.items() if name == place] or [prefix + name.upper() for name in said]
        raise ConfigError(f"{', '.join(at)}: {str(error).partition(' - at ')[0]}{advice(str(error), kind)}") from None
