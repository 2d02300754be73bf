"""The page in a real Chromium: it follows running requests, shows turns as text, and asks nobody but its own gateway.

Nothing here depends on speed: a test waits for what it wants to see.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.ledger import AttemptTrace, ContentsKept, TurnTrace, open_ledger
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, RunningGateway, Say, ScriptedUpstream, Turn
from support.browser import Tab, open_browser
from support.http import call, post
from support.laddering import climbed
from support.remembering import gateway_with_ledger
from support.sending import with_steps

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
FORCED = {**ASK, "model": "forced", "tools": [TOOL], "tool_choice": "required"}
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    '\x1b[31mred\x1b[0m\x07\x00 \u202egnp \x9b2J </pre></main> &lt;b&gt; javascript:alert(1) ${title} "twice"'
)
_ROWS = "document.querySelectorAll('main tbody tr').length"


def button(name: str) -> str:
    """The expression for a button by its words."""
    return f"[...document.querySelectorAll('main button')].find((one) => one.textContent === {json.dumps(name)})"


@asynccontextmanager
async def looking(gateway: RunningGateway) -> AsyncGenerator[Tab]:
    """A tab on a gateway. At its end no request has left the origin, and the browser has nothing to complain of."""
    async with open_browser() as browser:
        tab = await browser.tab()
        await tab.size(1280, 900)
        yield tab
        own = ("about:", "data:", gateway.url)
        assert [url for url in tab.requests if not url.startswith(own)] == []
        assert tab.complaints == []


async def ask(gateway: RunningGateway, body: dict[str, Any], **headers: str) -> str:
    """Send a request; return the id of its turn."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", body, named)
    return answer.headers["x-mustcall-request-id"]


def three_attempts(request: Any) -> Turn:
    """Prose, then arguments that do not fit, then the call; by what the request has been told so far."""
    said = json.dumps(request.body["messages"])
    if "did not fit" in said:
        return Turn(Call("get_weather", {"city": "Oslo"}))
    demanded = request.body.get("tool_choice") == "required"
    return Turn(Say("Rainy, probably.")) if demanded else Turn(Call("get_weather", {"city": 7}))


async def test_the_list_follows_requests_and_filters(tmp_path: Path) -> None:
    """The list is empty, then each request that ends appears by itself; filters narrow it, and keys move in it."""
    script = [Turn(Say("Hello.")), Turn(Say("Rainy.")), Turn(Call("get_weather", {})), *[Turn(Say("Hello."))] * 3]
    with (
        ScriptedUpstream(script) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"up:chat={upstream.base_url}") as gateway,
    ):
        async with looking(gateway) as tab:
            await tab.go(f"{gateway.url}/ui")
            await tab.until("document.body.innerText.includes('No turns in this time')")
            await tab.press("t")
            await tab.until("document.body.innerText.includes('No turns yet')")
            await ask(gateway, {**ASK, "model": "plain"}, user_agent="OpenAI/Python 2.1")
            await tab.until(f"{_ROWS} === 1")
            forced = await ask(gateway, FORCED, user_agent="claude-cli/2.0", x_mustcall_session="night")
            await tab.until(f"{_ROWS} === 2")
            first = "document.querySelector('main tbody tr')"
            assert await tab.run(f"{first}.dataset.id") == forced
            assert await tab.run(f"[...{first}.querySelectorAll('.chip')].map((one) => one.textContent)") == [
                "calls",
                "force_missed",
                "called",
            ]

            async def choose(name: str, value: str, rows: int) -> None:
                field = f"document.querySelector('[name={name}]')"
                await tab.run(f"{field}.value = {json.dumps(value)}")
                await tab.run(f"{field}.dispatchEvent(new Event('change', {{bubbles: true}}))")
                await tab.until(f"location.search === {json.dumps(f'?{name}={value}' if value else '')}")
                await tab.until(f"{_ROWS} === {rows}")

            session = await tab.run("document.querySelector('#known-session option').value")
            for name, value, rows in (
                ("verdict", "force_missed", 1),
                ("outcome", "failure", 0),
                ("model", "plain", 1),
                ("client", "claude-cli", 1),
                ("session", session, 1),
                ("upstream", "up", 2),
            ):
                await choose(name, value, rows)
                await choose(name, "", 2)
            # A turn that does not fit a filter does not appear; one that does is there at once.
            await choose("model", "plain", 1)
            await ask(gateway, {**ASK, "model": "other"})
            await ask(gateway, {**ASK, "model": "plain"})
            await tab.until(f"{_ROWS} === 2")
            assert "other" not in await tab.run("document.querySelector('main tbody').innerText")
            await tab.click(button("Clear filters"))
            await tab.until(f"{_ROWS} === 4")
            # By keys alone: into the list, down, up, open, back.
            for key in ("j", "j", "ArrowDown", "k"):
                await tab.press(key)
            focused = await tab.run("document.activeElement.closest('tr').dataset.id")
            assert focused == await tab.run("document.querySelectorAll('main tbody tr')[1].dataset.id")
            await tab.press("Enter")
            await tab.until(f"location.pathname === '/ui/turns/{focused}' && document.querySelector('.lane')")
            await tab.press("Escape")
            await tab.until("location.pathname === '/ui/turns'")
            await tab.until(f"{_ROWS} === 4")
            await tab.press("/")
            assert await tab.run("document.activeElement.name") == "model"
            await tab.type("forced")
            await tab.until(f"{_ROWS} === 1")
            await tab.press("Escape")
            await tab.press("?")
            await tab.until("document.querySelector('dialog[open]')")
            await tab.press("Escape")
            await tab.until("!document.querySelector('dialog')")
            await tab.press("o")
            await tab.until("document.querySelectorAll('.rate').length > 3")
    plain, other = {**ASK, "model": "plain"}, {**ASK, "model": "other"}
    assert [one.body for one in upstream.requests] == [plain, *climbed("chat", FORCED)[:2], other, plain]


async def test_a_turn_of_three_attempts(tmp_path: Path) -> None:
    """Lanes, replies beside each other, what changed between requests, copies and a replay; wide, narrow and dark."""
    with (
        ScriptedUpstream(three_attempts) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"up:chat={upstream.base_url}", contents=ContentsKept.FULL) as gateway,
    ):
        turn = await ask(gateway, FORCED)
        native, schema, *_ = climbed("chat", FORCED)
        misfit = Wording().bad_arguments.format(problem="get_weather: city: string")
        three = [native, schema, with_steps(Wire.CHAT, schema, misfit)]
        assert [one.body for one in upstream.requests] == three
        async with looking(gateway) as tab:
            await tab.grant(gateway.url, "clipboardReadWrite", "clipboardSanitizedWrite")
            await tab.go(f"{gateway.url}/ui/turns")
            await tab.until(f"{_ROWS} === 1")
            await tab.go(f"{gateway.url}/ui/turns/{turn}")
            await tab.until("document.querySelectorAll('.lane').length === 3")
            # The metrics count what the page shows.
            counted = (await asyncio.to_thread(call, "GET", f"{gateway.url}/metrics")).body.decode()
            for verdict in ("force_missed", "bad_arguments", "called"):
                assert f'mustcall_attempts_total{{model="forced",upstream="up",verdict="{verdict}"}} 1.0' in counted
            assert 'mustcall_tokens_total{direction="input",model="forced",upstream="up"} 75.0' in counted
            assert "75 in, 36 out" in await tab.text()
            words = "[...document.querySelectorAll('.lane .chip')].map((one) => one.textContent)"
            assert await tab.run(words) == ["force_missed", "bad_arguments", "called"]
            starts = await tab.run("[...document.querySelectorAll('.lane i')].map((one) => parseFloat(one.style.left))")
            assert starts == sorted(starts)
            # What the model said in its first attempt was not delivered; the raw stream is there as it came.
            await tab.click(button("Attempt 1"))
            await tab.until("document.querySelector('.part.dropped')?.innerText.includes('Rainy, probably.')")
            await tab.click(button("Raw stream"))
            await tab.until("document.querySelector('.pair pre').textContent.includes('data: [DONE]')")
            # The last request against the one before has the reminder as added, and nothing else of note.
            added = await tab.run(
                "[...document.querySelectorAll('.diff .add')].map((one) => one.textContent).join(' ')"
            )
            assert "did not fit its schema" in added
            for name, sign in (("Python", "urllib.request"), ("pytest", f"def test_{turn}"), ("curl", "--data-binary")):
                await tab.click(button(name))
                await tab.click(button(f"Copy {name}"))
                await tab.until(f"document.getElementById('toast').textContent === 'Copied {name}'")
                assert sign in await tab.run("navigator.clipboard.readText()")
            before = len(upstream.requests)
            await tab.run("document.querySelector('[aria-label=\"How often each way\"]').value = '1'")
            await tab.click(button("Replay"))
            await tab.until("document.querySelector('.found table')?.innerText.includes('through mustcall')")
            sent = [one.body for one in upstream.requests[before:]]
            assert len(sent) == 4  # one bare, three through mustcall
            assert [sent.count(body) for body in (FORCED, *three)] == [1] * 4
            assert "100" in await tab.run("document.querySelector('.found tbody tr:last-child .rate b').textContent")
            await tab.size(400, 820)
            for scheme in ("light", "dark"):
                await tab.scheme(scheme)
                for path in ("/ui", "/ui/turns", f"/ui/turns/{turn}"):
                    await tab.go(f"{gateway.url}{path}")
                    await tab.until("document.querySelector('.rate, .lane, main tbody tr')")
                    wide = await tab.run("[document.documentElement.scrollWidth, innerWidth]")
                    assert wide[0] <= wide[1] == 400, path
            ground = "getComputedStyle(document.body).backgroundColor"
            dark = await tab.run(ground)
            await tab.scheme("light")
            assert (dark, await tab.run(ground)) == ("rgb(16, 22, 21)", "rgb(247, 248, 248)")


async def test_hostile_contents_are_text(tmp_path: Path) -> None:
    """Markup, terminal escapes, control and direction characters in every place show as text, and do nothing."""
    hostile = HOSTILE.replace("\x00", "")
    with (
        ScriptedUpstream(lambda _: Turn(Say(HOSTILE))) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"up:chat={upstream.base_url}", contents=ContentsKept.FULL) as gateway,
    ):
        body = {"model": hostile, "messages": [{"role": "user", "content": HOSTILE}]}
        turn = await ask(gateway, body, user_agent="<b>evil</b>")
        async with looking(gateway) as tab:
            await tab.go(f"{gateway.url}/ui/turns")
            await tab.until(f"{_ROWS} === 1")
            await tab.go(f"{gateway.url}/ui/turns/{turn}")
            await tab.until("document.querySelectorAll('.part pre').length > 0")
            shown = await tab.run("document.querySelector('.part pre').textContent")
            assert "<script>document.title='owned'</script><img src=x onerror=" in shown
            assert "ESC[31mredESC[0mBELNUL U+202Egnp U+009B2J </pre></main> &lt;b&gt;" in shown
            assert await tab.run("document.querySelectorAll('main script, main img, main b').length") == 0
            assert "owned" not in await tab.run("document.title")
            await tab.go(f"{gateway.url}/ui")
            await tab.until("document.querySelector('.rate')")
            assert "<script>document.title='owned'" in await tab.run("document.querySelector('tbody a').textContent")
            title = await tab.run("document.title")
            assert title == "Overview · mustcall"


async def test_the_lock() -> None:
    """A gateway with keys asks for one, refuses a wrong one, opens, closes; scripts see no cookie."""
    settings = msgspec.structs.replace(settings_from_flags("chat=http://127.0.0.1:9/v1"), client_keys=("key-right",))
    with RunningGateway(settings=settings) as gateway:
        async with open_browser() as browser:
            tab = await browser.tab()
            await tab.go(f"{gateway.url}/")
            await tab.until("document.getElementById('key')")
            for key, then in (
                ("key-wrong", "document.querySelector('.fault')?.textContent.includes('not one this gateway accepts')"),
                ("key-right", "document.body.innerText.includes('No turns in this time')"),
            ):
                await tab.until("document.activeElement === document.getElementById('key')")
                await tab.type(key)
                await tab.press("Enter")
                await tab.until(then)
            assert await tab.run("document.cookie") == ""
            await tab.go(f"{gateway.url}/ui/turns")
            await tab.until("document.body.innerText.includes('No turns yet')")
            # With the cookie alone, without the token of the page, nothing is changed.
            refused = "fetch('/ui/api/logout', {method: 'POST', body: '{}'}).then((answer) => answer.status)"
            assert await tab.run(refused) == 403
            # A page of another site cannot use the cookie at all.
            other = await browser.tab()
            await other.go("about:blank")
            sent = (
                f"fetch('{gateway.url}/ui/api/turns', {{mode: 'no-cors', credentials: 'include'}}).then((a) => a.type)"
            )
            await other.run(f"{sent}.catch(() => 'failed')")
            await tab.run("[...document.querySelectorAll('.status button')].at(-1).click()")
            await tab.until("document.getElementById('key')")
            assert await tab.run("fetch('/ui/api/turns').then((answer) => answer.status)") == 401


@pytest.mark.parametrize("count", [10_000])
async def test_ten_thousand_turns_are_paged(tmp_path: Path, count: int) -> None:
    """The list holds one page of a large ledger, and older turns come when asked for. The time is printed only."""
    place = tmp_path / "l.db"
    attempt = AttemptTrace(number=1, rung="native", verdict="called", remedy="accept", digest="", seconds=0.4, sends=1)
    turn = TurnTrace(
        id="", at=0.0, wire="chat", model="m", upstream="up", protocol="hybrid", force="met", outcome="calls",
        status=200, seconds=0.5, input_tokens=25, output_tokens=12, attempts=(attempt,),
    )  # fmt: skip
    async with open_ledger(place) as ledger:
        for start in range(0, count, 1000):
            made = range(start, start + 1000)
            await ledger.put_turns([msgspec.structs.replace(turn, id=f"req_{n:06}", at=1e9 + n) for n in made])
    with gateway_with_ledger(place, "chat=http://127.0.0.1:9/v1", keep="0") as gateway:
        async with looking(gateway) as tab:
            await tab.go(f"{gateway.url}/ui/turns")
            await tab.until(f"{_ROWS} === 50")
            assert await tab.run("document.querySelector('main tbody tr').dataset.id") == f"req_{count - 1:06}"
            await tab.click(button("Show older turns"))
            await tab.until(f"{_ROWS} === 100")
            assert await tab.run("[...document.querySelectorAll('main tbody tr')].at(-1).dataset.id") == (
                f"req_{count - 100:06}"
            )
            await tab.go(f"{gateway.url}/ui")
            await tab.click("[...document.querySelectorAll('main button')].find((one) => one.textContent === 'All')")
            await tab.until("document.querySelector('.rate')")
            assert "10,000" in await tab.run("document.querySelector('main tbody tr').innerText")
            marks = "performance.getEntriesByType('paint').map((one) => `${one.name} ${Math.round(one.startTime)} ms`)"
            print(await tab.run(marks))  # noqa: T201  for whoever looks


async def test_a_client_that_left_and_models_beyond_the_table(tmp_path: Path) -> None:
    """A turn whose client left says so everywhere; models that are not in the table are counted under it."""
    place = tmp_path / "l.db"
    attempt = AttemptTrace(
        number=1, rung="native", verdict=None, remedy=None, digest="", seconds=0.4, sends=1, request=b"{}"
    )
    left = TurnTrace(
        id="req_left", at=1e9, wire="chat", model="m", upstream="up", protocol="hybrid", force="none", outcome=None,
        status=0, seconds=0.5, attempts=(attempt,), request=json.dumps(ASK).encode(), session="abcdef" + "0" * 26,
    )  # fmt: skip
    others = [
        msgspec.structs.replace(left, id=f"req_{number}", model=f"n{number}", status=200, outcome="answer", session="")
        for number in range(51)
    ]
    async with open_ledger(place, contents=ContentsKept.FULL) as ledger:
        await ledger.put_turns([left, *others])
    with gateway_with_ledger(place, "chat=http://127.0.0.1:9/v1", keep="0") as gateway:
        async with looking(gateway) as tab:
            for query in ("outcome=gone", "session=abcdef"):
                await tab.go(f"{gateway.url}/ui/turns?{query}")
                await tab.until(f"{_ROWS} === 1")
                assert await tab.run("document.querySelector('main tbody .chip').textContent") == "gone"
            await tab.go(f"{gateway.url}/ui/turns/req_left")
            await tab.until("document.body.innerText.includes('The client left before a reply.')")
            assert "Contents are not kept" not in await tab.run("document.body.innerText")
            assert await tab.run("document.querySelector('.head .chip').textContent") == "gone"
            await tab.go(f"{gateway.url}/ui")
            await tab.click(button("All"))
            await tab.until("document.body.innerText.includes('and 2 more models')")
