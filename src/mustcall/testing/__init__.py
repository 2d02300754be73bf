"""A scripted upstream for tests, ours and yours: real loopback HTTP on all three wires, and every fault on demand.

`ScriptedModel(["Hi."])` is the same without a socket, for agents: `Agent(ScriptedModel(["Hi."]))`.

from mustcall.testing import Call, Say, ScriptedUpstream, Turn

with ScriptedUpstream([Turn(Call("get_weather", {"city": "Paris"})), Turn(Say("Sunny."))], strict=True) as upstream:
    client = OpenAI(base_url=upstream.base_url, api_key="any")
    ...
    assert upstream.requests[0].body["model"] == "m"

`LlamaServer("smollm2-135m")` is a real model instead: llama.cpp's own HTTP server in a process of its own.

`RunningGateway(f"chat={upstream.base_url}")` puts a real gateway in front of it for the length of a test.

`FakeClock` is time that passes when it is told to (`clock.advance(30)`): pass it as `clock=` to the gateway, to an
`Upstream` or to a `MemoryMeter`, and backoffs, cool-downs and caps on time are tested without waiting.
"""

from mustcall.core.origin import Wire
from mustcall.core.reply import Usage
from mustcall.testing.delivery import Chunking, random_chunks
from mustcall.testing.demo import demo_turn
from mustcall.testing.gateway import RunningGateway
from mustcall.testing.llama import LlamaServer, LlamaServerFailed
from mustcall.testing.model import ScriptedModel
from mustcall.testing.recording import End, Recorded
from mustcall.testing.script import (
    Answer,
    Call,
    Cut,
    Delayed,
    Fail,
    Hang,
    Line,
    Raw,
    RawStream,
    Refuse,
    Reset,
    Say,
    StreamError,
    Think,
    Turn,
    TurnPart,
)
from mustcall.testing.transport import FakeClock
from mustcall.testing.upstream import Script, ScriptedUpstream

__all__ = [
    "Answer",
    "Call",
    "Chunking",
    "Cut",
    "Delayed",
    "End",
    "Fail",
    "FakeClock",
    "Hang",
    "Line",
    "LlamaServer",
    "LlamaServerFailed",
    "Raw",
    "RawStream",
    "Recorded",
    "Refuse",
    "Reset",
    "RunningGateway",
    "Say",
    "Script",
    "ScriptedModel",
    "ScriptedUpstream",
    "StreamError",
    "Think",
    "Turn",
    "TurnPart",
    "Usage",
    "Wire",
    "demo_turn",
    "random_chunks",
]
