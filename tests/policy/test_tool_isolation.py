"""The bisection for a refused tool, without a turn around it."""

import math

from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, Tool, ToolChoice
from mustcall.policy.facts.profile import Profile
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.refused_tools import Quarantine, begin, calls_for, drop_refused, named_tools, tool_digest


def request(*names: str) -> Request:
    """A request that offers these tools."""
    tools = tuple(Tool(name=name, parameters={"type": "object", "properties": {}}) for name in names)
    return Request(model="m", messages=(Message(role=Role.USER, parts=(Text(text="Hi"),)),), tools=tools)


@given(st.data())
def test_one_refused_tool_is_found_within_the_bound(data: st.DataObject) -> None:
    """Rule 130: at most log2 n + 1 attempts, the last of which leaves out that tool and no other."""
    count = data.draw(st.integers(1, 200))
    bad = data.draw(st.integers(0, count - 1))
    now, made = begin(count, ()), 1
    while not (bad in now.out and not now.probing):
        following = now.accepted() if bad in now.out else now.refused(())
        assert following is not None
        now, made = following, made + 1
    assert now.out == {bad}
    assert made <= math.ceil(math.log2(count)) + 1 <= calls_for(count)


@given(st.integers(1, 200), st.sets(st.integers(0, 199)))
def test_any_number_of_refused_tools_ends_within_the_bound(count: int, bad: set[int]) -> None:
    """Rule 130: what cannot be found by bisection is given up, not looked for endlessly."""
    now: Quarantine | None = begin(count, ())
    made = 0
    here = {place for place in bad if place < count}
    while now is not None:
        made += 1
        assert made <= calls_for(count)
        if here <= now.out and not now.probing:
            break
        now = now.accepted() if here <= now.out else now.refused(())


def test_a_named_tool_is_left_out_by_itself() -> None:
    """A name is worth more than a bisection; another name adds to it."""
    first = begin(8, (3,))
    assert (first.out, first.probing) == ({3}, False)
    second = first.refused((5,))
    assert second is not None
    assert second.out == {3, 5}
    assert second.refused((5,)) is None


def test_names_and_places_are_those_that_were_sent() -> None:
    """A place counts among the tools of the attempt, and a name is a whole word."""
    asked = request("read", "read_all", "write")
    assert named_tools(asked, frozenset(), "Invalid schema for function 'read'") == (0,)
    assert named_tools(asked, frozenset(), "tools[1].function.parameters is wrong") == (1,)
    assert named_tools(asked, frozenset({0}), "tools[1].function.parameters is wrong") == (2,)
    assert named_tools(asked, frozenset(), "one of read, read_all, write") == ()
    assert named_tools(asked, frozenset(), "no") == ()


def test_known_refusals_are_dropped_unless_they_are_demanded() -> None:
    """Rules 8, 139: what is known is left out and reported; what the caller demands is tried all the same."""
    asked = request("a", "b")
    profile = Profile(refused_tools=(tool_digest(asked.tools[0]),))
    log = AdaptationLog()
    kept = drop_refused(asked, profile, Demand(), log)
    assert [tool.name for tool in kept.tools if isinstance(tool, Tool)] == ["b"]
    assert [(entry.kind, entry.subject) for entry in log.entries] == [(AdaptationKind.TOOL_DROPPED, "a")]
    demand = Demand(choice=ToolChoice(mode=ChoiceMode.NAMED, name="a"))
    assert drop_refused(asked, profile, demand, AdaptationLog()) is asked
    assert drop_refused(asked, Profile(), Demand(), AdaptationLog()) is asked
