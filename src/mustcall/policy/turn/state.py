"""How what came back moves a turn on: a verdict to its remedy, a refusal to a request without what was refused.

It is told what came back (`settle`, `refused`) and says what to do; it sends nothing. Where the turn stands, and what
it sends next, is `policy.turn.next_attempt`'s.
"""

import msgspec

from mustcall.core.adaptation import AdaptationKind
from mustcall.core.errors import ErrorInfo
from mustcall.core.message import Role
from mustcall.core.parts import Reasoning, Text, ToolCall, ToolResult
from mustcall.core.reply import FinishReason
from mustcall.core.request import Request
from mustcall.core.tools import functions_of
from mustcall.core.verdict import Verdict
from mustcall.policy.facts.controls import Limits
from mustcall.policy.facts.profile import Forcing, Protocol, ReasoningHabit, SchemaTarget
from mustcall.policy.facts.wording import fill
from mustcall.policy.failures.rejection import Rejection, lesson, read_rejection
from mustcall.policy.history.leftover_markup import MarkupEraser
from mustcall.policy.history.mended import drop_reasoning, mend_history
from mustcall.policy.reply.judge import Judgement
from mustcall.policy.reply.reply_markup import spoken_text
from mustcall.policy.request.attempt_request import Shaped, demand_sentence, kept_answer, user_turn
from mustcall.policy.request.few_shot import answer_changes
from mustcall.policy.request.plan import Rung, RungKind, make_plan
from mustcall.policy.request.refused_tools import ABOUT_TOOLS, without_tools
from mustcall.policy.request.structured_answer import AnswerWay, can_go_alone
from mustcall.policy.schema.tool_schemas import compile_schema, compile_tools, refused_schemas
from mustcall.policy.turn.next_attempt import NextAttempt
from mustcall.policy.turn.refusal_mends import BROKEN, MENDS, is_about_streams, meant_by, stream_words
from mustcall.policy.turn.remedy import ACCEPTED, Decision, Remedy, Situation, decide

__all__ = ["Lesson", "TurnState"]


_ACCEPT = Decision(Remedy.ACCEPT)
_FIRST_SOFT = Rung(RungKind.SOFT)
#: What a refusal of the fields for constrained decoding may be taken for: there is no word for them on any wire.
_ABOUT_GRAMMAR = (Rejection.OUTPUT_UNSUPPORTED, Rejection.OTHER)
#: Statuses that refuse the request as such; others are about load or a fault, and may pass.
_LASTING = frozenset({400, 403, 404, 405, 406, 415, 422, 500, 501})


class Lesson(msgspec.Struct, frozen=True):
    """A profile fact that a rejection seems to teach; `words` are what said so in the upstream's error.

    It is not known yet whether it is true: that shows when the request is sent again without what was refused.
    """

    field: str
    value: object
    why: str
    words: tuple[str, ...] = ()
    #: The tool schemas it is about, where it is about schemas.
    schemas: tuple[str, ...] = ()
    #: The names of the tools that are refused as such, each at the place of its digest in `schemas`.
    names: tuple[str, ...] = ()


class TurnState(NextAttempt):
    """The state of one turn."""

    def settle(
        self, judged: Judgement, *, released: bool, spoke: bool, called: bool = False, stateful: bool = False
    ) -> Decision:
        """Take a verdict and return what is done about it; the next attempt is then ready to be shaped."""
        verdict = judged.verdict
        if verdict in ACCEPTED:
            return _ACCEPT
        decision = decide(
            verdict,
            Situation(
                limits=self._limits,
                tried=self._tried.get(verdict, 0),
                extra=self.extra,
                rungs_left=self._place + 1 < len(self.plan.rungs),
                forced=self.plan.demand.forced or self.rung.constrains,
                greedy=self._request.temperature == 0,
                reads_text=self.reads_text,
                released=released,
                spoke=spoke,
                called=called,
                stateful=stateful,
                appended=self.appended,
                salvageable=judged.salvage is not None,
                salvage=self._controls.salvage,
                cut_call=judged.cut_call,
                final_thought=self.profile.reasoning_only_final,
                on_unmet=self._controls.on_unmet,
                blocks=judged.blocks,
            ),
        )
        told = False
        if decision.remedy in (Remedy.RESAMPLE, Remedy.REMIND) and self.plan.demand.forbids:
            told = self._withdraw_tools(judged)
        match decision.remedy:
            case Remedy.RESAMPLE:
                self._tried[verdict] = self._tried.get(verdict, 0) + 1
            case Remedy.REMIND:
                self._tried[verdict] = self._tried.get(verdict, 0) + 1
                if not told:
                    self._remind(self._reminder_for(judged))
            case Remedy.CLIMB:
                self._climb(judged)
            case Remedy.ACCEPT | Remedy.SALVAGE | Remedy.FAIL:
                pass
        return decision

    @property
    def _limits(self) -> Limits:
        """The limits; an answer asked for in words is asked for once more (rule 84)."""
        limits = self._controls.limits
        if self.answer_way is AnswerWay.WORDS and limits.bad_answer > 1:
            return msgspec.structs.replace(limits, bad_answer=1)
        return limits

    def _reminder_for(self, judged: Judgement) -> str:
        words = self._wording
        match judged.verdict:
            case Verdict.TEXT_CALL:
                return words.format_correction if self.reads_text else words.text_call
            case Verdict.PHANTOM_CALL:
                return words.phantom_call
            case Verdict.UNKNOWN_TOOL:
                return words.unknown_tool
            case Verdict.BAD_ARGUMENTS:
                return fill(words.bad_arguments, problem=judged.problem)
            case Verdict.BAD_ANSWER:
                return self._answer_again(judged)
            case Verdict.TRUNCATED:
                return words.truncated
            case Verdict.THINKING_ONLY:
                return words.thinking_only
            case _:
                return words.empty

    def _answer_again(self, judged: Judgement) -> str:
        """Return what is said about an answer that did not fit: once more alone, where a schema can hold it then.

        After words, or prose without end, that is also tried where it is not known: words do not hold that model.
        """
        way, words, problem = self.answer_way, self._wording, judged.problem
        if way in (AnswerWay.TOOL, AnswerWay.WORDS):
            tries = way is AnswerWay.WORDS or judged.reply.finish is FinishReason.LENGTH
            self._alone = can_go_alone(self._request, self.profile, tries=tries)
        tool = self._answer_tool
        if tool is not None:
            return fill(words.answer_again, problem=problem, tool=tool.name)
        return fill(words.bad_answer, problem=problem)

    def _withdraw_tools(self, judged: Judgement) -> bool:
        """Offer nothing in the next attempt where calls came although none is allowed (rule 125).

        Where the history holds calls, some providers want tools on offer (rule 104), and a small model goes on writing
        what it sees there. Calls and results are then told in plain words: at once where the call came as text, else
        once a reminder was no help. Return whether that asks for the answer, so that no reminder is needed.
        """
        called = any(note.kind is AdaptationKind.CALL_DROPPED for note in judged.notes)
        if not called or not self._request.tools or self._withdrawn:
            return False
        history = any(isinstance(part, ToolCall) for message in self._request.messages for part in message.parts)
        told = False
        if not history:
            everything = frozenset(range(len(self._request.tools)))
            self._mends.append(lambda request: without_tools(request, everything))
        elif self._can_be_told and (judged.dialect or self._tried.get(judged.verdict, 0)):
            told = self._tell_results()
        else:
            return False
        self._withdrawn = True
        self.log.add(AdaptationKind.TOOL_DROPPED, "tools", "none may be called, and one was")
        self._shaped = None
        return told

    def _tell_results(self) -> bool:
        """Tell calls and results in plain words from now on; return whether the answer is asked for behind them.

        What asks is the directive of the demand, or a sentence that leaves open how to answer (rule 46).
        """
        question = "" if self.plan.demand.directive else self._wording.step_cap
        self._mends.append(lambda request: request.evolve(**answer_changes(request, self._wording, question)))
        self._reminder = None
        self.log.add(AdaptationKind.PART_RESHAPED, "history", "calls and results told in plain words")
        asks = self._request.messages[-1].role in (Role.TOOL, Role.ASSISTANT)
        if asks and question:
            self.log.add(AdaptationKind.DIRECTIVE_ADDED, "messages", "a reminder at the tail")
        return asks

    @property
    def _can_be_told(self) -> bool:
        """Whether calls and results can be told in plain words: nothing is bound to them, kept elsewhere or unread.

        A result with call markup stays a result: told as the model's own words it would be a call to repeat.
        """
        request = self._request
        if self.profile.prefix_bound or self.stored or request.output is not None or request.previous_response_id:
            return False
        parts = [part for message in request.messages for part in message.parts]
        results = [part for part in parts if isinstance(part, ToolResult)]
        if any(isinstance(part, Reasoning) for part in parts) or not all(
            isinstance(piece, Text) for result in results for piece in result.content
        ):
            return False
        told = answer_changes(request, self._wording, "").get("messages", ())
        known = MarkupEraser.of(request.tools, self.profile.dialects).knowing(
            part for part in parts if isinstance(part, ToolCall)
        )
        return not any(known.finds(spoken_text(message.parts)) for message in told if message.role is Role.ASSISTANT)

    def _remind(self, sentence: str) -> None:
        self._reminder = user_turn(sentence)
        self._shaped = None
        self.log.add(AdaptationKind.DIRECTIVE_ADDED, "messages", "a reminder at the tail")

    def _climb(self, judged: Judgement) -> None:
        """Go to the next rung; a clean answer stays in context, followed by a user turn (rule 25)."""
        self._missed.append(self.rung)
        self._climbed.append(self.rung)
        self._place += 1
        self._shaped = None
        self._reminder = None
        answer = kept_answer(judged.reply.parts, self._offered) if judged.keeps else None
        rung = self.rung
        if judged.verdict is Verdict.TRUNCATED and judged.cut_call and not rung.constrains:
            self._reminder = user_turn(self._wording.truncated)
        elif rung == _FIRST_SOFT and answer is None:
            pass  # its own directive says all
        elif rung.kind in (RungKind.SOFT, RungKind.HARD, RungKind.NATIVE):
            asked = user_turn(demand_sentence(self._named_demand(), self._wording, max(1, rung.firmness)))
            self.log.add(AdaptationKind.DIRECTIVE_ADDED, "messages", "a reminder at the tail")
            if answer is not None:
                self._kept_messages += [answer, asked]
            else:
                self._reminder = asked
        else:
            self._kept_messages.clear()  # another form of asking starts afresh

    def refused(self, error: ErrorInfo) -> tuple[bool, Lesson | None]:
        """Take an upstream's refusal: whether to send again, and what it teaches. Each kind helps once in a turn."""
        rejection, sign = read_rejection(error)
        if not self.may_call:
            return False, None
        sent = self.shaped()
        narrowed = rejection in self._refusals or rejection is Rejection.TOOL_REFUSED
        if self.isolation.begun or (rejection in ABOUT_TOOLS and narrowed):
            return self._isolate(error, sign.words if sign is not None else (), sent)
        rejection = meant_by(rejection, error, sent.request)
        # Servers break on streams of calls. Any other stream that the caller wished for is no reason for a 500, and an
        # outage must not cost one more call.
        calls = bool(sent.request.tools) and self.plan.protocol is not Protocol.OFF
        if rejection is Rejection.OTHER and is_about_streams(
            error, sent.request, breaks=calls or not self._request.stream, wished=self._request.stream
        ):
            return True, self._unstreamed(error)
        if rejection in self._refusals and rejection is not Rejection.SCHEMA_INEXPRESSIBLE:  # that one ends by itself
            # That the reply is constrained was not the caller's wish: its refusal is not the caller's answer.
            learnt = self._refused_grammar(rejection, error, sent)
            again = self.rung.constrains and self._skip()
            self._shaped = None if again else sent
            return again, learnt if again else None
        self._refusals.add(rejection)
        taught = lesson(rejection)
        words = sign.words if sign is not None else ()
        learnt = Lesson(taught[0], taught[1], str(rejection), words) if taught is not None else None
        if learnt is not None and learnt.field == "forced" and not self.plan.reasoning:
            # As far as is known nothing reasoned here, so that "without reasoning" would be forced again.
            learnt = msgspec.structs.replace(learnt, value=Forcing.NEVER)
        if learnt is not None and learnt.field == "schema_target":
            tools = zip(functions_of(self._caller.tools), self._offered, strict=False)
            named = [(own.parameters, there.name) for own, there in tools if own.parameters is not None]
            learnt = msgspec.structs.replace(learnt, schemas=refused_schemas(named, error.message))
        self._shaped = None
        if self.rung.kind is RungKind.GRAMMAR and rejection in _ABOUT_GRAMMAR:
            learnt = self._refused_grammar(rejection, error, sent)
        elif rejection is Rejection.OUTPUT_UNSUPPORTED and sent.request.tools and not self.rung.constrains:
            # It is not known whether it would be refused without tools as well.
            learnt = Lesson("schema_with_tools", value=False, why=str(rejection), words=words)
        # A server that breaks on a forced choice may take another way of asking.
        again = self._mend(rejection, learnt) or (error.status in BROKEN and self._skip(own=True))
        # What would be sent again as it was would be refused again.
        again = again and not self._repeats(sent)
        if not again and rejection in ABOUT_TOOLS:
            return self._isolate(error, words, sent)
        lasting = sign is None or sign.lasting
        return again, learnt if again and lasting else None

    def _refused_grammar(self, rejection: Rejection, error: ErrorInfo, sent: Shaped) -> Lesson | None:
        """Return what a refusal on the grammar rung teaches: that the server lacks its field, if it names it."""
        if self.rung.kind is not RungKind.GRAMMAR or rejection not in _ABOUT_GRAMMAR:
            return None
        words = tuple(field for field in sent.extra if field in error.message or field == error.param)
        if not words:
            return None
        why = "grammar_unsupported"
        if self.profile.grammar_field is not None:
            return Lesson("grammar_field", value=None, why=why, words=words)
        return Lesson("grammar_output", value=False, why=why, words=words)

    def _unstreamed(self, error: ErrorInfo) -> Lesson | None:
        """Stop streaming for the rest of the turn; return what the refusal teaches about later ones.

        A stream that the caller asked for is worth a refusal each turn, unless it is the stream that is refused.
        """
        field = "streams" if self._request.stream else "streams_forced"
        self.profile = msgspec.structs.replace(self.profile, **{field: False})
        self._shaped = None
        if error.status not in (_LASTING - BROKEN if self._request.stream else _LASTING):
            return None
        words = stream_words(error) if self._request.stream else ("stream",)
        return Lesson(field, value=False, why="stream_refused", words=words)

    def _repeats(self, sent: Shaped) -> bool:
        shaped = self.shaped()
        return shaped.request == sent.request and shaped.extra == sent.extra

    def _mend(self, rejection: Rejection, learnt: Lesson | None) -> bool:
        mend = MENDS.get(rejection)
        if mend is not None:
            change, profile = mend.change, self.profile
            self._mends.append(lambda request: change(request, profile))
            self.log.add(mend.kind, mend.subject, mend.why)
            return True
        match rejection:
            case Rejection.REASONING_STATE:
                self._mends.append(self._without_reasoning)
                self._kept_messages = []
                self.log.add(AdaptationKind.STATE_DROPPED, "reasoning", "the upstream refused it")
                return True
            case Rejection.SCHEMA_INEXPRESSIBLE:
                return self._reduce_schemas() or self._skip()
            case Rejection.OVERFLOW | Rejection.GENERATION:
                return self._skip()
            case _:
                return (learnt is not None and self._replan(learnt)) or self._skip()

    def _without_reasoning(self, request: Request) -> Request:
        """Drop earlier reasoning; nothing binds the history then, so what could not be mended before is mended now."""
        return mend_history(drop_reasoning(request), self.profile, self.issuer, self.log, self._wording)

    def _replan(self, learnt: Lesson) -> bool:
        """Plan anew with what was learnt; tell whether that changes what would be sent (rule 33)."""
        profile = msgspec.structs.replace(self.profile, **{learnt.field: learnt.value})
        controls = self._controls
        if learnt.field == "protocol":
            controls = msgspec.structs.replace(controls, protocol=None)
        plan = make_plan(self._request, self.plan.demand, profile, controls)
        if learnt.field == "forced" and not plan.reasoning:
            plan = make_plan(
                self._request,
                self.plan.demand,
                msgspec.structs.replace(profile, reasoning=ReasoningHabit.ALWAYS),
                controls,
            )
        if learnt.field == "forced" and self.plan.demand.forced:  # else it was the answer's tool that was forced
            self._climbed.append(self.rung)
        untried = [place for place, rung in enumerate(plan.rungs) if rung not in self._climbed]
        if not untried:
            return False
        if learnt.field == "schema_target":
            self._wide = (self._request, self.profile.schema_target)
            self._request = compile_tools(self._request, profile, self.log)
        if learnt.field == "reasoning_history":
            self._mends.append(self._without_reasoning)
        self.profile, self.plan, self._place = profile, plan, untried[0]
        self._kept_messages, self._reminder = [], None
        return True

    def passed_probe(self) -> Lesson | None:
        """Take a probe that was not refused; return what is learnt if the next attempt is answered."""
        self.isolation.taken()
        self._shaped = None
        return self._refused_tools()

    def _isolate(self, error: ErrorInfo, words: tuple[str, ...], sent: Shaped) -> tuple[bool, Lesson | None]:
        """Find out which tool is refused, and go on without it (rule 130)."""
        if not self.isolation.begun and self._wide is not None:
            # Narrower schemas did not help: the other tools go out as they are.
            self._request, target = self._wide
            self.profile = msgspec.structs.replace(self.profile, schema_target=target)
        again = bool(sent.request.tools) and self.isolation.refused(error, words, self._request)
        if self._appends and self.isolation.probing:  # the answer to a probe would stay in the conversation
            again = False
        self._shaped = None if again else sent
        return again, self._refused_tools() if again else None

    def _refused_tools(self) -> Lesson | None:
        found = self.isolation
        if not found.digests:
            return None
        about = {"words": found.words, "schemas": found.digests, "names": found.names}
        return Lesson("refused_tools", value=True, why="tool_refused", **about)

    def _reduce_schemas(self) -> bool:
        """Take the narrowest schemas known for the rest of this turn: one that is refused says nothing of others."""
        if self.profile.schema_target is SchemaTarget.GEMINI:
            return False
        self.profile = msgspec.structs.replace(self.profile, schema_target=SchemaTarget.GEMINI)
        request = compile_tools(self._request, self.profile, self.log)
        output = request.output
        if output is not None and output.schema is not None:
            reduced = compile_schema(output.schema, SchemaTarget.GEMINI)
            if reduced.schema is not output.schema:
                self.log.add(AdaptationKind.SCHEMA_REDUCED, "answer", "; ".join(reduced.losses)[:300])
                request = request.evolve(output=msgspec.structs.replace(output, schema=reduced.schema))
        self._request = request
        return True

    def _skip(self, *, own: bool = False) -> bool:
        """Go past a rung that is refused; where that is the caller's own request, its refusal stands unless `own`."""
        if (self._place == 0 and not (self.rung.constrains or own)) or self._place + 1 >= len(self.plan.rungs):
            return False
        self._climbed.append(self.rung)
        self._place += 1
        self._reminder = None
        return True
