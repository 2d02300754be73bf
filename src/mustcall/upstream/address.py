"""How an upstream is named in one word, everywhere: `[name:]wire=URL[#model]`, or a provider's shorthand.

    chat=http://127.0.0.1:9000/v1        a wire and a URL
    fast:chat=http://gpu:8000/v1#qwen3   with a name, and the model to ask for
    openai:gpt-5                         a provider of the table in `providers`, and the model to ask for
    ollama                               the provider alone: callers name the model

It reads text and raises `ConfigError`; whether an address can be used is for others to say.
"""

import re

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.core.text.nearest import nearest
from mustcall.upstream.providers import EMBEDDED, PROVIDERS, Provider

__all__ = ["FORM", "Address", "is_address", "read_address"]

FORM = "[name:]wire=URL[#model] or provider:model"

#: What stands before an @ in an address is nobody's to see.
_USER = re.compile(r"//[^@\s#]*@")
#: Nor is a query: people write keys there.
_QUERY = re.compile(r"\?[^#]*")
_WIRE_FIRST = re.compile(rf"(?:[^=]*:)?(?:{'|'.join(Wire)})=")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream as it was named. `name` and `model` are empty where none was given."""

    wire: Wire
    base_url: str
    name: str = ""
    model: str = ""
    provider: Provider | None = None


def is_address(text: str) -> bool:
    """Tell whether text names an upstream rather than a model: it has a wire, or a provider and a colon."""
    word, colon, _ = text.partition(":")
    return _WIRE_FIRST.match(text) is not None or bool(colon and word in PROVIDERS)


def read_address(text: str) -> Address:
    """Read how an upstream is named; raise `ConfigError` with the form, and what was probably meant."""
    left, equals, url = text.partition("=")
    name, _, wire = left.rpartition(":")
    if equals and wire in list(Wire):
        url, _, model = url.partition("#")
        return Address(name=name, wire=Wire(wire), base_url=url, model=model)
    word, _, model = text.partition(":")
    provider = PROVIDERS.get(word)
    if provider is None:
        raise ConfigError(_complaint(text))
    if provider is EMBEDDED:  # its address is the model; the model answers to any name
        return Address(wire=provider.wire, base_url=provider.base_url + model, provider=provider)
    return Address(wire=provider.wire, base_url=provider.base_url, model=model, provider=provider)


def _complaint(text: str) -> str:
    shown = _USER.sub("//", _QUERY.sub("", text))
    meant = _meant(shown)
    if meant is not None:
        return f"the upstream {shown!r} must be {FORM}; did you mean {meant!r}?"
    return (
        f"the upstream {shown!r} must be {FORM}; the wires are {', '.join(Wire)}, the providers {', '.join(PROVIDERS)}"
    )


def _meant(text: str) -> str | None:
    """Return the address that was probably meant."""
    if text.startswith(("http://", "https://")):
        return f"{Wire.CHAT}={text}"
    left, equals, url = text.partition("=")
    if equals:
        name, colon, word = left.rpartition(":")
        wire = nearest(word, Wire)
        return None if wire is None else f"{name}{colon}{wire}={url}"
    word, colon, rest = text.partition(":")
    found = None if rest.startswith("//") else nearest(word, PROVIDERS)
    return None if found is None else f"{found}{colon}{rest}"
