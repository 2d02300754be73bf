"""Writes the generated pages of docs/, and the parts of other pages between `<!-- generated: … -->` marks.

Everything here is printed from the tables the engine reads, so that docs and code cannot drift. `--check` compares
instead. docs/rules.md is the work of tools/rules.py.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from mustcall.cli.explain import command as explain
from mustcall.core.errors import ModelError
from mustcall.core.limits import DEFAULTS, MOST_PARTS, REASONS
from mustcall.core.request import ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ToolChoice
from mustcall.dialects.examples import describe_catalogue
from mustcall.dialects.names import names_markdown
from mustcall.engine.aside import MOST_TOGETHER
from mustcall.gateway.passing import MOST_PASSED
from mustcall.gateway.passing import markdown as withheld
from mustcall.policy import remedy, repairs
from mustcall.policy.checker import LARGEST_SCHEMA
from mustcall.policy.controls import Controls
from mustcall.policy.demand import Demand
from mustcall.policy.plan import make_plan
from mustcall.policy.profile import Forcing, Profile, Protocol, ReasoningHabit
from mustcall.policy.subschemas import MAX_DEPTH
from mustcall.policy.wording import Wording
from mustcall.policy.workload import MOST_STEPS
from mustcall.profiles import markdown as profiles
from mustcall.telemetry.prometheus import markdown as metrics
from mustcall.upstream.answer import HEAD_LIMIT
from mustcall.upstream.inflating import MOST_MEMBERS
from mustcall.upstream.providers import markdown as providers
from mustcall.wire.sse import DEFAULT_EVENT_LIMIT

sys.path.insert(0, str(Path(__file__).resolve().parent))  # a script beside this one, also where this one is loaded

from reference import reference

DOCS = Path(__file__).resolve().parent.parent / "docs"
_REGION = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- end -->\n", re.DOTALL)

_REMEDIES = """\
# Remedies

<!-- Generated from the table in src/mustcall/policy/remedy.py by `make docs`; do not edit. -->

What is done about a verdict. Of a verdict's rows, read from top to bottom, the first whose condition holds decides.
[turns.md](turns.md) explains the verdicts and the limits.

- **accept**: the reply is delivered. **salvage**: it is, with its text call promoted to a real one, or with arguments
  that a lossy [repair](repairs.md) made fit.
- **resample**: the same bytes again. **remind**: the bad turn is dropped whole, a short user turn is added at the tail.
- **climb**: the next rung of the force ladder. **fail**: a typed error that carries every attempt.

"Its retries" are the verdict's own limit; above all of them stands the turn's ceiling, `extra_calls`.

"""

_REPAIRS = """\
# Repairs

<!-- Generated from src/mustcall/policy/repairs.py and src/mustcall/dialects/names.py by `make docs`; do not edit. -->

What is done to a call that does not fit, native, translated or read from text. A call that fits is never touched. No
repair invents a value, and a string that was cut off is never completed.

## Arguments

Stages are tried in order: (a) read leniently where exactly one reading is possible, (b) coerce without loss, (c) ask
once more, (d) salvage, (e) fail. Only (d) loses something, so it comes behind the retry. `salvage_arguments = false`
switches it off. (a), (b) and (d) make no upstream call, (c) makes one.

Each repair is reported in `x-mustcall-adaptations` as `KIND:TOOL:REPAIR`. The kind is `arguments_read` for (a),
`arguments_coerced` for (b) and `arguments_salvaged` for (d). The tool is `plan` in the examples; ⏎ is a line break.

{arguments}
A number at the very end of the text may have been cut, so brackets behind it are not added. Neither are they where a
comma or a comment to the end of the line comes last: more may have followed.

## Names

An exact name always wins. Else the readings are tried in order, and the first that fits a tool decides. A reading that
fits two tools ends the search: the call is then of an unknown tool. A repaired name is reported as `name_mapped:TOOL`.

{names}
## Ids

Parallel calls are told apart by index or item id. Of calls that share a call id the first keeps it. The others get a
new one, reported as `id_mapped`. It is unique in the conversation, and the client's next request may use it.
"""

#: When each sentence is said.
_OCCASIONS = {
    "call_named": "a tool is demanded by name: the directive, then each firmer one",
    "call_any": "some tool is demanded: the same",
    "text_call": "a call came as text under `native` or `hybrid`",
    "format_correction": "a call came in a form that cannot be read, where text is the channel for calls",
    "phantom_call": "the finish said calls and there were none",
    "unknown_tool": "a tool was called that is not on offer",
    "bad_arguments": "arguments did not fit; `{problem}` names the fields",
    "bad_answer": "a structured answer did not fit",
    "truncated": "a call was cut off",
    "empty": "nothing was said",
    "thinking_only": "nothing but reasoning came",
    "looping": "advice about the same call again and again, from the agent loop; the gateway only reports it",
    "call_as_json": "the schema and grammar rungs; `{tools}` lists the tools, braces are doubled",
    "call_worked": "the same rungs with `worked_examples`: the instruction before the examples",
    "call_worked_task": "and the message with the tools beside it; `{tools}`, `{message}`",
    "result_worked": "a tool's result in plain words, on the `answer` rung; `{tool}`, `{result}`",
    "answer_worked": "the question behind such a result",
    "continue_turn": "the history ends on an assistant turn that the model cannot continue",
    "step_cap": "the step cap is reached",
    "plan": "two models: in the planner's instructions",
    "plan_into_calls": "two models: in the instructions of the one that calls",
    "plan_result": "two models: a result, as the planner reads it",
    "answer_tool": "an answer is asked for through a tool: what that is for",
    "answer_again": "what the answer tool was given did not fit",
    "answer_as_json": "an agent's structured answer is asked for in words; `{schema}` is its schema",
    "tool_failed": "an agent's tool failed; `{problem}` is its own word or the kind of the error",
    "tool_timed_out": "it took longer than its `timeout`",
    "tool_refused": "its call was not approved, or it will not do it",
    "tool_misfit": "arguments did not fit when it was about to run; `{problem}` names the fields",
    "tool_cancelled": "the run was cancelled before its result was there",
    "tool_unknown": "a durable run was interrupted while it ran",
    "tool_happened": "a durable run was interrupted while it ran, and its `check` says that it took effect",
    "hops_spent": "the tool executions before a structured answer are used up",
    "money_spent": "a run has reached its cost cap, and the mode is `enforce`",
    "result_told": "`check_answers`: in place of an answer that departs from a result of one line",
    "result_told_lines": "the same for a result of several lines",
}

#: Who is asked, and how reasoning stands: the rows of the ladder table.
_LADDERS: tuple[tuple[str, str, dict[str, Any], bool | None], ...] = (
    ("`always`", "on or off", {"forced": Forcing.ALWAYS}, None),
    ("`without_reasoning`", "off", {"forced": Forcing.WITHOUT_REASONING, "reasoning": ReasoningHabit.NEVER}, None),
    (
        "`without_reasoning`",
        "on, can be turned off",
        {"forced": Forcing.WITHOUT_REASONING, "reasoning": ReasoningHabit.ASKED, "reasoning_off": True},
        True,
    ),
    (
        "`without_reasoning`",
        "on, cannot be turned off",
        {"forced": Forcing.WITHOUT_REASONING, "reasoning": ReasoningHabit.ALWAYS, "reasoning_off": False},
        None,
    ),
    ("`never`", "on", {"forced": Forcing.NEVER, "reasoning": ReasoningHabit.ALWAYS}, None),
    ("`never`", "off", {"forced": Forcing.NEVER, "reasoning": ReasoningHabit.NEVER}, None),
    ("`ignored`", "on or off", {"forced": Forcing.IGNORED}, None),
    ("`unknown`", "off", {"reasoning": ReasoningHabit.NEVER}, None),
    ("`unknown`", "on, can be turned off", {"reasoning": ReasoningHabit.DEFAULT, "reasoning_off": True}, None),
    ("`unknown`", "not known to be off", {}, None),
    ("`unknown`", "on, because the request says so", {}, True),
    ("any, under protocol `prompt`", "on or off", {"protocol": Protocol.PROMPT}, None),
    ("any, with `constrain_first`", "on or off", {"constrain_first": True}, None),
)


def _ladder(_: str) -> str:
    """Return the ladders of profiles that have every means, one row for each kind of them."""
    lines = ["| `forced` | reasoning | rungs, in order |", "|---|---|---|"]
    for forced, reasoning, facts, asked in _LADDERS:
        profile = Profile(schema_output=True, grammar_field="guided_json", **facts)
        config = ReasoningConfig(mode=ReasoningMode.ENABLED) if asked else None
        request = Request(model="m", messages=(), reasoning=config)
        demand = Demand(choice=ToolChoice(mode=ChoiceMode.REQUIRED))
        rungs = make_plan(request, demand, profile, Controls()).rungs
        names = ", ".join(f"{rung.kind}{f'+{rung.firmness}' if rung.firmness else ''}" for rung in rungs)
        lines.append(f"| {forced} | {reasoning} | {names} |")
    return "\n".join(lines) + "\n"


def _wording(_: str) -> str:
    lines = ["| setting | said when | default |", "|---|---|---|"]
    wording = Wording()
    for name in Wording.__struct_fields__:
        value: str | tuple[str, ...] = getattr(wording, name)
        said = value if isinstance(value, str) else "<br>".join(value)
        shown = said.replace("\n", " ")
        lines.append(f"| `{name}` | {_OCCASIONS[name]} | {shown} |")
    return "\n".join(lines) + "\n"


def _errors(_: str) -> str:
    lines = ["| code | name | when |", "|---|---|---|"]
    for kind in ModelError.__subclasses__():
        when = (kind.__doc__ or "").splitlines()[0].split(" (rule")[0].rstrip(".")
        lines.append(f"| `{kind.code}` | `{kind.__name__}` | {when[0].lower()}{when[1:]} |")
    return "\n".join(lines) + "\n"


def _explain(page: str) -> str:
    """Return what `mustcall explain` prints for the request on the page, up to the facts that profiles.md lists."""
    request = next(block for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL) if "max_tokens" in block)
    unset = {"MUSTCALL_UPSTREAM": None, "MUSTCALL_CONFIG": None}
    asked = CliRunner().invoke(explain, ["--config", os.devnull], request, env=unset, catch_exceptions=False)
    shown = asked.stdout
    plan, known, facts = shown.partition("known of this model:\n")
    return f"```text\n{plan}{known}{''.join(facts.splitlines(keepends=True)[:4])}  …\n```\n"


REGIONS: dict[str, Callable[[str], str]] = {
    "ladder": _ladder,
    "wording": _wording,
    "errors": _errors,
    "explain": _explain,
}


def turns() -> str:
    """Return docs/turns.md with its generated parts written anew."""
    page = (DOCS / "turns.md").read_text(encoding="utf-8")
    return _REGION.sub(lambda found: f"<!-- generated: {found[1]} -->\n{REGIONS[found[1]](page)}<!-- end -->\n", page)


def setup() -> str:
    """Return docs/setup.md with its table of providers written anew."""
    page = (DOCS / "setup.md").read_text(encoding="utf-8")
    return _REGION.sub(lambda found: f"<!-- generated: {found[1]} -->\n{providers()}<!-- end -->\n", page)


def _limits(_: str) -> str:
    lines = ["| setting | default | bounds | above it | because |", "|---|---|---|---|---|"]
    for name, reason in REASONS.items():
        value: Any = getattr(DEFAULTS, name)
        shown = (", ".join(value) or "none") if isinstance(value, tuple) else f"{value:,}"
        lines.append(f"| `{name}` | {shown} | {reason.bounds} | {reason.above} | {reason.why} |")
    return "\n".join(lines) + "\n"


def _fixed(_: str) -> str:
    lines = [
        "| bounds | limit | above it |",
        "|---|---|---|",
        f"| parts of a reply | {MOST_PARTS:,} | `upstream_garbage` |",
        f"| bytes of one stream event | {DEFAULT_EVENT_LIMIT:,} | `upstream_garbage` |",
        f"| bytes of an upstream's head | {HEAD_LIMIT:,} | `upstream_garbage` |",
        f"| bytes of it that are passed on | {MOST_PASSED:,} | the rest is left out |",
        f"| members of a gzip answer | {MOST_MEMBERS:,} | `upstream_garbage` |",
        f"| steps of one validation | {MOST_STEPS:,} | the value does not fit |",
        f"| steps of all validations of one reply | {MOST_TOGETHER:,} | the values do not fit |",
        f"| characters of a schema | {LARGEST_SCHEMA:,} | not checkable |",
        f"| nesting of arguments and schemas | {MAX_DEPTH} | the value does not fit |",
    ]
    return "\n".join(lines) + "\n"


def security() -> str:
    """Return docs/security.md with its tables of limits written anew."""
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    write = {"limits": _limits, "fixed": _fixed}
    return _REGION.sub(lambda found: f"<!-- generated: {found[1]} -->\n{write[found[1]](page)}<!-- end -->\n", page)


def gateway() -> str:
    """Return docs/gateway.md with its table of withheld headers written anew."""
    page = (DOCS / "gateway.md").read_text(encoding="utf-8")
    return _REGION.sub(lambda found: f"<!-- generated: {found[1]} -->\n{withheld()}<!-- end -->\n", page)


def operations() -> str:
    """Return docs/operations.md with its table of metrics written anew."""
    page = (DOCS / "operations.md").read_text(encoding="utf-8")
    return _REGION.sub(lambda found: f"<!-- generated: {found[1]} -->\n{metrics()}<!-- end -->\n", page)


PAGES: dict[str, Callable[[], str]] = {
    "dialects.md": describe_catalogue,
    "gateway.md": gateway,
    "operations.md": operations,
    "profiles.md": profiles,
    "reference.md": reference,
    "remedies.md": lambda: _REMEDIES + remedy.markdown(),
    "repairs.md": lambda: _REPAIRS.format(arguments=repairs.markdown(), names=names_markdown()),
    "security.md": security,
    "setup.md": setup,
    "turns.md": turns,
}


def old() -> Iterator[str]:
    """Yield the pages that are not as they would be written."""
    for name, write in PAGES.items():
        path = DOCS / name
        if not path.is_file() or path.read_text(encoding="utf-8") != write():
            yield name


if __name__ == "__main__":
    stale = list(old())
    if "--check" in sys.argv:
        sys.exit(f"{', '.join(stale)}: old; run make docs" if stale else 0)
    for page_name in stale:
        (DOCS / page_name).write_text(PAGES[page_name](), encoding="utf-8")
