"""SDK clients for an `Upstream`: what they ask is a turn of the engine in this process, whichever wire it speaks.

Frameworks that take an SDK's client get mustcall this way; their own mapping of messages, tools, settings and errors
stays in use.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mustcall.adapters.contract import Contract
from mustcall.adapters.httpx_answers import Routes, UpstreamTransport
from mustcall.adapters.httpx_seam import package_of
from mustcall.adapters.wrapping import ANTHROPIC_ROUTES, OPENAI_ROUTES, operator_settings
from mustcall.engine.agent.upstream import Upstream
from mustcall.policy.facts.controls import Controls
from mustcall.policy.words.grounding import GroundingRule

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

__all__ = ["anthropic_client", "contract_for", "openai_client"]

#: Where the SDKs think that they send requests; nothing is ever looked up there.
_NOWHERE = "http://mustcall.invalid"
_NO_KEY = "the upstream has its own"


def openai_client(
    upstream: Upstream, *, controls: Controls | None = None, rules: Sequence[GroundingRule] = ()
) -> "AsyncOpenAI":
    """Return a client of OpenAI's SDK for this upstream. It holds nothing open between two requests."""
    import openai  # noqa: PLC0415  an extra

    http: Any = openai.DefaultAsyncHttpxClient
    contract = contract_for(upstream, controls, rules)
    return openai.AsyncOpenAI(
        base_url=f"{_NOWHERE}/v1",
        api_key=_NO_KEY,
        max_retries=0,  # the engine tries again by itself
        http_client=_http_client(http, contract, OPENAI_ROUTES, upstream),
    )


def anthropic_client(
    upstream: Upstream, *, controls: Controls | None = None, rules: Sequence[GroundingRule] = ()
) -> "AsyncAnthropic":
    """Return a client of Anthropic's SDK for this upstream. It holds nothing open between two requests."""
    import anthropic  # noqa: PLC0415  an extra

    http: Any = anthropic.DefaultAsyncHttpxClient
    contract = contract_for(upstream, controls, rules)
    return anthropic.AsyncAnthropic(
        base_url=_NOWHERE,
        api_key=_NO_KEY,
        max_retries=0,  # the engine tries again by itself
        http_client=_http_client(http, contract, ANTHROPIC_ROUTES, upstream),
    )


def contract_for(upstream: Upstream, controls: Controls | None = None, rules: Sequence[GroundingRule] = ()) -> Contract:
    """Return what serves turns on this upstream, with what it knows and what its turns taught.

    Whatever model a client names, the upstream's own is asked for, where it has one.
    """
    endpoint = msgspec.structs.replace(upstream.endpoint, model=upstream.model)
    operator = msgspec.structs.replace(operator_settings(None, None, controls, rules), overrides=upstream.overrides)
    return Contract((endpoint,), operator, clock=upstream.clock, learnt=upstream.learnt)


def _http_client(kind: Any, contract: Contract, routes: Routes, upstream: Upstream) -> Any:
    return kind(transport=UpstreamTransport(package_of(kind), contract, routes, upstream.connected))
