"""Scripted models for every role of a coordinated answer, and the requests they must be sent."""

import itertools
import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from mustcall import CoordinateResult, Upstream, coordinate
from mustcall.engine.coordinating import (
    RoleKind,
)
from mustcall.engine.coordinating.prompts import INSTRUCTIONS
from mustcall.policy.facts.wording import Wording, fill
from mustcall.testing import Answer, Call, Say, Script, ScriptedUpstream, Turn
from support.agents import WIRES, ask_body, user, wrapped

__all__ = [
    "AGREES",
    "ASKED",
    "FINAL",
    "PROPOSAL",
    "QUESTION",
    "QUOTED",
    "REVISE",
    "SCHEMAS",
    "WORDS",
    "Models",
    "always",
    "body",
    "models",
    "statuses",
    "weather",
    "wires",
]

wires = pytest.mark.parametrize("wire", WIRES)
WORDS = Wording()
QUESTION = "How high is the tower?"

PROPOSAL = Turn(Say('{"answer":"330 m","reasons":["the page says so"]}'))
AGREES = Turn(Say('{"stance":"agree"}'))
REVISE = Turn(Say('{"stance":"revise","problems":["no source"],"suggestion":"name one"}'))
FINAL = Turn(Say('{"answer":"It is 330 metres high.","confidence":"high"}'))

_LIST = {"items": {"type": "string"}, "type": "array"}
SCHEMAS: dict[str, Any] = {
    "proposer": {
        "description": "A proposed answer.",
        "properties": {
            "answer": {"description": "The proposed answer.", "minLength": 1, "type": "string"},
            "reasons": {"default": [], "description": "Why, in short sentences.", **_LIST},
            "unsure": {"default": [], "description": "What is not certain.", **_LIST},
        },
        "required": ["answer"],
        "title": "Proposal",
        "type": "object",
    },
    "critic": {
        "description": "What a critic says about a proposal.",
        "properties": {
            "problems": {"default": [], "description": "What is wrong or missing.", **_LIST},
            "stance": {
                "description": "Whether the proposal stands, needs changes, or is wrong.",
                "enum": ["agree", "reject", "revise"],
            },
            "suggestion": {"default": "", "description": "What would mend it.", "type": "string"},
        },
        "required": ["stance"],
        "title": "Critique",
        "type": "object",
    },
    "synthesizer": {
        "description": "The final answer.",
        "properties": {
            "answer": {"description": "The final answer.", "minLength": 1, "type": "string"},
            "confidence": {"default": "medium", "description": "How sure it is.", "enum": ["high", "low", "medium"]},
            "open_points": {"default": [], "description": "What stays disputed or unknown.", **_LIST},
        },
        "required": ["answer"],
        "title": "Synthesis",
        "type": "object",
    },
}

QUOTED = wrapped("330 m\nReasons:\n- the page says so", "proposer")
ASKED = {
    "proposer": QUESTION,
    "critic": f"The question: {QUESTION}\n\nThe proposed answer:\n{QUOTED}",
    "synthesizer": f"The question: {QUESTION}\n\nThe proposed answer:\n{QUOTED}\n\n"
    + "\n\n".join(f"What a critic says:\n{wrapped('Stance: agree', f'critic_{number}')}" for number in (1, 2)),
}


def body(wire: str, role: str, turns: Sequence[dict[str, Any]] | None = None, **fields: Any) -> dict[str, Any]:
    """A request of a role, as it must be."""
    schema = json.dumps(SCHEMAS[role], sort_keys=True, separators=(",", ":"))
    told = f"{INSTRUCTIONS[RoleKind(role)]}\n\n{fill(WORDS.answer_as_json, schema=schema)}"
    asked = [user(wire, ASKED[role])] if turns is None else list(turns)
    fields.setdefault("tools", [])
    if not fields["tools"]:  # where nothing is known of schema output it is tried (rule 140)
        fields |= _held_to(wire, SCHEMAS[role])
    if wire == "chat":
        return ask_body(wire, [{"role": "system", "content": told}, *asked], **fields)
    place: Any = {"system" if wire == "messages" else "instructions": told}
    return ask_body(wire, asked, **place, **fields)


def _held_to(wire: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The field that holds an answer to a schema."""
    return {
        "chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}},
        "responses": {"text": {"format": {"type": "json_schema", "name": "answer", "schema": schema}}},
        "messages": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
    }[wire]


class Models:
    """Scripted models for every role."""

    def __init__(self, upstreams: Mapping[str, ScriptedUpstream], wire: str) -> None:
        self.upstreams = upstreams
        self._wire = wire

    def at(self, name: str) -> Upstream:
        """A role's upstream."""
        return Upstream(f"{self._wire}={self.upstreams[name].base_url}", model="m", api_key="k")

    def bodies(self, name: str) -> list[Any]:
        """What a role was sent."""
        return [one.body for one in self.upstreams[name].requests]

    async def ask(self, **settings: Any) -> CoordinateResult:
        """Coordinate an answer of them all."""
        critics = [self.at(name) for name in self.upstreams if name.startswith("critic")]
        settings.setdefault("critics", critics)
        return await coordinate(QUESTION, proposer=self.at("proposer"), synthesizer=self.at("synthesizer"), **settings)


@contextmanager
def models(wire: str = "chat", /, **scripts: Script) -> Generator[Models]:
    """Scripted models for the length of a test: a good one for each role that no script is given for."""
    healthy: dict[str, Script] = {
        "proposer": [PROPOSAL],
        "critic_1": [AGREES],
        "critic_2": [AGREES],
        "synthesizer": [FINAL],
    }
    with ExitStack() as stack:
        yield Models(
            {
                name: stack.enter_context(ScriptedUpstream(script, strict=True))
                for name, script in (healthy | scripts).items()
            },
            wire,
        )


def always(answer: Answer) -> Script:
    """A script of one answer."""
    return itertools.repeat(answer)


def statuses(result: CoordinateResult, name: str) -> list[tuple[int, str, str]]:
    """The inner calls of a role."""
    return [(call.hop, call.name, str(call.status)) for call in result.inner_tool_calls[name]]


def weather(city: str = "Oslo") -> Turn:
    """A call."""
    return Turn(Call("get_weather", {"city": city}))
