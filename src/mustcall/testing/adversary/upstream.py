"""A lying upstream: whatever it is asked, it may answer anything, and it keeps a record of what was true.

    adversary = Adversary()
    adversary.expect("my-model-7", Demand(seed=7, tools=(Offer("look_up", schema),), choice=Choice("required")))
    with ScriptedUpstream(adversary) as upstream: ...
    for told in adversary.told["my-model-7"]: ...

One seed gives one turn: attempt after attempt it says the same things again, whatever else goes on. A turn is known by
its model name, so that many may run at once. What it promises about each attempt is in `AttemptTruth`; whether a caller
got what it was promised is for a checker to say.
"""

import random
import re
import zlib
from typing import Any

import msgspec

from mustcall.core.origin import JsonObject, Wire
from mustcall.dialects import WrittenCall
from mustcall.testing.adversary import faults
from mustcall.testing.adversary.bodies import BODY_BENDS
from mustcall.testing.adversary.content import (
    CallerIntent,
    ContentMarks,
    Spoken,
    choose_dialect,
    honest_call,
    honest_text,
    lie,
)
from mustcall.testing.adversary.values import sample
from mustcall.testing.adversary.wire import STREAM_BENDS, Effect, parse_events, write_events
from mustcall.testing.delivery import random_chunks
from mustcall.testing.offers import OfferedTool, as_object, as_objects, choice_of, offers_of
from mustcall.testing.recording import Recorded
from mustcall.testing.render import Stamp, build_reply, stream_reply
from mustcall.testing.render.stamp import to_json
from mustcall.testing.script import Answer, Delayed, Fail, Raw, RawStream, Say, Turn

__all__ = ["Adversary", "AttemptTruth", "CallerIntent", "ContentMarks"]


class AttemptTruth(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about one attempt.

    `calls` are the calls it means, by the caller's names; `text` the answer it means, None where that is open.
    `calls_may` and `text_may`: whether its calls, its text may be part of a good outcome. `exact`: what is delivered is
    what was meant, value for value. `within`: it says nothing that none of these calls says. `clean`: plain text that
    may stay in the context of a forced turn's next attempt. `declines`: a refusal or a filter. `bent`: written so oddly
    that nothing is promised about what is markup in it.
    """

    what: str
    marks: ContentMarks
    honest: bool = False
    calls: tuple[tuple[str, Any], ...] = ()
    text: str | None = None
    calls_may: bool = False
    text_may: bool = False
    exact: bool = True
    within: tuple[tuple[str, Any], ...] = ()
    clean: bool = False
    declines: bool = False
    bent: bool = False


class Adversary:
    """A script for `ScriptedUpstream` that lies. `told` has the record of each turn, by model name."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._demands: dict[str, CallerIntent] = {}
        self.told: dict[str, list[AttemptTruth]] = {}

    def expect(self, model: str, demand: CallerIntent) -> None:
        """Say what the caller of this model wants; without it the request is taken at its word."""
        self._demands[model] = demand

    def forget(self, model: str) -> list[AttemptTruth]:
        """Return what was told under this model name, and keep it no longer."""
        self._demands.pop(model, None)
        return self.told.pop(model, [])

    def __call__(self, recorded: Recorded) -> Answer:
        """Answer one request."""
        body = as_object(recorded.body)
        model, wire = str(body.get("model")), recorded.wire
        if wire is None:
            return Fail(404, "there is nothing here")
        demand = self._demands.get(model) or _demand_of(wire, body, self._seed ^ zlib.crc32(model.encode()))
        record = self.told.setdefault(model, [])
        marks = ContentMarks(demand.seed, len(record))
        told, answer = answer_request(demand, marks, wire, body)
        record.append(told)
        return answer


def _demand_of(wire: Wire, body: JsonObject, seed: int) -> CallerIntent:
    return CallerIntent(seed=seed, tools=tuple(offers_of(wire, body)), choice=choice_of(wire, body))


def answer_request(
    demand: CallerIntent, marks: ContentMarks, wire: Wire, body: JsonObject
) -> tuple[AttemptTruth, Answer]:
    """Return the truth about an attempt and what is sent; the same for the same demand, marks and request."""
    source = random.Random(f"{marks.seed}/{marks.attempt}")  # noqa: S311  repeatable lies, not secrets
    stamp = Stamp(marks.seed * 100 + marks.attempt, "adversary")
    honest = demand.honest_from is not None and marks.attempt >= demand.honest_from
    if honest:
        spoken = answer_honestly(demand, marks, wire, body, source)
        return _tell(spoken, marks, honest=True), spoken.turn
    if source.random() < 0.25:
        return _fault(demand, marks, wire, body, stamp=stamp, source=source)
    spoken = lie(demand, marks, source)
    told = _tell(spoken, marks)
    breaks = source.random() < (0.6 if demand.hangs else 0.2)
    if source.random() < 0.5:
        if not breaks:
            return told, spoken.turn if source.random() < 0.9 else Delayed(spoken.turn, 0.004)
        answer, size, end = _write(spoken.turn, wire, body, stamp)
    else:
        told, answer, size, end = _bend(told, spoken.turn, wire, body, demand=demand, stamp=stamp, source=source)
    if breaks:
        how, answer, after = faults.break_connection(answer, size, source, hangs=demand.hangs)
        told = msgspec.structs.replace(told, what=f"{told.what}, {how}")
        if after < end:
            told = _unfinished(told, spoken.turn, demand)
    return told, answer


def _unfinished(told: AttemptTruth, turn: Turn, demand: CallerIntent) -> AttemptTruth:
    """Return the truth about a reply without its end: a demanded call in text may have been complete (rule 137)."""
    settles = told.calls_may and demand.forced and not turn.calls
    return msgspec.structs.replace(told, calls_may=settles, text_may=False, declines=False, clean=False)


def _write(turn: Turn, wire: Wire, body: JsonObject, stamp: Stamp) -> tuple[Answer, int, int]:
    """Return a turn as bytes, how many they are, and up to where a cut surely cuts the reply."""
    if body.get("stream") is not True:
        data = to_json(build_reply(turn, wire, body, stamp))
        return Raw(200, data), len(data), len(data)
    frames = stream_reply(turn, wire, body, stamp)
    return RawStream(frames), *_stream_sizes(frames)


def answer_honestly(
    demand: CallerIntent, marks: ContentMarks, wire: Wire, body: JsonObject, source: random.Random
) -> Spoken:
    """Do what the caller wants, in the form the request leaves for it."""
    wants_call = bool(demand.callable) and (demand.forced or source.random() < 0.5)
    if not wants_call:
        return honest_text(demand, marks, source)
    offered = _offered(demand, wire, body)
    if offered:
        return honest_call(demand, offered, marks, source)
    schema = _output_schema(body)
    if schema is not None and schema != demand.schema:
        return _schema_call(demand, schema, marks, source)
    tool = source.choice(demand.callable)
    dialect = choose_dialect(_system_text(body))
    if dialect is None:
        return honest_text(demand, marks, source)
    arguments = sample(tool.schema, source, marks.markup)
    text = dialect.render([WrittenCall(_listed_name(tool.name, _system_text(body)), arguments)])
    return Spoken(
        what=f"text call as asked, {dialect.name}",
        turn=Turn(Say(text)),
        calls=((tool.name, arguments),),
        calls_may=True,
        exact=dialect.name == "hermes",
    )


def _listed_name(name: str, system: str) -> str:
    """Return the name under which a rendered prompt lists a tool: its own, or the legal one that stands for it."""
    stem = re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:16]
    listed = re.findall(r"^## (.+)$", system, re.MULTILINE)
    return next((known for known in listed if known == name or (stem and known.startswith(stem))), name)


def _schema_call(demand: CallerIntent, schema: JsonObject, marks: ContentMarks, source: random.Random) -> Spoken:
    """Answer a request for a call in the form of a JSON schema.

    The form an upstream takes may have lost bounds (`maximum`) that are still the tool's.
    """
    value = as_object(sample(schema, source, marks.argument))
    own = {tool.name: tool.schema for tool in demand.callable}
    if (name := value.get("name")) in own:
        value = {**value, "arguments": sample(own[name], source, marks.argument)}
    text = to_json(value).decode()
    return Spoken(what="call as a schema answer", turn=Turn(Say(text)), calls_may=True, exact=False)


def _offered(demand: CallerIntent, wire: Wire, body: JsonObject) -> list[tuple[str, OfferedTool]]:
    """Return the tools that may be called: the name the request offers each under, and the caller's own."""
    pairs: list[tuple[str, OfferedTool]] = []
    for offer in offers_of(wire, body):
        same = [tool for tool in demand.callable if tool.name == offer.name]
        keys = set(as_object(offer.schema.get("properties")))
        alike = [tool for tool in demand.callable if set(as_object(tool.schema.get("properties"))) == keys]
        pairs += [(offer.name, tool) for tool in (same or alike)[:1]]
    return pairs


def _output_schema(body: JsonObject) -> JsonObject | None:
    """Return the schema the answer must have, on whichever wire."""
    for holder in (
        as_object(as_object(body.get("response_format")).get("json_schema")),
        as_object(as_object(body.get("text")).get("format")),
        as_object(as_object(body.get("output_config")).get("format")),
        as_object(body.get("output_format")),
    ):
        if isinstance(holder.get("schema"), dict):
            return as_object(holder["schema"])
    for word in ("guided_json", "format", "json_schema"):
        if as_object(body.get(word)):
            return as_object(body.get(word))
    return None


def _system_text(body: JsonObject) -> str:
    """Return everything the request says before the conversation, as one text."""
    texts: list[str] = []
    for key in ("system", "instructions"):
        texts += _texts(body.get(key))
    for message in as_objects(body.get("messages")) + as_objects(body.get("input")):
        texts += _texts(message.get("content"))
    return "\n".join(texts)


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(part.get("text")) for part in as_objects(content) if "text" in part]


def _tell(spoken: Spoken, marks: ContentMarks, *, honest: bool = False) -> AttemptTruth:
    return AttemptTruth(
        what=spoken.what,
        marks=marks,
        honest=honest,
        calls=spoken.calls,
        text=spoken.text,
        calls_may=spoken.calls_may,
        text_may=spoken.text_may,
        exact=spoken.exact,
        within=spoken.within,
        clean=spoken.clean,
        declines=spoken.declines,
    )


def _fault(
    demand: CallerIntent, marks: ContentMarks, wire: Wire, body: JsonObject, *, stamp: Stamp, source: random.Random
) -> tuple[AttemptTruth, Answer]:
    if demand.tools and source.random() < 0.15:
        tool = source.choice(demand.callable or demand.tools)
        call = WrittenCall(tool.name, sample(tool.schema, source, marks.markup))
        text = to_json({"name": call.name, "arguments": call.arguments}).decode()
        what, answer = faults.harvestable(f"<tool_call>{text}</tool_call>", marks.error, source)
        return AttemptTruth(what=what, marks=marks, calls_may=True, exact=False), answer
    what, answer = faults.fail(wire, body, marks.error, stamp, source)
    return AttemptTruth(what=what, marks=marks, bent=True), answer


def _bend(
    told: AttemptTruth,
    turn: Turn,
    wire: Wire,
    body: JsonObject,
    *,
    demand: CallerIntent,
    stamp: Stamp,
    source: random.Random,
) -> tuple[AttemptTruth, Answer, int, int]:
    """Write a reply the way a careless server does; also its size and where it ends."""
    streamed = body.get("stream") is True
    if source.random() < 0.05:  # the other form than the one asked for
        streamed = not streamed
    if not streamed:
        bend, effect = source.choice(BODY_BENDS)
        data = to_json(bend(build_reply(turn, wire, body, stamp), source))
        answer: Answer = Raw(200, data)
        size = end = len(data)
    else:
        bend, effect = source.choice(STREAM_BENDS[wire])
        events = bend(parse_events(stream_reply(turn, wire, body | {"stream": True}, stamp)), source)
        frames = write_events(events, source.choice([b"\n", b"\n", b"\r\n"]))
        size, end = _stream_sizes(frames)
        answer = RawStream(_drip(frames, source))
    what = f"{told.what}, {bend.__name__.strip('_')}"
    match effect:
        case Effect.KEEPS:
            return msgspec.structs.replace(told, what=what), answer, size, end
        case Effect.BENDS:
            bent = msgspec.structs.replace(
                told, what=what, calls_may=True, text_may=True, exact=False, within=(), clean=False
            )
            return msgspec.structs.replace(bent, bent=True), answer, size, end
        case Effect.ENDS:
            return msgspec.structs.replace(_unfinished(told, turn, demand), what=what), answer, size, size


_ENDINGS = (
    b"[DONE]",
    b'"finish_reason": "',
    b"event: message_delta",
    b"event: message_stop",
    b"event: response.completed",
    b"event: response.incomplete",
)


def _drip(frames: list[bytes], source: random.Random) -> list[bytes]:
    """Cut a stream into writes: an event each, anywhere, or a few bytes at a time."""
    largest = source.choice([0, 0, 40, 40, 3])
    if not largest:
        return [frame for frame in frames if frame]
    return list(random_chunks(source.randrange(1 << 30), largest)(b"".join(frames)))


def _stream_sizes(frames: list[bytes]) -> tuple[int, int]:
    """Return a stream's size and the place up to which a cut surely cuts the reply."""
    size = sum(map(len, frames))
    tail = sum(map(len, frames[-4:]))  # finish, usage, terminator: a cut among them may do no harm
    # Events may have changed places: what comes behind the first that says the end may be missed by nobody.
    told = next((place for place, frame in enumerate(frames) if any(mark in frame for mark in _ENDINGS)), len(frames))
    return size, min(max(0, size - tail), sum(map(len, frames[:told])))
