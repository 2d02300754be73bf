"""Holds a run's answer against the results of its calls (`policy.reply.faithfulness`), or shows the results instead.

For small models: an answer that departs from the results, a reply that only makes the same calls again, and a turn that
came to nothing all end the run with what the tools gave. An answer that is a call of a tool that does not exist is
asked for once more, without tools. So is a question whose calls all failed and were about nothing that it names: asked
for the capital of France, a small model reads the file `/tmp/capital.txt`, and that this was refused is no answer.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.errors import ModelError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.engine.tooling.outcomes import ExecutedCall
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.reply.faithfulness import CallOutcome, departure
from mustcall.policy.request.json_call import named_in_call
from mustcall.policy.words.shown_examples import asks_to_be_shown

__all__ = ["PlainResult", "beside_the_point", "calls_nothing", "instead_of", "instead_of_call", "instead_of_failure"]

_TOKEN = re.compile(r"[\w.]*\w")


class PlainResult(msgspec.Struct, frozen=True):
    """The results in plain words, as a reply, and why they stand in place of the model's own."""

    reply: Reply
    note: Adaptation


def instead_of(
    reply: Reply,
    calls: Sequence[ToolCall],
    made: Sequence[ExecutedCall],
    messages: Sequence[Message],
    wording: Wording,
) -> PlainResult | None:
    """Return what is said in place of a reply, None where the reply stands. `calls` are those it would make."""
    if calls:
        known = [_key(each.call) for each in made]
        why = "the same call was made before" if all(_key(call) in known for call in calls) else None
    else:
        question, known_texts = _said(messages)
        text = "".join(part.text for part in reply.parts if isinstance(part, Text))
        outcomes = [CallOutcome(each.name, each.result, each.ok) for each in made]
        why = departure(text, outcomes, question, known_texts)
    return None if why is None else _told(reply, made, why, wording)


def instead_of_failure(error: ModelError, made: Sequence[ExecutedCall], wording: Wording) -> PlainResult:
    """Return what is said where a model's turn came to nothing after its calls."""
    reply = Reply(id="", model="", parts=(), finish=FinishReason.STOP)
    return _told(reply, made, f"the model gave no answer ({error.code})", wording)


def instead_of_call(reply: Reply, made: Sequence[ExecutedCall], wording: Wording) -> PlainResult:
    """Return what is said where the question was asked without tools, and the answer is a call all the same."""
    return _told(reply, made, "the model gave a call as its answer", wording)


def calls_nothing(reply: Reply, messages: Sequence[Message]) -> bool:
    """Tell whether an answer is nothing but a call of a tool that does not exist, and nobody asked to see one."""
    text = "".join(part.text for part in reply.parts if isinstance(part, Text))
    return named_in_call(text) is not None and not asks_to_be_shown((_said(messages)[0],))


def beside_the_point(made: Sequence[ExecutedCall], messages: Sequence[Message]) -> bool:
    """Tell whether every call failed, and the question names no value that one of them was made with.

    Of a path, the last part counts as its name.
    """
    if any(each.ok for each in made):
        return False
    asked = f" {' '.join(_TOKEN.findall(_said(messages)[0].casefold()))} "
    return not any(f" {name} " in asked for each in made for name in _named(each.call))


def _named(call: ToolCall) -> Iterator[str]:
    """Return the plain values of a call's arguments, as a question would name them."""
    waiting = [_key(call)[1]]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif value is not None and not isinstance(value, bool):
            text = str(value).casefold()
            for written in (text, text.rstrip("/").rpartition("/")[2]):
                if words := _TOKEN.findall(written):
                    yield " ".join(words)


def _told(reply: Reply, made: Sequence[ExecutedCall], why: str, wording: Wording) -> PlainResult:
    # What went wrong on the way to a result is of no interest once there is one.
    shown = [each for each in made if each.ok] or made[-1:]
    texts = dict.fromkeys(_sentence(each, wording) for each in shown)
    parts = (Text(text="\n\n".join(texts)),)
    note = Adaptation(AdaptationKind.ANSWER_REPLACED, "answer", f"by the tool's own result: {why}")
    return PlainResult(reply.evolve(parts=parts, finish=FinishReason.STOP, reported_finish=None), note)


def _sentence(call: ExecutedCall, wording: Wording) -> str:
    if not call.ok:
        return call.result
    template = wording.result_told_lines if "\n" in call.result.strip() else wording.result_told
    return fill(template, tool=call.name, result=call.result.strip())


def _said(messages: Sequence[Message]) -> tuple[str, tuple[str, ...]]:
    """Return the user's latest words, and everything that was said before them."""
    place = max((index for index, each in enumerate(messages) if each.role is Role.USER), default=-1)
    texts = [_text(message) for message in messages[: place + 1]]
    return (texts[-1], tuple(texts[:-1])) if texts else ("", ())


def _text(message: Message) -> str:
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    texts += [piece.text for result in message.results for piece in result.content if isinstance(piece, Text)]
    return "\n".join(texts)


def _key(call: ToolCall) -> tuple[str, Any]:
    try:
        return call.name, msgspec.json.decode(call.arguments_json)
    except msgspec.DecodeError:
        return call.name, call.arguments_json
