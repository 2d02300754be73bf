"""The two-step task with openai-py's streaming helpers."""

import json
import os
from pathlib import Path

from openai import OpenAI

MODEL, PROMPT = os.environ["MODEL"], os.environ["PROMPT"]
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
FUNCTION = {"name": "read_file", "description": "Read a file.", "parameters": SCHEMA, "strict": True}
client = OpenAI(base_url=os.environ["BASE_URL"], api_key="local")


def read_file(path: str) -> str:
    """The tool."""
    return Path(path).read_text(encoding="utf-8")


def carry_out(name: str, arguments: str) -> str:
    """Call the tool; an unknown name or unfit arguments end the program, as in an application."""
    return {"read_file": read_file}[name](**json.loads(arguments))


def tell(answer: str | None, tokens: int) -> None:
    """Print the answer and the tokens of all steps."""
    print(answer)
    print(json.dumps({"input_tokens": tokens}))


def chat() -> None:
    """The task on Chat Completions."""
    messages, tokens = [{"role": "user", "content": PROMPT}], 0
    tools = [{"type": "function", "function": FUNCTION}]
    for _ in range(4):
        with client.chat.completions.stream(
            model=MODEL, messages=messages, tools=tools, stream_options={"include_usage": True}
        ) as stream:
            completion = stream.get_final_completion()
        tokens += completion.usage.prompt_tokens if completion.usage else 0
        message = completion.choices[0].message
        if not message.tool_calls:
            tell(message.content, tokens)
            return
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}}
            for c in message.tool_calls
        ]
        messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
        for call in message.tool_calls:
            content = carry_out(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def responses() -> None:
    """The task on Responses."""
    given, tokens = [{"role": "user", "content": PROMPT}], 0
    for _ in range(4):
        with client.responses.stream(
            model=MODEL, input=given, tools=[{"type": "function", **FUNCTION}], store=False
        ) as stream:
            response = stream.get_final_response()
        tokens += response.usage.input_tokens if response.usage else 0
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            tell(response.output_text, tokens)
            return
        given += [
            item.model_dump(exclude={"parsed_arguments", "parsed"}, exclude_none=True) for item in response.output
        ]
        outputs = [(call.call_id, carry_out(call.name, call.arguments)) for call in calls]
        given += [{"type": "function_call_output", "call_id": name, "output": text} for name, text in outputs]


chat() if os.environ["SDK_WIRE"] == "chat" else responses()
