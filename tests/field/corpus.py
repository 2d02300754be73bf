"""The made-up part of the field corpus: shapes of replies, each told in the words of several subjects.

A shape is a user message and a reply with marks like `@call@`; a subject (a line of `domains.jsonl`) has two tools and
arguments for them. The files are read by people, so their format is plain: `=== id | calls | choice | finish`, the
message, a line `---`, the reply. The last three are optional: `call`, `auto` and `stop`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Case", "read_cases"]

_HERE = Path(__file__).parent
#: In how many subjects each shape is told.
_SUBJECTS_A_SHAPE = 3


@dataclass(frozen=True)
class Case:
    """One reply, the message that led to it, and the calls it is if it is one."""

    id: str
    user: str
    text: str
    tools: tuple[dict[str, Any], ...]
    calls: tuple[tuple[str, dict[str, Any]], ...]
    choice: str
    finish: str


def read_cases(folder: str) -> Iterator[Case]:
    """Yield the cases of a folder: every shape in some subjects, once where the subject does not show."""
    subjects = [json.loads(line) for line in (_HERE / "domains.jsonl").read_text(encoding="utf-8").splitlines()]
    number = 0
    for path in sorted((_HERE / folder).glob("*.txt")):
        for shape in path.read_text(encoding="utf-8").split("\n=== "):
            head, _, rest = shape.removeprefix("=== ").partition("\n")
            user, _, text = rest.partition("\n---\n")
            seen: set[tuple[str, str]] = set()
            for turn in range(_SUBJECTS_A_SHAPE):
                subject = subjects[(number + turn * 4) % len(subjects)]
                case = _tell(f"{path.stem}/{head}", user, text, subject)
                if (case.user, case.text) not in seen:
                    seen.add((case.user, case.text))
                    yield case
            number += 1


def _tell(head: str, user: str, text: str, subject: dict[str, Any]) -> Case:
    marks = _marks(subject)

    def fill(template: str) -> str:
        for mark, value in marks.items():
            template = template.replace(f"@{mark}@", value)
        return template

    shape, expected, choice, finish = (*(part.strip() for part in head.split("|")), *("", "", "")[head.count("|") :])
    made = {
        "call": (subject["tool"]["name"], subject["args"]),
        "other": (subject["other"]["name"], subject["other_args"]),
    }
    return Case(
        id=f"{shape}/{subject['key']}",
        user=fill(user),
        text=fill(text),
        tools=(subject["tool"], subject["other"]),
        calls=tuple(made[word] for word in (expected or "call").split()),
        choice=fill(choice) or "auto",
        finish=finish or "stop",
    )


def _marks(subject: dict[str, Any]) -> dict[str, str]:
    tool, other, arguments = subject["tool"], subject["other"], subject["args"]
    call = {"name": tool["name"], "arguments": arguments}
    compact = _json(arguments)
    escaped = _json(compact)[1:-1]
    return {
        "key": subject["key"],
        "topic": subject["topic"],
        "ask": subject["ask"],
        "doing": subject["doing"],
        "name": tool["name"],
        "description": tool["description"],
        "param": next(iter(tool["parameters"]["properties"])),
        "other": other["name"],
        "call": _json(call),
        "pretty": _json(call, 2),
        "other_call": _json({"name": other["name"], "arguments": subject["other_args"]}),
        "args": compact,
        "string_args": escaped,
        "args_sql": compact.replace("'", "''"),
        "python_args": repr(arguments),
        "string_args_python": compact.replace("'", "\\'"),
        "call_python": repr(call),
        "yaml_args": "\n".join(f"  {name}: {_json(value)}" for name, value in arguments.items()),
        "signature": f"{tool['name']}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})",
        "schema": _json(tool["parameters"], 2),
        "definition": _json(tool, 2),
        "definition_line": _json(tool),
        "other_definition": _json(other, 2),
        "definitions": _json([tool, other], 2),
        "hermes": f"<tool_call>\n{_json(call)}\n</tool_call>",
        "invoke": _invoke(tool["name"], arguments),
    }


def _invoke(name: str, arguments: dict[str, Any]) -> str:
    lines = [
        f'<parameter name="{key}">{value if isinstance(value, str) else _json(value)}</parameter>'
        for key, value in arguments.items()
    ]
    return "\n".join(["<function_calls>", f'<invoke name="{name}">', *lines, "</invoke>", "</function_calls>"])


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
