"""Compaction: what gives way in a long conversation, in which order, and what never does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Image, Text, ToolCall, ToolResult
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.history.compaction import Compaction, check_compaction, compact
from mustcall.wire.messages.count import estimate_message

WORDS = Wording()


def said(role: Role, text: str, *, pinned: bool = False) -> Message:
    """A message of one text."""
    message = Message(role=role, parts=(Text(text=text),))
    return message.evolve(pinned=True) if pinned else message


def called(key: str, result: str) -> list[Message]:
    """A round: a call and its result."""
    call = ToolCall(id=key, name="f", arguments_json="{}")
    return [
        Message(role=Role.ASSISTANT, parts=(call,)),
        Message(role=Role.TOOL, parts=(ToolResult(call_id=key, content=(Text(text=result),)),)),
    ]


def size(messages: list[Message] | tuple[Message, ...]) -> int:
    """The estimate that decides."""
    return sum(map(estimate_message, messages))


def test_what_fits_is_untouched() -> None:
    """A conversation within its room is sent as it is, the same messages."""
    messages = [said(Role.USER, "Hi"), *called("a", "x" * 900)]
    done = compact(messages, Compaction(max_tokens=size(messages)))
    assert (list(done.messages), done.left_out, done.emptied) == (messages, 0, 0)
    assert all(mine is given for mine, given in zip(done.messages, messages, strict=True))


def test_old_results_give_way_first() -> None:
    """The oldest long result becomes a sentence; the calls stay, and so does what is recent."""
    messages = [said(Role.USER, "Hi"), *called("a", "x" * 4000), *called("b", "short"), *called("c", "z" * 4000)]
    done = compact(messages, Compaction(max_tokens=1500, keep_rounds=1))
    assert (done.left_out, done.emptied) == (0, 1)
    note = Text(text=fill(WORDS.result_left_out, count="4000"))
    assert done.messages[2].results[0].content == (note,)
    assert [*done.messages[:2], *done.messages[3:]] == [*messages[:2], *messages[3:]]


def test_old_messages_give_way_next() -> None:
    """Then whole messages go, oldest first, a call with its results; a note in front says how many."""
    old = [said(Role.USER, "a" * 400), said(Role.ASSISTANT, "b" * 400), *called("a", "x" * 100)]
    latest = [said(Role.USER, "Now?"), *called("z", "y" * 400)]
    done = compact([*old, *latest], Compaction(max_tokens=size(latest) + 10, keep_rounds=1))
    note = said(Role.USER, fill(WORDS.messages_left_out, count="4"))
    assert (list(done.messages), done.left_out) == ([note, *latest], 4)


def test_pinned_messages_stay() -> None:
    """What is pinned is sent however little room there is, in its place; so is the user's latest message."""
    pinned = said(Role.USER, "The contract: " + "c" * 400, pinned=True)
    messages = [said(Role.USER, "a" * 400), pinned, said(Role.ASSISTANT, "b" * 400), said(Role.USER, "Now?")]
    done = compact(messages, Compaction(max_tokens=1))
    assert list(done.messages[1:]) == [pinned, messages[3]]


def test_pictures_count() -> None:
    """A result of pictures is long, too."""
    call = ToolCall(id="p", name="f", arguments_json="{}")
    seen = ToolResult(call_id="p", content=(Image(data="x", media_type="image/png"),))
    messages = [
        said(Role.USER, "Hi"),
        Message(role=Role.ASSISTANT, parts=(call,)),
        Message(role=Role.TOOL, parts=(seen,)),
        *called("b", "r"),
    ]
    assert compact(messages, Compaction(max_tokens=100, keep_rounds=1)).emptied == 1


@pytest.mark.parametrize("wrong", [{"max_tokens": 0}, {"max_tokens": 1, "keep_rounds": -1}])
def test_numbers_that_make_no_sense(wrong: dict[str, int]) -> None:
    """They are refused by name."""
    with pytest.raises(ConfigError, match="compaction: "):
        check_compaction(Compaction(**wrong))


def asked(length: int, pinned: bool) -> list[Message]:
    """A user's message of a length."""
    return [said(Role.USER, "u" * length, pinned=pinned)]


def answered(length: int) -> list[Message]:
    """A model's message of a length."""
    return [said(Role.ASSISTANT, "a" * length)]


def looked_up(length: int, key: int) -> list[Message]:
    """A round whose result has a length."""
    return called(f"c{key}", "r" * length)


blocks = st.lists(
    st.one_of(
        st.builds(asked, st.integers(1, 600), st.booleans()),
        st.builds(answered, st.integers(1, 600)),
        st.builds(looked_up, st.integers(0, 2000), st.integers(0, 10**9)),
    ),
    max_size=12,
)


@given(blocks, st.integers(1, 2000), st.integers(0, 3))
def test_what_is_left_is_a_legal_conversation(drawn: list[list[Message]], room: int, rounds: int) -> None:
    """Every call keeps its results and no result is without its call; order, pins and the latest question stay."""
    messages = [message for block in drawn for message in block]
    done = compact(messages, Compaction(max_tokens=room, keep_rounds=rounds))
    left = list(done.messages[1:] if done.left_out else done.messages)
    assert [call.id for each in left for call in each.calls] == [
        result.call_id for each in left for result in each.results
    ]
    assert len(left) == len(messages) - done.left_out
    places = iter(messages)
    assert all(any(_same(mine, given_one) for given_one in places) for mine in left), "in the same order"
    assert [each for each in messages if each.pinned] == [each for each in left if each.pinned]
    users = [each for each in messages if each.role is Role.USER]
    if users:
        assert users[-1] in left
    if size(messages) <= room:
        assert left == messages
    again = compact(messages, Compaction(max_tokens=room, keep_rounds=rounds))
    assert again == done


def _same(mine: Message, given_one: Message) -> bool:
    """Tell whether a message is the one given, its results perhaps emptied."""
    if not mine.results:
        return mine == given_one
    return [one.call_id for one in mine.results] == [one.call_id for one in given_one.results]
