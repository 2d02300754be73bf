"""Where long pure steps of a turn run: on the loop while they are short, in a thread once they may not be.

A step goes aside if it is heavy from the start, or if it spends more than the loop's allowance
(`policy.limits.work_allowance`); then it is done again from its beginning, so it must be a function of its arguments.
In a thread the interpreter takes turns between the step and the loop. What cannot be interrupted is a single call into
compiled code: a few milliseconds for each megabyte of JSON. Two steps run aside at a time, others wait for them; small
requests never do.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from mustcall.core.memo import Caches, owned, owner
from mustcall.core.parts import Reasoning, Refusal, Text, ToolCall
from mustcall.core.reply import Reply
from mustcall.policy.limits.work_allowance import TooLong, allow, left

__all__ = ["HEAVY_PIECE", "LARGE", "MOST_TOGETHER", "Aside", "heavily", "heft", "here", "is_heavy"]

T = TypeVar("T")

#: Characters of text that take a few milliseconds to read, scan or write.
LARGE = 256 * 1024
#: From so many bytes on, a piece of an event that is large already is read in a thread.
HEAVY_PIECE = 16 * 1024
#: A character of arguments is read, checked and repaired: about eight times the work of one of text.
_ARGUMENTS = 8
#: Steps of validation on the loop (10 ms), and in a thread (half a second) for one judgement.
_HERE = 400_000
MOST_TOGETHER = 20_000_000
_THREADS = 2


def heft(reply: Reply) -> int:
    """Return how heavy a reply is to look at, in characters of text."""
    weight = sum(map(heft, reply.others)) if reply.others else 0
    for part in reply.parts:
        if isinstance(part, Text | Refusal | Reasoning):
            weight += len(part.text)
        elif isinstance(part, ToolCall):
            weight += len(part.arguments_json) * _ARGUMENTS
    return weight


class Aside(Enum):
    """What `here` returns for a step that is not for here."""

    ASIDE = 1


def is_heavy(body: bytes, reply: Reply) -> bool:
    """Tell whether a reply is heavy to look at, from its bytes where they are few."""
    return len(body) > LARGE // _ARGUMENTS and heft(reply) > LARGE


def here(function: Callable[..., T], *args: Any) -> T | Aside:
    """Return what a pure function gives if that takes few steps. It is called for every turn, and is no coroutine."""
    left.set(_HERE)
    try:
        return function(*args)
    except TooLong:
        return Aside.ASIDE
    finally:
        left.set(None)


async def heavily(function: Callable[..., T], *args: Any) -> T:
    """Return what a pure function gives that is known to take long."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads(), _call_owned, owner.get(), function, args)


def _call_owned(caches: Caches | None, function: Callable[..., T], args: tuple[Any, ...]) -> T:
    """Call a function in a thread, which does not inherit the owner of the caches."""
    with owned(caches):
        return allow(MOST_TOGETHER, function, args)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="mustcall-aside")
