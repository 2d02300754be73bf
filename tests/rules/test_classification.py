"""What a reply is taken for (rules 34 to 41), seen from both ends of real gateways.

Each test counts the upstream calls and compares their whole bodies with ones written by hand.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mustcall.core.origin import Wire
from mustcall.engine.turns import OperatorSettings
from mustcall.policy.failures.backoff import Backoff
from mustcall.profiles import read_overrides
from mustcall.testing import Answer, Call, Cut, Raw, RawStream, Refuse, Say, Think, Turn, Usage
from mustcall.testing.render import Stamp, stream_reply
from rules.driving import GRID, LIMIT_FIELD, NATIVE, UNKNOWN, WAYS, WORDS, Stage, arriving, kept, request
from rules.forms import OPEN, check_no_trace
from rules.outcomes import data_of
from support.forcing import FAILED, LIMIT, WIRES

Json = dict[str, Any]

GOOD = Turn(Call("get_weather", {"city": "Paris"}))
CALLED = (("get_weather", {"city": "Paris"}),)
FINAL_THINKER = "final-thinker-1"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One upstream behind three gateways."""
    overrides = read_overrides([{"models": ["final-thinker*"], "protocol": "native", "reasoning_only_final": True}])
    with Stage(OperatorSettings(overrides=overrides), compares=True) as opened:
        yield opened


# --- rule 34 ---------------------------------------------------------------------------------------------------------

_JUDGE_ALONE = """
import sys
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.engine.turns import make_turn_state
from mustcall.policy.facts.controls import Controls
from mustcall.policy.reply.judge import judge
from mustcall.policy.scanning.reply_scanner import ReplyScanner
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.facts.wording import Wording

tool = Tool(name="f", parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
request = Request(model="m", messages=(Message(role=Role.USER, parts=(Text(text="Hi"),)),), tools=(tool,))
turn_state = make_turn_state(request, Profile(), "i", controls=Controls(protocol=Protocol.NATIVE), wording=Wording())
case = turn_state.case("t", 0)
replies = [
    Reply(id="r", model="m", parts=parts, finish=finish)
    for parts in (
        (), (Text(text="Hi."),), (ToolCall(id="c", name="f", arguments_json='{"a":"b"}'),),
        (ToolCall(id="c", name="f", arguments_json='{"a":'),), (Text(text='<invoke name="f"></invoke>'),),
    )
    for finish in FinishReason
]

def run():
    return [judge(case, reply, ReplyScanner(turn_state.lookout(), "t").read(reply)) for reply in replies]

def forbid(event, arguments):
    if event.split(".")[0] in ("open", "socket", "os", "subprocess", "time", "urllib", "shutil", "tempfile"):
        raise AssertionError(f"I/O while judging: {event} {arguments}")

first = run()  # whatever is loaded lazily is loaded now
sys.addaudithook(forbid)
assert run() == first, "the same reply was judged differently"
print(len({str(judged.verdict) for judged in first}))
"""


def test_judging_is_pure() -> None:
    """Rule 34: the verdict is a function of request and reply: twice the same, and no file, socket or clock is used."""
    done = subprocess.run([sys.executable, "-c", _JUDGE_ALONE], capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 6  # the replies above are really told apart


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_same_reply_same_verdict(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 34: judging costs no call, and the same reply to the same request gets the same verdict each time."""
    seen: set[tuple[str, str]] = set()
    for _ in range(2):
        outcome = stage.play(GOOD).ask(wire, request(wire, stream=stream))
        assert stage.bodies == [request(wire, stream=stream)]
        seen.add((outcome.verdicts, str(outcome.calls)))
    assert seen == {("called", str(CALLED))}


# --- rules 35 and 36 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "no_such_reason"])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_any_call_means_calls(stage: Stage, caller: str, upstream: str, stream: bool, finish: str) -> None:
    """Rule 35: a call in the reply means tool calls, whatever the finish reason and whatever the text."""
    turn = Turn(Say("I will not use a tool."), Call("get_weather", {"city": "Paris"}), finish=finish)
    outcome = stage.play(turn).ask(caller, request(caller, stream=stream), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream)]
    assert (outcome.text, outcome.calls) == ("I will not use a tool.", CALLED)
    assert outcome.finish == "calls"


_SERVER_RUN: dict[str, Json] = {
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": NATIVE,
        "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Paris"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "text", "text": "Sunny."},
        ],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 12},
    },
    "responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "completed",
        "model": NATIVE,
        "output": [
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
            },
        ],
        "usage": {"input_tokens": 25, "output_tokens": 12, "total_tokens": 37},
    },
}


@pytest.mark.parametrize("wire", ["messages", "responses"])
def test_provider_run_tools_are_no_calls(stage: Stage, wire: str) -> None:
    """Rule 35: what the provider ran itself is no call: the reply is an answer, delivered byte for byte."""
    body = json.dumps(_SERVER_RUN[wire]).encode()
    outcome = stage.play(Raw(200, body)).ask(wire, request(wire))
    assert stage.bodies == [request(wire)]
    assert (outcome.raw, outcome.verdicts) == (body, "answered")
    assert outcome.headers["x-mustcall-outcome"] == "answer"


@pytest.mark.parametrize("wire", ["messages", "responses"])
def test_provider_run_tools_meet_no_force(stage: Stage, wire: str) -> None:
    """Rule 35: a tool the provider ran does not satisfy a force: a call of the client's is asked for again."""
    body = request(wire, choice="required")
    outcome = stage.play(Raw(200, json.dumps(_SERVER_RUN[wire]).encode()), GOOD).ask(wire, body)
    assert outcome.verdicts == "force_missed,called"
    assert (outcome.text, outcome.calls) == ("", CALLED)
    key = "input" if wire == "responses" else "messages"
    firmer = arriving(wire, wire, WORDS.call_any[1])[key][-1]
    # Its text stays in context as it came, what the provider ran does not (rule 25).
    said = kept(wire, "Sunny.")
    if wire == "responses":
        said["content"] = _SERVER_RUN[wire]["output"][-1]["content"]
    assert stage.bodies == [body, {**body, key: [*body[key], said, firmer]}]


@pytest.mark.parametrize("upstream", ["chat", "messages"])
@pytest.mark.parametrize(("caller", "stream"), WAYS)
def test_stop_with_calls(stage: Stage, caller: str, upstream: str, stream: bool) -> None:
    """Rule 36: `stop` with calls is delivered as tool calls, the finish reason is put right and that is reported."""
    turn = Turn(Call("get_weather", {"city": "Paris"}), finish="stop")
    outcome = stage.play(turn).ask(caller, request(caller, stream=stream), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream)]
    assert (outcome.calls, outcome.finish, outcome.verdicts) == (CALLED, "calls", "called")
    assert "finish_corrected:finish" in outcome.adaptations


# --- rule 37 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [None, "required", "get_weather"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_refusal_is_final(stage: Stage, wire: str, stream: bool, choice: str | None) -> None:
    """Rule 37: a refusal ends the turn at once, also while a force is unmet; its words are delivered."""
    body = request(wire, stream=stream, choice=choice)
    outcome = stage.play(Turn(Refuse("I cannot do that."))).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.status, outcome.error, outcome.text, outcome.calls) == (200, {}, "I cannot do that.", ())


@pytest.mark.parametrize("choice", [None, "required"])
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_content_filter_is_final(stage: Stage, wire: str, stream: bool, choice: str | None) -> None:
    """Rule 37: a filtered reply ends the turn at once, also while a force is unmet; the caller sees the reason."""
    body = request(wire, stream=stream, choice=choice)
    outcome = stage.play(Turn(Say("Well,"), finish="content_filter")).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "Well,", ())
    assert outcome.finish == ("refusal" if wire == "messages" else "content_filter")


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_filtered_call_is_not_delivered(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 37: a call in a filtered reply is not run: the filter cut in, and nothing is tried again."""
    turn = Turn(Say("Well,"), Call("get_weather", {"city": "Paris"}), finish="content_filter")
    outcome = stage.play(turn).ask(wire, request(wire, stream=stream))
    assert stage.bodies == [request(wire, stream=stream)]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "Well,", ())


# --- rule 38 ---------------------------------------------------------------------------------------------------------

_NOTHING = {"empty": Turn(), "blank": Turn(Say(" \n")), "think_only": Turn(Think("Hm."))}
_WORD = {"empty": WORDS.empty, "blank": WORDS.empty, "think_only": WORDS.thinking_only}
_ERROR = {"empty": "EmptyReply", "blank": "EmptyReply", "think_only": "ThinkingOnly"}


@pytest.mark.parametrize("kind", _NOTHING)
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_nothing_said_is_asked_again(stage: Stage, caller: str, upstream: str, stream: bool, kind: str) -> None:
    """Rule 38: a reply that says nothing is asked for again with a reminder at the tail, and leaves no trace."""
    nothing = _NOTHING[kind]
    outcome = stage.play(nothing, nothing, Turn(Say("Sunny."))).ask(caller, request(caller, stream=stream), upstream)
    reminded = arriving(caller, upstream, _WORD[kind], stream=stream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream), reminded, reminded]
    assert (outcome.error, outcome.text, outcome.calls, outcome.finish) == ({}, "Sunny.", (), "stop")


@pytest.mark.parametrize("kind", _NOTHING)
@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_nothing_said_three_times(stage: Stage, wire: str, stream: bool, kind: str) -> None:
    """Rule 38: two reminders at most, then a typed error."""
    nothing = _NOTHING[kind]
    outcome = stage.play(nothing, nothing, nothing, GOOD).ask(wire, request(wire, stream=stream))
    reminded = arriving(wire, wire, _WORD[kind], stream=stream)
    assert stage.bodies == [request(wire, stream=stream), reminded, reminded]
    assert outcome.message.startswith(f"{_ERROR[kind]}: ")
    assert outcome.calls == ()
    released = stream and kind == "think_only"  # reasoning had gone out: the error is an event of the stream
    assert outcome.status == (200 if released else FAILED[wire])


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_family_that_answers_in_reasoning(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 38: a family declared to answer in reasoning alone is taken at its word: one call, delivered as it is."""
    body = request(wire, stream=stream, model=FINAL_THINKER)
    outcome = stage.play(Turn(Think("Sunny."))).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.error, outcome.thinking, outcome.text, outcome.calls) == ({}, "Sunny.", "", ())


# --- rule 39 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_unknown_finish_with_text(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 39: usable text with an unknown finish reason is an answer, delivered as it is and flagged."""
    turn = Turn(Say("Sunny."), finish="no_such_reason")
    body = request(wire, stream=stream, mustcall={"hold": True})  # held, so that the headers tell of the verdict
    outcome = stage.play(turn).ask(wire, body)
    del body["mustcall"]
    assert stage.bodies == [body]
    assert (outcome.text, outcome.finish, outcome.verdicts) == ("Sunny.", "no_such_reason", "answered")
    assert "reported:finish" in outcome.adaptations


# --- rules 40, 107 and 123 -------------------------------------------------------------------------------------------

_HALF = Call("get_weather", '{"city":"Par')
_CUT_OFF = {
    "length finish": Turn(Say("Let me see."), _HALF, finish="length"),
    "length finish, complete JSON": Turn(Say("Let me see."), Call("get_weather", {"city": "Par"}), finish="length"),
    "usage at the cap": Turn(Say("Let me see."), Call("get_weather", {"city": "Par"}), usage=Usage(25, LIMIT)),
    "unbalanced JSON": Turn(Say("Let me see."), _HALF, finish="tool_calls"),
}


@pytest.mark.parametrize("kind", _CUT_OFF)
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_cut_call_is_made_again(stage: Stage, caller: str, upstream: str, stream: bool, kind: str) -> None:
    """Rule 40: a cut call is never delivered and its text never continued: the caller's own request goes out again."""
    outcome = stage.play(_CUT_OFF[kind], GOOD).ask(caller, request(caller, stream=stream), upstream)
    again = arriving(caller, upstream, WORDS.truncated, stream=stream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream), again]
    assert (outcome.error, outcome.calls, outcome.finish) == ({}, CALLED, "calls")
    _check_prose(outcome.text, stream)


@pytest.mark.parametrize("kind", _CUT_OFF)
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_cut_call_again_and_again(stage: Stage, caller: str, upstream: str, stream: bool, kind: str) -> None:
    """Rule 40: a call that stays cut off becomes a typed error; neither half of it nor `{}` is delivered."""
    cut = _CUT_OFF[kind]
    outcome = stage.play(cut, cut, cut).ask(caller, request(caller, stream=stream), upstream)
    again = arriving(caller, upstream, WORDS.truncated, stream=stream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream), again]
    assert outcome.message.startswith("TruncatedReply: ")
    _check_prose(outcome.text, stream)
    _check_no_call(outcome.raw)


def _check_prose(text: str, stream: bool) -> None:
    """Prose before a call may have been streamed, as far as it came apart from the call; whole replies hold none."""
    assert "Let me see.".startswith(text) if stream else text == ""


def _check_no_call(raw: bytes) -> None:
    """Nothing a client could run, and nothing of the arguments, is in the bytes."""
    for mark in (b'"tool_use"', b'"tool_calls"', b'"function_call"', b"Par\\", b'"Par'):
        assert mark not in raw, mark


@pytest.mark.parametrize("after", [1, 150, 400])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_cut_connection(stage: Stage, caller: str, upstream: str, stream: bool, after: int) -> None:
    """Rule 40: a connection cut inside the call is the transport's failure: the same bytes again, nothing invented."""
    outcome = stage.play(Cut(GOOD, after), GOOD).ask(caller, request(caller, stream=stream), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=stream)] * 2
    assert stage.sent[0].raw == stage.sent[1].raw
    assert (outcome.error, outcome.calls) == ({}, CALLED)


@pytest.mark.parametrize(("wire", "stream"), WAYS)
def test_length_with_text_alone(stage: Stage, wire: str, stream: bool) -> None:
    """Rule 40: text that met the caller's own limit is the caller's to continue: delivered, nothing asked again."""
    body = request(wire, stream=stream)
    outcome = stage.play(Turn(Say("It is sunny in Par"), finish="length")).ask(wire, body)
    assert stage.bodies == [body]
    assert (outcome.text, outcome.finish, outcome.calls) == ("It is sunny in Par", "length", ())


@pytest.mark.parametrize("model", [NATIVE, UNKNOWN])
@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_cut_text_call(stage: Stage, caller: str, upstream: str, stream: bool, model: str) -> None:
    """Rule 40: half a call in text at the token limit is half a call: discarded, asked for again, never promoted."""
    cut = Turn(Say(OPEN), finish="length")
    outcome = stage.play(cut, GOOD).ask(caller, request(caller, stream=stream, model=model), upstream)
    assert stage.bodies == [
        arriving(caller, upstream, stream=stream, model=model),
        arriving(caller, upstream, WORDS.truncated, stream=stream, model=model),
    ]
    assert (outcome.error, outcome.text, outcome.calls) == ({}, "", CALLED)
    check_no_trace(outcome.raw)


@pytest.mark.parametrize(("caller", "upstream", "stream"), GRID)
def test_no_arguments_are_not_an_empty_object(stage: Stage, caller: str, upstream: str, stream: bool) -> None:
    """Rule 40: where a parameter is required, a call without arguments is not given `{}`: it is asked for again."""
    bare = Turn(Call("get_weather", ""))
    misfit = WORDS.bad_arguments.format(problem="get_weather: city: string, required")
    asked = [arriving(caller, upstream, *added, stream=stream) for added in ([], [misfit])]
    outcome = stage.play(bare, GOOD).ask(caller, request(caller, stream=stream), upstream)
    assert stage.bodies == asked
    assert outcome.calls == CALLED
    outcome = stage.play(bare, bare).ask(caller, request(caller, stream=stream), upstream)
    assert stage.bodies == asked
    assert outcome.message.startswith("BadArguments: ")
    assert outcome.calls == ()


def test_limit_field_is_the_callers(stage: Stage) -> None:
    """Rule 40: the cap that usage is compared with is the one that was sent, on each wire in its own word."""
    for wire in WIRES:
        body = request(wire) | {LIMIT_FIELD[wire]: 2048}
        full = Turn(Call("get_weather", {"city": "Paris"}), usage=Usage(25, 2047))
        assert stage.play(full).ask(wire, body).calls == CALLED
        assert stage.bodies == [body]


# --- rule 41 ---------------------------------------------------------------------------------------------------------


def _unended(turn: Turn, wire: str) -> Answer:
    """Return the turn's stream without the events by which the wire ends one, closed in good order."""
    events = stream_reply(turn, Wire(wire), request(wire, stream=True), Stamp(0))
    last = {"chat": 3, "responses": 1, "messages": 2}[wire]
    return RawStream(events[:-last])


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_stream_without_its_end(stage: Stage, caller: str, upstream: str) -> None:
    """Rule 41: a stream that ends without its terminal event is a transient failure: the same bytes are sent again."""
    outcome = stage.play(_unended(GOOD, upstream), GOOD).ask(caller, request(caller, stream=True), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=True)] * 2
    assert stage.sent[0].raw == stage.sent[1].raw
    assert (outcome.error, outcome.calls) == ({}, CALLED)
    assert outcome.verdicts == "unavailable,called"
    assert "retried:attempt_1" in outcome.adaptations


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_stream_without_its_end_after_text(stage: Stage, caller: str, upstream: str) -> None:
    """Rule 41: once text has gone out such a failure is an error event on the caller's wire, never a clean end."""
    broken = _unended(Turn(Say("It is sunny.")), upstream)
    outcome = stage.play(broken, Turn(Say("It rains."))).ask(caller, request(caller, stream=True), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=True)]
    assert outcome.text == "It is sunny."
    assert outcome.message
    assert outcome.finish == ""
    assert not [event for event in data_of(outcome.raw) if event.get("type") in ("response.completed", "message_stop")]


@pytest.mark.parametrize("upstream", WIRES)
@pytest.mark.parametrize("caller", WIRES)
def test_stream_that_never_ends_well(stage: Stage, caller: str, upstream: str) -> None:
    """Rule 41: when the retries of the transport are spent the caller gets a typed error and no part of a call."""
    broken = _unended(GOOD, upstream)
    outcome = stage.play(*[broken] * 9).ask(caller, request(caller, stream=True), upstream)
    assert stage.bodies == [arriving(caller, upstream, stream=True)] * (1 + Backoff().retries)
    assert outcome.message
    _check_no_call(outcome.raw)
