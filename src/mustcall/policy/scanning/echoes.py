"""What the layer itself put into a conversation, taken out of what a model says back (rule 146).

Tool results go to the model between tags, demands and reminders as sentences; small models repeat both. `echoes_in`
says what of that a request really carries, and only that is looked for: without it nothing is read at all, and a user
who writes about such tags keeps them. The eraser takes text as it streams and holds back only what may be the beginning
of an echo. Where an echo is taken out nothing new can come together from what stood around it, so erasing twice is
erasing once.

Cost: linear in the text.
"""

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache

import msgspec

from mustcall.core.history import Folded, beginning_of
from mustcall.core.memo import compile_unkept, kept
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolResult
from mustcall.core.request import Request
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.containment import TAG

__all__ = ["EchoEraser", "Echoes", "echoes_in", "erase"]

_OPENS = f'<{TAG} from="'
#: As we write one; a conversation that was begun before tags carried a digest has them without.
_BLOCK = re.compile(
    rf'<{TAG} from="[^"\n]*" id="([0-9a-f]+)"(?: escaped="\d+")?>\n.*?\n</{TAG} id="\1">'
    rf'|<{TAG} from="[^"\n]*">\n.*?\n</{TAG}>',
    re.DOTALL,
)
#: As a model writes one: with other attributes or with none, never closed, or with a text for which only its name goes.
_WRITTEN = rf"(?i:</?{TAG}(?:[^<>\n]{{0,256}}(?:>|(?=[<\n]))|(?=[^<>\n]{{257}})))"
_BEGUN = re.compile(rf"(?i:</?{TAG}[^<>\n]*)\Z")
_BEGINNINGS = (f"<{TAG}", f"</{TAG}")
#: No echo is longer; a sentence of ours that is longer is not looked for.
_LONGEST = 400
#: Nor is one that anybody might write.
_SHORTEST = 20

#: The sentences of ours that stand in a conversation as turns or behind results.
_SENTENCES = (
    "call_named",
    "call_any",
    "text_call",
    "format_correction",
    "phantom_call",
    "unknown_tool",
    "bad_arguments",
    "bad_answer",
    "truncated",
    "empty",
    "thinking_only",
    "looping",
    "answer_worked",
    "step_cap",
    "answer_again",
)
_PLACE = re.compile(r"\\\{\w+\\\}")


class Echoes(msgspec.Struct, frozen=True):
    """What is looked for in a reply: the tags around results, and these sentences."""

    tags: bool = False
    sentences: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.tags or bool(self.sentences)


_NOTHING = Echoes()


def echoes_in(caller: Request, sent: Request, wording: Wording) -> Echoes:
    """Return what a model may echo: of the caller's request, and of the one that is sent."""
    tags = _tagged.of(beginning_of(caller), None) is _Tags.AROUND
    sentences = tuple(dict.fromkeys(_said(caller, sent, wording)))
    return Echoes(tags, sentences) if tags or sentences else _NOTHING


class _Tags(Enum):
    """Our tags in a history: none, around results, or spoken of by somebody."""

    NONE = 0
    AROUND = 1
    SPOKEN_OF = 2


def _with_tags(tags: _Tags, message: Message, _: None) -> _Tags:
    """Tell of our tags with one message more; of those that somebody speaks of none is ours to take out."""
    if tags is _Tags.SPOKEN_OF:
        return tags
    for part in message.parts:
        if isinstance(part, ToolResult):
            if tags is _Tags.NONE and any(isinstance(piece, Text) and _OPENS in piece.text for piece in part.content):
                tags = _Tags.AROUND
        elif isinstance(part, Text) and message.role is Role.USER and TAG in part.text:
            if TAG in _BLOCK.sub("", part.text):
                return _Tags.SPOKEN_OF
            tags = _Tags.AROUND
    return tags


_tagged: Folded[_Tags, None] = Folded(lambda _: _Tags.NONE, _with_tags)


def _said(caller: Request, sent: Request, wording: Wording) -> Iterator[str]:
    """Return the sentences of ours behind the last thing the model said; nothing before it is answered now."""
    pattern, told = _patterns(wording)
    for message in reversed(sent.messages):
        if message.role is Role.ASSISTANT:
            if sent is not caller:  # results told as the model's own words
                yield from (found[0].rstrip() for text in _texts(message) for found in told.finditer(text[:_LONGEST]))
            return
        for text in _texts(message):
            if _SHORTEST <= len(text) <= _LONGEST and pattern.fullmatch(text.strip()):
                yield text.strip()


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, Text):
            yield part.text
        elif isinstance(part, ToolResult):
            yield from (piece.text for piece in part.content if isinstance(piece, Text))


@lru_cache(maxsize=16)
def _patterns(wording: Wording) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what matches a sentence of ours, and the beginning of a result told in words."""
    sentences: list[str] = []
    for name in _SENTENCES:
        value: str | tuple[str, ...] = getattr(wording, name)
        sentences += (value,) if isinstance(value, str) else value
    told = wording.result_worked.partition("{result}")[0].strip()
    return re.compile("|".join(map(_filled, sentences))), re.compile(_filled(told))


def _filled(sentence: str) -> str:
    return _PLACE.sub(lambda _: r"[^\n]{0,300}?", re.escape(sentence))


class EchoEraser:
    """Takes echoes out of one text as it comes."""

    __slots__ = ("_begins", "_echoes", "_held", "_swallows", "_tail", "_whole", "erased", "fed")

    def __init__(self, echoes: Echoes) -> None:
        self._echoes = echoes
        self._begins, self._whole = _compiled(echoes)
        self._held = ""
        self._tail = ""
        self._swallows = False
        #: Whether something was taken out.
        self.erased = False
        #: How many characters were fed.
        self.fed = 0

    @property
    def holds(self) -> bool:
        """Whether some text waits because an echo may have begun."""
        return bool(self._held)

    def feed(self, text: str) -> str:
        """Take more text and return what may be shown; the same object where all of it may."""
        self.fed += len(text)
        if not (self._held or self._swallows) and self._begins.search(text) is None:
            self._show(text)
            return text
        data = self._held + text
        self._held = ""
        out: list[str] = []
        start = place = self._skip_line_end(data, 0)
        while (found := self._begins.search(data, place)) is not None:
            place = found.start()
            whole = self._whole.match(data, place)
            if whole is not None:
                self._put(out, data[start:place])
                start = place = self._cut(out, data, whole.end())
            elif len(data) - place <= _LONGEST and self._may_begin(data[place:]):
                self._held = data[place:]
                break
            else:
                place += 1
        end = len(data) - len(self._held)
        self._put(out, data[start:end])
        shown = "".join(out)
        return text if shown == text else shown

    def close(self) -> str:
        """Take the end of the text and return what waited; a tag that was cut off is an echo all the same."""
        held, self._held = self._held, ""
        if self._echoes.tags and _BEGUN.match(held):
            self.erased = True
            return ""
        return held

    def _cut(self, out: list[str], data: str, end: int) -> int:
        """Take out an echo that ends here, and its line end; return where the text goes on."""
        self.erased = True
        tail = self._tail
        if any(self._may_begin(tail[found.start() :]) for found in self._begins.finditer(tail)):
            self._put(out, " ")  # what stood around the echo must not become another
        self._swallows = True
        return self._skip_line_end(data, end)

    def _skip_line_end(self, data: str, place: int) -> int:
        if not self._swallows or place == len(data):
            return place
        self._swallows = False
        return place + 1 if data[place] == "\n" else place

    def _put(self, out: list[str], text: str) -> None:
        if text:
            out.append(text)
            self._show(text)

    def _show(self, text: str) -> None:
        self._tail = text[-_LONGEST:] if len(text) >= _LONGEST else (self._tail + text)[-_LONGEST:]

    def _may_begin(self, text: str) -> bool:
        """Tell whether a text may go on to be an echo."""
        if any(len(text) < len(sentence) and sentence.startswith(text) for sentence in self._echoes.sentences):
            return True
        if not self._echoes.tags:
            return False
        lowered = text.lower()
        return any(beginning.startswith(lowered) for beginning in _BEGINNINGS) or _BEGUN.match(text) is not None


@kept(most=64)
def _compiled(echoes: Echoes) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what matches the first character of an echo, and a whole one."""
    first: Iterable[str] = {sentence[0] for sentence in echoes.sentences} | ({"<"} if echoes.tags else set())
    forms = [*([_WRITTEN] if echoes.tags else []), *map(re.escape, sorted(echoes.sentences, key=len, reverse=True))]
    return compile_unkept(f"[{re.escape(''.join(sorted(first)))}]"), compile_unkept("|".join(forms))


def erase(text: str, echoes: Echoes) -> str:
    """Return a whole text without echoes; the same object if it holds none."""
    eraser = EchoEraser(echoes)
    shown = eraser.feed(text)
    rest = eraser.close()
    return shown + rest if eraser.erased else text
