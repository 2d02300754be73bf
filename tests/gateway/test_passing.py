"""Which headers of an upstream's answer reach the caller."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.gateway.passing import MOST_HEADERS, MOST_PASSED, WITHHELD, passed, withheld
from mustcall.testing import Say, ScriptedUpstream, Turn
from mustcall.testing.gateway import RunningGateway
from support.http import post

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"model": "m", "input": "Hi"},
    "messages": {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]},
}
#: What providers were seen to send, and a header nobody knows yet.
PASS = {
    "age": "3",
    "apim-request-id": "a-1",
    "cf-cache-status": "DYNAMIC",
    "cf-ray": "8f00-FRA",
    "date": "Fri, 01 May 2026 12:00:00 GMT",
    "anthropic-ratelimit-tokens-limit": "480000",
    "openai-model": "m-2026",
    "openai-processing-ms": "12",
    "openai-version": "2020-10-01",
    "request-id": "req_1",
    "server": "cloudflare",
    "via": "1.1 edge",
    "x-codex-primary-used-percent": "12",
    "x-envoy-upstream-service-time": "5",
    "x-groq-region": "fra",
    "x-ratelimit-limit-project-tokens": "9",
    "x-ratelimit-remaining-requests": "9999",
    "x-request-id": "req_2",
    "x-something-new": "a, b",
}
STAY = {
    "access-control-allow-origin": "*",
    "alt-svc": 'h3=":443"',
    "anthropic-organization-id": "0d5c",
    "content-language": "en",
    "etag": '"abc"',
    "keep-alive": "timeout=5",
    "openai-organization": "operators-company",
    "openai-project": "proj_1",
    "set-cookie": "__cf_bm=1; path=/",
    "strict-transport-security": "max-age=31536000",
    "www-authenticate": "Bearer",
    "x-hop": "named by connection",
    "x-litellm-key-spend": "12.5",
    "x-litellm-model-api-base": "http://10.0.0.7/v1",
    "x-ms-deployment-name": "operators-deployment",
    "x-mustcall-outcome": "failure",
}


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_end_to_end_headers_pass(wire: str, stream: bool) -> None:
    """Rule 112: on a healthy turn every end-to-end header of the upstream reaches the caller, known or not."""
    turn = Turn(Say("Hello."), headers={**PASS, **STAY, "connection": "keep-alive, x-hop"})
    with ScriptedUpstream([turn]) as upstream, RunningGateway(f"{wire}={upstream.base_url}") as gateway:
        answer = post(gateway.url + PATHS[wire], {**BODIES[wire], "stream": stream})
        assert len(upstream.requests) == 1
    assert answer.status == 200
    assert {name: answer.headers.get(name) for name in PASS} == PASS
    assert {name for name in STAY if answer.headers.get(name) == STAY[name]} == set()


def test_the_callers_cache_advice_is_the_upstreams() -> None:
    """Rule 112: where the upstream says how a stream may be cached, nothing is added to it."""
    turn = Turn(Say("Hello."), headers={"cache-control": "no-store"})
    script = [turn, Turn(Say("Hello."))]
    with ScriptedUpstream(script) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        said = post(gateway.url + PATHS["chat"], {**BODIES["chat"], "stream": True})
        unsaid = post(gateway.url + PATHS["chat"], {**BODIES["chat"], "stream": True})
    assert (said.headers["cache-control"], unsaid.headers["cache-control"]) == ("no-store", "no-cache")


@pytest.mark.parametrize("row", WITHHELD, ids=lambda row: row.what)
def test_every_withheld_name_has_its_reason(row: Any) -> None:
    """Rule 112: what stays here is covered by the table, and by one row of it."""
    names = {*row.names, *(f"{prefix}x" for prefix in row.prefixes), *(f"x-{word}-id" for word in row.words)}
    assert names
    assert row.why
    for name in names:
        assert withheld(name) is row


def test_a_head_that_clients_would_refuse_is_cut() -> None:
    """Rule 112: headers pass up to a size that clients read; those before it pass whole."""
    many = {f"x-{number:04}": "v" * 100 for number in range(1000)}
    shown = dict(passed(many))
    assert shown == dict(list(many.items())[: len(shown)])
    assert MOST_PASSED - 100 <= sum(len(name) + len(value) + 4 for name, value in shown.items()) <= MOST_PASSED


def test_headers_that_clients_would_refuse_for_their_number_are_cut() -> None:
    """Rule 112: an upstream with thousands of short headers is answered by a head that Python's client reads."""
    many = {f"x-{number}": "v" for number in range(5000)}
    with (
        ScriptedUpstream([Turn(Say("Hi."), headers=many)]) as upstream,
        RunningGateway(f"chat={upstream.base_url}") as gateway,
    ):
        got = post(gateway.url + PATHS["chat"], BODIES["chat"])
    assert got.json["choices"][0]["message"]["content"] == "Hi."
    numbered = [name for name in got.headers if name in many]
    assert numbered == list(many)[: len(numbered)]
    assert len(passed(many)) == MOST_HEADERS >= len(numbered) > 0


@given(st.dictionaries(st.from_regex(r"[a-z0-9_-]{1,30}", fullmatch=True), st.text("ab, -", max_size=20), max_size=8))
def test_nothing_is_invented(headers: dict[str, str]) -> None:
    """Rule 112: what passes came in, in the same order; what does not has a row, or is listed by `connection`."""
    shown = dict(passed(headers))
    assert list(shown.items()) == [item for item in headers.items() if item[0] in shown]
    hops = {name.strip() for name in headers.get("connection", "").split(",")}
    for name in headers.keys() - shown.keys():
        assert withheld(name) is not None or name in hops
