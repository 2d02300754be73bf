"""Draws the pictures of docs/concepts: the ladder, verdicts, dialects and the ledger, from the tables of the code."""

import re
from collections import defaultdict

from drawing import arrow, box, svg, text, wrapped

from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ToolChoice
from mustcall.core.verdict import Verdict
from mustcall.dialects import DIALECTS
from mustcall.ledger.stores.migrations import MIGRATIONS
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Forcing, Profile, ReasoningHabit
from mustcall.policy.request.demand import Demand
from mustcall.policy.request.plan import RungKind, make_plan
from mustcall.policy.turn.remedy import TABLE, Remedy

__all__ = ["dialects", "ladder", "ledger", "verdicts"]

#: What each rung sends, in a few words.
_RUNGS = {
    RungKind.NATIVE: "tool_choice as asked",
    RungKind.SOFT: "auto, and a directive",
    RungKind.HARD: "choice, reasoning off",
    RungKind.SCHEMA: "the call as a schema",
    RungKind.GRAMMAR: "constrained decoding",
    RungKind.TEXT: "tools in the prompt",
}
#: Upstreams of different kinds, by what is known of them.
_KINDS = (
    ("obeys a forced choice", Profile(forced=Forcing.ALWAYS, schema_output=True)),
    (
        "refuses it while reasoning",
        Profile(
            forced=Forcing.WITHOUT_REASONING,
            reasoning=ReasoningHabit.ALWAYS,
            reasoning_off=True,
            schema_output=True,
        ),
    ),
    ("ignores it", Profile(forced=Forcing.IGNORED, schema_output=True, grammar_field="guided_json")),
    ("nothing is known", Profile(reasoning=ReasoningHabit.NEVER, schema_output=True, grammar_field="guided_json")),
)


def ladder() -> str:
    """Draw the ways in which each kind of upstream is asked for a demanded call."""
    parts: list[str] = []
    request, demand = Request(model="m", messages=()), Demand(choice=ToolChoice(mode=ChoiceMode.REQUIRED))
    y = 10
    for name, profile in _KINDS:
        parts.append(
            text(10, y + 18, f"The model {name}" if name != "nothing is known" else "Nothing is known", "name")
        )
        for place, rung in enumerate(make_plan(request, demand, profile, Controls()).rungs):
            x, top = 10 + place * 157, y + 30
            parts += [
                box(x, top, 145, 48, "again" if place else "accept"),
                text(x + 10, top + 20, str(rung.kind), "name"),
            ]
            parts.append(text(x + 10, top + 38, "again, firmer" if rung.firmness else _RUNGS[rung.kind], "small"))
            if place:
                parts.append(arrow((x - 12, top + 24), (x, top + 24)))
        y += 100
    parts.append(
        text(
            10,
            y + 6,
            "Each step right is one more upstream call, only if the one before did not bring a valid call.",
            "small",
        )
    )
    return svg(y + 18, "The force ladder for four kinds of upstreams", parts)


_SHOWN = {
    Remedy.ACCEPT: ("accept", "delivered"),
    Remedy.SALVAGE: ("accept", "repaired"),
    Remedy.RESAMPLE: ("again", "sent again"),
    Remedy.REMIND: ("again", "reminded"),
    Remedy.CLIMB: ("again", "next rung"),
    Remedy.FAIL: ("fail", "typed error"),
}


def verdicts() -> str:
    """Draw which remedies each verdict can come to."""
    parts: list[str] = []
    for place, (_, words) in enumerate(_SHOWN.values()):
        parts.append(text(270 + place * 112, 22, words, "small", middle=True))
    y = 34
    for number, verdict in enumerate(one for one in Verdict if any(row.verdict is one for row in TABLE)):
        if number % 2 == 0:
            parts.append(box(10, y, 870, 26, "band"))
        parts.append(text(20, y + 18, str(verdict), "name"))
        for place, (remedy, (kind, _)) in enumerate(_SHOWN.items()):
            if any(row.verdict is verdict and row.remedy is remedy for row in TABLE):
                parts.append(f'<circle class="{kind}" cx="{270 + place * 112}" cy="{y + 13}" r="8"/>')
        y += 26
    note = (
        "A verdict has several dots where the remedy depends on the turn: what was demanded, and what was tried before."
    )
    parts.append(text(10, y + 24, note, "small"))
    return svg(y + 36, "What is done about each verdict", parts)


def dialects() -> str:
    """Draw the families of text forms with their members."""
    families: dict[str, list[str]] = defaultdict(list)
    for dialect in DIALECTS:
        families[dialect.family].append(dialect.name)
    parts = [text(10, 24, f"{len(DIALECTS)} dialects in {len(families)} families", "name")]
    y = 38
    for family, names in sorted(families.items(), key=lambda one: -len(one[1])):
        lines = list(wrapped(names, 105))
        height = 26 + 18 * (len(lines) - 1)
        parts += [box(10, y, 940, height), text(22, y + 18, f"{family} ({len(names)})", "name")]
        parts += [text(220, y + 18 + 18 * line, words, "small") for line, words in enumerate(lines)]
        y += height + 5
    return svg(y + 6, "The dialects by family", parts)


#: The tables by what they are for. A table that is not here, or no longer there, is an error.
_TABLES = {
    "Durable runs": ("each step is written before and after it happens", ("run", "event")),
    "Conversations": (
        "responses, items and threads that callers continue",
        ("conversation", "response", "item", "holder"),
    ),
    "Traces": ("what every turn was; contents only if switched on", ("turn", "attempt")),
    "Budgets": ("what sessions have used, and which upstreams fail", ("account", "charge", "host", "breaker")),
    "Learnt facts": ("what worked with which model, with the evidence", ("fact", "tally")),
    "Measured facts": ("what a probe measured of a model at an endpoint", ("measured",)),
}


def ledger() -> str:
    """Draw what is kept, who writes it, and where."""
    made = {name for one in MIGRATIONS for name in re.findall(r"CREATE TABLE mustcall_(\w+)", str(one))}
    told = {name for _, names in _TABLES.values() for name in names}
    assert made == told, made ^ told
    parts: list[str] = []
    for place, name in enumerate(("gateway", "agents", "workers", "command line")):
        parts += [box(10, 20 + place * 66, 150, 46), text(24, 48 + place * 66, name, "name")]
        parts.append(arrow((160, 43 + place * 66), (210, 43 + place * 66)))
    y = 10
    for title, (words, names) in _TABLES.items():
        parts += [box(215, y, 560, 56), text(228, y + 22, title, "name"), text(360, y + 22, words)]
        parts.append(text(360, y + 42, f"tables: {', '.join(names)}", "small"))
        y += 62
    for place, (name, words) in enumerate((("SQLite", "a file, by default"), ("PostgreSQL", "for many replicas"))):
        top = 60 + place * 110
        parts += [
            box(825, top, 125, 60, "accept"),
            text(838, top + 25, name, "name"),
            text(838, top + 45, words, "small"),
        ]
        parts.append(arrow((775, top + 30), (825, top + 30)))
    return svg(y + 10, "What the ledger keeps", parts)
