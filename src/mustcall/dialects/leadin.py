"""Whether the text before a JSON call object is a lead-in to it, or prose that presents an example (rule 63).

A model that calls a tool in JSON may say so in a sentence first. A model that explains, documents or configures
something writes more, or says that it does, or leaves its sentence open: what follows a colon or half a sentence is
what the sentence shows, unless the model speaks of what it does itself. A ReAct thought is such speech. Pure; the cost
is bounded, since a lead-in is short.
"""

import re

from mustcall.dialects.prose import acts, count_words, shows, straight

__all__ = ["LONGEST_LEAD_IN", "is_lead_in"]

#: The longest text that counts as one short paragraph, in characters and in words.
LONGEST_LEAD_IN = 400
_MOST_WORDS = 100

_PARAGRAPHS = re.compile(r"\n[ \t\r]*\n")
#: Lines of documents: headings, list items, tables, quotations, comments, code.
_DOCUMENT_LINE = re.compile(r"^[ \t]*(?:#|[-*+•][ \t]|\d+[.)][ \t]|\||>|//|/\*|<!--|`{3})", re.MULTILINE)
#: Sentences that tell the reader what to do with what follows: "Write this:", "Paste it here."
_TELLS = re.compile(
    r"(?:^|[.!?;:,]\s+)(?:please )?(?:write|type|paste|copy|enter|insert|put|send|save)"
    r"(?:\s+(?:this|these|that|it|the following)\b|\s*:)",
    re.IGNORECASE,
)
#: Words that address the reader or describe a thing, unless the model speaks of what it does itself.
_ADDRESSES = re.compile(
    r"\b(?:you(?:'d|'ll|r)?|users?|developers?|clients?|should|could|might|must|can be|is (?:how|what|the)|are the|"
    r"files?|config(?:uration)?s?|settings|manifest|payloads?|body|responses?|returns?|output|represents?|"
    r"corresponds?|structures?|above|below|previous|earlier)\b",
    re.IGNORECASE,
)
#: Words that agree, and say nothing of what follows.
_AGREES = re.compile(
    r"(?:(?:sure(?: thing)?|(?:like )?so|okay|ok|certainly|of course|absolutely|got it|alright|all right|"
    r"klar|gerne?|natürlich|sicher|in ordnung|bien sûr|d'accord|certainement|claro(?: que sí)?|por supuesto|de acuerdo|"
    r"vale|com certeza|certo|certamente|va bene|d'accordo|конечно|хорошо|ладно|好的?|当然|當然|没问题|沒問題|"
    r"はい|承知(?:いた)?しました|わかりました|かしこまりました|네|예|알겠습니다|물론(?:입니다|이죠)?)(?!\w)[\s,.!;:，。！、：-]*)+",
    re.IGNORECASE,
)
#: "To get the weather in Oslo:" names the purpose of the call, unless that is the writing of a call.
_PURPOSE = re.compile(
    r"to (?!(?:call|invoke|use)\b|(?:write|make|format|send) (?:(?:an?|the|this|such a) )?(?:\w+ )?(?:call|request))"
    r"\w+ ",
    re.IGNORECASE,
)
#: A ReAct step's thought is the model's own, whatever it speaks of; who shows such steps says so before them.
_THOUGHT = re.compile(r"\W*thought\W*:", re.IGNORECASE)
#: What stands behind the last letter or digit.
_ENDING = re.compile(r"\W*\Z")
_SENTENCE_MARKS = frozenset(".!?…。．！？؟।")
_COLONS = frozenset(":：")


def is_lead_in(text: str) -> bool:
    """Tell whether a JSON call object behind this text may still be the reply: it is blank, or one short paragraph."""
    said = straight(text.strip())
    if not said:
        return True
    if len(said) > LONGEST_LEAD_IN or count_words(said) > _MOST_WORDS:
        return False
    if _PARAGRAPHS.search(said) or _DOCUMENT_LINE.search(said):
        return False
    if _THOUGHT.match(said):
        return True
    if shows(said) or _TELLS.search(said):
        return False
    if acts(said):
        return True
    if agreed := _AGREES.match(said):
        said = said[agreed.end() :]
    return _ADDRESSES.search(said) is None and (_is_whole(said) or _PURPOSE.match(said) is not None)


def _is_whole(said: str) -> bool:
    """Tell whether a text ends as a sentence does, or is no more than a word: a name, or a role that leaked."""
    found = _ENDING.search(said)
    ending = frozenset(found.group() if found is not None else "")
    if ending & _COLONS:
        return False
    return bool(ending & _SENTENCE_MARKS) or count_words(said) <= 1
