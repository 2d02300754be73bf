"""Cells that send a conversation back: tool results, reasoning state, stored responses."""

from collections.abc import Callable, Generator
from typing import cast

import msgspec

from mustcall.core.message import Message, Role
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.parts import Image, OpaqueState, Part, Reasoning, Text, ToolCall, ToolResult
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode
from mustcall.probe.catalogue.asking import ADD_NOTE, GET_WEATHER, REASONING_LIMIT, ask, assistant, city, user, word
from mustcall.probe.checks import fault, held, missed, said, single, thoughts, unmeasured
from mustcall.probe.values import Cell, CellFinding, CellGroup, CellTries, Outcome, Owner, Script, Seen, Send

__all__ = ["CELLS"]

_Steps = Generator[tuple[Send, ...], tuple[Seen, ...], CellFinding]


# --- tool results -------------------------------------------------------------------------------------------------

#: A red square of 8 by 8 pixels.
_RED = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"


def _call(number: int, name: str = "get_weather", arguments: JsonObject | None = None, last: str = "1") -> ToolCall:
    """Return a call whose id every server takes: nine letters and digits, the narrowest rule that is known."""
    made = {"city": city(number)} if arguments is None else arguments
    return ToolCall(id=f"probe{number:03d}{last}", name=name, arguments_json=msgspec.json.encode(made).decode())


def _result(call: ToolCall, *content: Text | Image, is_error: bool = False) -> Message:
    return Message(role=Role.TOOL, parts=(ToolResult(call_id=call.id, content=content, is_error=is_error),))


def _degrees(number: int) -> str:
    return str(31 + number % 60)


def _round_trip(number: int, key: str = "") -> Request:
    """Return a request with a call and its result, under this id if there is one."""
    call = _call(number)
    if key:
        call = msgspec.structs.replace(call, id=key)
    return ask(
        f"What is the temperature in {city(number)}? Answer with the number.",
        assistant(call),
        _result(call, Text(text=f"{_degrees(number)} degrees Celsius")),
        tools=(GET_WEATHER,),
        choice=ChoiceMode.AUTO,
    )


def _uses_result(request: Request, reply: Reply) -> CellFinding:
    shown = next(part for part in request.messages[-1].parts if isinstance(part, ToolResult)).content[0]
    number = shown.text.split()[0] if isinstance(shown, Text) else ""
    return held() if number in said(reply) else missed(f"the answer does not name the result {number}")


def _failed(number: int) -> Request:
    call = _call(number)
    return ask(
        f"What is the weather in {city(number)}?",
        assistant(call),
        _result(call, Text(text="the weather service is down"), is_error=True),
        tools=(GET_WEATHER,),
        choice=ChoiceMode.NONE,
    )


def _two_results(number: int) -> Request:
    calls = _call(number), _call(number + 7, last="2")
    return ask(
        f"What is the weather in {city(number)} and {city(number + 7)}?",
        assistant(*calls),
        Message(
            role=Role.TOOL,
            parts=tuple(
                ToolResult(call_id=call.id, content=(Text(text=text),))
                for call, text in zip(calls, ("rain", "sun"), strict=True)
            ),
        ),
        tools=(GET_WEATHER,),
        choice=ChoiceMode.NONE,
    )


def _image(number: int) -> Request:
    call = _call(number)
    return ask(
        f"Show me the map of {city(number)} and say in one word which colour it has.",
        assistant(call),
        _result(call, Text(text="the map"), Image(data=_RED, media_type="image/png")),
        tools=(GET_WEATHER,),
        choice=ChoiceMode.NONE,
    )


def _long_id(number: int) -> str:
    return f"call{number:060d}"


def _odd_id(number: int) -> str:
    return f"toolu_01-PROBE_{number}"


def _with_id(make: Callable[[int], str]) -> Script:
    """Return the script that hands back a call under this id. Only whether the history is taken is looked at.

    The request is that of `result.round_trip` but for the id, so that this cell shows what is refused with any id.
    """
    return single(lambda number: _round_trip(number, make(number)), lambda _request, _reply: held())


def _long_arguments(number: int) -> Request:
    line = f"{word(number)} {word(number + 3)} {word(number + 5)}. "
    call = _call(number, "add_note", {"text": (line * (8_192 // len(line) + 1))[:8_192]})
    return ask(
        "Save the long note, then say that it is saved.",
        assistant(call),
        _result(call, Text(text="saved")),
        tools=(ADD_NOTE,),
        choice=ChoiceMode.NONE,
    )


def _is_taken(_request: Request, reply: Reply) -> CellFinding:
    return held() if said(reply).strip() or reply.calls or thoughts(reply) else missed("the reply is empty")


def _results(name: str, asks: str, wants: str, script: Script, **more: object) -> Cell:
    base = Cell(
        id=f"result.{name}", guarantee=f"result.{name}", group=CellGroup.RESULTS, asks=asks, wants=wants, script=script
    )
    return msgspec.structs.replace(base, **more)


_RESULTS = (
    _results(
        "round_trip",
        "a call and its result in the history",
        "the answer names the result",
        single(_round_trip, _uses_result),
        duty=Owner.MODEL,
        tries=CellTries(1, 3, 12),
    ),
    _results(
        "parallel",
        "two calls and their two results",
        "a reply",
        single(_two_results, _is_taken),
        required=True,
        tries=CellTries(1, 2, 73),
    ),
    _results(
        "error",
        "a result that is an error",
        "a reply",
        single(_failed, _is_taken),
        required=True,
        tries=CellTries(0, 2, 73),
    ),
    _results(
        "image",
        "a result with an image",
        "a reply",
        single(_image, _is_taken),
        tries=CellTries(0, 1, 2),
        # Chat tool messages hold text only.
        wires=frozenset({Wire.RESPONSES, Wire.MESSAGES}),
    ),
    _results(
        "8k",
        "a call with 8 kB of arguments in the history",
        "a reply",
        single(_long_arguments, _is_taken),
        group=CellGroup.SIZE,
        tries=CellTries(0, 1, 3),
        reads=3_000,
    ),
)

_IDS = tuple(
    Cell(
        id=f"id.{kind}",
        guarantee=f"id.{kind}",
        group=CellGroup.NAMES,
        asks=asks,
        wants="a reply",
        tries=CellTries(0, 1, 4),
        script=_with_id(make),
        fact={"long": "id_length", "odd": "id_pattern"}[kind],
    )
    for kind, asks, make in (
        ("long", "a call in the history whose id has 64 characters", _long_id),
        ("odd", "a call in the history whose id has hyphens and capitals", _odd_id),
    )
)


# --- reasoning ----------------------------------------------------------------------------------------------------


def _thinking(number: int) -> Request:
    return ask(
        f"Think about it briefly, then call the tool: which weather has {city(number)}?",
        tools=(GET_WEATHER,),
        choice=ChoiceMode.AUTO,
        limit=REASONING_LIMIT,
        reasoning=True,
    )


def _shows(_request: Request, reply: Reply) -> CellFinding:
    counted = reply.usage is not None and reply.usage.reasoning_tokens > 0
    return held() if thoughts(reply) or counted else missed("no reasoning was shown or counted")


def _hand_back(change: Callable[[Part], Part | None], *, wants_refusal: bool = False) -> Script:
    """Return the script that asks with reasoning and hands the reply back with its reasoning changed."""

    def script(number: int) -> _Steps:
        first = _thinking(number)
        (seen,) = yield (Send(request=first),)
        bad = fault(seen)
        if bad is not None or seen.reply is None:
            return bad or unmeasured("no reply")
        reply = seen.reply
        if not reply.calls or not thoughts(reply):
            return unmeasured("the first reply has no call with reasoning")
        kept = tuple(part for part in map(change, reply.parts) if part is not None)
        if wants_refusal and kept == reply.parts:
            return unmeasured("the reasoning has no state that could be altered")
        results = tuple(ToolResult(call_id=call.id, content=(Text(text="rain"),)) for call in reply.calls)
        second = msgspec.structs.replace(
            first, messages=(*first.messages, assistant(*kept), Message(role=Role.TOOL, parts=results))
        )
        (seen,) = yield (Send(request=second),)
        bad = fault(seen)
        if not wants_refusal:
            return bad or held()
        if bad is None:
            return missed("altered state was taken")
        return held() if bad.outcome is Outcome.REFUSED else bad

    return script


def _same(part: Part) -> Part | None:
    return part


def _dropped(part: Part) -> Part | None:
    return None if isinstance(part, Reasoning) else part


def _altered(part: Part) -> Part | None:
    """Return the part with another state: what its issuer must notice."""
    if not isinstance(part, Reasoning) or part.state is None:
        return part
    state = part.state
    return part.evolve(state=OpaqueState(form=state.form, data=_scrambled(state.data), issuer=state.issuer))


def _scrambled(value: object) -> object:
    """Return a value with the letters of its texts reversed where they are long, as signatures are."""
    if isinstance(value, str):
        return value[::-1] if len(value) > 24 else value
    if isinstance(value, dict):
        held_by = cast("JsonObject", value)
        return {key: item if key == "type" else _scrambled(item) for key, item in held_by.items()}
    if isinstance(value, list):
        return [_scrambled(item) for item in cast("list[object]", value)]
    return value


def _reasoning(name: str, asks: str, wants: str, script: Script, **more: object) -> Cell:
    base = Cell(
        id=f"reasoning.{name}",
        guarantee=f"reasoning.{name}",
        group=CellGroup.REASONING,
        asks=asks,
        wants=wants,
        script=script,
        sends=2,
        writes=1024,
        reasons=True,
    )
    return msgspec.structs.replace(base, **more)


_REASONING = (
    _reasoning(
        "shown",
        "reasoning on",
        "reasoning is shown or counted",
        single(_thinking, _shows),
        duty=Owner.MODEL,
        tries=CellTries(1, 2, 6),
        sends=1,
    ),
    _reasoning("returned", "the reasoning before a call, handed back", "a reply", _hand_back(_same)),
    _reasoning("dropped", "the same without the reasoning", "a reply", _hand_back(_dropped)),
    _reasoning(
        "altered",
        "the same with another signature",
        "a refusal",
        _hand_back(_altered, wants_refusal=True),
        wires=frozenset({Wire.RESPONSES, Wire.MESSAGES}),
    ),
)


# --- stored state -------------------------------------------------------------------------------------------------


def _previous(number: int) -> _Steps:
    first = ask(f"Remember the word {word(number)}. Reply with OK.")
    (seen,) = yield (Send(request=first, fields={"store": True}),)
    bad = fault(seen)
    if bad is not None or seen.reply is None:
        return bad or unmeasured("no reply")
    before = seen.reply
    second = msgspec.structs.replace(
        first, messages=(user("Which word was it? Reply with it alone."),), previous_response_id=before.id
    )
    (seen,) = yield (Send(request=second, fields={"store": True}),)
    bad = fault(seen)
    if bad is not None or seen.reply is None:
        return bad or unmeasured("no reply")
    if word(number) in said(seen.reply).lower():
        return held()
    old, new = before.usage, seen.reply.usage
    if old is not None and new is not None and new.input_tokens > old.input_tokens:
        return missed("the earlier response was read, and the word was not said", Owner.MODEL)
    return missed("the earlier response was not read")


def _stored(number: int) -> _Steps:
    (seen,) = yield (Send(request=ask(f"Say the word {word(number)}."), fields={"store": True}),)
    bad = fault(seen)
    if bad is not None or seen.reply is None:
        return bad or unmeasured("no reply")
    (found,) = yield (Send(method="GET", path=f"/responses/{seen.reply.id}"),)
    if found.status >= 400 or not found.status:
        return fault(found) or unmeasured("no answer")
    same = found.documents and found.documents[0].get("id") == seen.reply.id
    return held() if same else missed("another response came back")


def _counted(number: int) -> _Steps:
    text = f"How are the {word(number)} fields? " * 20
    (seen,) = yield (Send(request=ask(text, tools=(GET_WEATHER,)), path="/messages/count_tokens"),)
    if seen.status >= 400 or not seen.status:
        return fault(seen) or unmeasured("no answer")
    tokens = seen.documents[0].get("input_tokens") if seen.documents else None
    if not isinstance(tokens, int):
        return missed("there is no `input_tokens`")
    return held() if len(text) // 8 <= tokens <= len(text) else missed(f"{tokens} tokens for {len(text)} characters")


_STATE = (
    Cell(
        id="previous_response",
        fact="stateful",
        guarantee="previous_response",
        group=CellGroup.STATE,
        asks="a word to remember, then a request with `previous_response_id`",
        wants="the word",
        sends=2,
        tries=CellTries(1, 2, 4),
        script=_previous,
        wires=frozenset({Wire.RESPONSES}),
    ),
    Cell(
        id="stored_response",
        fact="stateful",
        guarantee="stored_response",
        group=CellGroup.STATE,
        asks="a response with `store`, then the same by its id",
        wants="the same response",
        sends=2,
        tries=CellTries(0, 1, 2),
        script=_stored,
        wires=frozenset({Wire.RESPONSES}),
    ),
    Cell(
        id="count_tokens",
        guarantee="count_tokens",
        group=CellGroup.STATE,
        asks="`count_tokens` of a prompt",
        wants="a plausible number",
        tries=CellTries(1, 1, 2),
        script=_counted,
        wires=frozenset({Wire.MESSAGES}),
        watched=False,
    ),
)

CELLS = (*_RESULTS, *_IDS, *_REASONING, *_STATE)
