"""Rules 142, 143 and 147 through a real gateway with the official SDKs: which tool and which call is meant.

And what a client sends back after such a turn: it is accepted as any other history is.
"""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest

from mustcall.testing import Answer, Call, Say, Turn
from rules.asked import expect_asked
from rules.driving import GRID, WAYS, WORDS, Stage, arriving, request, stranger
from support.forcing import Tool
from support.sdk import Ask, Failure, Seen, ask

Json = dict[str, Any]
Way = tuple[str, str, bool]

PATH: Json = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = (("read_file", PATH), ("write_file", PATH))
A, B = {"path": "a.txt"}, {"path": "b.txt"}
#: What models make of `read_file`.
WRITTEN = (
    "functions.read_file",
    "default_api.read_file",
    "tools.read_file",
    "tool:read_file",
    "functions/read_file",
    "mcp__fs__read_file",
    "fs:read_file",
    "read_file<|channel|>commentary",
    "functions.read_file<|constrain|>json",
    "<|tool_call|>read_file",
    "functions.read_file:0",
    " read_file",
    "read_file\n",
    '"read_file"',
    "`read_file`",
    "functions.ReadFile",
)

grid = pytest.mark.parametrize("way", GRID, ids=lambda way: f"{way[0]}-{way[1]}-{'stream' if way[2] else 'whole'}")
ways = pytest.mark.parametrize(("wire", "stream"), WAYS)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """Gateways that all turns of the module share."""
    with Stage(compares=True) as shared:
        yield shared


def ask_on(stage: Stage, way: Way, *script: Answer, **options: Any) -> tuple[Seen | Failure, list[str]]:
    """Ask once; return what the client saw and which adaptations it was told of."""
    caller, upstream, stream = way
    heard: dict[str, str] = {}
    stage.play(*script)
    given: Json = {"model": stranger(), "tools": TOOLS} | options
    seen = ask(caller, stage.url(upstream), Ask(heard=heard, **given), stream=stream)
    told = heard.get("x-mustcall-adaptations", "")
    return seen, told.split(", ") if told else []


def calls_of(seen: Seen | Failure) -> list[tuple[str, Json]]:
    """The calls a client would run."""
    assert isinstance(seen, Seen), seen
    return [(name, arguments) for _, name, arguments in seen.calls]


def unknown_thrice(way: Way, **options: Any) -> list[Json]:
    """The bodies of a turn whose calls name no tool: the question, the same again, then with a reminder (rule 46)."""
    caller, upstream, stream = way
    first, reminded = (
        expect_asked(caller, upstream, Ask(**options), *said, stream=stream) for said in ((), (WORDS.unknown_tool,))
    )
    return [first, first, reminded]


# --- rule 142 ---------------------------------------------------------------------------------------------------------


@grid
def test_names_are_read_without_what_models_add(stage: Stage, way: Way) -> None:
    """Rule 142: prefixes, control tokens, blanks and quotes are no part of a name; it costs no call, and is said."""
    for written in WRITTEN:
        seen, told = ask_on(stage, way, Turn(Call(written, A)))
        assert calls_of(seen) == [("read_file", A)], written
        assert "name_mapped:read_file" in told, written
        assert len(stage.bodies) == 1, written


@grid
def test_a_name_that_two_tools_fit_is_none(stage: Stage, way: Way) -> None:
    """Rule 142: the match must be unique, and an exact name always wins."""
    twins = (("read_file", PATH), ("ReadFile", PATH))
    asked: Json = {"model": stranger(), "tools": twins}
    seen, _ = ask_on(stage, way, *[Turn(Call("functions.Read-File", A))] * 3, **asked)
    assert isinstance(seen, Failure)
    assert stage.bodies == unknown_thrice(way, **asked)
    seen, told = ask_on(stage, way, Turn(Call("functions.ReadFile", A)), tools=twins)
    assert calls_of(seen) == [("ReadFile", A)]
    assert "name_mapped:ReadFile" in told


@grid
def test_no_prefix_makes_another_tool(stage: Stage, way: Way) -> None:
    """Rule 142: what is no offered name behind any prefix stays unknown."""
    asked: Json = {"model": stranger(), "tools": TOOLS}
    seen, _ = ask_on(stage, way, *[Turn(Call("functions.delete_file", A))] * 3, **asked)
    assert isinstance(seen, Failure)
    assert stage.bodies == unknown_thrice(way, **asked)


@grid
@pytest.mark.parametrize("form", ["<tool_call>{}</tool_call>", "```json\n{}\n```"], ids=["tags", "fence"])
def test_names_in_text_calls_are_read_alike(stage: Stage, way: Way, form: str) -> None:
    """Rules 59, 142: a call in text is of the same tool as a native one of the same name."""
    for written in ("functions.read_file", "default_api.read_file", "mcp__fs__read_file"):
        text = form.replace("{}", json.dumps({"name": written, "arguments": A}))
        seen, _ = ask_on(stage, way, Turn(Say(text)))
        assert calls_of(seen) == [("read_file", A)], written
        assert len(stage.bodies) == 1, written


# --- rule 143 ---------------------------------------------------------------------------------------------------------


@grid
@pytest.mark.parametrize("second", ["read_file", "write_file"], ids=["one tool", "two tools"])
def test_two_calls_of_one_id_are_two(stage: Stage, way: Way, second: str) -> None:
    """Rule 143: they arrive in order, with ids of their own, and the second id is new."""
    turn = Turn(Call("read_file", A, id="call_same"), Call(second, B, id="call_same"))
    seen, told = ask_on(stage, way, turn)
    assert calls_of(seen) == [("read_file", A), (second, B)]
    assert isinstance(seen, Seen)
    ids = [call_id for call_id, _, _ in seen.calls]
    assert ids[0] == "call_same"
    assert len(set(ids)) == 2
    assert "id_mapped:call_id" in told
    assert len(stage.bodies) == 1


# --- rule 147 ---------------------------------------------------------------------------------------------------------

NAMESPACES: list[Json] = [
    {
        "type": "namespace",
        "name": space,
        "description": f"The {space}.",
        "tools": [{"type": "function", "name": name, "description": "A tool.", "parameters": PATH, "strict": False}],
    }
    for space, name in (("fs", "read"), ("db", "read"), ("fs", "write"))
]
#: The same where a wire has no namespaces: they are part of the name.
FLAT = (Tool("fs__read", "path"), Tool("db__read", "path"), Tool("fs__write", "path"))


#: What a model wrote (name, namespace) for the tool that is meant, if it is clear which.
SPELLED: tuple[tuple[str, str, tuple[str, str] | None], ...] = (
    ("write", "", ("fs", "write")),
    ("fs__write", "", ("fs", "write")),
    ("fs.write", "", ("fs", "write")),
    ("fs/write", "", ("fs", "write")),
    ("functions.fs.write", "", ("fs", "write")),
    ("fs__write", "fs", ("fs", "write")),
    ("db.read", "", ("db", "read")),
    ("fs:read", "", ("fs", "read")),
    ("functions.db__read", "", ("db", "read")),
    ("write", "functions", ("fs", "write")),
    ("read", "", None),
)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("upstream", ["responses", "chat", "messages"])
def test_namespaces_come_back_as_they_were_registered(stage: Stage, upstream: str, stream: bool) -> None:
    """Rule 147: a namespace that is missing or written into the name is put right; one that may be either is not."""
    for name, namespace, meant in SPELLED:
        turns = [Turn(Call(name, A, namespace=namespace))] * (1 if meant else 3)
        stage.play(*turns)
        asked: Json = {"model": stranger(), "stream": stream}
        body = request("responses", tools=(), **asked) | {"tools": NAMESPACES}
        got = stage.ask("responses", body, upstream)
        own: Json = {"tools": NAMESPACES} if upstream == "responses" else {}
        first, reminded = (
            arriving("responses", upstream, *said, tools=FLAT, **asked) | own for said in ((), (WORDS.unknown_tool,))
        )
        assert stage.bodies == ([first] if meant else [first, first, reminded]), name
        items = [item for item in _items(got.raw, stream) if item["type"] == "function_call"] if meant else []
        made = [(item.get("namespace"), item["name"], json.loads(item["arguments"])) for item in items]
        assert made == ([(*meant, A)] if meant else []), name
        assert (got.status == 200) is (meant is not None), name


def test_a_call_in_its_namespace_is_untouched(stage: Stage) -> None:
    """Rules 112, 147: a call as the client registered it is forwarded byte for byte."""
    stage.play(Turn(Call("write", A)))
    body = request("responses", model=stranger(), tools=()) | {"tools": NAMESPACES}
    got = stage.ask("responses", body)
    (item,) = _items(got.raw, stream=False)
    assert (item["namespace"], item["name"]) == ("fs", "write")
    assert "x-mustcall-adaptations" not in got.headers


def _items(raw: bytes, stream: bool) -> list[Json]:
    if not stream:
        return json.loads(raw)["output"]
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: ")]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    return done


# --- what the client sends back ---------------------------------------------------------------------------------------

REPAIRED = {
    "lenient arguments": Turn(Call("read_file", "{'path': 'a.txt',}")),
    "coerced arguments": Turn(Call("read_file", {"path": ["a.txt"]})),
    "wrapped arguments": Turn(Call("read_file", {"arguments": A})),
    "prefixed name": Turn(Call("functions.read_file", A)),
    "name with tokens": Turn(Call("read_file<|channel|>commentary", A)),
    "shared ids": Turn(Call("read_file", A, id="call_same"), Call("write_file", B, id="call_same")),
    "react": Turn(Say('Action: read_file\nAction Input: {"path": "a.txt"}')),
    "text": Turn(Say('<tool_call>{"name": "tools.read_file", "arguments": {"path": "a.txt"}}</tool_call>')),
}
HEALTHY = {"shared ids": Turn(Call("read_file", A), Call("write_file", B))}


def _turns(body: Json) -> list[Any]:
    return body.get("messages") or body["input"]


@grid
@pytest.mark.parametrize("kind", REPAIRED)
def test_a_repaired_turn_is_accepted_as_history(stage: Stage, way: Way, kind: str) -> None:
    """Rules 101, 105: what a client sends back is taken without a word that a healthy turn would not get.

    The next request begins with the one before it, and says the calls as they were delivered.
    """
    told: list[list[str]] = []
    shapes: list[Any] = []
    for turn in (REPAIRED[kind], HEALTHY.get(kind, Turn(Call("read_file", A)))):
        model = stranger()
        seen, _ = ask_on(stage, way, turn, model=model)
        assert isinstance(seen, Seen), seen
        (first,) = stage.bodies
        after, notes = ask_on(stage, way, Turn(Say("Done.")), model=model, echo=seen)
        assert isinstance(after, Seen), after
        assert after.text == "Done."
        (second,) = stage.bodies
        begun = _turns(first)
        assert _turns(second)[: len(begun)] == begun
        assert {key: value for key, value in second.items() if key not in ("messages", "input")} == {
            key: value for key, value in first.items() if key not in ("messages", "input")
        }
        ids = {call_id: f"id{number}" for number, (call_id, _, _) in enumerate(seen.calls)}
        added = json.dumps(_turns(second)[len(begun) :])
        for old, new in ids.items():
            assert f'"{old}"' in added
            added = added.replace(f'"{old}"', f'"{new}"')
        told.append(notes)
        shapes.append(_plain(json.loads(added)))
    assert told[0] == told[1]
    assert shapes[0] == shapes[1]


def _plain(value: Any) -> Any:
    """The same without item ids and what only the upstream says, and arguments by what they say."""
    match value:
        case list():
            return [_plain(item) for item in cast("list[Any]", value)]
        case dict():
            return {
                key: json.loads(item) if key == "arguments" else _plain(item)
                for key, item in cast("Json", value).items()
                if key != "annotations" and not (key == "id" and str(item).startswith("fc_"))
            }
        case _:
            return value
