"""Which tool a user's words call for (rules 12 to 19), and where in a request the user's latest words are.

A rule is data: triggers, signs and a target tool. Only the latest user message counts, and only until a tool result
answers it. Nothing here knows the caller's own choice, settings or models: what a match leads to is
`policy.request.demand`'s.

Triggers are phrases, not regular expressions:

- Case does not matter, nor do compatibility forms of letters (full width, ligatures).
- A phrase matches whole words only: `hero os` is in "What is Hero OS?", not in "heroes" or "hero osmosis". Between two
  words any blanks or hyphens may stand. Scripts written without blanks have no word borders.
- `*` stands for any number of letters, digits and underscores, none included, within one word: `hero_*` is in
  "hero_docs" and "hero_", not in "hero". Every other character stands for itself.
- `|` separates alternatives.

Cost: linear in the text for each trigger, and next to nothing where the trigger's longest literal does not occur. A
star is confined to one word and matching starts only where a word does, so each character is looked at no more often
than a trigger has words.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.history import Folded, beginning_of
from mustcall.core.memo import compile_unkept, kept
from mustcall.core.message import Message, Role, holds_result
from mustcall.core.parts import Part, Text, ToolResult
from mustcall.core.request import Request
from mustcall.core.text.nearest import did_you_mean
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.facts.checking import check_kind
from mustcall.policy.words.signs import MessageSign, shows
from mustcall.wire.crossing.naming import flat_name

__all__ = [
    "GroundingMatch",
    "GroundingRule",
    "LatestInput",
    "check_rules",
    "find_rule",
    "input_of",
    "is_offered",
    "latest_input",
    "matching_rules",
    "offered_tool",
]

#: Tags around text that a client adds to a user turn by itself; what stands in them is not the user's.
#: Observed: Claude Code puts reminders behind tool results and into first messages, Codex sends its surroundings.
_CLIENT_TAGS = ("system-reminder", "environment_context", "user_instructions")

#: Scripts written without blanks: Thai to Khmer, kana, Han, Hangul (whose particles follow without one).
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
_LETTER = rf"[^\W{_UNSPACED}]"
_BETWEEN = r"[\s\-]++"


class GroundingRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """If the latest user message matches a trigger or a sign, the first step must call `tool` (rule 12).

    Raise `ConfigError` for a field of another type, and for an unknown sign.
    """

    name: str
    triggers: Sequence[str] | str = ()
    tool: str
    #: What the message may look like instead (`policy.words.signs`): a sum, a file to be read.
    signs: tuple[MessageSign, ...] = ()
    #: What is said to the model besides the force; the default sentence if None (rule 17).
    directive: str | None = None

    def __post_init__(self) -> None:
        check_kind("grounding rule: name", self.name, str)
        where = f"grounding rule {self.name!r}"
        check_kind(f"{where}: tool", self.tool, str, "the name of a tool")
        check_kind(f"{where}: directive", self.directive, str | None, "str")
        msgspec.structs.force_setattr(self, "triggers", _phrases_in(where, self.triggers))
        msgspec.structs.force_setattr(self, "signs", _signs_in(where, self.signs))


class GroundingMatch(msgspec.Struct, frozen=True):
    """A rule whose trigger matched, and whether its tool is on offer."""

    rule: GroundingRule
    offered: bool


class LatestInput(msgspec.Struct, frozen=True):
    """The user's latest message: its texts, and the messages that came after it.

    Without any user message `texts` is empty and `after` is everything.
    """

    texts: tuple[str, ...]
    after: tuple[Message, ...]

    @property
    def answered(self) -> bool:
        """Whether a tool result is already there (rules 11, 13)."""
        return any(map(holds_result, self.after))

    @property
    def rounds(self) -> int:
        """The tool rounds since: runs of results with nothing of the model's between them.

        Results are counted, not calls, because with server-kept state (`previous_response_id`) only they are here.
        """
        count, running = 0, False
        for message in self.after:
            if holds_result(message):
                count += not running
                running = True
            elif message.role is Role.ASSISTANT:
                running = False
        return count


def latest_input(request: Request) -> LatestInput:
    """Find the user's latest message.

    Tool results are not the user's words, so a user turn of nothing else is no user message. In a turn that mixes the
    two, the text behind the last result is what other wires carry as a user message of its own, and counts as one;
    blank text and media there belong to the results. Text that a client adds by itself never counts.
    """
    messages = request.messages
    _, latest = _latest.of(beginning_of(request), None)
    return LatestInput(input_of(messages[latest - 1].parts) or () if latest else (), messages[latest:])


def _next(state: tuple[int, int], message: Message, _: None) -> tuple[int, int]:
    """Return the number of messages with one more, and the number of the user's latest; 0 is none."""
    number = state[0] + 1
    return number, number if message.role is Role.USER and input_of(message.parts) is not None else state[1]


_latest: Folded[tuple[int, int], None] = Folded(lambda _: (0, 0), _next)


def find_rule(rules: Sequence[GroundingRule], request: Request) -> GroundingMatch | None:
    """Return the rule that applies to a request: the first match whose tool is on offer, else the first match."""
    found = matching_rules(rules, request)
    return next((match for match in found if match.offered), found[0] if found else None)


def matching_rules(rules: Sequence[GroundingRule], request: Request) -> tuple[GroundingMatch, ...]:
    """Return every rule that matches, in order; none once a tool result answers the user's message (rule 13)."""
    if not rules:
        return ()
    latest = latest_input(request)
    if latest.answered:
        return ()
    return tuple(GroundingMatch(rule, is_offered(request, rule.tool)) for rule in _matches(rules, latest.texts))


def offered_tool(request: Request, name: str, namespace: str | None = None) -> Tool | None:
    """Return the client-side tool of that name: bare, in its namespace, or flat (`namespace__name`)."""
    return next((tool for tool in request.tools if isinstance(tool, Tool) and _is_called(tool, name, namespace)), None)


def is_offered(request: Request, name: str, namespace: str | None = None) -> bool:
    """Tell whether a tool can be called by that name: one of the caller's, or one its provider defines (`bash`)."""
    if offered_tool(request, name, namespace) is not None:
        return True
    return any(isinstance(tool, ProviderTool) and tool.value.get("name") == name for tool in request.tools)


def _phrases_in(where: str, triggers: object) -> tuple[str, ...] | str:
    if isinstance(triggers, str):
        return triggers
    check_kind(f"{where}: triggers", triggers, Iterable, wanted := "a phrase or a list of them")
    given = tuple(cast("Iterable[object]", triggers))
    if not all(isinstance(each, str) for each in given):
        raise ConfigError(f"{where}: triggers must be {wanted}, got {triggers!r}")
    return cast("tuple[str, ...]", given)  # each was looked at


def _signs_in(where: str, signs: object) -> tuple[MessageSign, ...]:
    check_kind(f"{where}: signs", signs, Iterable, "a list")
    given = (signs,) if isinstance(signs, str) else tuple(cast("Iterable[object]", signs))
    for sign in given:
        if sign not in list(MessageSign):
            meant = did_you_mean(sign, map(str, MessageSign)) if isinstance(sign, str) else ""
            raise ConfigError(f"{where}: there is no sign {sign!r}; there are: {', '.join(MessageSign)}{meant}")
    return tuple(map(MessageSign, given))


def check_rules(rules: Iterable[GroundingRule]) -> None:
    """Raise `ConfigError` for the first rule that cannot work, naming it and the fix."""
    seen: set[str] = set()
    for number, rule in enumerate(rules, start=1):
        check_kind("rules", rule, GroundingRule)
        where = f"grounding rule {rule.name!r}" if rule.name.strip() else f"grounding rule number {number}"
        if not rule.name.strip():
            raise ConfigError(f"{where}: name must not be blank; reports and traces call the rule by it")
        if rule.name in seen:
            raise ConfigError(f"{where}: two rules have this name; give each a name of its own")
        seen.add(rule.name)
        if not rule.tool.strip():
            raise ConfigError(f"{where}: tool must name the tool to call")
        triggers = _alternatives(rule.triggers)
        if not triggers and not rule.signs:
            raise ConfigError(f"{where}: triggers must hold at least one phrase, such as 'hero os'")
        for trigger in triggers:
            if not any(map(_is_solid, trigger)):
                raise ConfigError(
                    f"{where}: the trigger {trigger!r} would match nearly every message; "
                    "write a phrase with a letter or digit in it"
                )
        if rule.directive is not None and not rule.directive.strip():
            raise ConfigError(f"{where}: directive must not be blank; leave it out to get the default sentence")


def input_of(parts: Sequence[Part]) -> tuple[str, ...] | None:
    """Return the user's texts in a user message, None if it is no message of the user's."""
    if len(parts) == 1 and isinstance(parts[0], Text) and "<" not in parts[0].text:  # most messages, and no tag in it
        text = parts[0].text
        return (text,) if text and not text.isspace() else ()
    last = max((index for index, part in enumerate(parts) if isinstance(part, ToolResult)), default=-1)
    written = [part.text for part in parts[last + 1 :] if isinstance(part, Text)]
    own = [_without_client_text(text) for text in written]
    texts = tuple(text for text in own if text.strip())
    if texts:
        return texts
    if last >= 0:
        return None
    # Nothing but what the client added is not the user's; an empty or purely visual message is.
    added = any(text.strip() for text in written) and all(isinstance(part, Text) for part in parts)
    return None if added else ()


def _without_client_text(text: str) -> str:
    for tag in _CLIENT_TAGS:
        opener, closer = f"<{tag}>", f"</{tag}>"
        if opener not in text:
            continue
        kept: list[str] = []
        position = 0
        while (start := text.find(opener, position)) >= 0:
            end = text.find(closer, start)
            if end < 0:
                break
            kept.append(text[position:start])
            position = end + len(closer)
        text = "".join([*kept, text[position:]])
    return text


def _matches(rules: Iterable[GroundingRule], texts: Iterable[str]) -> Iterator[GroundingRule]:
    given = list(texts)
    plain = [_plain(text) for text in given]
    if not plain:
        return
    for rule in rules:
        phrases = _phrases(rule.triggers)
        if any(
            anchor in text and _expression(phrase).search(text) for text in plain for anchor, phrase in phrases
        ) or any(shows(sign, text) for sign in rule.signs for text in given):
            yield rule


def _is_called(tool: Tool, name: str, namespace: str | None) -> bool:
    if namespace is not None:
        return tool.name == name and tool.namespace == namespace
    return name == tool.name or (tool.namespace is not None and name == flat_name(tool.namespace, tool.name))


def _plain(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _alternatives(triggers: Sequence[str]) -> list[str]:
    given = (triggers,) if isinstance(triggers, str) else triggers
    return [phrase for trigger in given for phrase in map(str.strip, trigger.split("|")) if phrase]


def _is_solid(character: str) -> bool:
    return character.isalnum()


@kept(most=1024, most_bytes=None)
def _phrases(triggers: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return each phrase with its longest literal, which most texts do not hold."""
    # A phrase without a letter or digit is refused by `check_rules`; here it matches nothing.
    return tuple(
        (max((piece for word in phrase.split() for piece in word.split("*")), key=len), phrase)
        for phrase in map(_plain, _alternatives(triggers))
        if any(map(_is_solid, phrase))
    )


@kept(most=4096, most_bytes=None)
def _expression(phrase: str) -> re.Pattern[str]:
    """Return the expression for a phrase: made when a text holds its literal, because compiling takes milliseconds."""
    return compile_unkept(_BETWEEN.join(map(_word, phrase.split())))


def _word(word: str) -> str:
    """Return the expression for one word of a phrase. Where a star ends is settled before anything follows.

    The border before a word is checked behind its first literal, so that the search can jump from one to the next.
    """
    first, *others = word.split("*")
    expression = re.escape(first)
    if not first:
        expression = rf"(?<!{_LETTER})"
    elif _is_letter(first[0]):
        expression += rf"(?<!{_LETTER}{re.escape(first)})"
    after = rf"(?!{_LETTER})" if _is_letter(word[-1]) else ""
    if not others:
        return expression + after
    *inner, last = others
    # The first place where each inner piece fits leaves the most room for what follows, so none is tried twice.
    expression += "".join(rf"(?>{_LETTER}*?{re.escape(piece)})" for piece in inner if piece)
    return expression + (rf"(?>{_LETTER}*{re.escape(last)}{after})" if last else rf"{_LETTER}*+")


def _is_letter(character: str) -> bool:
    return re.fullmatch(_LETTER, character) is not None
