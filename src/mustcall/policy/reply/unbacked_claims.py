"""Whether an answer says that something was done which no call did: "I've posted it", and nothing was posted.

It reads words and compares them with the calls that really ran; no model is asked. Tables say which words claim which
act, and which words in a tool's name or description make it one that could have done it. It is made to keep silent
where there is doubt: only plain English statements count, a tool of unknown purpose could have done anything, and what
is quoted, asked, denied or only possible is no claim.

Cost: linear in the text.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

__all__ = ["ActedCall", "Backing", "Claims", "UnbackedClaim", "unbacked_claims"]


class Claims(StrEnum):
    """Whether answers are checked against the calls that ran."""

    OFF = "off"
    REPORT = "report"


class Backing(StrEnum):
    """What there is behind a claim."""

    DONE = "done"
    NOTHING = "nothing"  # no call that could have done it
    FAILED = "failed"  # one was made, and it did not succeed
    UNKNOWN = "unknown"  # one was made, and whether it took effect is not known


class ActedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call as far as it matters here. `acts` is False for a tool that changes nothing."""

    name: str
    description: str = ""
    backing: Backing = Backing.DONE
    acts: bool = True


class UnbackedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence that claims an act, and what there is behind it; `tools` are the calls that could have done it."""

    act: str
    sentence: str
    backing: Backing
    tools: tuple[str, ...] = ()


class _Act(msgspec.Struct, frozen=True):
    """An act: the words that claim it, and the words of tools that could carry it out.

    What can also be done to a text in the answer itself (`in_words`) is only a claim where a tool for it is on offer.
    """

    name: str
    said: tuple[str, ...]
    tools: frozenset[str]
    in_words: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _act(name: str, said: str, tools: str, *, in_words: bool = False) -> _Act:
    return _Act(name, tuple(said.split()), _words(tools), in_words)


_ACTS = (
    _act(
        "send",
        "sent emailed e-mailed mailed texted messaged notified forwarded",
        "send sends email emails mail mails sms text message messages notify notifies forward reply post dispatch",
    ),
    _act(
        "post",
        "posted published tweeted uploaded",
        "post posts publish publishes tweet upload uploads share comment send put create write push",
    ),
    _act(
        "create",
        "created added inserted registered filed",
        "create creates add adds insert inserts register file make new open put write post set append upsert submit",
        in_words=True,
    ),
    _act(
        "update",
        "updated changed modified edited renamed replaced",
        "update updates change changes modify edit edits rename set patch put write replace upsert move save",
        in_words=True,
    ),
    _act(
        "delete",
        "deleted removed erased cancelled canceled unsubscribed",
        "delete deletes remove removes erase clear drop rm purge cancel cancels unsubscribe update set close",
        in_words=True,
    ),
    _act(
        "save",
        "saved stored wrote recorded",
        "save saves store stores write writes record records log put create append note insert add update set",
        in_words=True,
    ),
    _act(
        "book",
        "booked reserved scheduled ordered purchased bought",
        "book books reserve schedule schedules order orders buy purchase calendar create add event submit",
    ),
    _act(
        "pay",
        "paid transferred refunded charged",
        "pay pays payment transfer transfers refund charge wire send",
    ),
    _act(
        "deploy",
        "deployed restarted merged pushed committed installed",
        "deploy deploys restart merge push commit install release git",
    ),
)

#: Tools that could have done anything: what they do is in their arguments.
_ANYTHING = _words(
    "run runs exec execute shell bash terminal command cmd python script code sql http request api call invoke browser "
    "computer click agent task workflow do perform"
)
#: Tools that only look, by the first word of their name.
_LOOKS = _words(
    "get look lookup search find list read fetch query show check view describe count calculate calc compute"
)

_KEPT_APART = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|^[ \t]*>.*$", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+(?=\s|$)|\.(?=\S)[^.!?\n]*)*[.!?]*")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: A sentence with one of these asks, denies, plans or supposes.
_DOUBT = re.compile(
    r"\b(?:not|never|no|none|unable|fail(?:s|ed)?|without|if|once|when|until|unless|would|could|should|might|may|will|"
    r"can|cannot|want|wants|like|please|need|needs|let|try|tried|were|suppose|assum\w+|example|draft\w*|pretend\w*|"
    r"simulat\w+|hypothetical\w*|earlier|previously|yesterday|ago)\b|n['\u2019]t\b|['\u2019]ll\b|['\u2019]d\b",
    re.IGNORECASE,
)
_SAID = "|".join(re.escape(word) for act in _ACTS for word in act.said)
_ADVERBS = r"(?:(?:just|now|also|already|successfully|then)\s+)*"
_SPOKEN = re.compile(rf"\b(?:I|we)(?:['\u2019]ve|\s+have)?\s+{_ADVERBS}({_SAID})\b(?!\s+\d)", re.IGNORECASE)
_BARE = re.compile(
    rf"^(?:(?:done|ok|okay|great|sure|perfect|all\s+set)\W+)?{_ADVERBS}({_SAID})\s+(?:the|your|a|an|it|to|this|that|all)\b",
    re.IGNORECASE,
)
_PASSIVE = re.compile(
    rf"^(?:done\W+)?(?:your|the|this|that|it|a|an)\b[^,;:]{{0,80}}?\b(?:has|have)\s+(?:now\s+)?been\s+{_ADVERBS}({_SAID})\b"
    r"(?!\s+by\b)",
    re.IGNORECASE,
)


def unbacked_claims(
    text: str, calls: Sequence[ActedCall], offered: Sequence[ActedCall] = ()
) -> tuple[UnbackedClaim, ...]:
    """Return the sentences of an answer that claim an act which none of the calls carried out.

    `offered` are the tools that could have been called.
    """
    informed = any(call.backing is Backing.DONE for call in calls)
    found: list[UnbackedClaim] = []
    for sentence in _sentences(text):
        spoken = _SPOKEN.search(sentence) or _BARE.match(sentence)
        if spoken is None and not informed:  # after a look at the world, the passive may tell what was seen
            spoken = _PASSIVE.match(sentence)
        if spoken is None or _DOUBT.search(sentence):
            continue
        act = next(act for act in _ACTS if spoken[1].lower() in act.said)
        if act.in_words and not any(_could(tool, act) for tool in offered):
            continue
        able = [call for call in calls if _could(call, act)]
        backing = _backing(able)
        if backing is not Backing.DONE:
            tools = tuple(dict.fromkeys(call.name for call in able))
            found.append(UnbackedClaim(act=act.name, sentence=sentence, backing=backing, tools=tools))
    return tuple(found)


def _sentences(text: str) -> Iterable[str]:
    """Return the plain statements of a text; what is quoted or code is none of its own."""
    bare = _KEPT_APART.sub(" … ", text)
    for match in _SENTENCE.finditer(bare):
        sentence = match[0].strip(" \t*_#-•")
        if sentence and not sentence.endswith("?"):
            yield sentence


def _could(call: ActedCall, act: _Act) -> bool:
    """Tell whether a call could have been the act."""
    if not call.acts:
        return False
    name = [word.lower() for word in _WORD.findall(call.name)]
    if name and name[0] in _LOOKS:
        return False
    words = {*name, *(word.lower() for word in _WORD.findall(call.description))}
    if words & (act.tools | _ANYTHING):
        return True
    return not any(set(name) & other.tools for other in _ACTS)  # of unknown purpose


def _backing(able: Sequence[ActedCall]) -> Backing:
    """Return the best that stands behind a claim."""
    found = {call.backing for call in able}
    for backing in (Backing.DONE, Backing.UNKNOWN, Backing.FAILED):
        if backing in found:
            return backing
    return Backing.NOTHING
