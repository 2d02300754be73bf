"""What a lying model says: one attempt's reply as parts and a finish word, with the truth about it on the side.

`honest_text` and `honest_call` do what was asked, `lie` does any of the other things seen in the wild. Each attempt's
text, markup, arguments and reasoning carry marks of their own, so that a test can tell what became of them. Nothing
here knows how a wire writes a reply; `adversary_wire` bends that.
"""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.dialects import DIALECTS, Dialect, Standing, WrittenCall
from mustcall.testing.adversary.values import sample, spoil
from mustcall.testing.offers import Choice, OfferedTool
from mustcall.testing.script import Call, Refuse, Say, Think, Turn, TurnPart

__all__ = ["CallerIntent", "ContentMarks", "Spoken", "choose_dialect", "honest_call", "honest_text", "lie"]

#: Dialects whose text is its own code fence, or that only count when a profile names them.
_OWN_FENCE = frozenset({"command_r_plus", "deepseek_v3", "tool_code", "xlam", "fenced_json"})
_SEEN: tuple[Dialect, ...] = tuple(
    dialect for dialect in DIALECTS if dialect.standing is Standing.AUTO and dialect.name != "vcp"
)
_UNFENCED = tuple(dialect for dialect in _SEEN if dialect.name not in _OWN_FENCE)

_ODD_FINISHES = ("eos", "MALFORMED_FUNCTION_CALL", "function_call", "", "error", "end", "STOP")


class ContentMarks(msgspec.Struct, frozen=True):
    """Words that occur nowhere else: one for each kind of content of one attempt of one turn."""

    seed: int
    attempt: int

    def word(self, letter: str) -> str:
        """Return the mark of a kind of content."""
        return f"zq{letter}{self.seed}x{self.attempt}z"

    @property
    def text(self) -> str:
        """In prose that may be an answer."""
        return self.word("t")

    @property
    def markup(self) -> str:
        """In markup that any reader of the dialects recognises as a call: legal nowhere but in a delivered call."""
        return self.word("m")

    @property
    def argument(self) -> str:
        """In the arguments of a structured call: legal nowhere but in a delivered call."""
        return self.word("a")

    @property
    def reasoning(self) -> str:
        """In reasoning."""
        return self.word("r")

    @property
    def error(self) -> str:
        """In the words of an error."""
        return self.word("e")

    @property
    def loose(self) -> str:
        """In text that may or may not be recognised as an attempt at a call: nothing is promised about it."""
        return self.word("u")


class CallerIntent(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller of a turn wants, however the request says it: the measure of honesty.

    `honest_from` is the number of the first attempt that is answered honestly; None for a turn of lies alone.
    `hangs`: a connection that breaks stops without an end. Whoever waits for that needs a timeout, and is not told
    apart from a caller whose time ran out while an answer was on its way: nothing is promised about how often it asks.
    """

    seed: int
    tools: tuple[OfferedTool, ...] = ()
    choice: Choice = Choice("auto")
    parallel: bool = True
    schema: JsonObject | None = None
    honest_from: int | None = None
    hangs: bool = False

    @property
    def forced(self) -> bool:
        """Whether a call is demanded."""
        return bool(self.tools) and self.choice.mode in ("required", "named")

    @property
    def callable(self) -> tuple[OfferedTool, ...]:
        """The tools that may be called."""
        if self.choice.mode == "none":
            return ()
        if self.choice.mode == "named":
            return tuple(tool for tool in self.tools if tool.name == self.choice.name)
        return self.tools


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt's reply and the truth about it.

    `calls` are the calls it means, `text` the answer it means (None where that is open). `calls_may` and `text_may` say
    whether its calls, its text may be part of a good outcome. `exact` promises that what is delivered is what was
    meant, value for value; `within` that it says nothing that none of these calls says. `clean` is plain text that may
    stay in the context of the next attempt of a forced turn. `declines` marks a refusal or filter.
    """

    what: str
    turn: Turn
    calls: tuple[tuple[str, Any], ...] = ()
    text: str | None = None
    calls_may: bool = False
    text_may: bool = False
    exact: bool = True
    within: tuple[tuple[str, Any], ...] = ()
    clean: bool = False
    declines: bool = False


def honest_text(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """Answer in text, or in JSON if that was asked for."""
    text = f"The answer is {marks.text}. It took {source.randint(2, 9)} steps."
    if demand.schema is not None:
        text = json.dumps(sample(demand.schema, source, marks.text))
    parts: list[TurnPart] = [Think(f"Let me see: {marks.reasoning}.")] if source.random() < 0.2 else []
    return Spoken(what="text", turn=Turn(*parts, Say(text)), text=text, text_may=True, clean=True)


def honest_call(
    demand: CallerIntent, offers: Sequence[tuple[str, OfferedTool]], marks: ContentMarks, source: random.Random
) -> Spoken:
    """Call what was asked for: pairs of the name to call by and the tool that is meant."""
    count = source.randint(1, 3) if demand.parallel and demand.choice.mode != "named" else 1
    picked = [source.choice(offers) for _ in range(count)]
    made = [(name, tool.name, sample(tool.schema, source, marks.argument)) for name, tool in picked]
    parts: list[TurnPart] = [Think(f"A tool: {marks.reasoning}.")] if source.random() < 0.2 else []
    if source.random() < 0.3:
        parts.append(Say(f"One moment, {marks.text}."))
    parts += [Call(name, arguments) for name, _, arguments in made]
    return Spoken(
        what="calls",
        turn=Turn(*parts),
        calls=tuple((name, arguments) for _, name, arguments in made),
        calls_may=True,
        text_may=True,
    )


def choose_dialect(system: str) -> Dialect | None:
    """Return the dialect a rendered system text teaches, None if it teaches none."""
    return next((dialect for dialect, example in _TAUGHT if example in system), None)


_TAUGHT = sorted(
    ((dialect, dialect.render([WrittenCall("TOOL_NAME", {"PARAMETER": "VALUE"})])) for dialect in DIALECTS),
    key=lambda pair: -len(pair[1]),
)


# --- lies ---------------------------------------------------------------------------------------------------------

_Way = Callable[[CallerIntent, ContentMarks, random.Random], Spoken]


def lie(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """Say one of the things models say instead; with no tools on offer, one of those that need none."""
    ways = _WITH_TOOLS if demand.tools else _WITHOUT_TOOLS
    return source.choice(ways)(demand, marks, source)


def _any_tool(demand: CallerIntent, source: random.Random) -> OfferedTool:
    return source.choice(demand.callable or demand.tools)


def _plain(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    spoken = honest_text(demand, marks, source)
    if demand.schema is None or source.random() < 0.5:
        return spoken
    wrong = source.choice([f"Sure! {marks.text}", f'{{"{marks.text}": ', f'["{marks.text}"]', f'"{marks.text}"'])
    return Spoken(what="text: not the schema's", turn=Turn(Say(wrong)))


def _other_finish(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    finish = source.choice(["tool_calls", "length", *_ODD_FINISHES])
    text = f"So it is {marks.text}."
    return Spoken(
        what=f"text, finish {finish!r}",
        turn=Turn(Say(text), finish=finish),
        text=text,
        text_may=demand.schema is None,
        clean=finish != "length",
    )


def _calls(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """Several calls of any tools, whatever was asked, under any finish."""
    tools = [source.choice(demand.tools) for _ in range(source.randint(1, 3))]
    made = [(tool.name, sample(tool.schema, source, marks.argument)) for tool in tools]
    parts: list[TurnPart] = [Say(f"I'll look, {marks.text}.")] if source.random() < 0.3 else []
    parts += [Call(name, arguments) for name, arguments in made]
    finish = source.choice([None, None, "stop", "length", source.choice(_ODD_FINISHES)])
    return Spoken(
        what=f"calls, finish {finish!r}",
        turn=Turn(*parts, finish=finish),
        calls=tuple(made),
        calls_may=finish != "length",
        text_may=finish != "length",
    )


def _coercible(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """A call that can be read without loss: wrapped in a string, numbers as text, the name in other letters."""
    tool = _any_tool(demand, source)
    value = sample(tool.schema, source, marks.argument)
    name, written = tool.name, json.dumps(value)
    match source.choice(["wrapped", "numbers", "case", "spaced"]):
        case "wrapped":
            written = json.dumps(written)
        case "numbers":
            odd = {key: str(item) if type(item) is int else item for key, item in value.items()}
            written = json.dumps(odd)
        case "case":
            name = name.upper()
        case _:
            written = f"\n {written} \n"
    turn = Turn(Call(name, written))
    return Spoken(what="a call to be coerced", turn=turn, calls=((tool.name, value),), calls_may=True)


def _bad_arguments(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    tool = _any_tool(demand, source)
    value = sample(tool.schema, source, marks.argument)
    whole = json.dumps(value)
    hopeless = [
        json.dumps(spoil(value, tool.schema, source, marks.argument)),
        json.dumps(spoil(value, tool.schema, source, marks.argument)),
        whole + " and " + marks.argument,
        f"call it with {marks.argument}",
        json.dumps([value]),
        "null" if tool.schema.get("required") else "[]",
        "" if tool.schema.get("required") else "[]",
        json.dumps(json.dumps(json.dumps(json.dumps(value)))),
    ]
    # What a repair may make a call of, where nothing but brackets or quotes is wrong (rule 141).
    mendable = [whole[: source.randint(1, max(1, len(whole) - 1))], "{" + f"'note': '{marks.argument}'" + "}"]
    written = source.choice([*hopeless, *mendable])
    parts: list[TurnPart] = [Say(f"Calling now, {marks.text}.")] if source.random() < 0.3 else []
    parts.append(Call(tool.name, written))
    if source.random() < 0.2:
        parts.append(Call(tool.name, value))
    if written not in mendable:
        return Spoken(what="bad arguments", turn=Turn(*parts))
    within = ((tool.name, value), (tool.name, {"note": marks.argument}))
    turn = Turn(*parts)
    return Spoken(what="bad arguments", turn=turn, calls_may=True, text_may=True, exact=False, within=within)


def _unknown_tool(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    name = source.choice(["no_such_tool", "functions.", "", "python", "zz" * 50])
    parts: list[TurnPart] = [Call(name, {"query": marks.argument})]
    if source.random() < 0.3:
        tool = _any_tool(demand, source)
        parts.append(Call(tool.name, sample(tool.schema, source, marks.argument)))
    return Spoken(what=f"the unknown tool {name[:12]!r}", turn=Turn(*parts))


def _text_call(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """A complete call of an offered tool, written as text: promoted or discarded, never shown."""
    tool = _any_tool(demand, source)
    dialect = source.choice(_SEEN)
    value = _plain_sample(tool, source, marks.markup)
    text = dialect.render([WrittenCall(tool.name, value)])
    # Behind half a sentence, a JSON object without markup of its own is what the sentence shows (rule 63).
    half = "I count {}.\n" if any(opener.alone for opener in dialect.openers) else "count {}\n"
    before = source.choice(["", "", f"I will check {marks.text}.\n\n", half.format(marks.text)])
    after = source.choice(["", "", "\n", f"\n\nThat was {marks.loose}."])
    turn = Turn(Say(before + text + after), finish=source.choice([None, "tool_calls"]))
    return Spoken(what=f"text call, {dialect.name}", turn=turn, calls_may=True, text_may=True, exact=False)


def _cut_text_call(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """A text call that breaks off, or is broken inside."""
    tool = _any_tool(demand, source)
    dialect = source.choice(_SEEN)
    text = dialect.render([WrittenCall(tool.name, _plain_sample(tool, source, marks.loose))])
    at = source.randint(1, len(text) - 1)
    text = source.choice([text[:at], text[:at] + "#" + text[at:], text[:at] + text[at + 1 :]])
    finish = source.choice([None, "tool_calls", "length"])
    turn = Turn(Say(source.choice(["", f"Well, {marks.text}. "]) + text), finish=finish)
    return Spoken(
        what=f"broken text call, {dialect.name}",
        turn=turn,
        calls_may=True,
        text_may=demand.schema is None,
        exact=False,
        clean=True,
    )


def _quoted_call(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """Markup in a code fence: an answer that talks about calls, and no call unless one was demanded (rule 137)."""
    tool = _any_tool(demand, source)
    dialect = source.choice(_UNFENCED)
    value = _plain_sample(tool, source, marks.text)
    text = dialect.render([WrittenCall(tool.name, value)])
    quoted = f"Write this, {marks.text}:\n\n```\n{text}\n```\n\nDone."
    return Spoken(
        what=f"quoted call, {dialect.name}",
        turn=Turn(Say(quoted)),
        calls=((tool.name, value),) if demand.forced else (),
        calls_may=demand.forced,
        text=quoted,
        text_may=demand.schema is None,
        clean=True,
    )


def _reasoned_call(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """A call in the reasoning: not a call, whatever follows."""
    tool = _any_tool(demand, source)
    text = source.choice(_SEEN).render([WrittenCall(tool.name, _plain_sample(tool, source, marks.reasoning))])
    spoken = honest_text(demand, marks, source)
    answer = next(part for part in spoken.turn.parts if isinstance(part, Say))
    return msgspec.structs.replace(spoken, what="a call in reasoning", turn=Turn(Think(text), answer))


def _leaked_reasoning(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    spoken = honest_text(demand, marks, source)
    answer = next(part for part in spoken.turn.parts if isinstance(part, Say))
    leak = source.choice(["<think>Hm, {}.</think>", "<thinking>{}</thinking>\n", "<think>\n{}"]).format(marks.reasoning)
    text = leak if "</" not in leak else leak + answer.text
    return Spoken(what="leaked reasoning", turn=Turn(Say(text)), text_may=True, clean=True)


def _silent(_: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    parts: list[TurnPart] = source.choice(
        [[], [Say("")], [Say(" \n")], [Think(f"Only {marks.reasoning}.")], [Think(marks.reasoning), Say("\n")]]
    )
    finish = source.choice([None, None, "tool_calls", "length", "eos"])
    return Spoken(what="nothing", turn=Turn(*parts, finish=finish))


def _declining(_: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """A refusal or a filter; on a wire without a word for refusals the text is all that is left of one."""
    turn = source.choice(
        [
            Turn(Refuse(f"I cannot help with {marks.text}.")),
            Turn(Say(f"Partly {marks.text}"), finish="content_filter"),
            Turn(finish="content_filter"),
            Turn(Say(f"No: {marks.text}"), finish="refusal"),
        ]
    )
    return Spoken(what="declines", turn=turn, text_may=True, declines=True, clean=turn.finish == "refusal")


def _cut_call(demand: CallerIntent, marks: ContentMarks, source: random.Random) -> Spoken:
    """A call that the token limit cut, whatever the finish word says."""
    tool = _any_tool(demand, source)
    value = sample(tool.schema, source, marks.argument)
    whole = json.dumps(value)
    partial = whole[: source.randint(0, len(whole) - 1)]
    if not tool.schema.get("required") and not partial:
        partial = "{"
    finish = source.choice(["length", "length", "tool_calls", "stop"])
    may = finish != "length"  # where only brackets are missing (rule 141)
    turn = Turn(Call(tool.name, partial), finish=finish)
    within = ((tool.name, value),)
    return Spoken(what=f"cut call, finish {finish}", turn=turn, calls_may=may, exact=not may, within=within)


def _plain_sample(tool: OfferedTool, source: random.Random, mark: str) -> JsonObject:
    """Return arguments whose strings every dialect can write."""
    found: JsonObject = sample(tool.schema, source, mark)
    return {key: mark if isinstance(item, str) and mark in item else item for key, item in found.items()}


_WITHOUT_TOOLS: tuple[_Way, ...] = (_plain, _plain, _other_finish, _leaked_reasoning, _silent, _declining)
_WITH_TOOLS: tuple[_Way, ...] = (
    _plain,
    _other_finish,
    _calls,
    _calls,
    _coercible,
    _bad_arguments,
    _bad_arguments,
    _unknown_tool,
    _text_call,
    _text_call,
    _cut_text_call,
    _quoted_call,
    _reasoned_call,
    _leaked_reasoning,
    _silent,
    _declining,
    _cut_call,
)
