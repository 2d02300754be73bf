"""A run of two models: one plans in prose, the other turns the plan into calls, and the results go back to the planner.

For models that reason well and call badly, or not at all. The planner is never offered a tool: it reads what there is
and what came of it in plain words. The caller sees the conversation as any model does, with the plan in its
instructions, so that forces, grounding rules and loops are judged as in every run. The history holds the plan as text
and the caller's calls: a legal one, for either model alone as well. A step is a plan and the calls made from it.
"""

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import LoopBlocked, ModelError
from mustcall.core.message import Message, Role
from mustcall.core.parts import Part, Reasoning, Text, ToolCall, ToolResult
from mustcall.core.reply import FinishReason, Reply
from mustcall.core.request import Request
from mustcall.core.tools import Tool
from mustcall.dialects import ScanEvent, ScannedText
from mustcall.engine.agent.events import ReasoningDelta, StepFinished, TextDelta
from mustcall.engine.agent.prompts import text_message, text_of
from mustcall.engine.agent.running.loop import AgentRun
from mustcall.engine.agent.running.plan import Emit, RunSettings, StepRequest
from mustcall.engine.answers.answering import Way
from mustcall.engine.answers.envelopes import ignored_calls, malformed_call, validated_once
from mustcall.engine.run_records.results import RunResult, stopped_by
from mustcall.engine.tooling.roster import Roster
from mustcall.engine.tooling.running import Runner
from mustcall.engine.turns import Turns
from mustcall.policy.facts.profile import Profile, Protocol
from mustcall.policy.facts.wording import Wording, fill
from mustcall.policy.history.leftover_markup import strip_markup
from mustcall.policy.reply.repeated_calls import loop_of
from mustcall.policy.request.demand import settle_demand
from mustcall.policy.scanning.reply_scanner import ScanTargets
from mustcall.policy.words.grounding import latest_input
from mustcall.wire.crossing.turns import result_text

__all__ = ["PlannedRun", "told_in_words"]

#: How the planner says that what follows is the answer; models like to set it in bold.
_MARK = re.compile(r"^[ \t]*[*_#]*[ \t]*answer[ \t]*:[ \t]*[*_]*[ \t]*\n?", re.IGNORECASE | re.MULTILINE)
#: Within so many characters a reply that begins with the mark has shown it.
_ENOUGH = 24
_ENDS = frozenset({FinishReason.LENGTH, FinishReason.REFUSAL, FinishReason.CONTENT_FILTER})


class _Thought(msgspec.Struct, frozen=True):
    """What the planner said: a plan, or the answer, `told` where it was streamed already.

    `answer` is what a plan gave for the answer behind its own words: it is one only where nothing is called first.
    """

    reply: Reply
    answers: bool
    told: bool
    asked: StepRequest
    answer: Reply | None = None


class PlannedRun(AgentRun):
    """One run of two models: `plan` are the caller's settings and the run's, `planner` the other's."""

    def __init__(
        self,
        plan: RunSettings,
        planner: RunSettings,
        messages: tuple[Message, ...],
        after: RunResult[Any] | None = None,
    ) -> None:
        super().__init__(plan, messages, after)
        self._planner = planner
        self._planning: Turns | None = None

    def plan_with(self, turns: Turns) -> None:
        """Take the planner's turns on these."""
        self._planning = turns

    async def _step(self, turns: Turns, roster: Roster, runner: Runner, emit: Emit) -> None:
        """Let the planner speak; let the caller make calls of it, and run them, until the planner answers."""
        self._number += 1
        roster = await self._begin(roster)
        rounds = latest_input(self._conversation()).rounds
        capped = self._number >= self._plan.max_steps or 0 < self._plan.controls.step_cap <= rounds
        last = capped or self._closing or self._reminder is not None
        demanded = bool(roster.tools) and not last and self._demands(turns, roster)
        thought = await self._think(roster, emit, last=last, demanded=demanded)
        if thought.answers:
            await self._conclude(thought, roster, emit)
            return
        for text in filter(None, (text_of(thought.reply),)):
            await self._tell(ReasoningDelta(text), emit)
        await self._call(turns, roster, runner, emit, thought)

    # --- the planner -------------------------------------------------------------------------------------------------

    async def _think(self, roster: Roster, emit: Emit, *, last: bool, demanded: bool) -> _Thought:
        """Take a turn of the planner's."""
        assert self._planning is not None, "the agent has opened the planner's upstream"
        planner, answering = self._planner, self._plan.answering
        profile = self._planning.profile(planner.endpoint, planner.model)
        asked = self._asked_planner(roster, profile, last=last)
        alone = last or not roster.tools
        speech = _Speech(roster.offers, open_from_start=alone, closed=demanded or answering is not None)

        async def say(delta: TextDelta | ReasoningDelta) -> None:
            if isinstance(delta, TextDelta):
                self._saying.append(delta.text)
                if shown := speech.feed(delta.text):
                    await self._tell(TextDelta(shown), emit)
            elif answering is None:
                await self._tell(delta, emit)

        try:
            reply, usage = await self._take(self._planning, planner, asked, say)
        except ModelError as error:
            raise self._ended(error, asked) from None
        if rest := speech.close():
            await self._tell(TextDelta(rest), emit)
        await self._tell(StepFinished(self._steps[-1], self._number, usage), emit)
        self._notice = None
        text = self._clean(text_of(reply), roster, profile)
        mark = _MARK.search(text)
        begins = mark is not None and _begins_with_mark(text_of(reply))
        answers = last or not roster.tools or reply.finish in _ENDS or (begins and not demanded)
        answer: Reply | None = None
        if mark is not None:
            before, after = text[: mark.start()], text[mark.end() :]
            text = after if answers else f"{before}{after}" if demanded else before
            answer = None if answers or demanded else _saying(reply, after)
        self._saying = [text]
        return _Thought(_saying(reply, text), answers, speech.begun, asked, answer)

    def _asked_planner(self, roster: Roster, profile: Profile, *, last: bool) -> StepRequest:
        """Return what the planner is asked: no tools, but words about them."""
        plan, planner, words = self._plan, self._planner, self._plan.wording
        instructions = [self._instructions] if self._instructions else []
        if roster.tools:
            instructions.append(fill(words.plan, tools=_listing(roster.offers)))
        tail = [text for text in (self._reminder or self._notice,) if text]
        if last and roster.tools and self._reminder is None:
            tail.append(words.step_cap)
        request = Request(
            model=planner.model,
            messages=(*told_in_words(self._sent(), words), *(text_message(Role.USER, text) for text in tail)),
            max_tokens=planner.options.max_tokens,
            temperature=planner.options.temperature,
            top_p=planner.options.top_p,
            stop=planner.options.stop,
            reasoning=planner.options.reasoning,
            stream=plan.stream,
            stream_usage=plan.stream,
        )
        # What the planner writes is read here: nothing in it is a call, whatever it looks like.
        controls = msgspec.structs.replace(plan.controls, force_tools=False, step_cap=0, protocol=Protocol.HYBRID)
        if plan.answering is not None:
            alone = last or not roster.tools
            asked = plan.answering.instructions(None, profile, words, tools=False)
            # Where nothing is known of schema output, the mark before the answer may come all the same.
            tried = plan.answering.way(profile) is Way.TRIED
            form = None if tried else plan.answering.form(profile, tools=False)
            instructions += filter(None, (asked or (None if alone else plan.answering.in_words(words)),))
            request = request.evolve(output=form if alone else None)
            limits = msgspec.structs.replace(controls.limits, bad_answer=0)
            controls = validated_once(controls) if last else msgspec.structs.replace(controls, limits=limits)
        system = text_message(Role.SYSTEM, "\n\n".join(instructions)) if instructions else None
        return StepRequest(request.evolve(system=system), controls, capped=last and bool(roster.tools))

    def _clean(self, text: str, roster: Roster, profile: Profile) -> str:
        """Return a text without call markup: it may become the answer, and stays in the history."""
        said = (text_message(Role.ASSISTANT, text),)
        (stripped,) = strip_markup(said, roster.offers, profile, 0, AdaptationLog()) or said
        return "".join(part.text for part in stripped.parts if isinstance(part, Text)) if roster.tools else text

    async def _conclude(self, thought: _Thought, roster: Roster, emit: Emit) -> None:
        """Take what the planner said for the answer, if it is one."""
        reply = thought.reply
        if not self._answers(reply, roster, thought.asked):
            return
        text = text_of(reply)
        self._hear(reply, ())
        if text and not thought.told:
            await self._tell(TextDelta(text), emit)
        capped = thought.asked.capped and self._reminder is None
        self._stopped = self._capped_by() if capped else stopped_by(reply.finish)

    # --- the caller --------------------------------------------------------------------------------------------------

    def _demands(self, turns: Turns, roster: Roster) -> bool:
        """Tell whether a call is demanded in this step, whatever the planner says (rules 9 to 11)."""
        request = self._conversation().evolve(tools=roster.offers)
        return settle_demand(request, self._controls(), turns.operator.rules).forced

    def _conversation(self) -> Request:
        return Request(model=self._plan.model, messages=tuple(self._messages))

    async def _call(self, turns: Turns, roster: Roster, runner: Runner, emit: Emit, thought: _Thought) -> None:
        """Take a turn of the caller's, and run the calls it makes; without any, the plan was the answer."""
        plan, words = self._plan, self._plan.wording
        written = text_of(thought.reply)
        instructions = fill(words.plan_into_calls, plan=written)
        given = f"{self._instructions}\n\n{instructions}" if self._instructions else instructions
        request = self._request(roster, turns.profile(plan.endpoint, plan.model)).evolve(
            system=text_message(Role.SYSTEM, given)
        )
        asked = StepRequest(request, msgspec.structs.replace(self._controls(), step_cap=0))
        try:
            reply, usage = await self._take(turns, plan, asked, _unheard)
        except ModelError as error:
            malformed = malformed_call(error, self._steps[-1], words) if self._steps else None
            if plan.answering is None or malformed is None:
                raise
            await self._refuse(malformed, emit)
            return
        await self._tell(StepFinished(self._steps[-1], self._number, usage), emit)
        if plan.answering is not None:
            self._calls += ignored_calls(self._steps[-1], self._number)
        calls = reply.calls
        if not calls:
            concluded = thought if thought.answer is None else msgspec.structs.replace(thought, reply=thought.answer)
            await self._conclude(concluded, roster, emit)
            return
        loop = loop_of(request, calls, plan.controls.tools)
        if loop is not None and loop.block:
            raise LoopBlocked(f"LoopBlocked: {loop.told}")
        self._hear(reply.evolve(parts=tuple(_joined(reply.parts, written))), calls)
        await self._run_calls(calls, loop, runner, emit)


class _Speech:
    """The planner's text as it streams: what certainly is the answer may be heard at once, markup of calls never."""

    def __init__(self, tools: tuple[Tool, ...], *, open_from_start: bool, closed: bool) -> None:
        self._whole = open_from_start
        self._closed = closed
        self._text = ""
        self._scanner = ScanTargets(tools=tools).scanner() if tools else None
        #: Whether some of it was heard.
        self.begun = False

    def feed(self, text: str) -> str:
        """Take more text and return what may be heard."""
        if self._closed:
            return ""
        if not self.begun:
            self._text += text
            if len(self._text) < _ENOUGH:
                return ""
            mark = _MARK.match(self._text)
            if mark is None and not self._whole:
                self._closed = True
                return ""
            self.begun = True
            text = self._text if mark is None else self._text[mark.end() :]
        return text if self._scanner is None else self._plain(self._scanner.feed(text))

    def close(self) -> str:
        """Return what waited only because markup might have begun."""
        if self._closed or not self.begun or self._scanner is None:
            return ""
        return self._plain(self._scanner.close())

    def _plain(self, found: list[ScanEvent]) -> str:
        """Return the text up to the first sign of a call; nothing is heard after it."""
        if not all(isinstance(event, ScannedText) for event in found):
            self._closed = True
        plain = takewhile(lambda each: isinstance(each, ScannedText), found)
        return "".join(event.text for event in plain if isinstance(event, ScannedText))


def _begins_with_mark(text: str) -> bool:
    """Tell whether nothing but blanks, and no call either, stands before the mark."""
    mark = _MARK.search(text)
    return mark is not None and not text[: mark.start()].strip()


def _saying(reply: Reply, text: str) -> Reply:
    """Return a planner's reply with this text, and without what only looks like calls."""
    kept = tuple(part for part in reply.parts if not isinstance(part, Text | ToolCall))
    return reply.evolve(parts=(*kept, Text(text=text)))


async def _unheard(_: TextDelta | ReasoningDelta) -> None:
    """Take what the caller says besides its calls: nobody asked it."""


def _joined(parts: Iterable[Part], plan: str) -> Iterable[Part]:
    """Return the caller's parts with the plan in the place of its own words: before its first call."""
    waiting = Text(text=plan) if plan.strip() else None
    for part in parts:
        if isinstance(part, Text):
            continue
        if waiting is not None and isinstance(part, ToolCall):
            yield waiting
            waiting = None
        yield part


def _listing(tools: Iterable[Tool]) -> str:
    lines: list[str] = []
    for tool in tools:
        schema = msgspec.json.encode(tool.parameters or {"type": "object"}, order="deterministic").decode()
        lines.append(f"- {tool.name}: {tool.description or 'no description'} Takes {schema}")
    return "\n".join(lines)


def told_in_words(messages: Iterable[Message], wording: Wording) -> Iterable[Message]:
    """Return a conversation without calls: what was said stays, results are told in plain words."""
    calls: dict[str, ToolCall] = {}
    for message in messages:
        if not any(isinstance(part, ToolCall | ToolResult | Reasoning) for part in message.parts):
            yield message
            continue
        parts: list[Part] = []
        for part in message.parts:
            match part:
                case ToolCall():
                    calls[part.id] = part
                case ToolResult():
                    made, told = calls.get(part.call_id), result_text(part)
                    name, given = ("a tool", "") if made is None else (made.name, made.arguments_json)
                    parts.append(Text(text=fill(wording.plan_result, tool=name, arguments=given, result=told.text)))
                    parts += told.media
                case Reasoning():
                    pass
                case _:
                    parts.append(part)
        if parts:
            yield Message(role=Role.USER if message.role is Role.TOOL else message.role, parts=tuple(parts))
