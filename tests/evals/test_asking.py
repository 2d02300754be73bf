"""Requests as clients write them, on every wire."""

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.core.parts import Text
from mustcall.core.tools import ChoiceMode, Tool
from mustcall.evals.asking.client_requests import Sampling, ask, greet
from mustcall.evals.prompts import EvalPrompt, as_question, load_prompts
from mustcall.evals.questions import AskedCall
from mustcall.wire.registry import codec_for
from support.evaluating import OSLO, PROMPTS, SAMPLING

MODES = {AskedCall.REQUIRED: ChoiceMode.REQUIRED, AskedCall.NAMED: ChoiceMode.NAMED, AskedCall.AUTO: ChoiceMode.AUTO}


@pytest.mark.parametrize("wire", Wire)
@pytest.mark.parametrize("prompt", load_prompts(), ids=lambda prompt: prompt.id)
def test_a_prompt_on_a_wire(prompt: EvalPrompt, wire: Wire) -> None:
    """What the wire's codec reads is the prompt: its words, tools, schemas and choice, and no hint beside them."""
    read = codec_for(wire).decode_request(msgspec.json.encode(ask(as_question(prompt), wire, "m", SAMPLING)))
    tools = [tool for tool in read.tools if isinstance(tool, Tool)]
    assert [(tool.name, tool.description, tool.parameters) for tool in tools] == [
        (tool.name, tool.description, tool.parameters) for tool in prompt.tools
    ]
    assert read.tool_choice is not None
    assert read.tool_choice.mode is MODES[prompt.demand]
    assert read.tool_choice.name == (prompt.wants if prompt.demand is AskedCall.NAMED else None)
    assert [[part.text for part in message.parts if isinstance(part, Text)] for message in read.messages] == [
        [prompt.says]
    ]
    assert (read.model, read.max_tokens, read.temperature) == ("m", SAMPLING.max_tokens, SAMPLING.temperature)
    assert read.system is None


def test_the_body_of_chat() -> None:
    """A whole body, as it is sent."""
    assert ask(as_question(PROMPTS["translate-german"]), Wire.CHAT, "m", Sampling(max_tokens=5)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Translate 'good morning' into German."}],
        "max_tokens": 5,
        "temperature": 0.0,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "translate",
                    "description": "Translate a text into another language.",
                    "parameters": PROMPTS["translate-german"].tools[0].parameters,
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "translate"}},
    }


def test_no_temperature() -> None:
    """Without a temperature the body has none."""
    assert "temperature" not in ask(as_question(OSLO), Wire.CHAT, "m", Sampling(max_tokens=5, temperature=None))


@pytest.mark.parametrize("wire", Wire)
def test_a_greeting(wire: Wire) -> None:
    """A greeting is a legal request without a tool."""
    read = codec_for(wire).decode_request(msgspec.json.encode(greet(wire, "m")))
    assert (read.tools, read.tool_choice, read.max_tokens) == ((), None, 16)
