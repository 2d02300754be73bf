"""The sentences mustcall adds to a conversation, in one place, so that each can be read, documented and replaced.

All are short and neutral, and none quotes what the model wrote: quoting a bad call teaches it (rules 46, 69, 110).
"""

import msgspec

from mustcall.core.errors import ConfigError

__all__ = ["Wording", "check_wording", "fill"]


class Wording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every sentence with its default. `{tool}` stands for the demanded tool, `{problem}` for what did not fit."""

    #: Demands, by firmness: for one tool, and for any of them (rules 20, 28).
    call_named: tuple[str, ...] = (
        "Use the tool `{tool}` for this: call it now.",
        "The tool `{tool}` has not been called yet. Call it now, before anything else.",
        "Reply with a call of the tool `{tool}` and nothing else.",
        "A call of the tool `{tool}` is required. Make exactly that call now; write no text.",
    )
    call_any: tuple[str, ...] = (
        "Use at least one tool for this: call it now.",
        "No tool has been called yet. Call at least one tool now, before anything else.",
        "Reply with a tool call and nothing else.",
        "A tool call is required. Make one now; write no text.",
    )
    text_call: str = "Make tool calls through the tool interface, not as text."
    format_correction: str = "The tool call could not be read. Write it again, exactly in the form described."
    phantom_call: str = "No tool call arrived. Make the call again, or answer in text."
    unknown_tool: str = "That tool does not exist. Use one of the tools on offer."
    bad_arguments: str = "The tool call did not fit its schema: {problem}. Make the call again."
    bad_answer: str = "The answer did not fit the requested schema: {problem}. Answer again with valid JSON only."
    truncated: str = "The tool call was too large and got cut off. Make it again with a smaller payload."
    empty: str = "The reply was empty. Please answer."
    thinking_only: str = "Please give the answer now."
    looping: str = "The same call was made several times. Use its result, or try something else."
    #: The schema rungs: the call is asked for as a JSON answer.
    call_as_json: str = (
        "Answer with one JSON object that calls one of these tools, with its name and arguments:\n{tools}"
    )
    #: The same for models that follow examples better than instructions (`worked_examples`).
    call_worked: str = (
        "You call tools. Write one JSON object with the name of a tool and its arguments, taken from the message."
    )
    call_worked_task: str = "Tools:\n{tools}\nMessage: {message}"
    result_worked: str = "I looked it up with {tool}. The result is:\n{result}"
    answer_worked: str = "Now answer my question with this result, in one sentence."
    continue_turn: str = "Continue."
    #: What is put into a history that an upstream would refuse (rules 101, 103): for a user turn without content, and
    #: as the result of a call that has none.
    empty_user: str = "(empty)"
    no_result: str = "No result was recorded for this call."
    #: What goes with the last request before the step cap (rule 109).
    step_cap: str = "No more tools can be called for this. Answer now with what you have."
    #: A structured answer asked for in words, in an agent's instructions.
    answer_as_json: str = (
        "Give the final answer as one JSON value that fits this JSON schema, with nothing before or after it:\n{schema}"
    )
    #: The same as a tool, where tools and a schema do not go together: what it is for, and what is said when the answer
    #: did not fit.
    answer_tool: str = "Takes the final answer. Call it once nothing else has to be called."
    answer_again: str = (
        "The answer did not fit the requested schema: {problem}. Give it again by calling the tool `{tool}`."
    )
    #: Two models: what the planner is told, what the one that calls is told, and how results go back to the planner.
    plan: str = (
        "You plan, and another model makes tool calls for you; you cannot call tools yourself. These tools can be "
        "called:\n{tools}\nSay in plain words which calls to make next and with which values. Once no further call is "
        "needed, write `Answer:` and then the final answer."
    )
    plan_into_calls: str = (
        "Make the tool calls that this plan asks for next, with the values it names. If it asks for none, reply with "
        "the word none.\n\nThe plan:\n{plan}"
    )
    plan_result: str = "The call of `{tool}` with {arguments} returned:\n{result}"
    #: What stands in a tool's place in an agent's history (rules 90, 110); `{problem}` is one line.
    tool_failed: str = "The tool `{tool}` failed: {problem}."
    tool_timed_out: str = "The tool `{tool}` did not finish in time; whether it took effect is not known."
    tool_refused: str = "The call of `{tool}` was refused: {problem}."
    tool_misfit: str = "The call of `{tool}` did not fit its schema and was not run: {problem}."
    tool_cancelled: str = "The call of `{tool}` was cancelled."
    #: After an interruption: a call that had begun, and one that is known to have taken effect.
    tool_unknown: str = (
        "The run was interrupted during the call of `{tool}`: whether it took effect is not known. Find out before "
        "calling it again."
    )
    tool_happened: str = "The call of `{tool}` took effect; its result was lost in an interruption."
    hops_spent: str = "The call of `{tool}` was refused: no more tools can be called for this."
    money_spent: str = "The call of `{tool}` was refused: what may be spent on this is spent."
    #: The mark behind the beginning of a result that is too long (rule 92).
    result_cut: str = "[cut: the first {shown} of {whole} characters]"
    #: What stands in place of messages and results that gave way in a long conversation (compaction).
    messages_left_out: str = "({count} earlier messages of this conversation are left out.)"
    result_left_out: str = "(This result of {count} characters is left out. Call the tool again if it is needed.)"
    #: What stands in place of an answer that departs from the results of its calls (small models): a result of one
    #: line, and of several.
    result_told: str = "According to `{tool}`: {result}"
    result_told_lines: str = "According to `{tool}`:\n{result}"


#: The places each sentence may have.
_PLACES = {
    "call_named": {"tool": ""},
    "bad_arguments": {"problem": ""},
    "bad_answer": {"problem": ""},
    "call_as_json": {"tools": ""},
    "call_worked_task": {"tools": "", "message": ""},
    "result_worked": {"tool": "", "result": ""},
    "tool_failed": {"tool": "", "problem": ""},
    "tool_timed_out": {"tool": ""},
    "tool_refused": {"tool": "", "problem": ""},
    "tool_misfit": {"tool": "", "problem": ""},
    "tool_cancelled": {"tool": ""},
    "tool_unknown": {"tool": ""},
    "tool_happened": {"tool": ""},
    "hops_spent": {"tool": ""},
    "money_spent": {"tool": ""},
    "messages_left_out": {"count": ""},
    "result_left_out": {"count": ""},
    "result_cut": {"shown": "", "whole": ""},
    "result_told": {"tool": "", "result": ""},
    "result_told_lines": {"tool": "", "result": ""},
    "answer_as_json": {"schema": ""},
    "plan": {"tools": ""},
    "plan_into_calls": {"plan": ""},
    "plan_result": {"tool": "", "arguments": "", "result": ""},
    "answer_again": {"problem": "", "tool": ""},
}


def check_wording(wording: Wording) -> None:
    """Raise `ConfigError` for a sentence that cannot be filled, naming it and the places it may have."""
    for name in Wording.__struct_fields__:
        value: str | tuple[str, ...] = getattr(wording, name)
        places = _PLACES.get(name)
        for sentence in (value,) if isinstance(value, str) else value:
            try:
                fill(sentence, **(places or {})) if places is not None else None
            except (KeyError, IndexError, ValueError):
                known = ", ".join(f"{{{place}}}" for place in places or {})
                raise ConfigError(f"wording.{name}: {sentence!r} cannot be filled; its place is {known}") from None
        if not value:
            raise ConfigError(f"wording.{name} is empty; leave it out for the default")


def fill(sentence: str, **values: str) -> str:
    """Return a sentence with its places filled; one without places is returned as it is."""
    return sentence.format(**values)
