"""What a request can be made smaller by, on each wire: tools, messages, settings, schema properties, texts.

Works on the request's own JSON, so that what is left of it is as the caller wrote it. A call and its results are one
unit: half of such a pair is refused by providers for another reason than the one looked for. Pure.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import msgspec

from mustcall.core.origin import JsonObject, Wire
from mustcall.replay.reducing import ReductionPhase

__all__ = ["Size", "masked", "phases_for", "size_of"]

#: Fields without which a body is no request, by wire; a tool choice belongs to the tools.
_NEEDED = {
    Wire.CHAT: frozenset({"model", "messages", "tools"}),
    Wire.RESPONSES: frozenset({"model", "input", "tools"}),
    Wire.MESSAGES: frozenset({"model", "messages", "tools", "max_tokens"}),
}
#: Fields that go with another one.
_WITH = {"stream_options": "stream"}
_CHOICE = ("tool_choice", "parallel_tool_calls")
#: Fields by which calls and their results are told, in messages and in what they hold.
_IDS = frozenset({"tool_call_id", "tool_use_id", "call_id"})
#: Texts that are not cut any further, in characters.
_SHORTEST = 24
_DEEPEST = 32

Body = JsonObject


class Size(msgspec.Struct, frozen=True):
    """How large a request is."""

    tools: int
    messages: int
    bytes: int

    @property
    def tool_words(self) -> str:
        """The number of tools, `1 tool`."""
        return f"{self.tools} tool{'' if self.tools == 1 else 's'}"

    @property
    def message_words(self) -> str:
        """The number of messages, `2 messages`."""
        return f"{self.messages} message{'' if self.messages == 1 else 's'}"


def size_of(body: Body, wire: Wire) -> Size:
    """Return the size of a request."""
    return Size(len(_tools(body)), len(_messages(body, wire)), len(msgspec.json.encode(body)))


def phases_for(wire: Wire) -> tuple[ReductionPhase[Body], ...]:
    """Return the ways to make a request of this wire smaller, in the order in which they save most."""
    return (
        ReductionPhase("tools", lambda body: len(_tools(body)), _keep_tools, again=True),
        ReductionPhase(
            "messages",
            lambda body: len(_units(body, wire)),
            lambda body, kept: _keep_messages(body, wire, kept),
            again=True,
        ),
        ReductionPhase(
            "settings", lambda body: len(_settings(body, wire)), lambda body, kept: _keep_settings(body, wire, kept)
        ),
        ReductionPhase("schema properties", lambda body: len(_properties(body)), _keep_properties),
        ReductionPhase("descriptions", lambda body: len(_descriptions(body)), _keep_descriptions),
        ReductionPhase(
            "texts", lambda body: len(_pieces(body, wire)), lambda body, kept: _keep_pieces(body, wire, kept)
        ),
    )


# --- tools and messages ----------------------------------------------------------------------------------------------


def _field(wire: Wire) -> str:
    return "input" if wire is Wire.RESPONSES else "messages"


def _tools(body: Body) -> list[Any]:
    return _list(body.get("tools"))


def _messages(body: Body, wire: Wire) -> list[Any]:
    return _list(body.get(_field(wire)))


def _keep_tools(body: Body, kept: Sequence[int]) -> Body | None:
    tools = [tool for place, tool in enumerate(_tools(body)) if place in kept]
    if not tools:
        return {name: value for name, value in body.items() if name not in ("tools", *_CHOICE)}
    named = _chosen(body)
    if named and named not in map(_name, tools):
        return None
    return {**body, "tools": tools}


def _name(tool: Any) -> str:
    """Return the name of a tool on any wire."""
    holder = _object(tool)
    return str(holder.get("name") or _object(holder.get("function")).get("name") or "")


def _chosen(body: Body) -> str:
    """Return the tool that the choice names, empty where it names none."""
    choice = _object(body.get("tool_choice"))
    return _name(choice) if choice else ""


def _units(body: Body, wire: Wire) -> list[list[int]]:
    """Return the places of messages that stay or go together: each by itself, calls with their results."""
    groups: list[tuple[set[str], list[int]]] = []
    for place, message in enumerate(_messages(body, wire)):
        ids = set(_ids(message))
        joined = [group for group in groups if group[0] & ids]
        merged = (ids.union(*(group[0] for group in joined)), sorted([place, *(p for g in joined for p in g[1])]))
        groups = [group for group in groups if group not in joined]
        groups.append(merged)
    return sorted(places for _, places in groups)


def _ids(message: Any, depth: int = 0) -> Iterator[str]:
    """Yield the ids of the calls and results in a message."""
    if depth > _DEEPEST:
        return
    if isinstance(message, list):
        for item in cast("list[Any]", message):
            yield from _ids(item, depth + 1)
        return
    holder = _object(message)
    for name in _IDS.intersection(holder):
        yield str(holder[name])
    if holder.get("type") == "tool_use" and "id" in holder:
        yield str(holder["id"])
    for call in _list(holder.get("tool_calls")):
        yield str(_object(call).get("id", ""))
    yield from _ids(holder.get("content"), depth + 1) if isinstance(holder.get("content"), list) else ()


def _keep_messages(body: Body, wire: Wire, kept: Sequence[int]) -> Body | None:
    units = _units(body, wire)
    places = {place for unit in kept for place in units[unit]}
    messages = [message for place, message in enumerate(_messages(body, wire)) if place in places]
    return {**body, _field(wire): messages} if messages else None


# --- settings and schemas --------------------------------------------------------------------------------------------


def _settings(body: Body, wire: Wire) -> list[str]:
    return [name for name in body if name not in _NEEDED[wire] and name not in _WITH]


def _keep_settings(body: Body, wire: Wire, kept: Sequence[int]) -> Body:
    names = _settings(body, wire)
    gone = {name for place, name in enumerate(names) if place not in kept}
    gone |= {name for name, other in _WITH.items() if other in gone or other not in body}
    return {name: value for name, value in body.items() if name not in gone}


_Path = tuple[str | int, ...]


def _schemas(body: Body) -> Iterator[tuple[_Path, JsonObject]]:
    """Yield the schema of each tool with where it stands."""
    for place, tool in enumerate(_tools(body)):
        holder = _object(tool)
        for path in (("function", "parameters"), ("parameters",), ("input_schema",)):
            found: Any = holder
            for step in path:
                found = _object(found).get(step)
            if isinstance(found, dict):
                yield ("tools", place, *path), cast("JsonObject", found)
                break


def _properties(body: Body) -> list[_Path]:
    """Return where each property of each tool's schema stands, outer ones before inner ones."""
    found: list[_Path] = []
    for path, schema in _schemas(body):
        waiting: list[tuple[_Path, Any]] = [(path, schema)]
        for at, node in waiting:
            if len(at) > _DEEPEST:
                continue
            held = _object(node)
            for name, member in _object(held.get("properties")).items():
                found.append((*at, "properties", name))
                waiting.append(((*at, "properties", name), member))
            if isinstance(held.get("items"), dict):
                waiting.append(((*at, "items"), held["items"]))
    return found


def _keep_properties(body: Body, kept: Sequence[int]) -> Body:
    paths = _properties(body)
    gone = {path for place, path in enumerate(paths) if place not in kept}

    def without(at: _Path, node: Any) -> Any:
        held = _object(node)
        dropped = {name for name in _object(held.get("properties")) if (*at, "properties", name) in gone}
        if not dropped:
            return node
        left = {name: value for name, value in held["properties"].items() if name not in dropped}
        changed = {**held, "properties": left}
        if isinstance(held.get("required"), list):
            changed["required"] = [name for name in held["required"] if name not in dropped]
        return changed

    return cast("Body", _rewritten(body, without))


def _descriptions(body: Body) -> list[_Path]:
    """Return where a tool or a property is described."""
    found: list[_Path] = []

    def look(at: _Path, node: Any) -> Any:
        if at[:1] == ("tools",) and isinstance(_object(node).get("description"), str):
            found.append(at)
        return node

    _rewritten(body, look)
    return found


def _keep_descriptions(body: Body, kept: Sequence[int]) -> Body:
    gone = {path for place, path in enumerate(_descriptions(body)) if place not in kept}

    def without(at: _Path, node: Any) -> Any:
        return {name: node[name] for name in node if name != "description"} if at in gone else node

    return cast("Body", _rewritten(body, without))


# --- texts -----------------------------------------------------------------------------------------------------------


def _texts(body: Body, wire: Wire) -> list[_Path]:
    """Return where the long texts of messages and prompts stand."""
    found: list[_Path] = []

    def look(at: _Path, node: Any) -> Any:
        for name in ("content", "text", "output"):
            text = _object(node).get(name)
            if isinstance(text, str) and len(text) > _SHORTEST:
                found.append((*at, name))
        return node

    _rewritten({_field(wire): body.get(_field(wire))}, look)
    prompts = [name for name in ("system", "instructions", "input") if isinstance(body.get(name), str)]
    return [*found, *((name,) for name in prompts if len(body[name]) > _SHORTEST)]


def _pieces(body: Body, wire: Wire) -> list[tuple[_Path, str]]:
    """Return the long texts in pieces of a few words, so that bisection halves them."""
    return [(path, piece) for path in _texts(body, wire) for piece in _split(_at(body, path))]


def _keep_pieces(body: Body, wire: Wire, kept: Sequence[int]) -> Body:
    texts: dict[_Path, str] = {}
    for place, (path, piece) in enumerate(_pieces(body, wire)):
        texts[path] = texts.get(path, "") + (piece if place in kept else "")

    def put(at: _Path, node: Any) -> Any:
        changed = {name: texts[*at, name] for name in _object(node) if (*at, name) in texts}
        return {**node, **changed} if changed else node

    return cast("Body", _rewritten(body, put))


def _split(text: str) -> list[str]:
    """Return a text in pieces of about the least length, cut before a word where there is one."""
    pieces: list[str] = []
    open_piece = ""
    for word in re.findall(rf"\S{{1,{_SHORTEST}}}\s*|\s+", text):
        open_piece += word
        if len(open_piece) >= _SHORTEST:
            pieces.append(open_piece)
            open_piece = ""
    return [*pieces, open_piece] if open_piece else pieces


def masked(body: Body) -> Body:
    """Return a request whose texts say nothing: letters are `x`, digits `0`; lengths, names and structure stay.

    Numbers among the arguments of calls become ones of as many digits.
    """
    return cast("Body", _masked(body, "", depth=0))


#: Fields whose text is what somebody said; every other text is the wire's or a schema's own word.
_SAID = frozenset({"content", "text", "description", "output", "instructions", "system", "input", "arguments", "title"})


def _masked(value: Any, name: str, *, depth: int) -> Any:
    if isinstance(value, str):
        if name not in _SAID:
            return value
        return _mask(value)
    if depth > _DEEPEST * 4:
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_masked(item, name, depth=depth + 1) for item in items]
    if isinstance(value, dict):
        fields = cast("JsonObject", value)
        return {key: _masked_field(held, key, depth=depth + 1) for key, held in fields.items()}
    return value


def _masked_field(value: Any, name: str, *, depth: int) -> Any:
    """Mask a field; the arguments of a call keep their names and stay JSON."""
    if name == "input" and isinstance(value, dict):
        return _hidden(value)
    if name == "arguments" and isinstance(value, str) and _is_json(value):
        return _TOKEN.sub(lambda found: found[0] if found["name"] else _hidden_token(found[0]), value)
    return _masked(value, name, depth=depth)


#: What arguments written as JSON are made of: names of fields, texts, numbers.
_TOKEN = re.compile(
    r'(?P<name>"(?:[^"\\]|\\.)*"(?=\s*:))|"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?', re.DOTALL
)
_LETTER = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|.", re.DOTALL)


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _hidden_token(token: str) -> str:
    """Mask a text or a number as JSON writes it; what is escaped stays so."""
    if not token.startswith('"'):
        return re.sub(r"\d", "1", token)
    return _LETTER.sub(lambda one: one[0] if one[0].startswith("\\") else _mask(one[0]), token)


def _hidden(value: Any) -> Any:
    """Mask every text and number among arguments, the names of fields excepted."""
    if isinstance(value, dict):
        return {key: _hidden(held) for key, held in cast("JsonObject", value).items()}
    if isinstance(value, list):
        return [_hidden(item) for item in cast("list[Any]", value)]
    if isinstance(value, str):
        return _mask(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return msgspec.json.decode(re.sub(r"\d", "1", msgspec.json.encode(value).decode()))
    return value


def _mask(text: str) -> str:
    return "".join("x" if one.isalpha() else "0" if one.isdigit() else one for one in text)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _rewritten(value: Any, change: Callable[[_Path, Any], Any], at: _Path = ()) -> Any:
    """Return a document with every object changed, outer ones first; what is not changed is the same object."""
    if len(at) > _DEEPEST * 2:
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_rewritten(item, change, (*at, place)) for place, item in enumerate(items)]
    if isinstance(value, dict):
        fields = cast("JsonObject", change(at, value))
        return {name: _rewritten(held, change, (*at, name)) for name, held in fields.items()}
    return value


def _at(value: Any, path: _Path) -> str:
    for step in path:
        value = value[step]
    return str(value)


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
