"""What a finished reply is: a pure function of the request, the intent and the reply (rules 34 to 44, 121 to 133).

It names the verdict and prepares what may be delivered; what is done about a bad verdict is `remedy`'s. A reply that
is delivered untouched is the same object that came in.
"""

from collections.abc import Iterable, Sequence

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.parts import Part, ProviderItem, Reasoning, Refusal, Text, ToolCall, Unknown
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import OutputKind, Request
from mustcall.core.verdict import Verdict
from mustcall.dialects import Malformed, Reason
from mustcall.policy.facts.controls import OnUnmet
from mustcall.policy.facts.profile import Protocol
from mustcall.policy.history.odd_names import names_odd_tool, odd_tools
from mustcall.policy.reply.announced_calls import announces_call
from mustcall.policy.reply.calls import ONE_AT_A_TIME, UNCHECKED, Calls
from mustcall.policy.reply.cut_prompt import is_starved
from mustcall.policy.reply.judgement import Case, Judgement
from mustcall.policy.reply.provider_calls import client_calls, met_by_provider
from mustcall.policy.reply.repeated_calls import loop_of, may_loop
from mustcall.policy.reply.reply_markup import (
    clean_reply,
    cut_markup,
    drop_markup,
    ends_with_markup,
    is_only_calls,
    note_passed_over,
    note_stripped,
    replace_parts,
    sort_markup,
    spoken_text,
)
from mustcall.policy.request.json_call import read_call
from mustcall.policy.request.plan import RungKind
from mustcall.policy.request.structured_answer import AnswerWay, read_answer
from mustcall.policy.scanning.call_remnants import cut_lines
from mustcall.policy.scanning.reply_scanner import ScanFindings
from mustcall.policy.schema.arguments import describe_problems

__all__ = ["SURPLUS", "Case", "Judgement", "is_blank", "judge"]

_BESIDE_CALLS = "other tools were called beside it"
_GIVEN_BEFORE = "the answer was given before"
_FORBIDDEN = "nothing may be called"
#: Why a call is left out that a reply made beyond what it may.
SURPLUS = frozenset({ONE_AT_A_TIME, _BESIDE_CALLS, _GIVEN_BEFORE, _FORBIDDEN})

_UNCHECKED_ANSWER = Adaptation(AdaptationKind.REPORTED, "answer", UNCHECKED)
#: How a text begins that is meant as JSON.
_JSON_STARTS = ("{", "```")
#: Words by which wires say that a reply ends with tool calls.
_CALL_WORDS = frozenset({"tool_calls", "tool_use", "function_call"})
#: Words that may stand beside calls: Responses ends every complete reply with `completed`, and `function_call` is the
#: word of a form that no longer exists.
_TRUE_WORDS = frozenset({"tool_calls", "tool_use", "completed"})


def is_blank(parts: Iterable[Part]) -> bool:
    """Tell whether parts hold nothing a reader would see."""
    for part in parts:
        if isinstance(part, Text):
            if part.text and not part.text.isspace():
                return False
        elif not isinstance(part, Reasoning):
            return False
    return True


def judge(case: Case, reply: Reply, found: ScanFindings) -> Judgement:
    """Return what a reply is. Under protocol `off` everything is what it says it is."""
    if case.protocol is Protocol.OFF:
        return Judgement(verdict=Verdict.CALLED if reply.calls else Verdict.ANSWERED, reply=reply)
    starved = is_starved(case.prompt_bound, reply.usage)
    if starved and case.controls.refuse_starved:
        return Judgement(verdict=Verdict.STARVED, reply=reply)
    judged = _judge(case, reply, found)
    if case.rung.kind is RungKind.HARD and judged.verdict is not Verdict.THINKING_ONLY:
        judged = _without_reasoning(judged)
    if starved:
        noted = Adaptation(AdaptationKind.REPORTED, "starved", "the server seems to have cut the prompt")
        judged = msgspec.structs.replace(judged, notes=(*judged.notes, noted))
    return judged


def _without_reasoning(judged: Judgement) -> Judgement:
    """Drop the reasoning with which a request that turned it off was answered all the same (rule 31)."""
    if not any(isinstance(part, Reasoning) for part in judged.reply.parts):
        return judged
    spoken, salvage = (
        reply and replace_parts(reply, tuple(part for part in reply.parts if not isinstance(part, Reasoning)))
        for reply in (judged.reply, judged.salvage)
    )
    dropped = Adaptation(AdaptationKind.PART_DROPPED, "reasoning", "it was turned off for this attempt")
    notes = (*judged.notes, dropped)
    return msgspec.structs.replace(judged, reply=spoken, salvage=salvage, notes=notes)


def _judge(case: Case, reply: Reply, found: ScanFindings) -> Judgement:
    if reply.finish in (FinishReason.CONTENT_FILTER, FinishReason.REFUSAL):
        verdict = Verdict.FILTERED if reply.finish is FinishReason.CONTENT_FILTER else Verdict.REFUSED
        kept = tuple(part for part in reply.parts if not isinstance(part, ToolCall))
        return Judgement(verdict=verdict, reply=replace_parts(reply, kept))
    if case.rung.constrains:
        return _judge_constrained(case, reply, found)
    calls, items = reply.calls, client_calls(reply, case.request)
    broad = case.controls.broad and not (calls or items)
    if broad and odd_tools(case.request.tools) and names_odd_tool(spoken_text(reply.parts), case.request.tools):
        return Judgement(verdict=Verdict.TEXT_CALL, reply=reply)
    if calls or items or case.demand.forbids:
        parts, notes = drop_markup(case, reply, found)
        if not case.demand.forbids:
            return _judge_calls(case, reply, parts, notes)
        if calls or items:
            forbidden = {id(item) for item in items}
            parts = tuple(part for part in parts if not isinstance(part, ToolCall) and id(part) not in forbidden)
        made = dict.fromkeys([*(call.name for call in (*calls, *found.calls)), *(item.type for item in items)])
        notes = (*(Adaptation(AdaptationKind.CALL_DROPPED, name, _FORBIDDEN) for name in made), *notes)
        judged = _judge_text(case, replace_parts(reply, parts), ScanFindings(), notes)
        if not found.calls or calls:
            return judged
        if reply.finish is FinishReason.LENGTH and is_only_calls(found, parts):
            # The limit went to calls that are not allowed, the last of them cut: what is missing is an answer.
            judged = msgspec.structs.replace(judged, verdict=Verdict.EMPTY)
        return msgspec.structs.replace(judged, dialect=found.calls[0].dialect)
    return _judge_markup(case, reply, found)


# --- calls -----------------------------------------------------------------------------------------------------------


def _judge_calls(
    case: Case,
    reply: Reply,
    parts: tuple[Part, ...],
    notes: tuple[Adaptation, ...],
    *,
    promoted: bool = False,
    demanded: bool = False,
) -> Judgement:
    """Judge the structured calls among the parts; any that does not fit spoils the reply."""
    cut = reply.finish is FinishReason.LENGTH or _at_limit(case, reply)
    if cut and not demanded and not (case.demand.forced and _speaks_last(parts)):
        return Judgement(verdict=Verdict.TRUNCATED, reply=reply, cut_call=True)
    items = {id(item) for item in client_calls(reply, case.request)}
    if case.answer_tool is not None:
        answers = [part for part in parts if isinstance(part, ToolCall) and part.name == case.answer_tool.name]
        others = bool(items) or any(isinstance(part, ToolCall) and part not in answers for part in parts)
        if answers and not others:
            return _judge_answer_call(case, reply, answers, notes)
        if answers:  # the tool phase comes first (rule 81)
            parts = tuple(part for part in parts if part not in answers)
            notes = (*notes, Adaptation(AdaptationKind.CALL_DROPPED, case.answer_tool.name, _BESIDE_CALLS))
    checked = Calls(case, notes)
    kept: list[Part] = []
    calls = 0
    for part in parts:
        if isinstance(part, ToolCall):
            call, verdict = checked.check(part)
        elif isinstance(part, ProviderItem) and id(part) in items:
            call, verdict = checked.check_item(part)
        else:
            kept.append(part)
            continue
        if verdict is not None:
            return Judgement(
                verdict=verdict,
                reply=reply,
                problem=checked.problem,
                cut_call=verdict is Verdict.TRUNCATED,
                unreadable=checked.unreadable,
            )
        if call is not None:
            kept.append(call)
            calls += 1
    if not calls:
        # Only other tools than the one demanded were called (rule 29).
        called = checked.others if case.request.parallel_tool_calls is not False else checked.others[:1]
        others = reply.evolve(parts=(*kept, *called), finish=FinishReason.TOOL_CALLS, reported_finish=None)
        return Judgement(verdict=Verdict.FORCE_MISSED, reply=others, notes=notes)
    if not promoted and reply.reported_finish not in _TRUE_WORDS:
        checked.note(AdaptationKind.FINISH_CORRECTED, "finish", f"{reply.reported_finish} to tool calls")
        checked.touched = True
    touched = promoted or checked.touched or len(kept) != len(parts) or parts is not reply.parts
    settled = reply
    if touched:
        settled = reply.evolve(parts=tuple(kept), finish=FinishReason.TOOL_CALLS, reported_finish=None)
    loop = loop_of(case.request, settled.calls, case.controls.tools) if may_loop(case.request) else None
    if loop is not None:
        checked.note(AdaptationKind.REPORTED, "looping", loop.name)
        if loop.block:
            return Judgement(verdict=Verdict.LOOPING, reply=settled, blocks=True, notes=checked.notes)
    if checked.salvaged:
        return Judgement(
            verdict=Verdict.BAD_ARGUMENTS,
            reply=reply,
            salvage=settled,
            problem=checked.problem,
            unreadable=checked.unreadable,
            notes=checked.notes,
        )
    return Judgement(verdict=Verdict.CALLED, reply=settled, notes=checked.notes)


def _speaks_last(parts: tuple[Part, ...]) -> bool:
    """Tell whether text follows the last call: what a limit cut off is then that text, not the call (rule 137)."""
    last = parts[-1]
    return isinstance(last, Text) and bool(last.text.strip())


def _judge_answer_call(case: Case, reply: Reply, answers: list[ToolCall], notes: tuple[Adaptation, ...]) -> Judgement:
    """Judge a call of the tool that takes the answer: what it was given is the answer's text."""
    output = case.request.output
    assert output is not None, "the tool was added for an answer"
    read = read_answer(output, answers[0].arguments_json, (), lenient=True)
    if read.truncated:
        return Judgement(verdict=Verdict.TRUNCATED, reply=reply, cut_call=True)
    if read.problems:
        return Judgement(verdict=Verdict.BAD_ANSWER, reply=reply, problem=describe_problems(read.problems), notes=notes)
    kept = tuple(part for part in reply.parts if not isinstance(part, ToolCall | Text))
    if read.unchecked:
        notes = (*notes, _UNCHECKED_ANSWER)
    if any(isinstance(part, Text) and part.text.strip() for part in reply.parts):
        notes = (*notes, Adaptation(AdaptationKind.TEXT_DROPPED, "text", "it came beside the answer"))
    if len(answers) > 1:
        notes = (*notes, Adaptation(AdaptationKind.CALL_DROPPED, answers[0].name, _GIVEN_BEFORE))
    taken = Adaptation(AdaptationKind.PART_RESHAPED, "answer", f"what the tool {answers[0].name} was given")
    whole = reply.evolve(parts=(*kept, Text(text=read.text)), finish=FinishReason.STOP, reported_finish=None)
    return Judgement(verdict=Verdict.ANSWERED, reply=whole, notes=(*notes, taken))


def _at_limit(case: Case, reply: Reply) -> bool:
    """Tell whether the reply used every token it was allowed (rule 123)."""
    usage, limit = reply.usage, case.sent_limit
    if limit is not None and reply.others:
        limit *= 1 + len(reply.others)  # the limit is each choice's own, the usage that of all
    return usage is not None and limit is not None and limit > 0 and usage.output_tokens >= limit


def _judge_constrained(case: Case, reply: Reply, found: ScanFindings) -> Judgement:
    """Read a reply that was constrained to the JSON of one call; constrained output is verified all the same."""
    text = "".join(part.text for part in reply.parts if isinstance(part, Text))
    read = read_call(text, case.offered)
    if reply.calls or client_calls(reply, case.request):
        return _judge_calls(case, reply, reply.parts, ())
    if read is None:
        if reply.finish is FinishReason.LENGTH:  # of the call, or of prose where nothing held the model to one
            written = text.lstrip().startswith(_JSON_STARTS)
            return Judgement(verdict=Verdict.TRUNCATED, reply=reply, cut_call=written)
        judged = _judge_markup(case, reply, found)
        if judged.verdict is Verdict.TEXT_CALL and not found.calls and case.controls.on_unmet is OnUnmet.ERROR:
            # The JSON that was asked for, and no call: the caller is told what it did not get.
            return msgspec.structs.replace(judged, verdict=Verdict.FORCE_MISSED)
        return judged
    name, arguments = read
    kept = tuple(part for part in reply.parts if isinstance(part, Reasoning))
    call = case.names.restore(ToolCall(id=f"{case.call_start}{case.token}_0", name=name, arguments_json=arguments))
    note = Adaptation(AdaptationKind.CALL_PROMOTED, name, "from a JSON answer")
    return _judge_calls(case, reply, (*kept, call), (note,), promoted=True)


# --- text ------------------------------------------------------------------------------------------------------------


def _judge_markup(case: Case, reply: Reply, found: ScanFindings) -> Judgement:
    """Judge a reply without structured calls by the markup in its text."""
    says_calls = reply.reported_finish in _CALL_WORDS
    if found.reasoned:
        return _judge_reasoned(case, reply, found)
    if not (says_calls or found.calls or found.malformed or found.thought):
        return _judge_text(case, reply, found, ())
    if found.calls:
        return _judge_text_calls(case, reply, found)
    strange, spoilt = sort_markup(case, found.malformed)
    if not (says_calls or case.demand.forced):
        spoilt = [
            entry for entry in spoilt if entry.reason is not Reason.UNKNOWN_MARKUP or _is_meant(case, reply, entry)
        ]
    if spoilt and (case.reads_text or says_calls or _is_broad(case) or case.demand.forced):
        return _judge_spoilt(reply, spoilt)
    if case.reads_text and strange:
        return Judgement(verdict=Verdict.UNKNOWN_TOOL, reply=reply)
    if says_calls and case.request.tools:
        if found.malformed:
            return Judgement(verdict=Verdict.TEXT_CALL, reply=reply)
        return _judge_phantom(case, reply, found)
    notes = (Adaptation(AdaptationKind.MARKUP_STRIPPED, "reasoning", "it came inside the text"),)
    return _judge_text(case, clean_reply(reply, found), found, notes if found.thought else ())


def _judge_phantom(case: Case, reply: Reply, found: ScanFindings) -> Judgement:
    """Judge a reply that is said to be calls and holds none; its text may be an answer all the same."""
    said = reply.evolve(finish=FinishReason.STOP, reported_finish=None)
    answer = _judge_text(case, clean_reply(said, found), found, ())
    if answer.verdict is not Verdict.ANSWERED:
        return Judgement(verdict=Verdict.PHANTOM_CALL, reply=reply, keeps=True)
    corrected = Adaptation(AdaptationKind.FINISH_CORRECTED, "finish", f"{reply.reported_finish} without a call")
    notes = (*answer.notes, corrected)
    return Judgement(verdict=Verdict.PHANTOM_CALL, reply=reply, keeps=True, salvage=answer.reply, notes=notes)


def _judge_reasoned(case: Case, reply: Reply, found: ScanFindings) -> Judgement:
    """Judge a reply that is nothing but reasoning with calls in it (rule 148): no markup of theirs is delivered."""
    assert found.bare is not None, "its parts are there without the calls"
    reply = replace_parts(reply, found.bare)
    if case.demand.forced or case.reads_text or case.protocol is Protocol.HYBRID:
        calls = tuple(case.names.restore(call) for call in found.reasoned)
        note = Adaptation(AdaptationKind.CALL_PROMOTED, calls[0].name, f"from reasoning ({found.dialect})")
        judged = _judge_calls(case, reply, (*found.bare, *calls), (note,), promoted=True)
        if case.reads_text or judged.verdict in (Verdict.CALLED, Verdict.ANSWERED):
            return msgspec.structs.replace(judged, dialect=found.dialect)
    return _judge_text(case, reply, ScanFindings(), note_stripped(found))


def _is_meant(case: Case, reply: Reply, entry: Malformed) -> bool:
    """Tell whether a call in an unknown form is meant as one: it ends the reply, and nobody asked to see it."""
    return ends_with_markup(reply, entry.raw) and not (case.shows is not None and case.shows())


def _judge_spoilt(reply: Reply, spoilt: list[Malformed]) -> Judgement:
    """Judge a reply with a text call that cannot be read."""
    if reply.finish is FinishReason.LENGTH and any(entry.reason is Reason.TRUNCATED for entry in spoilt):
        return Judgement(verdict=Verdict.TRUNCATED, reply=reply, cut_call=True)
    unknown = any(entry.reason is Reason.UNKNOWN_MARKUP for entry in spoilt)
    note = Adaptation(AdaptationKind.REPORTED, "dialect unknown", "a call in a form that is not known (rule 121)")
    return Judgement(verdict=Verdict.TEXT_CALL, reply=reply, notes=(note,) if unknown else ())


def _judge_text_calls(case: Case, reply: Reply, found: ScanFindings) -> Judgement:
    """Judge complete text calls of offered tools: promoted where text may carry calls, salvage elsewhere."""
    assert found.promoted is not None, "calls were found"
    if found.settled:  # the token limit, and what else came behind the demanded call, do not matter (rule 137)
        reply = reply.evolve(finish=FinishReason.STOP, reported_finish=None)
    _, spoilt = sort_markup(case, found.malformed)
    if spoilt and (case.reads_text or case.protocol is Protocol.HYBRID or _is_broad(case)):
        # Parallel calls stand or fall together: the one that can be read is not run without the one that cannot.
        return _judge_spoilt(reply, spoilt)
    dialects = ", ".join(sorted({call.dialect for call in found.calls}))
    notes = (Adaptation(AdaptationKind.CALL_PROMOTED, found.calls[0].name, f"from text ({dialects})"),)
    parts = found.promoted
    if found.passed:
        passed = [entry for entry in found.passed if isinstance(entry, Malformed)]
        _, broken = sort_markup(case, passed)
        parts = cut_lines(cut_markup(case, parts, passed), [entry.raw for entry in broken])
        notes += note_passed_over(found)
    promoted = tuple(case.names.restore(part) if isinstance(part, ToolCall) else part for part in parts)
    suspicious = found.ended_open and reply.finish is FinishReason.LENGTH
    judged = (
        Judgement(verdict=Verdict.TRUNCATED, reply=reply, cut_call=True)
        if suspicious
        else _judge_calls(case, reply, promoted, notes, promoted=True, demanded=found.settled)
    )
    judged = msgspec.structs.replace(judged, dialect=found.calls[0].dialect)
    if case.reads_text:
        return judged
    valid = judged.verdict in (Verdict.CALLED, Verdict.ANSWERED)
    if valid and case.protocol is Protocol.HYBRID:
        return judged
    if judged.verdict is Verdict.TRUNCATED:
        return judged
    if not (reply.reported_finish in _CALL_WORDS or _is_broad(case) or case.demand.forced):
        return _judge_text(case, reply, ScanFindings(), ())
    salvage = judged.reply if valid else None
    return Judgement(
        verdict=Verdict.TEXT_CALL, reply=reply, salvage=salvage, problem=judged.problem, notes=judged.notes
    )


def _is_broad(case: Case) -> bool:
    return case.controls.broad and bool(case.request.tools)


def _judge_text(case: Case, reply: Reply, found: ScanFindings, notes: tuple[Adaptation, ...]) -> Judgement:
    """Judge a reply that is text, or nothing."""
    blank = is_blank(_seen(case, reply.parts))
    if case.demand.forced and not met_by_provider(case.demand, case.request, reply):
        if reply.finish is FinishReason.LENGTH:
            return Judgement(verdict=Verdict.TRUNCATED, reply=reply, notes=notes)
        if not blank:
            return Judgement(verdict=Verdict.FORCE_MISSED, reply=reply, keeps=not found.malformed, notes=notes)
    if reply.finish is FinishReason.PAUSE and not blank:
        return Judgement(verdict=Verdict.ANSWERED, reply=reply, notes=notes)
    if reply.finish is FinishReason.LENGTH and blank:
        return Judgement(verdict=Verdict.TRUNCATED, reply=reply, notes=notes)
    if reply.finish is FinishReason.LENGTH and not _is_structured(case.request):
        # The caller's own limit: the finish says that the answer is not whole.
        return Judgement(verdict=Verdict.ANSWERED, reply=reply, notes=notes)
    if blank:
        thought = any(isinstance(part, Reasoning) for part in reply.parts)
        return Judgement(verdict=Verdict.THINKING_ONLY if thought else Verdict.EMPTY, reply=reply, notes=notes)
    if _is_structured(case.request):
        judged = _judge_structured(case, reply, notes)
        if judged.verdict is not Verdict.ANSWERED:
            return judged
        reply, notes = judged.reply, judged.notes
    if reply.reported_finish in _CALL_WORDS:
        notes = (*notes, Adaptation(AdaptationKind.FINISH_CORRECTED, "finish", f"{reply.reported_finish} to stop"))
        reply = reply.evolve(finish=FinishReason.STOP, reported_finish=None)
    if reply.finish is FinishReason.UNKNOWN:
        degraded = Adaptation(AdaptationKind.REPORTED, "finish", f"unknown reason {reply.reported_finish!r}")
        notes = (*notes, degraded)
    if case.request.tools and announces_call(spoken_text(reply.parts), case.request.tools):
        announced = Adaptation(AdaptationKind.REPORTED, "announced_only", "a call was announced and none made")
        return Judgement(verdict=Verdict.ANNOUNCED_ONLY, reply=reply, notes=(*notes, announced))
    return Judgement(verdict=Verdict.ANSWERED, reply=reply, notes=notes)


def _seen(case: Case, parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts without those of a kind that only the upstream's own wire has: others never see them."""
    caller = case.request.origin
    if caller is None:
        return parts
    return [part for part in parts if not isinstance(part, Unknown | ProviderItem) or part.wire is caller.wire]


def _is_structured(request: Request) -> bool:
    return request.output is not None and request.output.kind is not OutputKind.TEXT


def _judge_structured(case: Case, reply: Reply, notes: tuple[Adaptation, ...]) -> Judgement:
    """Judge a text as the structured answer that was asked for."""
    output = case.request.output
    if output is None or any(isinstance(part, Refusal) for part in reply.parts):
        return Judgement(verdict=Verdict.ANSWERED, reply=reply, notes=notes)
    lenient = case.answer_way in (AnswerWay.TOOL, AnswerWay.WORDS)
    # What a schema held the model to was not meant as a call, whatever the caller's own schema looks like.
    held = case.profile.schema_output and not lenient
    text = spoken_text(reply.parts)
    read = read_answer(output, text, () if held or case.demand.forbids else case.offered, lenient=lenient)
    if read.problems:
        # Prose that was cut off is no answer cut off: it is asked for once more, held to the schema.
        if reply.finish is FinishReason.LENGTH and not (lenient and not _is_json(reply)):
            return Judgement(verdict=Verdict.TRUNCATED, reply=reply, notes=notes)
        return Judgement(verdict=Verdict.BAD_ANSWER, reply=reply, problem=describe_problems(read.problems), notes=notes)
    if read.unchecked:
        notes = (*notes, _UNCHECKED_ANSWER)
    if read.text != text:
        bare = Adaptation(AdaptationKind.PART_RESHAPED, "answer", "nothing but its JSON")
        others = tuple(part for part in reply.parts if not isinstance(part, Text))
        reply, notes = reply.evolve(parts=(*others, Text(text=read.text))), (*notes, bare)
    return Judgement(verdict=Verdict.ANSWERED, reply=reply, notes=notes)


def _is_json(reply: Reply) -> bool:
    """Tell whether the text of a reply is meant as JSON, whole or not."""
    return spoken_text(reply.parts).lstrip().startswith(_JSON_STARTS)
