"""The replay button: a kept request again, bare and through mustcall, to the upstream it went to before."""

from contextlib import aclosing
from typing import Any

import msgspec

from mustcall.core.errors import UpstreamUnavailable
from mustcall.gateway.config.settings import Settings
from mustcall.gateway.request_controls import take_controls
from mustcall.gateway.service import Service
from mustcall.ledger import TurnTrace
from mustcall.policy.facts.routing import choose
from mustcall.replay import (
    RecordedRequest,
    ReplaySample,
    ReplaySubject,
    announce,
    from_turn,
    is_unreachable,
    replay,
    summarise,
)

__all__ = ["TIMES", "announced", "replayed"]

#: How often a request may be sent each way.
TIMES = (1, 3, 5, 10)


def announced(turn: TurnTrace, settings: Settings, service: Service) -> dict[int, str]:
    """Return what each number of replays takes at most; raise `ContentsNotKept`, or `CallerError` for no route."""
    recorded, subject = _subject(turn, settings, service)
    return {times: announce(recorded, subject, times=times).words for times in TIMES}


async def replayed(turn: TurnTrace, times: int, settings: Settings, service: Service) -> dict[str, Any]:
    """Send the request so often each way; return what came of it. Raise `UpstreamUnavailable` where nobody answers."""
    recorded, subject = _subject(turn, settings, service)
    async with aclosing(replay(recorded, subject, times=times)) as samples:
        taken: list[ReplaySample] = []
        async for sample in samples:
            taken.append(sample)
            if is_unreachable(taken):
                raise UpstreamUnavailable(f"the upstream cannot be reached: {sample.message}")
    told = summarise(recorded, taken)
    return {
        "arms": [
            {
                "name": str(arm.arm),
                "ok": {**msgspec.structs.asdict(arm.ok), "rate": arm.ok.rate},
                "verdicts": [[words.split(" → "), count] for words, count in arm.verdicts.items()],
                "calls": arm.calls,
                "seconds": arm.seconds,
                "tokens": arm.input_tokens + arm.output_tokens,
                "cost_usd": arm.cost_usd,
            }
            for arm in told.arms
        ],
        "recovered": None
        if told.recovered is None
        else {**msgspec.structs.asdict(told.recovered), "rate": told.recovered.rate},
        "differs": list(told.differs),
        "redacted": recorded.redacted,
    }


def _subject(turn: TurnTrace, settings: Settings, service: Service) -> tuple[RecordedRequest, ReplaySubject]:
    """Return the request without mustcall's own extension, and whom to ask: its upstream, if that is still there."""
    recorded = from_turn(turn)
    controls, body = take_controls(recorded.body, {}, settings.operator.controls)
    own = [door for door in settings.doors if door.name == recorded.upstream] or list(settings.doors)
    routes = [route for route in settings.routes if any(door.name == route.upstream for door in own)]
    found = choose(recorded.model, recorded.wire, routes, own)
    endpoint = next(endpoint for endpoint in settings.endpoints if endpoint.name == found.upstream)
    subject = ReplaySubject(
        endpoint=endpoint,
        model=found.model,
        transport=service.transport,
        clock=service.clock,
        operator=settings.operator,
        controls=controls,
        patience=settings.server.request_timeout,
        limits=settings.limits,
    )
    return msgspec.structs.replace(recorded, body=body), subject
