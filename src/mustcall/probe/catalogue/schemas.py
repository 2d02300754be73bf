"""Cells of tool schemas, structured answers, parallel calls and names: what of them is taken and kept to."""

from collections.abc import Callable

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.core.reply import Reply
from mustcall.core.request import OutputFormat, OutputKind, Request
from mustcall.core.tools import ChoiceMode, Tool, functions_of
from mustcall.policy.schema.validation import Unreadable, problems_in, read_json
from mustcall.probe.catalogue.asking import GET_WEATHER, ask, city, define, force, topic, word
from mustcall.probe.checks import arguments_of, fits, held, missed, said, single, unmeasured
from mustcall.probe.values import Cell, CellFinding, CellGroup, CellTries, Owner, Script

__all__ = ["CELLS"]


def _valid(request: Request, reply: Reply) -> CellFinding:
    """The arguments fit the schema; without a call there is nothing to look at."""
    if not reply.calls:
        return unmeasured("no call came, so there are no arguments to look at")
    tools = {tool.name: tool for tool in functions_of(request.tools)}
    for call in reply.calls:
        tool = tools.get(call.name)
        if tool is not None:
            problem = fits(tool, arguments_of(call))
            if problem:
                return missed(problem)
    return held()


def _one_tool(tool: Tool, says: str) -> Script:
    def make(number: int) -> Request:
        return ask(
            says.format(city=city(number), word=word(number), topic=topic(number), number=number + 2),
            tools=(tool,),
            choice=force(tool.name),
        )

    return single(make, _valid)


_POINT: JsonObject = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x", "y"],
    "additionalProperties": False,
}
_COLOUR: JsonObject = {"type": "string", "enum": ["red", "green", "blue"]}

_STRICT = define("set_colour", "Set the colour of the lamp.", {"colour": _COLOUR}, strict=True)
_NESTED = define(
    "draw_line",
    "Draw a line between two points.",
    {
        "line": {
            "type": "object",
            "properties": {"start": _POINT, "end": _POINT},
            "required": ["start", "end"],
            "additionalProperties": False,
        }
    },
)
_REF = define("move_to", "Move to a point.", {"target": {"$ref": "#/$defs/point"}}, defs={"point": _POINT})
_UNION = define(
    "set_level",
    "Set the level: a number, or the word auto.",
    {"level": {"anyOf": [{"type": "integer"}, {"type": "string", "enum": ["auto"]}]}},
)
_NULL = define("set_alarm", "Set or clear the alarm.", {"time": {"type": ["string", "null"]}})
_ENUM = define("set_lamp", "Set the colour of the lamp.", {"colour": _COLOUR})
_EMPTY = Tool(
    name="ping", description="Check that the service answers.", parameters={"type": "object", "properties": {}}
)
_CLOSED = define("save_city", "Save a city.", {"city": {"type": "string"}})


_FEW = CellTries(0, 2, 6)


def _schema(name: str, asks: str, script: Script, tries: CellTries = _FEW) -> Cell:
    return Cell(
        id=f"schema.{name}",
        guarantee=f"schema.{name}",
        group=CellGroup.SCHEMA,
        asks=asks,
        wants="the schema is taken and the arguments are valid under it",
        duty=Owner.MODEL,
        tries=tries,
        script=script,
    )


_SCHEMAS = (
    Cell(
        id="strict",
        guarantee="strict",
        group=CellGroup.SCHEMA,
        asks="a strict tool, and a prompt that asks for a value its enum does not have",
        wants="the schema wins: the arguments are valid",
        required=True,
        tries=CellTries(1, 8, 73),
        script=_one_tool(_STRICT, "Set the lamp to the colour purple-{word}. Use exactly that colour."),
    ),
    _schema(
        "nested",
        "objects inside objects",
        _one_tool(_NESTED, "Draw a line from (1, 2) to ({number}, 9)."),
        CellTries(1, 2, 6),
    ),
    _schema("ref", "a `$ref` to `$defs`", _one_tool(_REF, "Move to x = {number}, y = 4.")),
    _schema("union", "an `anyOf` of a number and a word", _one_tool(_UNION, "Set the level to {number}.")),
    _schema("null", "a type that may be null", _one_tool(_NULL, "Clear the alarm for {topic}: its time is null.")),
    _schema("enum", "a list of allowed words", _one_tool(_ENUM, "Make the lamp green, because I like {topic}.")),
    _schema("empty", "a tool without parameters", _one_tool(_EMPTY, "Check that the service answers ({word}).")),
    _schema(
        "closed",
        "`additionalProperties` false, and a prompt that offers more",
        _one_tool(_CLOSED, "Save the city {city} with the note {word}."),
    ),
)


# --- structured answers -------------------------------------------------------------------------------------------

_ANSWER: JsonObject = {
    "type": "object",
    "properties": {"colour": _COLOUR, "count": {"type": "integer"}},
    "required": ["colour", "count"],
    "additionalProperties": False,
}


def _formatted(_request: Request, reply: Reply) -> CellFinding:
    if reply.calls:
        return missed(f"called {reply.calls[0].name!r} instead of an answer", Owner.MODEL)
    try:
        value = read_json(said(reply).strip())
    except Unreadable:
        return missed("the answer is not JSON")
    return missed("the answer is not valid under the schema") if problems_in(_ANSWER, value) else held()


def _format(*, tools: bool) -> Callable[[int], Request]:
    output = OutputFormat(kind=OutputKind.SCHEMA, schema=_ANSWER, name="answer", strict=True)

    def make(number: int) -> Request:
        asked = ask(f"Write a short poem about {topic(number)}.", tools=(GET_WEATHER,) if tools else ())
        return msgspec.structs.replace(asked, output=output, tool_choice=None)

    return make


_OUTPUT = (
    Cell(
        id="format",
        guarantee="format",
        group=CellGroup.OUTPUT,
        asks="an answer by JSON schema, and a prompt that asks for a poem",
        wants="the answer is valid under the schema",
        tries=CellTries(1, 6, 24),
        script=single(_format(tools=False), _formatted),
        fact="schema_output",
    ),
    Cell(
        id="format+tools",
        guarantee="format+tools",
        group=CellGroup.OUTPUT,
        asks="the same while a tool is on offer",
        wants="the answer is valid under the schema",
        tries=CellTries(1, 4, 12),
        script=single(_format(tools=True), _formatted),
        fact="schema_with_tools",
    ),
)


# --- parallel calls and names -------------------------------------------------------------------------------------


def _two_cities(number: int, *, parallel: bool) -> Request:
    asked = ask(
        f"What is the weather in {city(number)} and in {city(number + 7)}? Call the tool once for each city.",
        tools=(GET_WEATHER,),
        choice=ChoiceMode.AUTO,
    )
    return msgspec.structs.replace(asked, parallel_tool_calls=parallel)


def _at_most_one(_request: Request, reply: Reply) -> CellFinding:
    if not reply.calls:
        return unmeasured("no call came")
    return held() if len(reply.calls) == 1 else missed(f"calls in one reply: {len(reply.calls)}")


def _several(_request: Request, reply: Reply) -> CellFinding:
    return held() if len(reply.calls) > 1 else missed(f"calls in one reply: {len(reply.calls)}")


_PARALLEL = (
    Cell(
        id="parallel.off",
        guarantee="parallel.off",
        group=CellGroup.PARALLEL,
        asks="two things at once, parallel calls off",
        wants="at most one call",
        required=True,
        tries=CellTries(1, 4, 73),
        script=single(lambda number: _two_cities(number, parallel=False), _at_most_one),
        fact="parallel",
    ),
    Cell(
        id="parallel.on",
        guarantee="parallel.on",
        group=CellGroup.PARALLEL,
        asks="two things at once, parallel calls on",
        wants="two calls in one reply",
        duty=Owner.MODEL,
        # As often as a required cell, because `ids+several` sees several calls here alone.
        tries=CellTries(1, 3, 73),
        script=single(lambda number: _two_cities(number, parallel=True), _several),
    ),
)

#: 64 characters, the most every provider takes.
_LONG = "look_up_the_current_weather_conditions_and_forecast_for_the_city"
_ODD = "get-weather__V2_0"


def _same_name(request: Request, reply: Reply) -> CellFinding:
    if not reply.calls:
        return unmeasured("no call came")
    offered = request.tools[0]
    wrong = [call.name for call in reply.calls if isinstance(offered, Tool) and call.name != offered.name]
    return missed(f"came back as {wrong[0][:80]!r}") if wrong else held()


def _naming(name: str) -> Script:
    tool = define(name, "Return the current weather in a city.", {"city": {"type": "string"}})
    return single(
        lambda number: ask(f"What is the weather in {city(number)}?", tools=(tool,), choice=force(name)), _same_name
    )


_NAMES = tuple(
    Cell(
        id=f"name.{kind}",
        guarantee=f"name.{kind}",
        fact={"long": "name_length", "odd": "name_pattern"}[kind],
        group=CellGroup.NAMES,
        asks=asks,
        wants="the tool is called by its name",
        tries=CellTries(0, 2, 4),
        script=_naming(name),
    )
    for kind, asks, name in (
        ("long", "a tool name of 64 characters", _LONG),
        ("odd", "a tool name with hyphens, capitals and digits", _ODD),
    )
)

CELLS = (*_PARALLEL, *_SCHEMAS, *_OUTPUT, *_NAMES)
