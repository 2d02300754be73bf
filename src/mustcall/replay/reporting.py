"""What is written about a failing request: the request, a curl line, a test that runs, and the text of an issue. Pure.

No key is ever written: the curl line takes it from the environment.
"""

import shlex
from collections.abc import Mapping

import msgspec

from mustcall.core.origin import Wire
from mustcall.replay.minimising import Minimised
from mustcall.upstream.endpoint import Endpoint
from mustcall.wire.registry import codec_for

__all__ = ["FILES", "curl_line", "files_of", "issue_text", "write_test"]

_REQUEST, _CURL, _ISSUE, _TESTS = "request.json", "curl.sh", "issue.md", "test_request.py"
#: Every file that may be written.
FILES = frozenset({_REQUEST, _CURL, _ISSUE, _TESTS})
#: Goes to where the script is, from wherever it is started.
_SCRIPT = """\
#!/bin/sh
CDPATH= cd -- "$(dirname -- "$0")" || exit
{line}
"""
_TEST = '''"""A request that failed with `{verdict}`, and the reply that the upstream gave.

Written by `mustcall minimise`. It needs nothing but `mustcall`: the upstream is scripted. Put it beside `request.json`.
"""

import asyncio
from pathlib import Path

from mustcall.core.origin import Wire
from mustcall.replay import ReplaySubject, from_file, sample_bare, sample_through
from mustcall.testing import FakeClock, {kind}, ScriptedUpstream
from mustcall.upstream.endpoint import Endpoint
from mustcall.upstream.http import HttpTransport

REQUEST = from_file(Path(__file__).with_name("request.json").read_bytes(), "request.json", Wire({wire!r}))
REPLY = {reply}


async def take(sample, upstream):
    transport = HttpTransport()
    endpoint = Endpoint(name="scripted", wire=Wire({upstream_wire!r}), base_url=upstream.base_url)
    subject = ReplaySubject(endpoint=endpoint, model={model!r}, transport=transport, clock=FakeClock())
    try:
        return await sample(REQUEST, subject)
    finally:
        await transport.close()


def test_the_bare_reply_fails():
    with ScriptedUpstream([REPLY]) as upstream:
        sample = asyncio.run(take(sample_bare, upstream))
    assert sample.verdict == {verdict!r}


def test_mustcall_gives_calls_an_answer_or_a_typed_error():
    with ScriptedUpstream(default=REPLY) as upstream:
        sample = asyncio.run(take(sample_through, upstream))
        assert 1 <= len(upstream.requests) <= 5
    assert sample.ok or sample.error
'''


def curl_line(recorded_wire: Wire, endpoint: Endpoint, gateway: str) -> str:
    """Return the command that sends `request.json` to the upstream; its key comes from `$API_KEY`.

    A model inside the process has no address that curl knows: it is asked through the gateway at `gateway`, and how to
    start that stands before the command.
    """
    if not _is_served(endpoint):
        return _through_gateway(recorded_wire, endpoint, gateway)
    headers = ["content-type: application/json"]
    if endpoint.wire is Wire.MESSAGES:
        headers += ["anthropic-version: 2023-06-01", "x-api-key: $API_KEY"]
    else:
        headers.append("authorization: Bearer $API_KEY")
    given = " ".join(f'-H "{header}"' for header in headers)
    note = "" if recorded_wire is endpoint.wire else f"  # the file is written for the {recorded_wire} wire"
    return f"curl -sS {shlex.quote(endpoint.base_url + codec_for(endpoint.wire).path)} {given} -d @{_REQUEST}{note}"


def _is_served(endpoint: Endpoint) -> bool:
    """Tell whether an upstream has an address; a model inside the process has none."""
    return endpoint.base_url.startswith(("http://", "https://"))


def _through_gateway(wire: Wire, endpoint: Endpoint, gateway: str) -> str:
    upstream = shlex.quote(f"{endpoint.wire}={endpoint.base_url}")
    url = shlex.quote(f"{gateway}/v1{codec_for(wire).path}")
    return "\n".join(
        [
            f"# It runs inside mustcall. Its bare reply: mustcall replay {_REQUEST} --wire {wire} --to {upstream}",
            f"# Through the gateway; start it first, in another terminal: mustcall serve --upstream {upstream}",
            f'curl -sS {url} -H "content-type: application/json" -d @{_REQUEST}',
        ]
    )


def write_test(found: Minimised, endpoint: Endpoint, model: str) -> str | None:
    """Return a test that runs without the upstream; None where its reply was too long to keep."""
    answer = found.sample.answer if found.sample is not None else None
    if answer is None or not answer.body:
        return None
    kind = "RawStream" if answer.streamed else "Raw"
    reply = f"RawStream([{answer.body!r}])" if answer.streamed else f"Raw({answer.status}, {answer.body!r})"
    return _TEST.format(
        verdict=found.found.verdict,
        kind=kind,
        wire=str(found.recorded.wire),
        upstream_wire=str(endpoint.wire),
        model=model,
        reply=reply,
    )


def issue_text(found: Minimised, model: str, versions: Mapping[str, str], send: str) -> str:
    """Return the text of an issue, in Markdown; `send` is the command that sends the request."""
    sample = found.sample
    lines = [f"# `{found.found.verdict}` from {model}", "", found.words + ".", ""]
    if found.caveat:
        lines += [found.caveat + ".", ""]
    lines += ["| what | version |", "|---|---|", *(f"| {name} | {value} |" for name, value in versions.items()), ""]
    lines += ["Send it:", "", "```sh", send, "```", ""]
    request = msgspec.json.format(found.recorded.body, indent=2).decode()
    lines += [f"`{_REQUEST}`" + (" (texts are masked)" if found.redacted else "") + ":", ""]
    lines += _fenced(request, "json")
    if sample is not None and not found.redacted:
        said = [sample.text] if sample.text else []
        said += [f"{call.name} {call.arguments}" for call in sample.calls]
        said += [f"{sample.error}: {sample.message}"] if sample.error else []
        lines += ["What came back:", "", *_fenced("\n".join(said) or "(nothing)", "")]
        if sample.problem:
            lines += [f"What is wrong with it: {sample.problem}", ""]
    return "\n".join(lines)


def _fenced(text: str, language: str) -> list[str]:
    """Return text between fences that it cannot end."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}{language}", text, fence, ""]


def files_of(
    found: Minimised, endpoint: Endpoint, model: str, versions: Mapping[str, str], *, gateway: str
) -> dict[str, str]:
    """Return every file by its name; `gateway` is where a gateway on this machine listens."""
    wire, shown = found.recorded.wire, endpoint
    if not _is_served(endpoint):  # an issue is for others: of a file it has the name, without this machine's folders
        scheme, _, file = endpoint.base_url.partition(":")
        shown = msgspec.structs.replace(endpoint, base_url=f"{scheme}:{file.rpartition('/')[2]}")
    files = {
        _REQUEST: msgspec.json.format(found.recorded.body, indent=2).decode() + "\n",
        _CURL: _SCRIPT.format(line=curl_line(wire, endpoint, gateway)),
        _ISSUE: issue_text(found, model, versions, curl_line(wire, shown, gateway)),
    }
    test = None if found.redacted else write_test(found, endpoint, model)
    if test is not None:
        files[_TESTS] = test
    return files
