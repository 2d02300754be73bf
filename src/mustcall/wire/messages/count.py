"""Token counting on the Messages wire: a rough local estimate, and the two bodies of `count_tokens`.

The estimate is for callers whose upstream has no counter of its own. It knows no tokenizer: four characters of text
or JSON count as one token, which is within a factor of about 1.5 for English and code and low for other scripts.
"""

from typing import Any

import msgspec

from mustcall.core.errors import UpstreamGarbage
from mustcall.core.message import Message
from mustcall.core.origin import JsonObject
from mustcall.core.parts import (
    Audio,
    File,
    Image,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolReference,
    ToolResult,
    Unknown,
)
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool
from mustcall.wire.reading import as_object, decode_json, opt_int, reading_reply

__all__ = ["decode_count", "encode_count", "estimate_message", "estimate_tokens"]

_CHARACTERS_PER_TOKEN = 4
#: Role and turn marks around each message.
_MESSAGE_OVERHEAD = 4
#: Name, marks and the prompt text a tool brings with it.
_TOOL_OVERHEAD = 8
#: A mid-sized image; providers charge 85 to 1,600 by size, and the size is not known without decoding it.
_IMAGE_TOKENS = 1_000
#: Base64 documents and audio: three bytes in four characters, and one token for roughly ten bytes of either.
_BINARY_CHARACTERS_PER_TOKEN = 13


def estimate_tokens(request: Request) -> int:
    """Return a rough count of the tokens a request's prompt holds, at least 1."""
    tokens = 0
    characters = 0
    for message in (*((request.system,) if request.system is not None else ()), *request.messages):
        tokens += _MESSAGE_OVERHEAD
        more_characters, more_tokens = _measure(message)
        characters += more_characters
        tokens += more_tokens
    for tool in request.tools:
        tokens += _TOOL_OVERHEAD
        if isinstance(tool, ProviderTool):
            characters += _json_length(tool.value)
        else:
            characters += len(tool.name) + len(tool.description or "") + _json_length(tool.parameters or {})
    if request.output is not None and request.output.schema is not None:
        characters += _json_length(request.output.schema)
    return max(1, tokens + -(-characters // _CHARACTERS_PER_TOKEN))


def estimate_message(message: Message) -> int:
    """Return a rough count of the tokens of one message."""
    characters, tokens = _measure(message)
    return _MESSAGE_OVERHEAD + tokens + -(-characters // _CHARACTERS_PER_TOKEN)


def _measure(message: Message) -> tuple[int, int]:
    characters = tokens = 0
    for part in message.parts:
        more_characters, more_tokens = _measure_part(part)
        characters += more_characters
        tokens += more_tokens
    return characters, tokens


def _measure_part(part: Part) -> tuple[int, int]:
    match part:
        case Text(text=text) | Refusal(text=text):
            return len(text), 0
        case Reasoning():
            return len(part.text) + sum(map(len, part.summary)), 0
        case ToolCall():
            return len(part.name) + len(part.arguments_json), 0
        case ToolReference(name=name):
            return len(name), 0
        case ToolResult():
            measured = [_measure_part(item) for item in part.content]
            return sum(characters for characters, _ in measured), sum(tokens for _, tokens in measured)
        case Image():
            return 0, _IMAGE_TOKENS
        case File(text=str() as text):
            return len(text), 0
        case File(data=str() as data):
            return 0, len(data) // _BINARY_CHARACTERS_PER_TOKEN
        case Audio(data=data):
            return 0, len(data) // _BINARY_CHARACTERS_PER_TOKEN
        case File():
            return 0, _IMAGE_TOKENS
        case ProviderItem(value=value) | Unknown(value=value):
            return _json_length(value), 0


def _json_length(value: Any) -> int:
    return len(msgspec.json.encode(value))


def encode_count(tokens: int) -> JsonObject:
    """Write the reply of `count_tokens`."""
    return {"input_tokens": tokens}


def decode_count(body: bytes) -> int:
    """Read an upstream's reply of `count_tokens`; raise `UpstreamGarbage`."""
    with reading_reply():
        tokens = opt_int(as_object(decode_json(body)), "input_tokens")
    if tokens is None or tokens < 0:
        raise UpstreamGarbage("the upstream's token count has no `input_tokens`")
    return tokens
