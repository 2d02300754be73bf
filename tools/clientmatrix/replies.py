"""What the scripted model says, apart from any wire, and the table of stream defects.

A `Reply` is written by `telling`; `Defect`s are what real servers were seen to leave out of their streams.
"""

from dataclasses import dataclass
from enum import StrEnum

# What each step reports as its usage: (input, output). A client that adds up two steps shows FIGURE.
FIRST_USAGE = (1000, 20)
SECOND_USAGE = (1100, 10)
FIGURE = FIRST_USAGE[0] + SECOND_USAGE[0]


class Defect(StrEnum):
    """What a stream or body leaves out or gets wrong."""

    NO_ROLE = "no_role"
    NO_TEXT_DELTAS = "no_text_deltas"
    MINIMAL_RESPONSE = "minimal_response"
    NO_CREATED = "no_created"
    WRONG_SEQUENCE = "wrong_sequence"


@dataclass(frozen=True)
class Call:
    """A tool call as the model writes it; `arguments` is the raw text, valid or not."""

    id: str
    name: str
    arguments: str
    namespace: str | None = None


@dataclass(frozen=True)
class Reply:
    """One reply of the model."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    usage: tuple[int, int] = FIRST_USAGE
    defects: frozenset[Defect] = frozenset()
    # The arguments take this long to stream, a piece a second; a body without streaming comes after as long.
    seconds: int = 0
    # An HTTP status in place of a reply.
    status: int = 200
