"""Makes records of the field corpus (tests/field/recorded) from the replies that `mustcall eval` kept.

    python tools/record.py replies.jsonl tests/field/recorded/NAME.jsonl --server llama.cpp

Only replies of the bare arm are taken: they are what the model wrote. What each must become is read plainly from its
text (`json.loads` and the tool's schema), never by mustcall. Replies whose outcome cannot be read so are named and left
out: a person decides about them.
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import jsonschema_rs

from mustcall.core.errors import MustcallError
from mustcall.evals.asking.journal import RunFacts, read_journal
from mustcall.evals.asking.rows import Arm, EvalRow, Form
from mustcall.evals.loading import open_suite
from mustcall.evals.questions import AskedCall, Question

_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)\n[ \t]*```", re.DOTALL)


def read_objects(text: str) -> tuple[list[Any], str]:
    """Return the JSON values that a text begins with, fenced or bare, lists opened; and what is left of the text."""
    values: list[Any] = []
    rest = text.strip()
    while rest:
        fence = _FENCE.match(rest)
        try:
            value, end = (json.loads(fence[1]), fence.end()) if fence else json.JSONDecoder().raw_decode(rest)
        except ValueError:
            break
        values += value if isinstance(value, list) else [value]
        rest = rest[end:].strip()
    return values, rest


def expect(text: str, choice: str, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """Return the outcome a reply must have, None where plain reading cannot tell.

    `choice` is `auto`, `required` or the name of a tool; `schemas` are those of the offered tools.
    """
    values, rest = read_objects(text)
    if choice != "auto":
        allowed = schemas if choice == "required" else {choice: schemas[choice]}
        if values and _fits(values[0], allowed):
            return {"outcome": "call", "calls": [_call(values[0])]}
        # A call further on may be one by rule 63 (a short lead-in), so only a text without any is clear.
        return {"outcome": "climb"} if values or '"name"' not in text else None
    if not values:
        return {"outcome": "answer"} if '"name"' not in text else None
    if rest or not all(isinstance(value, dict) and "name" in value for value in values):
        return None
    if all(_fits(value, schemas) for value in values):
        return {"outcome": "call", "calls": [_call(value) for value in values]}
    return {"outcome": "unfit"}


def _fits(value: Any, schemas: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, Any]", value)  # read from JSON, so its keys are strings
    name, arguments = fields.get("name"), fields.get("arguments")
    return name in schemas and isinstance(arguments, dict) and jsonschema_rs.is_valid(schemas[name], arguments)


def _call(value: dict[str, Any]) -> dict[str, Any]:
    return {"name": value["name"], "arguments": value["arguments"]}


def make_record(facts: RunFacts, row: EvalRow, question: Question, server: str) -> dict[str, Any] | None:
    """Return the record of a reply, None where plain reading cannot tell what it must become."""
    choice = question.named or "required" if row.choice is AskedCall.NAMED else str(row.choice)
    schemas = {tool.name: tool.parameters or {} for tool in question.tools}
    expected = expect(row.text, choice, schemas)
    if expected is None:
        return None
    tools = [
        {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters or {}}
        for tool in question.tools
    ]
    messages = [{"role": str(said.role), "content": said.text} for said in question.messages]
    return {
        "id": f"{facts.model}/{row.set}/{row.id}/{row.choice}",
        "model": facts.model,
        "server": server,
        "request": {"messages": messages, "tools": tools, "tool_choice": choice},
        "text": row.text,
        "finish": row.finish or "stop",
        "expected": expected,
    }


def make_records(journal: Path, server: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the records of a file of replies, and the ids of those that a person has to decide about."""
    facts, rows = read_journal(journal)
    suite = open_suite(facts.suite)
    if suite.version != facts.data:
        raise SystemExit(f"{journal} holds replies to other data: {facts.data}, here is {suite.version}")
    questions = {each.id: each for name in facts.sets for each in suite.questions(name, facts.choice)}
    records: list[dict[str, Any]] = []
    undecided: list[str] = []
    for row in rows:
        if row.arm is not Arm.BARE or row.form is not Form.NATIVE or row.fault is not None or row.calls:
            continue
        record = make_record(facts, row, questions[row.id], server)
        if record is None:
            undecided.append(row.id)
        else:
            records.append(record)
    return records, undecided


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the records of a file of replies."""
    parser = argparse.ArgumentParser(
        description="Make records of the field corpus from the replies that `mustcall eval` kept."
    )
    parser.add_argument("journal", type=Path, help="what `mustcall eval --out` wrote")
    parser.add_argument("corpus", type=Path, help="the file of records to write")
    parser.add_argument("--server", default="llama.cpp", help="the server that ran the model")
    given = parser.parse_args(arguments)
    try:
        records, undecided = make_records(given.journal, given.server)
    except MustcallError as error:
        raise SystemExit(str(error)) from None
    lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records]
    given.corpus.write_text("".join(lines), encoding="utf-8")
    print(f"{len(records)} records in {given.corpus}")
    if undecided:
        print(f"left out, decide by hand: {' '.join(undecided)}", file=sys.stderr)


if __name__ == "__main__":
    main()
