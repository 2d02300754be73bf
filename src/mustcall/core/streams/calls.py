"""Which call a streamed fragment belongs to, when the upstream's own numbering cannot be trusted (rules 127, 143).

Seen in the wild: all parallel calls on one index, no index at all, a name repeated in every fragment, an id that
changes in mid-call, one id for all parallel calls. A named fragment on an index of its own begins a call, whatever its
id. Otherwise the order of evidence is id, then index, then a change of name or the end of a complete object.

Cost: each fragment is looked at once, and only where its own fields leave doubt (`Balance` catches up lazily).
"""

import re

__all__ = ["Balance", "CallSlot", "CallTracker"]

_STRUCTURE = re.compile(r'["\\{}\[\]]')


class Balance:
    """Follows brackets and strings of JSON text as it comes; knows when the first value's brackets are closed."""

    __slots__ = ("_depth", "_escaped", "_in_string", "opened")

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.opened = False

    @property
    def closed(self) -> bool:
        """Whether an object or array was opened and everything opened is closed again."""
        return self.opened and self._depth == 0 and not self._in_string

    def feed(self, text: str) -> None:
        """Take more text."""
        start = 0
        if self._escaped and text:
            self._escaped = False
            start = 1
        skip = -1
        for match in _STRUCTURE.finditer(text, start):
            position = match.start()
            if position == skip:
                continue
            character = text[position]
            if self._in_string:
                if character == "\\":
                    skip = position + 1
                    if skip == len(text):
                        self._escaped = True
                elif character == '"':
                    self._in_string = False
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
                self.opened = True
            elif character in "}]":
                self._depth = max(0, self._depth - 1)


class CallSlot:
    """One call under construction."""

    __slots__ = ("_balance", "_unread", "id", "name", "number", "restated")

    def __init__(self, number: int) -> None:
        self.number = number
        self.id = ""
        self.name = ""
        self.restated = False
        self._balance = Balance()
        self._unread: list[str] = []

    def add(self, arguments: str) -> None:
        """Take more of the call's arguments."""
        if arguments:
            self._unread.append(arguments)

    @property
    def begun(self) -> bool:
        """Whether arguments have begun and are not complete."""
        self._catch_up()
        return self._balance.opened and not self._balance.closed

    @property
    def complete(self) -> bool:
        """Whether the arguments are one whole object."""
        self._catch_up()
        return self._balance.closed

    def _catch_up(self) -> None:
        for fragment in self._unread:
            self._balance.feed(fragment)
        self._unread.clear()


def _may_begin(arguments: str) -> bool:
    """Tell whether a fragment can be the first of a call's arguments, not only one that goes on."""
    bare = arguments.lstrip()
    return not bare or bare[0] in "{["


class CallTracker:
    """Assigns fragments to calls, in order of appearance."""

    __slots__ = ("_by_id", "_by_index", "_current", "slots")

    def __init__(self) -> None:
        self.slots: list[CallSlot] = []
        self._by_id: dict[str, CallSlot] = {}
        self._by_index: dict[int, CallSlot] = {}
        self._current: CallSlot | None = None

    def assign(self, index: int | None, call_id: str, name: str, arguments: str) -> CallSlot:
        """Return the call this fragment belongs to, a new one if it begins one, with the fragment added to it."""
        slot = self._find(index, call_id, name, arguments)
        if slot is None:
            before = self._current
            slot = CallSlot(len(self.slots))
            self.slots.append(slot)
            if before is not None and before.restated:
                # The name came once more on its own, and now its arguments: this is the call it announced.
                before.restated = False
                slot.name = before.name if index is None and not call_id and not name else ""
        if index is not None:
            self._by_index[index] = slot
        if call_id:
            self._by_id[call_id] = slot
            slot.id = slot.id or call_id
        slot.name = slot.name or name
        slot.add(arguments)
        self._current = slot
        return slot

    def _find(self, index: int | None, call_id: str, name: str, arguments: str) -> CallSlot | None:
        placed = None if index is None else self._by_index.get(index)
        if call_id:
            known = placed if placed is not None and placed.id == call_id else self._by_id.get(call_id)
            if known is not None and not (name and known.name and name != known.name):
                apart = index is not None and placed is None and bool(name)
                return None if apart and _may_begin(arguments) else known
        slot = self._current if index is None else placed
        if slot is None:
            return None
        if name and slot.name and name != slot.name:
            return None
        if call_id and slot.id:
            # A new id: another call, unless the one at this place is still being written and the id just changed.
            return slot if slot.begun or not (name or slot.complete) else None
        if index is None and slot.name and slot.complete:
            if (name or slot.restated) and arguments:
                return None
            slot.restated = slot.restated or bool(name)
        return slot
