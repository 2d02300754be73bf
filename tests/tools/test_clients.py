"""`tools/clients.py`: the pure parts of the matrix of real clients, and its scripted model on loopback."""

import dataclasses
import http.client
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest
from clientmatrix import processes
from clientmatrix.adapters import CLIENTS
from clientmatrix.cases import CALL_LIMIT, CASES, OWN_TRIES, REFUSAL, Case, Task, Turn, answer, say_words, script
from clientmatrix.model import Model
from clientmatrix.pages import draw_changes, draw_summary, draw_text, sign
from clientmatrix.reading import WIRES, Asked, Tool, Wire, choose_reader, fill, read_request
from clientmatrix.replies import FIGURE, Call, Defect, Reply
from clientmatrix.scoring import ARMS, Cell, End, find_end, is_right, plan, read_cell, write_cell
from clientmatrix.telling import cut_pieces, tell_body, tell_stream
from clientmatrix.webpage import draw_page
from hypothesis import given
from hypothesis import strategies as st

PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TASK = Task("/t/first.txt", "/t/second.txt", "/t/a\nb/first.txt")
BY_NAME = {case.name: case for case in CASES}


def turn(*tools: Tool, wire: Wire = "chat", results: tuple[str, ...] = (), attempt: int = 0) -> Turn:
    """A request with these tools, by default one that reads a path."""
    offered = tools or (Tool("read", PATH),)
    return Turn(Asked(wire, "m", True, True, offered, results), TASK, attempt)


def cell(**fields: Any) -> Cell:
    """A result."""
    plain: dict[str, Any] = {"client": "codex", "version": "1", "case": "good", "arm": "same", "wire": "responses"}
    known: dict[str, Any] = {"end": End.DONE, "right": True}
    return Cell(**(plain | known | fields))


@pytest.mark.parametrize(
    ("case", "name", "arguments"),
    [
        ("good", "read", '{"path": "/t/first.txt"}'),
        ("newline_path", "read", '{"path": "/t/a\\nb/first.txt"}'),
        ("trailing_comma", "read", '{"path": "/t/first.txt",}'),
        ("single_quotes", "read", "{'path': '/t/first.txt'}"),
        ("comments", "read", '{\n  // the file to read\n  "path": "/t/first.txt"\n}'),
        ("raw_newline", "read", '{"path": "/t/a\nb/first.txt"}'),
        ("fenced_object", "read", '```json\n{"path": "/t/first.txt"}\n```'),
        ("wrapper", "read", '{"arguments": {"path": "/t/first.txt"}}'),
        ("list_for_scalar", "read", '{"path": ["/t/first.txt"]}'),
        ("undeclared", "read", '{"path": "/t/first.txt", "why_so": "to see"}'),
        ("unclosed", "read", '{"path": "/t/first.txt"'),
        ("functions_prefix", "functions.read", '{"path": "/t/first.txt"}'),
        ("default_api_prefix", "default_api.read", '{"path": "/t/first.txt"}'),
        ("channel_suffix", "read<|channel|>commentary", '{"path": "/t/first.txt"}'),
        ("leading_blank", " read", '{"path": "/t/first.txt"}'),
        ("persistent", "read", '{"path": "/t/first'),
    ],
)
def test_faulty_call(case: str, name: str, arguments: str) -> None:
    """Each row writes the fault it is named after, at every attempt."""
    for attempt in range(3):
        reply = script(BY_NAME[case], turn(attempt=attempt))
        assert [(call.name, call.arguments) for call in reply.calls] == [(name, arguments)]
        assert reply.text == ""


@pytest.mark.parametrize("case", ["fenced_call", "react_call", "tagged_call", "in_reasoning"])
def test_text_call(case: str) -> None:
    """A call in text is only in the text or reasoning, and a mark of the row shows that it leaked."""
    reply = script(BY_NAME[case], turn())
    assert reply.calls == ()
    assert any(mark in reply.text + reply.reasoning for mark in BY_NAME[case].marks)
    assert '{"path": "/t/first.txt"}' in reply.text + reply.reasoning


def test_shared_id() -> None:
    """Two calls for two files share an id; the answer needs both words."""
    calls = script(BY_NAME["shared_id"], turn()).calls
    assert [json.loads(call.arguments)["path"] for call in calls] == [TASK.first, TASK.second]
    assert len({call.id for call in calls}) == 1
    assert answer(("word: KEY-0000000a",), 2) == REFUSAL
    assert answer(("KEY-0000000b</c>", "1: KEY-0000000a"), 2) == "Found KEY-0000000a and KEY-0000000b."


def test_namespace() -> None:
    """A namespaced tool is called without its namespace, or with it in the name; none that starts an agent."""
    tools = (Tool("exec", PATH), Tool("spawn_agent", {}, "agents"), Tool("wait_agent", {"required": ["id"]}, "agents"))
    names = [script(BY_NAME[c], turn(*tools)).calls[0] for c in ("namespace_missing", "namespace_in_name")]
    assert [(call.name, call.namespace) for call in names] == [("wait_agent", None), ("agents.wait_agent", None)]
    assert answer(("unsupported call: wait_agent",), 0) == REFUSAL
    assert answer(("no such agent",), 0) == say_words([])


def test_recovering_attempt() -> None:
    """Only the row for usage is right from the second attempt on."""
    replies = [script(BY_NAME["usage"], turn(attempt=attempt)).calls[0].arguments for attempt in (0, 1)]
    assert replies == ['{"path": "/t/first', '{"path": "/t/first.txt"}']


def test_later_steps() -> None:
    """With a result the model answers with its word, or says that there is none; without tools it says a title."""
    good = BY_NAME["good"]
    assert script(good, turn(results=("word: KEY-0123abcd",))).text == "Found KEY-0123abcd."
    assert script(good, turn(results=("error: no such file",))).text == REFUSAL
    assert script(good, Turn(Asked("chat", "m", True, True, (), ()), TASK, 0)).text == "Notes"


@pytest.mark.parametrize(
    ("tools", "name", "arguments"),
    [
        ((Tool("bash", {"properties": {"command": {}}}), Tool("read", PATH)), "read", {"path": "/x y"}),
        ((Tool("Read", {"properties": {"file_path": {}, "limit": {}}}),), "Read", {"file_path": "/x y"}),
        ((Tool("view_image", PATH), Tool("sh", {"properties": {"cmd": {}}})), "sh", {"cmd": "cat '/x y'"}),
        (
            (
                Tool(
                    "shell",
                    {"properties": {"command": {"type": "array"}, "on": {"type": "boolean"}}, "required": ["on"]},
                ),
            ),
            "shell",
            {"command": ["cat", "/x y"], "on": False},
        ),
    ],
)
def test_choice_of_tool(tools: tuple[Tool, ...], name: str, arguments: dict[str, Any]) -> None:
    """The tool that reads is found by name, then by its properties, and filled by its schema."""
    tool = choose_reader(tools)
    assert tool is not None
    assert tool.name == name
    assert fill(tool, "/x y") == arguments


def test_no_reader() -> None:
    """A request without a tool that could read is an aside."""
    assert choose_reader((Tool("write", PATH), Tool("read", PATH, "space"))) is None


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (
            "chat",
            {
                "tools": [{"type": "function", "function": {"name": "read", "parameters": PATH}}],
                "messages": [{"role": "tool", "content": [{"type": "text", "text": "it"}]}],
            },
        ),
        (
            "responses",
            {
                "tools": [{"type": "function", "name": "read", "parameters": PATH}, {"type": "web_search"}],
                "input": [{"role": "user"}, {"type": "function_call_output", "output": "it"}],
            },
        ),
        (
            "messages",
            {
                "tools": [
                    {"name": "read", "input_schema": PATH},
                    {"name": "x", "input_schema": PATH, "defer_loading": True},
                ],
                "messages": [{"content": "hi"}, {"content": [{"type": "tool_result", "content": [{"text": "it"}]}]}],
            },
        ),
    ],
)
def test_reading(wire: Wire, body: dict[str, Any]) -> None:
    """Tools and results are read on each wire."""
    assert read_request(wire, body) == Asked(wire, "", False, False, (Tool("read", PATH),), ("it",))


def events(data: bytes) -> list[dict[str, Any]]:
    """The events of a stream."""
    found = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(value) for value in found if value != "[DONE]"]


def read_chat(told: list[dict[str, Any]]) -> tuple[str, str, list[tuple[str, str]]]:
    """Text, reasoning and calls of a chat stream, by its deltas."""
    deltas = [chunk["choices"][0]["delta"] for chunk in told if chunk["choices"]]
    calls: dict[int, list[str]] = {}
    for part in (part for delta in deltas for part in delta.get("tool_calls", ())):
        call = calls.setdefault(part["index"], ["", ""])
        call[0] += part["function"].get("name", "")
        call[1] += part["function"]["arguments"]
    text, reasoning = ("".join(d.get(key) or "" for d in deltas) for key in ("content", "reasoning_content"))
    return text, reasoning, [(name, arguments) for name, arguments in calls.values()]


def read_responses(told: list[dict[str, Any]]) -> tuple[str, str, list[tuple[str, str]]]:
    """The same of a Responses stream, by its deltas and added items."""
    texts = {"response.output_text.delta": "", "response.reasoning_summary_text.delta": ""}
    calls: dict[int, list[str]] = {}
    for event in told:
        match event["type"]:
            case "response.output_item.added" if event["item"]["type"] == "function_call":
                calls[event["output_index"]] = [event["item"]["name"], ""]
            case "response.function_call_arguments.delta":
                calls[event["output_index"]][1] += event["delta"]
            case kind if kind in texts:
                texts[kind] += event["delta"]
            case _:
                pass
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    return *texts.values(), [(name, arguments) for name, arguments in calls.values()]  # pyrefly: ignore[bad-return]


def read_messages(told: list[dict[str, Any]]) -> tuple[str, str, list[tuple[str, str]]]:
    """The same of a Messages stream, by its deltas and begun blocks."""
    parts: dict[str, str] = {"text": "", "thinking": ""}
    calls: dict[int, list[str]] = {}
    for event in told:
        begun, delta = event.get("content_block", {}), event.get("delta", {})
        if begun.get("type") == "tool_use":
            calls[event["index"]] = [begun["name"], ""]
        for name in parts:
            parts[name] += delta.get(name, "")
        if "partial_json" in delta:
            calls[event["index"]][1] += delta["partial_json"]
    return parts["text"], parts["thinking"], [(name, arguments) for name, arguments in calls.values()]


READERS: dict[Wire, Callable[[list[dict[str, Any]]], tuple[str, str, list[tuple[str, str]]]]] = {
    "chat": read_chat,
    "responses": read_responses,
    "messages": read_messages,
}
TEXTS = st.text(max_size=40)
CALLS = st.lists(st.builds(Call, st.just("call_1"), st.text(min_size=1, max_size=8), TEXTS), max_size=3)


@pytest.mark.parametrize("wire", WIRES)
@given(text=TEXTS, reasoning=TEXTS, calls=CALLS)
def test_stream_tells_the_reply(wire: Wire, text: str, reasoning: str, calls: list[Call]) -> None:
    """What a stream says is the reply, whatever is in it, faults included."""
    reply = Reply(text, reasoning, tuple(calls))
    asked = Asked(wire, "m", True, True, (), ())
    told = events(b"".join(data for _, data in tell_stream(asked, reply, 1)))
    assert READERS[wire](told) == (text, reasoning, [(call.name, call.arguments) for call in calls])


@given(text=st.text(max_size=60), seconds=st.integers(0, 30))
def test_pieces(text: str, seconds: int) -> None:
    """Pieces add up to the text, are never empty, and never take longer than said."""
    pieces = cut_pieces(text, seconds)
    assert "".join(piece for _, piece in pieces) == text
    assert all(piece for _, piece in pieces)
    assert sum(pause for pause, _ in pieces) <= seconds + 1e-6


@pytest.mark.parametrize(
    ("defect", "wire", "shown"),
    [
        (Defect.NO_ROLE, "chat", '"role"'),
        (Defect.NO_TEXT_DELTAS, "responses", "output_text.delta"),
        (Defect.NO_TEXT_DELTAS, "messages", "text_delta"),
        (Defect.MINIMAL_RESPONSE, "responses", '"parallel_tool_calls"'),
        (Defect.NO_CREATED, "chat", '"created"'),
        (Defect.NO_CREATED, "responses", '"created_at"'),
        (Defect.WRONG_SEQUENCE, "responses", '"sequence_number": 1,'),
    ],
)
def test_defect(defect: Defect, wire: Wire, shown: str) -> None:
    """A defect takes out of the stream what a whole stream has."""
    asked = Asked(wire, "m", True, True, (), ())

    def told(defects: frozenset[Defect]) -> str:
        reply = Reply("Found it.", defects=defects)
        stream = b"".join(data for _, data in tell_stream(asked, reply, 1)).decode()
        # The role of a Responses item is not a delta.
        return stream if wire == "chat" else stream.replace('"role": "assistant"', "")

    assert shown in told(frozenset())
    assert shown not in told(frozenset({defect}))
    assert {row.defects for row in CASES if row.name == defect.value} == {frozenset({defect})}


@pytest.mark.parametrize("wire", WIRES)
def test_body(wire: Wire) -> None:
    """A body without streaming has the text and the call."""
    asked = Asked(wire, "m", False, False, (), ())
    told = json.dumps(tell_body(asked, Reply("Some text", calls=(Call("c", "read", '{"path": 1}'),)), 1))
    assert "Some text" in told
    assert re.search(r'"read"', told)


def test_plan() -> None:
    """A cell is planned where the case can be told on the upstream's wire, for the clients the case is for."""
    cells = plan(CLIENTS, CASES, ARMS, WIRES)
    assert all(cell.wire in cell.case.wires for cell in cells)
    assert {cell.client.name for cell in cells if cell.case.name == "namespace_missing"} == {"codex"}
    assert len({cell.key for cell in cells}) == len(cells)
    for client in CLIENTS:
        assert client.other != client.wire
        mine = {(c.case.name, c.arm) for c in cells if c.client is client}
        assert {(case, arm) for case in ("good", "persistent", "usage", "held") for arm in ARMS} <= mine
    assert {c.wire for c in plan(CLIENTS, CASES, ARMS, ["chat"])} == {"chat"}


def test_pins() -> None:
    """Every package of every client has one exact version."""
    for client in CLIENTS:
        for package in client.packages:
            assert re.fullmatch(r"(@?[\w./-]+)(@|==)\d+\.\d+\.\d+", package), package
        assert client.version in client.packages[0]


@pytest.mark.parametrize(
    ("case", "output", "status", "end"),
    [
        ("good", "x Found KEY-1. y", 0, End.DONE),
        ("good", "x Found KEY-1. y", End.HUNG, End.HUNG),
        ("good", "KEY-1", 0, End.STOPPED),
        ("good", "KEY-1", 1, End.ERROR),
        ("good", "", End.STORM, End.STORM),
        ("tagged_call", "<tool_call> Found KEY-1.", 0, End.LEAKED),
        ("tagged_call", "Found KEY-1.", 0, End.DONE),
        ("good", "<tool_call> Found KEY-1.", 0, End.DONE),
    ],
)
def test_end(case: str, output: str, status: int | End, end: End) -> None:
    """The end is the answer's, the markup's or the exit status's."""
    assert find_end(BY_NAME[case], output, "Found KEY-1.", status) is end


@pytest.mark.parametrize(
    ("asked", "calls", "right"),
    [
        (None, 30, True),
        (25, 25, True),
        (1, 1 + OWN_TRIES, True),
        (25, 26 + OWN_TRIES, False),
        (3, 9, False),
        (0, 0, False),
    ],
)
def test_tries_are_not_multiplied(asked: int | None, calls: int, right: bool) -> None:
    """Upstream calls are held against what the client sent, however it ended."""
    for end in (End.ERROR, End.STOPPED, End.HUNG):
        assert is_right(BY_NAME["unavailable"], end, calls, None, asked) is right
    assert not is_right(BY_NAME["unavailable"], End.BROKEN, 0, None, asked)
    assert script(BY_NAME["unavailable"], turn()).status == 503


@pytest.mark.parametrize(
    ("case", "end", "calls", "figure", "right", "shown"),
    [
        ("good", End.DONE, 2, None, True, "+"),
        ("good", End.STOPPED, 2, None, False, "s"),
        ("good", End.STORM, 13, None, False, "r"),
        ("tagged_call", End.LEAKED, 2, None, False, "m"),
        ("usage", End.DONE, 3, FIGURE, True, "+"),
        ("usage", End.DONE, 3, FIGURE + 1000, False, "u"),
        ("usage", End.DONE, 3, None, False, "u"),
        ("usage", End.ERROR, 3, FIGURE, False, "e"),
        ("persistent", End.ERROR, CALL_LIMIT, None, True, "+"),
        ("persistent", End.STOPPED, CALL_LIMIT, None, True, "+"),
        ("persistent", End.ERROR, CALL_LIMIT + 1, None, False, "c"),
        ("persistent", End.HUNG, 1, None, False, "h"),
    ],
)
def test_score(  # noqa: PLR0917  one row of the table
    case: str, end: End, calls: int, figure: int | None, right: bool, shown: str
) -> None:
    """A persistent fault is right up to the limit of calls, usage at the one figure, the rest with the answer."""
    row: Case = BY_NAME[case]
    assert is_right(row, end, calls, figure) is right
    assert sign(row, cell(case=case, end=end, right=right, calls=calls)) == shown
    assert sign(row, None) == "."


def test_results_are_read_back() -> None:
    """A result survives being written down."""
    result = cell(end=End.ERROR, right=False, calls=90, outside=["a:443"], tail="<b>")
    assert read_cell(json.loads(json.dumps(write_cell(result)))) == result


def test_table() -> None:
    """The table has a sign for each arm, the later result of a cell, and the totals."""
    results = [
        cell(arm="direct"),
        cell(arm="same", end=End.ERROR, right=False),
        cell(arm="same"),
        cell(arm="cross", end=End.STORM, right=False),
        cell(arm="same", case="persistent", end=End.ERROR, right=False, calls=60),
        cell(client="pi", arm="same", end=End.STOPPED, right=False, outside=["elsewhere:443"]),
    ]
    lines = [[value.strip() for value in line.strip("|").split("|")] for line in draw_text(results).splitlines()]
    assert lines[0] == ["case", "codex", "pi"]
    assert lines[2:] == [
        ["good", "++r", ".s."],
        ["persistent", ".c.", "..."],
        ["right", "1/1 1/2 0/1", "0/0 0/1 0/0"],
    ]
    summary = draw_summary(results)
    assert "same: 1 of 3 right" in summary
    assert "worse than without the gateway: 1\n  codex good cross" in summary
    assert "codex: -, 60, -" in summary
    assert "pi: elsewhere:443" in summary


def test_changes() -> None:
    """Two runs are compared over the cells that both have."""
    before = [cell(), cell(arm="cross", right=False, end=End.ERROR), cell(arm="cross", case="held")]
    after = [cell(right=False, end=End.STOPPED), cell(arm="cross")]
    assert draw_changes(before, after).splitlines() == [
        "direct: 0 of 0 right before, 0 now",
        "same: 1 of 1 right before, 0 now",
        "cross: 0 of 1 right before, 1 now",
        "right before and not now: 1",
        "  codex good same",
    ]


def test_page() -> None:
    """The page shows what went wrong through the gateway, and nothing a client printed is markup in it."""
    page = draw_page([cell(end=End.ERROR, right=False, tail="<script>alert(1)</script>")], "A & B")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<title>A &amp; B</title>" in page
    assert "codex good same: error" in page


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_adapters_have_settings(client: Any) -> None:
    """Every row of the table says what the client needs, and reads no token count out of nothing."""
    assert client.needs
    assert client.figure("no events here\n[1, 2]\n") is None


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("codex", '{"type":"turn.completed","usage":{"input_tokens":2100}}'),
        ("claude-code", 'noise\n{"type":"result","usage":{"input_tokens":2100}}'),
        ("qwen-code", '[{"type":"system"},{"type":"result","usage":{"input_tokens":2100}}]'),
        (
            "opencode",
            '{"type":"step_finish","part":{"tokens":{"input":1000}}}\n{"type":"step_finish","part":{"tokens":{"input":1100}}}',
        ),
        (
            "pi",
            '{"type":"turn_end","message":{"usage":{"input":1000}}}\n{"type":"turn_end","message":{"usage":{"input":1100}}}',
        ),
        ("ai6-messages", 'Found it.\n{"input_tokens":2100}'),
    ],
)
def test_figures(name: str, output: str) -> None:
    """A client's own token count is read from what it prints."""
    assert next(client for client in CLIENTS if client.name == name).figure(output) == FIGURE


def test_model_on_loopback() -> None:
    """The scripted model counts first steps, streams on request, and notes who would leave loopback."""
    body: dict[str, Any] = {
        "tools": [{"type": "function", "function": {"name": "read", "parameters": PATH}}],
        "messages": [],
    }
    with Model(BY_NAME["usage"], TASK) as model:
        asked = http.client.HTTPConnection("127.0.0.1", model.port, timeout=180)
        answers: list[bytes] = []
        for stream in (False, True):
            asked.request("POST", "/v1/chat/completions", json.dumps(body | {"stream": stream}))
            answers.append(asked.getresponse().read())
        asked.request("GET", "http://elsewhere/")
        assert asked.getresponse().status == 403
        asked.close()
    assert json.loads(answers[0])["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].endswith("first")
    assert read_chat(events(answers[1]))[2] == [("read", '{"path": "/t/first.txt"}')]
    assert dataclasses.astuple(model.seen)[:3] == (2, 2, 0)
    assert model.seen.outside == ["http://elsewhere/"]


def test_a_stopped_run_ends_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the run is stopped, waiting ends at once; a process is ended with all that it started."""
    monkeypatch.setattr(processes, "STOPPING", threading.Event())
    process = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout:
        child = int(process.stdout.readline())
        assert not processes.wait_until(lambda: process.poll() is not None, 0)
        assert os.getpgid(child) == process.pid
        processes.STOPPING.set()
        with pytest.raises(processes.Stopped):
            processes.wait_until(lambda: process.poll() is not None, 60)
        processes.end_group(process)
        assert process.stdout.read() == b""  # nobody holds the pipe any more: the child is gone, too
    assert process.returncode == -signal.SIGTERM
