"""A name that nobody serves, where every upstream has a model of its own."""

import msgspec
import pytest

from mustcall.gateway.config.settings import Settings, settings_from_flags
from mustcall.testing import RunningGateway, Say, ScriptedUpstream, Turn
from support.http import post

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def body(wire: str, model: str, *, stream: bool) -> dict[str, object]:
    """A question on a wire."""
    question = {"role": "user", "content": "Hi?"}
    asked = {"input": [question], "store": False} if wire == "responses" else {"messages": [question]}
    more = {"max_tokens": 50} if wire == "messages" else {}
    return {"model": model, **asked, **more, **({"stream": True} if stream else {})}


def settings(upstream: ScriptedUpstream, unknown: str = "answer") -> Settings:
    """A gateway whose upstream has the model `small`."""
    made = settings_from_flags(f"chat={upstream.base_url}")
    endpoints = tuple(msgspec.structs.replace(one, model="small") for one in made.endpoints)
    server = msgspec.convert({"unknown_model": unknown}, type(made.server))
    return msgspec.structs.replace(made, endpoints=endpoints, server=server)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("wire", PATHS)
def test_another_name_is_answered_and_said(wire: str, stream: bool) -> None:
    """The one model answers, and the adaptations say that it is another than was asked for."""
    with (
        ScriptedUpstream(default=Turn(Say("Hello."))) as upstream,
        RunningGateway(settings=settings(upstream)) as gateway,
    ):
        own = post(gateway.url + PATHS[wire], body(wire, "small", stream=stream))
        other = post(gateway.url + PATHS[wire], body(wire, "gpt-5", stream=stream))
        assert [request.body["model"] for request in upstream.requests] == ["small", "small"]
    assert (own.status, other.status) == (200, 200)
    assert "field_mapped:model" not in own.headers.get("x-mustcall-adaptations", "")
    assert "field_mapped:model" in other.headers["x-mustcall-adaptations"].split(", ")


@pytest.mark.parametrize("wire", PATHS)
def test_another_name_is_refused_by_setting(wire: str) -> None:
    """With `unknown_model = "refuse"` the caller is told which models there are, and nothing is sent."""
    with (
        ScriptedUpstream(default=Turn(Say("Hello."))) as upstream,
        RunningGateway(settings=settings(upstream, "refuse")) as gateway,
    ):
        own = post(gateway.url + PATHS[wire], body(wire, "small", stream=False))
        other = post(gateway.url + PATHS[wire], body(wire, "gpt-5", stream=False))
        assert len(upstream.requests) == 1
    assert (own.status, other.status) == (200, 404)
    assert "the model 'gpt-5' is not served here; served are: small" in other.body.decode()
