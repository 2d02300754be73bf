"""LangChain's messages from the bytes of a stream: the same at every split; and conversations there and back."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from mustcall import UpstreamRejected
from mustcall.adapters.langchain_messages import ChunkReader, read_message, write_messages

STREAM = (
    b"".join(
        b'data: {"id":"c1","model":"m","choices":[%b]%b}\n\n' % (choice, more)
        for choice, more in (
            (b'{"index":0,"delta":{"role":"assistant","content":"Gr\xc3\xbc\xc3\x9fe"}}', b""),
            (b'{"index":0,"delta":{"reasoning_content":"A hat?"}}', b""),
            (
                (
                    b'{"index":0,"delta":{"tool_calls":[{"index":0,"id":"1","type":"function",'
                    b'"function":{"name":"price","arguments":""}}]}}'
                ),
                b"",
            ),
            (
                b'{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"item\\": \\"hat\\"}"}}]}}',
                b"",
            ),
            (b'{"index":0,"delta":{},"finish_reason":"tool_calls"}', b""),
            (b"", b',"usage":{"prompt_tokens":5,"completion_tokens":2}'),
        )
    )
    + b": a comment\n\ndata: [DONE]\n\n"
)


def _read(*pieces: bytes) -> AIMessageChunk:
    reader = ChunkReader()
    reader.headers = [(b"x-mustcall-outcome", b"calls"), (b"content-type", b"text/event-stream")]
    whole: Any = None
    for piece in pieces:
        for chunk in reader.read(piece):
            whole = chunk.message if whole is None else whole + chunk.message
    return whole  # pyrefly: ignore[bad-return]


def test_every_split() -> None:
    """Where the bytes are cut changes nothing."""
    whole = _read(STREAM)
    assert whole.content == "Grüße"
    assert whole.tool_calls == [tool_call(name="price", args={"item": "hat"}, id="1")]
    assert whole.additional_kwargs == {"reasoning_content": "A hat?"}
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["total_tokens"] == 7
    assert whole.response_metadata == {
        "model_name": "m",
        "finish_reason": "tool_calls",
        "mustcall": {"outcome": "calls"},
    }
    for cut in range(len(STREAM)):
        assert _read(STREAM[:cut], STREAM[cut:]) == whole
    assert _read(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == whole


def test_an_error_event() -> None:
    """An error in a stream is raised with its words."""
    with pytest.raises(UpstreamRejected, match="overloaded") as caught:
        ChunkReader().read(b'data: {"error": {"message": "overloaded", "code": "busy"}}\n\n')
    assert caught.value.info().code == "busy"


def test_there_and_back() -> None:
    """What a reply carried beside text and calls goes back with the history, as it came."""
    body = (
        b'{"id":"c1","model":"m","choices":[{"message":{"role":"assistant","content":null,"reasoning_content":"A hat?",'
        b'"reasoning_details":[{"type":"reasoning.encrypted","data":"mc1.x"}],"tool_calls":[{"id":"1","type":"function",'
        b'"function":{"name":"price","arguments":"{\\"item\\":\\"hat\\"}"}}]},"finish_reason":"tool_calls"}]}'
    )
    reply = read_message(body, [])
    assert isinstance(reply, AIMessage)
    history = [SystemMessage("Be brief."), HumanMessage("Hat?"), reply, ToolMessage("12 euros", tool_call_id="1")]
    written = write_messages(history)
    assert [message["role"] for message in written] == ["system", "user", "assistant", "tool"]
    assert written[3] == {"role": "tool", "tool_call_id": "1", "content": "12 euros"}
    call = written[2]["tool_calls"][0]
    assert (call["id"], call["function"]["name"]) == ("1", "price")
    assert written[2]["reasoning_content"] == "A hat?"
    assert written[2]["reasoning_details"] == [{"type": "reasoning.encrypted", "data": "mc1.x"}]
