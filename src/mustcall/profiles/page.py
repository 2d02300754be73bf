"""The reference page of profiles (docs/profiles.md), written from the same data the engine decides from."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any

import msgspec

from mustcall.policy.facts.profile import Profile
from mustcall.policy.failures.rejection import LESSONS, SIGNS, Rejection
from mustcall.profiles.catalogue import ProfileEntry, load
from mustcall.profiles.facts import FIELDS, PRECEDENCE, Fact, legal_values

__all__ = ["MEANINGS", "markdown"]

#: What each field says, for people who set one.
MEANINGS: dict[str, str] = {
    "name": "the profile's name in traces",
    "protocol": "how tools are used: the upstream's tool API, text, the API with text calls promoted, or not at all",
    "forced": "what a forced tool choice does",
    "takes_choice": "whether a tool choice is taken at all; if not, none is sent and a demand is a directive",
    "named": "whether one tool can be forced by name; if not, the tools are reduced to it",
    "single_as_any": "whether the only tool on offer is forced by `required` rather than by its name",
    "reasoning": "when the model reasons",
    "reasoning_off": "whether reasoning can be turned off for one request; absent: not known",
    "reasoning_off_fields": "extra body fields that turn it off, where the wire's own setting does not",
    "prefill": "whether a request may end on an assistant turn",
    "prefix_bound": "whether reasoning handed back is bound to everything before it",
    "schema_output": "whether answers can be constrained to a JSON schema by the wire's own setting; absent: not known",
    "schema_with_tools": "whether that works while tools are on offer; if not, a tool takes the answer",
    "grammar_field": "the body field that takes a JSON schema for constrained decoding",
    "grammar_output": "whether the server takes such a field; absent: not known, tried on local servers",
    "local": "whether the server runs on this machine or in its network; absent: told by its address",
    "forced_by": "the rungs that made forced calls here, the best first; learnt",
    "stateful": "whether a Responses upstream keeps its replies under their ids; if not, the gateway keeps them",
    "streams": "whether streams are answered; if not, what the caller wants streamed is asked for whole",
    "streams_forced": "whether forced turns may be streamed although the caller does not stream; absent: not known",
    "constrain_first": "whether constrained rungs come first when a call is forced",
    "bounded_schemas": "whether a constrained answer's schema gets limits where it has none",
    "worked_examples": "whether a constrained call is asked for by example, and results are told in plain words",
    "words_choose": "whether the words of the message narrow the tools and decide, under `auto`, whether one is called",
    "arguments_from_message": "whether free text in a constrained call is held to what the message says",
    "parallel": "whether the setting that forbids several calls in one reply is taken; if not, it is enforced here",
    "trusted_arguments": "whether call arguments are released as they stream, before they are complete",
    "id_pattern": "what call ids must look like, beyond the wire's rule",
    "id_length": "the longest call id",
    "name_pattern": "what tool names must look like, beyond the wire's rule",
    "name_length": "the longest tool name",
    "reasoning_field": "the chat field that carries reasoning text back",
    "reasoning_history": "whether reasoning of earlier turns is handed back",
    "reasoning_only_final": "whether a reply of nothing but reasoning is an answer",
    "history_needs_tools": "whether a history with calls needs tools on offer",
    "schema_target": "which subset of JSON Schema tool parameters are compiled to",
    "narrowed_schemas": "digests of tool schemas that were refused, and go out in the narrowest subset; learnt",
    "refused_tools": "digests of tools that were refused in every form, and are left out; learnt",
    "context_length": "tokens the context holds, prompt and reply together; 0 if not known",
    "most_tools": "the most tools one request may offer; 0 for no limit",
    "dialects": "dialects looked for in text: `auto`, or names",
    "prompt_dialect": "the dialect tools are rendered in under `prompt`",
    "prompt_limit": "the characters the tools may take there; the others are only named; 0 for no limit",
    "separates_reasoning": "whether the upstream itself separates reasoning from text",
}

_HEAD = """\
# Profiles

<!-- Generated from the data in src/mustcall/profiles/data by `mustcall.profiles.markdown()`; do not edit. -->

A profile says what an upstream really does. mustcall comes with the facts below, each with how it was observed:
`docs` (documented by the provider), `code` (found in public code), `issue` (reported by users), `measured` (by us),
`assumed` (common knowledge, not checked).
They are the starting point: none was checked against a live paid API. A refusal that contradicts a fact is learnt (see
"Refusals" below).

Every entry that matches a model at an endpoint counts. Field by field the more specific one wins: an endpoint's
facts win over a model's, a model at an endpoint over the endpoint, a longer pattern over a shorter one.
In patterns `*`, `?` and
`[…]` are wildcards, case does not matter, `.`, `-` and `_` in model names are alike, a number ends where the pattern
ends it (`gpt-5*` is not `gpt-50`), and a vendor's prefix before the model (`anthropic/`, `us.anthropic.`) is skipped.
Endpoint patterns are matched against host, port and path of the `base_url`.

## Your own facts

Write them into `mustcall.toml`. They override everything else; if two match, the later one is used.

```toml
[[profile]]
models = ["my-model*"]           # any of models, endpoints, upstreams, wires; what is left out matches all
endpoints = ["localhost:8000*"]
forced = "always"
named = false
reasoning_off_fields = { chat_template_kwargs = { enable_thinking = false } }
```
"""

_MEASURED = """\
## Measured facts

`mustcall probe UPSTREAM --write` measures what an endpoint does and writes the facts that follow: into `mustcall.toml`
(a `[[measured]]` table; everything else in the file stays byte for byte), or with `--ledger` into the ledger, where all
replicas read it within half a minute. `--profile FILE` writes a file of its own. Used by:

- the gateway: `[[measured]]` tables, `[probe] profiles = ["qwen.json"]` (relative to the configuration), the ledger;
- an agent: `Upstream("chat=http://127.0.0.1:9000/v1#qwen", profile="qwen.json")`;
- `mustcall explain`: the configuration, `--profile FILE`, `--ledger PLACE`.

```json
{
  "version": 1,
  "upstream": "local",
  "endpoint": "127.0.0.1:9000/v1",
  "wire": "chat",
  "model": "qwen2.5-0.5b",
  "facts": {
    "forced": {"value": "ignored", "measured": "2026-11-17 0/24"}
  }
}
```

`measured` is the day, and how many of how many requests showed the guarantee. A profile is about one model at one
endpoint on one wire. `mustcall explain`, `mustcall config check` and `mustcall profiles list` show each fact with its
source; `mustcall profiles forget --measured` removes what the ledger has. The PLAN that the probe prints compares what
would be sent before and after, by the planner itself.

Precedence of the sources, field by field (the higher rank is used; of two measured facts, the newer one):

"""


def _precedence() -> str:
    ranks: dict[int, list[str]] = {}
    for observed, rank in PRECEDENCE.items():
        ranks.setdefault(rank, []).append(f"`{observed}`")
    rows = [(str(rank), ", ".join(ranks[rank]), _WHO[rank]) for rank in sorted(ranks, reverse=True)]
    return _table(("rank", "observed", "who says so"), rows)


_WHO = {
    3: "the operator, in `[[profile]]`",
    2: "`mustcall probe`",
    1: "turns: refusals and counts",
    0: "what comes with mustcall",
}


def markdown() -> str:
    """Return the whole page."""
    parts = [
        _HEAD,
        _MEASURED + _precedence(),
        "## Fields\n",
        "The defaults are what is assumed of an unknown model.\n",
        _fields(),
    ]
    for file, entries in groupby(load(), key=lambda entry: entry.file):
        parts.append(f"## {file.removesuffix('.toml').capitalize()}\n")
        parts.append(_facts(entries))
    parts.append(_REFUSALS)
    parts.append(_lessons())
    parts.append(_signs())
    return "\n".join(parts)


_REFUSALS = """\
## Refusals

An error whose words are known is not the end of a turn: it says what to do otherwise, and the request is sent again
with that one change. If the upstream then answers, the change is learnt for the endpoint and model:

- Nothing is learnt from a request that is refused again, and nothing from words that occur in the request itself: the
  error may have quoted them.
- A fact is its caller's: it changes the requests of the key whose turn taught it. Two other keys must have learnt it,
  each by itself, before it changes anybody else's. The same holds for counts of which way of asking worked.
- A refused tool schema is a fact about that schema (without its titles and descriptions), not about others.
- A fact is believed for an hour, then the next turn tries again. Each time it proves true it is believed twice as
  long, seven days at most. `mustcall profiles list` shows what is believed, `mustcall profiles forget` removes it.
"""


def _fields() -> str:
    unknown = Profile()
    rows = [
        (f"`{field}`", MEANINGS[field], _choices(field), _shown(getattr(unknown, field)))
        for field in Profile.__struct_fields__
    ]
    return _table(("field", "meaning", "values", "default"), rows)


def _choices(field: str) -> str:
    kind = FIELDS[field]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{value}`" for value in kind)
    return legal_values(field)


def _facts(entries: Iterable[ProfileEntry]) -> str:
    rows: list[Sequence[str]] = []
    for entry in entries:
        about = _about(entry)
        for field, fact in entry.facts.items():
            rows.append((*about, f"`{field}`", _shown(fact.value), _how(fact), fact.note))
            about = ("", "")
    return _table(("profile", "for", "field", "value", "observed", "note"), rows)


def _about(entry: ProfileEntry) -> tuple[str, str]:
    places = [f"`{pattern.text}`" for pattern in entry.endpoints]
    models = [f"`{pattern.text}`" for pattern in entry.models]
    where = " ".join(models)
    if places:
        where = f"{where} at {' '.join(places)}" if models else f"at {' '.join(places)}"
    if entry.wires:
        where += f" on {', '.join(entry.wires)}"
    return entry.name, where


def _how(fact: Fact) -> str:
    return f"{fact.observed}, {fact.when}" if fact.when else str(fact.observed)


def _lessons() -> str:
    rows = [
        (f"`{rejection}`", f"`{taught[0]}` = {_shown(taught[1])}" if (taught := LESSONS.get(rejection)) else "")
        for rejection in Rejection
    ]
    return _table(("refusal", "learnt"), rows)


def _signs() -> str:
    rows = [
        (f"`{sign.rejection}`", " … ".join(_code(words) for words in sign.words), sign.who, sign.observed)
        for sign in SIGNS
    ]
    return _table(("refusal", "words (case does not matter)", "said by", "observed"), rows)


def _shown(value: Any) -> str:
    if value in (None, "", {}):
        return "none"
    match value:
        case bool():
            return "yes" if value else "no"
        case dict() | tuple():
            return _code(msgspec.json.encode(value).decode())
        case _:
            return _code(str(value))


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)
