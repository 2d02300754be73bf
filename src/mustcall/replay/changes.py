"""Settings of a recorded request that are changed before it is sent again: `reasoning=off,stream=off`. Pure."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import ConfigError, InvalidRequest
from mustcall.core.origin import Wire
from mustcall.core.request import ReasoningConfig, ReasoningMode, Request
from mustcall.core.tools import ChoiceMode, ToolChoice
from mustcall.replay.recorded import RecordedRequest
from mustcall.wire.codec import Target
from mustcall.wire.registry import codec_for

__all__ = ["SETTINGS", "apply_changes", "rewritten"]

_SWITCH = {"on": True, "off": False}
_MODES = {str(mode): mode for mode in ChoiceMode if mode is not ChoiceMode.NAMED}


def _switch(text: str) -> bool:
    if text not in _SWITCH:
        raise ValueError("on or off is expected")
    return _SWITCH[text]


def _reasoning(text: str) -> dict[str, Any]:
    if text == "off":
        return {"reasoning": ReasoningConfig(mode=ReasoningMode.DISABLED, effort="none")}
    return {"reasoning": None if text == "default" else ReasoningConfig(effort=text)}


def _on_messages(config: ReasoningConfig | None) -> ReasoningConfig | None:
    """Return a reasoning setting in the words of Messages, which has a mode beside the effort."""
    if config is None:
        return None
    off = config.mode is ReasoningMode.DISABLED
    return (
        ReasoningConfig(mode=config.mode) if off else ReasoningConfig(mode=ReasoningMode.ADAPTIVE, effort=config.effort)
    )


def _choice(text: str) -> dict[str, Any]:
    mode = _MODES.get(text)
    return {"tool_choice": ToolChoice(mode=mode) if mode else ToolChoice(mode=ChoiceMode.NAMED, name=text)}


def _stream(text: str) -> dict[str, Any]:
    return {"stream": _switch(text), "stream_usage": _switch(text)}


#: What can be set, the values it takes, and how they are read.
SETTINGS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "reasoning": ("off, default, or an effort (low, high)", _reasoning),
    "stream": ("on or off", _stream),
    "temperature": ("a number", lambda text: {"temperature": float(text)}),
    "max_tokens": ("a whole number", lambda text: {"max_tokens": int(text)}),
    "tool_choice": ("auto, required, none, or a tool's name", _choice),
    "parallel": ("on or off", lambda text: {"parallel_tool_calls": _switch(text)}),
}


def apply_changes(recorded: RecordedRequest, settings: Iterable[str]) -> RecordedRequest:
    """Return the request with these settings (`NAME=VALUE`) changed; raise `ConfigError` for one that is not known."""
    changes: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        known = SETTINGS.get(name.strip())
        if known is None or not equals:
            legal = "; ".join(f"{one} ({values})" for one, (values, _) in SETTINGS.items())
            raise ConfigError(f"cannot set {text!r}; what can be set: {legal}")
        try:
            changes |= known[1](value.strip())
        except ValueError:
            raise ConfigError(f"{name} cannot be {value!r}; it takes {known[0]}") from None
    if not changes:
        return recorded
    if recorded.wire is Wire.MESSAGES and "reasoning" in changes:
        changes["reasoning"] = _on_messages(changes["reasoning"])
    request = codec_for(recorded.wire).decode_request(recorded.body)
    return rewritten(recorded, request.evolve(**changes))


def rewritten(recorded: RecordedRequest, request: Request) -> RecordedRequest:
    """Return a recorded request with other contents, written for the wire it was recorded on."""
    try:
        body = codec_for(recorded.wire).encode_request(request, Target(), AdaptationLog())
        return msgspec.structs.replace(recorded, body=msgspec.json.encode(body))
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply") from None
