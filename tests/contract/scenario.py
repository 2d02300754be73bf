"""One turn from one number: who asks what of whom, with which tools, demands and history.

`build` is deterministic: the same seed is the same turn on any machine. The combination of wires and streaming goes
round with the seed, so that any eighteen seeds in a row cover them all.
"""

import random
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from mustcall.dialects import DIALECTS, Standing, WrittenCall
from mustcall.testing.adversary.upstream import CallerIntent
from mustcall.testing.adversary.values import sample
from mustcall.testing.offers import Choice, OfferedTool

__all__ = ["COMBINATIONS", "FIRST_PARTY", "Scenario", "Step", "build"]

WIRES = ("chat", "responses", "messages")
COMBINATIONS = tuple(product(WIRES, WIRES, (False, True)))

FIRST_PARTY = ("claude-", "gpt-", "gemini-")
_MODELS = (
    "claude-sonnet-4-5",
    "claude-opus-5-5",
    "claude-haiku-5-5",
    "claude-sonnet-5-5",
    "gpt-5.1",
    "gpt-4o",
    "gemini-3-pro",
    "glm-4.6",
    "deepseek-chat",
    "qwen3-32b",
    "kimi-k2",
    "mistral-large",
    "gemma-2-9b-it",
    "mystery-model",
    "mystery-model",
)

#: One turn in so many has an upstream that hangs, and short timeouts. Prime, so that all combinations have some.
_HANGING = 41

_TEXT = {"type": "string"}
_TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    (
        "get_weather",
        {"type": "object", "properties": {"city": _TEXT, "days": {"type": "integer"}}, "required": ["city"]},
    ),
    (
        "search_docs",
        {
            "type": "object",
            "properties": {"query": _TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 50}},
            "required": ["query"],
            "additionalProperties": False,
        },
    ),
    (
        "createTicket",
        {
            "type": "object",
            "properties": {
                "title": _TEXT,
                "priority": {"type": "string", "enum": ["low", "high"]},
                "labels": {"type": "array", "items": _TEXT},
            },
            "required": ["title", "priority"],
        },
    ),
    (
        "move_file",
        {
            "type": "object",
            "properties": {
                "from": _TEXT,
                "to": _TEXT,
                "options": {
                    "type": "object",
                    "properties": {"force": {"type": "boolean"}, "mode": {"type": "integer"}},
                    "required": ["force"],
                    "additionalProperties": False,
                },
            },
            "required": ["from", "to"],
        },
    ),
    (
        "set_point",
        {
            "type": "object",
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}, "note": _TEXT},
            "required": ["x", "y", "note"],
            "additionalProperties": False,
        },
    ),
    ("list_all", {"type": "object", "properties": {}}),
    (
        "run_query",
        {
            "type": "object",
            "properties": {
                "sql": {"type": "string", "minLength": 3},
                "params": {"type": "array", "items": {"anyOf": [_TEXT, {"type": "integer"}]}},
            },
            "required": ["sql"],
        },
    ),
    (
        "note_down",
        {
            "type": "object",
            "properties": {"body": {"type": ["string", "null"]}, "kind": {"enum": ["a", "b", 3]}},
            "required": ["body", "kind"],
        },
    ),
)
_ODD_NAMES = ("files.read", "a" * 70, "read file", "täg")
_ANSWER = {
    "type": "object",
    "properties": {"verdict": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["verdict", "score"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Step:
    """One piece of the conversation so far: user, assistant, call or result."""

    kind: str
    text: str = ""
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class Scenario:
    """One turn. `demand` is what the caller really wants; `choice` is what the request says."""

    seed: int
    caller: str
    upstream: str
    stream: bool
    model: str
    tools: tuple[tuple[str, dict[str, Any]], ...]
    choice: Choice | None
    parallel: bool
    thinking: str | None
    schema: dict[str, Any] | None
    history: tuple[Step, ...]
    dirt: tuple[str, ...]
    stale: str
    impossible: bool
    controls: dict[str, str]
    demand: CallerIntent

    @property
    def asked_model(self) -> str:
        """The model's name as the caller writes it: the upstream first, under the name of one with short timeouts."""
        return f"{self.upstream}-hasty/{self.model}" if self.demand.hangs else f"{self.upstream}/{self.model}"

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows the model, and the caller says nothing of how to use it."""
        return self.model.startswith("mystery-") and "protocol" not in self.controls

    def describe(self) -> str:
        """One line that says what this turn is."""
        choice = "absent" if self.choice is None else f"{self.choice.mode} {self.choice.name or ''}".strip()
        parts = [
            f"{self.caller} → {self.upstream}{' stream' if self.stream else ''}",
            self.model,
            f"tools {[name for name, _ in self.tools]}",
            f"choice {choice}",
        ]
        parts += [] if self.parallel else ["no parallel"]
        parts += [f"thinking {self.thinking}"] if self.thinking else []
        parts += ["schema"] if self.schema else []
        parts += [f"dirt {', '.join(self.dirt)}"] if self.dirt else []
        parts += [f"{name} {value}" for name, value in self.controls.items()]
        return "; ".join(parts)


def build(seed: int) -> Scenario:
    """Return the turn of this number."""
    source = random.Random(f"scenario {seed}")
    caller, upstream, stream = COMBINATIONS[seed % len(COMBINATIONS)]
    tools = _pick_tools(source)
    missing = bool(tools) and source.random() < 0.01
    choice = Choice("named", "missing_tool") if missing else _pick_choice(source, tools)
    schema = _ANSWER if source.random() < 0.12 and (choice is None or choice.mode in ("auto", "none")) else None
    stale = f"zqh{seed}x0z"
    history, dirt = _write_history(source, tools, stale)
    forced = choice is not None and choice.mode in ("required", "named")
    answered = bool(history) and history[-1].kind == "result"
    wanted = Choice("auto") if choice is None or (forced and answered) else choice  # rule 11
    parallel = not tools or source.random() > 0.2
    mood = source.random()
    honest_from = 0 if mood < 0.25 else source.randint(1, 4) if mood < 0.65 else None
    return Scenario(
        seed=seed,
        caller=caller,
        upstream=upstream,
        stream=stream,
        model=f"{source.choice(_MODELS)}-s{seed}",
        tools=tools,
        choice=choice,
        parallel=parallel,
        thinking=source.choice(["low", "high"]) if source.random() < 0.25 else None,
        schema=schema,
        history=history,
        dirt=dirt,
        stale=stale,
        impossible=missing and not answered,
        controls=_pick_controls(source),
        demand=CallerIntent(
            seed=seed,
            tools=tuple(OfferedTool(name, parameters) for name, parameters in tools),
            choice=wanted,
            parallel=parallel,
            schema=schema,
            honest_from=honest_from,
            hangs=not seed % _HANGING,
        ),
    )


_CONTROLS = {
    "on-unmet": ("answer",),
    "protocol": ("prompt", "hybrid", "native"),
    "hold": ("true",),
    "other-tool": ("accept",),
    "salvage": ("last", "never"),
    "extra-calls": ("0", "1", "2"),
    "metadata": ("true",),
}


def _pick_controls(source: random.Random) -> dict[str, str]:
    """Return what the caller asks of the gateway, by the names of the headers: most often nothing."""
    if source.random() < 0.75:
        return {}
    names = source.sample(sorted(_CONTROLS), source.randint(1, 2))
    return {name: source.choice(_CONTROLS[name]) for name in names}


def _pick_tools(source: random.Random) -> tuple[tuple[str, dict[str, Any]], ...]:
    if source.random() < 0.12:
        return ()
    picked = source.sample(_TOOLS, source.randint(1, 4))
    if source.random() < 0.04:
        picked[0] = (source.choice(_ODD_NAMES), picked[0][1])
    return tuple(picked)


def _pick_choice(source: random.Random, tools: tuple[tuple[str, dict[str, Any]], ...]) -> Choice | None:
    if not tools:
        return None
    match source.choice(["absent", "auto", "auto", "none", "required", "required", "named", "named"]):
        case "absent":
            return None
        case "named":
            return Choice("named", source.choice(tools)[0])
        case "none":
            return Choice("none")
        case "required":
            return Choice("required")
        case _:
            return Choice("auto")


_DIRT = ("orphan call", "orphan result", "empty user", "empty assistant", "trailing assistant", "leftover markup")


def _write_history(
    source: random.Random, tools: tuple[tuple[str, dict[str, Any]], ...], stale: str
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """Return the conversation so far and what is wrong with it; most often one question and nothing wrong."""
    question = Step("user", source.choice(["What now?", "Look it up, please.", "Who is your hero?", "Do it."]))
    shape = source.random()
    if shape < 0.55 or not tools:
        return (question,), ()
    name, schema = source.choice(tools)
    made = Step("call", id="call_a1", name=name, arguments=sample(schema, source, "earlier"))
    done = Step("result", "done", id="call_a1")
    if shape < 0.65:
        return (Step("user", "First."), made, done, Step("assistant", "Did that."), question), ()
    if shape < 0.75:
        return (question, made, done), ()
    dirt = tuple(source.sample(_DIRT, source.randint(1, 2)))
    steps: list[Step] = [Step("user", "First.")]
    for kind in dirt:
        match kind:
            case "orphan call":
                steps += [Step("call", id="call_b1", name=name, arguments=sample(schema, source, "earlier"))]
                steps += [Step("user", "And then?")]
            case "orphan result":
                steps += [Step("result", "late", id="call_c1"), Step("user", "Well?")]
            case "empty user":
                steps += [Step("user", ""), Step("assistant", "Hm."), Step("user", "Go on.")]
            case "empty assistant":
                steps += [Step("assistant", ""), Step("user", "Hello?")]
            case "leftover markup":
                steps += [Step("assistant", _leftover(source, tools, stale)), Step("user", "No, really.")]
            case _:
                pass
    if "trailing assistant" in dirt:
        steps.append(Step("assistant", source.choice(["I was saying", ""])))
    return tuple(steps), dirt


_LEFT = tuple(dialect for dialect in DIALECTS if dialect.standing is Standing.AUTO and dialect.name != "vcp")


def _leftover(source: random.Random, tools: tuple[tuple[str, dict[str, Any]], ...], stale: str) -> str:
    usual = [tool for tool in tools if tool[0] not in _ODD_NAMES]  # no dialect can write the others
    if not usual:
        return "Let me look."
    name, schema = source.choice(usual)
    value = {
        key: stale if isinstance(item, str) and stale in item else item
        for key, item in sample(schema, source, stale).items()
    }
    return "Let me look.\n\n" + source.choice(_LEFT).render([WrittenCall(name, value)])
