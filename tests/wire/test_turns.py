"""Messages joined into turns, and tool results as text."""

import pytest

from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Audio, File, Image, Text, ToolReference, ToolResult, Unknown
from mustcall.wire.crossing.turns import result_text, turns

_IMAGE = Image(data="AAAA", media_type="image/png")


def _message(role: str, text: str) -> Message:
    return Message(role=Role(role), parts=(Text(text=text),))


def test_neighbours_are_joined() -> None:
    """wires.md 1.12: rows of user messages become one turn; tool results belong to the user's side; order is kept."""
    roles = ["system", "system", "user", "user", "assistant", "assistant", "tool", "user", "developer", "user"]
    messages = [_message(role, str(number)) for number, role in enumerate(roles)]
    joined = [
        (turn.role, [part.text for one in turn.messages for part in one.parts if isinstance(part, Text)])
        for turn in turns(messages)
    ]
    assert joined == [
        ("system", ["0"]),
        ("system", ["1"]),
        ("user", ["2", "3"]),
        ("assistant", ["4", "5"]),
        ("user", ["6", "7"]),
        ("developer", ["8"]),
        ("user", ["9"]),
    ]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ToolResult(call_id="c"), ""),
        (ToolResult(call_id="c", content=(Text(text="a"), Text(text="b"))), "a\nb"),
        (ToolResult(call_id="c", content=(Text(text="boom"),), is_error=True), "Error: boom"),
        (ToolResult(call_id="c", content=(Text(text="ERROR: boom"),), is_error=True), "ERROR: boom"),
        (ToolResult(call_id="c", is_error=True), "Error"),
        (ToolResult(call_id="c", content=(ToolReference(name="WebFetch"),)), "The tool WebFetch is now available."),
        (ToolResult(call_id="c", content=(File(text="document"),)), "document"),
        (
            ToolResult(call_id="c", content=(Unknown(wire=Wire.MESSAGES, type="x", value={"type": "x"}),)),
            '{"type":"x"}',
        ),
    ],
)
def test_result_as_text(result: ToolResult, text: str) -> None:
    """wires.md 1.5 and 1.6: no result is empty because its content is not text; an error says so."""
    written = result_text(result)
    assert (written.text, written.media) == (text, ())


def test_media_travel_beside() -> None:
    """wires.md 1.10: images, files and audio are handed over apart from the text, in order."""
    audio = Audio(data="AA", format="wav")
    file = File(data="BB", media_type="application/pdf")
    written = result_text(ToolResult(call_id="c", content=(_IMAGE, Text(text="t"), audio, file)))
    assert (written.text, written.media) == ("t", (_IMAGE, audio, file))
