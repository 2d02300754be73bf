"""Cells of the tool choice: auto, none, required and named, with and without reasoning, whole and streamed."""

from collections.abc import Callable, Iterator

from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, functions_of
from mustcall.probe.catalogue.asking import ADD_NOTE, GET_TIME, GET_WEATHER, ask, city, force, topic
from mustcall.probe.checks import held, missed, single, still_thinking
from mustcall.probe.values import Cell, CellFinding, CellGroup, CellTries, Owner

__all__ = ["CELLS", "called"]

_Make = Callable[..., Request]


def called(request: Request, reply: Reply) -> CellFinding:
    """A tool on offer was called."""
    offered = {tool.name for tool in functions_of(request.tools)}
    names = [call.name for call in reply.calls]
    if names:
        strange = [name for name in names if name not in offered]
        return missed(f"called {strange[0]!r}, which is not on offer") if strange else held()
    return still_thinking(reply) or missed("answered without a call")


def _not_called(_request: Request, reply: Reply) -> CellFinding:
    return missed(f"called {reply.calls[0].name!r}") if reply.calls else held()


def _named(request: Request, reply: Reply) -> CellFinding:
    wanted = request.tool_choice.name if request.tool_choice is not None else None
    others = [call.name for call in reply.calls if call.name != wanted]
    return missed(f"called {others[0]!r} instead of {wanted!r}") if others else called(request, reply)


def _auto(number: int, **how: bool) -> Request:
    return ask(
        f"What is the weather in {city(number)} right now? Use the tool.",
        tools=(GET_WEATHER,),
        choice=ChoiceMode.AUTO,
        **how,
    )


def _none(number: int, **how: bool) -> Request:
    return ask(
        f"What is the weather in {city(number)} right now? Answer in one sentence.",
        tools=(GET_WEATHER,),
        choice=ChoiceMode.NONE,
        **how,
    )


def _required(number: int, **how: bool) -> Request:
    return ask(
        f"Tell me in one sentence something nice about {topic(number)}.",
        tools=(ADD_NOTE, GET_WEATHER),
        choice=force(),
        **how,
    )


def _by_name(number: int, **how: bool) -> Request:
    return ask(f"What time is it in {city(number)}?", tools=(GET_TIME, GET_WEATHER), choice=force("get_weather"), **how)


#: Guarantee, what is asked, what must be seen, whose duty, is it required, the request, the judge, tries whole, tries
#: of each of the other three, the fact.
_ROWS = (
    (
        "auto",
        "a question that a tool on offer answers",
        "a call of the tool",
        Owner.MODEL,
        False,
        _auto,
        called,
        CellTries(1, 4, 24),
        CellTries(0, 3, 12),
        "protocol",
    ),
    (
        "none",
        "a question that a tool on offer answers, `tool_choice` none",
        "no call",
        Owner.SERVER,
        True,
        _none,
        _not_called,
        CellTries(1, 5, 73),
        CellTries(0, 4, 73),
        "",
    ),
    (
        "required",
        "a question that no tool answers, `tool_choice` required",
        "a call of any tool",
        Owner.SERVER,
        True,
        _required,
        called,
        CellTries(3, 12, 73),
        CellTries(0, 8, 73),
        "forced",
    ),
    (
        "named",
        "a question for one tool, the other one named",
        "a call of the named tool",
        Owner.SERVER,
        True,
        _by_name,
        _named,
        CellTries(2, 12, 73),
        CellTries(0, 8, 73),
        "named",
    ),
)
#: The streamed cells of the forced choices are in the quick set, too.
_QUICK_STREAMED = {"required": 2, "auto": 1}


def _cells() -> Iterator[Cell]:
    for guarantee, asks, wants, duty, required, make, check, whole, others, fact in _ROWS:
        for reasons in (False, True):
            for streams in (False, True):
                yield Cell(
                    id="+".join([guarantee, *(["reasoning"] if reasons else []), *(["stream"] if streams else [])]),
                    guarantee=guarantee,
                    group=CellGroup.CHOICE,
                    asks=asks + (", with reasoning" if reasons else "") + (", streamed" if streams else ""),
                    wants=wants,
                    duty=duty,
                    required=required,
                    tries=_tries(guarantee, whole, others, reasons=reasons, streams=streams),
                    script=single(_fixed(make, stream=streams, reasoning=reasons), check),
                    writes=1024 if reasons else 128,
                    fact=fact,
                    streams=streams,
                    reasons=reasons,
                )


def _fixed(make: _Make, *, stream: bool, reasoning: bool) -> Callable[[int], Request]:
    return lambda number: make(number, stream=stream, reasoning=reasoning)


def _tries(guarantee: str, whole: CellTries, others: CellTries, *, reasons: bool, streams: bool) -> CellTries:
    if not reasons and not streams:
        return whole
    quick = _QUICK_STREAMED.get(guarantee, 0) if streams and not reasons else 0
    return CellTries(quick, others.default, others.deep)


CELLS = tuple(_cells())
