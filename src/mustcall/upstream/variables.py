"""What may be shown of what an operator wrote: names of variables and addresses, no key that stands there by mistake.

A key in place of a variable's name, or in the query of an address, is refused by others; the words are made here.
"""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from mustcall.core.errors import ConfigError

__all__ = ["check_variable", "read_variable", "shown_url"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: What could be a name and is more likely a key: long, with small letters and digits (`gsk_…`, `hf_…`).
_LIKE_A_KEY = re.compile(r"(?=.*[a-z])(?=.*[0-9]).{20,}")
_HIDDEN = "…"


def check_variable(name: str, setting: str, where: str = "") -> None:
    """Raise `ConfigError` for what cannot be the name of a variable, without showing it."""
    if not _NAME.fullmatch(name):
        raise _no_name(setting, where)


def read_variable(name: str, setting: str, env: Mapping[str, str], where: str = "", empty: str = "is not set") -> str:
    """Return what the variable holds that `setting` names; raise `ConfigError` saying `empty` where that is nothing."""
    check_variable(name, setting, where)
    value = env.get(name, "").strip()
    if not value and _LIKE_A_KEY.fullmatch(name):
        raise _no_name(setting, where)
    if not value:
        raise ConfigError(f"{_at(where)}the environment variable {name} ({setting}) {empty}")
    return value


def shown_url(url: str) -> str:
    """Return an address without user, query and fragment; less of it where its path may be part of a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _HIDDEN
    if "@" in parts.path:
        return f"{parts.scheme}://{_HIDDEN}" if parts.scheme else _HIDDEN
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _no_name(setting: str, where: str) -> ConfigError:
    return ConfigError(
        f"{_at(where)}{setting} must be the NAME of an environment variable that holds the key, like OPENAI_API_KEY; "
        "what it says is not shown here, because it may be a key"
    )


def _at(where: str) -> str:
    return f"{where}: " if where else ""
