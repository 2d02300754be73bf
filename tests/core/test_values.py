"""Small laws of the canonical values: adaptation log, usage, messages."""

from mustcall.core.adaptation import Adaptation, AdaptationKind, AdaptationLog
from mustcall.core.message import Message, Role
from mustcall.core.parts import Text, ToolCall, ToolResult
from mustcall.core.reply import Usage


def test_log_keeps_order_and_no_doubles() -> None:
    """Design 2.2: each change is reported, once."""
    log = AdaptationLog()
    log.add(AdaptationKind.TOOL_DROPPED, "b")
    log.add(AdaptationKind.FIELD_DROPPED, "a", "why")
    log.add(AdaptationKind.TOOL_DROPPED, "b")
    assert log.entries == (
        Adaptation(AdaptationKind.TOOL_DROPPED, "b"),
        Adaptation(AdaptationKind.FIELD_DROPPED, "a", "why"),
    )


def test_usage_adds_up() -> None:
    """Rule 114: the total over all attempts is a sum, kind by kind."""
    one = Usage(input_tokens=1, output_tokens=2, cached_tokens=3, cache_write_tokens=4, reasoning_tokens=5)
    assert one + one == Usage(
        input_tokens=2, output_tokens=4, cached_tokens=6, cache_write_tokens=8, reasoning_tokens=10
    )


def test_calls_and_results_of_a_message() -> None:
    """A message tells its calls and its results from its other parts."""
    call = ToolCall(id="c", name="f", arguments_json="{}")
    result = ToolResult(call_id="c")
    message = Message(role=Role.USER, parts=(Text(text="t"), call, result))
    assert message.calls == (call,)
    assert message.results == (result,)
