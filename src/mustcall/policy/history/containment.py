"""Marks in a tool's output that a model could take for ours or for its own template's, made harmless (rule 92).

Two kinds: what reads as one of the tags around untrusted data, and the control tokens of chat templates, by which an
output would end its turn and begin another's. They are looked for in a folded copy of the text - compatibility forms
decomposed, letters of other scripts that look like Latin ones replaced, everything invisible left out - and only the
sign that begins one is changed in the text itself: `<` to `&lt;`, `[` to `&#91;`. How many were changed is told.

Cost: linear in the text; a text without any sign that could begin a mark is not folded at all.
"""

# ruff: noqa: RUF001  signs that look like others are what this is about

import re
import unicodedata
from functools import lru_cache

import msgspec

__all__ = ["TAG", "Contained", "contained"]

#: The name of the tags around tool results.
TAG = "untrusted-data"
_LETTERS = TAG.replace("-", "")

#: What looks like `<`, beyond what decomposes to it.
_ANGLES = "‹«\u2329〈⟨⟪《❬❮❰˂ᐸ⧼≺⪡𝈶◁◂◃⊂⦉⦑"
_BRACKETS = "⟦〚【〔❲⁅"
_BEGINS = re.compile(f"[<＜﹤\\[［{_ANGLES}{_BRACKETS}]")
#: Letters of other scripts, and small capitals, that look like those of the tag's name.
_ALIKE = {
    "a": "аαɑᴀ𐊠ꓮⲁꭺᎪ",
    "d": "ԁᴅꓓᎠ",
    "e": "еεєᴇꓰⲉᎬ℮ҽ",
    "n": "пηոռɴꓠⲛИ",
    "r": "гᴦʀꓣᎡᏒⲅ",
    "s": "ѕꜱꓢᏚՏ",
    "t": "тτᴛꓔⲧᎢ",
    "u": "υцսᴜꓴʋՍ",
}
_FOLDED = {
    **{ord(sign): letter for letter, signs in _ALIKE.items() for sign in signs.casefold() + signs},
    **dict.fromkeys(map(ord, _ANGLES), "<"),
    **dict.fromkeys(map(ord, _BRACKETS), "["),
    # Letters in boxes and flags, which nothing decomposes.
    **{first + place: chr(97 + place) for first in (0x1F150, 0x1F170, 0x1F1E6) for place in range(26)},
}
#: What shows nothing although it is a letter or a symbol.
_BLANK = frozenset("\u2800\u3164\uffa0\u115f\u1160")
_UNSEEN = frozenset({"Cf", "Cc", "Mn", "Me", "Co", "Cs"})

#: Control tokens of chat templates, in folded text; each begins with the sign that is changed.
_TOKENS = re.compile(
    r"""
    <\|[^<>|\n]{1,64}\|>                                  # ChatML, Llama, GLM, Phi, Kimi, harmony; DeepSeek, folded
    | <\|?(?:start|end|begin)_(?:of_)?(?:turn|text|sentence|role|message|header|image|document)\|?>  # Gemma and others
    | </?(?:s|bos|eos|pad|unk|sop|eop|eod|eot)>           # sentence marks
    | <</?sys>>                                           # Llama 2
    | </?tool_(?:response|result|output)s?>               # what templates put around a result
    | \[/?(?:inst|system_prompt|tool_calls|tool_results|available_tools|tool_content|args|think|bos|eos|gmask|sop
        |assistant|user|system)\]                         # Mistral, GLM
    """,
    re.VERBOSE,
)
_ESCAPED = {"<": "&lt;", "[": "&#91;"}


class Contained(msgspec.Struct, frozen=True):
    """A text without such marks, and how many were changed; the same object where there were none."""

    text: str
    escaped: int = 0


def contained(text: str) -> Contained:
    """Return a text that neither ends its wrapper nor speaks as a template."""
    if _BEGINS.search(text) is None:
        return Contained(text)
    view, places = _folded(text)
    marks = {places[found.start()]: view[found.start()] for found in _TOKENS.finditer(view)}
    marks.update(dict.fromkeys((places[place] for place in _tags(view)), "<"))
    if not marks:
        return Contained(text)
    pieces: list[str] = []
    start = 0
    for place in sorted(marks):
        pieces += (text[start:place], _ESCAPED[marks[place]])
        start = place + 1
    return Contained("".join((*pieces, text[start:])), len(marks))


def _tags(view: str) -> list[int]:
    """Return the places of every `<` before or within the letters of the tag's name, whatever else is between them."""
    spelled = [place for place, sign in enumerate(view) if "a" <= sign <= "z"]
    letters = "".join([view[place] for place in spelled])
    found: list[int] = []
    hit = letters.find(_LETTERS)
    while hit >= 0:
        before = spelled[hit - 1] + 1 if hit else 0
        last = spelled[hit + len(_LETTERS) - 1]
        found += [place for place in range(before, last) if view[place] == "<"]
        hit = letters.find(_LETTERS, hit + len(_LETTERS))
    return found


def _folded(text: str) -> tuple[str, list[int]]:
    """Return the text as it reads, and for each of its signs the place in the text it comes from."""
    signs: list[str] = []
    places: list[int] = []
    for place, sign in enumerate(text):
        for folded in sign.lower() if sign.isascii() and sign.isprintable() else _fold(sign):
            signs.append(folded)
            places.append(place)
    return "".join(signs), places


@lru_cache(maxsize=4096)
def _fold(sign: str) -> str:
    """Return what one sign reads as: nothing if it is invisible."""
    if sign in "\n\t\r":
        return sign
    if sign in _BLANK or unicodedata.category(sign) in _UNSEEN:
        return ""
    known = _FOLDED.get(ord(sign))
    if known is not None:
        return known
    plain = (one for one in unicodedata.normalize("NFKD", sign).casefold() if unicodedata.category(one) not in _UNSEEN)
    return "".join(_FOLDED.get(ord(one), one) for one in plain)
