"""Makes the picture of README: one turn of a real model, bare and through mustcall, as the page at `/ui` shows it.

    python tools/readme_picture.py            # draw the recorded turn again (Chromium, no model)
    python tools/readme_picture.py --record   # ask the model again first (llama.cpp's server, `mustcall models pull`)
    python tools/readme_picture.py --check    # say whether the picture is old

What the model wrote is kept in docs/pictures/before-after.json, byte for byte. The picture notes the digest of what it
was drawn from: the recording and the page's own files.
"""

import asyncio
import hashlib
import json
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.ledger import ContentsKept
from mustcall.testing import Answer, Delayed, LlamaServer, RawStream, RunningGateway, ScriptedUpstream

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "tests"))

from support.browser import open_browser  # noqa: E402
from support.http import post  # noqa: E402

__all__ = ["PICTURE", "RECORDING", "digest", "is_current"]

PICTURE = _ROOT / "docs" / "pictures" / "before-after.png"
RECORDING = _ROOT / "docs" / "pictures" / "before-after.json"
_STATIC = _ROOT / "src" / "mustcall" / "gateway" / "ui" / "static"
_MODEL = "qwen2.5-coder-0.5b"
_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Look up today's weather in a city.",
        "parameters": {**_SCHEMA, "additionalProperties": False},
    },
}
_REQUEST: dict[str, Any] = {
    "model": _MODEL,
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "tools": [_TOOL],
    "tool_choice": "required",
    "temperature": 0,
    "max_tokens": 64,
}
_WIDTH = 1000
#: Pixels of the replies that are shown: the last lines of the model's text are empty.
_REPLIES = 345
#: The edges of what is shown: the title, and the two sides of the reply.
_EDGES = """(() => {
  const heading = [...document.querySelectorAll("h2")].find((one) => one.textContent.startsWith("Replies"));
  const first = document.querySelector("h1").getBoundingClientRect();
  return [first.top, first.bottom, heading.getBoundingClientRect().top].map((edge) => edge + window.scrollY);
})()"""


def digest() -> str:
    """Return the digest of what the picture is drawn from."""
    found = hashlib.sha256(RECORDING.read_bytes())
    for path in sorted(_STATIC.iterdir()):
        if not path.name.startswith("docs."):  # another page
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


def is_current() -> bool:
    """Tell whether the picture was drawn from the recording and the page as they are."""
    if not PICTURE.is_file():
        return False
    with Image.open(PICTURE) as picture:
        return picture.info.get("drawn-from") == digest()


def _ask(url: str, body: dict[str, Any]) -> bytes:
    asked = urllib.request.Request(  # noqa: S310  loopback
        f"{url}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked) as answer:  # noqa: S310
        return answer.read()


def _record() -> None:
    """Ask the model, bare and through a gateway, and keep what it wrote."""
    streams: list[dict[str, Any]] = []
    with LlamaServer(_MODEL) as server:
        bare = json.loads(_ask(server.base_url, _REQUEST))

        def forward(request: Any) -> Answer:
            began = time.monotonic()
            raw = _ask(server.base_url, request.body)
            streams.append({"seconds": round(time.monotonic() - began, 1), "raw": raw.decode()})
            return RawStream([raw])

        with ScriptedUpstream(forward) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
            post(f"{gateway.url}/v1/chat/completions", _REQUEST)
    choice = bare["choices"][0]
    kept = {
        "recorded": time.strftime("%Y-%m-%d", time.gmtime()),
        "server": "llama.cpp's own server, unmodified (mustcall.testing.LlamaServer)",
        "model": _MODEL,
        "request": _REQUEST,
        "bare": {
            "content": choice["message"]["content"],
            "tool_calls": choice["message"].get("tool_calls"),
            "finish_reason": choice["finish_reason"],
        },
        "streams": streams,
    }
    RECORDING.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


async def _draw() -> list[float]:
    """Play the recording to a gateway and take the page of its turn; return the edges of what is shown."""
    kept = json.loads(RECORDING.read_text(encoding="utf-8"))
    answers = [Delayed(RawStream([one["raw"].encode()]), one["seconds"]) for one in kept["streams"]]
    with tempfile.TemporaryDirectory() as state, ScriptedUpstream(answers) as upstream:
        ledger = LedgerSettings(place=f"{state}/ledger.db", contents=ContentsKept.FULL)
        settings = settings_from_flags(f"local:chat={upstream.base_url}", ledger=ledger)
        with RunningGateway(settings=settings) as gateway:
            asked = await asyncio.to_thread(post, f"{gateway.url}/v1/chat/completions", kept["request"])
            turn = asked.headers["x-mustcall-request-id"]
            await asyncio.sleep(1.5)  # turns are written a moment after they end
            async with open_browser() as browser:
                tab = await browser.tab()
                await tab.size(_WIDTH, 900)
                await tab.scheme("light")
                await tab.go(f"{gateway.url}/ui/turns/{turn}")
                await tab.until("document.querySelector('.lane')")
                await tab.picture(PICTURE, whole=True)
                assert tab.complaints == []
                return await tab.run(_EDGES)


def _compress(top: float, bottom: float, replies: float) -> None:
    """Keep the title and the replies, in few colours, with a note of what they were drawn from."""
    whole = Image.open(PICTURE).convert("RGB")
    head = whole.crop((0, int(top) - 14, whole.width, int(bottom) + 14))
    body = whole.crop((0, int(replies) - 16, whole.width, int(replies) + _REPLIES))
    shown = Image.new("RGB", (whole.width, head.height + body.height))
    shown.paste(head, (0, 0))
    shown.paste(body, (0, head.height))
    notes = PngImagePlugin.PngInfo()
    notes.add_text("drawn-from", digest())
    shown.quantize(96, dither=Image.Dither.NONE).save(PICTURE, optimize=True, pnginfo=notes)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if is_current() else "docs/pictures/before-after.png is old: run python tools/readme_picture.py")
    if "--record" in sys.argv:
        _record()
    _compress(*asyncio.run(_draw()))
