"""What callers send and get on each wire, as types from which the document's schemas are made.

Only what the gateway itself relies on is here. Every object may have more fields: on the same wire they are passed on
as they are. Tests hold these types against real requests and replies.
"""

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from mustcall.gateway.request_controls import OPERATORS, CallersLimits
from mustcall.policy.facts.controls import Controls

__all__ = [
    "ChatCompletion",
    "ChatCompletionChunk",
    "ChatRequest",
    "Deleted",
    "Extension",
    "HealthReply",
    "InputItems",
    "MessageEvent",
    "MessagesError",
    "MessagesReply",
    "MessagesRequest",
    "Models",
    "OpenAIError",
    "Response",
    "ResponseEvent",
    "ResponsesRequest",
    "TokenCount",
]

JsonObject = dict[str, Any]


class ContentPart(msgspec.Struct):
    """A part of a message's content: text, an image, a tool call, a result, reasoning."""

    type: str


def _extension() -> type[msgspec.Struct]:
    """Make the type of the `mustcall` object from the settings of a turn that are a caller's to make."""
    fields: list[tuple[str, Any, Any]] = [
        (field.name, field.type | UnsetType, UNSET)
        for field in msgspec.structs.fields(Controls)
        if field.name not in OPERATORS and field.name != "limits"
    ]
    fields.append(("limits", CallersLimits | UnsetType, UNSET))
    doc = "Settings of this one turn; docs/turns.md explains each. It never reaches the upstream."
    return msgspec.defstruct("Extension", fields, namespace={"__doc__": doc}, forbid_unknown_fields=True)


if TYPE_CHECKING:
    Extension = msgspec.Struct
else:
    Extension = _extension()


# Chat Completions


class ChatFunction(msgspec.Struct):
    """A function that the model may call."""

    name: str
    description: str | UnsetType | None = UNSET
    #: JSON Schema of the arguments.
    parameters: JsonObject | UnsetType | None = UNSET
    strict: bool | UnsetType | None = UNSET


class ChatTool(msgspec.Struct):
    """A tool on offer."""

    type: str
    function: ChatFunction | UnsetType = UNSET


class ChatMessage(msgspec.Struct):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | UnsetType | None = UNSET
    tool_calls: list[JsonObject] | UnsetType | None = UNSET
    tool_call_id: str | UnsetType | None = UNSET


class ChatRequest(msgspec.Struct):
    """A request of OpenAI Chat Completions."""

    model: str
    messages: list[ChatMessage]
    tools: list[ChatTool] | UnsetType | None = UNSET
    tool_choice: Literal["none", "auto", "required"] | JsonObject | UnsetType | None = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    stream: bool | UnsetType | None = UNSET
    max_tokens: int | UnsetType | None = UNSET
    max_completion_tokens: int | UnsetType | None = UNSET
    temperature: float | UnsetType | None = UNSET
    response_format: JsonObject | UnsetType | None = UNSET
    reasoning_effort: str | UnsetType | None = UNSET
    mustcall: Extension | UnsetType = UNSET


class CalledFunction(msgspec.Struct):
    """The function of a call; `arguments` is JSON that fits the tool's schema."""

    name: str
    arguments: str


class ChatCall(msgspec.Struct):
    """A tool call."""

    id: str
    type: str
    function: CalledFunction | UnsetType = UNSET


class ChatAnswer(msgspec.Struct):
    """The model's message."""

    role: Literal["assistant"]
    content: str | list[ContentPart] | UnsetType | None = UNSET
    tool_calls: list[ChatCall] | UnsetType | None = UNSET
    refusal: str | UnsetType | None = UNSET


class ChatChoice(msgspec.Struct):
    """The one choice."""

    index: int
    message: ChatAnswer
    finish_reason: str | None


class ChatUsage(msgspec.Struct):
    """Tokens of the delivered attempt; `x-mustcall-usage-total` has those of all."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int | UnsetType = UNSET


class ChatCompletion(msgspec.Struct):
    """A reply of Chat Completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage | UnsetType | None = UNSET


class ChunkChoice(msgspec.Struct):
    """A piece of the one choice."""

    index: int
    delta: JsonObject
    finish_reason: str | UnsetType | None = UNSET


class ChatCompletionChunk(msgspec.Struct):
    """One event of a streamed reply; the last line is `data: [DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChatUsage | UnsetType | None = UNSET


# Responses


class ResponsesRequest(msgspec.Struct):
    """A request of OpenAI Responses."""

    model: str
    input: str | list[JsonObject] | UnsetType = UNSET
    instructions: str | list[JsonObject] | UnsetType | None = UNSET
    tools: list[ContentPart] | UnsetType | None = UNSET
    tool_choice: Literal["none", "auto", "required"] | JsonObject | UnsetType | None = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    stream: bool | UnsetType | None = UNSET
    store: bool | UnsetType | None = UNSET
    previous_response_id: str | UnsetType | None = UNSET
    max_output_tokens: int | UnsetType | None = UNSET
    temperature: float | UnsetType | None = UNSET
    text: JsonObject | UnsetType | None = UNSET
    reasoning: JsonObject | UnsetType | None = UNSET
    mustcall: Extension | UnsetType = UNSET


class ResponseUsage(msgspec.Struct):
    """Tokens of the delivered attempt."""

    input_tokens: int
    output_tokens: int


class Response(msgspec.Struct):
    """A reply of Responses; `output` has messages, function calls and reasoning."""

    id: str
    object: Literal["response"]
    created_at: float
    model: str
    status: str
    output: list[ContentPart]
    usage: ResponseUsage | UnsetType | None = UNSET
    error: JsonObject | UnsetType | None = UNSET


class ResponseEvent(msgspec.Struct):
    """One event of a streamed reply: `response.created`, `response.output_text.delta` and others."""

    type: str
    sequence_number: int | UnsetType = UNSET


class InputItems(msgspec.Struct):
    """The input of a stored response."""

    object: Literal["list"]
    data: list[JsonObject]


class Deleted(msgspec.Struct):
    """A stored response that was deleted."""

    id: str
    deleted: bool


# Messages


class ClaudeMessage(msgspec.Struct):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[ContentPart]


class ClaudeTool(msgspec.Struct):
    """A tool on offer; a provider's own tool has a `type` and no schema."""

    name: str | UnsetType = UNSET
    type: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    input_schema: JsonObject | UnsetType = UNSET


class ClaudeChoice(msgspec.Struct):
    """Whether a tool must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | UnsetType = UNSET


class MessagesRequest(msgspec.Struct):
    """A request of Anthropic Messages."""

    model: str
    messages: list[ClaudeMessage]
    max_tokens: int | UnsetType = UNSET
    system: str | list[ContentPart] | UnsetType | None = UNSET
    tools: list[ClaudeTool] | UnsetType | None = UNSET
    tool_choice: ClaudeChoice | UnsetType | None = UNSET
    stream: bool | UnsetType | None = UNSET
    temperature: float | UnsetType | None = UNSET
    thinking: JsonObject | UnsetType | None = UNSET
    mustcall: Extension | UnsetType = UNSET


class ClaudeUsage(msgspec.Struct):
    """Tokens of the delivered attempt."""

    input_tokens: int
    output_tokens: int


class MessagesReply(msgspec.Struct):
    """A reply of Messages; `content` has text, thinking and `tool_use` blocks."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentPart]
    stop_reason: str | None
    usage: ClaudeUsage
    stop_sequence: str | UnsetType | None = UNSET


class MessageEvent(msgspec.Struct):
    """One event of a streamed reply: `message_start`, `content_block_delta` and others."""

    type: str


class TokenCount(msgspec.Struct):
    """The tokens of a request."""

    input_tokens: int


# Everything else


class ListedModel(msgspec.Struct):
    """A model that can be asked for."""

    id: str


class Models(msgspec.Struct):
    """The models on offer, in the shape of the client's wire."""

    data: list[ListedModel]


class HealthReply(msgspec.Struct):
    """The gateway answers."""

    status: Literal["ok"]
    service: Literal["mustcall"]


class OpenAIProblem(msgspec.Struct):
    """What was wrong, the value, the fix. Of a model's failure, `details` lists every attempt."""

    message: str
    type: str
    code: str | None
    param: str | None = None
    details: JsonObject | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class OpenAIError(msgspec.Struct):
    """An error of the gateway on Chat Completions and Responses."""

    error: OpenAIProblem


class MessagesProblem(msgspec.Struct):
    """What was wrong, the value, the fix."""

    type: str
    message: str
    details: JsonObject | UnsetType = UNSET


class MessagesError(msgspec.Struct):
    """An error of the gateway on Messages."""

    type: Literal["error"]
    error: MessagesProblem
    request_id: str | UnsetType = UNSET
