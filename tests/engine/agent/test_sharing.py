"""What several users share is opened once, closed with the last of them, and never across event loops."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from mustcall.engine.sharing import Shared


class Diary:
    """Opens and closes, and remembers."""

    def __init__(self, *, fails: int = 0) -> None:
        self.lines: list[str] = []
        self._fails = fails

    async def open(self, stack: AsyncExitStack) -> str:
        """Open, slowly."""
        await asyncio.sleep(0)
        self.lines.append("open")
        stack.callback(self.lines.append, "close")
        if self._fails:
            self._fails -= 1
            raise OSError
        return "value"


async def test_one_for_all() -> None:
    """Users at the same time get the same, opened once, whoever comes first."""
    diary = Diary()
    shared = Shared(diary.open)

    async def use() -> str:
        async with shared.use() as value:
            await asyncio.sleep(0)
            return value

    assert await asyncio.gather(use(), use(), use()) == ["value"] * 3
    assert diary.lines == ["open", "close"]
    async with shared.use(), shared.use():
        pass
    assert diary.lines == ["open", "close"] * 2


async def test_a_failure_leaves_nothing_open() -> None:
    """What could not be opened whole is closed, and the next user tries again."""
    diary = Diary(fails=1)
    shared = Shared(diary.open)
    with pytest.raises(OSError):  # noqa: PT011  its own error
        async with shared.use():
            pass
    async with shared.use() as value:
        assert value == "value"
    assert diary.lines == ["open", "close"] * 2


def test_each_loop_has_its_own() -> None:
    """Connections belong to the loop they were made in."""
    diary = Diary()
    shared = Shared(diary.open)

    async def use() -> None:
        async with shared.use():
            pass

    asyncio.run(use())
    asyncio.run(use())
    assert diary.lines == ["open", "close"] * 2
