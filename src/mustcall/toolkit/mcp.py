"""The tools of any MCP server that speaks over standard input and output.

The official SDK (extra `mustcall[mcp]`) starts the process and speaks the protocol; it is imported when a server is
opened. A session belongs to one task for all its life, as the SDK wants it, so each server has a task of its own that
others hand their calls to. All users in one event loop share one process, which ends when the last of them closes it;
another event loop has another. A server that cannot be started is a `ConfigError`; one that dies, hangs or answers
nonsense later on is a `ToolError` for that call, and the conversation goes on. What the server writes to standard error
is kept for the error message and shown to nobody otherwise.

A name that not every wire takes is made legal here and mapped back when the tool is called.
"""

import asyncio
import hashlib
import re
import shlex
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar, cast

import msgspec

from mustcall.core.errors import ConfigError, ToolError
from mustcall.core.origin import JsonObject
from mustcall.core.parts import Audio, File, Image, Text
from mustcall.engine.tooling.definition import SourcedTool, ToolReturn, ToolSettings
from mustcall.telemetry.logs import log_of

if TYPE_CHECKING:
    from mcp import ClientSession

__all__ = ["McpServer", "legal_name"]

_logger = log_of("mustcall.tools")

_LONGEST_NAME: Final = 64
_MOST_PAGES: Final = 50
_NOT_LEGAL = re.compile(r"[^a-zA-Z0-9_-]+")
_LAST_WORDS: Final = 300
#: JSON-RPC's own errors: the request could not be read or carried out, and the server goes on.
_REFUSALS: Final = frozenset({-32700, -32600, -32601, -32602, -32603})
#: A variable or an option with its value; options whose value is nobody's business; who logs in at an address; what
#: starts something else.
_GIVEN = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=", re.ASCII)
_SECRET = re.compile(r"-H$|(?i:key|token|secret|pass|auth|credential|bearer|header)")
_USER = re.compile(r"://[^/@\s]*@")
_STARTER = re.compile(
    r"env|python[\d.]*|py|node|deno|bun|bunx|npx|npm|pnpm|uv|uvx|pipx|docker|podman|run|exec|dlx|tool|sh|bash"
)

_T = TypeVar("_T")


class _Listed(msgspec.Struct, rename="camel"):
    name: str
    input_schema: JsonObject
    description: str | None = None
    annotations: JsonObject | None = None


class _Page(msgspec.Struct, rename="camel"):
    tools: list[_Listed]
    next_cursor: str | None = None


class _Block(msgspec.Struct, rename="camel"):
    type: str
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None
    uri: str | None = None
    name: str | None = None
    resource: JsonObject | None = None


class _Returned(msgspec.Struct, rename="camel"):
    content: list[_Block]
    structured_content: Any = None
    is_error: bool = False


class _Running:
    """One process of a server, from its start on, for the users of one event loop."""

    def __init__(self) -> None:
        self.users = 0
        self.leave = asyncio.Event()
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.session: ClientSession | None = None
        self.task: asyncio.Task[None] | None = None
        said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  closed with the server
        self.said = cast("TextIO", said)  # what it is, by another name

    @property
    def can_be_joined(self) -> bool:
        """Whether it is ready, or may still become so."""
        return not self.ready.done() or (not self.ready.cancelled() and self.ready.exception() is None)

    def last_words(self) -> str:
        """Return the last line the server wrote to its standard error."""
        if self.said.closed:
            return ""
        self.said.seek(0)
        lines = [line.strip() for line in self.said if line.strip()]
        return lines[-1][:_LAST_WORDS] if lines else ""


class McpServer:
    """One server: a `ToolSource` for agents, of which many can share it.

    `command` is split as a shell would split it, and run without one. `start` and `patience` are seconds: to be ready,
    and for one call. `taken` are the names that other tools have already: a tool of such a name gets the server's in
    front, and every name given here is added.
    """

    def __init__(
        self, command: str, *, start: float = 30.0, patience: float = 60.0, taken: set[str] | None = None
    ) -> None:
        self._words = _split(command)
        self._command = _shown(self._words)
        self._start = start
        self._patience = patience
        self._taken = set[str]() if taken is None else taken
        self._originals: dict[str, str] = {}
        self._given: dict[str, str] = {}
        self._naming = Lock()
        self._running: dict[asyncio.AbstractEventLoop, _Running] = {}

    @property
    def name(self) -> str:
        """What people call the server: its command, without the values of variables, options and keys in it."""
        return self._command

    async def open(self) -> None:
        """Start the server, unless another user in this event loop has, and wait until it is ready.

        Each `open` that returns is followed by one `close`. One that raises, or is cancelled, has closed its own.
        """
        _require_sdk()
        running = self._joined()
        try:
            async with asyncio.timeout(self._start):
                await asyncio.wait({running.ready})  # cancelled here, it stays: whoever sets it finds it as it was
            running.ready.result()
        except TimeoutError:
            await self._fail(running, f"was not ready after {self._start:g} s")
        except FileNotFoundError:
            await self._fail(running, f"cannot be started: there is no program {self._words[0]!r}")
        except OSError as error:
            await self._fail(running, f"cannot be started: {error.strerror or error}")
        except asyncio.CancelledError:
            await self._release(running)
            raise
        except Exception as error:  # noqa: BLE001  whatever the SDK makes of a server that is none
            await self._fail(running, f"does not speak MCP ({_first_line(error)})")

    async def list(self) -> Sequence[SourcedTool]:
        """Return the server's tools under legal names."""
        session = self._ready()
        from mcp.types import PaginatedRequestParams  # noqa: PLC0415  imported with the SDK

        listed: list[_Listed] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self._patience):
                for _ in range(_MOST_PAGES):
                    page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
                    read = _read(page, _Page)
                    listed += read.tools
                    cursor = read.next_cursor
                    if not cursor:
                        break
        except Exception as error:  # noqa: BLE001  whatever the SDK makes of a bad listing, or its timeout
            raise ConfigError(
                f"the MCP server `{self._command}` does not list its tools: {_first_line(error)}"
            ) from None
        with self._naming:
            return [self._offer(tool) for tool in listed]

    async def call(self, name: str, arguments: JsonObject) -> ToolReturn:
        """Run one call; raise `ToolError` for a server that is gone, is silent, or fails."""
        session = self._ready()
        original = self._originals.get(name, name)
        try:
            async with asyncio.timeout(self._patience):
                returned = _read(await session.call_tool(original, arguments), _Returned)
        except TimeoutError:
            raise ToolError(f"the MCP server did not answer within {self._patience:g} s") from None
        except Exception as error:
            words = _complaint(error)
            if words is None:
                _logger.debug("the MCP server failed", exc_info=True)
                raise ToolError(f"the MCP server failed: {type(_cause(error)).__name__}") from None
            return ToolReturn((Text(text=words),), is_error=True)
        return ToolReturn(_contents(returned), returned.is_error)

    async def close(self) -> None:
        """End the server if nobody else uses it: its input is closed, then it is ended, then killed, within seconds.

        A cancellation takes effect after that. The task that ends the server is not cancelled itself: it would wait for
        a process that nobody ends.
        """
        running = self._running.get(asyncio.get_running_loop())
        if running is not None:
            await self._release(running)

    def _joined(self) -> _Running:
        """Return what runs in this event loop, with one user more; start it where nothing does."""
        for loop, left in list(self._running.items()):
            if loop.is_closed():  # it ended the server's task, and nobody can close it any more
                left.said.close()
                self._running.pop(loop, None)
        loop = asyncio.get_running_loop()
        running = self._running.get(loop)
        if running is None or not running.can_be_joined:
            running = self._running[loop] = _Running()
            running.task = asyncio.create_task(self._serve(running), name=f"mcp {self._command}")
        running.users += 1
        return running

    async def _release(self, running: _Running) -> None:
        """Take one user from what runs, and end it after the last one."""
        running.users -= 1
        if running.users > 0:
            return
        loop = asyncio.get_running_loop()
        if self._running.get(loop) is running:
            del self._running[loop]
        running.leave.set()
        cancelled: asyncio.CancelledError | None = None
        task = running.task
        while task is not None and not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                cancelled = error
        if task is not None and not task.cancelled():
            task.exception()  # seen: how a server ends is nobody's concern any more
        running.said.close()
        if cancelled is not None:
            raise cancelled

    async def _serve(self, running: _Running) -> None:
        """Hold the session open until it is closed; all of it in this one task."""
        from mcp import ClientSession, StdioServerParameters, stdio_client  # noqa: PLC0415  the extra

        command = StdioServerParameters(command=self._words[0], args=self._words[1:])
        ready = running.ready
        try:
            async with stdio_client(command, errlog=running.said) as streams, ClientSession(*streams) as session:
                await self._initialize(session, running.leave)
                running.session = session
                ready.set_result(None)
                await running.leave.wait()
        except BaseException as error:
            started = ready.done()
            if not started:
                ready.set_exception(_cause(error))
                ready.exception()  # seen: where `open` waits no longer, nobody else asks
            if started or isinstance(error, asyncio.CancelledError):  # the loop is ending
                raise
        finally:
            running.session = None

    async def _initialize(self, session: "ClientSession", leave: asyncio.Event) -> None:
        """Shake hands, unless nobody waits for it any more."""
        hands, leaving = asyncio.ensure_future(session.initialize()), asyncio.ensure_future(leave.wait())
        try:
            await asyncio.wait((hands, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not hands.done():
                raise TimeoutError
            hands.result()
        finally:
            hands.cancel()
            leaving.cancel()
            await asyncio.gather(hands, leaving, return_exceptions=True)

    def _ready(self) -> "ClientSession":
        running = self._running.get(asyncio.get_running_loop())
        if running is None or running.session is None:
            raise ToolError("the MCP server has ended")
        return running.session

    def _offer(self, tool: _Listed) -> SourcedTool:
        name = self._given.get(tool.name)
        if name is None:
            name = legal_name(tool.name)
            number = 1
            while name in self._taken:
                which = "" if number == 1 else str(number)
                name = legal_name(f"{_stem(self._words)}{which}_{tool.name}")
                number += 1
            self._taken.add(name)
            self._originals[name] = tool.name
            self._given[tool.name] = name
        reads = bool((tool.annotations or {}).get("readOnlyHint"))
        schema = {"type": "object", **tool.input_schema}
        settings = ToolSettings(timeout=self._patience + 1, side_effect=not reads)
        return SourcedTool(name=name, description=tool.description, schema=schema, settings=settings)

    async def _fail(self, running: _Running, problem: str) -> None:
        words = running.last_words()
        await self._release(running)
        said = f"; it said: {words}" if words else ""
        raise ConfigError(f"the MCP server `{self._command}` {problem}{said}")


def legal_name(name: str) -> str:
    """Return a tool's name in letters, digits, `_` and `-`, at most 64; one that changes ends in a digest of it."""
    plain = _NOT_LEGAL.sub("_", name).strip("_") or "tool"
    if plain == name and len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:6]
    return f"{plain[: _LONGEST_NAME - 7]}_{digest}"


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--mcp {command!r} cannot be split into words: {error}") from None
    if not words:
        raise ConfigError("--mcp needs the command that starts a server, as in --mcp 'python server.py'")
    return words


def _require_sdk() -> None:
    if find_spec("mcp") is None:
        raise ConfigError("MCP servers need the MCP SDK: pip install 'mustcall[mcp]'")


def _shown(words: Sequence[str]) -> str:
    """Return a command as it may be shown: `env TOKEN=… server --api-key …`."""
    shown: list[str] = []
    secret = False
    for word in words:
        given = _GIVEN.match(word)
        if secret and not word.startswith("-"):
            shown.append("…")
        else:
            shown.append(f"{given[1]}=…" if given is not None else word)
        secret = given is None and word.startswith("-") and _SECRET.search(word) is not None
    return _USER.sub("://…@", " ".join(shown))


def _stem(words: Sequence[str]) -> str:
    """Return a short word for a command: the script or package it runs, never what that is given."""
    for word in words:
        stem = re.split(r"[/\\]", word.rstrip("/\\"))[-1].lstrip("@").partition("@")[0].partition(".")[0]
        if stem and not word.startswith("-") and _GIVEN.match(word) is None and not _STARTER.fullmatch(stem.lower()):
            return stem
    return "mcp"


def _read(value: Any, kind: type[_T]) -> _T:
    """Read what the SDK returns by its wire form, which is the same in every version of it."""
    return msgspec.convert(value.model_dump(mode="json", by_alias=True, exclude_none=True), kind)


def _contents(returned: _Returned) -> tuple[Text | Image | File | Audio, ...]:
    parts = tuple(map(_part, returned.content))
    if not parts and returned.structured_content is not None:
        return (Text(text=msgspec.json.encode(returned.structured_content).decode()),)
    return parts


def _part(block: _Block) -> Text | Image | Audio:
    match block.type:
        case "text":
            return Text(text=block.text or "")
        case "image" if block.data:
            return Image(data=block.data, media_type=block.mime_type or "image/png")
        case "audio" if block.data:
            return Audio(data=block.data, format=(block.mime_type or "audio/wav").rpartition("/")[2])
        case "resource" if block.resource is not None and isinstance(block.resource.get("text"), str):
            return Text(text=block.resource["text"])
        case "resource_link":
            return Text(text=f"{block.name or 'resource'}: {block.uri}")
        case other:
            return Text(text=f"({other} content that cannot be shown)")


def _cause(error: BaseException) -> BaseException:
    """Return the first thing that went wrong, out of the groups it was wrapped in."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]  # a group of whatever
    return error if isinstance(error, Exception) else RuntimeError("it ended")


def _complaint(error: BaseException) -> str | None:
    """Return what a server said of a request it refused: its words, so data for the model and no line of ours."""
    data = getattr(_cause(error), "error", None)  # the SDK's error has the protocol's in it, under any of its names
    code, message = getattr(data, "code", None), getattr(data, "message", None)
    if not isinstance(code, int) or not isinstance(message, str) or code not in _REFUSALS:
        return None
    return message[:_LAST_WORDS]


def _first_line(error: BaseException) -> str:
    lines = str(_cause(error)).splitlines()
    return (lines[0] if lines else type(error).__name__)[:_LAST_WORDS]
