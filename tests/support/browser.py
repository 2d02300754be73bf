"""A real Chromium for tests, driven by its own protocol (CDP) over a websocket: no package beside aiohttp is needed.

`MUSTCALL_CHROMIUM` names the program where it is not on the path. Every request that a page makes is noted.
"""

import asyncio
import atexit
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import aiohttp
import pytest

__all__ = ["Browser", "Tab", "find_chromium", "open_browser", "stop_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
#: Seconds that anything may take: a test waits for what it wants to see, never for a time.
_PATIENCE = 90.0
_LOOK = 0.05
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # root in a container has none
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)
_KEYS = {"Enter": ("\r", 13), "Escape": ("", 27), "Tab": ("", 9), "ArrowDown": ("", 40), "ArrowUp": ("", 38)}


def find_chromium() -> str:
    """Return the program; where there is none, CI fails and others skip the test."""
    named = os.environ.get("MUSTCALL_CHROMIUM")
    found = named or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None and Path(_MAC).exists():
        found = _MAC
    if found is None:
        missing = "no Chromium on the path: `apt-get install chromium`, or name one in MUSTCALL_CHROMIUM"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


class Tab:
    """One page of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, profile: str = "") -> None:
        self._socket = socket
        self._profile = profile
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())
        #: Every address that was asked for.
        self.requests: list[str] = []
        #: What the page wrote to its console, and exceptions that nobody caught.
        self.complaints: list[str] = []

    async def _read(self) -> None:
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.TEXT:
                break
            told = json.loads(message.data)
            if "id" in told:
                self._answers.pop(told["id"]).set_result(told)
            else:
                self._hear(told["method"], told["params"])

    def _hear(self, method: str, told: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call one method of the protocol."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_str(json.dumps({"id": self._number, "method": method, "params": params}))
        async with asyncio.timeout(_PATIENCE):
            told = await answer
        assert "error" not in told, (method, told)
        return told["result"]

    async def start(self) -> None:
        """Turn on what the tests hear."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    async def grant(self, origin: str, *permissions: str) -> None:
        """Allow the pages of an origin what a person is asked for."""
        granted = {"origin": origin, "permissions": permissions, "browserContextId": self._profile}
        await self.call("Browser.grantPermissions", **granted)

    async def go(self, url: str) -> None:
        """Open an address."""
        await self.call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of an expression in the page; a promise is waited for."""
        told = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, script: str) -> Any:
        """Wait until an expression is true, and return its value, true for an element; also over a navigation."""
        look = f"(() => {{ try {{ const it = {script}; return it instanceof Node || it }} catch {{ return null }} }})()"
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    found = await self.run(look)
                    if found:
                        return found
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            text = await self.run("document.body.innerText")
            raise AssertionError(f"never came true: {script}\n{text[:3000]}\n{self.complaints}") from None

    async def text(self) -> str:
        """Return what the page says."""
        return await self.run("document.body.innerText")

    async def click(self, script: str) -> None:
        """Click on the element that an expression gives, once it is there."""
        await self.until(f"({script}) !== null && ({script}) !== undefined")
        await self.run(f"({script}).click()")

    async def press(self, key: str) -> None:
        """Press a key, as a person does."""
        text, code = _KEYS.get(key, (key, ord(key.upper()[0])))
        named: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **named, **({"text": text} if text else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    async def type(self, text: str) -> None:
        """Type text into what has the focus."""
        await self.call("Input.insertText", text=text)

    async def size(self, width: int, height: int) -> None:
        """Make the page as large as a screen."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    async def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def picture(self, place: Path, *, whole: bool = False) -> None:
        """Write what the page looks like as a PNG."""
        more: dict[str, Any] = {}
        if whole:
            size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {**size, "x": 0, "y": 0, "scale": 1}}
        told = await self.call("Page.captureScreenshot", format="png", **more)
        await asyncio.to_thread(place.write_bytes, base64.b64decode(told["data"]))

    async def close(self) -> None:
        """Let go of the page."""
        await self._socket.close()
        await self._reader


class Browser:
    """A profile of its own in the browser: pages of one share cookies and stored values, with no other."""

    def __init__(self, address: str, session: aiohttp.ClientSession, whole: Tab, profile: str) -> None:
        self._address = address
        self._session = session
        self._whole = whole
        self._profile = profile
        self._tabs: list[Tab] = []

    async def tab(self) -> Tab:
        """Open a page of its own."""
        made = await self._whole.call("Target.createTarget", url="about:blank", browserContextId=self._profile)
        address = f"ws://{self._address}/devtools/page/{made['targetId']}"
        tab = Tab(await self._session.ws_connect(address, max_msg_size=0), self._profile)
        self._tabs.append(tab)
        await tab.start()
        return tab

    async def close(self) -> None:
        """Close every page, and forget what they have stored."""
        for tab in self._tabs:
            await tab.close()
        await self._whole.call("Target.disposeBrowserContext", browserContextId=self._profile)


@asynccontextmanager
async def open_browser() -> AsyncGenerator[Browser]:
    """Open a fresh profile of the browser, and remove it."""
    address = await asyncio.to_thread(_started)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://{address}/json/version") as answer:
            place = (await answer.json(content_type=None))["webSocketDebuggerUrl"]
        whole = Tab(await session.ws_connect(place, max_msg_size=0))
        try:
            made = await whole.call("Target.createBrowserContext")
            browser = Browser(address, session, whole, made["browserContextId"])
            try:
                yield browser
            finally:
                await browser.close()
        finally:
            await whole.close()


@cache
def _started() -> str:
    """Start the browser, which takes longer than most tests of a page, once; return where it listens."""
    program = find_chromium()
    folder = Path(tempfile.mkdtemp(prefix="mustcall-chromium-"))
    port_file = folder / "DevToolsActivePort"
    process = subprocess.Popen(  # noqa: S603  the browser that was found
        [program, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    _ENDING.callback(_end, process, folder)
    deadline = time.monotonic() + _PATIENCE
    while not port_file.exists() or not port_file.read_text().strip():
        assert process.poll() is None, f"{program} ended with {process.returncode}"
        assert time.monotonic() < deadline, f"{program} does not listen"
        time.sleep(_LOOK)
    return f"127.0.0.1:{port_file.read_text().split()[0]}"


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    if process.poll() is None:
        os.killpg(process.pid, 9)  # its helpers too: they are in its session
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)


_ENDING = ExitStack()


def stop_browser() -> None:
    """End the browser of this process, if one was started."""
    _ENDING.close()
    _started.cache_clear()


atexit.register(stop_browser)  # for programs; workers of pytest-xdist leave without a word, see conftest.py
