"""Rule 132: prompts that a server cut in silence."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import File, Image, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from mustcall.core.reply import Usage
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.reply.cut_prompt import CHARACTERS_PER_TOKEN, LEAST_BOUND, is_starved, lower_bound, prompt_bound
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

LONG = "x" * 8_000


def ask(*parts: Part, role: Role = Role.USER) -> Request:
    """A request of one message."""
    return Request(model="m", messages=(Message(role=role, parts=parts),))


@pytest.mark.parametrize(
    "request_",
    [
        ask(Text(text=LONG)),
        ask(Refusal(text=LONG), role=Role.ASSISTANT),
        ask(ToolCall(id="c", name="", arguments_json=LONG), role=Role.ASSISTANT),
        ask(ToolCall(id="c", name=LONG, arguments_json=""), role=Role.ASSISTANT),
        ask(ToolResult(call_id="c", content=(Text(text=LONG[:4000]), Text(text=LONG[:4000]))), role=Role.TOOL),
        ask(File(text=LONG)),
        Request(model="m", messages=(), system=Message(role=Role.SYSTEM, parts=(Text(text=LONG),))),
        Request(model="m", messages=(), tools=(Tool(name="abc", description=LONG[3:]),)),
        ask(*[Text(text="x")] * 8_000),
    ],
)
def test_all_text_counts(request_: Request) -> None:
    """Rule 132: system, messages, calls, results, documents and tools are part of the prompt."""
    assert lower_bound(request_) == 1_000


@pytest.mark.parametrize(
    "request_",
    [
        ask(Image(data=LONG)),
        ask(File(data=LONG)),
        ask(Reasoning(text=LONG), role=Role.ASSISTANT),
        Request(model="m", messages=(), tools=(Tool(name="", description=LONG, deferred=True),)),
        Request(model="m", messages=(), tools=(ProviderTool(type=LONG, value={}),)),
        Request(model="m", messages=()),
    ],
)
def test_what_a_provider_may_leave_out_counts_as_nothing(request_: Request) -> None:
    """Rule 132: media, old reasoning and deferred tools do not raise the bound."""
    assert lower_bound(request_) == 0


@pytest.mark.parametrize(
    ("fields", "bound"),
    [
        ({"truncation": "auto"}, 0),
        ({"context_management": {"edits": []}}, 0),
        ({"truncation": "disabled", "context_management": None}, 1_000),
    ],
)
def test_a_cut_the_caller_asked_for_is_not_silent(fields: dict[str, object], bound: int) -> None:
    """Rule 132: where the caller lets the server cut, there is no bound."""
    assert lower_bound(ask(Text(text=LONG)).evolve(origin=Origin(Wire.RESPONSES, fields))) == bound


@pytest.mark.parametrize(
    ("bound", "usage", "starved"),
    [
        (5_000, Usage(input_tokens=4_096), True),
        (5_000, Usage(input_tokens=4_999), True),
        (5_000, Usage(input_tokens=5_000), False),
        (5_000, Usage(input_tokens=20_000), False),
        (5_000, Usage(input_tokens=0), False),
        (5_000, Usage(input_tokens=-3), False),
        (5_000, None, False),
        (LEAST_BOUND, Usage(input_tokens=1), True),
        (LEAST_BOUND - 1, Usage(input_tokens=1), False),
        (0, Usage(input_tokens=1), False),
    ],
)
def test_starved(bound: int, usage: Usage | None, starved: bool) -> None:
    """Rule 132: far fewer tokens than the prompt has is starved; no report tells nothing, small prompts never are."""
    assert is_starved(bound, usage) is starved


@settings(deadline=None)
@given(st.lists(st.text(max_size=200), max_size=8))
def test_an_honest_count_is_never_starved(texts: list[str]) -> None:
    """Rule 132: a server that counts at least one token for eight characters is honest, however long the prompt."""
    request = ask(*[Text(text=text * 100) for text in texts])
    honest = sum(len(text) * 100 for text in texts) // CHARACTERS_PER_TOKEN
    assert not is_starved(lower_bound(request), Usage(input_tokens=honest))


@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400), min_size=1, max_size=8),
    repeat=st.integers(1, 60),
    reported=st.integers(0, 4000),
)
def test_most_reports_need_no_count(texts: list[str], repeat: int, reported: int) -> None:
    """Rule 132: a look at the body's size alone never changes what is called starved."""
    request = Request(
        model="m", messages=tuple(Message(role=Role.USER, parts=(Text(text=text * repeat),)) for text in texts)
    )
    body = codec_for(Wire.CHAT).encode_request(request, Target(), AdaptationLog())
    usage = Usage(input_tokens=reported, output_tokens=1)
    bound = prompt_bound(request, len(msgspec.json.encode(body)), usage)
    assert is_starved(bound, usage) == is_starved(lower_bound(request), usage)
