"""The contract as a checker: what a caller got, held against what it asked for and what the upstream really said.

`check` returns every violation as a sentence; an empty list is a kept contract. Arguments are judged by
`jsonschema_rs`, replies by the official SDKs, bytes by a reader of the test's own: nothing is its own judge.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

import jsonschema_rs
import msgspec

from contract.client import Outcome
from contract.scenario import FIRST_PARTY, Scenario
from contract.sse import find_disorder, read_events, readable
from mustcall.testing import Recorded
from mustcall.testing.adversary.upstream import AttemptTruth
from mustcall.testing.offers import as_object, choice_of

__all__ = ["CEILING", "check"]

#: One attempt and four more, of any kind (rule 96).
CEILING = 5

_FOREIGN = ("Traceback (most recent", "internal_error", "the gateway failed")
#: After these an upstream may be asked for the reply in one piece: it refuses streams, or breaks on one of calls.
_NO_STREAM = re.compile(r"HTTP 50[01] |HTTP \d+ 'stream")
#: Refusals that depend on the model, so that a gateway may have to learn them (rules 33, 100).
_LEARNT = (None, "never_forces_thinking", "ends_with_user")
#: A request that only shows whether its tools are taken (rule 130): nobody reads its reply, which is this short.
_PROBE_TOKENS = 16
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
#: Where a request holds its answer to a schema: in settings of the wires, in fields of servers.
_OUTPUT_FIELDS = ("response_format", "text", "output_config", "output_format")
_GRAMMAR_FIELDS = ("json_schema", "guided_json")
#: The one error that carries a text (rule 27).
_UNMET = re.compile("force_unmet|ForceUnmet")


class _Error(msgspec.Struct):
    message: str
    type: str | None = None
    code: str | int | None = None


class _Content(msgspec.Struct):
    type: str


class _Contents(msgspec.Struct):
    """The content of a whole reply on the wires where it is a list of typed things."""

    content: list[_Content] = []
    output: list[_Content] = []


_KNOWN_CONTENT = frozenset(
    {"text", "thinking", "redacted_thinking", "tool_use", "message", "reasoning", "function_call", "custom_tool_call"}
)


class _ErrorBody(msgspec.Struct):
    error: _Error
    type: str | None = None


def check(
    scenario: Scenario,
    outcome: Outcome,
    told: Sequence[AttemptTruth],
    requests: Sequence[Recorded],
    *,
    trusting: bool = False,
) -> list[str]:
    """Return what was violated, each in a sentence.

    With `trusting`, arguments flow while they arrive: those of a call that turned out bad may have been seen, if the
    stream then failed and no other attempt was made.
    """
    turn = _Turn(scenario, outcome, told, requests, trusting=trusting)
    return list(turn.violations())


def _is_probe(body: dict[str, Any]) -> bool:
    return any(body.get(name) == _PROBE_TOKENS for name in _LIMITS)


class _Turn:
    """One turn and everything known about it."""

    def __init__(
        self,
        scenario: Scenario,
        outcome: Outcome,
        told: Sequence[AttemptTruth],
        requests: Sequence[Recorded],
        *,
        trusting: bool,
    ) -> None:
        #: Whether arguments may be seen before the call is whole.
        self.flows = trusting and scenario.stream
        self.scenario = scenario
        self.outcome = outcome
        self.told = told
        self.requests = requests
        self.seen = readable(bytes(outcome.capture.body))

    def _ceiling(self) -> int:
        """Return the most upstream requests: a caller's own word, else 5 and log2 n + 2 to find a refused tool."""
        asked = self.scenario.controls.get("extra-calls")
        if asked is not None:
            return min(CEILING, 1 + int(asked))
        offered = [len(as_object(one.body).get("tools") or ()) for one in self.requests]
        refused = any(one.status in (400, 422) and count for one, count in zip(self.requests, offered, strict=True))
        if not refused:
            return CEILING
        most = max(offered)
        without_some = sum(0 < count < most for count in offered)
        return CEILING + min(without_some, (most - 1).bit_length() + 2)

    def violations(self) -> Iterator[str]:
        outcome = self.outcome
        if outcome.kind == "broken":
            yield f"broken: {outcome.message}"
        ceiling = self._ceiling()
        if len(self.requests) > ceiling:
            yield f"ceiling: {len(self.requests)} upstream requests, at most {ceiling}"
        yield from (f"foreign: {word!r} in the answer" for word in _FOREIGN if word in self.seen)
        yield from self._check_order()
        if outcome.kind == "failed":
            yield from self._check_failure()
        elif outcome.kind == "answered":
            yield from self._check_calls() if outcome.calls else self._check_answer()
        yield from self._check_leaks()
        yield from self._check_requests()
        yield from self._check_liveness()
        yield from self._check_header()

    # --- shape ----------------------------------------------------------------------------------------------------

    def _check_order(self) -> Iterator[str]:
        capture = self.outcome.capture
        if self.scenario.stream and capture.headers.get("content-type", "").startswith("text/event-stream"):
            disorder = find_disorder(self.scenario.caller, bytes(capture.body))
            if disorder:
                yield f"order: {disorder}"

    def _check_failure(self) -> Iterator[str]:
        outcome = self.outcome
        if not outcome.message.strip():
            yield "failure: no message"
        try:
            body = msgspec.convert(self._error_body(), _ErrorBody)
        except (ValueError, KeyError, TypeError, IndexError) as problem:
            yield f"failure: not the wire's shape ({problem}): {bytes(outcome.capture.body[-200:])!r}"
            return
        if self.scenario.caller == "messages" and (body.type != "error" or not body.error.type):
            yield f"failure: not Anthropic's shape: {body!r}"
        if self.scenario.caller != "messages" and not (body.error.type or body.error.code):
            yield f"failure: neither type nor code: {body!r}"

    def _error_body(self) -> Any:
        """Return the error as it stands in the answer: the whole body, or the last event in the body's shape."""
        raw = bytes(self.outcome.capture.body)
        if not self.outcome.capture.headers.get("content-type", "").startswith("text/event-stream"):
            return json.loads(raw)
        _, last = read_events(raw)[-1]
        if self.scenario.caller != "responses":
            return last
        error = last["response"]["error"] if last["type"] == "response.failed" else last
        return {"error": {"type": "error", "code": error["code"], "message": error["message"]}}

    def _check_header(self) -> Iterator[str]:
        header = self.outcome.capture.headers.get("x-mustcall-outcome")
        if header is None or self.scenario.stream:
            return
        real = "failure" if self.outcome.kind != "answered" else "calls" if self.outcome.calls else "answer"
        if header != real:
            yield f"header: x-mustcall-outcome says {header}, the body is {real}"
        counted = self.outcome.capture.headers.get("x-mustcall-attempts", "0")
        if int(counted) < len(self.requests):  # more: a connection broke before the upstream saw the request
            yield f"header: x-mustcall-attempts says {counted}, the upstream was asked {len(self.requests)} times"

    # --- calls ----------------------------------------------------------------------------------------------------

    def _check_calls(self) -> Iterator[str]:
        scenario, outcome = self.scenario, self.outcome
        demand, schemas = scenario.demand, dict(scenario.tools)
        if outcome.finish != "tool_calls":
            yield f"calls: the finish is {outcome.finish!r}"
        if demand.choice.mode == "none":
            yield "calls: the choice was none"
        # Rule 27: an unmet force may end with the reply as it is, if the caller asked for that and is told.
        told_unmet = outcome.capture.headers.get("x-mustcall-force") == "unmet"
        accepts_others = scenario.controls.get("other-tool") == "accept" or (
            scenario.controls.get("on-unmet") == "answer" and told_unmet
        )
        if (
            demand.choice.mode == "named"
            and not accepts_others
            and all(name != demand.choice.name for _, name, _ in outcome.calls)
        ):
            yield f"calls: {demand.choice.name} was demanded, {[name for _, name, _ in outcome.calls]} came"
        if not scenario.parallel and len(outcome.calls) > 1:
            yield f"calls: {len(outcome.calls)} at once, although parallel calls are off"
        ids = [call_id for call_id, _, _ in outcome.calls]
        if not all(ids) or len(set(ids)) != len(ids):
            yield f"calls: ids {ids}"
        made: list[tuple[str, Any]] = []
        for _, name, written in outcome.calls:
            if name not in schemas:
                yield f"calls: {name!r} was not offered"
                continue
            arguments = _parse(written)
            made.append((name, arguments))
            if not isinstance(arguments, dict):
                yield f"calls: the arguments of {name} are no object: {written!r}"
            elif not jsonschema_rs.is_valid(schemas[name], arguments):
                yield f"calls: the arguments of {name} do not fit its schema: {written!r}"
        yield from self._check_origin(made)

    def _check_origin(self, made: list[tuple[str, Any]]) -> Iterator[str]:
        """Calls are those of one attempt, the last; where its meaning was clear, they are what it meant."""
        if not self.told:
            yield "calls: nobody made them"
            return
        written = json.dumps(made, ensure_ascii=False)
        sources = {k for k, one in enumerate(self.told) if one.marks.argument in written or one.marks.markup in written}
        last = len(self.told) - 1
        if sources - {last}:
            yield f"calls: made of attempts {sorted(sources)}, the last was {last}"
        for k in sources or {last}:
            one = self.told[k]
            if not one.calls_may:
                yield f"calls: attempt {k} ({one.what}) made none that may be delivered"
            elif one.within:
                for name, arguments in made:
                    if not any(name == other and _is_part(arguments, whole) for other, whole in one.within):
                        yield f"calls: {name} says what attempt {k} ({one.what}) did not: {arguments}"
            elif one.exact and one.calls:
                extra = Counter(map(_canonical, made)) - Counter(map(_canonical, one.calls))
                if extra:
                    yield f"calls: not what attempt {k} ({one.what}) meant: {list(extra)} instead of {one.calls}"

    # --- answers --------------------------------------------------------------------------------------------------

    def _holds_new_content(self) -> bool:
        """Tell whether a reply holds content of a kind nobody knows yet: it is the caller's to read, and forwarded."""
        try:
            body = msgspec.json.decode(bytes(self.outcome.capture.body), type=_Contents)
        except msgspec.DecodeError:
            return False
        return any(item.type not in _KNOWN_CONTENT for item in (*body.content, *body.output))

    def _check_answer(self) -> Iterator[str]:
        scenario, outcome = self.scenario, self.outcome
        if outcome.finish == "tool_calls":
            yield "answer: the finish says calls, and there are none"
        if outcome.refused:
            if not any(one.declines or one.bent for one in self.told):
                yield "answer: a refusal that nobody said"
            return
        if not outcome.text.strip() and not self._holds_new_content():
            yield "answer: no text"
        if (scenario.demand.forced or scenario.impossible) and scenario.controls.get("on-unmet") != "answer":
            yield f"answer: {outcome.text[:80]!r} although a call was demanded"
        if scenario.schema is not None and not jsonschema_rs.is_valid(scenario.schema, _parse(outcome.text)):
            yield f"answer: does not fit the schema: {outcome.text[:120]!r}"
        last = self.told[-1] if self.told else None
        if last is None or last.bent:
            return
        if outcome.streamed is not None and outcome.streamed != outcome.text:
            yield f"answer: streamed as {outcome.streamed[:80]!r}, ended as {outcome.text[:80]!r}"
        if scenario.demand.choice.mode == "none" and last.marks.text in outcome.text:
            return  # what was said beside a call that was not wanted
        if not last.text_may:
            yield f"answer: the last attempt ({last.what}) gave none: {outcome.text[:80]!r}"
        elif last.exact and last.text is not None and outcome.text.strip() != last.text.strip():
            yield f"answer: not what the last attempt ({last.what}) said: {outcome.text[:200]!r}"

    # --- leaks ----------------------------------------------------------------------------------------------------

    def _check_leaks(self) -> Iterator[str]:
        outcome, last = self.outcome, len(self.told) - 1
        good = outcome.kind == "answered"
        calls = json.dumps([_parse(written) for _, _, written in outcome.calls], ensure_ascii=False)
        speakers = [k for k, one in enumerate(self.told) if one.marks.text in outcome.text]
        if good and len(speakers) > 1:
            yield f"leak: text of attempts {speakers}"
        for k, one in enumerate(self.told):
            for letter in ("argument", "markup"):
                mark = getattr(one.marks, letter)
                if mark not in self.seen or (letter == "markup" and one.bent):
                    continue
                if self.flows and letter == "argument" and outcome.kind == "failed" and k == last:
                    continue
                if not good or mark not in calls:
                    yield f"leak: {letter} of attempt {k} ({one.what})"
                elif mark in outcome.text:
                    yield f"leak: {letter} of attempt {k} ({one.what}) in the text"
            if one.marks.text in self.seen:
                yield from self._check_text(k, one, good=good)
            if one.marks.reasoning in outcome.text and not one.bent and not self._is_first_party():
                yield f"leak: reasoning of attempt {k} ({one.what}) as text"
            if one.marks.reasoning in self.seen and k != last and not self.scenario.stream:
                yield f"leak: reasoning of attempt {k} ({one.what})"
            if good and one.marks.error in self.seen:
                yield f"leak: the error of attempt {k} ({one.what})"

    def _check_text(self, k: int, one: AttemptTruth, *, good: bool) -> Iterator[str]:
        outcome, stream = self.outcome, self.scenario.stream
        if not good:
            if not stream and not _UNMET.search(self.seen):
                yield f"leak: text of attempt {k} ({one.what}) in an error"
        elif outcome.calls:
            if k != len(self.told) - 1 and not stream:
                yield f"leak: text of attempt {k} ({one.what}) beside the calls of another"
        elif k != len(self.told) - 1 and not (stream and one.bent and one.marks.text not in outcome.text):
            # Of a bent stream the mark that ends its reasoning may be lost: what follows is reasoning, and was seen.
            yield f"leak: text of attempt {k} ({one.what}) in the answer of another"

    def _is_first_party(self) -> bool:
        """Tell whether the model's server is known to keep reasoning apart, so that tags in text are text."""
        return self.scenario.model.startswith(FIRST_PARTY) or self.scenario.controls.get("protocol") == "native"

    # --- upstream requests ----------------------------------------------------------------------------------------

    def _check_requests(self) -> Iterator[str]:
        scenario, before = self.scenario, 0
        for number, request in enumerate(self.requests):
            if request.refused_by not in _LEARNT:
                yield f"request {number}: refused as illegal by {request.refused_by}"
            text = request.raw.decode("utf-8", "replace")
            if scenario.stale in text and "leftover markup" in scenario.dirt:
                yield f"request {number}: leftover markup of the history was sent on"
            for k, one in enumerate(self.told[:before]):
                kept = (one.clean or one.bent) and scenario.demand.forced
                marks = {"argument": one.marks.argument, "markup": one.marks.markup, "error": one.marks.error}
                marks |= {} if kept else {"text": one.marks.text, "reasoning": one.marks.reasoning}
                for kind, mark in marks.items():
                    if mark in text:
                        yield f"request {number}: {kind} of attempt {k} ({one.what}) was sent on"
            breaks = any(_NO_STREAM.match(one.what) for one in self.told[:before])
            before += request.refused_by is None
            problems = self._problems_of(request, first=not number, breaks=breaks)
            yield from (f"request {number}: {problem}" for problem in problems)

    def _problems_of(self, request: Recorded, *, first: bool, breaks: bool) -> Iterator[str]:
        """Yield what a request asks for that neither its caller nor a demanded call explains (rules 22, 137, 140)."""
        scenario, body = self.scenario, as_object(request.body)
        forced, streamed = scenario.demand.forced, body.get("stream") is True
        if streamed and not scenario.stream and not forced:
            yield "streamed although nothing was demanded and its caller waits"
        if (
            streamed
            and not scenario.stream
            and first
            and self._is_first_party()
            and "protocol" not in scenario.controls
        ):
            yield "streamed although the model is known to obey a force"
        if scenario.stream and not streamed and not breaks and not _is_probe(body):
            yield "not streamed although its caller reads as it comes"
        if not forced and any(field in body for field in _GRAMMAR_FIELDS):
            yield "constrained although nothing was demanded"
        if not forced and scenario.schema is None and any(field in body for field in _OUTPUT_FIELDS):
            yield "held to a schema although none was asked for"
        if forced and first and request.wire is not None and scenario.is_unknown:
            choice, wanted = choice_of(request.wire, body), scenario.demand.choice
            only = scenario.upstream == "messages" and len(scenario.tools) == 1 and choice.mode == "required"  # rule 6
            if choice.mode != wanted.mode and not only:
                yield f"the force is {choice.mode}, the caller's was {wanted.mode}"

    # --- liveness -------------------------------------------------------------------------------------------------

    def _check_liveness(self) -> Iterator[str]:
        scenario, outcome, told = self.scenario, self.outcome, self.told
        if scenario.demand.hangs:
            return  # a good attempt may have run out of time
        if len(told) > 1 and told[0].honest:
            yield f"wasteful: {len(told)} attempts although the first was good ({told[0].what})"
        if outcome.kind != "failed" or scenario.impossible:
            return
        if not self.requests:
            yield f"lifeless: no upstream was asked: {outcome.message[:160]}"
        elif told and all(one.honest for one in told):
            yield f"lifeless: every attempt was good ({[one.what for one in told]}): {outcome.message[:160]}"
        elif told and told[-1].honest and not scenario.stream:
            yield f"lifeless: the last attempt was good ({told[-1].what}): {outcome.message[:160]}"


def _parse(written: Any) -> Any:
    if not isinstance(written, str):
        return written
    try:
        return json.loads(written)
    except ValueError:
        return None


def _is_part(part: Any, whole: Any) -> bool:
    """Tell whether a value says nothing that another does not: fields and last items may be missing."""
    if isinstance(part, dict) and isinstance(whole, dict):
        fields = cast("dict[str, Any]", whole)
        return all(key in fields and _is_part(item, fields[key]) for key, item in cast("dict[str, Any]", part).items())
    if isinstance(part, list) and isinstance(whole, list):
        items, others = cast("list[Any]", part), cast("list[Any]", whole)
        return len(items) <= len(others) and all(map(_is_part, items, others))
    return bool(_rounded(part) == _rounded(whole))


def _canonical(call: tuple[str, Any]) -> str:
    return json.dumps([call[0], _rounded(call[1])], sort_keys=True, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    """Return the value with whole floats as integers: JSON knows no difference."""
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_rounded(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
