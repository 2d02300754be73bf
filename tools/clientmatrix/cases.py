"""The table of misbehaviours: what the model does wrong in the first step of the task, one row each.

The fault is the same at every attempt of that step, so a repeated request does not hide a missing repair; only the
rows that say so recover. Every row names the upstream wires it can be told on.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from clientmatrix.reading import WIRES, Asked, Tool, Wire, choose_reader, fill, main_property
from clientmatrix.replies import SECOND_USAGE, Call, Defect, Reply

HELD_SECONDS = 20
CALL_LIMIT = 5
OWN_TRIES = 2
REFUSAL = "I could not read the file."


@dataclass(frozen=True)
class Task:
    """The files of one cell; `odd` has a line break in its path."""

    first: str
    second: str
    odd: str


@dataclass(frozen=True)
class Turn:
    """What a row decides by: the request, the task, and how often the first step was asked before."""

    asked: Asked
    task: Task
    attempt: int

    def call(self, path: str | None = None) -> tuple[Call, dict[str, Any]]:
        """The right call, and its arguments as an object."""
        tool = choose_reader(self.asked.tools)
        assert tool is not None
        arguments = fill(tool, path or self.task.first)
        return Call("call_a1", tool.name, json.dumps(arguments)), arguments

    def namespaced(self) -> Tool | None:
        """The tool of a namespace that needs the least; none that starts another agent, which would ask as well."""
        tools = [tool for tool in self.asked.tools if tool.namespace and "spawn" not in tool.name]
        return min(tools, key=lambda tool: len(tool.schema.get("required") or []), default=None)


Goal = Literal["answer", "bounded", "figure", "accepted", "single"]


@dataclass(frozen=True)
class Case:
    """One misbehaviour, and what must come of it through the gateway.

    `answer`: the client gives the word. `bounded`: at most `CALL_LIMIT` upstream calls, whatever the end. `figure`: the
    answer, and the client's own token count is that of the delivered attempts. `accepted`: the client carried out the
    call, whatever it gave back. `single`: the gateway makes one upstream call for each request of a client that tries
    again by itself, and at most `OWN_TRIES` more in all for one that does not say so; whatever the end.
    """

    name: str
    group: str
    says: str
    reply: Callable[[Turn], Reply]
    goal: Goal = "answer"
    wires: tuple[Wire, ...] = WIRES
    clients: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    words: int = 1
    defects: frozenset[Defect] = frozenset()
    limit: int = 60


def _good(turn: Turn) -> Reply:
    return Reply(calls=(turn.call()[0],))


def _arguments(write: Callable[[dict[str, Any]], str]) -> Callable[[Turn], Reply]:
    def reply(turn: Turn) -> Reply:
        call, arguments = turn.call()
        return Reply(calls=(replace(call, arguments=write(arguments)),))

    return reply


def _quote_singly(arguments: dict[str, Any]) -> str:
    # repr uses single quotes for texts that hold none; the paths and commands of the task hold none.
    return repr(arguments)


def _comment(arguments: dict[str, Any]) -> str:
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in arguments.items()]
    return "{\n  // the file to read\n" + ",\n".join(lines) + "\n}"


def _list(arguments: dict[str, Any]) -> str:
    name = main_property(arguments)
    return json.dumps(arguments | {name: [arguments[name]]})


def _newline(write: Callable[[str], str]) -> Callable[[Turn], Reply]:
    def reply(turn: Turn) -> Reply:
        call, _ = turn.call(turn.task.odd)
        return Reply(calls=(replace(call, arguments=write(call.arguments)),))

    return reply


def _cut(arguments: dict[str, Any]) -> str:
    name = main_property(arguments)
    ordered = {key: value for key, value in arguments.items() if key != name} | {name: arguments[name]}
    return json.dumps(ordered)[:-6]


def _named(write: Callable[[str], str]) -> Callable[[Turn], Reply]:
    def reply(turn: Turn) -> Reply:
        call, _ = turn.call()
        return Reply(calls=(replace(call, name=write(call.name)),))

    return reply


def _written(turn: Turn) -> str:
    call, arguments = turn.call()
    return json.dumps({"name": call.name, "arguments": arguments})


def _fenced(turn: Turn) -> Reply:
    return Reply(text=f"```json\n{_written(turn)}\n```")


def _react(turn: Turn) -> Reply:
    call, _ = turn.call()
    return Reply(text=f"Thought: I have to read the file.\nAction: {call.name}\nAction Input: {call.arguments}")


def _tagged(turn: Turn) -> Reply:
    return Reply(text=f"<tool_call>\n{_written(turn)}\n</tool_call>")


def _reasoned(turn: Turn) -> Reply:
    return Reply(reasoning=f"I have to read the file.\n<tool_call>\n{_written(turn)}\n</tool_call>")


def _shared(turn: Turn) -> Reply:
    return Reply(calls=(turn.call()[0], turn.call(turn.task.second)[0]))


def _in_namespace(write: Callable[[Tool], Call]) -> Callable[[Turn], Reply]:
    def reply(turn: Turn) -> Reply:
        tool = turn.namespaced()
        return _good(turn) if tool is None else Reply(calls=(write(tool),))

    return reply


def _bare(tool: Tool) -> Call:
    return Call("call_a1", tool.name, json.dumps(fill(tool, "")))


def _recovering(turn: Turn) -> Reply:
    return _arguments(_cut)(turn) if turn.attempt == 0 else _good(turn)


def _held(turn: Turn) -> Reply:
    return replace(_good(turn), seconds=HELD_SECONDS)


def _sloppy(name: str, says: str, defect: Defect, *wires: Wire) -> Case:
    return Case(name, "streams", says, _good, wires=wires, defects=frozenset({defect}))


CASES: tuple[Case, ...] = (
    Case("good", "control", "nothing is wrong", _good),
    Case("newline_path", "control", "a line break in a string, well written", _newline(lambda text: text)),
    Case("trailing_comma", "arguments", '{"path": "x",}', _arguments(lambda a: json.dumps(a)[:-1] + ",}")),
    Case("single_quotes", "arguments", "{'path': 'x'}", _arguments(_quote_singly)),
    Case("comments", "arguments", "a // line in the object", _arguments(_comment)),
    Case("raw_newline", "arguments", "a raw line break in a string", _newline(lambda text: text.replace("\\n", "\n"))),
    Case(
        "fenced_object",
        "arguments",
        "a ```json fence around it",
        _arguments(lambda a: f"```json\n{json.dumps(a)}\n```"),
    ),
    Case("wrapper", "arguments", '{"arguments": {…}}', _arguments(lambda a: json.dumps({"arguments": a}))),
    Case("list_for_scalar", "arguments", '{"path": ["x"]}', _arguments(_list)),
    Case(
        "undeclared",
        "arguments",
        "a property that is not in the schema",
        _arguments(lambda a: json.dumps(a | {"why_so": "to see"})),
    ),
    Case("unclosed", "arguments", "the last bracket is missing", _arguments(lambda a: json.dumps(a)[:-1])),
    Case("functions_prefix", "names", "functions.NAME", _named(lambda name: f"functions.{name}")),
    Case("default_api_prefix", "names", "default_api.NAME", _named(lambda name: f"default_api.{name}")),
    Case("channel_suffix", "names", "NAME<|channel|>commentary", _named(lambda name: f"{name}<|channel|>commentary")),
    Case("leading_blank", "names", "a blank before the name", _named(lambda name: f" {name}")),
    Case("fenced_call", "text", "the call as fenced JSON in the text", _fenced, marks=("```json",)),
    Case("react_call", "text", "the call as Action and Action Input", _react, marks=("Action Input:",)),
    Case("tagged_call", "text", "the call as <tool_call> in the text", _tagged, marks=("<tool_call>",)),
    Case("in_reasoning", "text", "the call only in the reasoning", _reasoned, marks=("<tool_call>",)),
    Case("shared_id", "identity", "two parallel calls with one id", _shared, words=2),
    Case(
        "namespace_missing",
        "identity",
        "a call of a namespace's tool, without the namespace",
        _in_namespace(_bare),
        goal="accepted",
        words=0,
        wires=("responses",),
        clients=("codex",),
    ),
    Case(
        "namespace_in_name",
        "identity",
        "the namespace spelt into the name",
        _in_namespace(lambda tool: replace(_bare(tool), name=f"{tool.namespace}.{tool.name}")),
        goal="accepted",
        words=0,
        wires=("responses",),
        clients=("codex",),
    ),
    _sloppy("no_role", "no delta says the role", Defect.NO_ROLE, "chat"),
    _sloppy("no_text_deltas", "no deltas, only the whole item", Defect.NO_TEXT_DELTAS, "responses", "messages"),
    _sloppy("minimal_response", "the response object has three fields", Defect.MINIMAL_RESPONSE, "responses"),
    _sloppy("no_created", "no time of creation", Defect.NO_CREATED, "chat", "responses"),
    _sloppy("wrong_sequence", "every sequence number is 0", Defect.WRONG_SEQUENCE, "responses"),
    Case(
        "persistent", "limits", "every attempt cuts a string in the middle", _arguments(_cut), goal="bounded", limit=240
    ),
    Case(
        "unavailable",
        "limits",
        "HTTP 503 to every request of the first step",
        lambda _: Reply(status=503),
        goal="single",
        limit=40,
    ),
    Case("usage", "limits", "the first attempt cuts a string in the middle", _recovering, goal="figure"),
    Case("held", "limits", f"the arguments take {HELD_SECONDS} s", _held, limit=90),
)


def script(case: Case, turn: Turn) -> Reply:
    """What the model says to this request: the case in the first step, the word or a refusal in the second."""
    if choose_reader(turn.asked.tools) is None:
        return Reply(text="Notes")
    if not turn.asked.results:
        reply = case.reply(turn)
    else:
        reply = Reply(text=answer(turn.asked.results, case.words), usage=SECOND_USAGE)
    return replace(reply, defects=case.defects)


def answer(results: tuple[str, ...], wanted: int) -> str:
    """The sentence that only a model with the files' words can give; with no word wanted, after an accepted call."""
    words = sorted({word for result in results for word in re.findall("KEY-[0-9a-f]{8}", result)})
    refused = any("unsupported call" in result for result in results)
    return REFUSAL if refused or len(words) < wanted else say_words(words)


def say_words(words: list[str]) -> str:
    """The sentence that ends the task."""
    return f"Found {' and '.join(sorted(words)) or 'it'}."
