"""Recorded replies of real models through the engine: each has the outcome that stands in its record."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs

from mustcall.testing import Call
from support.examples import PROFILE
from support.replaying import CHUNKINGS, Outcome, ReplyText, assert_none, chat_body, replay

RECORDS = Path(__file__).parent / "recorded"
#: What the model does when it is asked again: a valid call by the server's own tool API.
SECOND = "second"


def read_records() -> Iterator[dict[str, Any]]:
    """Yield every record of every file."""
    for path in sorted(RECORDS.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


ALL = list(read_records())


def schemas_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of each offered tool."""
    return {tool["name"]: tool["parameters"] for tool in record["request"]["tools"]}


def violation(record: dict[str, Any], outcome: Outcome) -> str | None:
    """Say how an outcome differs from what the record expects, None if it does not."""
    expected = record["expected"]
    forced = record["request"]["tool_choice"] != "auto"
    calls = [{"name": name, "arguments": arguments} for name, arguments in outcome.calls]
    match expected["outcome"]:
        case "call" if forced:
            wrong = not calls or calls[0] != expected["calls"][0] or outcome.requests != 1
        case "call":
            wrong = calls != expected["calls"] or outcome.requests != 1
        case "answer":
            wrong = bool(calls) or bool(outcome.error) or outcome.text.strip() != record["text"].strip()
        case "unfit":
            wrong = any(not jsonschema_rs.is_valid(schemas_of(record).get(name, False), a) for name, a in outcome.calls)
        case "climb":
            wrong = not calls or outcome.requests < 2
        case other:
            raise AssertionError(f"{record['id']}: unknown outcome {other!r}")
    return f"{record['id']}: expected {expected}, got {outcome}" if wrong else None


def second_call(record: dict[str, Any]) -> Call:
    """Return a valid call of the named tool, or of the first, for when the model is asked again."""
    tools = record["request"]["tools"]
    tool = next((tool for tool in tools if tool["name"] == record["request"]["tool_choice"]), tools[0])
    values: dict[str, Any] = {
        "string": SECOND,
        "integer": 2,
        "number": 2.5,
        "boolean": True,
        "array": [],
        "object": {},
    }
    properties = tool["parameters"]["properties"]
    arguments = {
        name: properties[name].get("enum", [None])[0] or values[properties[name]["type"]]
        for name in tool["parameters"].get("required", ())
    }
    return Call(tool["name"], arguments)


def chunkings_of(number: int) -> list[str]:
    """Return how a record's text is cut: under `ci` by character, whole, and in one of the other ways in turn."""
    if PROFILE != "ci":
        return list(CHUNKINGS)
    others = [name for name in CHUNKINGS if name not in ("1", "once")]
    return ["1", "once", others[number % len(others)]]


async def replayed(record: dict[str, Any], chunking: str | None) -> Outcome:
    """Replay one record."""
    request = record["request"]
    return await replay(
        chat_body(request["messages"], request["tools"], request["tool_choice"]),
        ReplyText(record["text"], record["finish"]),
        second_call(record),
        chunking=None if chunking is None else CHUNKINGS[chunking],
    )


def test_records_are_sound() -> None:
    """Ids are unique; expected calls are offered, valid and stand in the text as JSON."""
    assert len({record["id"] for record in ALL}) == len(ALL) >= 168
    for record in ALL:
        for call in record["expected"].get("calls", ()):
            assert jsonschema_rs.is_valid(schemas_of(record)[call["name"]], call["arguments"]), record["id"]
            start = record["text"].index("{")
            assert json.JSONDecoder().raw_decode(record["text"][start:])[0] == call, record["id"]


async def test_recorded_replies() -> None:
    """Rules 63, 113, 137, 138: every recorded reply ends as its record says, whole and however the stream is cut.

    The outcome of a stream is that of the whole reply.
    """
    wrong: list[str | None] = []
    for number, record in enumerate(ALL):
        whole = await replayed(record, None)
        wrong.append(violation(record, whole))
        for name in chunkings_of(number):
            streamed = await replayed(record, name)
            wrong.append(violation(record, streamed))
            if (streamed.calls, streamed.text, streamed.error) != (whole.calls, whole.text, whole.error):
                wrong.append(f"{record['id']} cut {name}: {streamed}, whole {whole}")
    assert_none(wrong)
