"""What Anthropic Messages refuses about the history: roles, empty text, pairs of call and result, thinking blocks.

Messages of one role that follow each other count as one turn, as on the real API; system messages between turns are
looked through.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from mustcall.core.origin import JsonObject
from mustcall.testing.offers import as_objects
from mustcall.testing.rules.rule import Rule, SeenRequest, refuse
from mustcall.testing.script import Fail

__all__ = ["RULES"]

_ID = re.compile(r"[a-zA-Z0-9_-]+")


class _Turn(msgspec.Struct):
    """Messages of one role in a row; each block with the place it came from."""

    role: str
    at: int
    blocks: list[tuple[str, JsonObject]]

    def of_type(self, kind: str) -> list[tuple[str, JsonObject]]:
        """Return the blocks of one type."""
        return [(place, block) for place, block in self.blocks if block.get("type") == kind]


def needs_messages(ask: SeenRequest) -> Fail | None:
    """There is at least one message."""
    messages: Any = ask.body.get("messages")
    if not isinstance(messages, list):
        return refuse("messages: Field required")
    return None if messages else refuse("messages: at least one message is required")


def knows_roles(ask: SeenRequest) -> Fail | None:
    """Messages are of the user, the assistant or (between turns) the system."""
    for at, message in enumerate(as_objects(ask.body.get("messages"))):
        if message.get("role") not in ("user", "assistant", "system"):
            return refuse(f"messages.{at}.role: Input should be 'user' or 'assistant'")
    return None


def has_no_empty_text(ask: SeenRequest) -> Fail | None:
    """No text block and no message is empty."""
    for k, block in enumerate(as_objects(ask.body.get("system"))):
        if block.get("type") == "text" and not block.get("text"):
            return refuse(f"system.{k}.text: text content blocks must be non-empty")
    for at, message in enumerate(as_objects(ask.body.get("messages"))):
        if not message.get("content"):
            return refuse(f"messages.{at}: all messages must have non-empty content")
        for k, block in enumerate(as_objects(message.get("content"))):
            if block.get("type") == "text" and not str(block.get("text") or "").strip():
                return refuse(f"messages.{at}.content.{k}.text: text content blocks must be non-empty")
    return None


def ends_with_user(ask: SeenRequest) -> Fail | None:
    """The last turn is the user's: an assistant turn is not continued (prefill)."""
    turns = list(_turns(ask))
    if turns and turns[-1].role == "assistant":
        return refuse(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    return None


def needs_tools_for_history(ask: SeenRequest) -> Fail | None:
    """A history with calls or results comes with `tools`."""
    used = any(turn.of_type("tool_use") or turn.of_type("tool_result") for turn in _turns(ask))
    if used and not ask.body.get("tools"):
        return refuse("tools: Field required when messages contain `tool_use` or `tool_result` blocks.")
    return None


def limits_ids(ask: SeenRequest) -> Fail | None:
    """Ids of calls are letters, digits, `_` and `-`."""
    for turn in _turns(ask):
        for kind, field in (("tool_use", "id"), ("tool_result", "tool_use_id")):
            for place, block in turn.of_type(kind):
                if not _ID.fullmatch(str(block.get(field, ""))):
                    return refuse(f"{place}.{kind}.{field}: String should match pattern '^[a-zA-Z0-9_-]+$'")
    return None


def uses_each_id_once(ask: SeenRequest) -> Fail | None:
    """No two calls share an id."""
    seen: set[Any] = set()
    for turn in _turns(ask):
        for place, block in turn.of_type("tool_use"):
            if block.get("id") in seen:
                return refuse(f"{place}: `tool_use` ids must be unique")
            seen.add(block.get("id"))
    return None


def answers_every_call(ask: SeenRequest) -> Fail | None:
    """Every call has its result in the turn right after it."""
    for turn, after in pairwise([*_turns(ask), _Turn("user", 0, [])]):
        answered = [block.get("tool_use_id") for _, block in after.of_type("tool_result")]
        unanswered = [str(block.get("id")) for _, block in turn.of_type("tool_use") if block.get("id") not in answered]
        if unanswered:
            text = f"messages.{turn.at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            text += ", ".join(unanswered)
            return refuse(f"{text}. Each `tool_use` block must have a corresponding `tool_result` in the next message.")
    return None


def pairs_results(ask: SeenRequest) -> Fail | None:
    """Every result answers a call of the turn right before it."""
    for before, turn in pairwise([_Turn("user", 0, []), *_turns(ask)]):
        calls = [block.get("id") for _, block in before.of_type("tool_use")]
        for place, block in turn.of_type("tool_result"):
            if block.get("tool_use_id") not in calls:
                text = f"{place}: unexpected `tool_use_id` found in `tool_result` blocks: {block.get('tool_use_id')}. "
                text += "Each `tool_result` block must have a corresponding `tool_use` in the previous message."
                return refuse(text)
    return None


def puts_results_first(ask: SeenRequest) -> Fail | None:
    """In a user turn nothing stands before the results."""
    for turn in _turns(ask):
        kinds = [block.get("type") for _, block in turn.blocks]
        results = kinds.count("tool_result")
        if kinds[:results].count("tool_result") != results:
            return refuse(f"messages.{turn.at}: `tool_result` blocks must come before any other content")
    return None


def keeps_thinking(ask: SeenRequest) -> Fail | None:
    """Thinking blocks come back exactly as this upstream issued them."""
    for turn in _turns(ask):
        for place, block in turn.of_type("thinking"):
            issued = ask.issued.thoughts.get(str(block.get("signature")))
            if issued is None:
                return refuse(f"{place}: Invalid `signature` in `thinking` block")
            if issued != block.get("thinking"):
                text = f"{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
                return refuse(text + "modified. These blocks must remain as they were in the original response.")
        for place, block in turn.of_type("redacted_thinking"):
            if block.get("data") not in ask.issued.redacted:
                return refuse(f"{place}: Invalid `data` in `redacted_thinking` block")
    return None


RULES: tuple[Rule, ...] = (
    needs_messages,
    knows_roles,
    has_no_empty_text,
    needs_tools_for_history,
    limits_ids,
    uses_each_id_once,
    answers_every_call,
    pairs_results,
    puts_results_first,
    keeps_thinking,
    ends_with_user,
)


def _turns(ask: SeenRequest) -> Iterator[_Turn]:
    turn: _Turn | None = None
    for at, message in enumerate(as_objects(ask.body.get("messages"))):
        role, content = str(message.get("role")), message.get("content")
        blocks: list[JsonObject] = (
            [{"type": "text", "text": content}] if isinstance(content, str) else as_objects(content)
        )
        placed = [(f"messages.{at}.content.{k}", block) for k, block in enumerate(blocks)]
        if role == "system":
            continue
        if turn is not None and turn.role == role:
            turn.blocks += placed
            continue
        if turn is not None:
            yield turn
        turn = _Turn(role, at, placed)
    if turn is not None:
        yield turn
