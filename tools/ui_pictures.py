"""Makes the pictures of docs/ui.md: a gateway before a scripted upstream, looked at in Chromium.

The models are made up and their replies scripted: the pictures show the page, and say nothing of any real model.
`python tools/ui_pictures.py [FOLDER]` (docs/ by default).
"""

import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from mustcall.engine.spending.budget_account import BreakerRule, Budget, Caps, ModelPrice, Price
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import ContentsKept
from mustcall.testing import Answer, Call, Delayed, Fail, RunningGateway, Say, ScriptedUpstream, Think, Turn

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT / "tests"))

from support.browser import open_browser  # noqa: E402
from support.http import post  # noqa: E402

_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_SHOWN = "What will the weather be in Oslo?"
_MARKUP = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


def _answer(request: Any) -> Answer:
    """Answer by what the request asks for and has been told so far."""
    body = request.body
    told = json.dumps(body["messages"])
    slowly = 1.0 if _SHOWN in told else 0.0
    if body["model"] == "model-c" and body.get("tool_choice") == "required":
        return Fail(400, "tool_choice 'required' is not supported by this model")
    if "did not fit" in told and "stubborn" not in told:
        return Delayed(Turn(Think("The city is Oslo."), Call("get_weather", {"city": "Oslo", "days": 2})), 0.6 * slowly)
    if "text" in told:
        return Turn(Say(_MARKUP))
    if "stubborn" in told:
        return Turn(Call("get_weather", {"town": "Oslo"}))
    if "plain" in told:
        return Turn(Call("get_weather", {"city": "Rome"}))
    if body.get("tool_choice") == "required" and "called yet" not in told:
        return Delayed(Turn(Say("It will probably rain in Oslo.")), 0.9 * slowly)
    return Delayed(Turn(Call("get_weather", {"city": 7})), 0.4 * slowly)


def _fill(url: str) -> str:
    """Send a few hundred requests; return the id of the turn that is shown."""

    def ask(text: str, model: str, *, agent: str = "claude-cli/2.0", session: str = "night", force: bool = True) -> str:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": text}],
            "tools": [_TOOL],
        }
        if force:
            body["tool_choice"] = "required"
        headers = {"user-agent": agent, "x-mustcall-session": session}
        return post(f"{url}/v1/chat/completions", body, headers).headers["x-mustcall-request-id"]

    chance = random.Random(3)  # noqa: S311  the same picture each time
    for number in range(200):
        kind = chance.choice(["plain"] * 9 + ["text"] * 3 + ["repaired"] * 3 + ["stubborn"])
        ask(
            f"{kind} {number}",
            chance.choice(["model-a", "model-a", "model-b", "model-c"]),
            agent=chance.choice(["claude-cli/2.0", "codex_cli_rs/0.4", "OpenAI/Python 2.1"]),
            session=chance.choice(["night", "ann", "ci"]),
            force=kind not in ("plain", "text"),
        )
    for number in range(2):
        ask(f"plain {number}", "down/model-d")
    return ask(_SHOWN, "model-e")  # of which nothing is known yet


async def _take(url: str, turn: str, folder: Path) -> None:
    async with open_browser() as browser:
        tab = await browser.tab()
        await tab.size(1280, 900)
        for name, path, there, scheme, height in (
            ("ui-turn", f"/ui/turns/{turn}", "document.querySelector('.lane')", "light", 1300),
            ("ui-overview", "/ui", "document.querySelector('.rate')", "dark", 0),
        ):
            await tab.scheme(scheme)
            await tab.go(f"{url}{path}")
            await tab.until(there)
            place = folder / f"{name}.png"
            await tab.picture(place, whole=True)
            await asyncio.to_thread(_compress, place, height)
        assert tab.complaints == []


def _compress(place: Path, height: int) -> None:
    picture = Image.open(place).convert("RGB")
    if height:
        picture = picture.crop((0, 0, picture.width, min(height, picture.height)))
    picture.quantize(96, dither=Image.Dither.NONE).save(place, optimize=True)


async def main(folder: Path) -> None:
    """Serve, fill, take."""
    budget = Budget(
        caps=Caps(cost_usd=0.05, calls=400),
        breaker=BreakerRule(failures=2),
        prices=(ModelPrice(model="model-*", price=Price(input=3.0, output=15.0)),),
    )
    with tempfile.TemporaryDirectory() as state, ScriptedUpstream(_answer) as upstream:
        settings = settings_from_flags(
            f"local:chat={upstream.base_url}",
            "down:chat=http://127.0.0.1:9/v1",
            ledger=LedgerSettings(place=f"{state}/ledger.db", contents=ContentsKept.FULL),
            operator=OperatorSettings(budget=budget),
        )
        with RunningGateway(settings=settings) as gateway:
            turn = await asyncio.to_thread(_fill, gateway.url)
            await asyncio.sleep(1.5)  # turns are written a moment after they end
            await _take(gateway.url, turn, folder)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else _ROOT / "docs"))
