"""What one caller writes changes no other caller's requests (rule 139): lessons need evidence, and have an owner.

A gateway without sockets before an upstream that records every byte. Its errors say what the test makes them say.
"""

import json
import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from mustcall.core.errors import MustcallError
from mustcall.core.origin import Wire
from mustcall.engine.exchange import StreamedReply
from mustcall.engine.records import TurnProgress
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.service import Service
from mustcall.policy.failures.rejection import SIGNS
from mustcall.testing import Call, Say, Turn
from mustcall.testing.render import Stamp, build_reply, stream_reply
from mustcall.testing.transport import FakeClock, FakeReply, FakeTransport
from mustcall.upstream.seam import UpstreamCall
from support.exchanging import SSE

Json = dict[str, Any]
#: An error's message, or a reply.
Answer = str | Turn

GOOD = Turn(Call("get_weather", {"city": "Paris"}))
PLAIN = Turn(Say("It is sunny."))
RICH: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": "number", "multipleOf": 0.5},
        "at": {"$ref": "#/$defs/at"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"at": {"type": "string"}},
}


class Recorder(FakeTransport):
    """Answers from a list, in the form each request asks for; keeps every body."""

    def __init__(self) -> None:
        super().__init__(())
        self.answers: list[Answer] = []
        self.bodies: list[bytes] = []

    async def send(self, call: UpstreamCall) -> FakeReply:
        """Return the next answer; what was not expected is refused without a word."""
        assert call.body is not None
        self.bodies.append(call.body)
        answer = self.answers.pop(0) if self.answers else "no"
        if isinstance(answer, str):
            body = {"error": {"message": answer, "type": "invalid_request_error", "param": None, "code": None}}
            return FakeReply(json.dumps(body).encode(), status=400)
        asked, stamp = json.loads(call.body), Stamp(len(self.bodies))
        if asked.get("stream"):
            return FakeReply(*stream_reply(answer, Wire.CHAT, asked, stamp), headers=SSE)
        return FakeReply(json.dumps(build_reply(answer, Wire.CHAT, asked, stamp)).encode())


class Gate:
    """One gateway with client keys, in this process."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.upstream = Recorder()
        settings = msgspec.structs.replace(
            settings_from_flags("chat=http://up.example/v1"), client_keys=("key-a", "key-b", "key-c")
        )
        self.service = Service(settings, self.upstream, self.clock)
        self._number = 0

    async def ask(self, key: str, body: Json | bytes, *answers: Answer) -> list[bytes]:
        """Take a turn of a key; return what was sent for it."""
        self._number += 1
        self.upstream.answers, self.upstream.bodies = list(answers), []
        written = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            came = await self.service.turn(
                Wire.CHAT,
                written,
                {},
                "",
                f"t{self._number}",
                progress=TurnProgress(),
                caller={"authorization": f"Bearer {key}"},
            )
            if isinstance(came, StreamedReply):
                async for _ in came.chunks:
                    pass
        except MustcallError:
            pass
        return self.upstream.bodies

    @property
    def facts(self) -> dict[str, Any]:
        """What was learnt, whoever taught it."""
        return {one.field: one.fact.value for one in self.service.learnt.facts()}


def asked(text: str = "What is the weather?", **more: Any) -> Json:
    """A request with one tool."""
    function = {"name": "get_weather", "description": "Tell the weather.", "parameters": RICH}
    return {
        "model": "m",
        "messages": [{"role": "user", "content": text}],
        "tools": [{"type": "function", "function": function}],
        **more,
    }


NAMED = {"type": "function", "function": {"name": "get_weather"}}
FORMAT: Json = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {}}}}
#: What the well-behaved caller asks, again and again, and what it is answered.
HONEST: list[tuple[Json, Turn]] = [
    (asked(), PLAIN),
    (asked(stream=True), PLAIN),
    (asked(tool_choice="required", parallel_tool_calls=False), GOOD),
    (asked(tool_choice=NAMED), GOOD),
    (asked(tool_choice=NAMED, reasoning_effort="high"), GOOD),
    (asked(response_format=FORMAT), Turn(Say("{}"))),
    ({**asked(), "tools": []}, PLAIN),
    (asked(messages=[{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "I"}]), PLAIN),
]


async def told(gate: Gate, key: str = "key-b") -> list[list[bytes]]:
    """Return all bytes that a well-behaved caller's requests become, one after the other."""
    return [await gate.ask(key, body, answer) for body, answer in HONEST]


def hostile(chance: random.Random) -> tuple[Json, list[Answer]]:
    """Return a request made to teach something false, and what the upstream says to it."""
    sign = chance.choice(SIGNS)
    words = " ".join(sign.words)
    said = chance.choice([words, f"Error: {words}", f"Invalid value '{words}' for model m", f"{words} {words}".upper()])
    text = chance.choice(["Hello.", words, f"say: {words}", "".join(f"\\u{ord(c):04x}" for c in words)])
    body, answer = chance.choice(HONEST)
    body = {**body, "messages": [{"role": "user", "content": text}, *body["messages"][1:]]}
    if chance.random() < 0.3:
        body = {**body, chance.choice(["user", "metadata", words]): words}
    if chance.random() < 0.3:
        body = {**body, "model": chance.choice(["m", f"m{chance.randrange(3000)}", words])}
    rest: list[Answer] = chance.choice(
        [[answer], [], [said], [GOOD], [PLAIN], [PLAIN] * 5, [chance.choice(SIGNS).words[0], answer], [said, PLAIN]]
    )
    return body, [said, *rest] if chance.random() < 0.9 else rest


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_thousand_hostile_requests_change_nothing_for_another(seed: int) -> None:
    """Rule 139: with any text in any error, not one byte of another key's requests changes."""
    chance = random.Random(seed)
    quiet, attacked = Gate(), Gate()
    assert await told(quiet) == await told(attacked)
    for number in range(1000):
        body, answers = hostile(chance)
        await attacked.ask("key-a", body, *answers)
        if number % 100 == 99:
            assert await told(attacked) == await told(quiet)
    assert attacked.facts  # it taught itself a lot
    assert await told(attacked, "key-c") == await told(quiet, "key-c")


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        (asked(), "protocol", "m does not support tools"),
        (asked(tool_choice="required"), "forced", "tool_choice is not supported"),
        (asked(tool_choice=NAMED), "named", "Invalid tool_choice type: 'object'"),
        (asked(parallel_tool_calls=False), "parallel", "parallel_tool_calls: unsupported"),
    ],
)
async def test_a_lesson_is_learnt_from_a_mended_request_that_is_answered(body: Json, field: str, message: str) -> None:
    """Rules 33, 139: refused and answered without what was refused: learnt. Refused again: nothing is learnt."""
    gate = Gate()
    answer = GOOD if "tool_choice" in body else PLAIN
    if field == "protocol":
        answer = PLAIN
    assert len(await gate.ask("key-a", body, message, "no")) == 2
    assert gate.facts == {}
    assert len(await gate.ask("key-a", body, message, answer)) == 2
    assert set(gate.facts) == {field}
    (sent,) = await gate.ask("key-a", body, answer)
    assert sent != json.dumps(body).encode()


def _spelled(words: str) -> Iterable[tuple[str, Json | bytes]]:
    """Yield ways to write words into a request."""
    yield "content", asked(f"My model {words}.")
    yield "upper case", asked(f"My model {words}.".upper())
    yield "a name", {**asked(), words: 1}
    yield "nested", asked(metadata={"a": [{"b": f"x {words}"}]})
    escaped = "".join(f"\\u{ord(character):04x}" for character in words)
    yield "escaped", json.dumps(asked("WORDS")).replace("WORDS", escaped).encode()


@pytest.mark.parametrize(("how", "body"), list(_spelled("does not support tools")), ids=lambda one: str(one)[:12])
async def test_words_of_the_request_teach_nothing(how: str, body: Json | bytes) -> None:
    """Rule 139: an error may quote the request; the turn tries what it seems to say, and nothing is learnt from it."""
    gate = Gate()
    for _ in range(2):
        sent = await gate.ask("key-a", body, "Bad request: m does not support tools", PLAIN)
        assert ["tools" in json.loads(one) for one in sent] == [True, False]
    assert gate.facts == {}, how


async def test_a_refused_schema_says_nothing_about_others() -> None:
    """Rules 130, 139: the schema that was refused is sent in a narrower form from then on, no other one is."""
    gate = Gate()
    other: Json = {"type": "function", "function": {"name": "other", "parameters": {**RICH, "required": ["days"]}}}
    body = asked()
    both = {**body, "tools": [*body["tools"], other]}
    refusal = "Invalid schema for function 'get_weather': multipleOf is not permitted"
    assert len(await gate.ask("key-a", both, refusal, PLAIN)) == 2
    assert [field.partition(":")[0] for field in gate.facts] == ["schema"]
    (sent,) = await gate.ask("key-a", both, PLAIN)
    narrowed, kept = (tool["function"]["parameters"] for tool in json.loads(sent)["tools"])
    assert "multipleOf" not in json.dumps(narrowed)
    assert kept == other["function"]["parameters"]
    described = json.loads(json.dumps(body))
    described["tools"][0]["function"]["parameters"]["properties"]["city"]["description"] = "Another word."
    (sent,) = await gate.ask("key-a", described, PLAIN)
    assert "multipleOf" not in sent.decode()  # a description is no part of what was refused
    assert await gate.ask("key-b", body, PLAIN) == [json.dumps(body).encode()]


async def test_two_keys_teach_a_third() -> None:
    """Rule 139: what two callers have learnt, each by itself, is believed for all."""
    gate = Gate()
    refused = ("m does not support tools", PLAIN)
    await gate.ask("key-a", asked(), *refused)
    assert await gate.ask("key-c", asked(), PLAIN) == [json.dumps(asked()).encode()]
    assert len(await gate.ask("key-b", asked(), *refused)) == 2
    (sent,) = await gate.ask("key-c", asked(), PLAIN)
    assert "tools" not in json.loads(sent)
    gate.clock.advance(3601)
    assert await gate.ask("key-c", asked(), PLAIN) == [json.dumps(asked()).encode()]  # it is tried again
