"""What a request can be made smaller by: units of every wire, and texts that are masked."""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.replay.parts import masked, phases_for, size_of

Json = dict[str, Any]

texts = st.text(alphabet="ab c\n,.é1", max_size=120)


def _plain(description: str) -> Json:
    return {"type": "string", "description": description}


def _holding(properties: dict[str, Json], required: list[str]) -> Json:
    return {"type": "object", "properties": properties, "required": required}


def _nested(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    required = st.lists(st.sampled_from("pqr"), unique=True, max_size=2)
    return st.builds(_holding, st.dictionaries(st.sampled_from("pqr"), inner, max_size=3), required)


schemas: st.SearchStrategy[Json] = st.recursive(st.builds(_plain, texts), _nested, max_leaves=6)


def tool(wire: Wire, number: int, schema: Json, about: str) -> Json:
    """A tool as a wire writes it."""
    match wire:
        case Wire.CHAT:
            return {"type": "function", "function": {"name": f"t{number}", "description": about, "parameters": schema}}
        case Wire.RESPONSES:
            return {"type": "function", "name": f"t{number}", "description": about, "parameters": schema}
        case Wire.MESSAGES:
            return {"name": f"t{number}", "description": about, "input_schema": schema}


def exchange(wire: Wire, number: int, said: str) -> list[Json]:
    """A call and its result as a wire writes them."""
    match wire:
        case Wire.CHAT:
            call = {"id": f"c{number}", "type": "function", "function": {"name": "t", "arguments": '{"k": "Oslo 1"}'}}
            return [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": said},
            ]
        case Wire.RESPONSES:
            return [
                {"type": "function_call", "call_id": f"c{number}", "name": "t", "arguments": '{"k": "Oslo 1"}'},
                {"type": "function_call_output", "call_id": f"c{number}", "output": said},
            ]
        case Wire.MESSAGES:
            use = {"type": "tool_use", "id": f"c{number}", "name": "t", "input": {"k": "Oslo 1"}}
            result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": said}
            return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


@st.composite
def bodies(draw: st.DrawFn) -> tuple[Wire, Json]:
    """A wire and a request on it."""
    wire = draw(st.sampled_from(Wire))
    talk: list[Json] = []
    for number in range(draw(st.integers(1, 4))):
        said = draw(texts)
        talk += exchange(wire, number, said) if draw(st.booleans()) else [{"role": "user", "content": said}]
    tools = [tool(wire, number, draw(schemas), draw(texts)) for number in range(draw(st.integers(0, 3)))]
    body: Json = {"model": "m", "input" if wire is Wire.RESPONSES else "messages": talk, "tools": tools}
    more = draw(st.dictionaries(st.sampled_from(["temperature", "top_p", "user"]), st.integers(0, 1)))
    return wire, {**body, **({"max_tokens": 9} if wire is Wire.MESSAGES else {}), **more}


@given(bodies(), st.data())
def test_any_part_can_be_kept_and_all_of_them_are_the_request(made: tuple[Wire, Json], data: st.DataObject) -> None:
    """Keeping every unit changes nothing; keeping fewer never makes a request larger, and counts as fewer units."""
    wire, body = made
    for phase in phases_for(wire):
        count = phase.count(body)
        if not count:
            continue
        assert phase.keep(body, range(count)) == body
        kept = sorted(data.draw(st.sets(st.integers(0, count - 1), max_size=count)))
        smaller = phase.keep(body, kept)
        if smaller is None:
            continue
        assert size_of(smaller, wire).bytes <= size_of(body, wire).bytes
        assert phase.count(smaller) <= count


@given(bodies(), st.data())
def test_a_call_and_its_results_stay_together(made: tuple[Wire, Json], data: st.DataObject) -> None:
    """No candidate has a result without its call, or a call without its result."""
    wire, body = made
    phase = next(one for one in phases_for(wire) if one.name == "messages")
    kept = data.draw(st.sets(st.integers(0, phase.count(body) - 1), min_size=1))
    smaller = phase.keep(body, sorted(kept))
    assert smaller is not None
    ids = [name for message in smaller["input" if wire is Wire.RESPONSES else "messages"] for name in called(message)]
    assert all(ids.count(name) == 2 for name in ids)


def called(value: Any) -> Iterator[str]:
    """Every call id in a message."""
    if isinstance(value, dict):
        for name, held in cast("Json", value).items():
            if name in ("tool_call_id", "tool_use_id", "call_id") or (name == "id" and isinstance(held, str)):
                yield held
            else:
                yield from called(held)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from called(item)


@given(bodies())
def test_masked_requests_keep_lengths_names_and_structure(made: tuple[Wire, Json]) -> None:
    """Rule 136: every text is as long as it was; nothing but texts changes; masking again changes nothing."""
    wire, body = made
    hidden = masked(body)
    assert masked(hidden) == hidden
    assert size_of(hidden, wire).tools == size_of(body, wire).tools
    assert skeleton(hidden) == skeleton(body)
    assert "Oslo" not in json.dumps(hidden)


def test_arguments_stay_json_of_the_same_length() -> None:
    """Field names, blanks and escapes stay where they are; numbers keep their digits' count."""
    written = '{ "city" : "Os\\nlo \\u00e9", "card": 4111, "on": true, "at": [1.5, null] }'
    body: Json = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": written}}]}]}
    hidden = masked(body)["messages"][0]["tool_calls"][0]["function"]["arguments"]
    assert hidden == '{ "city" : "xx\\nxx \\u00e9", "card": 1111, "on": true, "at": [1.1, null] }'
    use: Json = {"messages": [{"content": [{"type": "tool_use", "input": {"card": 4111, "who": ["Ann", 2.5, True]}}]}]}
    assert masked(use)["messages"][0]["content"][0]["input"] == {"card": 1111, "who": ["xxx", 1.1, True]}
    broken: Json = {"messages": [{"tool_calls": [{"function": {"arguments": '{"city": Oslo'}}]}]}
    assert masked(broken)["messages"][0]["tool_calls"][0]["function"]["arguments"] == '{"xxxx": xxxx'


def skeleton(value: Any) -> Any:
    """A document with the lengths of its texts in their place; JSON text is a document."""
    if isinstance(value, dict):
        return {name: skeleton(held) for name, held in cast("Json", value).items()}
    if isinstance(value, list):
        return [skeleton(item) for item in cast("list[Any]", value)]
    if isinstance(value, str) and value.startswith("{"):
        return skeleton(json.loads(value))
    return len(value) if isinstance(value, str) else value


def test_a_named_choice_keeps_its_tool() -> None:
    """A choice of a tool that is not on offer is refused for another reason."""
    body: Json = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [tool(Wire.CHAT, 0, {}, ""), tool(Wire.CHAT, 1, {}, "")],
        "tool_choice": {"type": "function", "function": {"name": "t1"}},
    }
    phase = phases_for(Wire.CHAT)[0]
    assert phase.keep(body, [0]) is None
    kept = phase.keep(body, [1])
    assert kept is not None
    assert kept["tools"] == [body["tools"][1]]
    bare = phase.keep(body, [])
    assert bare is not None
    assert set(bare) == {"model", "messages"}


@pytest.mark.parametrize("wire", list(Wire))
def test_texts_are_cut_into_pieces_that_make_them_up(wire: Wire) -> None:
    """A long word without blanks has pieces, too."""
    phase = next(one for one in phases_for(wire) if one.name == "texts")
    field = "input" if wire is Wire.RESPONSES else "messages"
    body = {"model": "m", field: [{"role": "user", "content": "x" * 100 + " " + "word " * 30}]}
    count = phase.count(body)
    assert count >= 8
    kept = phase.keep(body, [0])
    assert kept is not None
    assert kept[field][0]["content"] == "x" * 24
