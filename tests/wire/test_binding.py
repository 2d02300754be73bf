"""wires.md 1.9: calls come back in the names and kinds the caller offered its tools under."""

import pytest

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import CallKind, Part, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.streams.assembler import Assembler
from mustcall.core.streams.events import (
    ArgumentsDelta,
    Ended,
    Event,
    Finished,
    PartEnded,
    PartStarted,
    PartTextDelta,
    Started,
)
from mustcall.core.streams.unroll import unroll
from mustcall.core.tools import Tool
from mustcall.wire.crossing.binding import Binding, StreamBinding
from mustcall.wire.crossing.naming import flat_name

_TOOLS = (
    Tool(name="plain"),
    Tool(name="spawn", namespace="agents"),
    Tool(name="apply_patch", kind=CallKind.CUSTOM),
    Tool(name="patch", kind=CallKind.CUSTOM, namespace="agents"),
    Tool(name="illegal name!"),
)
_CALLER = Request(model="m", messages=(), tools=_TOOLS, origin=Origin(Wire.RESPONSES))
_BINDING = Binding(_CALLER, Wire.CHAT)

_CASES = [
    pytest.param(
        ToolCall(id="1", name="plain", arguments_json="{}"), ToolCall(id="1", name="plain", arguments_json="{}")
    ),
    pytest.param(
        ToolCall(id="1", name="agents__spawn", arguments_json='{"x":1}'),
        ToolCall(id="1", name="spawn", namespace="agents", arguments_json='{"x":1}'),
    ),
    pytest.param(
        ToolCall(id="1", name="apply_patch", arguments_json='{"input":"*** Begin\\n"}'),
        ToolCall(id="1", name="apply_patch", kind=CallKind.CUSTOM, arguments_json="*** Begin\n"),
    ),
    pytest.param(
        ToolCall(id="1", name="agents__patch", arguments_json='{"input":""}'),
        ToolCall(id="1", name="patch", namespace="agents", kind=CallKind.CUSTOM, arguments_json=""),
    ),
    pytest.param(
        ToolCall(id="1", name="ghost", arguments_json="{"), ToolCall(id="1", name="ghost", arguments_json="{")
    ),
]


def _reply(*parts: Part) -> Reply:
    return Reply(id="r", model="m", parts=parts, finish=FinishReason.TOOL_CALLS)


@pytest.mark.parametrize(("sent", "expected"), _CASES)
def test_whole_reply(sent: ToolCall, expected: ToolCall) -> None:
    """wires.md 1.9: each call of a whole reply is the caller's own tool again, in its kind and namespace."""
    assert _BINDING.restore_reply(_reply(Text(text="t"), sent)).parts == (Text(text="t"), expected)


@pytest.mark.parametrize(("sent", "expected"), _CASES)
@pytest.mark.parametrize("with_final", [False, True])
def test_stream(sent: ToolCall, expected: ToolCall, with_final: bool) -> None:
    """wires.md 1.9: the same for a stream in single characters, with and without the upstream's final word."""
    stream = StreamBinding(_BINDING)
    events: list[Event] = [Started("r", "m"), PartStarted(0, Text(text="")), PartTextDelta(0, "t"), PartEnded(0)]
    events.append(PartStarted(1, sent.evolve(arguments_json="")))
    events.extend(ArgumentsDelta(1, character) for character in sent.arguments_json)
    events.append(PartEnded(1, sent if with_final else None))
    events.extend([Finished(FinishReason.STOP), Ended()])
    assembler = Assembler()
    texts: dict[int, str] = {}
    for event in events:
        for bound in stream.feed(event):
            if isinstance(bound, ArgumentsDelta):
                texts[bound.index] = texts.get(bound.index, "") + bound.text
            elif isinstance(bound, PartStarted) and isinstance(bound.part, ToolCall):
                assert (bound.part.name, bound.part.kind) == (expected.name, expected.kind)
            assembler.feed(bound)
    assert assembler.reply().parts == (Text(text="t"), expected)
    assert texts.get(1, "") == expected.arguments_json


def test_illegal_name_comes_back() -> None:
    """Rule 129: a name that was mapped to a legal one comes back as the caller's."""
    sent = ToolCall(id="1", name=flat_name(None, "illegal name!"), arguments_json="{}")
    assert sent.name != "illegal name!"
    assert _BINDING.restore(sent).name == "illegal name!"


def test_same_wire_is_trivial() -> None:
    """Design 2.3: on the same wire nothing is rewritten, the reply is the same object."""
    binding = Binding(_CALLER, Wire.RESPONSES)
    reply = _reply(ToolCall(id="1", name="agents__spawn", arguments_json="{}"))
    assert binding.trivial
    assert binding.restore_reply(reply) is reply
    assert all(StreamBinding(binding).feed(event) == (event,) for event in unroll(reply))


def test_reply_without_bound_calls_is_untouched() -> None:
    """Design 2.3: a reply that needs nothing is the same object."""
    reply = _reply(ToolCall(id="1", name="plain", arguments_json="{}"))
    assert not _BINDING.trivial
    assert _BINDING.restore_reply(reply) is reply


def test_custom_arguments_are_not_guessed() -> None:
    """Design 2.5: a custom tool called with anything but one input string is garbage, whole and streamed."""
    bad = ToolCall(id="1", name="apply_patch", arguments_json='{"patch":"x"}')
    with pytest.raises(UpstreamGarbage, match="custom tool 'apply_patch'"):
        _BINDING.restore_reply(_reply(bad))
    stream = StreamBinding(_BINDING)
    assert stream.feed(PartStarted(0, bad)) == ()
    assert stream.feed(PartEnded(0)) == ()
    with pytest.raises(UpstreamGarbage, match="custom tool 'apply_patch'"):
        stream.feed(Finished(FinishReason.STOP))


def _bind(*events: Event) -> list[Event]:
    stream = StreamBinding(_BINDING)
    return [bound for event in events for bound in stream.feed(event)]


_CUT = ToolCall(id="1", name="apply_patch", arguments_json='{"input":"*** Beg')


@pytest.mark.parametrize("arguments", ["", "{", '{"input":"*** Beg', "{}"])
@pytest.mark.parametrize("with_final", [False, True])
def test_custom_call_cut_by_the_limit_is_left_out(arguments: str, with_final: bool) -> None:
    """Rule 107: the last custom call of a reply at its token limit is dropped if cut; what came before stays."""
    cut = _CUT.evolve(arguments_json=arguments)
    reply = _reply(Text(text="t"), cut).evolve(finish=FinishReason.LENGTH)
    assert _BINDING.restore_reply(reply).parts == (Text(text="t"),)
    before = [Started("r", "m"), PartStarted(0, Text(text="")), PartTextDelta(0, "t"), PartEnded(0)]
    after = [Finished(FinishReason.LENGTH), Ended()]
    deltas = [ArgumentsDelta(1, character) for character in arguments]
    ended = PartEnded(1, cut if with_final else None)
    events = _bind(*before, PartStarted(1, cut.evolve(arguments_json="")), *deltas, ended, *after)
    assert events == [*before, *after]


def test_whole_custom_call_at_the_limit_is_kept() -> None:
    """Only a cut call is left out: one that was complete before the limit is the caller's."""
    whole = ToolCall(id="1", name="apply_patch", arguments_json='{"input":"x"}')
    expected = ToolCall(id="1", name="apply_patch", kind=CallKind.CUSTOM, arguments_json="x")
    assert _BINDING.restore_reply(_reply(whole, _CUT).evolve(finish=FinishReason.LENGTH)).parts == (expected,)
    events = _bind(
        PartStarted(0, whole), PartStarted(1, _CUT), PartEnded(0), PartEnded(1), Finished(FinishReason.LENGTH)
    )
    assert events == [
        PartStarted(0, expected.evolve(arguments_json="")),
        ArgumentsDelta(0, "x"),
        PartEnded(0, expected),
        Finished(FinishReason.LENGTH),
    ]


def test_broken_custom_call_before_others_was_not_cut() -> None:
    """The limit only cuts what comes last: a broken call with a part behind it is garbage, whole and streamed."""
    other = ToolCall(id="2", name="plain", arguments_json="{}")
    with pytest.raises(UpstreamGarbage, match="custom tool 'apply_patch'"):
        _BINDING.restore_reply(_reply(_CUT, other).evolve(finish=FinishReason.LENGTH))
    for events in (
        [PartStarted(0, _CUT), PartEnded(0), PartStarted(1, other)],
        [PartStarted(0, _CUT), PartStarted(1, other), PartEnded(1), PartEnded(0)],
    ):
        stream = StreamBinding(_BINDING)
        for event in events[:-1]:
            assert stream.feed(event) == ()
        with pytest.raises(UpstreamGarbage, match="custom tool 'apply_patch'"):
            stream.feed(events[-1])


def test_parts_wait_behind_a_custom_call() -> None:
    """Parts keep the order they started in: what starts while a custom call is read follows it, rewritten."""
    custom = ToolCall(id="1", name="apply_patch", arguments_json="")
    spawn = ToolCall(id="2", name="agents__spawn", arguments_json="")
    bound = ToolCall(id="1", name="apply_patch", kind=CallKind.CUSTOM, arguments_json="x")
    events = _bind(
        PartStarted(0, Text(text="")),
        PartStarted(1, custom),
        PartStarted(2, spawn),
        ArgumentsDelta(2, "{"),
        PartTextDelta(0, "t"),
        ArgumentsDelta(1, '{"input":"x"}'),
        PartEnded(1),
        ArgumentsDelta(1, "late"),
        ArgumentsDelta(2, "}"),
        PartEnded(2),
    )
    assert events == [
        PartStarted(0, Text(text="")),
        PartTextDelta(0, "t"),
        PartStarted(1, bound.evolve(arguments_json="")),
        ArgumentsDelta(1, "x"),
        PartEnded(1, bound),
        PartStarted(2, spawn.evolve(name="spawn", namespace="agents")),
        ArgumentsDelta(2, "{"),
        ArgumentsDelta(1, "late"),
        ArgumentsDelta(2, "}"),
        PartEnded(2),
    ]
