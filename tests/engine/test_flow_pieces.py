"""Text that flows as the upstream's own bytes: what is read of it is what a client reads in the same bytes."""

import json
from typing import Any

import pytest

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import Wire
from mustcall.core.parts import Part, Text
from mustcall.core.streams.assembler import Assembler
from mustcall.core.tools import Tool
from mustcall.engine.replies.stream_relay import StreamRelay
from mustcall.policy.scanning.reply_scanner import ScanTargets
from mustcall.testing import Say, Turn
from mustcall.testing.render import Stamp as Written
from mustcall.testing.render import stream_reply
from mustcall.wire.codec import Provenance
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder
from support.flowing import Flowing

TOOLS = (Tool(name="f", parameters={"type": "object", "properties": {"q": {"type": "string"}}}),)
CALL = '<tool_call>\n{"name": "f", "arguments": {"q": "x"}}\n</tool_call>'
WORDS = "Sunny, as it was all week and will be for some days more."


def flow_of(wire: Wire) -> StreamRelay[bytes]:
    """A stream between two sides of one wire, looked through for calls."""
    return Flowing(wire, ScanTargets(tools=TOOLS)).flow


def carried(flow: StreamRelay[bytes], *pieces: bytes) -> bytes:
    """What goes out of these pieces before the verdict."""
    return b"".join([flow.feed(piece) for piece in pieces])


def parts_of(wire: Wire, data: bytes) -> tuple[Part, ...]:
    """What bytes mean, read one event after the other."""
    decoder, assembler = codec_for(wire).stream_decoder(Provenance(issuer="u", token="t")), Assembler()
    for event in SseDecoder().feed(data):
        for meaning in decoder.feed(event):
            assembler.feed(meaning)
    return assembler.parts()


def texts_of(wire: Wire, data: bytes) -> list[str]:
    """The texts that bytes mean."""
    return [part.text for part in parts_of(wire, data) if isinstance(part, Text)]


def chunk(**delta: str) -> bytes:
    """A chunk of Chat Completions."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    value = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: %b\n\n" % json.dumps(value).encode()


def event(kind: str, **fields: Any) -> bytes:
    """An event of Messages."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), json.dumps({"type": kind, **fields}).encode())


def delta(text: str, index: int = 0) -> bytes:
    """Some text of Messages."""
    return event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})


def block(index: int, kind: str = "text") -> bytes:
    """The start of a block of Messages."""
    return event("content_block_start", index=index, content_block={"type": kind, kind: ""})


MESSAGE = event(
    "message_start",
    message={
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
)


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("blank", [b"\n", b"\n\n", b"\n\n\n"], ids=["one", "two", "three"])
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_more_blank_lines_than_needed(wire: Wire, blank: bytes, at_once: int) -> None:
    """Rule 112: blank lines after an event mean nothing, wherever a piece ends."""
    frames = stream_reply(Turn(Say(WORDS)), wire, {"model": "m", "stream": True}, Written(1, "s"))
    spaced = [frame + blank for frame in frames]
    pieces = [b"".join(spaced[at : at + at_once]) for at in range(0, len(spaced), at_once)]
    flow = flow_of(wire)
    out = carried(flow, *pieces) + flow.rest()
    assert [part.text for part in flow.reply().parts if isinstance(part, Text)] == [WORDS]
    assert out == b"".join(spaced)


def crlf(data: bytes) -> bytes:
    """The same lines with the other line end."""
    return data.replace(b"\n", b"\r\n")


def test_a_part_that_ends_in_other_line_ends_takes_its_stencil_along() -> None:
    """Rule 53: text after another part is a new part, and a call in it that comes in two pieces stays inside."""
    flow = flow_of(Wire.CHAT)
    pieces = [chunk(role="assistant", content="Hello "), chunk(content="there. ")]
    pieces.append(crlf(chunk(reasoning_content="Hm.")))
    pieces += [chunk(content="So <tool_"), chunk(content=CALL.removeprefix("<tool_"))]
    out = carried(flow, *pieces)
    assert out == b"".join(pieces[:3])
    assert flow.lens.marked


def test_text_for_a_block_that_ended_in_other_line_ends() -> None:
    """Rule 127: a delta for a block that is closed is not forwarded, whatever the line ends before it."""
    flow = flow_of(Wire.MESSAGES)
    late = delta("late <tool_")
    out = carried(
        flow,
        MESSAGE + block(0),
        delta("Hello "),
        delta("there."),
        crlf(event("content_block_stop", index=0)),
        late,
    )
    assert late not in out
    assert not flow.raw


def test_bytes_that_are_no_text_are_not_forwarded() -> None:
    """Rule 127: no client reads a line that is not UTF-8, even where nobody needs the field."""
    flow = flow_of(Wire.CHAT)
    broken = chunk(content="two ").replace(b'"model": "m"', b'"model": "\xff"')
    out = carried(flow, chunk(content="one "), chunk(content="more "), broken, broken + broken)
    assert texts_of(Wire.CHAT, out) == ["one more two two two "]
    out.decode()


@pytest.mark.parametrize("kind", ["text", "thinking"])
def test_another_writer_counts_empty_blocks(kind: str) -> None:
    """Rule 135: a block that went out with nothing in it has its place, also for who writes on."""
    flow = flow_of(Wire.MESSAGES)
    out = carried(
        flow,
        MESSAGE + block(0, kind) + event("content_block_stop", index=0) + block(1),
        delta("one ", 1),
        b"retry: 10\n\n",
        delta("two", 1),
    )
    assert not flow.raw
    assert texts_of(Wire.MESSAGES, out)[-1] == "one two"


LAST = {
    Wire.CHAT: (
        b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
        b'{"role":"assistant","tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":%b}}]},'
        b'"finish_reason":"tool_calls"}]}\n'
    ),
    Wire.RESPONSES: (
        b'event: response.output_item.done\ndata: {"type":"response.output_item.done","output_index":0,"item":{"type":'
        b'"function_call","id":"fc_1","call_id":"c","name":"f","status":"completed","arguments":%b}}\n'
    ),
    Wire.MESSAGES: (
        b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use",'
        b'"id":"c","name":"f","input":%b}}\n'
    ),
}


@pytest.mark.parametrize("wire", Wire)
def test_a_last_event_that_can_be_parsed_but_not_written(wire: Wire) -> None:
    """Rule 114: writing arguments takes more of the stack than parsing them; too deep ones are the upstream's fault."""
    first = stream_reply(Turn(Say(WORDS)), wire, {"model": "m", "stream": True}, Written(1, "s"))[0]

    def is_too_deep(depth: int) -> bool:
        flow = flow_of(wire)
        flow.feed(first)
        flow.feed(LAST[wire] % (b'{"a":' * depth + b"1" + b"}" * depth))  # without the blank line that ends an event
        try:
            flow.close()
        except UpstreamGarbage as error:
            flow.fail(error)
        return flow.error is not None and "nested too deeply" in str(flow.error)

    shallow, deep = 1, 1 << 16
    assert not is_too_deep(shallow)
    assert is_too_deep(deep)
    while deep - shallow > 1:
        depth = (shallow + deep) // 2
        shallow, deep = (shallow, depth) if is_too_deep(depth) else (depth, deep)
    found = [is_too_deep(depth) for depth in range(deep - 12, deep + 12)]
    assert found == sorted(found)
    assert {*found} == {False, True}
