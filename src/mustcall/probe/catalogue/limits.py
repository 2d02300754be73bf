"""Cells of sizes, limits, stopping, errors and load."""

import re
from collections.abc import Generator

import msgspec

from mustcall.core.origin import Wire
from mustcall.core.parts import ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, Tool
from mustcall.policy.reply.cut_prompt import lower_bound
from mustcall.probe.catalogue.asking import ADD_NOTE, GET_WEATHER, ask, city, define, force, topic, word
from mustcall.probe.checks import arguments_of, fault, held, is_model_failure, missed, said, single, unmeasured
from mustcall.probe.values import Cell, CellFinding, CellGroup, CellTries, Outcome, Owner, Script, Seen, Send
from mustcall.wire.overflow import is_overflow
from mustcall.wire.reading import maybe_object

__all__ = ["CELLS", "limit_in"]

_Steps = Generator[tuple[Send, ...], tuple[Seen, ...], CellFinding]


# --- sizes --------------------------------------------------------------------------------------------------------


def _many(count: int) -> tuple[Tool, ...]:
    return tuple(
        define(f"open_drawer_{number}", f"Open drawer number {number}.", {"reason": {"type": "string"}})
        for number in range(1, count + 1)
    )


def _right_drawer(request: Request, reply: Reply) -> CellFinding:
    if not reply.calls:
        return missed("answered without a call")
    text = "".join(getattr(part, "text", "") for part in request.messages[0].parts)
    name = next(tool.name for tool in reversed(request.tools) if isinstance(tool, Tool) and f"{tool.name}." in text)
    return held() if reply.calls[0].name == name else missed(f"called {reply.calls[0].name!r} instead of {name!r}")


def _drawers(count: int) -> Script:
    tools = _many(count)

    def make(number: int) -> Request:
        which = (number * 17) % count + 1
        return ask(f"I look for {topic(number)}. Call open_drawer_{which}.", tools=tools, choice=ChoiceMode.AUTO)

    return single(make, _right_drawer)


_TOOLS = tuple(
    Cell(
        id=f"tools.{count}",
        guarantee=f"tools.{count}",
        group=CellGroup.SIZE,
        asks=f"{count} tool{'s' if count > 1 else ''} on offer, one of them asked for",
        wants="a call of that tool",
        duty=Owner.MODEL,
        tries=tries,
        script=_drawers(count),
        reads=100 + 45 * count,
        fact="most_tools" if count > 1 else "",
    )
    for count, tries in ((1, CellTries(0, 1, 2)), (32, CellTries(1, 1, 3)), (128, CellTries(0, 1, 3)))
)

_UNICODE = "Grüße, “Ω” 東京 ☔ \\ 'x'"


def _note(number: int) -> Request:
    return ask(
        f"Save this note exactly as it is, nothing more: {_UNICODE} {word(number)}",
        tools=(ADD_NOTE,),
        choice=force("add_note"),
    )


def _kept(request: Request, reply: Reply) -> CellFinding:
    text = "".join(getattr(part, "text", "") for part in request.messages[0].parts)
    calls = reply.calls
    if not calls:
        return unmeasured("no call came")
    arguments = arguments_of(calls[0])
    note = arguments.get("text") if arguments is not None else None
    if not isinstance(note, str):
        return missed("the arguments are no JSON object with a text")
    if "\ufffd" in note or "Ã" in note:
        return missed("characters were garbled", Owner.SERVER)
    return held() if note.strip() in text and "東京" in note else missed("the note is not the same")


def _long_note(number: int) -> Request:
    return ask(
        f"Save a note whose text is the word {word(number)} repeated 1400 times, separated by spaces.",
        tools=(ADD_NOTE,),
        choice=force("add_note"),
        limit=8_192,
    )


def _is_long(_request: Request, reply: Reply) -> CellFinding:
    if not reply.calls:
        return unmeasured("no call came")
    arguments = reply.calls[0].arguments_json
    if len(arguments) < 8_000:
        return unmeasured(f"the model wrote {len(arguments)} characters of arguments")
    return held() if arguments_of(reply.calls[0]) is not None else missed("the arguments are no JSON object")


_SIZES = (
    *_TOOLS,
    Cell(
        id="unicode",
        guarantee="unicode",
        group=CellGroup.SIZE,
        asks="a note with letters of several scripts, quotes and a backslash",
        wants="the same characters in the arguments",
        duty=Owner.MODEL,
        tries=CellTries(1, 2, 6),
        script=single(_note, _kept),
    ),
    Cell(
        id="arguments.8k",
        guarantee="arguments.8k",
        group=CellGroup.SIZE,
        asks="a call whose arguments are 8 kB",
        wants="arguments that are whole",
        tries=CellTries(0, 0, 2),
        script=single(_long_note, _is_long),
        writes=8_192,
    ),
)


# --- honest limits ------------------------------------------------------------------------------------------------


def _cut(number: int) -> Request:
    return ask(
        f"Save a note of two hundred words about {topic(number)}.",
        tools=(ADD_NOTE,),
        choice=force("add_note"),
        limit=24,
    )


def _cut_short(number: int) -> _Steps:
    (seen,) = yield (Send(request=_cut(number)),)
    error = seen.error
    if error is not None and is_model_failure(error):
        return held(f"failed openly: {error.message[:100]}")
    bad = fault(seen)
    if bad is not None or seen.reply is None:
        return bad or unmeasured("no reply")
    return _says_cut(seen.reply)


def _says_cut(reply: Reply) -> CellFinding:
    if reply.finish is FinishReason.LENGTH:
        return held()
    whole = [call for call in reply.calls if arguments_of(call) is not None]
    used = reply.usage.output_tokens if reply.usage is not None else 0
    if (whole or not reply.calls) and used < 24:
        return unmeasured("the reply was complete within the limit")
    if whole and used > 48:
        return missed(f"{used} tokens came of at most 24")
    if whole:
        return unmeasured("the call was complete within the limit")
    return missed(f"it was cut, and the finish is {reply.reported_finish!r}")


#: Characters of a prompt that is larger than the contexts that local servers set by themselves (2,048 to 8,192 tokens).
_LONG_PROMPT = 60_000


#: How refusals name the limit: "maximum context length is 8192 tokens", "the available context size (4096 tokens)",
#: "210000 tokens > 200000 maximum".
_LIMIT_WORDS = re.compile(r"(?i)(?:context|maximum|limit|at most|>)\D{0,60}?(\d[\d,]{2,8})\b")


def limit_in(message: str) -> int | None:
    """Return the tokens of the context that a refusal names; the prompt itself has more."""
    found = _LIMIT_WORDS.search(message)
    return int(found[1].replace(",", "")) if found is not None else None


def _needle(number: int) -> _Steps:
    secret = f"{word(number)}-{number + 41}"
    filler = " ".join(f"{index}: the {topic(index)} of {city(index)} are {word(index)}." for index in range(1, 1_600))
    request = ask(
        f"The password is {secret}. Remember it.\n{filler[:_LONG_PROMPT]}\nWhat is the password? Reply with it alone.",
        limit=32,
    )
    (seen,) = yield (Send(request=request),)
    error = seen.error
    if error is not None and 400 <= seen.status < 500:
        if is_overflow(error.type, error.code, error.message) or seen.status == 413:
            openly = held(f"refused openly: {error.message[:100]}")
            return msgspec.structs.replace(openly, value=limit_in(error.message))
        return fault(seen) or held()
    bad = fault(seen)
    if bad is not None or seen.reply is None:
        return bad or unmeasured("no reply")
    if secret in said(seen.reply).lower():
        return held()
    usage = seen.reply.usage
    if usage is not None and 0 < usage.input_tokens < lower_bound(request):
        cut = missed(f"{usage.input_tokens} tokens were read of a prompt of at least {lower_bound(request)}")
        return msgspec.structs.replace(cut, value=usage.input_tokens)
    return unmeasured("the model did not repeat the password, and the usage does not tell whether it saw it")


_HONEST = (
    Cell(
        id="cut",
        guarantee="cut",
        group=CellGroup.HONESTY,
        asks="a call that is longer than `max_tokens`",
        wants="a finish that says it was cut, or an error that says no whole call came",
        required=True,
        tries=CellTries(1, 2, 73),
        script=_cut_short,
        writes=64,
        watched=False,
    ),
    Cell(
        id="context",
        guarantee="context",
        fact="context_length",
        group=CellGroup.HONESTY,
        asks="a prompt of 15,000 tokens with a password at its beginning",
        wants="the password, or a refusal that says the prompt is too long",
        required=True,
        # Twice at most: it takes as many tokens as a hundred others, and what a server does with it repeats itself.
        tries=CellTries(0, 1, 2),
        script=_needle,
        reads=24_000,
        writes=32,
        watched=False,
    ),
)


# --- stop and cancel ----------------------------------------------------------------------------------------------


def _count_up(number: int) -> Request:
    asked = ask(f"Count from 1 to 20, one number a line, nothing else. ({word(number)})", limit=120)
    return msgspec.structs.replace(asked, stop=("13",))


def _stopped(_request: Request, reply: Reply) -> CellFinding:
    text = said(reply)
    if "13" in text or "14" in text:
        return missed("the text goes on behind the stop sequence")
    return held() if "11" in text or reply.stop_sequence else unmeasured("the model did not count that far")


def _cancel(number: int) -> _Steps:
    long = ask(f"Write a long story about {topic(number)}.", limit=512, stream=True)
    (seen,) = yield (Send(request=long, cancel_after=2),)
    if not seen.cancelled:
        return fault(seen) or unmeasured("the stream ended before it was left")
    (after,) = yield (Send(request=ask(f"Say the word {word(number)}.", limit=32)),)
    bad = fault(after)
    if bad is None:
        return held()
    return missed(f"the next request failed: {bad.note}", bad.owner)


_CONTROL = (
    Cell(
        id="stop",
        guarantee="stop",
        group=CellGroup.CONTROL,
        asks="numbers up to 20 with the stop sequence 13",
        wants="a text that ends before it",
        tries=CellTries(0, 2, 6),
        script=single(_count_up, _stopped),
        # Responses has no stop sequences.
        wires=frozenset({Wire.CHAT, Wire.MESSAGES}),
    ),
    Cell(
        id="cancel",
        guarantee="cancel",
        group=CellGroup.CONTROL,
        asks="a stream that the client leaves, then another request",
        wants="an answer to the other request",
        sends=2,
        tries=CellTries(0, 1, 3),
        script=_cancel,
        writes=512,
        watched=False,
        # Not `streams`: whole, there is nothing to leave.
    ),
)


# --- errors -------------------------------------------------------------------------------------------------------


def _error_shape(seen: Seen) -> CellFinding:
    """A refusal in the wire's own shape: an object `error` with a message."""
    if seen.answered:
        return missed("it was answered")
    bad = fault(seen)
    if bad is None or bad.outcome is not Outcome.REFUSED:
        return bad or missed("it was answered")
    error = maybe_object(seen.documents[0].get("error")) if seen.documents else None
    message = error.get("message") if error is not None else None
    shaped = isinstance(message, str) and bool(message.strip())
    return held() if shaped else missed(f"HTTP {seen.status} without an `error` that has a message")


def _malformed(number: int) -> _Steps:
    (seen,) = yield (Send(request=ask(f"Say the word {word(number)}."), fields={"tools": "nonsense"}),)
    return _error_shape(seen)


def _not_offered(number: int) -> _Steps:
    request = ask(f"What is the weather in {city(number)}?", tools=(GET_WEATHER,), choice=force("get_weather"))
    named = msgspec.structs.replace(request, tool_choice=force("no_such_tool"))
    (seen,) = yield (Send(request=named),)
    return _error_shape(seen)


_ERRORS = (
    Cell(
        id="error.shape",
        guarantee="error.shape",
        group=CellGroup.ERRORS,
        asks="a request whose `tools` are no list",
        wants="a 4xx with an `error` that has a message",
        tries=CellTries(1, 1, 2),
        script=_malformed,
        watched=False,
    ),
    Cell(
        id="error.not_offered",
        guarantee="error.not_offered",
        group=CellGroup.ERRORS,
        asks="a forced tool that is not on offer",
        wants="a 4xx with an `error` that has a message",
        tries=CellTries(0, 1, 2),
        script=_not_offered,
        watched=False,
    ),
)


# --- load ---------------------------------------------------------------------------------------------------------


def _at_once(count: int) -> Script:
    def script(number: int) -> _Steps:
        places = [city(number * count + index) for index in range(count)]
        requests = [
            ask(
                f"What is the weather in {place} right now? Use the tool.",
                tools=(GET_WEATHER,),
                choice=force("get_weather"),
            )
            for place in places
        ]
        seen = yield tuple(Send(request=request) for request in requests)
        for place, one in zip(places, seen, strict=True):
            bad = fault(one)
            if bad is not None or one.reply is None:
                return bad or unmeasured("no reply")
            if _mentions(one.reply, [other for other in places if other != place]):
                return missed(f"the reply to {place} speaks of another request's city")
        return held()

    return script


def _mentions(reply: Reply, names: list[str]) -> bool:
    text = said(reply) + "".join(part.arguments_json for part in reply.parts if isinstance(part, ToolCall))
    return any(name in text for name in names)


_LOAD = tuple(
    Cell(
        id=f"concurrency.{count}",
        guarantee=f"concurrency.{count}",
        group=CellGroup.LOAD,
        asks=f"{count} request{'s' if count > 1 else ''} at once",
        wants="a reply to each, and its own",
        sends=count,
        tries=tries,
        script=_at_once(count),
    )
    for count, tries in ((1, CellTries(0, 1, 1)), (8, CellTries(0, 1, 2)))
)

CELLS = (*_SIZES, *_HONEST, *_CONTROL, *_ERRORS, *_LOAD)
