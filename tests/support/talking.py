"""A scripted model that uses the built-in tools, for the tests of `mustcall chat` and `mustcall run`."""

import re

from mustcall.core.origin import Wire
from mustcall.testing import Call, Recorded, Say, Turn
from mustcall.testing.offers import as_object, as_objects

__all__ = ["talker", "users_words", "was_told"]


def _items(recorded: Recorded) -> list[dict[str, object]]:
    body = as_object(recorded.body)
    return as_objects(body.get("input" if recorded.wire is Wire.RESPONSES else "messages"))


def users_words(recorded: Recorded) -> str:
    """Everything the user said in the request, directives included."""
    return "\n".join(str(item.get("content")) for item in _items(recorded) if item.get("role") == "user")


def was_told(recorded: Recorded) -> str | None:
    """The tool result the request ends with, as JSON text; None if it ends with none."""
    last = _items(recorded)[-1]
    told = last.get("role") == "tool" or last.get("type") == "function_call_output" or "tool_result" in str(last)
    return str(last).replace("\\n", "\n") if told else None


def talker(recorded: Recorded) -> Turn:
    """Call the tool that the latest question is about; after a result, say what it was."""
    told = was_told(recorded)
    if told is not None:
        found = re.findall(r"\w+\.txt", told)
        return Turn(Say(f"The tool said: {', '.join(found) if found else told[-200:]}"))
    asked = users_words(recorded)
    if "files" in asked:
        path = re.search(r"(?:/|\$HOME|~)[\w/.$-]*", asked)
        return Turn(Say("Let me look."), Call("list_directory", {"path": path[0] if path else "."}))
    return Turn(Say("Hello there."))
