"""Streams written: the complete canonical sequence, read alike by our decoder and by the official SDK."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import ErrorInfo
from mustcall.core.origin import Wire
from mustcall.core.parts import CallKind, Image, OpaqueState, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply, Usage
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartReasoningDelta,
    PartStarted,
    PartTextDelta,
    Started,
    StateDelta,
    UsageUpdated,
)
from mustcall.wire.codec import ReplyStamp
from mustcall.wire.crossing.sealing import seal
from mustcall.wire.responses import ResponsesCodec
from mustcall.wire.sse import SseDecoder

DATA = Path(__file__).parent / "data"
REPLIES: dict[str, Any] = json.loads((DATA / "replies.json").read_text())
REQUESTS: dict[str, Any] = json.loads((DATA / "requests.json").read_text())
STAMP = ReplyStamp(token="tok", created=1_760_000_001)
SDK_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

BEGIN = (Started("chatcmpl-1", "m-1"),)
END = (UsageUpdated(Usage(input_tokens=9, output_tokens=2)), Ended())


def encode(
    events: Iterable[Event], asked: str = "codex first turn", log: AdaptationLog | None = None
) -> tuple[bytes, list[dict[str, Any]]]:
    """Return the bytes for a caller and the events in them, each checked against the SDK's own models."""
    codec = ResponsesCodec()
    caller = codec.decode_request(json.dumps(REQUESTS[asked]).encode())
    encoder = codec.stream_encoder(caller, STAMP, log or AdaptationLog())
    stream = b"".join(encoder.feed(event) for event in events)
    written: list[dict[str, Any]] = []
    for event in SseDecoder().feed(stream):
        value = json.loads(event.data)
        assert event.name == value["type"]
        if event.name != "response.failed":  # its error carries codes that the models do not list
            SDK_EVENT.validate_python(value)
        written.append(value)
    assert [value["sequence_number"] for value in written] == list(range(len(written)))
    return stream, written


def text(index: int, *deltas: str) -> tuple[Event, ...]:
    """Return the events of a text part."""
    return (
        PartStarted(index, Text(text="")),
        *(PartTextDelta(index, delta) for delta in deltas),
        PartEnded(index),
    )


def call(index: int, part: ToolCall, *deltas: str) -> tuple[Event, ...]:
    """Return the events of a call."""
    return (PartStarted(index, part), *(ArgumentsDelta(index, delta) for delta in deltas), PartEnded(index))


SCRIPTS: dict[str, tuple[Event, ...]] = {
    "text": (*BEGIN, *text(0, "Hel", "lo"), Finished(FinishReason.STOP), *END),
    "one call": (
        *BEGIN,
        *call(0, ToolCall(id="c1", name="exec_command", arguments_json=""), '{"cmd":', '"ls"}'),
        Finished(FinishReason.TOOL_CALLS),
        *END,
    ),
    "two calls side by side": (
        *BEGIN,
        PartStarted(0, ToolCall(id="c1", name="spawn_agent", arguments_json="", namespace="multi_agent_v1")),
        PartStarted(1, ToolCall(id="c2", name="exec_command", arguments_json="")),
        ArgumentsDelta(1, '{"a'),
        ArgumentsDelta(0, "{}"),
        ArgumentsDelta(1, '":1}'),
        PartEnded(1),
        PartEnded(0),
        Finished(FinishReason.STOP),
        *END,
    ),
    "custom call": (
        *BEGIN,
        *text(0, "Patching."),
        *call(1, ToolCall(id="c1", name="apply_patch", arguments_json="", kind=CallKind.CUSTOM), "*** Begin", " Patch"),
        Finished(FinishReason.TOOL_CALLS),
        *END,
    ),
    "summaries": (
        *BEGIN,
        PartStarted(0, Reasoning(id="rs_1")),
        PartReasoningDelta(0, "Fir", 0),
        PartReasoningDelta(0, "st.", 0),
        PartReasoningDelta(0, "Second.", 1),
        StateDelta(0, OpaqueState(Wire.RESPONSES, "enc", "up")),
        PartEnded(0),
        *text(1, "Yes."),
        Finished(FinishReason.STOP),
        *END,
    ),
    "refusal": (
        *BEGIN,
        PartStarted(0, Refusal(text="")),
        PartTextDelta(0, "I can"),
        PartTextDelta(0, "not."),
        PartEnded(0),
        Finished(FinishReason.STOP),
        *END,
    ),
    "length": (*BEGIN, *text(0, "Once"), Finished(FinishReason.LENGTH), *END),
    "filtered empty": (*BEGIN, Finished(FinishReason.CONTENT_FILTER), *END),
    "everything at once": (
        *BEGIN,
        PartStarted(0, Text(text="Hello")),
        PartEnded(0, Text(text="Hello")),
        PartStarted(1, ToolCall(id="c", name="exec_command", arguments_json='{"cmd":"ls"}')),
        PartEnded(1),
        Finished(FinishReason.TOOL_CALLS),
        Ended(),
    ),
}


def kinds(written: list[dict[str, Any]]) -> list[str]:
    """Return the types of events without their common prefix."""
    return [event["type"].removeprefix("response.") for event in written]


def test_canonical_text_sequence() -> None:
    """wires.md 2: every event of a text reply, in OpenAI's order."""
    _, written = encode(SCRIPTS["text"])
    assert kinds(written) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert written[0]["response"]["status"] == "in_progress"
    assert written[0]["response"]["tools"] == REQUESTS["codex first turn"]["tools"]
    item: dict[str, Any] = {
        "id": "msg_tok_0",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []}],
    }
    assert written[-2]["item"] == item
    final = written[-1]["response"]
    assert (final["id"], final["model"], final["status"], final["output"]) == ("resp_tok", "m-1", "completed", [item])
    assert final["usage"]["total_tokens"] == 11


def test_canonical_call_sequences() -> None:
    """wires.md 1.9 and 2: namespaced and custom calls stream in their own kind, items open side by side."""
    _, written = encode(SCRIPTS["two calls side by side"])
    assert kinds(written)[2:-1] == [
        "output_item.added",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "function_call_arguments.done",
        "output_item.done",
    ]
    assert [event["output_index"] for event in written[2:-1]] == [0, 1, 1, 0, 1, 1, 1, 0, 0]
    assert written[2]["item"]["namespace"] == "multi_agent_v1"
    assert [item["call_id"] for item in written[-1]["response"]["output"]] == ["c1", "c2"]
    assert written[-1]["response"]["output"][0]["namespace"] == "multi_agent_v1"
    _, written = encode(SCRIPTS["custom call"])
    assert kinds(written)[9:-1] == [
        "custom_tool_call_input.delta",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]
    assert written[-2]["item"] == {
        "id": "ctc_tok_1",
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "c1",
        "name": "apply_patch",
        "input": "*** Begin Patch",
    }


def test_canonical_reasoning_sequence() -> None:
    """Summaries open and close one after the other; state stands in the finished item."""
    _, written = encode(SCRIPTS["summaries"])
    assert kinds(written)[2:12] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]
    assert written[12]["item"] == {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Second."}],
        "encrypted_content": "enc",
    }


@pytest.mark.parametrize(
    ("name", "kind", "details"),
    [
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("filtered empty", "incomplete", {"reason": "content_filter"}),
        ("refusal", "completed", None),
    ],
)
def test_terminal_events(name: str, kind: str, details: Any) -> None:
    """How a stream ends says why it ended."""
    _, written = encode(SCRIPTS[name])
    assert written[-1]["type"] == f"response.{kind}"
    assert (written[-1]["response"]["status"], written[-1]["response"]["incomplete_details"]) == (kind, details)


def test_an_item_that_was_cut() -> None:
    """An item that the limit cut says so, in its own event and in the output; one that ended before is complete."""
    cut = (PartStarted(1, Text(text="")), PartTextDelta(1, "the"), Finished(FinishReason.LENGTH), *END)
    _, written = encode((*BEGIN, *text(0, "Hi"), *cut))
    done = [event["item"]["status"] for event in written if event["type"] == "response.output_item.done"]
    assert done == ["completed", "incomplete"]
    assert [item["status"] for item in written[-1]["response"]["output"]] == done


def test_thinking_of_another_wire() -> None:
    """Thinking streams as a summary, with a note, and its state is sealed into the item."""
    state = OpaqueState(Wire.MESSAGES, {"signature": "s"}, "claude")
    log = AdaptationLog()
    script = (
        *BEGIN,
        PartStarted(0, Reasoning()),
        PartReasoningDelta(0, "Let me "),
        PartReasoningDelta(0, "think."),
        StateDelta(0, state),
        PartEnded(0),
        *text(1, "Yes."),
        Finished(FinishReason.STOP),
        Ended(),
    )
    _, written = encode(script, log=log)
    deltas = [event["delta"] for event in written if event["type"] == "response.reasoning_summary_text.delta"]
    assert deltas == ["Let me ", "think."]
    item = written[-1]["response"]["output"][0]
    assert item == {
        "id": "rs_tok_0",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me think."}],
        "encrypted_content": seal(state),
    }
    assert [(entry.kind, entry.subject) for entry in log.entries] == [(AdaptationKind.PART_RESHAPED, "reasoning")]


def test_final_part_wins_but_keeps_its_identity() -> None:
    """A final form completes the deltas; the ids an item was announced with stay, or SDKs refuse the stream."""
    script = (
        *BEGIN,
        PartStarted(0, Text(text="")),
        PartTextDelta(0, "Hel"),
        PartEnded(0, Text(text="Hello")),
        PartStarted(1, ToolCall(id="c1", name="f", arguments_json="", item_id="fc_a")),
        PartEnded(1, ToolCall(id="c2", name="f", arguments_json="{}", item_id="fc_b")),
        Finished(FinishReason.STOP),
        Ended(),
    )
    _, written = encode(script)
    deltas = [event["delta"] for event in written if event["type"].endswith(".delta")]
    assert deltas == ["Hel", "lo", "{}"]
    item = written[-1]["response"]["output"][1]
    assert (item["id"], item["call_id"], item["arguments"]) == ("fc_a", "c1", "{}")


def test_no_two_items_share_an_id() -> None:
    """Rule 113: what an upstream says twice under one id gets two; the SDK takes one id twice for a contradiction."""
    calls = [ToolCall(id=f"c{number}", name="f", arguments_json="{}", item_id="fc_a") for number in range(3)]
    started = [event for index, call in enumerate(calls) for event in (PartStarted(index, call), PartEnded(index))]
    script = (*BEGIN, *started, Finished(FinishReason.TOOL_CALLS), Ended())
    stream, written = encode(script)
    ids = ["fc_a", "fc_tok_1", "fc_tok_2"]
    assert [item["id"] for item in written[-1]["response"]["output"]] == ids
    assert [event["item"]["id"] for event in written if event["type"] == "response.output_item.added"] == ids
    with sdk_client(stream) as client, client.responses.stream(model="m", input="x") as helper:
        helper.until_done()
    whole = Reply(id="r", model="m", parts=tuple(calls), finish=FinishReason.TOOL_CALLS)
    caller = ResponsesCodec().decode_request(json.dumps(REQUESTS["codex first turn"]).encode())
    body = ResponsesCodec().encode_reply(whole, caller, STAMP, AdaptationLog())
    assert [item["id"] for item in body["output"]] == ids


def test_refusal_without_words() -> None:
    """An upstream that declines without a refusal part is told as a filter's stop, with no invented words."""
    _, written = encode((*BEGIN, *text(0, "I"), Finished(FinishReason.REFUSAL), Ended()))
    assert written[-1]["type"] == "response.incomplete"
    assert written[-1]["response"]["incomplete_details"] == {"reason": "content_filter"}
    assert [item["content"][0]["text"] for item in written[-1]["response"]["output"]] == ["I"]


def test_parts_without_a_form_are_left_out() -> None:
    """A part this wire cannot show is skipped, with a note, and the numbering has no gap."""
    log = AdaptationLog()
    script = (
        *BEGIN,
        PartStarted(0, Image(data="x")),
        PartEnded(0),
        *text(1, "Hi"),
        Finished(FinishReason.STOP),
        Ended(),
    )
    _, written = encode(script, log=log)
    assert written[2]["output_index"] == 0
    assert len(written[-1]["response"]["output"]) == 1
    assert [(entry.kind, entry.subject) for entry in log.entries] == [(AdaptationKind.PART_DROPPED, "image")]


@pytest.mark.parametrize(
    ("error", "code", "word"),
    [
        (ErrorInfo(message="cut", status=502, code="upstream_unavailable"), "server_error", "upstream_unavailable"),
        (
            ErrorInfo(message="slow", status=429, code="x", type="rate_limit_error"),
            "rate_limit_exceeded",
            "rate_limit_error",
        ),
        (ErrorInfo(message="bad", status=400, code="unsupported_feature"), "invalid_prompt", "unsupported_feature"),
        (
            ErrorInfo(message="long", status=400, code="context_length_exceeded"),
            "context_length_exceeded",
            "context_length_exceeded",
        ),
    ],
)
def test_failed_before_anything(error: ErrorInfo, code: str, word: str) -> None:
    """A failure before the first event is still a whole stream: created, then failed."""
    _, written = encode([Failed(error)])
    assert kinds(written) == ["created", "in_progress", "failed"]
    response = written[-1]["response"]
    assert response["status"] == "failed"
    assert response["error"] == {"code": code, "message": error.message, "type": word, "param": None}


def test_failed_after_text() -> None:
    """A failure in the middle keeps what was finished and is the last event."""
    error = ErrorInfo(message="cut", status=502, code="upstream_unavailable")
    _, written = encode((*BEGIN, *text(0, "Hi"), PartStarted(1, Text(text="")), PartTextDelta(1, "the"), Failed(error)))
    assert written[-1]["type"] == "response.failed"
    assert [item["content"][0]["text"] for item in written[-1]["response"]["output"]] == ["Hi"]


def test_upstream_ids_of_this_wire_are_kept() -> None:
    """An id clients may refer to on the upstream is not replaced."""
    _, written = encode((Started("resp_up", "m"), Finished(FinishReason.STOP), Ended()))
    assert {event["response"]["id"] for event in written} == {"resp_up"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_read_back(name: str, read: Any, assemble: Any, strip: Callable[[Any], Any]) -> None:
    """What the encoder writes, the decoder reads as the same reply."""
    stream, _ = encode(SCRIPTS[name])
    given = strip(assemble(SCRIPTS[name]))
    back = strip(assemble(read(stream)))

    def bare(part: Any) -> Any:
        match part:
            case ToolCall():
                return part.evolve(item_id=None)
            case Reasoning(state=OpaqueState(data=data)):
                return part.evolve(state=data)
            case _:
                return part

    assert [bare(part) for part in back.parts] == [bare(part) for part in given.parts]
    assert back.finish == given.finish
    assert back.usage == given.usage


@pytest.mark.parametrize("name", REPLIES)
def test_streamed_equals_whole(
    *, name: str, read: Any, assemble: Any, sse: Any, stream_of: Any, codec: ResponsesCodec
) -> None:
    """Events of a real stream, written again, end in the response object of the whole reply."""
    events = read(sse(stream_of(REPLIES[name])))
    _, written = encode(events, "plain string")
    reply: Reply = assemble(events)
    caller = codec.decode_request(json.dumps(REQUESTS["plain string"]).encode())
    expected = codec.encode_reply(reply, caller, STAMP, AdaptationLog())
    assert written[-1]["response"] == expected


def sdk_client(stream: bytes) -> OpenAI:
    """Return an SDK client whose every answer is this stream."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    transport = httpx2.MockTransport(answer)
    return OpenAI(api_key="k", base_url="http://mustcall.test/v1", http_client=httpx2.Client(transport=transport))


def without_parsed(item: Any) -> Any:
    """Return an item without the fields the helper adds."""
    if "content" in item:
        return {**item, "content": [{k: v for k, v in part.items() if k != "parsed"} for part in item["content"]]}
    return {key: value for key, value in item.items() if key != "parsed_arguments"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_official_sdk_helper(name: str, assemble: Any) -> None:
    """wires.md 2: the OpenAI SDK's stream helper, which is strict about order and identity, reads every stream."""
    stream, written = encode(SCRIPTS[name])
    seen: list[str] = []
    with sdk_client(stream) as client, client.responses.stream(model="m", input="x") as helper:
        seen.extend(event.type for event in helper)
        if written[-1]["type"] == "response.completed":
            final = helper.get_final_response()
            assert [without_parsed(item.to_dict()) for item in final.output] == written[-1]["response"]["output"]
            texts = [part.text for part in assemble(SCRIPTS[name]).parts if isinstance(part, Text)]
            assert final.output_text == "".join(texts)
    assert seen == [event["type"] for event in written]
