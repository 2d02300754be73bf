"""Settings from the environment, over those of the file: a variable for each field of a section (rule 120).

`[contract] on_unmet` is `MUSTCALL_CONTRACT_ON_UNMET`. Lists are separated by commas, switches are `true` or `false`,
and a table of tables (tools) is written as JSON. Which upstreams and routes there are has no variable.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.gateway.config.advice import advice, takes_switch

__all__ = ["SWITCHES", "Keyless", "over", "over_some", "stated"]

S = TypeVar("S", bound=msgspec.Struct)

#: What people write for true and false.
SWITCHES = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)


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


def stated(name: str, env: Mapping[str, str]) -> str | None:
    """Return what a variable says; None where it is unset, or set to nothing."""
    return env.get(name, "").strip() or None


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
