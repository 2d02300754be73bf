"""The text of a reply and the call markup in it: what is a call that cannot be read, and the reply without it."""

from collections.abc import Sequence

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.parts import Part, Text, ToolCall
from mustcall.core.reply import FinishReason, Reply
from mustcall.dialects import CallEnd, Malformed, Reason
from mustcall.dialects.names import Offered
from mustcall.policy.reply.judgement import Case
from mustcall.policy.scanning.call_remnants import cut_off
from mustcall.policy.scanning.reply_scanner import ScanFindings
from mustcall.policy.schema.growing import Growing

__all__ = [
    "clean_reply",
    "cut_markup",
    "drop_markup",
    "ends_with_markup",
    "is_only_calls",
    "note_passed_over",
    "note_stripped",
    "replace_parts",
    "sort_markup",
    "spoken_text",
]

_NOT_DEMANDED = "it came before the demanded call"
_COUNTS_AS_TEXT_CALL = frozenset(Reason) - {Reason.STRAY_MARKER, Reason.UNKNOWN_TOOL}


def ends_with_markup(reply: Reply, raw: str) -> bool:
    """Tell whether a reply's text ends with this markup.

    A model stops after a call and waits for its result; prose that goes on only speaks of one.
    """
    text = spoken_text(reply.parts)
    after = text[max(text.rfind(raw), 0) :]
    end = max(after.rfind(closer) for closer in "}>])")
    return not any(character.isalnum() for character in after[end + 1 :])


def is_only_calls(found: ScanFindings, kept: Sequence[Part]) -> bool:
    """Tell whether a cut reply is nothing but text calls, the last of them perhaps unfinished.

    `kept` are its parts without the calls. A JSON value that is complete, or has prose around it, is an answer.
    """
    left = spoken_text(kept).strip()
    if not left:
        return True
    parts = found.promoted or ()
    first = next((place for place, part in enumerate(parts) if isinstance(part, ToolCall)), 0)
    if spoken_text(parts[:first]).strip() or not left.startswith("{"):
        return False
    written = Growing(None)
    return written.feed(left) and not written.done


def drop_markup(case: Case, reply: Reply, found: ScanFindings) -> tuple[tuple[Part, ...], tuple[Adaptation, ...]]:
    """Return a reply's parts without call markup, readable or not, and what is said about it (rules 52, 125)."""
    if found.bare is not None:
        return found.bare, note_stripped(found)
    if found.cleaned is None:
        return reply.parts, ()
    parts = cut_markup(case, found.cleaned, found.malformed)
    return (reply.parts, ()) if parts == reply.parts else (parts, note_stripped(found))


def cut_markup(case: Case, parts: tuple[Part, ...], malformed: Sequence[Malformed]) -> tuple[Part, ...]:
    """Return the parts without calls on offer that cannot be read."""
    _, spoilt = sort_markup(case, malformed)
    # Of a form that is not known only the sign is known, not where it ends.
    return cut_off(parts, [entry.raw for entry in spoilt if entry.reason is not Reason.UNKNOWN_MARKUP])


def sort_markup(case: Case, malformed: Sequence[Malformed]) -> tuple[list[Malformed], list[Malformed]]:
    """Return the markup of tools nobody offered (rule 44), and what is or may be a call on offer and cannot be read.

    A name that was cut off may be any.
    """
    strange: list[Malformed] = []
    spoilt: list[Malformed] = []
    offered = Offered(case.offered) if malformed else None
    for entry in malformed:
        named = entry.name if entry.reason is not Reason.TRUNCATED else None
        if entry.reason is Reason.UNKNOWN_TOOL or (named and offered is not None and offered.resolve(named) is None):
            strange.append(entry)
        elif entry.reason in _COUNTS_AS_TEXT_CALL:
            spoilt.append(entry)
    return strange, spoilt


def spoken_text(parts: Sequence[Part]) -> str:
    """Return the text of a reply's parts."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    return texts[0] if len(texts) == 1 else "".join(texts)


def clean_reply(reply: Reply, found: ScanFindings) -> Reply:
    """Return the reply without call markup and leaked reasoning; the same object if there was none."""
    if found.cleaned is None or (not found.calls and not found.thought):
        return reply
    return replace_parts(reply, found.cleaned)


def note_stripped(found: ScanFindings) -> tuple[Adaptation, ...]:
    """Return what is said of markup that was taken out."""
    named = next((entry.name for entry in (*found.calls, *found.malformed) if entry.name), None)
    subject = named or ("reasoning" if found.thought else "text")
    return (Adaptation(AdaptationKind.MARKUP_STRIPPED, subject, "call markup in the text"),)


def note_passed_over(found: ScanFindings) -> tuple[Adaptation, ...]:
    """Return what is said of calls and markup that came before the demanded call."""
    dropped = [
        Adaptation(AdaptationKind.CALL_DROPPED, entry.name, _NOT_DEMANDED)
        for entry in found.passed
        if isinstance(entry, CallEnd)
    ]
    return (*dropped, *(note_stripped(found) if len(dropped) != len(found.passed) else ()))


def replace_parts(reply: Reply, parts: tuple[Part, ...], finish: FinishReason | None = None) -> Reply:
    """Return the reply with other parts, and a finish that is true of them; the same object if nothing changes."""
    if parts == reply.parts and finish in (None, reply.finish):
        return reply
    finish = finish or reply.finish
    if finish is FinishReason.TOOL_CALLS and not any(isinstance(part, ToolCall) for part in parts):
        finish = FinishReason.STOP
    return reply.evolve(parts=parts, finish=finish)
