"""The bodies of an agent's forced turn on a local server that never calls the tool, rung by rung."""

from typing import Any

from support.agents import ask_body, user
from support.forcing import choice_on
from support.laddering import climbed

__all__ = ["ladder"]

_TOLD = """## get_weather
Look up the weather.
Parameters:
- city (string, required): a city"""


def ladder(wire: str, question: str, said: str, *, stream: bool = False) -> list[dict[str, Any]]:
    """Return what is sent for a question on chat or Messages; `said` is what the model says each time."""
    asked = ask_body(wire, [user(wire, question)], stream=stream, tool_choice=choice_on(wire, "required"))
    return climbed(wire, asked, said, _TOLD)
