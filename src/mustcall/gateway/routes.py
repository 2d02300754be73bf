"""What the gateway serves where: its paths, the method each takes, and what a path is called in the metrics."""

from collections.abc import Mapping

from mustcall.core.errors import UnknownRoute, WrongMethod
from mustcall.core.origin import Wire
from mustcall.gateway.state.stored_responses import PREFIX as STORED

__all__ = ["COUNT", "METRICS", "MODELS", "PROBES", "STORED", "TURNS", "check_route", "route_name", "wire_of"]

#: Paths below `/v1`; clients that leave the prefix out, or put `/api` before it, mean the same.
TURNS = {"/chat/completions": Wire.CHAT, "/responses": Wire.RESPONSES, "/messages": Wire.MESSAGES}
COUNT = "/messages/count_tokens"
MODELS = "/models"
PROBES = frozenset({"", "/health", "/healthz", "/readyz", "/api/hello"})
METRICS = "/metrics"
#: The method each path takes.
_METHODS = {**dict.fromkeys((*TURNS, COUNT), "POST"), MODELS: "GET", METRICS: "GET"}
_NAMES = {**{path: str(wire) for path, wire in TURNS.items()}, COUNT: "count_tokens", MODELS: "models"}


def wire_of(path: str, headers: Mapping[str, str]) -> Wire:
    """Return the wire that a request is answered on."""
    return TURNS.get(path) or (Wire.MESSAGES if path == COUNT or "anthropic-version" in headers else Wire.CHAT)


def route_name(path: str) -> str:
    """Return what a path is called in the metrics; whatever else callers think of is `other`."""
    return _NAMES.get(path) or ("stored" if path.startswith(STORED) else "other")


def check_route(path: str, method: str, asked: str, *, metrics: bool) -> None:
    """Raise for a path that is not served, or not by this method; `metrics` says that there are any."""
    expected = _METHODS.get(path)
    if path == METRICS and not metrics:
        expected = None
    if path.startswith(STORED):
        expected = method  # which methods a stored response takes is known there
    if expected is None:
        raise UnknownRoute(
            f"nothing is served at {asked!r}; the gateway serves POST /v1/chat/completions, /v1/responses, "
            "/v1/messages, /v1/messages/count_tokens, GET /v1/models, /metrics, and GET and DELETE /v1/responses/ID"
        )
    if method != expected and not (method == "HEAD" and expected == "GET"):
        raise WrongMethod(f"{asked} takes {expected}, not {method}", allowed=expected)
