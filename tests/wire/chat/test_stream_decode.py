"""Chat streams of upstreams that lie, hang up, or send errors."""

from collections.abc import Callable
from typing import Any

import pytest

from mustcall.core.parts import CallKind, Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import Usage
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import (
    Ended,
    Event,
    Failed,
    Finished,
    PartEnded,
    PartStarted,
    Started,
    StateDelta,
    UsageUpdated,
)

Read = Callable[..., list[Event]]
Assemble = Callable[[list[Event]], Assembler]
Bare = Callable[[Any], Any]
Write = Callable[..., bytes]


def _delta(**delta: Any) -> dict[str, Any]:
    return {"id": "c", "model": "m", "created": 1, "choices": [{"index": 0, "delta": delta}]}


def _finish(word: str | None = "stop") -> dict[str, Any]:
    return {"id": "c", "model": "m", "created": 1, "choices": [{"index": 0, "delta": {}, "finish_reason": word}]}


def _calls(*calls: Any) -> dict[str, Any]:
    return _delta(tool_calls=list(calls))


def _call(index: int | None = None, call_id: str | None = None, **function: Any) -> dict[str, Any]:
    call: dict[str, Any] = {"function": function} if function else {}
    if index is not None:
        call["index"] = index
    if call_id is not None:
        call["id"] = call_id
    return call


def _tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments_json=arguments)


_LIES: list[tuple[str, list[Any], list[ToolCall]]] = [
    (
        "all parallel calls on one index",
        [
            _calls(_call(0, "a", name="f", arguments="")),
            _calls(_call(0, arguments='{"x":1}')),
            _calls(_call(0, "b", name="f", arguments="")),
            _calls(_call(0, arguments='{"x":2}')),
        ],
        [_tool_call("a", "f", '{"x":1}'), _tool_call("b", "f", '{"x":2}')],
    ),
    (
        "both calls on one index in one chunk",
        [_calls(_call(0, "a", name="f", arguments="{}"), _call(0, "b", name="g", arguments="{}"))],
        [_tool_call("a", "f", "{}"), _tool_call("b", "g", "{}")],
    ),
    (
        "missing index",
        [
            _calls(_call(None, "a", name="f", arguments='{"x"')),
            _calls(_call(None, arguments=":1}")),
            _calls(_call(None, "b", name="g", arguments="{}")),
        ],
        [_tool_call("a", "f", '{"x":1}'), _tool_call("b", "g", "{}")],
    ),
    (
        "missing index and id",
        [
            _calls(_call(name="f", arguments='{"x":1}'), _call(name="f", arguments='{"x":2}')),
            _calls(_call(name="g", arguments="{}")),
        ],
        [
            _tool_call("call_t_0", "f", '{"x":1}'),
            _tool_call("call_t_1", "f", '{"x":2}'),
            _tool_call("call_t_2", "g", "{}"),
        ],
    ),
    (
        "null and text as index",
        [
            _calls({"index": None, "id": "a", "function": {"name": "f", "arguments": "{"}}),
            _calls({"index": "0", "id": "a", "function": {"arguments": "}"}}),
        ],
        [_tool_call("a", "f", "{}")],
    ),
    (
        "name repeated in every delta",
        [
            _calls(_call(0, "a", name="f", arguments='{"x"')),
            _calls(_call(0, "a", name="f", arguments=":1")),
            _calls(_call(0, "a", name="f", arguments="}")),
        ],
        [_tool_call("a", "f", '{"x":1}')],
    ),
    (
        "id changing in mid-call",
        [
            _calls(_call(0, "a", name="f", arguments='{"x"')),
            _calls(_call(0, "b", arguments=":1")),
            _calls(_call(0, "c", name="f", arguments="}")),
            _calls(_call(0, "d", arguments="")),
        ],
        [_tool_call("a", "f", '{"x":1}')],
    ),
    (
        "arguments null, empty, absent",
        [
            _calls(_call(0, "a", name="f", arguments=None)),
            _calls(_call(1, "b", name="g", arguments="")),
            _calls(_call(2, "c", name="h")),
        ],
        [_tool_call("a", "f", ""), _tool_call("b", "g", ""), _tool_call("c", "h", "")],
    ),
    (
        "arguments as an object",
        [_calls(_call(0, "a", name="f", arguments={"x": [1, "é"]}))],
        [_tool_call("a", "f", '{"x":[1,"é"]}')],
    ),
    ("empty list of calls", [_delta(content=None, tool_calls=[]), _delta(tool_calls=None)], []),
    ("empty placeholders", [_calls({}), _calls({"index": 0, "function": {"name": "", "arguments": ""}}, _call(1))], []),
    (
        "calls after the finish reason",
        [_finish("stop"), _calls(_call(0, "a", name="f", arguments="{}"))],
        [_tool_call("a", "f", "{}")],
    ),
    (
        "calls in the chunk of the finish reason",
        [
            {
                "choices": [
                    {"delta": {"tool_calls": [_call(0, "a", name="f", arguments="{}")]}, "finish_reason": "tool_calls"}
                ]
            }
        ],
        [_tool_call("a", "f", "{}")],
    ),
    (
        "name arriving late",
        [
            _calls(_call(0, "a")),
            _calls(_call(0, arguments='{"x"')),
            _calls(_call(0, name="f", arguments=":")),
            _calls(_call(0, arguments="1}")),
        ],
        [_tool_call("a", "f", '{"x":1}')],
    ),
    (
        "name never arriving",
        [_calls(_call(0, "a", arguments='{"x":1}'))],
        [_tool_call("a", "", '{"x":1}')],
    ),
    (
        "interleaved calls",
        [
            _calls(_call(0, "a", name="f", arguments="{"), _call(1, "b", name="g", arguments="{")),
            _calls(_call(1, arguments='"y":2'), _call(0, arguments='"x":1')),
            _calls(_call(0, arguments="}"), _call(1, arguments="}")),
        ],
        [_tool_call("a", "f", '{"x":1}'), _tool_call("b", "g", '{"y":2}')],
    ),
    (
        "one whole message instead of deltas",
        [{"choices": [{"message": {"role": "assistant", "tool_calls": [_call(None, "a", name="f", arguments="{}")]}}]}],
        [_tool_call("a", "f", "{}")],
    ),
    (
        "empty id",
        [_calls(_call(0, "", name="f", arguments="{}"))],
        [_tool_call("call_t_0", "f", "{}")],
    ),
]


@pytest.mark.parametrize(("chunks", "calls"), [pytest.param(*lie[1:], id=lie[0]) for lie in _LIES])
@pytest.mark.parametrize("reported", ["tool_calls", "stop", None])
def test_lies(  # noqa: PLR0917
    chunks: list[Any],
    calls: list[ToolCall],
    reported: str | None,
    sse_of: Write,
    read_stream: Read,
    assemble: Assemble,
    bare: Bare,
) -> None:
    """Rule 127: whatever the numbering says, calls come out whole, and the finish follows from them."""
    events = read_stream(sse_of(*chunks, _finish(reported), b"[DONE]"))
    reply = bare(assemble(events).reply())
    assert list(reply.parts) == calls
    if calls:
        assert reply.finish == "tool_calls"
    else:
        assert reply.finish in ("stop", "unknown")


@pytest.mark.parametrize("chunks", [pytest.param(lie[1], id=lie[0]) for lie in _LIES])
def test_order_of_events(chunks: list[Any], sse_of: Write, read_stream: Read) -> None:
    """Contract of events: started first, each part started once and ended once before the finish, ended last."""
    events = read_stream(sse_of(_delta(reasoning_content="r"), _delta(content="t"), *chunks, _finish(), b"[DONE]"))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Ended)
    assert isinstance(events[-2], Finished)
    assert [type(event) for event in events].count(Finished) == 1
    started = [event.index for event in events if isinstance(event, PartStarted)]
    assert started == list(range(len(started)))
    assert sorted(event.index for event in events if isinstance(event, PartEnded)) == started


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("words", ["content", "refusal"])
def test_a_thought_beside_words_goes_back_in_its_field(
    field: str, words: str, sse_of: Write, read_stream: Read
) -> None:
    """Rule 124: the field that held a thought is known when the words of the same delta end it, each time anew."""
    other = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}[field]
    deltas = [_delta(**{name: "hm", words: "so"}) for name in (field, other, field)]
    events = read_stream(sse_of(*deltas, _finish(), b"[DONE]"))
    states = [event.state.data for event in events if isinstance(event, StateDelta)]
    assert states == [{"field": field}, {"field": other}, {"field": field}]


def test_parts_in_order(sse_of: Write, read_stream: Read, assemble: Assemble, bare: Bare) -> None:
    """Build 3: thinking, text, refusal, more text and a custom call keep their order."""
    events = read_stream(
        sse_of(
            _delta(role="assistant", reasoning="a", content="b"),
            _delta(refusal="c"),
            _delta(content="d"),
            _calls({"index": 0, "id": "x", "type": "custom", "custom": {"name": "p", "input": "in"}}),
            _calls({"index": 0, "custom": {"input": "put"}}),
            _finish(),
        )
    )
    parts = bare(assemble(events).reply()).parts
    assert [type(part) for part in parts] == [Reasoning, Text, Refusal, Text, ToolCall]
    assert parts[-1] == ToolCall(id="x", name="p", arguments_json="input", kind=CallKind.CUSTOM)


def test_a_whole_message_after_deltas_is_not_doubled(
    sse_of: Write, read_stream: Read, assemble: Assemble, bare: Bare
) -> None:
    """providers.md: a server that repeats the whole message at the end does not double the text."""
    last = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}]}
    events = read_stream(sse_of(_delta(content="hel"), _delta(content="lo"), last))
    assert bare(assemble(events).reply()).parts == (Text(text="hello"),)


def test_other_choices_are_no_part_of_the_reply(
    sse_of: Write, read_stream: Read, assemble: Assemble, bare: Bare
) -> None:
    """Build 3: with `n` over 1 only the first choice is the canonical reply."""
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}]}
    events = read_stream(sse_of(_delta(content="a"), other, _finish(), other))
    reply = bare(assemble(events).reply())
    assert (reply.parts, reply.reported_finish) == ((Text(text="a"),), "stop")


@pytest.mark.parametrize(
    "tail",
    [
        [_finish(), b"[DONE]"],
        [_finish(), b" [DONE]"],
        [_finish()],
        [_finish(), {"choices": [], "usage": {"prompt_tokens": 1}}, b"[DONE]"],
        [_finish(), {"choices": [], "usage": {"prompt_tokens": 1}}],
        [b"[DONE]"],
        [_finish(), b"[DONE]", b"garbage", _delta(content="late"), b"[DONE]"],
    ],
    ids=["done", "spaced", "none", "usage and done", "usage", "done without finish", "things after done"],
)
def test_regular_ends(tail: list[Any], sse_of: Write, read_stream: Read, assemble: Assemble, bare: Bare) -> None:
    """wires.md 2: `[DONE]` is not needed after a finish reason, nor a finish reason before `[DONE]`."""
    assembler = assemble(read_stream(sse_of(_delta(content="a"), *tail)))
    assert assembler.ended
    assert bare(assembler.reply()).parts == (Text(text="a"),)


def test_usage_last_counts(sse_of: Write, read_stream: Read, assemble: Assemble, bare: Bare) -> None:
    """wires.md 2: usage in the finish chunk or in one of its own; the last one counts."""
    first = {**_finish(), "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    last: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}
    events = read_stream(sse_of(_delta(content="a"), {"usage": None, "choices": []}, first, last, b"[DONE]"))
    assert len([event for event in events if isinstance(event, UsageUpdated)]) == 2
    assert bare(assemble(events).reply()).usage == Usage(input_tokens=2, output_tokens=3)


@pytest.mark.parametrize(
    "chunks",
    [[], [_delta(content="half")], [_calls(_call(0, "a", name="f", arguments="{"))], [_finish(None)]],
    ids=["nothing", "text", "call", "null finish"],
)
def test_cut_stream(chunks: list[Any], sse_of: Write, read_stream: Read) -> None:
    """wires.md 2 (x-cut): a stream that ends without its end has failed, half a call is never delivered as one."""
    events = read_stream(sse_of(*chunks))
    assert isinstance(events[-1], Failed)
    assert (events[-1].error.code, events[-1].error.status) == ("upstream_unavailable", 502)
    assert not any(isinstance(event, Finished | Ended) for event in events)


@pytest.mark.parametrize(
    ("event", "message", "status"),
    [
        (b'data: {"error":{"message":"overloaded","code":529}}\n\n', "overloaded", 529),
        (b'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n', "overloaded", 502),
        (b'data: {"error":"overloaded"}\n\n', "overloaded", 502),
        (b'event: error\ndata: {"message":"overloaded"}\n\n', "overloaded", 502),
        (b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n', "overloaded", 502),
    ],
)
def test_error_in_mid_stream(event: bytes, message: str, status: int, sse_of: Write, read_stream: Read) -> None:
    """wires.md 2 (c-error): the upstream's error is the last event, with its message and a failing status."""
    events = read_stream(sse_of(_delta(content="a")) + event + sse_of(_delta(content="b"), _finish(), b"[DONE]"))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.message, failed.error.status) == (message, status)
    assert not any(isinstance(item, Finished | Ended) for item in events)


@pytest.mark.parametrize(
    "chunk",
    [
        b"garbage",
        b"[]",
        b"null",
        b'{"choices":5}',
        b'{"choices":[5]}',
        b'{"choices":[{"delta":{"content":5}}]}',
        b'{"choices":[{"delta":{"tool_calls":[null]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"function":{"name":5}}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":[]}}]}}]}',
        b'{"choices":[{"delta":{},"finish_reason":5}]}',
        b"[" * 5000,
        b'{"choices":[{"delta":{"content":"\\ud83d"}}]}',
    ],
)
def test_garbage_in_mid_stream(chunk: bytes, sse_of: Write, read_stream: Read) -> None:
    """Build 3: what cannot be read fails the stream with a typed error, and nothing comes after it."""
    events = read_stream(sse_of(_delta(content="a"), chunk, _delta(content="b"), _finish(), b"[DONE]"))
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert (failed.error.code, failed.error.status) == ("upstream_garbage", 502)


_ODD_CHUNKS: list[dict[str, Any]] = [
    {"object": "chat.completion.chunk"},
    {"choices": None},
    {"choices": [{}]},
    {"choices": [{"delta": None}]},
    {"choices": [{"index": None, "delta": {"role": "assistant", "content": None, "function_call": None}}]},
    {"id": 5, "created": "now", "model": {}, "choices": [], "usage": "none"},
    {"choices": [], "usage": {"prompt_tokens": "5", "prompt_tokens_details": []}},
    {"choices": [{"delta": {"reasoning_details": []}, "logprobs": {"content": []}}], "service_tier": "x"},
]


@pytest.mark.parametrize("chunk", _ODD_CHUNKS)
def test_odd_chunks_are_harmless(
    chunk: dict[str, Any], sse_of: Write, read_stream: Read, assemble: Assemble, bare: Bare
) -> None:
    """wires.md 2 (c-min, c-emptychunk, c-usagenull): chunks without the usual fields change nothing."""
    events = read_stream(sse_of(chunk, _delta(content="a"), chunk, _finish(), chunk, b"[DONE]"))
    assert bare(assemble(events).reply()).parts == (Text(text="a"),)
