"""What a message is about by its look, where no list of phrases would do: a sum, or a file to be read.

Grounding rules name these signs besides their phrases. Each sign is made to keep silent where there is doubt.

Cost: linear in the message.
"""

from enum import StrEnum
from typing import assert_never

from mustcall.policy.words.sums import sums_in

__all__ = ["MessageSign", "files_in", "shows"]

_LONGEST = 4_000
#: Endings of files that people ask to have read.
_TEXT_FILES = frozenset(
    """
    adoc bash c cc cfg conf cpp css csv diff env go h hpp html ini java js json jsonl log lua markdown md patch php pl
    py rb rs rst rtf sh sql svg tex text toml ts tsv txt xml yaml yml
    """.split()  # noqa: SIM905  words read better so
)
_AROUND = "\"'`()[]{}<>,;:!?\u2018\u2019\u201c\u201d"
#: Words by which a message asks for what is in a file.
_READING = frozenset(
    """
    read reads open show print cat display view summarise summarize explain say says contain contains content contents
    inside in about
    """.split()  # noqa: SIM905  words read better so
)


class MessageSign(StrEnum):
    """What a message can look like."""

    SUM = "sum"  # it asks for a sum, in figures or words
    FILE = "file"  # it asks for what is in a text file that it names


def shows(sign: MessageSign, message: str) -> bool:
    """Tell whether a message shows a sign."""
    match sign:
        case MessageSign.SUM:
            return bool(sums_in(message))
        case MessageSign.FILE:
            return _asks_for_file(message)
        case _:
            assert_never(sign)


def files_in(message: str) -> tuple[str, ...]:
    """Return the text files a message names, as it names them, each once."""
    words = (word.strip(_AROUND).rstrip(".") for word in message[:_LONGEST].split())
    return tuple(dict.fromkeys(word for word in words if _is_file(word)))


def _is_file(word: str) -> bool:
    stem, dot, ending = word.rpartition(".")
    name = stem.rpartition("/")[2]
    return bool(dot and name and ending.lower() in _TEXT_FILES) and "@" not in word and "://" not in word


def _asks_for_file(message: str) -> bool:
    if not files_in(message):
        return False
    words = [word.strip(_AROUND + ".").lower() for word in message[:_LONGEST].split()]
    return words[0] != "how" and not _READING.isdisjoint(words)
