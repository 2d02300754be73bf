"""What came back for one question asked one way, as it is kept: one line of JSON. Nothing here is judged."""

from enum import StrEnum

import msgspec

from mustcall.core.origin import Wire
from mustcall.evals.questions import AskedCall

__all__ = ["Arm", "Ending", "EvalRow", "Form", "MadeCall", "ReplyError"]


class Arm(StrEnum):
    """Who was asked: the upstream itself, or mustcall in front of it."""

    BARE = "bare"
    MUSTCALL = "mustcall"


class Ending(StrEnum):
    """What the caller got: calls, text, or an error."""

    CALLED = "called"
    ANSWERED = "answered"
    FAILED = "failed"


class Form(StrEnum):
    """How tools were given: in the wire's own field, or as words in the prompt with a JSON form to answer in."""

    NATIVE = "native"
    WORDS = "words"


class MadeCall(msgspec.Struct, frozen=True):
    """A tool call as the caller received it; `arguments` is its JSON text."""

    name: str
    arguments: str


class ReplyError(msgspec.Struct, frozen=True, kw_only=True):
    """The error a reply ended in. `upstream` tells an upstream that does not work from a model that does not call."""

    code: str
    message: str
    upstream: bool


class EvalRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reply.

    `sends` are upstream calls, transport retries included; 0 where they are not told. `verdicts` and `rungs` are
    mustcall's own record of its attempts. `turn` counts the turns of this arm since the process began: after the first,
    mustcall may know something of the upstream. `first` says that the other arm had not asked the question before, so
    that the server had not read the prompt yet.
    """

    id: str
    set: str
    arm: Arm
    wire: Wire
    choice: AskedCall
    request_id: str
    stream: bool = False
    form: Form = Form.NATIVE
    text: str = ""
    calls: tuple[MadeCall, ...] = ()
    finish: str | None = None
    fault: ReplyError | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    sends: int = 0
    seconds: float = 0.0
    verdicts: tuple[str, ...] = ()
    rungs: tuple[str, ...] = ()
    turn: int = 1
    first: bool = True

    @property
    def ending(self) -> Ending:
        """What the caller got."""
        if self.fault is not None:
            return Ending.FAILED
        return Ending.CALLED if self.calls else Ending.ANSWERED
