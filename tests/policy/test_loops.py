"""Rule 108: the same call, round after round."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import Image, Text, ToolCall, ToolResult
from mustcall.core.request import Request
from mustcall.policy.facts.controls import ToolControls
from mustcall.policy.reply.repeated_calls import Loop, loop_of

_numbers = count()
USER = Message(role=Role.USER, parts=(Text(text="go"),))


def call(arguments: str = '{"a": 1}', name: str = "read", call_id: str = "c") -> ToolCall:
    """A call."""
    return ToolCall(id=call_id, name=name, arguments_json=arguments)


def result(text: str, call_id: str = "c", *, is_error: bool = False) -> ToolResult:
    """A result; its origin differs each time, as ids on a wire do."""
    origin = Origin(Wire.CHAT, raw={"number": next(_numbers)})
    return ToolResult(call_id=call_id, content=(Text(text=text, origin=origin),), is_error=is_error, origin=origin)


def turn(*calls: ToolCall, output: str | None = None) -> list[Message]:
    """One round: calls, and results that differ from all others unless an output is given."""
    said = f"output {next(_numbers)}" if output is None else output
    brought = tuple(result(said, made.id) for made in calls)
    return [Message(role=Role.ASSISTANT, parts=calls), Message(role=Role.TOOL, parts=brought)]


def ask(*rounds: list[Message]) -> Request:
    """A request with these rounds after the user's message."""
    return Request(model="m", messages=(USER, *(message for each in rounds for message in each)))


def loop(times: int, *, name: str = "read", advise: bool = False, block: bool = False, same: bool = False) -> Loop:
    """An expected loop."""
    return Loop(name=name, times=times, advise=advise, block=block, same_output=same)


@pytest.mark.parametrize(
    ("before", "expected"), [(0, None), (1, None), (2, loop(3, advise=True)), (3, loop(4)), (4, loop(5))]
)
def test_the_third_time_gives_one_advice(before: int, expected: Loop | None) -> None:
    """Rule 108: three times in a row yields one advisory, at the third time and not again."""
    assert loop_of(ask(*[turn(call()) for _ in range(before)]), [call()], {}) == expected


def test_key_order_and_spelling_do_not_matter() -> None:
    """Rule 108: arguments are compared by what they mean."""
    rounds = [turn(call('{"a":1,"b":{"x":1,"y":[2]}}')), turn(call('{ "b": {"y": [2], "x": 1}, "a": 1 }'))]
    assert loop_of(ask(*rounds), [call('{"b":{"x":1,"y":[2]},\n"a":1}')], {}) == loop(3, advise=True)


@pytest.mark.parametrize(
    "other",
    [call('{"a": 2}'), call('{"a": "1"}'), call("{}"), call(name="write"), call("{broken"), call('{"a": [1]}')],
)
def test_another_call_ends_the_run(other: ToolCall) -> None:
    """Rule 108: only the same name with the same arguments is the same call."""
    assert loop_of(ask(turn(call()), turn(call()), turn(other)), [call()], {}) is None
    assert loop_of(ask(turn(call()), turn(other), turn(call())), [call()], {}) is None


def test_namespaces_tell_calls_apart() -> None:
    """Rule 108: the same name in two namespaces is two tools; settings go by the bare or the flat name."""
    spaced = ToolCall(id="c", name="read", namespace="files", arguments_json="{}")
    rounds = [turn(spaced), turn(spaced)]
    assert loop_of(ask(*rounds), [call("{}")], {}) is None
    for name in ("read", "files__read"):
        assert loop_of(ask(*rounds), [spaced], {name: ToolControls(loop_advice=0)}) is None


def test_parallel_calls_of_a_round_count_once() -> None:
    """Rule 108: however often one round or one reply makes a call, it is one time."""
    many = [call(call_id=str(number)) for number in range(5)]
    assert loop_of(ask(turn(*many)), many, {}) is None
    assert loop_of(ask(turn(*many), turn(*many)), many, {}) == loop(3, advise=True)


def test_calls_split_over_messages_are_one_round() -> None:
    """Rule 108: where each call is an item of its own, results end the round."""
    items = [Message(role=Role.ASSISTANT, parts=(call(call_id=name),)) for name in "ab"]
    outputs = [Message(role=Role.TOOL, parts=(result(name, name),)) for name in "ab"]
    assert loop_of(ask([*items, *outputs]), [call()], {}) is None
    assert loop_of(ask([*items, *outputs], [*items, *outputs]), [call()], {}) == loop(3, advise=True, same=True)


def test_a_loop_beside_other_calls_is_seen() -> None:
    """Rule 108: the repeated call is found among others, in any place."""
    rounds = [turn(call('{"n": 1}', call_id="x"), call()), turn(call(), call('{"n": 2}', call_id="y"))]
    assert loop_of(ask(*rounds), [call('{"n": 3}'), call()], {}) == loop(3, advise=True)


def test_a_new_user_message_starts_anew() -> None:
    """Rule 108: what the user asks for again is no loop."""
    assert loop_of(ask(turn(call()), turn(call()), [USER]), [call()], {}) is None


@pytest.mark.parametrize(("before", "block"), [(2, False), (3, True), (5, True)])
def test_more_can_block(before: int, block: bool) -> None:
    """Rule 108: more times block where the tool's setting says so."""
    found = loop_of(ask(*[turn(call()) for _ in range(before)]), [call()], {"read": ToolControls(loop_block=4)})
    assert found is not None
    assert found.block is block


def test_settings_are_per_tool() -> None:
    """Rule 108: a tool that is meant to be polled can be left alone, another advised early."""
    request = ask(turn(call()), turn(call()), turn(call()))
    assert loop_of(request, [call()], {"read": ToolControls(loop_advice=0)}) is None
    assert loop_of(ask(turn(call())), [call()], {"read": ToolControls(loop_advice=2)}) == loop(2, advise=True)
    assert loop_of(request, [call()], {"write": ToolControls(loop_block=1)}) == loop(4)
    assert loop_of(ask(), [call()], {"read": ToolControls(loop_advice=1, loop_block=1)}) is None


def test_the_same_output_twice_blocks_where_it_is_set() -> None:
    """Rule 108: identical output twice blocks by its own setting, at the third time and however often it is advised."""
    tools = {"read": ToolControls(loop_advice=0, loop_block_same=True)}
    same, other = turn(call(), output="same"), turn(call(), output="other")
    found = loop_of(ask(same, same), [call()], tools)
    assert found == loop(3, block=True, same=True)
    assert found is not None
    assert found.told == "the call of 'read' was made 3 times in a row and brought the same output twice"
    assert loop_of(ask(same), [call()], tools) is None
    assert loop_of(ask(same, other), [call()], tools) is None
    assert loop_of(ask(other, same, same), [call()], tools) == loop(4, block=True, same=True)


def test_the_same_output_twice_is_noted() -> None:
    """Rule 108: identical output twice is seen, also where advice is off."""
    request = ask(turn(call(), output="same"), turn(call(), output="same"))
    assert loop_of(request, [call()], {}) == loop(3, advise=True, same=True)
    assert loop_of(request, [call()], {"read": ToolControls(loop_advice=0)}) == loop(3, same=True)


def test_outputs_are_compared_by_what_they_say() -> None:
    """Rule 108: an error is not the same as its text, a missing result is none, media count."""
    ok, bad = turn(call(), output="x"), turn(call())
    bad[1] = Message(role=Role.TOOL, parts=(result("x", is_error=True),))
    found = loop_of(ask(ok, bad), [call()], {})
    assert found is not None
    assert not found.same_output
    lost = [turn(call())[0], Message(role=Role.TOOL, parts=(result("x", "another"),))]
    found = loop_of(ask(lost, lost), [call()], {})
    assert found is not None
    assert not found.same_output
    seen = [turn(call())[0], Message(role=Role.TOOL, parts=(ToolResult(call_id="c", content=(Image(url="u"),)),))]
    found = loop_of(ask(seen, seen), [call()], {})
    assert found is not None
    assert found.same_output


def test_the_worst_loop_is_returned() -> None:
    """Rule 108: one that blocks before one that is longer."""
    short, long = call(name="short", call_id="s"), call(name="long", call_id="l")
    request = ask(turn(long), turn(long, short), turn(long, short))
    assert loop_of(request, [long, short], {}) == loop(4, name="long")
    blocked = loop_of(request, [long, short], {"short": ToolControls(loop_block=3)})
    assert blocked == loop(3, name="short", advise=True, block=True)


def test_no_calls_no_loop() -> None:
    """Rule 108: a reply without calls, or a first one, is no loop."""
    assert loop_of(ask(turn(call()), turn(call())), [], {}) is None
    assert loop_of(Request(model="m", messages=()), [call()], {}) is None


ODD = st.sampled_from(["", "{", "[" * 20_000, '{"a": NaN}', "1e999", "9" * 400, '"\ud800"', '{"a":1,"a":2}', "null"])


@settings(deadline=None)
@given(st.lists(ODD | st.text(max_size=20), min_size=1, max_size=4))
def test_any_arguments_can_be_compared(arguments: list[str]) -> None:
    """Rule 108: arguments that are no JSON are compared as text and never raise."""
    calls = [call(text, call_id=str(number)) for number, text in enumerate(arguments)]
    assert loop_of(ask(turn(*calls)), calls, {}) is None
    found = loop_of(ask(turn(*calls), turn(*calls)), calls, {})
    assert found is not None
    assert found.times == 3
