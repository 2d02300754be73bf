"""How costs grow with size: every step a request and its reply take, at doubling sizes up to what the issues name.

    python benchmarks/scaling.py [--quick]

Prints CPU time at each size and the growth exponent, the slope of a line through the logarithms: 1.0 is linear. Each
figure is the least of a few rounds, each of which goes through all sizes with tools that no cache has seen; where a
step seems to grow too fast there are more of them, because what else a machine does passes and growth does not. Grown
are, each on its own: the messages of a history (to 2,000), the tools on offer (to 500), one argument (to 1 MB), the
deltas of a stream (to 100,000).
"""

import argparse
import gc
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import Wire
from mustcall.core.reply import Reply
from mustcall.core.request import Request
from mustcall.core.streams.events import Event
from mustcall.core.tools import Tool
from mustcall.dialects import Scanner
from mustcall.engine.turns import make_turn_state
from mustcall.policy.facts.controls import Controls
from mustcall.policy.facts.profile import Profile
from mustcall.policy.facts.wording import Wording
from mustcall.policy.history.mended import mend_history
from mustcall.policy.reply.judge import judge
from mustcall.policy.request.demand import settle_demand
from mustcall.policy.request.plan import make_plan
from mustcall.policy.scanning.reply_scanner import ReplyScanner
from mustcall.policy.schema.tool_schemas import compile_tools
from mustcall.policy.turn.state import TurnState
from mustcall.wire.codec import Provenance, ReplyStamp, Target
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

SHARES = (1, 2, 4, 8)
GOAL = 1.1
#: What takes less than this many milliseconds at its largest grows too little for anyone to notice, or to measure.
NEGLIGIBLE = 0.3
TOKEN = "0123456789abcdef"  # noqa: S105  makes ids, opens nothing
CUT = 4

#: A step: called with the input of one size, it returns the work that is timed.
Step = Callable[[], object]
CHAT = codec_for(Wire.CHAT)


def build_request(messages: int, tools: int, nonce: str) -> bytes:
    """Write a chat request with so many messages and tools."""
    said: list[Any] = [{"role": "user", "content": "x" * 100}]
    for number in range(messages // 4):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "tool_0", "arguments": '{"x":"y"}'}}
        said += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "result " * 20},
            {"role": "assistant", "content": f"answer {number}"},
            {"role": "user", "content": f"question {number}"},
        ]
    offered = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": "d" * 200,
                "parameters": {
                    "type": "object",
                    "properties": {"x": {"type": "string", "description": f"{nonce}{number} " + "d" * 1000}},
                    "required": ["x"],
                },
            },
        }
        for number in range(tools)
    ]
    return json.dumps({"model": "m", "messages": said, "tools": offered}).encode()


def turn_state_of(request: Request) -> TurnState:
    """Plan a turn for a request."""
    return make_turn_state(request, Profile(), "bench", controls=Controls(), wording=Wording())


def request_steps(body: bytes) -> Iterator[tuple[str, Step]]:
    """Yield what a request goes through on its way to an upstream."""
    request = CHAT.decode_request(body)
    demand = settle_demand(request, Controls(), (), notice="")
    unseen = body.replace(b"ddd", b"eee")  # an offer that came before is found again, up to a size
    yield "outline check", lambda: CHAT.peek(unseen)
    yield "decode chat", lambda: CHAT.decode_request(unseen)
    for wire in (Wire.RESPONSES, Wire.MESSAGES):
        codec = codec_for(wire)
        other = json.dumps(codec.encode_request(request, Target(), AdaptationLog())).encode()
        yield f"decode {wire}", lambda codec=codec, other=other: codec.decode_request(other)
    yield "mend history", lambda: mend_history(request, Profile(), "bench", AdaptationLog(), Wording())
    yield "compile tools", lambda: compile_tools(request, Profile(), AdaptationLog())
    yield "plan", lambda: make_plan(request, demand, Profile(), Controls())
    yield "make the turn state", lambda: turn_state_of(request)
    for wire in Wire:
        codec = codec_for(wire)
        yield f"encode {wire}", lambda codec=codec: codec.encode_request(request, Target(), AdaptationLog())


def reply_with(arguments: str, tool: str) -> bytes:
    """Write a chat reply with one call."""
    call = {"id": "call_a", "type": "function", "function": {"name": tool, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    ).encode()


def judging(request: Request, reply: Reply) -> Callable[[], object]:
    """Return what judges a reply as a turn does: seen through the lens, then judged."""
    turn_state = turn_state_of(request)

    def work() -> object:
        return judge(turn_state.case(TOKEN, 0), reply, ReplyScanner(turn_state.lookout(), TOKEN).read(reply))

    return work


def tool_steps(tools: int, nonce: str) -> Iterator[tuple[str, Step]]:
    """Yield what many tools make dearer, the reply's judgement too."""
    body = build_request(20, tools, nonce)
    yield from request_steps(body)
    reply = CHAT.decode_reply(reply_with('{"x":"y"}', f"tool_{tools - 1}"), Provenance())
    yield "judge a call", judging(CHAT.decode_request(body), reply)


def argument_steps(size: int, nonce: str) -> Iterator[tuple[str, Step]]:
    """Yield what a reply with one long argument goes through, as a call and as text."""
    line = 'Lorem ipsum dolor sit amet, "consectetur" (adipiscing) elit; see [1] and a < b.\n'
    arguments = json.dumps({"x": (line * (size // len(line) + 1))[:size]})
    request = CHAT.decode_request(build_request(4, 5, nonce))
    body = reply_with(arguments, "tool_0")
    reply = CHAT.decode_reply(body, Provenance())
    yield "decode reply", lambda: CHAT.decode_reply(body, Provenance())
    yield "judge the call", judging(request, reply)
    for wire in Wire:
        codec = codec_for(wire)
        stamp = ReplyStamp(token=TOKEN, created=1)
        yield (
            f"encode reply {wire}",
            lambda codec=codec, stamp=stamp: codec.encode_reply(reply, request, stamp, AdaptationLog()),
        )
    text = f'<tool_call>\n{{"name": "tool_0", "arguments": {arguments}}}\n</tool_call>'
    pieces = [text[at : at + CUT] for at in range(0, len(text), CUT)]
    yield "scan text, whole", lambda: scan([text], request)
    yield "scan text, in deltas", lambda: scan(pieces, request)


def scan(pieces: list[str], request: Request) -> None:
    """Look for calls in text, all dialects active."""
    scanner = Scanner(tools=[tool for tool in request.tools if isinstance(tool, Tool)], loose=True)
    for piece in pieces:
        scanner.feed(piece)
    scanner.close()


def delta_steps(deltas: int, nonce: str) -> Iterator[tuple[str, Step]]:
    """Yield what a stream of many deltas goes through: text, and the arguments of a call."""
    request = CHAT.decode_request(build_request(4, 5, nonce))
    words = ("The", " wind", " over", " Oslo", " turns", " north", ",", " and", " it", " rains", ".\n")
    texts = [{"content": words[number % len(words)]} for number in range(deltas)]
    begin = {
        "tool_calls": [
            {"index": 0, "id": "call_a", "type": "function", "function": {"name": "tool_0", "arguments": ""}}
        ]
    }
    parts = ['{"x":"', *("abcd" for _ in range(deltas - 2)), '"}']
    calls = [begin, *({"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in parts)]
    for name, chunks, finish in (("text", texts, "stop"), ("call", calls, "tool_calls")):
        raw = stream_of(chunks, finish)
        events = decode(raw)
        turn_state = turn_state_of(request)
        yield f"decode {name}", lambda raw=raw: decode(raw)
        yield f"look for calls in {name}", lambda events=events, turn_state=turn_state: look(events, turn_state)
        for wire in Wire:
            yield f"encode {name} {wire}", lambda events=events, wire=wire: encode(events, wire, request)


def stream_of(deltas: list[dict[str, Any]], finish: str) -> list[bytes]:
    """Write a chat stream, one event an entry."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    return [*(b"data: %b\n\n" % json.dumps(head | {"choices": [one]}).encode() for one in choices), b"data: [DONE]\n\n"]


def decode(raw: list[bytes]) -> list[Event]:
    """Read a stream, each event on its own."""
    parser, decoder = SseDecoder(), CHAT.stream_decoder(Provenance())
    found: list[Event] = []
    for piece in raw:
        for event in parser.feed(piece):
            found += decoder.feed(event)
    return found + decoder.close()


def look(events: list[Event], turn_state: TurnState) -> None:
    """See a stream through the lens, as a turn does while it comes."""
    lens = ReplyScanner(turn_state.lookout(), TOKEN)
    for event in events:
        lens.feed(event)


def encode(events: list[Event], wire: Wire, request: Request) -> None:
    """Write a stream for a caller."""
    encoder = codec_for(wire).stream_encoder(request, ReplyStamp(token=TOKEN, created=1), AdaptationLog())
    for event in events:
        encoder.feed(event)


def cpu_of(work: Callable[[], object]) -> float:
    """Return the CPU time of one run, in milliseconds, without the collector's."""
    gc.collect()
    gc.disable()
    begun = time.process_time()
    work()
    taken = time.process_time() - begun
    gc.enable()
    return taken * 1000


def exponent(sizes: list[int], times: list[float]) -> float:
    """Return the slope of the best line through the logarithms."""
    points = [(math.log(size), math.log(max(taken, 1e-6))) for size, taken in zip(sizes, times, strict=True)]
    x = sum(point[0] for point in points) / len(points)
    y = sum(point[1] for point in points) / len(points)
    return sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)


#: How many times as many rounds are made where a step seems to grow too fast.
_AGAIN = 4


def measure(
    title: str, largest: int, steps: Callable[[int, str], Iterator[tuple[str, Step]]], rounds: int
) -> list[str]:
    """Print one table: a row per step, its times at each size, its exponent; return the steps that grow too fast."""
    sizes = [largest * share // SHARES[-1] for share in SHARES]
    print(f"\n{title}: {', '.join(f'{size:,}' for size in sizes)}", flush=True)
    times: dict[str, list[float]] = {}
    for number in range(_AGAIN * rounds):
        if number >= rounds and all(exponent(sizes, row) <= GOAL or row[-1] < NEGLIGIBLE for row in times.values()):
            break
        for place, size in enumerate(sizes):
            for name, work in steps(size, f"{title}{size}{number}"):
                taken = cpu_of(work)
                row = times.setdefault(name, [math.inf] * len(sizes))
                row[place] = min(row[place], taken)
    missed: list[str] = []
    for name, row in times.items():
        grows, small = exponent(sizes, row), row[-1] < NEGLIGIBLE
        word = "small" if small else "met" if grows <= GOAL else "MISSED"
        if word == "MISSED":
            missed.append(f"{title}: {name} grows with exponent {grows:.2f}")
        print(
            f"  {word:6} {name:24} {'  '.join(f'{value:9.3f}' for value in row)} ms   exponent {grows:.2f}", flush=True
        )
    return missed


def main() -> None:
    """Grow one thing at a time."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the long stream and argument, fewer rounds")
    quick = parser.parse_args().quick
    rounds, part = (2, 10) if quick else (5, 1)
    missed = [
        *measure("messages", 2000, lambda size, nonce: request_steps(build_request(size, 10, nonce)), rounds),
        *measure("tools", 500, tool_steps, rounds),
        *measure("characters of an argument", 1_000_000 // part, argument_steps, min(3, rounds)),
        *measure("deltas", 100_000 // part, delta_steps, min(3, rounds)),
    ]
    print(f"\ngrowth exponent at most {GOAL}: " + ("; ".join(missed) if missed else "every step that takes time"))


if __name__ == "__main__":
    main()
