"""Conversations that came before, found by the bytes they begin with: what is known of them need not be read again.

Bodies of one tenant and wire are kept up to the end of their last message in a radix tree: nodes hold bytes, branches
part where bodies part. A body is compared from its first byte on, at the speed of memory, and what it shares with an
earlier one ends at the end of a message. JSON is read from left to right, so equal bytes up to there mean the same
messages, whatever comes behind them.

Only objects are kept: a number goes on where more digits follow. No tenant's tree can be reached from another's.

Bounded over all tenants together by the memory that is taken, not by the bytes that came (`core.memory`); what was not
used for longest is forgotten first. Bodies that nothing went on from have a share of it, so however many come, they do
not push out conversations.

Cost: of what came before, a comparison; of what is new, its bytes.
"""

import re
from bisect import bisect_right
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from mustcall.core.history import Beginning
from mustcall.core.origin import Wire

__all__ = ["Conversations", "Known", "New", "Tenant", "ends_of", "first_element"]

_MOST_BYTES = 96 * 1024 * 1024
#: One part in so many is for what came once.
_ONCE = 4
#: One body larger than this is a document rather than a conversation.
_LONGEST = 4 * 1024 * 1024
#: What a node takes beside its bytes and its messages.
_NODE = 1024
#: A leaf shorter than this grows in place; a longer one gets a child.
_GROWS = 32 * 1024
_BRACE_END = b"}"[0]
_BLANKS = frozenset(b" \t\r\n")
#: What leads to the next element of an array, if it is an object.
_BEGINS = re.compile(rb"[ \t\r\n,]*+\{")


class _Node:
    """A piece of a body, from `start` on; `ends` are the ends of messages in it, `links` the beginnings they end."""

    __slots__ = ("children", "ends", "first", "forgotten", "home", "links", "once", "parent", "piece", "size", "start")

    def __init__(self, home: "Conversations", parent: "_Node | None", start: int, piece: bytes, first: int) -> None:
        self.home = home
        self.parent = parent
        self.start = start
        self.piece = piece
        #: Where the first message begins in all bodies that come past here.
        self.first = first
        self.ends: list[int] = []
        self.links: list[Beginning] = []
        self.children: dict[int, _Node] = {}
        self.forgotten = False
        #: Whether it is a leaf that no body went on from yet.
        self.once = False
        #: The memory it takes.
        self.size = _NODE + len(piece)

    @property
    def end(self) -> int:
        """Where its bytes end in a body."""
        return self.start + len(self.piece)

    @property
    def goes_on(self) -> bool:
        """Whether what comes behind it goes on with a conversation: it is a leaf that ends where a message ends."""
        return not self.children and bool(self.ends) and self.ends[-1] == self.end

    def grow(self, beginning: Beginning, size: int) -> bool:
        """Count so many bytes more for a beginning; return False if it is kept no longer."""
        return self.home.grow(beginning, size)


class Known(msgspec.Struct, frozen=True, gc=False):
    """How much of a body came before: its messages begin at `first`, and those up to `end` are `beginning`."""

    first: int
    end: int
    beginning: Beginning
    #: Where in the tree that is.
    node: _Node


class New(msgspec.Struct, frozen=True, gc=False):
    """The messages of a body that are new: they end at `ends`, the last of them at `last`.

    The first message of the body, new or not, begins at `first`.
    """

    first: int
    ends: list[int]
    last: Beginning

    def links(self) -> list[Beginning]:
        """Return the beginnings that end at `ends`."""
        links: list[Beginning] = []
        link: Beginning | None = self.last
        for _ in self.ends:
            assert link is not None, "each end has its message"
            links.append(link)
            link = link.past
        links.reverse()
        return links


class Conversations:
    """The conversations of all tenants and wires. Threads that share one give it a `lock`."""

    __slots__ = ("_leaves", "_lock", "_most_bytes", "_once", "_once_size", "_roots", "size")

    def __init__(self, most_bytes: int = _MOST_BYTES, lock: AbstractContextManager[Any] | None = None) -> None:
        self._most_bytes = most_bytes
        self._roots: dict[tuple[str, Wire], _Node] = {}
        #: The tree's leaves with their tenants, the one that was not used for longest first; those from which a body
        #: went on, and those from which none did.
        self._leaves: OrderedDict[_Node, tuple[str, Wire]] = OrderedDict()
        self._once: OrderedDict[_Node, tuple[str, Wire]] = OrderedDict()
        self._once_size = 0
        self._lock = nullcontext() if lock is None else lock
        #: The memory that is taken.
        self.size = 0

    def __len__(self) -> int:
        return len(self._leaves) + len(self._once)

    def of(self, tenant: str, wire: Wire) -> "Tenant":
        """Return one tenant's conversations on one wire."""
        return Tenant(self, (tenant, wire))

    def find(self, key: tuple[str, Wire], body: bytes) -> Known | None:
        """Return the longest beginning of a body that came before."""
        with self._lock:
            root = self._roots.get(key)
            node = None if root is None or not body else root.children.get(body[0])  # the root itself has no bytes
            best, count = None, 0
            while node is not None:
                piece, start = node.piece, node.start
                if not body.startswith(piece, start):
                    if shared := _shared_ends(node, body):
                        best, count = node, shared
                    break
                if node.links:
                    best, count = node, 0
                if not node.children:
                    if node.goes_on:
                        self._use(node, key)
                    break
                end = start + len(piece)
                node = node.children.get(body[end]) if end < len(body) else None
            return None if best is None else Known(best.first, best.ends[count - 1], best.links[count - 1], best)

    def keep(self, key: tuple[str, Wire], body: bytes, new: "New", known: Known | None) -> None:
        """Keep a body up to its last message, of which those before the new ones are known."""
        links = new.links()
        if new.ends[-1] > _LONGEST or sum([link.weight for link in links]) > self._most_bytes // _ONCE:
            return
        with self._lock:
            if known is None:
                node = self._root(key)
            elif known.node.forgotten:
                return  # what it goes on from is no longer counted
            else:
                node = known.node
                if not node.start < known.end <= node.end:
                    node = self._root(key)  # it was parted meanwhile
            self._insert(node, key, body, new, links)
            while self.size > self._most_bytes and len(self) > 1:
                self._forget()

    def grow(self, beginning: Beginning, size: int) -> bool:
        """Count so many bytes more for a beginning; return False if it is kept no longer."""
        with self._lock:
            node = beginning.keeper
            if not isinstance(node, _Node) or beginning.weight + size > self._most_bytes // _ONCE:
                return False
            beginning.weight += size
            node.size += size
            self.size += size
            if node.once:
                self._once_size += size
            while self.size > self._most_bytes and len(self) > 1:
                self._forget()
            return beginning.keeper is not None

    def _root(self, key: tuple[str, Wire]) -> _Node:
        node = self._roots.get(key)
        if node is None:
            node = self._roots[key] = _Node(self, None, 0, b"", 0)
            self._leaves[node] = key
            self.size += node.size
        return node

    def _insert(self, node: _Node, key: tuple[str, Wire], body: bytes, new: "New", links: list[Beginning]) -> None:
        """Add what is new of a body behind a node that it shares up to there."""
        ends, last = new.ends, new.ends[-1]
        while True:
            if not body.startswith(node.piece, node.start):
                node = self._split(node, _shared(node, body))
            at = node.end
            if at >= last:
                return  # it came before
            child = node.children.get(body[at])
            if child is None:
                break
            node = child
        known = bisect_right(ends, at)
        ends, links = ends[known:], links[known:]
        weight = sum([link.weight for link in links])
        once = not node.goes_on
        self._remove(node)
        if node.children or len(node.piece) >= _GROWS or node.parent is None:
            leaf = _Node(self, node, at, body[at:last], new.first)
            leaf.size += weight
            node.children[body[at]] = leaf
            self.size += leaf.size
            node = leaf
        else:
            self.size += last - at + weight
            node.size += last - at + weight
            node.piece += body[at:last]
        node.ends += ends
        node.links += links
        for link in links:
            link.keeper = node
        node.once = once
        self._add(node, key)

    def _split(self, node: _Node, at: int) -> _Node:
        """Put a node of its own in front of what is behind a place; return it."""
        parent = node.parent
        assert parent is not None, "the root has no bytes"
        front = _Node(self, parent, node.start, node.piece[: at - node.start], node.first)
        parent.children[front.piece[0]] = front
        count = bisect_right(node.ends, at)
        front.ends, front.links = node.ends[:count], node.links[:count]
        node.ends, node.links = node.ends[count:], node.links[count:]
        for link in front.links:
            link.keeper = front
        node.parent, node.piece, node.start = front, node.piece[at - node.start :], at
        front.children[node.piece[0]] = node
        front.size += sum([link.weight for link in front.links])
        moved = front.size - _NODE
        node.size -= moved
        self.size += _NODE
        if node.once:
            self._once_size -= moved
        return front

    def _add(self, leaf: _Node, key: tuple[str, Wire]) -> None:
        if leaf.once:
            self._once[leaf] = key
            self._once_size += leaf.size
        else:
            self._leaves[leaf] = key

    def _remove(self, leaf: _Node) -> None:
        """Take a node out of the leaves, if it is one."""
        if leaf.once:
            del self._once[leaf]
            self._once_size -= leaf.size
            leaf.once = False
        else:
            self._leaves.pop(leaf, None)

    def _use(self, leaf: _Node, key: tuple[str, Wire]) -> None:
        if leaf.once:
            self._remove(leaf)
            self._add(leaf, key)
        else:
            self._leaves.move_to_end(leaf)

    def _forget(self) -> None:
        """Forget the leaf that was not used for longest; what only it needed is the next to go."""
        once = self._once_size > self._most_bytes // _ONCE or not self._leaves
        leaf, key = (self._once if once else self._leaves).popitem(last=False)
        leaf.forgotten = True
        for link in leaf.links:
            link.keeper = None
        self.size -= leaf.size
        if leaf.once:
            self._once_size -= leaf.size
        parent = leaf.parent
        if parent is None:
            del self._roots[key]
            return
        del parent.children[leaf.piece[0]]
        leaf.parent = None
        if not parent.children:
            self._leaves[parent] = key
            self._leaves.move_to_end(parent, last=False)


class Tenant:
    """The conversations of one tenant on one wire: all that a turn gets to see."""

    __slots__ = ("_conversations", "_key")

    def __init__(self, conversations: Conversations, key: tuple[str, Wire]) -> None:
        self._conversations = conversations
        self._key = key

    @property
    def name(self) -> str:
        """Who the tenant is."""
        return self._key[0]

    def find(self, body: bytes) -> Known | None:
        """Return how much of a body came before."""
        return self._conversations.find(self._key, body)

    def keep(self, body: bytes, new: "New", known: Known | None = None) -> None:
        """Keep a body's messages, of which those before the new ones are known."""
        self._conversations.keep(self._key, body, new, known)


def first_element(body: bytes, at: int) -> int:
    """Return where the first element of an array begins, which is not empty and begins at a place."""
    at += 1
    while body[at] in _BLANKS:
        at += 1
    return at


def ends_of(body: bytes, at: int, elements: list[msgspec.Raw]) -> list[int] | None:
    """Return where elements of an array end that stand behind each other from a place on; None if one is no object."""
    ends: list[int] = []
    for element in elements:
        begun = _BEGINS.match(body, at)
        if begun is None:
            return None
        at = begun.end() - 1 + len(element)
        if body[at - 1] != _BRACE_END:
            return None
        ends.append(at)
    return ends


def _shared(node: _Node, body: bytes) -> int:
    """Return where a body and a node part; they do."""
    start, piece = node.start, node.piece
    low, high = 0, min(len(piece), len(body) - start)
    while low < high:
        middle = (low + high + 1) >> 1
        if body.startswith(piece[low:middle], start + low):
            low = middle
        else:
            high = middle - 1
    return start + low


def _shared_ends(node: _Node, body: bytes) -> int:
    """Return how many messages of a node a body has."""
    return bisect_right(node.ends, _shared(node, body)) if node.ends else 0
