"""How quick the page is with a large ledger: first paint, and the time until the list and the overview are there.

Fills a ledger with 10,000 turns of one to three attempts, every tenth with contents of 100 kB, and opens the page in
Chromium. `python benchmarks/page.py`
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import AttemptTrace, TurnTrace, open_ledger
from mustcall.testing import RunningGateway

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browser import Tab, open_browser

_TURNS = 10_000
_ROUNDS = 5
_FULL = "document.querySelectorAll('main tbody tr').length === 50"
_VIEWS = {
    "list": ("/ui/turns", _FULL),
    "list, one verdict in 40": (
        "/ui/turns?verdict=text_call",
        "document.querySelectorAll('main tbody tr').length === 50",
    ),
    "list, a session that is not there": ("/ui/turns?session=none", "document.body.innerText.includes('No turn fits')"),
    "overview": ("/ui", "document.querySelector('.rate')"),
}


def _turn(number: int, now: float) -> TurnTrace:
    attempt = AttemptTrace(number=1, rung="native", verdict="called", remedy="accept", digest="", seconds=0.4, sends=1)
    count = 1 + number % 3
    verdict = "text_call" if number % 40 == 0 else "force_missed"
    body = b"x" * 100_000 if number % 10 == 0 else b""
    attempts = [msgspec.structs.replace(attempt, number=n, verdict=verdict) for n in range(1, count)]
    return TurnTrace(
        id=f"req_{number:024}",
        at=now - number,
        wire="chat",
        model=f"model-{number % 7}",
        upstream="up",
        protocol="hybrid",
        force="met",
        outcome="calls",
        status=200,
        seconds=0.5,
        input_tokens=250,
        output_tokens=40,
        attempts=(*attempts, msgspec.structs.replace(attempt, number=count)),
        request=body,
        reply=body,
        session=f"{number % 50:032}",
        client="claude-cli",
        adaptations=("directive_added:messages",) if count > 1 else (),
    )


async def _look(tab: Tab, url: str, there: str) -> tuple[float, float]:
    """Return the milliseconds to the first paint, and to what the view is for."""
    await tab.go("about:blank")
    began = time.perf_counter()
    await tab.go(url)
    await tab.until(there)
    seen = (time.perf_counter() - began) * 1000
    script = "performance.getEntriesByType('paint').map((one) => one.startTime)"
    paints = await tab.until(f"{script}.length && {script}")
    return min(paints), seen


async def main() -> None:
    """Fill, look, print."""
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "ledger.db")
        now = time.time()
        async with open_ledger(place) as ledger:
            for start in range(0, _TURNS, 500):
                await ledger.put_turns([_turn(number, now) for number in range(start, start + 500)])
        settings = settings_from_flags("up:chat=http://127.0.0.1:9/v1", ledger=LedgerSettings(place=place))
        with RunningGateway(settings=settings) as gateway:
            async with open_browser() as browser:
                tab = await browser.tab()
                await tab.size(1280, 900)
                print(f"{_TURNS:,} turns, median of {_ROUNDS}, ms: first paint, view complete")
                for name, (path, there) in _VIEWS.items():
                    taken = [await _look(tab, f"{gateway.url}{path}", there) for _ in range(_ROUNDS)]
                    paint, seen = (statistics.median(column) for column in zip(*taken, strict=True))
                    print(f"  {name:34} {paint:6.0f} {seen:6.0f}")


if __name__ == "__main__":
    asyncio.run(main())
