"""Which item a stream event is about. Decides by ids and indexes alone; knows nothing of what events mean.

Servers leave out indexes or ids, give an item a new id in every event, reuse one index for parallel calls or one id
for all messages. A call id is never shared, so it decides first; then an id, unless the indexes say otherwise; then
the index, unless the item there is known to be another.
"""

from collections.abc import Iterator

from mustcall.core.origin import JsonObject
from mustcall.core.parts import Part

__all__ = ["CALL", "MESSAGE", "OTHER", "REASONING", "Item", "ItemTable", "Slot", "group_of"]

MESSAGE, REASONING, CALL, OTHER = "message", "reasoning", "call", "other"
_GROUPS = {"message": MESSAGE, "reasoning": REASONING, "function_call": CALL, "custom_tool_call": CALL}


def group_of(fields: JsonObject) -> str:
    """Return the sort of item: events of one sort never mean an item of another."""
    kind = fields.get("type")
    return _GROUPS.get(kind, OTHER) if isinstance(kind, str) else OTHER


class Slot:
    """One canonical part on its way: what was streamed of it, by channel (a summary's number; None is the text)."""

    __slots__ = ("ended", "index", "seed", "streamed")

    def __init__(self, index: int, seed: Part | None = None) -> None:
        self.index = index
        self.seed = seed
        self.streamed: dict[int | None, list[str]] = {}
        self.ended = False

    def take(self, channel: int | None, text: str, whole: bool) -> str:
        """Add a delta, or what a whole text has beyond the deltas; return what is new."""
        if whole:
            streamed = "".join(self.streamed.get(channel, ()))
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
        self.slots: dict[int, Slot] = {}
        self.done = False

    def is_another(self, fields: JsonObject) -> bool:
        """Tell whether an event at the same index carries a different item."""
        call_id = fields.get("call_id")
        if call_id and self.call_id:
            return call_id != self.call_id
        identifier = fields.get("id")
        return self.done and bool(identifier) and identifier != self.item_id


class ItemTable:
    """The items of one stream in the order they appeared."""

    __slots__ = ("_by_call", "_by_id", "_by_index", "_items")

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._by_index: dict[tuple[str, int], Item] = {}
        self._by_call: dict[str, Item] = {}
        self._by_id: dict[tuple[str, str], Item] = {}

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def register(self, group: str, event: JsonObject, fields: JsonObject) -> Item:
        """Add an item that an event announced or implied; `fields` is as much of it as is known."""
        index = _index(event)
        item = Item(group, index, fields)
        self._items.append(item)
        if index is not None:
            self._by_index[group, index] = item
        call_id, identifier = fields.get("call_id"), fields.get("id")
        if group == CALL and isinstance(call_id, str) and call_id:
            self._by_call.setdefault(call_id, item)
        if isinstance(identifier, str) and identifier:
            self._by_id.setdefault((group, identifier), item)
        return item

    def find(self, group: str, event: JsonObject, fields: JsonObject) -> Item | None:
        """Find the item an event is about; `fields` is the item the event carries, or empty."""
        index = _index(event)
        named = self.named(group, fields or {"id": event.get("item_id")}, index)
        if named is not None:
            return named
        if index is not None:
            placed = self._by_index.get((group, index))
            return placed if placed is not None and not placed.is_another(fields) else None
        if fields or isinstance(event.get("item_id"), str):
            return None
        return next((item for item in reversed(self._items) if item.group == group), None)

    def named(self, group: str, fields: JsonObject, index: int | None = None) -> Item | None:
        """Find an item by its call id, or by its id where the index does not contradict."""
        call_id, identifier = fields.get("call_id"), fields.get("id")
        if group == CALL and isinstance(call_id, str) and call_id in self._by_call:
            return self._by_call[call_id]
        item = self._by_id.get((group, identifier)) if isinstance(identifier, str) else None
        if item is None or item.is_another({**fields, "id": None}):
            return None
        return item if index is None or item.index is None or item.index == index else None

    def match(self, entries: list[JsonObject]) -> list[tuple[Item, JsonObject]]:
        """Pair a response's final output with its items: by name, else by place, else as new items."""
        names = [self.named(group_of(fields), fields) for fields in entries]
        claimed = {id(item) for item in names if item is not None}
        pairs: list[tuple[Item, JsonObject]] = []
        for place, (fields, named) in enumerate(zip(entries, names, strict=True)):
            item = named
            if item is None:
                placed = self._by_index.get((group_of(fields), place))
                if placed is not None and id(placed) not in claimed:
                    claimed.add(id(placed))
                    item = placed
            pairs.append((item or self.register(group_of(fields), {}, fields), fields))
        return pairs


def _index(event: JsonObject) -> int | None:
    index = event.get("output_index")
    return index if isinstance(index, int) and not isinstance(index, bool) else None
