"""One turn as something to paste: a curl line, a Python program, a test that plays the upstream's part. Pure text."""

import hashlib
import json
import shlex
from typing import Any

import msgspec

from mustcall.core.origin import Wire
from mustcall.ledger import AttemptTrace, TurnTrace
from mustcall.wire.registry import codec_for

__all__ = ["as_curl", "as_pytest", "as_python", "copies"]

_KEY_VARIABLE = "MUSTCALL_KEY"
#: Bytes of a body that is an argument; Linux takes none of 128 KiB. A longer one is read from a here-document, which
#: ends it with a line feed: white space to JSON.
_LONGEST_ARGUMENT = 64 * 1024
#: How reasoning, text, a refusal and a call are scripted, by the name of the part.
_SCRIPTED = {"text": "Say", "reasoning": "Think", "refusal": "Refuse"}


def copies(turn: TurnTrace, url: str, *, key: bool) -> dict[str, str]:
    """Return the turn in every form that it has; empty where the request was not kept."""
    if not turn.request:
        return {}
    again = {"curl": as_curl(turn, url, key=key), "python": as_python(turn, url, key=key)}
    # Where the client left there is no status that a test could expect.
    return again if turn.ended == "gone" else {**again, "pytest": as_pytest(turn)}


def as_curl(turn: TurnTrace, url: str, *, key: bool) -> str:
    """Return the shell line that sends the caller's request again."""
    headers = ["content-type: application/json", *(["anthropic-version: 2023-06-01"] if _is_messages(turn) else [])]
    said = [f"  -H {shlex.quote(header)}" for header in headers]
    if key:
        said.append(f'  -H "authorization: Bearer ${_KEY_VARIABLE}"')
    body = turn.request.decode("utf-8", "replace")
    data = shlex.quote(body)
    if len(data.encode()) > _LONGEST_ARGUMENT:
        mark = "END"
        while mark in body:  # twice at most, unless a body holds a digest of itself
            mark = f"END_{hashlib.sha256((mark + body).encode()).hexdigest()[:16]}"
        data = f"@- <<'{mark}'\n{body}\n{mark}\n"
    return " \\\n".join([f"curl -sS {shlex.quote(url + _path(turn))}", *said, f"  --data-binary {data}"])


def as_python(turn: TurnTrace, url: str, *, key: bool) -> str:
    """Return a program of the standard library alone that sends the caller's request again."""
    headers = {"content-type": "application/json"}
    if _is_messages(turn):
        headers["anthropic-version"] = "2023-06-01"
    lines = ["import json", *(["import os"] if key else []), "import urllib.request", ""]
    lines += [f"body = {_literal(turn.request)}", f"headers = {headers!r}"]
    if key:
        lines.append(f'headers["authorization"] = "Bearer " + os.environ["{_KEY_VARIABLE}"]')
    lines += [
        f"request = urllib.request.Request({url + _path(turn)!r}, json.dumps(body).encode(), headers)",
        "with urllib.request.urlopen(request) as answer:",
        "    print(answer.read().decode())",
    ]
    return "\n".join(lines) + "\n"


def as_pytest(turn: TurnTrace) -> str:
    """Return a test: the same request, an upstream that answers as this one did, and the outcome it had."""
    answers = [_scripted(attempt) for attempt in turn.attempts]
    words = sorted({word for _, used in answers for word in used} | {"RunningGateway", "ScriptedUpstream"})
    script = "".join(f"    {line},\n" for line, _ in answers)
    name = "".join(sign if sign.isalnum() else "_" for sign in turn.id)
    return (
        "import json\n"
        "import urllib.error\n"
        "import urllib.request\n\n"
        f"from mustcall.testing import {', '.join(words)}\n\n"
        f"REQUEST = {_literal(turn.request)}\n"
        f"ANSWERS = [\n{script}]\n\n\n"
        f"def test_{name}():\n"
        f'    """{turn.outcome or "no outcome"} after {" → ".join(_word(one) for one in turn.attempts)}."""\n'
        "    with ScriptedUpstream(ANSWERS) as upstream, "
        f'RunningGateway(f"{_upstream_wire(turn)}={{upstream.base_url}}") as gateway:\n'
        f"        request = urllib.request.Request(gateway.url + {_path(turn)!r}, json.dumps(REQUEST).encode(),\n"
        '                                         {"content-type": "application/json"})\n'
        "        try:\n"
        "            with urllib.request.urlopen(request) as answer:\n"
        "                answer.read()\n"
        "                status, headers = answer.status, answer.headers\n"
        "        except urllib.error.HTTPError as error:\n"
        "            with error:\n"
        "                status, headers = error.code, error.headers\n"
        f"    assert status == {turn.status}\n"
        f'    assert headers["x-mustcall-outcome"] in ("streaming", {turn.outcome!r})\n'
        f"    assert len(upstream.requests) == {sum(attempt.sends for attempt in turn.attempts)}\n"
    )


def _scripted(attempt: AttemptTrace) -> tuple[str, set[str]]:
    """Return how an attempt's reply is scripted, and the names that takes."""
    try:
        parts: list[dict[str, Any]] = json.loads(attempt.reply)["parts"]
    except (ValueError, KeyError, TypeError):
        return f"Fail(503, {(attempt.error or 'unavailable')!r})", {"Fail"}
    said: list[str] = []
    used = {"Turn"}
    for part in parts:
        if "call" in part:
            said.append(f"Call({part['call']!r}, {_arguments(part['arguments'])})")
            used.add("Call")
            continue
        for kind, word in _SCRIPTED.items():
            if kind in part:
                said.append(f"{word}({part[kind]!r})")
                used.add(word)
    return f"Turn({', '.join(said)})", used


def _arguments(text: str) -> str:
    """Return arguments as an object where that says the same, else as they came."""
    try:
        return repr(msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.DecodeError, RecursionError):
        return repr(text)


def _literal(body: bytes) -> str:
    """Return a JSON body as a Python value, one member a line; one that is no JSON as text."""
    try:
        read = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return repr(body.decode("utf-8", "replace"))
    members = "".join(f"    {name!r}: {value!r},\n" for name, value in read.items())
    return f"{{\n{members}}}"


def _path(turn: TurnTrace) -> str:
    return f"/v1{codec_for(Wire(turn.wire)).path}"


def _upstream_wire(turn: TurnTrace) -> str:
    """Return the wire that the scripted upstream speaks: the caller's own, on which nothing has to be translated."""
    return turn.wire


def _is_messages(turn: TurnTrace) -> bool:
    return turn.wire == Wire.MESSAGES


def _word(attempt: AttemptTrace) -> str:
    return attempt.verdict or attempt.error or "no verdict"
