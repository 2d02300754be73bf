"""The page at /ui over plain HTTP: who is let in, what is refused, what the routes answer, with which headers."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mustcall.core.origin import Wire
from mustcall.engine.spending.budget_account import BreakerRule, Budget, Caps, ModelPrice, Price
from mustcall.engine.turns import OperatorSettings
from mustcall.gateway.config.settings import settings_from_flags
from mustcall.gateway.state.raw_replies import Tapping
from mustcall.gateway.state.trace_keeper import LedgerSettings
from mustcall.gateway.ui.copying import as_curl
from mustcall.gateway.ui.lock import Lock
from mustcall.ledger import AttemptTrace, ContentsKept, TurnTrace, open_ledger
from mustcall.policy.facts.wording import Wording
from mustcall.testing import Call, Fail, RunningGateway, Say, ScriptedUpstream, Turn
from support.compared import check_compared, forget
from support.http import Response, call, post
from support.laddering import climbed
from support.remembering import gateway_with_ledger
from support.sending import with_steps

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Weather in Oslo?"}]}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
FORCED = {**ASK, "tools": [TOOL], "tool_choice": "required"}

#: A turn as a ledger has it.
KEPT = TurnTrace(
    id="req_1", at=1000.0, wire="chat", model="m", upstream="u", protocol="hybrid", force="none", outcome="answer",
    status=200, seconds=0.1, request=json.dumps(ASK).encode(), reply=b"{}",
)  # fmt: skip


def keyed(*keys: str, host: str = "127.0.0.1") -> RunningGateway:
    """A gateway that asks for one of these keys; its upstream is never called."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1")
    server = msgspec.structs.replace(settings.server, host=host)
    return RunningGateway(settings=msgspec.structs.replace(settings, client_keys=keys, server=server))


def get(gateway: RunningGateway, path: str, **headers: str) -> Response:
    """Ask the page for something."""
    return call(
        "GET", f"{gateway.url}{path}", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


class Visit:
    """A browser's side of the lock, by hand: its cookie and its token."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway = gateway
        answer = get(gateway, "/ui/api/session")
        self.said = answer.json
        self.set_cookie = answer.headers.get("set-cookie", "")
        self.cookie = self.set_cookie.partition(";")[0]

    def get(self, path: str, **headers: str) -> Response:
        """Ask with the cookie."""
        return get(self.gateway, path, cookie=self.cookie, **headers)

    def post(self, path: str, body: Any, **headers: str) -> Response:
        """Send with the cookie and the token."""
        sent = {"cookie": self.cookie, "x-csrf-token": self.said["token"]}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return post(f"{self.gateway.url}{path}", body, sent)

    def enter(self, key: str) -> Response:
        """Give a key; the new cookie and token are kept."""
        answer = self.post("/ui/api/login", {"key": key})
        if answer.status == 200:
            self.said = answer.json
            self.set_cookie = answer.headers["set-cookie"]
            self.cookie = self.set_cookie.partition(";")[0]
        return answer


def test_a_browser_at_the_root_is_led_to_the_page_and_others_are_not() -> None:
    """GET / leads to /ui for who accepts HTML; health checks and clients see what they saw before."""
    with RunningGateway("chat=http://127.0.0.1:9/v1") as gateway:
        led = get(gateway, "/", accept="text/html,application/xhtml+xml")
        assert (led.status, led.headers["location"]) == (302, "/ui")
        for accept in ("*/*", "application/json"):
            assert get(gateway, "/", accept=accept).json == {"status": "ok", "service": "mustcall"}
        assert get(gateway, "/uix").status == 404
        assert call("POST", f"{gateway.url}/", b"{}", {"accept": "text/html"}).status == 405


def test_every_answer_has_the_policy_and_files_load_nothing_from_elsewhere() -> None:
    """No inline script or style, no frame, no other origin, no sniffing, no referrer; files name no other address."""
    with RunningGateway("chat=http://127.0.0.1:9/v1") as gateway:
        paths = [
            "/ui",
            "/ui/turns",
            "/ui/turns/req_1",
            "/ui/static/app.js",
            "/ui/static/app.css",
            "/ui/static/icon.svg",
        ]
        for path in [*paths, "/ui/api/session", "/ui/api/nothing", "/ui/static/none.js", "/ui/static/../page.py"]:
            answer = get(gateway, path)
            assert answer.status == (200 if path in paths or path.endswith("session") else 404), path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "script-src 'self'; style-src 'self'; connect-src 'self'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert "access-control-allow-origin" not in answer.headers
        page = get(gateway, "/ui").body.decode()
        assert "style=" not in page
        assert "<script>" not in page
        again = get(gateway, "/ui/static/app.css", if_none_match=get(gateway, "/ui/static/app.css").headers["etag"])
        assert (again.status, again.body) == (304, b"")
        assert call("HEAD", f"{gateway.url}/ui").body == b""
        assert call("POST", f"{gateway.url}/ui", b"{}").status == 405


def test_files_never_write_html() -> None:
    """Contents are inert: no file of the page uses what parses HTML or code, and none names another origin."""
    folder = Path(__file__).parents[2] / "src/mustcall/gateway/ui/static"
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "@import"):
            assert word not in text, (file.name, word)
        assert "https://" not in text, file.name
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", ""), file.name


def test_a_loopback_gateway_without_keys_is_open() -> None:
    """Who is on the machine may look; the cookie is for the browser alone and holds no secret of the gateway."""
    with RunningGateway("chat=http://127.0.0.1:9/v1") as gateway:
        visit = Visit(gateway)
        assert visit.said["admitted"]
        assert not visit.said["asks_for_key"]
        assert "HttpOnly" in visit.set_cookie
        assert "SameSite=Strict" in visit.set_cookie
        assert "Path=/ui" in visit.set_cookie
        assert "Secure" not in visit.set_cookie
        assert visit.cookie.startswith(f"mustcall_ui_{gateway.url.rpartition(':')[2]}=")
        assert visit.get("/ui/api/turns").json["turns"] == []
        assert "set-cookie" not in visit.get("/ui/api/session").headers
        assert "Secure" in get(gateway, "/ui/api/session", referer="https://gateway.example/ui").headers["set-cookie"]


def test_other_hosts_and_origins_are_refused() -> None:
    """Rule 136: a page of another site reads and sends nothing, by its name, its origin or what the browser says."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1")
    server = msgspec.structs.replace(settings.server, cors_origins=("https://other.example",))
    with RunningGateway(settings=msgspec.structs.replace(settings, server=server)) as gateway:
        visit = Visit(gateway)
        assert visit.get("/ui/api/turns", host="evil.example").status == 403
        assert get(gateway, "/", host="evil.example", accept="text/html").status == 403
        for headers in (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "http://["},
            {"origin": "https://other.example"},  # may call the API, not the page
            {"sec_fetch_site": "cross-site"},
            {"sec_fetch_site": "same-site"},
        ):
            for answer in (
                visit.get("/ui/api/turns", **headers),
                visit.get("/ui/api/session", **headers),
                visit.post("/ui/api/logout", {}, **headers),
            ):
                assert (answer.status, answer.json["error"]["code"]) == (403, "origin_not_allowed"), headers
        own = gateway.url
        assert visit.post("/ui/api/logout", {}, origin=own, sec_fetch_site="same-origin").status == 200


def test_a_post_without_the_token_is_refused() -> None:
    """Each POST needs the token of its own visitor: none, another one's and an old one's are refused."""
    with keyed("key-1") as gateway:
        visit, other = Visit(gateway), Visit(gateway)
        for path in ("/ui/api/login", "/ui/api/logout"):
            for headers in ({}, {"x-csrf-token": ""}, {"x-csrf-token": other.said["token"]}, {"x-csrf-token": "é"}):
                answer = post(f"{gateway.url}{path}", {"key": "key-1"}, {"cookie": visit.cookie, **headers})
                assert (answer.status, answer.json["error"]["code"]) == (403, "origin_not_allowed")
        old = visit.said["token"]
        assert visit.enter("key-1").status == 200
        assert visit.said["token"] != old
        refused = post(f"{gateway.url}/ui/api/turns/x/replay", {}, {"cookie": visit.cookie, "x-csrf-token": old})
        assert refused.status == 403
        assert visit.post("/ui/api/turns/x/replay", {"times": 1}).json["error"]["code"] == "unknown_turn"
        assert visit.post("/ui/api/turns/x/replay", {"times": 7}).status == 400
        assert visit.post("/ui/api/login", b"no json").status == 400
        assert visit.post("/ui/api/login", {"key": 1}).status == 400
        assert visit.post("/ui/api/login", b'{"key": "' + b"x" * 70_000 + b'"}').status == 413


def test_a_key_is_exchanged_for_a_cookie_that_is_not_the_key() -> None:
    """Without a key nothing is shown; a wrong one is refused; the cookie says who, until when, and is signed."""
    with keyed("key-very-secret-1") as gateway:
        visit = Visit(gateway)
        assert (visit.said["admitted"], visit.said["asks_for_key"]) == (False, True)
        for path in ("turns", "overview", "turns/req_1"):
            assert visit.get(f"/ui/api/{path}").status == 401
            assert get(gateway, f"/ui/api/{path}", authorization="Bearer key-very-secret-1").status == 401
        wrong = visit.enter("key-very-secret-2")
        assert (wrong.status, wrong.json["error"]["code"]) == (401, "invalid_api_key")
        assert "set-cookie" not in wrong.headers
        assert visit.get("/ui/api/turns").status == 401
        assert visit.enter("key-very-secret-1").status == 200
        assert "secret" not in visit.cookie
        assert visit.get("/ui/api/turns").status == 200
        assert visit.get("/ui/api/overview").status == 200
        name, _, value = visit.cookie.partition("=")
        until, nonce, tenant, signature = value.split(".")
        for forged in (
            f"{int(until) + 1}.{nonce}.{tenant}.{signature}",
            f"{until}.{nonce}.-.{signature}",
            f"{until}.{nonce}.{tenant}.{signature[:-1]}0",
            "a.b.c.d",
            "",
        ):
            if forged != value:
                assert get(gateway, "/ui/api/turns", cookie=f"{name}={forged}").status == 401, forged
        assert visit.post("/ui/api/logout", {}).json["admitted"] is False


def test_cookies_end_with_their_time_and_their_key() -> None:
    """A cookie holds for twelve hours, at every worker, and no longer than its key is accepted."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1")
    lock = Lock(msgspec.structs.replace(settings, client_keys=("a", "b")))
    visitor = lock.admit("a", now=1000.0)
    worker = Lock(msgspec.structs.replace(settings, client_keys=("b", "a")))
    assert worker.visitor(visitor.cookie, 1000.0 + 43_000).admitted
    assert worker.token(visitor) == lock.token(visitor)
    assert not worker.visitor(visitor.cookie, 1000.0 + 43_201).admitted
    changed = Lock(msgspec.structs.replace(settings, client_keys=("b",)))
    assert not changed.visitor(visitor.cookie, 1001.0).admitted


def test_a_gateway_without_keys_that_others_can_reach_shows_nothing() -> None:
    """On an address that is not loopback the page wants keys, and says so."""
    with keyed(host="0.0.0.0") as gateway:  # noqa: S104  the case under test
        visit = Visit(gateway)
        assert not visit.said["admitted"]
        assert "MUSTCALL_CLIENT_KEYS" in visit.said["refusal"]
        answer = visit.get("/ui/api/turns")
        assert answer.status == 401
        assert "loopback" in answer.json["error"]["message"]
        assert visit.enter("anything").status == 401


def test_the_page_can_be_switched_off() -> None:
    """`ui = false` serves nothing of it."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1")
    server = msgspec.structs.replace(settings.server, ui=False)
    with RunningGateway(settings=msgspec.structs.replace(settings, server=server)) as gateway:
        assert get(gateway, "/ui").status == 404
        assert get(gateway, "/ui/api/session").status == 404


async def until_listed(visit: Visit, count: int, query: str = "") -> list[dict[str, Any]]:
    """Ask until so many turns are there: they are written a moment after they end."""
    async with asyncio.timeout(180):
        while True:
            found = (await asyncio.to_thread(visit.get, f"/ui/api/turns?limit=200{query}")).json["turns"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("ledger", [True, False])
async def test_turns_are_listed_filtered_and_summed(tmp_path: Path, ledger: bool) -> None:
    """The same from a ledger and from memory: list, filters, one turn, and rates with their intervals."""
    script = [Turn(Say("Rainy, probably.")), Turn(Call("get_weather", {})), Turn(Say("Hello."))]
    with ScriptedUpstream(script) as upstream:
        made = f"up:chat={upstream.base_url}"
        opened = gateway_with_ledger(tmp_path / "l.db", made) if ledger else RunningGateway(made)
        with opened as gateway:
            url = f"{gateway.base_url}/chat/completions"
            agent = {"user-agent": "claude-cli/2.0 (external)", "x-mustcall-session": "night"}
            await asyncio.to_thread(post, url, FORCED, agent)
            await asyncio.to_thread(post, url, {**ASK, "model": "n"}, {"user-agent": "OpenAI/Python 2.1"})
            visit = await asyncio.to_thread(Visit, gateway)
            found = await until_listed(visit, 2)
            sent = [request.body for request in upstream.requests]
            assert sent == [*climbed("chat", FORCED)[:2], {**ASK, "model": "n"}]
            assert [turn["model"] for turn in found] == ["n", "m"]
            forced = found[1]
            assert [one["verdict"] for one in forced["attempts"]] == ["force_missed", "called"]
            assert [one["client"] for one in found] == ["OpenAI/Python", "claude-cli"]
            assert (len(forced["session"]), found[0]["session"]) == (32, "")
            for query, models in (
                ("model=m", ["m"]),
                ("verdict=force_missed", ["m"]),
                ("outcome=answer", ["n"]),
                ("client=claude-cli", ["m"]),
                (f"session={forced['session']}", ["m"]),
                (f"session={forced['session'][:8]}", ["m"]),
                ("session=night", ["m"]),
                ("session=nigh", []),
                ("upstream=up", ["n", "m"]),
                ("upstream=none", []),
            ):
                listed = (await asyncio.to_thread(visit.get, f"/ui/api/turns?{query}")).json["turns"]
                assert [turn["model"] for turn in listed] == models, query
            one = (await asyncio.to_thread(visit.get, f"/ui/api/turns/{forced['id']}")).json
            assert (one["outcome"], one["copies"], one["replay"], one["delivered"]) == ("calls", {}, None, None)
            assert one["attempts"][1]["begun"] >= one["attempts"][0]["begun"] == 0
            assert (await asyncio.to_thread(visit.get, "/ui/api/turns/none")).status == 404
            told = (await asyncio.to_thread(visit.get, "/ui/api/overview?hours=1")).json
            rows = {row["model"]: row for row in told["models"]}
            assert (rows["m"]["first"]["hits"], rows["m"]["first"]["of"]) == (0, 1)
            assert (rows["m"]["delivered"]["hits"], rows["m"]["repaired"]["hits"]) == (1, 1)
            assert rows["n"]["first"]["high"] == 1.0
            assert 0.2 < rows["n"]["first"]["low"] < 0.21  # Wilson, 1 of 1: 1 / (1 + 1.96 squared)
            assert {"verdict": "force_missed", "count": 1}.items() <= told["repairs"]["attempts"][0].items()
            assert told["budget"] is None
            assert (await asyncio.to_thread(visit.get, "/ui/api/overview?hours=x")).status == 400


async def test_pages_of_the_list_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Keyset pages: turns that ended at the same time are told apart by their id."""
    place = tmp_path / "l.db"
    turn = TurnTrace(
        id="", at=1000.0, wire="chat", model="m", upstream="u", protocol="hybrid", force="none", outcome="answer",
        status=200, seconds=0.1,
    )  # fmt: skip
    made = [msgspec.structs.replace(turn, id=f"req_{number:03}", at=1000.0 + number // 10) for number in range(45)]
    async with open_ledger(place) as ledger:
        await ledger.put_turns(made)
    with gateway_with_ledger(place, "chat=http://127.0.0.1:9/v1", keep="0") as gateway:
        visit = await asyncio.to_thread(Visit, gateway)
        seen: list[str] = []
        before = ""
        for _ in range(10):
            said = (await asyncio.to_thread(visit.get, f"/ui/api/turns?limit=7{before}")).json
            seen += [one["id"] for one in said["turns"]]
            if said["next"] is None:
                break
            before = f"&before={said['next']}"
        assert seen == [one.id for one in reversed(made)]
        assert (await asyncio.to_thread(visit.get, "/ui/api/turns?before=nan_x")).status == 400


async def test_a_turn_whose_client_left_says_so(tmp_path: Path) -> None:
    """Such a turn is `gone` in the list, by the filter and on its own; its request is kept and is not denied."""
    attempt = AttemptTrace(
        number=1, rung="native", verdict=None, remedy=None, digest="d", seconds=0.1, sends=1, request=KEPT.request
    )
    left = msgspec.structs.replace(KEPT, id="req_2", outcome=None, status=0, reply=b"", attempts=(attempt,))
    unkept = msgspec.structs.replace(left, id="req_3", request=b"", attempts=())
    async with open_ledger(tmp_path / "l.db", contents=ContentsKept.FULL) as ledger:
        await ledger.put_turns([KEPT, left, unkept])
    with gateway_with_ledger(tmp_path / "l.db", "chat=http://127.0.0.1:9/v1", keep="0") as gateway:
        visit = await asyncio.to_thread(Visit, gateway)
        listed = (await asyncio.to_thread(visit.get, "/ui/api/turns?outcome=gone")).json["turns"]
        assert [(turn["id"], turn["ended"]) for turn in listed] == [("req_3", "gone"), ("req_2", "gone")]
        shown = [(await asyncio.to_thread(visit.get, f"/ui/api/turns/req_{number}")).json for number in (1, 2, 3)]
    assert [one["no_reply"] for one in shown] == [None, "The client left before a reply.", None]
    assert [one["ended"] for one in shown] == ["answer", "gone", "gone"]
    assert set(shown[1]["copies"]) == {"curl", "python"}


async def test_a_list_that_is_known_is_held_until_there_is_news(tmp_path: Path) -> None:
    """A list asked for with the mark it has comes back when a turn ends; without one, at once."""
    with (
        ScriptedUpstream(lambda _: Turn(Say("Hello."))) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"chat={upstream.base_url}") as gateway,
    ):
        visit = await asyncio.to_thread(Visit, gateway)
        mark = visit.get("/ui/api/turns").json["mark"]
        await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", ASK)
        async with asyncio.timeout(180):
            while True:  # each is held for two seconds at most
                told = (await asyncio.to_thread(visit.get, f"/ui/api/turns?have={mark}")).json
                if told["mark"] != mark:
                    break
        assert len(told["turns"]) == 1


async def test_a_key_of_several_sees_its_own_turns() -> None:
    """Rule 136: what one caller said is not shown to another who has a key of the same gateway."""
    with ScriptedUpstream(lambda _: Turn(Say("Hello."))) as upstream:
        settings = settings_from_flags(f"chat={upstream.base_url}")
        with RunningGateway(settings=msgspec.structs.replace(settings, client_keys=("key-a", "key-b"))) as gateway:
            for key in ("key-a", "key-b", "key-b"):
                auth = {"authorization": f"Bearer {key}", "x-mustcall-session": "s"}
                await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", ASK, auth)
            first, second = Visit(gateway), Visit(gateway)
            assert (first.enter("key-a").status, second.enter("key-b").status) == (200, 200)
            own, others = first.get("/ui/api/turns").json["turns"], second.get("/ui/api/turns").json["turns"]
            assert (len(own), len(others)) == (1, 2)
            assert [len(one.get("/ui/api/turns?session=s").json["turns"]) for one in (first, second)] == [1, 2]
            tenant = others[0]["tenant"]
            assert len(first.get(f"/ui/api/turns?tenant={tenant}").json["turns"]) == 1
            assert first.get(f"/ui/api/turns/{others[0]['id']}").status == 404
            assert first.get(f"/ui/api/turns/{own[0]['id']}").status == 200
            assert [row["turns"] for row in first.get("/ui/api/overview").json["models"]] == [1]


@pytest.mark.parametrize("stream", [False, True])
async def test_one_turn_shows_what_came_and_what_the_caller_got(tmp_path: Path, stream: bool) -> None:
    """The raw reply of each attempt, what the caller got read the same way, and the request as something to paste."""
    markup = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
    script = [Turn(Say("Rainy, probably.")), Turn(Say(markup))]
    with (
        ScriptedUpstream(script) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"up:chat={upstream.base_url}", contents=ContentsKept.FULL) as gateway,
    ):
        await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", {**FORCED, "stream": stream})
        visit = await asyncio.to_thread(Visit, gateway)
        (listed,) = await until_listed(visit, 1)
        told = (await asyncio.to_thread(visit.get, f"/ui/api/turns/{listed['id']}")).json
        sent = [json.loads(attempt["request"]) for attempt in told["attempts"]]
        assert sent == [one.body for one in upstream.requests]
    for attempt, body in zip(told["attempts"], sent, strict=True):
        first, last = ("data: {", "data: [DONE]\n\n") if body.get("stream") else ("{", "}")
        assert attempt["raw"].startswith(first)
        assert attempt["raw"].endswith(last)
    assert [part for part in told["attempts"][0]["reply"]["parts"] if "text" in part] == [{"text": "Rainy, probably."}]
    (call_part,) = told["delivered"]["parts"]
    assert (call_part["call"], json.loads(call_part["arguments"])) == ("get_weather", {"city": "Oslo"})
    assert set(told["copies"]) == {"curl", "python", "pytest"}
    assert "$MUSTCALL_KEY" not in told["copies"]["curl"]
    assert set(told["replay"]) == {"1", "3", "5", "10"}


@pytest.mark.parametrize("text", ["It's $HOME `x` \\", "END END_ it's $HOME `x` \\ " * 10_000])
def test_a_copied_curl_line_sends_the_body_of_any_size(tmp_path: Path, text: str) -> None:
    """The shell hands curl the body as it was kept; one that is too long for an argument comes by its input."""
    stub = tmp_path / "curl"
    stub.write_text(
        f"#!{sys.executable}\nimport sys\ndata = sys.argv[sys.argv.index('--data-binary') + 1]\n"
        "sys.stdout.write(sys.stdin.read() if data == '@-' else data)\n"
    )
    stub.chmod(0o755)
    body = json.dumps({**ASK, "note": text})
    line = as_curl(msgspec.structs.replace(KEPT, request=body.encode()), "http://127.0.0.1:1", key=False)
    script = tmp_path / "line.sh"
    script.write_text(line)
    path = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ran = subprocess.run(["/bin/sh", str(script)], env=path, capture_output=True, text=True, check=False)  # noqa: S603
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.removesuffix("\n") == body


async def test_a_copied_test_passes(tmp_path: Path) -> None:
    """The pytest file of a turn, run as it is, makes the same calls and ends in the same outcome."""
    script = [Turn(Say("Rainy, probably.")), Turn(Call("get_weather", {"city": "Oslo"}))]
    with (
        ScriptedUpstream(script) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"chat={upstream.base_url}", contents=ContentsKept.FULL) as gateway,
    ):
        await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", FORCED)
        visit = await asyncio.to_thread(Visit, gateway)
        (listed,) = await until_listed(visit, 1)
        told = (await asyncio.to_thread(visit.get, f"/ui/api/turns/{listed['id']}")).json
        assert [one.body for one in upstream.requests] == climbed("chat", FORCED)[:2]
    names: dict[str, Any] = {}
    check_compared(every=True)  # what was sent so far; the copy is a test of its own
    exec(compile(told["copies"]["pytest"], "copied", "exec"), names)  # noqa: S102  the text under test
    await asyncio.to_thread(names[f"test_{listed['id']}"])
    forget()
    compile(told["copies"]["python"], "copied", "exec")


async def test_replay_sends_the_request_again_both_ways(tmp_path: Path) -> None:
    """The replay of a turn makes the calls it announced, bare and through mustcall, and counts what came back."""

    def script(request: Any) -> Turn:
        hard = len(request.body["messages"]) > 1 or request.body.get("tool_choice") != "required"
        return Turn(Call("get_weather", {})) if hard else Turn(Say("Rainy, probably."))

    with (
        ScriptedUpstream(script) as upstream,
        gateway_with_ledger(tmp_path / "l.db", f"chat={upstream.base_url}", contents=ContentsKept.FULL) as gateway,
    ):
        await asyncio.to_thread(post, f"{gateway.base_url}/chat/completions", FORCED)
        visit = await asyncio.to_thread(Visit, gateway)
        (listed,) = await until_listed(visit, 1)
        before = len(upstream.requests)
        told = await asyncio.to_thread(visit.post, f"/ui/api/turns/{listed['id']}/replay", {"times": 3})
        assert told.status == 200
        bare, through = told.json["arms"]
        sent = [one.body for one in upstream.requests]
        climb = climbed("chat", FORCED)[:2]
        assert sent[:before] == climb
        made = sent[before:]
        # In any order: the bare ones, as the caller sent it, and what a turn makes of it.
        assert [made.count(body) for body in (FORCED, *climb)] == [3, 3, 3]
        assert (bare["name"], bare["ok"]["hits"], bare["ok"]["of"], bare["calls"]) == ("bare", 0, 3, 3)
        assert (through["ok"]["hits"], through["calls"]) == (3, len(made) - 3)
        assert told.json["recovered"]["hits"] == 3


async def test_a_replay_without_its_upstream_is_no_measurement(tmp_path: Path) -> None:
    """Where nobody answers the page says so, as the command does, and no rate is given."""
    async with open_ledger(tmp_path / "l.db", contents=ContentsKept.FULL) as ledger:
        await ledger.put_turns([KEPT])
    with gateway_with_ledger(tmp_path / "l.db", "u:chat=http://127.0.0.1:9/v1", keep="0") as gateway:
        visit = await asyncio.to_thread(Visit, gateway)
        told = await asyncio.to_thread(visit.post, "/ui/api/turns/req_1/replay", {"times": 3})
    assert told.json["error"]["code"] == "upstream_unavailable"
    assert "the upstream cannot be reached" in told.json["error"]["message"]


async def test_setting_contents_none_has_no_taps(tmp_path: Path) -> None:
    """A turn whose contents are not kept is not copied: the transport is the gateway's own."""
    settings = settings_from_flags("chat=http://127.0.0.1:9/v1", ledger=LedgerSettings(place=str(tmp_path / "l.db")))
    with RunningGateway(settings=settings) as gateway:
        inside = gateway.app._inside()
        assert not isinstance(inside.service.transport, Tapping)


@pytest.mark.parametrize("ledger", [True, False])
async def test_budgets_breakers_and_lessons_are_shown(tmp_path: Path, ledger: bool) -> None:
    """What a session has used of its caps, a breaker that opened, and what a refusal taught, from ledger or memory."""
    budget = Budget(
        caps=Caps(cost_usd=2.0, calls=50),
        breaker=BreakerRule(failures=1),
        prices=(ModelPrice(model="m", price=Price(input=1000.0, output=0.0)),),
    )
    refused = Fail(400, "tool_choice 'required' is not supported")
    script = [refused, Turn(Call("get_weather", {})), Turn(Say("Hello."))]
    with ScriptedUpstream(script) as upstream:
        settings = settings_from_flags(
            f"up:chat={upstream.base_url}",
            "down:chat=http://127.0.0.1:9/v1",
            operator=OperatorSettings(budget=budget),
            ledger=LedgerSettings(place=str(tmp_path / "l.db")) if ledger else None,
        )
        with RunningGateway(settings=settings) as gateway:
            url = f"{gateway.base_url}/chat/completions"
            for body in (FORCED, ASK, {**ASK, "model": "down/m"}):
                await asyncio.to_thread(post, url, body, {"x-mustcall-session": "night"})
            visit = await asyncio.to_thread(Visit, gateway)
            await until_listed(visit, 3)
            told = (await asyncio.to_thread(visit.get, "/ui/api/overview")).json
    first = climbed("chat", FORCED)[0]
    soft = with_steps(Wire.CHAT, {**first, "tool_choice": "auto"}, Wording().call_any[0])
    assert [one.body for one in upstream.requests] == [first, soft, ASK]
    (fact,) = told["learnt"]
    assert (fact["upstream"], fact["field"], fact["value"], fact["expired"]) == ("up", "forced", "never", False)
    (breaker,) = told["breakers"]
    assert breaker["name"].startswith("down@127.0.0.1:9/v1")
    assert (breaker["state"], breaker["failures"]) == ("open", 1)
    assert told["budget"]["caps"] == {"cost_usd": 2.0, "calls": 50}
    (account,) = told["budget"]["sessions"]
    # Two calls were answered, with 25 tokens each at $1000 a million; the refused and the failed one count as calls.
    assert account["cost_usd"] == pytest.approx(0.05)
    assert account["running"] == 0
