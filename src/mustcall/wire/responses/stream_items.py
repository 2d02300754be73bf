"""Which item a stream event is about. Decides by ids and indexes alone; knows nothing of what events mean.

Servers leave out indexes or ids, give an item a new id in every event, reuse one index for parallel calls, one id for
all messages, or one call id for parallel calls. Two call ids are always two calls; one call id is one call only where
index or item id do not say otherwise (rule 143). For other items an id decides, unless the indexes say otherwise; then
the index, unless the item there is known to be another.
"""

from collections import deque
from collections.abc import Iterator

from mustcall.core.origin import JsonObject
from mustcall.core.parts import Part

__all__ = ["CALL", "MESSAGE", "OTHER", "REASONING", "Item", "ItemSlot", "ItemTable", "group_of"]

MESSAGE, REASONING, CALL, OTHER = "message", "reasoning", "call", "other"
#: How many calls of one call id are looked at for one event; more of them are told apart by index and item id alone.
_MOST_SHARING = 8
_GROUPS = {"message": MESSAGE, "reasoning": REASONING, "function_call": CALL, "custom_tool_call": CALL}


def group_of(fields: JsonObject) -> str:
    """Return the sort of item: events of one sort never mean an item of another."""
    kind = fields.get("type")
    return _GROUPS.get(kind, OTHER) if isinstance(kind, str) else OTHER


class ItemSlot:
    """One canonical part on its way: what was streamed of it, by channel (a summary's number; None is the text)."""

    __slots__ = ("agrees", "ended", "index", "seed", "streamed")

    def __init__(self, index: int, seed: Part | None = None) -> None:
        self.index = index
        self.seed = seed
        self.streamed: dict[int | None, list[str]] = {}
        #: Whether each whole text was just what had been streamed.
        self.agrees = True
        self.ended = False

    def take(self, channel: int | None, text: str, whole: bool) -> str:
        """Add a delta, or what a whole text has beyond the deltas; return what is new."""
        if whole:
            streamed = "".join(self.streamed.get(channel, ()))
            self.agrees = self.agrees and text == streamed
            text = text[len(streamed) :] if text.startswith(streamed) else ""
        if text:
            self.streamed.setdefault(channel, []).append(text)
        return text


class Item:
    """One output item: its slots by content index (all but messages have one, at 0)."""

    __slots__ = ("call_id", "done", "envelope", "group", "index", "item_id", "slots")

    def __init__(self, group: str, index: int | None, fields: JsonObject) -> None:
        self.group = group
        self.index = index
        self.item_id = fields.get("id")
        self.call_id = fields.get("call_id")
        self.envelope = fields
        self.slots: dict[int, ItemSlot] = {}
        self.done = False

    def is_another(self, fields: JsonObject) -> bool:
        """Tell whether an event at the same index carries a different item."""
        call_id = fields.get("call_id")
        if call_id and self.call_id:
            return call_id != self.call_id
        identifier = fields.get("id")
        return self.done and bool(identifier) and identifier != self.item_id

    def is_apart(self, index: int | None, identifier: object, *, begins: bool) -> bool:
        """Tell whether index and item id say that an event of the same call id is about another call."""
        elsewhere = index is not None and self.index is not None and index != self.index
        renamed = bool(identifier) and bool(self.item_id) and identifier != self.item_id
        return (elsewhere or renamed) if begins or self.done else (elsewhere and renamed)


class ItemTable:
    """The items of one stream in the order they appeared."""

    __slots__ = ("_by_call", "_by_id", "_by_index", "_items")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._by_index: dict[tuple[str, int], Item] = {}
        self._by_call: dict[str, list[Item]] = {}
        self._by_id: dict[tuple[str, str], Item] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def register(self, group: str, index: int | None, fields: JsonObject) -> Item:
        """Add an item that an event announced or implied; `fields` is as much of it as is known."""
        item = Item(group, index, fields)
        self._items.append(item)
        if index is not None:
            self._by_index[group, index] = item
        call_id, identifier = fields.get("call_id"), fields.get("id")
        if group == CALL and isinstance(call_id, str) and call_id:
            self._by_call.setdefault(call_id, []).append(item)
        if isinstance(identifier, str) and identifier:
            self._by_id.setdefault((group, identifier), item)
        return item

    def carried(self, group: str, index: int | None, fields: JsonObject, *, begins: bool = False) -> Item | None:
        """Find the item that an event carries; `begins` says that it is announced: on an index of its own it is new."""
        if group == CALL and fields:
            return self._call(index, fields, begins=begins)
        return self._by_name(group, fields, index) or self._placed(group, index, fields)

    def find(self, group: str, index: int | None, item_id: object) -> Item | None:
        """Find the item that an event is about."""
        item = self._by_name(group, {"id": item_id}, index) or self._placed(group, index, {})
        if item is not None or index is not None or isinstance(item_id, str):
            return item
        return next((item for item in reversed(self._items) if item.group == group), None)

    def _placed(self, group: str, index: int | None, fields: JsonObject) -> Item | None:
        placed = None if index is None else self._by_index.get((group, index))
        return None if placed is None or placed.is_another(fields) else placed

    def _by_name(self, group: str, fields: JsonObject, index: int | None = None) -> Item | None:
        """Find an item by its id where neither call id nor index contradict."""
        identifier = fields.get("id")
        item = self._by_id.get((group, identifier)) if isinstance(identifier, str) else None
        if item is None or item.is_another({**fields, "id": None}):
            return None
        return item if index is None or item.index is None or item.index == index else None

    def _call(self, index: int | None, fields: JsonObject, *, begins: bool) -> Item | None:
        """Find the call that an event carries: by its item id and place, then by its place, then by its call id."""
        identifier, call_id = fields.get("id"), fields.get("call_id")
        placed = self._by_index.get((CALL, index)) if index is not None else None
        if placed is not None and placed.is_another({"call_id": call_id}):
            placed = None
        if placed is not None and (not identifier or placed.item_id == identifier):
            return placed
        named = self._by_name(CALL, fields, index)
        if named is not None:
            return named
        if placed is not None and (begins or not placed.is_another(fields)):
            return placed  # a server that gives an item a new id in every event
        if not isinstance(call_id, str):
            return None
        sharing = self._by_call.get(call_id, [])[-_MOST_SHARING:]
        known = [item for item in sharing if not item.is_apart(index, identifier, begins=begins)]
        return next((item for item in known if not item.done), known[0] if known else None)

    def match(self, entries: list[JsonObject]) -> list[tuple[Item, JsonObject]]:
        """Pair a response's final output with its items: by name, else by place, else as new items."""
        claimed: set[int] = set()
        sharing = {call_id: deque(items) for call_id, items in self._by_call.items()}
        names = [self._named_entry(place, fields, claimed, sharing) for place, fields in enumerate(entries)]
        pairs: list[tuple[Item, JsonObject]] = []
        for place, (fields, named) in enumerate(zip(entries, names, strict=True)):
            item = named
            if item is None:
                placed = self._by_index.get((group_of(fields), place))
                if placed is not None and id(placed) not in claimed and not placed.is_another(_call_id_of(fields)):
                    claimed.add(id(placed))
                    item = placed
            pairs.append((item or self.register(group_of(fields), None, fields), fields))
        return pairs

    def _named_entry(
        self, place: int, fields: JsonObject, claimed: set[int], sharing: dict[str, deque[Item]]
    ) -> Item | None:
        """Find the item of a final output's entry by its ids: calls that share a call id by item id, place or order."""
        group, call_id = group_of(fields), fields.get("call_id")
        found = self._by_name(group, fields)
        if group == CALL and isinstance(call_id, str) and (found is None or id(found) in claimed):
            placed = self._by_index.get((CALL, place))
            waiting = sharing.get(call_id, deque[Item]())
            while waiting and id(waiting[0]) in claimed:
                waiting.popleft()
            if placed is not None and placed.call_id == call_id and id(placed) not in claimed:
                found = placed
            elif waiting and not (found is not None and found.item_id != waiting[0].item_id):
                found = waiting[0]
        if found is not None:
            claimed.add(id(found))
        return found


def _call_id_of(fields: JsonObject) -> JsonObject:
    return {"call_id": fields.get("call_id")}
