"""What a message is made of. One closed union; each member says which wire forms it stands for."""

from enum import StrEnum
from typing import Any

import msgspec

from mustcall.core.errors import BadArguments
from mustcall.core.origin import JsonObject, Value, Wire

__all__ = [
    "Audio",
    "CallKind",
    "File",
    "Image",
    "OpaqueState",
    "Part",
    "ProviderItem",
    "Reasoning",
    "Refusal",
    "Text",
    "ToolCall",
    "ToolReference",
    "ToolResult",
    "Unknown",
]


class CallKind(StrEnum):
    """How a tool takes its input: a JSON object (`function`) or free text (`custom`)."""

    FUNCTION = "function"
    CUSTOM = "custom"


class OpaqueState(msgspec.Struct, frozen=True):
    """Reasoning state only its issuer can read (a signature, encrypted content). Kept byte for byte.

    `form` is the wire whose codec understands `data`; `issuer` names the upstream that made it, or is empty when
    the state arrived from a caller in its native form and its maker is not known.
    """

    form: Wire
    data: Any
    issuer: str = ""


class Text(Value, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Refusal(Value, frozen=True, tag="refusal"):
    """The model's own words for declining (chat `refusal`, Responses `refusal` content)."""

    text: str


class Reasoning(Value, frozen=True, tag="reasoning"):
    """Thinking: its text, its summaries where the wire tells them apart, and opaque state to hand back."""

    text: str = ""
    summary: tuple[str, ...] = ()
    state: OpaqueState | None = None
    id: str | None = None


class ToolCall(Value, frozen=True, tag="tool_call"):
    """A call of a client-side tool.

    `arguments_json` is the text that the model wrote: JSON, or free text for a custom tool. `arguments` are the parsed
    values. In stored data the text has the name `arguments`.
    """

    id: str
    name: str
    arguments_json: str = msgspec.field(name="arguments")
    kind: CallKind = CallKind.FUNCTION
    namespace: str | None = None
    item_id: str | None = None

    @property
    def arguments(self) -> JsonObject:
        """The parsed arguments; `{"input": text}` for a custom tool.

        Raise `BadArguments` if the text is not a JSON object.
        """
        text = self.arguments_json
        if self.kind is CallKind.CUSTOM:
            return {"input": text}
        if not text.strip():
            return {}
        try:
            return msgspec.json.decode(text, type=JsonObject)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadArguments(f"the arguments of {self.name!r} are not a JSON object: {error}") from None


class Image(Value, frozen=True, tag="image"):
    """An image as base64 data, URL or provider file id; exactly one of the three is set."""

    data: str | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    detail: str | None = None


class File(Value, frozen=True, tag="file"):
    """A document by base64 data, URL, provider file id or plain text."""

    data: str | None = None
    media_type: str | None = None
    url: str | None = None
    file_id: str | None = None
    text: str | None = None
    name: str | None = None


class Audio(Value, frozen=True, tag="audio"):
    """Spoken input as base64 data with its format (`wav`, `mp3`)."""

    data: str
    format: str


class ToolReference(Value, frozen=True, tag="tool_reference"):
    """A tool result's pointer to a deferred tool that is now on offer (Messages `tool_reference`)."""

    name: str


class ProviderItem(Value, frozen=True, tag="provider_item"):
    """Something the provider executed by itself (web search and the like). Only its own wire can carry it.

    `client_tools` are the types of tools whose calls take this form for the client to carry out (a shell command);
    empty for everything else. `result_of` is the id of such a call in what a caller sends back as its result, empty
    where the result names none; None for everything else.
    """

    wire: Wire
    type: str
    value: JsonObject
    client_tools: tuple[str, ...] = ()
    result_of: str | None = None


class Unknown(Value, frozen=True, tag="unknown"):
    """A part this version has no word for. Only its own wire can carry it."""

    wire: Wire
    type: str
    value: JsonObject


class ToolResult(Value, frozen=True, tag="tool_result"):
    """What a client-side tool returned for one call."""

    call_id: str
    content: "tuple[Text | Image | File | Audio | ToolReference | Unknown, ...]" = ()
    is_error: bool = False
    kind: CallKind = CallKind.FUNCTION


Part = (
    Text | Refusal | Reasoning | ToolCall | ToolResult | Image | File | Audio | ToolReference | ProviderItem | Unknown
)
