"""Tools and the choice among them, for an upstream of another wire."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.adaptation import AdaptationKind, AdaptationLog
from mustcall.core.errors import UnsupportedFeature
from mustcall.core.message import Message, Role
from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import CallKind, ToolCall, ToolReference, ToolResult
from mustcall.core.request import Request
from mustcall.core.tools import ChoiceMode, ProviderTool, Tool, ToolChoice
from mustcall.wire.crossing.offer import ToolOffer, custom_arguments, custom_input, offer_for

_FUNCTION = Tool(name="f", parameters={"type": "object"}, origin=Origin(Wire.RESPONSES))
_CUSTOM = Tool(
    name="apply_patch",
    description="Patch files.",
    kind=CallKind.CUSTOM,
    format={"type": "grammar", "syntax": "lark", "definition": "start: x"},
    origin=Origin(Wire.RESPONSES),
)
_SPACED = Tool(name="spawn", namespace="agents", origin=Origin(Wire.RESPONSES))


def _offer(
    *tools: Tool | ProviderTool,
    wire: Wire = Wire.CHAT,
    origin: Wire = Wire.RESPONSES,
    choice: ToolChoice | None = None,
    messages: tuple[Message, ...] = (),
) -> tuple[ToolOffer, list[tuple[str, str]]]:
    log = AdaptationLog()
    request = Request(model="m", messages=messages, tools=tools, tool_choice=choice, origin=Origin(origin))
    offer = offer_for(request, wire, log)
    return offer, [(str(entry.kind), entry.subject) for entry in log.entries]


def test_functions_pass() -> None:
    """A function tool crosses as the same object, unreported."""
    offer, notes = _offer(_FUNCTION)
    assert offer.tools == (_FUNCTION,)
    assert notes == []


def test_custom_tool_becomes_a_function() -> None:
    """wires.md 1.9: a custom tool crosses as a function with one input string, its grammar in the description."""
    offer, notes = _offer(_CUSTOM)
    (tool,) = offer.tools
    assert isinstance(tool, Tool)
    assert (tool.kind, tool.name, tool.format) == (CallKind.FUNCTION, "apply_patch", None)
    assert tool.description == "Patch files.\n\nThe input must follow this lark grammar:\nstart: x"
    assert tool.parameters is not None
    assert tool.parameters["required"] == ["input"]
    assert notes == [("tool_reshaped", "apply_patch")]


def test_custom_tool_stays_where_the_wire_has_it() -> None:
    """A custom tool of the chat wire is a custom tool on Responses."""
    tool = _CUSTOM.evolve(origin=Origin(Wire.CHAT))
    offer, notes = _offer(tool, wire=Wire.RESPONSES, origin=Wire.CHAT)
    assert offer.tools == (tool,)
    assert notes == []


def test_namespace_is_reported() -> None:
    """wires.md 1.9: the flattened name of a namespaced tool is reported."""
    _, notes = _offer(_SPACED)
    assert notes == [("name_mapped", "spawn")]


@pytest.mark.parametrize(
    "kind", ["web_search", "web_search_20250305", "web_fetch_x", "image_generation", "tool_search"]
)
def test_droppable_provider_tools(kind: str) -> None:
    """wires.md 1.6 and 1.9: provider tools an agent can do without are dropped and reported."""
    offer, notes = _offer(ProviderTool(type=kind, value={"type": kind}, origin=Origin(Wire.RESPONSES)), _FUNCTION)
    assert offer.tools == (_FUNCTION,)
    assert notes == [("tool_dropped", kind)]


def test_provider_tools_that_must_not_vanish() -> None:
    """Build 3: a provider tool the agent was told it has is refused by name, with the fix."""
    with pytest.raises(UnsupportedFeature, match=r"'bash_20250124'.*remove it from `tools`") as raised:
        _offer(ProviderTool(type="bash_20250124", value={}, origin=Origin(Wire.MESSAGES)), origin=Wire.MESSAGES)
    assert raised.value.param == "tools"


def test_provider_tool_on_its_own_wire() -> None:
    """Build 3: on the same wire provider tools pass through."""
    tool = ProviderTool(type="bash_20250124", value={}, origin=Origin(Wire.CHAT))
    assert _offer(tool, origin=Wire.CHAT)[0].tools == (tool,)


def _reference(name: str) -> Message:
    return Message(role=Role.USER, parts=(ToolResult(call_id="c", content=(ToolReference(name=name),)),))


def test_deferred_tools() -> None:
    """wires.md 1.5: the placeholder is dropped, a deferred tool is offered once it was referred to."""
    placeholder = Tool(name="DeferredToolPlaceholder", deferred=True, origin=Origin(Wire.MESSAGES))
    fetch = Tool(name="WebFetch", deferred=True, origin=Origin(Wire.MESSAGES))
    offer, notes = _offer(placeholder, fetch, origin=Wire.MESSAGES)
    assert offer.tools == ()
    assert notes == [("tool_dropped", "DeferredToolPlaceholder"), ("tool_dropped", "WebFetch")]
    offer, notes = _offer(placeholder, fetch, origin=Wire.MESSAGES, messages=(_reference("WebFetch"),))
    assert [tool.name for tool in offer.tools if isinstance(tool, Tool)] == ["WebFetch"]
    assert notes == [("tool_dropped", "DeferredToolPlaceholder")]


_HISTORY = (Message(role=Role.ASSISTANT, parts=(ToolCall(id="c", name="f", arguments_json="{}"),)),)


def test_history_without_tools() -> None:
    """Rule 104, wires.md 1.13: toward Messages what the history calls is offered, unusable, and reported."""
    offer, notes = _offer(wire=Wire.MESSAGES, origin=Wire.CHAT, messages=_HISTORY)
    assert [tool.name for tool in offer.tools if isinstance(tool, Tool)] == ["f"]
    assert offer.choice == ToolChoice(mode=ChoiceMode.NONE)
    assert notes == [("tool_added", "f")]


def test_history_without_tools_elsewhere() -> None:
    """wires.md 1.13: chat takes tool history without tools; nothing is added."""
    assert _offer(messages=_HISTORY) == (ToolOffer((), None), [])


def test_choice_without_tools_is_left_out() -> None:
    """providers.md: no choice is sent where no tool is left."""
    offer, _ = _offer(choice=ToolChoice(mode=ChoiceMode.AUTO))
    assert offer.choice is None


def test_choice_follows_kind_and_namespace() -> None:
    """wires.md 1.9: a choice names the tool as it crosses: as a function, in its namespace."""
    choice = ToolChoice(mode=ChoiceMode.NAMED, name="apply_patch", kind=CallKind.CUSTOM)
    assert _offer(_CUSTOM, choice=choice)[0].choice == ToolChoice(mode=ChoiceMode.NAMED, name="apply_patch")
    choice = ToolChoice(mode=ChoiceMode.NAMED, name="spawn")
    assert _offer(_SPACED, choice=choice)[0].choice == ToolChoice(
        mode=ChoiceMode.NAMED, name="spawn", namespace="agents"
    )
    assert _offer(_SPACED, Tool(name="spawn"), choice=choice)[0].choice == choice


def test_allowed_set() -> None:
    """Rule 1: an allowed set stays a set where the wire has one, and becomes the tool list where it has none."""
    choice = ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("spawn",))
    offer, _ = _offer(_FUNCTION, _SPACED, choice=choice)
    assert offer.choice == ToolChoice(mode=ChoiceMode.REQUIRED, allowed=("agents__spawn",))
    assert len(offer.tools) == 2
    offer, notes = _offer(_FUNCTION, _SPACED, choice=choice, wire=Wire.MESSAGES)
    assert offer.choice == ToolChoice(mode=ChoiceMode.REQUIRED)
    assert [tool.name for tool in offer.tools if isinstance(tool, Tool)] == ["spawn"]
    assert (str(AdaptationKind.FIELD_MAPPED), "tool_choice") in notes


@given(st.text())
def test_custom_input_round_trip(text: str) -> None:
    """wires.md 1.9: free text survives its trip through the stand-in function."""
    assert custom_input(custom_arguments(text)) == text


@pytest.mark.parametrize(
    "arguments", ["", "{}", "text", '{"input":1}', '{"input":"a","x":"b"}', '["input"]', "[" * 9999]
)
def test_no_guess_at_custom_input(arguments: str) -> None:
    """Design 2.5: arguments that are not one input string are not guessed at."""
    assert custom_input(arguments) is None
