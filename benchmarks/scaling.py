"""How the cost of a request grows with its size: decode, encode for each wire, and the outline check alone.

Prints CPU time at doubling sizes and the growth exponent between the ends: 1.0 is linear. The judged line is the
issue's own request: 1,000 messages, 200 tools of 2 kB, and a body of 20 MB.
"""

import json
import math
import time
from collections.abc import Callable
from typing import Any

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.origin import Wire
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

SIZES = (1, 2, 4, 8)
ROUNDS = 5
GOAL = 1.15


def build_request(messages: int, tools: int, text: int) -> bytes:
    """Write a chat request with so many messages and tools, the first message of so many characters."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": "d" * 1900}}}
    offered = [{"type": "function", "function": {"name": f"tool_{n}", "parameters": schema}} for n in range(tools)]
    said: list[Any] = [{"role": "user", "content": "x" * text}]
    for number in range(messages // 4):
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "tool_0", "arguments": '{"x":"y"}'}}
        said += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": "result " * 20},
            {"role": "assistant", "content": f"answer {number}"},
            {"role": "user", "content": f"question {number}"},
        ]
    return json.dumps({"model": "m", "messages": said, "tools": offered}).encode()


def cpu_of(work: Callable[[], object]) -> float:
    """Return the least CPU time of a few rounds, in milliseconds."""
    best = math.inf
    for _ in range(ROUNDS):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best * 1000


def measure(name: str, make: Callable[[int], bytes]) -> None:
    """Print one table: a row per step, its times at each size, its exponent."""
    bodies = [make(size) for size in SIZES]
    print(f"\n{name}: {', '.join(f'{len(body) / 1e6:.1f}' for body in bodies)} MB")
    chat = codec_for(Wire.CHAT)
    requests = [chat.decode_request(body) for body in bodies]
    steps: dict[str, list[float]] = {
        "outline check": [cpu_of(lambda body=body: chat.peek(body)) for body in bodies],
        "decode": [cpu_of(lambda body=body: chat.decode_request(body)) for body in bodies],
    }
    for wire in (Wire.RESPONSES, Wire.MESSAGES):
        codec = codec_for(wire)
        steps[f"encode for {wire}"] = [
            cpu_of(lambda request=request, codec=codec: codec.encode_request(request, Target(), AdaptationLog()))
            for request in requests
        ]
    for step, times in steps.items():
        exponent = math.log(max(times[-1], 1e-6) / max(times[0], 1e-6)) / math.log(SIZES[-1] / SIZES[0])
        verdict = "met" if exponent <= GOAL else "MISSED"
        print(f"  {verdict:6} {step:20} {'  '.join(f'{value:8.2f} ms' for value in times)}   exponent {exponent:.2f}")


def main() -> None:
    """Grow messages, tools and one text, each on its own, up to and past the issue's request."""
    measure("messages (250 to 2,000)", lambda size: build_request(250 * size, 10, 100))
    measure("tools of 2 kB (50 to 400)", lambda size: build_request(20, 50 * size, 100))
    measure("one text (2.5 to 20 MB)", lambda size: build_request(20, 10, 2_500_000 * size))
    body = build_request(1000, 200, 20_000_000)
    chat, messages = codec_for(Wire.CHAT), codec_for(Wire.MESSAGES)
    request = chat.decode_request(body)
    whole = cpu_of(lambda: chat.decode_request(body)) + cpu_of(
        lambda: messages.encode_request(request, Target(), AdaptationLog())
    )
    print(f"\n1,000 messages, 200 tools of 2 kB, {len(body) / 1e6:.1f} MB: {whole:.1f} ms to decode and encode")


if __name__ == "__main__":
    main()
