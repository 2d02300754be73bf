"""No module keeps what callers or upstreams wrote: a module declares a store, and a server or an upstream owns it."""

import ast
import functools
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import mustcall
from mustcall.core.memo import Bounded, Caches
from mustcall.wire.caching.conversations import Conversations
from mustcall.wire.caching.decode_cache import DecodeStore
from mustcall.wire.opening import KnownTools

_ROOT = Path(mustcall.__file__).parent

#: Calls that make a store.
_STORES = frozenset(
    {
        *("Bounded", "Conversations", "Caches", "DecodeStore", "KnownTools"),
        *("OrderedDict", "defaultdict", "Counter", "deque", "WeakKeyDictionary", "WeakValueDictionary", "WeakSet"),
        *("dict", "list", "set", "bytearray"),
    }
)
_CACHES = frozenset({"cache", "lru_cache"})

_NOTHING_GIVEN = "asked with nothing: one value of ours"
_OWNERS = "words of whoever runs the process: its configuration or its own code"
_CONSTANT = "empty for ever: it stands for nothing, and its type says that nobody may add to it"

#: Every store of a module, and why nothing that a caller or an upstream wrote is in it.
ALLOWED = {
    "adapters/httpx_answers.py:_async_body": "the HTTP package in use: httpx, or one that is like it",
    "adapters/httpx_answers.py:_blocking_body": "the HTTP package in use: httpx, or one that is like it",
    "bench/processes.py:_serve_help": _OWNERS,
    "bench/processes.py:serve_knows": _OWNERS,
    "bench/upstream.py:_flow": "sizes of the benchmark's own calls",
    "bench/upstream.py:_long": "forms and sizes of the benchmark's own calls",
    "bench/upstream.py:_written": "the paths of the benchmark's own requests, in a process of its own",
    "core/origin.py:_NO_FIELDS": _CONSTANT,
    "dialects/catalogue.py:_anywhere": _OWNERS,
    "dialects/catalogue.py:_as_reply": _OWNERS,
    "dialects/catalogue.py:_own": _OWNERS,
    "dialects/prose.py:_words": "the kinds of words that prose.py itself asks for",
    "dialects/scanner.py:_without_tools": "a yes or no and a number: the tables of those who offer nothing",
    "dialects/scanning/code.py:_fence_runs": "how many ticks open a fence, and of which of two characters",
    "dialects/scanning/code.py:_inside_inline": "how many ticks open inline code",
    "dialects/scanning/grammar.py:_COMPILED": "tables of dialects; one that holds the names of tools is not kept",
    "dialects/scanning/grammar.py:marks_of": "markers of ours: who looks for a model's own makes `Marks` for it",
    "engine/off_loop.py:_threads": "threads; what they work on is theirs while they do",
    "evals/prompts.py:load_prompts": _NOTHING_GIVEN,
    "evals/prompts.py:prompts_text": _NOTHING_GIVEN,
    "gateway/openapi/document.py:document": _NOTHING_GIVEN,
    "gateway/openapi/document.py:written": _NOTHING_GIVEN,
    "policy/history/containment.py:_fold": "single characters, whoever wrote them: a part of Unicode's own table",
    "policy/history/names.py:_rule": "patterns of profiles: of the catalogue, or of the configuration",
    "policy/reply/gate.py:EVERY": _CONSTANT,
    "policy/scanning/echoes.py:_patterns": _OWNERS,
    "policy/words/shown_examples.py:_patterns": _NOTHING_GIVEN,
    "profiles/catalogue.py:load": _NOTHING_GIVEN,
    "profiles/patterns.py:_translate": "patterns of profiles: of the catalogue, or of the configuration",
    "profiles/prices.py:_listed": _NOTHING_GIVEN,
    "profiles/prices.py:price_lists": _NOTHING_GIVEN,
    "profiles/tenants.py:_NOBODY": _CONSTANT,
    "telemetry/prometheus.py:_own_version": _NOTHING_GIVEN,
    "telemetry/requests.py:_local_second": "the last four seconds",
    "telemetry/requests.py:_second": "the last four seconds",
    "toolkit/builtin/clock.py:_zones": _NOTHING_GIVEN,
    "upstream/embedded/gguf.py:takes_tools": "paths of model files on this machine",
    "wire/crossing/binding.py:_NONE": _CONSTANT,
    "wire/responses/items.py:_NO_ENVELOPE": _CONSTANT,
}


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(_ROOT.rglob("*.py")):
        yield path.relative_to(_ROOT).as_posix(), ast.parse(path.read_text("utf-8"))


def _called(node: ast.expr | None) -> str:
    """Return the name of what is called, also behind a module, a type's parameters or a second call."""
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_store(value: ast.expr | None) -> bool:
    match value:
        case ast.Dict(keys=[]) | ast.List(elts=[]):
            return True
        case ast.Call(args=args):
            # What is made of something is a table; what begins empty is there to be filled.
            made = _called(value)
            return made in _CACHES or (made in _STORES and (not args or made[0].isupper()))
        case _:
            return False


def stores_in(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield the stores of a module: caches of functions and methods, and names that begin with an empty container."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            (_called(decorator) if isinstance(decorator, ast.Call) else _named(decorator)) in _CACHES
            for decorator in node.decorator_list
        ):
            yield f"{name}:{node.name}"
    holders = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for holder in holders:
        for node in holder.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if _is_store(value):
                    yield f"{name}:{target}"
                # In a class that is the default of a field, of which each value has its own.
                case ast.AnnAssign(target=ast.Name(id=target), value=value) if holder is tree and _is_store(value):
                    yield f"{name}:{target}"
                case _:
                    pass


def _named(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_every_store_of_a_module_is_named() -> None:
    """Whoever adds one says here why nothing of callers is in it; one that is gone is taken out."""
    found = sorted({store for name, tree in _modules() for store in stores_in(name, tree)})
    print("\n".join(found))  # noqa: T201  the list is what the test is for
    assert found == sorted(ALLOWED)


def test_what_is_found() -> None:
    """The walk sees each form that a store has had."""
    source = """
import functools
from functools import lru_cache
_one: dict[str, int] = {}
_two = Bounded[str, int](8)
_three = lru_cache(maxsize=8)(len)
TABLE = {"a": 1}
NAMES = set(TABLE)
class Held:
    shared = []
    @functools.cache
    def method(self): ...
@lru_cache(maxsize=3)
def cached(): ...
def plain():
    local = {}
"""
    found = set(stores_in("m", ast.parse(source)))
    assert found == {"m:_one", "m:_two", "m:_three", "m:shared", "m:method", "m:cached"}


def _loaded() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages([str(_ROOT)], "mustcall."):
        if not found.name.endswith("__main__") and ".adapters." not in found.name:
            yield importlib.import_module(found.name)


def test_no_module_holds_a_store_in_what_it_made() -> None:
    """Nor in an object that a module made: none of those that hold text can be reached from a module's names."""
    stores = (Bounded, Caches, Conversations, DecodeStore, KnownTools)
    found: set[str] = set()
    for module in _loaded():
        for name, value in vars(module).items():
            if isinstance(value, (type, ModuleType, functools.partial)):
                continue
            slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
            fields = [*getattr(value, "__dict__", ()), *(slot for slot in slots if hasattr(value, slot))]
            held: list[object] = [value, *(getattr(value, field, None) for field in fields if isinstance(field, str))]
            if any(isinstance(one, stores) for one in held):
                found.add(f"{module.__name__}.{name}")
    assert found == set()
