"""Attacks by request bodies of a caller with a key. Finding 5, and variants."""

from attacks.sending import Attack, Place, ask, request_of

__all__ = ["ATTACKS"]

_MIB = 1024 * 1024
_WIRES = {
    "chat": (b"/v1/chat/completions", b'{"model":"good","messages":%b}'),
    "responses": (b"/v1/responses", b'{"model":"good","input":%b}'),
    "messages": (b"/v1/messages", b'{"model":"good","max_tokens":9,"messages":%b}'),
}
_FILLS = {
    "lists": b"[],",
    "objects": b"{},",
    "numbers": b"0,",
    "texts": b'"",',
    "messages": b'{"role":"user","content":"a"},',
    "pairs": b'{"a":1,"b":[0]},',
    "calls": b'{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]},',
}


def _many(wire: str, fill: str, size: int) -> Attack:
    def run(place: Place) -> set[int]:
        path, form = _WIRES[wire]
        item = _FILLS[fill]
        return {ask(place, request_of(form % (b"[" + item * (size // len(item)) + b"0]"), path))}

    expected = frozenset({400, 413, 503, 422, 502, 200})
    return Attack(f"{size // _MIB} MiB of {fill} on {wire}", run, expected, quick=size == 63 * _MIB and fill == "lists")


def _deep(wire: str, sign: bytes, depth: int) -> Attack:
    def run(place: Place) -> set[int]:
        path, form = _WIRES[wire]
        return {ask(place, request_of(form % (sign * depth), path))}

    return Attack(f"{depth} {sign.decode()} on {wire}", run, frozenset({400, 413}))


def _text(wire: str, unit: bytes, name: str) -> Attack:
    def run(place: Place) -> set[int]:
        path, form = _WIRES[wire]
        content = b'[{"role":"user","content":"%b"}]' % (unit * (20 * _MIB // len(unit)))
        return {ask(place, request_of(form % content, path))}

    return Attack(f"20 MiB of text on {wire}: {name}", run, frozenset({200, 400, 413, 502, 503}))


ATTACKS: tuple[Attack, ...] = (
    *(_many(wire, "lists", 63 * _MIB) for wire in _WIRES),
    *(_many(wire, fill, 20 * _MIB) for wire in _WIRES for fill in _FILLS),
    *(_many("chat", fill, 2 * _MIB) for fill in _FILLS),
    *(_deep(wire, sign, 90_000) for wire in _WIRES for sign in (b"[", b'{"a":')),
    *(_text("chat", unit, name) for unit, name in ((b"a", "letters"), (b"<tool_call>", "markup"), (b"[,{", "signs"))),
    *(_text("messages", unit, name) for unit, name in ((b"\\u0041", "escapes"), (b"\\\\", "backslashes"))),
)
