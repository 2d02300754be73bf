"""The two-step task with anthropic-py's streaming helper."""

import json
import os
from pathlib import Path

from anthropic import Anthropic

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS = [{"name": "read_file", "description": "Read a file.", "input_schema": SCHEMA}]


def read_file(path: str) -> str:
    """The tool."""
    return Path(path).read_text(encoding="utf-8")


client = Anthropic(base_url=os.environ["BASE_URL"], api_key="local")
messages, tokens = [{"role": "user", "content": os.environ["PROMPT"]}], 0
for _ in range(4):
    with client.messages.stream(model=os.environ["MODEL"], max_tokens=1000, messages=messages, tools=TOOLS) as stream:
        message = stream.get_final_message()
    tokens += message.usage.input_tokens
    calls = [block for block in message.content if block.type == "tool_use"]
    if not calls:
        print("".join(block.text for block in message.content if block.type == "text"))
        print(json.dumps({"input_tokens": tokens}))
        break
    outputs = [(call.id, {"read_file": read_file}[call.name](**call.input)) for call in calls]
    results = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in outputs]
    messages += [{"role": "assistant", "content": message.content}, {"role": "user", "content": results}]
