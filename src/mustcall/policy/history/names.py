"""Tool names and call ids as one upstream accepts them, and the way back (rule 129).

The wires' own rules are kept by the codecs when a request crosses (`wire.crossing.naming`, `wire.crossing.binding`).
This map is for what a profile knows beyond them - ids of exactly nine letters and digits, names that begin with a
letter - and it holds on the same wire, too. It is built from the request alone: nothing is stored, the same history
gives the same bytes, and what comes later in a conversation never changes how what came before is spelled.

A name that must change ends in a digest of the original. An id that must change, and one that an earlier call already
has, becomes a digest; a call and its result always get the same one. A request in which everything is legal comes back
as the same object. On the way back `wire.crossing.binding` is asked first, with the outgoing request, then `restore`.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.history import Folded, beginning_of
from mustcall.core.memo import Remembered
from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, ToolCall, ToolReference, ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool, ToolChoice
from mustcall.policy.facts.profile import Profile
from mustcall.policy.history.in_order import call_ids, order_of
from mustcall.wire.crossing.naming import flat_name

__all__ = ["UNCHANGED", "NameMap"]

#: What every codec passes on as it is (`wire.crossing.naming`): a mapped name must not be mapped once more.
_LONGEST = 64
_DIGEST = 8
_MOST_TRIES = 64
_MADE_ID_LENGTH = 32
#: What every wire takes in a name or an id, whatever a model would.
_PLAIN = re.compile(r"[a-zA-Z0-9_-]+")
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9_-]+")
_NOT_WORD = re.compile(r"\W+", re.ASCII)
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_STARTS = ("", "call_", "toolu_", "fc_")

_SPEAKERS = frozenset({Role.USER, Role.SYSTEM, Role.DEVELOPER})

_Key = tuple[str | None, str]


class _Rule(msgspec.Struct, frozen=True):
    """What a name or an id must look like."""

    pattern: re.Pattern[str] | None
    length: int

    def allows(self, text: str) -> bool:
        """Tell whether the upstream takes this text."""
        if self.length and len(text) > self.length:
            return False
        return _PLAIN.fullmatch(text) is not None and (self.pattern is None or self.pattern.fullmatch(text) is not None)

    @property
    def longest(self) -> int:
        """The most characters a mapped text may have."""
        return min(self.length, _LONGEST) if self.length else _LONGEST


class NameMap:
    """The map of one request and upstream."""

    __slots__ = ("_back", "_id_rule", "_legal", "_mapped", "_name_rule", "_taken", "trivial")

    def __init__(self, request: Request, profile: Profile) -> None:
        self._name_rule, self._id_rule = _name_rule(profile), _id_rule(profile)
        self._mapped: dict[_Key, str] = {}
        self._back: dict[str, _Key] = {}
        self._taken: set[str] = set()
        self.trivial = False
        keys = list(dict.fromkeys(_keys(request)))
        self._legal = {key for key in keys if self._is_legal(key)}
        self._taken = {*map(_sent, self._legal), *_provider_names(request)}
        for key in keys:
            self._name(key)
        self.trivial = self.outgoing(request) is request

    @classmethod
    def of(cls, request: Request, profile: Profile) -> "NameMap":
        """Return the map for what this request offers and holds."""
        if _is_trivial(request, profile):
            return UNCHANGED
        return cls(request, profile)

    def outgoing(self, request: Request, log: AdaptationLog | None = None) -> Request:
        """Return the request in names and ids the upstream accepts; the same object if it is."""
        if self.trivial:
            return request
        ids = _Ids(self._id_rule)
        messages = tuple(self._message(message, ids) for message in request.messages)
        tools = tuple(self._tool(tool) for tool in request.tools)
        choice = None if request.tool_choice is None else self._choice(request.tool_choice)
        if log is not None:
            for (_, name), mapped in self._mapped.items():
                log.add(AdaptationKind.NAME_MAPPED, name, mapped)
            if ids.changed:
                log.add(AdaptationKind.ID_MAPPED, "tool_call", f"{ids.changed} ids made legal and unique")
        if _same(messages, request.messages) and _same(tools, request.tools) and choice is request.tool_choice:
            return request
        return request.evolve(messages=messages, tools=tools, tool_choice=choice)

    def choice(self, choice: ToolChoice) -> ToolChoice:
        """Return a choice in the names the upstream accepts; the same object if it is."""
        return choice if self.trivial else self._choice(choice)

    def restore(self, call: ToolCall) -> ToolCall:
        """Return an upstream's call in the name the caller knows; the same object if that is its name."""
        key = self._back.get(call.name) if call.namespace is None else None
        return call if key is None else call.evolve(namespace=key[0], name=key[1])

    # Names

    def _is_legal(self, key: _Key) -> bool:
        return self._name_rule.allows(key[1]) and self._name_rule.allows(_sent(key))

    def _name(self, key: _Key) -> str | None:
        """Return the name that must be sent instead, None if the tool's own is legal or nothing legal was found."""
        if self._is_legal(key):
            return None
        mapped = self._mapped.get(key)
        if mapped is None:
            free = (name for name in _legal_names(_sent(key), self._name_rule) if name not in self._taken)
            mapped = next(free, None)
            if mapped is not None:
                self._mapped[key] = mapped
                self._back[mapped] = key
                self._taken.add(mapped)
        return mapped

    def _bare(self, name: str) -> str:
        """Return a bare name, as choices and references hold it, in the form it is sent in."""
        if (None, name) in self._legal:
            return name
        return next((mapped for key, mapped in self._mapped.items() if key[1] == name), name)

    def _tool(self, tool: Tool | ProviderTool) -> Tool | ProviderTool:
        mapped = self._name((tool.namespace, tool.name)) if isinstance(tool, Tool) else None
        if mapped is None:
            return tool
        return tool.evolve(name=mapped, namespace=None, namespace_description=None)

    def _choice(self, choice: ToolChoice) -> ToolChoice:
        if choice.name is not None:
            own = self._mapped.get((choice.namespace, choice.name))
            mapped = own or (self._bare(choice.name) if choice.namespace is None else choice.name)
            if mapped != choice.name:
                choice = choice.evolve(name=mapped, namespace=None)
        if choice.allowed is not None:
            allowed = tuple(map(self._bare, choice.allowed))
            if allowed != choice.allowed:
                choice = choice.evolve(allowed=allowed)
        return choice

    # Messages

    def _message(self, message: Message, ids: "_Ids") -> Message:
        ids.enter(message)
        parts = tuple(self._part(part, ids) for part in message.parts)
        return message if _same(parts, message.parts) else message.evolve(parts=parts)

    def _part(self, part: Part, ids: "_Ids") -> Part:
        match part:
            case ToolCall():
                call_id = ids.call(part.id)
                mapped = self._name((part.namespace, part.name))
                if mapped is not None:
                    part = part.evolve(name=mapped, namespace=None)
                return part if call_id == part.id else part.evolve(id=call_id)
            case ToolResult():
                call_id = ids.result(part.call_id)
                content = tuple(
                    self._reference(item) if isinstance(item, ToolReference) else item for item in part.content
                )
                if call_id == part.call_id and _same(content, part.content):
                    return part
                return part.evolve(call_id=call_id, content=content)
            case _:
                return part

    def _reference(self, item: ToolReference) -> ToolReference:
        name = self._bare(item.name)
        return item if name == item.name else item.evolve(name=name)


class _Ids:
    """Call ids in the order they come: each legal, none given twice, results like their calls."""

    __slots__ = ("_given", "_open", "_rule", "_tried", "_turn", "_was_assistant", "changed")

    def __init__(self, rule: _Rule) -> None:
        self._rule = rule
        self._given: set[str] = set()
        self._open: dict[str, tuple[int, deque[str], str]] = {}
        self._tried: dict[str, int] = {}
        self._turn = 0
        self._was_assistant = False
        self.changed = 0

    def enter(self, message: Message) -> None:
        """Take note of a message: an assistant message behind another side's begins a turn."""
        assistant = message.role is Role.ASSISTANT
        self._turn += assistant and not self._was_assistant
        self._was_assistant = assistant

    def call(self, call_id: str) -> str:
        """Return the id under which a call is sent."""
        given = self._fresh(call_id)
        self._given.add(given)
        self.changed += given != call_id
        known = self._open.get(call_id)
        waiting = known[1] if known is not None and known[0] == self._turn else deque[str]()
        waiting.append(given)
        self._open[call_id] = (self._turn, waiting, given)
        return given

    def result(self, call_id: str) -> str:
        """Return the id under which a result is sent: its call's; calls of one turn are answered in order."""
        known = self._open.get(call_id)
        if known is not None:
            _, waiting, last = known
            return waiting.popleft() if waiting else last
        # Its call is not in this request (the server keeps it), so it can only be spelled as that would be.
        return call_id if self._rule.allows(call_id) else next(_legal_ids(call_id, self._rule), call_id)

    def _fresh(self, call_id: str) -> str:
        if self._rule.allows(call_id) and call_id not in self._given:
            return call_id
        # An id that comes again begins where it left off, so that a server that counts anew each round stays cheap.
        start = self._tried.get(call_id, 0)
        self._tried[call_id] = start + 1
        legal_ids = _legal_ids(call_id, self._rule, start)
        return next((legal for legal in legal_ids if legal not in self._given), call_id)


def _is_trivial(request: Request, profile: Profile) -> bool:
    """Tell cheaply whether nothing can have to be mapped: every name is legal, and so are the history's ids, if any."""
    tools, rule = request.tools, _name_rule(profile)
    if tools and not _plain_names.of(tools, rule):
        return False
    order = order_of(request)
    if order.talk is not None:
        return True
    if not order.kept:
        return all(map(_is_nameless, request.messages))
    id_rule = _id_rule(profile)
    legal = order.plain if id_rule.pattern is None else _legal_so_far.of(beginning_of(request), id_rule)
    return legal and all(map(rule.allows, order.names))


#: Whether every id of a history that is in order is legal.
_legal_so_far: Folded[bool, _Rule] = Folded(
    lambda _: True,
    lambda legal, message, rule: legal and all(map(rule.allows, call_ids(message))),
    lambda rule: rule,  # there is one object for each
)


def _is_nameless(message: Message) -> bool:
    """Tell whether a message cannot name a tool or a call."""
    return message.role in _SPEAKERS and not any(isinstance(part, ToolCall | ToolResult) for part in message.parts)


def _are_plain(tools: tuple[Tool | ProviderTool, ...], rule: _Rule) -> bool:
    return all(_is_plain(tool, rule) for tool in tools)


_plain_names = Remembered(_are_plain)


def _is_plain(tool: Tool | ProviderTool, rule: _Rule) -> bool:
    return isinstance(tool, Tool) and tool.namespace is None and rule.allows(tool.name)


def _name_rule(profile: Profile) -> _Rule:
    """Return what names must look like."""
    return _rule(profile.name_pattern, profile.name_length)


def _id_rule(profile: Profile) -> _Rule:
    """Return what ids must look like.

    Without a pattern nothing is known of them but that they tell calls apart; some proxies keep state in long ids.
    """
    return _rule(profile.id_pattern, profile.id_length if profile.id_pattern else 0)


@lru_cache(maxsize=64)
def _rule(pattern: str, length: int) -> _Rule:
    return _Rule(re.compile(pattern) if pattern else None, length)


def _same(new: tuple[object, ...], old: tuple[object, ...]) -> bool:
    return len(new) == len(old) and all(one is other for one, other in zip(new, old, strict=True))


def _keys(request: Request) -> Iterator[_Key]:
    for tool in request.tools:
        if isinstance(tool, Tool):
            yield tool.namespace, tool.name
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield part.namespace, part.name


def _provider_names(request: Request) -> Iterable[str]:
    for tool in request.tools:
        if isinstance(tool, ProviderTool):
            name = tool.value.get("name")
            if isinstance(name, str):
                yield name


def _sent(key: _Key) -> str:
    """Return the name a tool goes by where the wire has no namespaces."""
    namespace, name = key
    return flat_name(namespace, name) if namespace else name


def _legal_names(name: str, rule: _Rule) -> Iterator[str]:
    """Yield legal names for an illegal one, the most readable first; none if the rule fits no plain name."""
    for salt in range(_MOST_TRIES):
        digest = _sha(name, salt).hex()
        tail = f"_{digest[:_DIGEST]}"
        for stem in _stems(name):
            kept = stem[: max(0, rule.longest - len(tail))].rstrip("_-")
            if kept and rule.allows(kept + tail):
                yield kept + tail
        for length in range(rule.longest, 0, -1):
            if rule.allows(f"t{digest}"[:length]):
                yield f"t{digest}"[:length]
                break


def _stems(name: str) -> tuple[str, ...]:
    plain, word = _NOT_PLAIN.sub("_", name).strip("_-"), _NOT_WORD.sub("_", name).strip("_")
    return (plain, word, f"t_{plain}", f"t_{word}", f"t_{word}".lower())


def _legal_ids(call_id: str, rule: _Rule, start: int = 0) -> Iterator[str]:
    """Yield legal ids for an illegal or used one; none if the rule fits none."""
    for salt in range(start, start + _MOST_TRIES):
        number = int.from_bytes(_sha(call_id, salt))
        spellings = (_in_digits(number), f"{number:x}", str(number))
        found = next((legal for digits in spellings if (legal := _first_legal(digits, rule)) is not None), None)
        if found is None:
            return
        yield found


def _first_legal(digits: str, rule: _Rule) -> str | None:
    """Return the longest legal id made of a usual start and these digits, None if the rule fits none."""
    most = rule.longest if rule.pattern is not None else _MADE_ID_LENGTH
    for start in _ID_STARTS:
        for length in range(most, len(start), -1):
            candidate = start + digits[: length - len(start)]
            if rule.allows(candidate):
                return candidate
    return None


def _sha(text: str, salt: int) -> bytes:
    seed = f"{salt}:{text}" if salt else text
    return hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()


def _in_digits(number: int) -> str:
    digits: list[str] = []
    while number:
        number, rest = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[rest])
    return "".join(digits)


#: The map of every request in which everything is legal.
UNCHANGED = NameMap(Request(model="", messages=()), Profile())
