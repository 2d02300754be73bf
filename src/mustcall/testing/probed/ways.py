"""When lies are told and what they change: the functions that the table of lies is made of. Pure."""

from collections.abc import Callable

import msgspec

from mustcall.core.message import Message
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Part, Reasoning, Text, ToolResult
from mustcall.core.reply import Usage
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ToolChoice, functions_of
from mustcall.dialects.catalogue import BY_NAME
from mustcall.dialects.dialect import WrittenCall
from mustcall.testing.probed.honest import answer_turn, asked_text, cut_turn, is_reasoning, prompt_tokens
from mustcall.testing.probed.lying import ProbedRequest
from mustcall.testing.recording import Recorded
from mustcall.testing.script import Answer, Call, Fail, Raw, Say, Think, Turn

__all__ = [
    "NAMED",
    "NONE",
    "REQUIRED",
    "SEVERAL",
    "always",
    "answers_unknown_choice",
    "calls",
    "counts_one",
    "crashes_on_nonsense",
    "cuts_count",
    "cuts_prompt",
    "every",
    "fails",
    "finishes",
    "first_tool",
    "garbled",
    "hands_back",
    "has_format",
    "has_id",
    "has_strict",
    "has_tools",
    "leaks",
    "limits_rate",
    "loses_results",
    "mixes_up",
    "odd_errors",
    "odd_refusals",
    "on",
    "reasons",
    "renamed",
    "results",
    "results_in_a_row",
    "runs_on",
    "says_done",
    "schema_says",
    "streams",
    "takes_any_signature",
    "takes_as",
    "tools_over",
    "turns",
    "twice",
    "with_id",
    "with_more",
    "with_nine_letters",
    "with_usage",
    "writes",
]

_Test = Callable[[ProbedRequest], bool]
#: Tokens of the context of a server that cuts prompts.
CONTEXT = 4_096


# --- when ---------------------------------------------------------------------------------------------------------


def chooses(mode: ChoiceMode) -> _Test:
    return lambda asked: asked.request.tool_choice is not None and asked.request.tool_choice.mode is mode


def every(*tests: _Test) -> _Test:
    """Hold where all of these tests hold."""
    return lambda asked: all(test(asked) for test in tests)


def streams(asked: ProbedRequest) -> bool:
    """Hold for requests of a stream."""
    return asked.request.stream


def reasons(asked: ProbedRequest) -> bool:
    """Hold where reasoning is asked for."""
    return is_reasoning(asked.request)


def has_tools(asked: ProbedRequest) -> bool:
    """Hold where tools are on offer."""
    return bool(asked.request.tools)


def has_format(asked: ProbedRequest) -> bool:
    """Hold where an answer by schema is asked for."""
    return asked.request.output is not None


def tools_over(count: int) -> _Test:
    """Hold where more tools than this are on offer."""
    return lambda asked: len(asked.request.tools) > count


def schema_says(word: str) -> _Test:
    """Tell whether the schema of a tool has this word."""

    def test(asked: ProbedRequest) -> bool:
        schemas = [tool.parameters for tool in functions_of(asked.request.tools)]
        return any(word.encode() in msgspec.json.encode(schema) for schema in schemas)

    return test


def has_strict(asked: ProbedRequest) -> bool:
    """Hold where a strict tool is on offer."""
    return any(tool.strict for tool in functions_of(asked.request.tools))


def results(asked: ProbedRequest) -> list[ToolResult]:
    """Return the tool results of a request."""
    return [part for message in asked.request.messages for part in message.parts if isinstance(part, ToolResult)]


def results_in_a_row(asked: ProbedRequest) -> int:
    """Return the most tool results that follow one turn of the model."""
    most = row = 0
    for message in asked.request.messages:
        here = sum(isinstance(part, ToolResult) for part in message.parts)
        row = row + here if here else 0
        most = max(most, row)
    return most


def has_id(test: Callable[[str], bool]) -> _Test:
    """Hold where the id of a result passes a test."""
    return lambda asked: any(test(result.call_id) for result in results(asked))


REQUIRED, NAMED, NONE = (chooses(mode) for mode in (ChoiceMode.REQUIRED, ChoiceMode.NAMED, ChoiceMode.NONE))
SEVERAL = tools_over(1)


# --- what is done -------------------------------------------------------------------------------------------------


def takes_as(test: _Test, **changes: object) -> Callable[[ProbedRequest], Request]:
    """Take a request for another one where the test holds."""
    return lambda asked: asked.request.evolve(**changes) if test(asked) else asked.request


def fails(test: _Test, status: int, message: str) -> Callable[[ProbedRequest, Answer], Answer]:
    """Answer with an error where the test holds."""
    return lambda asked, answer: Fail(status, message) if test(asked) else answer


def turns(test: _Test, change: Callable[[ProbedRequest, Turn], Turn]) -> Callable[[ProbedRequest, Turn], Turn]:
    """Change a turn where the test holds."""
    return lambda asked, turn: change(asked, turn) if test(asked) else turn


def calls(change: Callable[[ProbedRequest, int, Call], Call]) -> Callable[[ProbedRequest, Turn], Turn]:
    """Change each call of a turn."""

    def says(asked: ProbedRequest, turn: Turn) -> Turn:
        number = 0
        parts = list(turn.parts)
        for place, part in enumerate(parts):
            if isinstance(part, Call):
                parts[place] = change(asked, number, part)
                number += 1
        return Turn(*parts, finish=turn.finish, usage=turn.usage)

    return says


def first_tool(asked: ProbedRequest) -> Request:
    """Take a named choice for one of the first tool."""
    if not NAMED(asked) or not SEVERAL(asked):
        return asked.request
    first = functions_of(asked.request.tools)[0].name
    return asked.request.evolve(tool_choice=ToolChoice(mode=ChoiceMode.NAMED, name=first))


def writes(name: str, value: object) -> Callable[[ProbedRequest, int, Call], Call]:
    """Write another value for one property."""

    def change(_asked: ProbedRequest, _number: int, call: Call) -> Call:
        if isinstance(call.arguments, str) or name not in call.arguments:
            return call
        return Call(call.name, {**call.arguments, name: value})

    return change


def leaks(dialect: str) -> Callable[[ProbedRequest, Turn], Turn]:
    """Write calls as text in a dialect, in streams."""

    def says(asked: ProbedRequest, turn: Turn) -> Turn:
        if not asked.request.stream or not turn.calls:
            return turn
        calls = [
            WrittenCall(call.name, dict(call.arguments)) for call in turn.calls if not isinstance(call.arguments, str)
        ]
        thought = [part for part in turn.parts if isinstance(part, Think)]
        return cut_turn(asked.request, Turn(*thought, Say(BY_NAME[dialect].render(calls))))

    return says


def with_usage(usage: Usage | None) -> Callable[[ProbedRequest, Turn], Turn]:
    """Report this usage."""
    return lambda _asked, turn: Turn(*turn.parts, finish=turn.finish, stop_sequence=turn.stop_sequence, usage=usage)


def cuts_prompt(asked: ProbedRequest) -> Request:
    """Keep the end of a prompt that is longer than the context, and say nothing of it."""
    if prompt_tokens(asked.request) <= CONTEXT:
        return asked.request
    last = asked.request.messages[-1]
    text = Text(text=asked_text(asked.request)[-8_000:])
    return asked.request.evolve(messages=(*asked.request.messages[:-1], Message(role=last.role, parts=(text,))))


def loses_results(asked: ProbedRequest) -> Request:
    """Take every tool result for an empty one."""
    lost = [
        msgspec.structs.replace(message, parts=tuple(emptied(part) for part in message.parts))
        for message in asked.request.messages
    ]
    return asked.request.evolve(messages=tuple(lost))


def emptied(part: Part) -> Part:
    return part.evolve(content=(Text(text="done"),)) if isinstance(part, ToolResult) else part


def runs_on(asked: ProbedRequest, turn: Turn) -> Turn:
    """Say everything, whatever the limit."""
    limit = asked.request.max_tokens
    if limit is None or turn.finish != "length":
        return turn
    return cut_turn(asked.request, answer_turn(asked.request.evolve(max_tokens=None)), limit=1_000_000)


def cuts_count(asked: ProbedRequest, turn: Turn) -> Turn:
    """Count what was left of a prompt that was cut."""
    if prompt_tokens(asked.request) <= CONTEXT:
        return turn
    return with_usage(Usage(input_tokens=CONTEXT // 2, output_tokens=9))(asked, turn)


def finishes(word: str) -> Callable[[ProbedRequest, Turn], Turn]:
    """Give the same finish reason for everything that was not cut."""
    return lambda _asked, turn: Turn(*turn.parts, finish=word, usage=turn.usage) if turn.finish is None else turn


def with_id(value: str) -> Callable[[ProbedRequest, int, Call], Call]:
    """Give every call this id."""
    return lambda _asked, _number, call: Call(call.name, call.arguments, id=value)


def with_nine_letters(asked: ProbedRequest, number: int, call: Call) -> Call:
    """Give every call an id of nine letters and digits, as Mistral's API does."""
    return Call(call.name, call.arguments, id=f"id{asked.recorded.number % 100_000:05d}{number % 100:02d}")


def with_more(_asked: ProbedRequest, _number: int, call: Call) -> Call:
    """Write a property that the schema does not have."""
    return call if isinstance(call.arguments, str) else Call(call.name, {**call.arguments, "note": "more"})


def always(_asked: ProbedRequest) -> bool:
    """Hold for every request."""
    return True


def says_done(_asked: ProbedRequest, turn: Turn) -> Turn:
    """Give a reply that was cut the finish reason of a whole one."""
    return Turn(*turn.parts, finish="tool_calls" if turn.calls else "stop", usage=turn.usage) if turn.finish else turn


def mixes_up(asked: ProbedRequest) -> Request:
    """Answer the request that came before, where several are under way."""
    before, asked.memory["last"] = asked.memory.get("last"), asked.request
    return before if asked.under_way > 1 and isinstance(before, Request) else asked.request


def limits_rate(*, told: bool) -> Callable[[ProbedRequest, Answer], Answer]:
    """Refuse every eighth request, with or without saying for how long."""

    def sends(asked: ProbedRequest, answer: Answer) -> Answer:
        if asked.recorded.number % 8 != 7:
            return answer
        return Fail(429, "Rate limit reached.", headers={"retry-after": "1"} if told else {})

    return sends


def odd_errors(_asked: ProbedRequest, answer: Answer) -> Answer:
    """Write the errors of turns in a shape of its own."""
    return Raw(answer.status, b'{"detail":"bad request"}') if isinstance(answer, Fail) else answer


def odd_refusals(_recorded: Recorded, answer: Answer) -> Answer:
    """Write other errors in a shape of its own."""
    return Raw(answer.status, b'{"detail":"bad request"}') if isinstance(answer, Fail) else answer


def crashes_on_nonsense(_recorded: Recorded, answer: Answer) -> Answer:
    """Answer a request that cannot be read with a 500."""
    return Fail(500, "Internal Server Error") if isinstance(answer, Fail) and answer.status == 400 else answer


def answers_unknown_choice(asked: ProbedRequest, answer: Answer) -> Answer:
    """Answer although the tool that is named is not on offer."""
    return Turn(Say("Fine.")) if isinstance(answer, Fail) and asked.recorded.refused_by == "knows_choice" else answer


def takes_any_signature(asked: ProbedRequest, answer: Answer) -> Answer:
    """Take reasoning whose signature is not its own."""
    rules = ("keeps_thinking", "knows_encrypted_reasoning")
    return answer_turn(asked.request) if asked.recorded.refused_by in rules else answer


def on(path: str, status: int, message: str) -> Callable[[Recorded, Answer], Answer]:
    """Answer with an error on a path."""
    return lambda recorded, answer: Fail(status, message) if path in recorded.path else answer


def counts_one(recorded: Recorded, answer: Answer) -> Answer:
    """Count one token, whatever is sent."""
    return Raw(200, b'{"input_tokens":1}') if recorded.path.endswith("/count_tokens") else answer


def hands_back(asked: ProbedRequest, *, with_reasoning: bool) -> bool:
    """Tell whether a call comes back with its result, with the reasoning before it or without."""
    if not results(asked) or not reasons(asked):
        return False
    thought = any(isinstance(part, Reasoning) for message in asked.request.messages for part in message.parts)
    return thought is with_reasoning


def garbled(_asked: ProbedRequest, _number: int, call: Call) -> Call:
    """Read UTF-8 as Latin-1."""
    if isinstance(call.arguments, str):
        return call
    return Call(call.name, latin(call.arguments))


def latin(arguments: JsonObject) -> JsonObject:
    return {
        name: value.encode().decode("latin-1") if isinstance(value, str) else value for name, value in arguments.items()
    }


def renamed(change: Callable[[str], str]) -> Callable[[ProbedRequest, int, Call], Call]:
    """Call tools by another name."""
    return lambda _asked, _number, call: Call(change(call.name), call.arguments)


def twice(_asked: ProbedRequest, _number: int, call: Call) -> Call:
    """Write the arguments twice in a row."""
    text = call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()
    return Call(call.name, text + text)
