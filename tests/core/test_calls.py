"""Rules 127, 143: fragments of streamed calls are assigned by index and id, else name change or complete object."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.streams.calls import Balance, CallTracker

#: index, id, name, arguments of one fragment
Fragment = tuple[int | None, str, str, str]


def _assemble(fragments: list[Fragment]) -> list[tuple[str, str, str]]:
    """Return (id, name, arguments) of every call, in order of appearance."""
    tracker = CallTracker()
    texts: dict[int, str] = {}
    for index, call_id, name, arguments in fragments:
        slot = tracker.assign(index, call_id, name, arguments)
        texts[slot.number] = texts.get(slot.number, "") + arguments
    return [(slot.id, slot.name, texts[slot.number]) for slot in tracker.slots]


@pytest.mark.parametrize(
    ("fragments", "calls"),
    [
        pytest.param(
            [(0, "a", "f", ""), (0, "", "", '{"x"'), (0, "", "", ":1}"), (1, "b", "g", ""), (1, "", "", "{}")],
            [("a", "f", '{"x":1}'), ("b", "g", "{}")],
            id="honest",
        ),
        pytest.param(
            [
                (0, "a", "f", ""),
                (1, "b", "g", ""),
                (0, "", "", '{"x":'),
                (1, "", "", '{"y":'),
                (0, "", "", "1}"),
                (1, "", "", "2}"),
            ],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="interleaved",
        ),
        pytest.param(
            [(0, "a", "f", '{"x":1}'), (0, "b", "f", '{"x":2}')],
            [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')],
            id="all calls on one index, told apart by id",
        ),
        pytest.param(
            [(0, "a", "f", ""), (0, "b", "g", "")],
            [("a", "f", ""), ("b", "g", "")],
            id="two calls without arguments on one index",
        ),
        pytest.param(
            [(0, "a", "f", '{"x": '), (0, "b", "g", "{}")],
            [("a", "f", '{"x": '), ("b", "g", "{}")],
            id="an unfinished call does not swallow the next one on its index",
        ),
        pytest.param(
            [(0, "", "f", '{"x":1}'), (0, "", "g", '{"y":2}')],
            [("", "f", '{"x":1}'), ("", "g", '{"y":2}')],
            id="one index, no ids: a change of name is another call",
        ),
        pytest.param(
            [(0, "a", "f", "{}"), (0, "b", "", ""), (0, "", "g", ""), (0, "b", "", "{}")],
            [("a", "f", "{}"), ("b", "g", "{}")],
            id="one index, the name after the id",
        ),
        pytest.param(
            [(None, "a", "f", '{"x"'), (None, "", "", ":1}"), (None, "b", "f", '{"x":2}')],
            [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')],
            id="no index, ids",
        ),
        pytest.param(
            [(None, "a", "f", '{"x"'), (None, "b", "g", '{"y"'), (None, "a", "", ":1}"), (None, "b", "", ":2}")],
            [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
            id="no index, ids, interleaved",
        ),
        pytest.param(
            [(None, "", "f", '{"x":1}'), (None, "", "g", "{}")],
            [("", "f", '{"x":1}'), ("", "g", "{}")],
            id="no index, no id: name change",
        ),
        pytest.param(
            [(None, "", "f", '{"x":1}'), (None, "", "f", '{"x":2}')],
            [("", "f", '{"x":1}'), ("", "f", '{"x":2}')],
            id="no index, no id: complete object, then the same name again",
        ),
        pytest.param(
            [(None, "", "f", ""), (None, "", "", '{"x":1}'), (None, "", "f", ""), (None, "", "", '{"x":2}')],
            [("", "f", '{"x":1}'), ("", "f", '{"x":2}')],
            id="no index, no id: the name again, its arguments later",
        ),
        pytest.param(
            [(None, "", "f", '{"x":1}'), (None, "", "f", "")],
            [("", "f", '{"x":1}')],
            id="a name repeated after the end is no second call",
        ),
        pytest.param(
            [(0, "", "f", '{"x"'), (0, "", "f", ":"), (0, "", "f", "1}")],
            [("", "f", '{"x":1}')],
            id="name in every fragment, with index",
        ),
        pytest.param(
            [(None, "", "f", '{"x"'), (None, "", "f", ":"), (None, "", "f", "1}")],
            [("", "f", '{"x":1}')],
            id="name in every fragment, without index",
        ),
        pytest.param(
            [(0, "a", "f", '{"x"'), (0, "b", "f", ":1"), (0, "c", "", "}")],
            [("a", "f", '{"x":1}')],
            id="id changes in mid-call: the first one stays",
        ),
        pytest.param(
            [(0, "same", "f", "{}"), (1, "same", "g", '{"y":2}'), (1, "", "", "")],
            [("same", "f", "{}"), ("same", "g", '{"y":2}')],
            id="one id for two calls: the name tells them apart",
        ),
        pytest.param(
            [(0, "same", "f", '{"x":1}'), (1, "same", "f", '{"x":2}')],
            [("same", "f", '{"x":1}'), ("same", "f", '{"x":2}')],
            id="one id for two calls of one tool: the index tells them apart",
        ),
        pytest.param(
            [
                (0, "same", "f", ""),
                (1, "same", "f", ""),
                (0, "same", "", '{"x":'),
                (1, "same", "", '{"x":'),
                (0, "", "", "1}"),
                (1, "same", "", "2}"),
            ],
            [("same", "f", '{"x":1}'), ("same", "f", '{"x":2}')],
            id="one id for two calls, interleaved",
        ),
        pytest.param(
            [(0, "same", "f", '{"x'), (1, "same", "f", '{"x'), (0, "", "", '":1}'), (1, "", "", '":2}')],
            [("same", "f", '{"x":1}'), ("same", "f", '{"x":2}')],
            id="one id for two calls, the second begun while the first is open",
        ),
        pytest.param(
            [(0, "a", "f", '{"x"'), (1, "a", "f", ":1"), (2, "a", "", "}")],
            [("a", "f", '{"x":1}')],
            id="an index that counts fragments: what only goes on is no call of its own",
        ),
        pytest.param(
            [(0, "a", "", ""), (0, "", "", '{"x"'), (0, "", "f", ":1}")],
            [("a", "f", '{"x":1}')],
            id="name arrives late",
        ),
        pytest.param(
            [(7, "", "f", "{}"), (3, "", "g", "{}")],
            [("", "f", "{}"), ("", "g", "{}")],
            id="indexes with gaps, descending",
        ),
        pytest.param(
            [(0, "a", "f", '{"t":"}{"'), (0, "b", "g", "{}")],
            [("a", "f", '{"t":"}{"'), ("b", "g", "{}")],
            id="brackets inside an unfinished string",
        ),
    ],
)
def test_fragments_find_their_call(fragments: list[Fragment], calls: list[tuple[str, str, str]]) -> None:
    """Rule 127: whatever the numbering, each fragment ends up in its call."""
    assert _assemble(fragments) == calls


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("", False),
        ("{", False),
        ("{}", True),
        ("[]", True),
        ('{"a":"}"', False),
        ('{"a":"}"}', True),
        ('{"a":"\\""}', True),
        ('{"a":"\\\\"}', True),
        ('{"a":"\\\\\\"}', False),
        ('{"a":[{"b":1}]}', True),
        ('"text"', False),
        ("}", False),
    ],
)
def test_balance_in_any_pieces(text: str, closed: bool) -> None:
    """Rule 127: the end of an object is found whatever the cuts, quotes and escapes."""
    for cut in range(len(text) + 1):
        balance = Balance()
        balance.feed(text[:cut])
        balance.feed(text[cut:])
        assert balance.closed is closed, cut
    balance = Balance()
    for character in text:
        balance.feed(character)
    assert balance.closed is closed


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_balance_of_real_json(value: object) -> None:
    """Rule 127: any JSON object is closed at its last character and not before."""
    text = json.dumps({"v": value})
    balance = Balance()
    for character in text[:-1]:
        balance.feed(character)
        assert not balance.closed
    balance.feed(text[-1])
    assert balance.closed


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(0, 2),
            st.sampled_from(["", "a", "b"]),
            st.sampled_from(["", "f", "g"]),
            st.sampled_from(["", "{", "}", '{"x":1}', '"', "\\"]),
        )
    )
)
def test_no_fragment_is_lost(fragments: list[Fragment]) -> None:
    """Rule 127: under any lie all argument text is kept, once, and no slot is without a fragment."""
    calls = _assemble(fragments)
    kept = "".join(arguments for _, _, arguments in calls)
    assert sorted(kept) == sorted("".join(fragment[3] for fragment in fragments))
    assert len(calls) <= len(fragments)
