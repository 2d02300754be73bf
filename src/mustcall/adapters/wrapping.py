"""`mustcall.wrap`: an SDK client whose replies keep the contract, in this process.

Decides what can be wrapped and by which settings. The client that is returned is the SDK's own copy of the one given,
on an HTTP client whose transport is the engine (`httpx_answers`); docs/decisions/wrap.md says why.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from mustcall.adapters.blocking import BlockingClock, Turnstile
from mustcall.adapters.contract import Contract
from mustcall.adapters.httpx_answers import AsyncContractTransport, ContractTransport, Routes
from mustcall.adapters.httpx_seam import package_of
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.failures.backoff import Backoff
from mustcall.policy.words.grounding import GroundingRule, check_rules
from mustcall.profiles import read_overrides
from mustcall.upstream.endpoint import Endpoint

__all__ = ["ANTHROPIC_ROUTES", "OPENAI_ROUTES", "operator_settings", "wrap"]

C = TypeVar("C")

OPENAI_ROUTES: Routes = {"/chat/completions": Wire.CHAT, "/responses": Wire.RESPONSES}
ANTHROPIC_ROUTES: Routes = {"/v1/messages": Wire.MESSAGES}


class _Kind(NamedTuple):
    """What is known of an SDK: its clients, where it asks for replies, and what its base URL leaves out."""

    package: str
    blocking: str
    awaited: str
    routes: Routes
    below: str = ""


_KINDS = (
    _Kind("openai", "OpenAI", "AsyncOpenAI", OPENAI_ROUTES),
    _Kind("anthropic", "Anthropic", "AsyncAnthropic", ANTHROPIC_ROUTES, "/v1"),
)


def wrap(
    client: C,
    *,
    protocol: Protocol | str | None = None,
    profile: Mapping[str, Any] | None = None,
    controls: Controls | None = None,
    rules: Sequence[GroundingRule] = (),
) -> C:
    """Return a copy of an SDK client whose requests for replies are turns of the engine.

    `client` is an `OpenAI`, `AsyncOpenAI`, `AzureOpenAI`, `AsyncAzureOpenAI`, `Anthropic` or `AsyncAnthropic`. Requests
    use the client's own connections, key and headers. Requests that do not ask for a reply pass unchanged. `protocol`
    and `controls` are settings of every turn, `rules` are grounding rules, and `profile` contains facts about the
    models in the form of a `[[profile]]` table. Closing the returned client closes the connections of `client`.

    Raise `ConfigError` for any other object, for a client that is already wrapped, and for invalid settings.
    """
    kind, blocks = _kind_of(client)
    given: Any = client  # one of the classes above, which share what is used here
    inner: Any = given._client  # noqa: SLF001  the SDKs have no public name for it
    if isinstance(getattr(inner, "_transport", None), ContractTransport | AsyncContractTransport):
        raise ConfigError("this client is wrapped already; wrap the one it was made of")
    http = package_of(inner)
    operator = operator_settings(protocol, profile, controls, rules)
    endpoints = _endpoints(str(given.base_url).rstrip("/") + kind.below, kind.routes)
    turnstile = Turnstile()
    # The outer client only carries requests to the transport: what the environment says is the inner one's affair.
    settings: dict[str, Any] = {"timeout": inner.timeout, "cookies": inner.cookies.jar, "trust_env": False}
    if blocks:
        contract = Contract(endpoints, operator, clock=BlockingClock(turnstile))
        outer = http.Client(transport=ContractTransport(http, inner, contract, kind.routes, turnstile), **settings)
    else:
        contract = Contract(endpoints, operator)
        outer = http.AsyncClient(transport=AsyncContractTransport(http, inner, contract, kind.routes), **settings)
    return given.copy(http_client=outer)


def operator_settings(
    protocol: Protocol | str | None,
    profile: Mapping[str, Any] | None,
    controls: Controls | None,
    rules: Sequence[GroundingRule],
) -> OperatorSettings:
    """Return the settings of every turn, checked; raise `ConfigError`.

    Without `controls` no failure is remembered: who asks again in the same process means it (rule 144 is about clients
    that send a failed request again by themselves, and SDKs are told not to).
    """
    settings = controls or Controls(remember_failures=0.0)
    if protocol is not None:
        try:
            settings = msgspec.structs.replace(settings, protocol=Protocol(protocol))
        except ValueError:
            known = ", ".join(Protocol)
            raise ConfigError(f"there is no protocol {protocol!r}; there are: {known}") from None
    check_rules(tuple(rules))
    overrides = read_overrides((profile,), "wrap") if profile is not None else ()
    return OperatorSettings(controls=settings, rules=tuple(rules), overrides=overrides)


def _kind_of(client: object) -> tuple[_Kind, bool]:
    """Return the SDK that a client is of, and whether it blocks; raise `ConfigError` for anything else."""
    for kind in _KINDS:
        sdk = sys.modules.get(kind.package)  # an object of a package that is not loaded does not exist
        for blocks, name in ((True, kind.blocking), (False, kind.awaited)):
            if sdk is not None and isinstance(client, getattr(sdk, name)):
                return kind, blocks
    known = ", ".join(f"{kind.package}.{name}" for kind in _KINDS for name in (kind.blocking, kind.awaited))
    raise ConfigError(f"wrap takes a client object of {known}; got {type(client).__module__}.{type(client).__name__}")


def _endpoints(base_url: str, routes: Routes) -> tuple[Endpoint, ...]:
    """Return the upstream as the engine sees it, once for each wire.

    It is tried once: how often a request is sent again is the client's own `max_retries`. Its name holds a slash, so
    that no name of a model begins with it.
    """
    host = urlsplit(base_url).netloc
    once = Backoff(retries=0)
    return tuple(
        Endpoint(name=f"{host}/{wire}", wire=wire, base_url=base_url, backoff=once) for wire in routes.values()
    )
