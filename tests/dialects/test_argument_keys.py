"""Under which key a call's arguments may stand, and what becomes of one under another key."""

import pytest

from dialects.scanning import calls_of, cuts, reasons_of, scan
from mustcall.core.tools import Tool

#: It requires nothing, so that empty arguments would be valid.
PING = (Tool(name="ping", parameters={"type": "object", "properties": {"city": {"type": "string"}}}),)
WRAPPERS = ("<tool_call>{}</tool_call>", "[TOOL_REQUEST]{}[END_TOOL_REQUEST]")


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("key", ["arguments", "args"])
def test_both_keys_are_read(wrapper: str, key: str) -> None:
    """Rule 61: `arguments` and `args` are both read, wherever the text is cut."""
    text = wrapper.format(f'{{"name":"ping","{key}":{{"city":"Oslo"}}}}')
    for pieces in cuts(text):
        assert calls_of(scan(pieces, tools=PING)) == [{"name": "ping", "arguments": {"city": "Oslo"}}]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("key", ["params", "kwargs", "payload", "Argument"])
def test_an_unknown_key_is_no_empty_arguments(wrapper: str, key: str) -> None:
    """Rule 61: arguments under an unknown key are a malformed call, never a call without arguments."""
    text = wrapper.format(f'{{"name":"ping","{key}":{{"city":"Oslo"}}}}')
    for pieces in cuts(text):
        events = scan(pieces, tools=PING)
        assert (calls_of(events), reasons_of(events)) == ([], ["missing_arguments"])
