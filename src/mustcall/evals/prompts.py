"""The prompts that are asked: what is said, which tools are on offer, what the caller demands, which call is right.

Reads the data file beside this module and checks it. Knows nothing of models, wires or how an answer is scored.
"""

import random
import tomllib
from functools import cache
from importlib import resources
from typing import Any, assert_never

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import JsonObject
from mustcall.core.tools import Tool
from mustcall.evals.questions import AskedCall, Question, Said, Speaker

__all__ = [
    "EvalPrompt",
    "Expected",
    "Items",
    "OneOf",
    "Same",
    "SameText",
    "Words",
    "as_question",
    "choose_prompts",
    "describe_wanted",
    "load_prompts",
    "prompts_text",
]


class _Expected(msgspec.Struct, frozen=True, kw_only=True, tag_field="how", forbid_unknown_fields=True):
    """How one argument is compared."""


class SameText(_Expected, frozen=True, tag="text"):
    """The same words; case, blanks and punctuation around them do not count."""

    value: str


class Same(_Expected, frozen=True, tag="same"):
    """The same JSON value."""

    value: Any


class OneOf(_Expected, frozen=True, tag="one_of"):
    """One of these: texts as `SameText`, other values as `Same`."""

    values: tuple[Any, ...]


class Words(_Expected, frozen=True, tag="words"):
    """A text that holds all of these words (or parts of words)."""

    values: tuple[str, ...]


class Items(_Expected, frozen=True, tag="items"):
    """A list of these texts, each once, in any order."""

    values: tuple[str, ...]


Expected = SameText | Same | OneOf | Words | Items


class _Offer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    description: str
    parameters: JsonObject


class _Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    says: str
    offers: tuple[str, ...]
    demand: AskedCall
    wants: str
    arguments: dict[str, Expected]
    may: dict[str, Expected] = {}


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tools: dict[str, _Offer]
    prompt: tuple[_Form, ...]


class EvalPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its right answer: a call of `wants`. `arguments` must be there as said, `may` may be."""

    id: str
    says: str
    tools: tuple[Tool, ...]
    demand: AskedCall
    wants: str
    arguments: dict[str, Expected]
    may: dict[str, Expected] = {}


@cache
def prompts_text() -> str:
    """Return the data file."""
    return resources.files("mustcall.evals").joinpath("data", "prompts.toml").read_text(encoding="utf-8")


@cache
def load_prompts() -> tuple[EvalPrompt, ...]:
    """Return all prompts, in the order of the file. Reads it once in a process."""
    file = msgspec.convert(tomllib.loads(prompts_text()), _File)
    tools = {
        name: Tool(name=name, description=offer.description, parameters=offer.parameters)
        for name, offer in file.tools.items()
    }
    return tuple(
        EvalPrompt(
            id=form.id,
            says=form.says,
            tools=tuple(tools[name] for name in form.offers),
            demand=form.demand,
            wants=form.wants,
            arguments=form.arguments,
            may=form.may,
        )
        for form in file.prompt
    )


def choose_prompts(count: int | None = None, seed: int | None = None) -> tuple[EvalPrompt, ...]:
    """Return the first `count` prompts (all without it); with a seed, of an order that the seed decides.

    The file's order mixes the demands, so that a short run is a fair sample of the whole.
    """
    prompts = list(load_prompts())
    if count is not None and not 1 <= count <= len(prompts):
        raise ConfigError(f"there are {len(prompts)} prompts; ask for 1 to {len(prompts)} of them, not {count}")
    if seed is not None:
        random.Random(seed).shuffle(prompts)  # noqa: S311  an order that can be had again, not a secret
    return tuple(prompts[:count])


def as_question(prompt: EvalPrompt, choice: AskedCall | None = None) -> Question:
    """Return a prompt as it is asked: one user message; with a choice, that instead of the prompt's own demand."""
    demand = choice or prompt.demand
    return Question(
        id=prompt.id,
        set=str(demand),
        messages=(Said(Speaker.USER, prompt.says),),
        tools=prompt.tools,
        demand=demand,
        named=prompt.wants if demand is AskedCall.NAMED else None,
    )


def describe_wanted(prompt: EvalPrompt) -> str:
    """Say the right call in words."""
    arguments = ", ".join(f"{name}: {_described(expected)}" for name, expected in prompt.arguments.items())
    return f"{prompt.wants}({arguments})"


def _described(expected: Expected) -> str:
    match expected:
        case SameText() | Same():
            return _written(expected.value)
        case OneOf():
            return " or ".join(map(_written, expected.values))
        case Words():
            return f"text with {', '.join(map(_written, expected.values))}"
        case Items():
            return f"{', '.join(map(_written, expected.values))} in any order"
        case _:
            assert_never(expected)


def _written(value: Any) -> str:
    return msgspec.json.encode(value).decode()
