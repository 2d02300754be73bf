"""Tool calls as models write them into text: every form that rule 43 lists, and ones that are broken."""

__all__ = ["HERMES", "INVOKE", "MALFORMED", "MARKUP", "OPEN", "PROSE", "check_no_trace"]

INVOKE = '<invoke name="get_weather"><parameter name="city">Paris</parameter></invoke>'
#: Cut off inside its arguments: not a call in any protocol.
OPEN = '<invoke name="get_weather"><parameter name="city">Par'
HERMES = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
PROSE = "Let me look.\n"

#: Words of the markup that no request and no healthy reply holds.
TRACES = (b"<invoke", b"invoke>", b"parameter name", b"</parameter", b"tool_call>")

_JSON_CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
MARKUP = {
    "invoke": INVOKE,
    "function_calls": f"<function_calls>\n{INVOKE}\n</function_calls>",
    "namespaced": INVOKE.replace("<", "<x:").replace("<x:/", "</x:"),
    "namespaced wrapper": f"<x:function_calls>\n{INVOKE}\n</x:function_calls>",
    "tool_call": f"<tool_call>{_JSON_CALL}</tool_call>",
    "TOOL_REQUEST": f"[TOOL_REQUEST]\n{_JSON_CALL}\n[END_TOOL_REQUEST]",
    "tool_code": '<tool_code>\nget_weather(city="Paris")\n</tool_code>',
    "unclosed": OPEN,
}


MALFORMED = {
    "bad JSON": '<tool_call>{"name": "get_weather", "arguments": {"city": }}</tool_call>',
    "no object": '<tool_call>{"name": "get_weather", "arguments": "Paris"}</tool_call>',
    "unclosed JSON": '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
}


def check_no_trace(raw: bytes) -> None:
    """No part of the discarded markup is in these bytes."""
    for trace in TRACES:
        assert trace not in raw, trace
