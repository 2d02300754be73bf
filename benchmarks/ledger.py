"""What the ledger costs: a tool turn of the journal, a chain, a trace. CPU of this process; wall time beside it.

    python benchmarks/ledger.py ledger.db
    python benchmarks/ledger.py postgresql://user@host/empty

A tool turn is two commits: the model's reply with the tool's intent, then the tool's result. What a disk takes to sync
is in the wall time of one client; with several, commits are shared.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from mustcall.ledger import AttemptTrace, Ledger, NewEvent, StoredResponse, TurnTrace, open_ledger

_DATA = b'{"name":"search","arguments":"{\\"query\\":\\"weather in Oslo\\"}"}'
_BODY = b'{"output":[{"type":"message","content":"%s"}]}' % (b"word " * 100)


async def main(place: str) -> None:
    """Measure everything at one place, under names that are new each time."""
    mark = os.urandom(4).hex()
    async with open_ledger(place) as ledger:
        print(f"{ledger.store.kind} at {ledger.store.place}")
        for clients in (1, 16):
            turns = 200 if clients == 1 else 40
            each = [_tool_turns(ledger, f"{mark}-{clients}-{number}", turns) for number in range(clients)]
            await _measure(f"tool turn, {clients} at once", clients * turns, lambda each=each: asyncio.gather(*each))
        await _measure("response stored, one after the other", 200, lambda: _chain(ledger, mark, 200))
        await _measure("chain of 200 read", 20, lambda: _read(ledger, f"{mark}-199", 20))
        await _measure("turn traced, 250 together", 5000, lambda: _trace(ledger, mark, 5000))


async def _measure(what: str, count: int, work: Callable[[], Awaitable[object]]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{what:<40}{wall / count * 1e3:>9.3f} ms wall{cpu / count * 1e3:>9.3f} ms cpu")


async def _tool_turns(ledger: Ledger, run: str, count: int) -> None:
    await ledger.start_run(run, b"{}", owner="bench", lease=600)
    for number in range(count):
        step = f"p/m{number}"
        asked = [NewEvent(step=step, kind="model", data=_DATA), NewEvent(step=f"{step}/0", kind="intent", data=_DATA)]
        await ledger.append(run, 1, asked)
        await ledger.append(run, 1, [NewEvent(step=f"{step}/0", kind="result", data=_DATA)])


async def _chain(ledger: Ledger, mark: str, count: int) -> None:
    for number in range(count):
        await ledger.put_response(
            StoredResponse(
                id=f"{mark}-{number}",
                conversation=mark,
                parent=f"{mark}-{number - 1}" if number else None,
                depth=number,
                wire="responses",
                model="m",
                tenant="",
                input=b"[]",
                body=_BODY,
                items=(f"msg-{mark}-{number}",),
            )
        )


async def _read(ledger: Ledger, last: str, count: int) -> None:
    for _ in range(count):
        chain = await ledger.chain(last, "")
        assert chain is not None
        assert len(chain) == 200


async def _trace(ledger: Ledger, mark: str, count: int) -> None:
    attempt = AttemptTrace(
        number=1, rung="native", verdict="called", remedy="accept", digest="0" * 16, seconds=1.0, sends=1
    )
    for start in range(0, count, 250):
        await ledger.put_turns(
            [
                TurnTrace(
                    id=f"{mark}-{number}",
                    at=time.time(),
                    wire="chat",
                    model="m",
                    upstream="u",
                    protocol="hybrid",
                    force="none",
                    outcome="answer",
                    status=200,
                    seconds=1.0,
                    attempts=(attempt,),
                )
                for number in range(start, start + 250)
            ]
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What a journal, a chain of responses and a trace cost.")
    parser.add_argument("place", help="a file that may be made, or a postgresql:// URL")
    asyncio.run(main(parser.parse_args().place))
