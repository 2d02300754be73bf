"""A model that writes one piece again and again is stopped; what only looks like it is not."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.upstream.embedded.engine import Chunk
from mustcall.upstream.embedded.repetition import Repetition
from mustcall.upstream.embedded.transport import EmbeddedTransport
from mustcall.upstream.seam import UpstreamCall
from support.tiny import tiny_model

CALL = '{"name": "get_weather", "arguments": {"city": "Oslo"}}\n'
PARAGRAPH = " ".join(map(str, range(70))) + ".\n"  # about 200 characters
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
]


def stopped_after(text: str, step: int = 3) -> int | None:
    """Return how many characters were taken before the stop, None if there was none."""
    watch = Repetition()
    for end in range(step, len(text) + step, step):
        if watch.feed(text[end - step : end]):
            return end
    return None


@pytest.mark.parametrize(("piece", "most"), [(CALL, 1200), ("0", 1200), ("ab\n", 1200), (PARAGRAPH, 1800)])
def test_endless_pieces_are_stopped(piece: str, most: int) -> None:
    """Soon after 1,024 characters and eight of them, whatever came before."""
    text = "Sure. " + piece * 3000
    end = stopped_after(text)
    assert end is not None
    assert end <= most
    assert text[:end].count(piece) >= 8


@pytest.mark.parametrize(
    "text",
    [
        CALL * 6,
        json.dumps([[0] * 10] * 10),
        json.dumps({"values": [0] * 128}),
        "- [ ] TODO\n" * 40,
        "- ok\n" * 100,
        "".join(f"| {number} | row {number} |\n" for number in range(400)),
        "".join(f'{{"name": "f", "arguments": {{"n": {number}}}}}\n' for number in range(200)),
        "-" * 200,
        "word " * 50,
    ],
)
def test_content_is_not_stopped(text: str) -> None:
    """A few calls, a matrix, a list, items of a list, a table, calls that differ, a line."""
    assert stopped_after(text) is None


@given(
    st.text("ab{}\n", max_size=40), st.text("ab{}\n", min_size=1, max_size=300), st.integers(1, 40), st.integers(1, 80)
)
def test_what_is_stopped_repeats(before: str, piece: str, times: int, step: int) -> None:
    """A stopped text ends in one piece of at most 256 characters, eight times and over 1,024 characters."""
    text = before + piece * times + before
    end = stopped_after(text, step)
    if end is None:
        assert len(piece) > 256 or len(piece) * times < max(1024, 8 * len(piece)) + 64 + step
        return
    taken = text[:end]
    assert any(taken.endswith(taken[-size:] * max(8, -(-1024 // size) - 1)) for size in range(1, 257))


class Endless:
    """A job that writes one line for ever."""

    def __init__(self) -> None:
        self.cancelled = False
        self._pieces: Iterator[str] = iter(lambda: CALL, None)
        self.made = 0

    async def next(self) -> Chunk:
        """Write one more."""
        await asyncio.sleep(0)
        self.made += 1
        assert self.made < 200, "nobody stops it"
        progress = {"prompt_progress": {"total": 31}} if self.made == 1 else {}
        choice = {"index": 0, "delta": {"content": next(self._pieces)}, "finish_reason": None}
        return Chunk({"id": "c", "created": 1, "choices": [choice], **progress})

    def cancel(self) -> None:
        """Stop."""
        self.cancelled = True


async def answered(transport: EmbeddedTransport, file: Path, body: dict[str, Any]) -> str:
    """Ask and read the whole answer."""
    call = UpstreamCall(url=f"embedded:{file}/chat/completions", headers={}, body=json.dumps(body).encode())
    reply = await transport.send(call)
    return (await reply.read()).decode()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_transport_cuts_it_off(
    stream: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer ends as one that was cut, the model is free, and a request without tools goes on."""
    transport, job = EmbeddedTransport(), Endless()
    file = tiny_model(tmp_path_factory.mktemp("models"))

    class Engine:
        context = 4096
        under_way = 0

        def submit(self, _: bytes) -> Any:
            return job

    def engine(_: object) -> Engine:
        return Engine()

    def takes(_: object) -> bool:
        return True

    monkeypatch.setattr(transport, "_engine", engine)
    monkeypatch.setattr("mustcall.upstream.embedded.transport.takes_tools", takes)
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS, "stream": stream}
    body["stream_options"] = {"include_usage": True}
    answer = await answered(transport, file, body)
    assert job.cancelled
    assert job.made <= 1024 // len(CALL) + 3
    if stream:
        events = [line.removeprefix("data: ") for line in answer.split("\n\n") if line]
        assert events[-1] == "[DONE]"
        *pieces, counts = [json.loads(event) for event in events[:-1]]
        choices = [piece["choices"][0] for piece in pieces]
        usage = counts["usage"]
        assert [choice["finish_reason"] for choice in choices] == [*[None] * (len(choices) - 1), "length"]
        assert "".join(choice["delta"].get("content", "") for choice in choices) == CALL * job.made
    else:
        whole = json.loads(answer)
        (choice,), usage = whole["choices"], whole["usage"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("length", CALL * job.made)
    assert usage == {"prompt_tokens": 31, "completion_tokens": job.made, "total_tokens": 31 + job.made}
    job = Endless()
    del body["tools"]
    with pytest.raises(AssertionError, match="nobody stops it"):
        await answered(transport, file, body)
