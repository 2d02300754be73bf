"""The table of clients: what is installed, how each is started against a base URL, and how its token count is read.

Every client runs with a home folder of its own, telemetry and updates off, and no way out of loopback. A version is
pinned; change it here and the next run installs it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clientmatrix.reading import Wire

MODEL = "scripted-1"
NODE = ("node", ("node@22.23.3",))


@dataclass(frozen=True)
class Place:
    """Where one cell runs: `base` is the server's address without a path."""

    base: str
    folder: Path  # of the installed client
    home: Path
    work: Path
    prompt: str
    case: str


@dataclass(frozen=True)
class Start:
    """A command, its own environment, and the files it finds."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict[str, str])
    files: dict[Path, str] = field(default_factory=dict[Path, str])


@dataclass(frozen=True)
class Client:
    """One client on one wire; `other` is the upstream wire of the crossing arm."""

    name: str
    wire: Wire
    other: Wire
    folder: str
    packages: tuple[str, ...]
    start: Callable[[Place], Start]
    figure: Callable[[str], int | None]
    needs: str
    runtime: str = "node"

    @property
    def version(self) -> str:
        """The pinned version."""
        return self.packages[0].replace("==", "@").rpartition("@")[2]


def _binary(place: Place, name: str) -> str:
    return str(place.folder / "node_modules" / ".bin" / name)


def _claude_code(place: Place) -> Start:
    env = {
        "ANTHROPIC_BASE_URL": place.base,
        "ANTHROPIC_API_KEY": "local",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    argv = (_binary(place, "claude"), "-p", place.prompt, "--output-format", "json", "--allowedTools", "Read")
    return Start(argv, env)


def _codex(place: Place) -> Start:
    idle = "stream_idle_timeout_ms = 6000\n" if place.case == "held" else ""
    settings = (
        f'model = "{MODEL}"\nmodel_provider = "local"\ncheck_for_update_on_startup = false\n'
        "[analytics]\nenabled = false\n"
        f'[model_providers.local]\nname = "local"\nbase_url = "{place.base}/v1"\nwire_api = "responses"\n'
        f'env_key = "LOCAL_API_KEY"\n{idle}'
    )
    argv = (
        *(_binary(place, "codex"), "exec", "--json", "--skip-git-repo-check"),
        *("--disable", "plugins", "--disable", "apps"),
        *("--dangerously-bypass-approvals-and-sandbox", place.prompt),
    )
    return Start(argv, {"LOCAL_API_KEY": "local"}, {place.home / ".codex" / "config.toml": settings})


def _pi(place: Place) -> Start:
    provider = {
        "baseUrl": f"{place.base}/v1",
        "api": "openai-completions",
        "apiKey": "local",
        "models": [{"id": MODEL}],
    }
    argv = (
        *(_binary(place, "pi"), "-p", "--mode", "json", "--provider", "local", "--model", MODEL),
        *("--offline", "--no-session", place.prompt),
    )
    models = json.dumps({"providers": {"local": provider}})
    return Start(argv, {"PI_OFFLINE": "1", "PI_TELEMETRY": "0"}, {place.home / ".pi" / "agent" / "models.json": models})


def _qwen_code(place: Place) -> Start:
    settings = {
        "telemetry": {"enabled": False},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    }
    env = {"OPENAI_API_KEY": "local", "OPENAI_BASE_URL": f"{place.base}/v1", "OPENAI_MODEL": MODEL}
    argv = (_binary(place, "qwen"), "--auth-type", "openai", "--yolo", "-o", "json", place.prompt)
    return Start(argv, env, {place.home / ".qwen" / "settings.json": json.dumps(settings)})


def _opencode(place: Place) -> Start:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "local",
        "options": {"baseURL": f"{place.base}/v1", "apiKey": "local"},
        "models": {MODEL: {"name": MODEL, "tool_call": True, "limit": {"context": 100000, "output": 4000}}},
    }
    settings = {
        "provider": {"local": provider},
        "model": f"local/{MODEL}",
        "small_model": f"local/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
    }
    env = {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }
    argv = (_binary(place, "opencode"), "run", "--pure", "--format", "json", "--auto", place.prompt)
    return Start(argv, env | {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)})


def _sdk(script: str, wire: Wire, base: str = "/v1") -> Callable[[Place], Start]:
    def start(place: Place) -> Start:
        own = "bin/python" if script.endswith(".py") else "../node/node_modules/.bin/node"
        env = {"BASE_URL": place.base + base, "MODEL": MODEL, "PROMPT": place.prompt, "SDK_WIRE": wire}
        return Start((str(place.folder / own), str(place.folder / script)), env)

    return start


def read_events(output: str) -> list[dict[str, Any]]:
    """The JSON objects of an output: one a line, or a list of them."""
    events: list[dict[str, Any]] = []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        events += [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict)]
    return events


def _sdk_figure(output: str) -> int | None:
    return next((event["input_tokens"] for event in read_events(output) if "input_tokens" in event), None)


def _usage_of(kind: str, *path: str) -> Callable[[str], int | None]:
    """The sum over the events of this type of the number at the path."""

    def figure(output: str) -> int | None:
        found: list[int] = []
        for event in read_events(output):
            value: Any = event if event.get("type") == kind else None
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if isinstance(value, int):
                found.append(value)
        return sum(found) if found else None

    return figure


def _anthropic_figure(output: str) -> int | None:
    return _usage_of("result", "usage", "input_tokens")(output)


_AI5 = (
    *("ai@5.0.277", "@ai-sdk/openai@2.0.130", "@ai-sdk/anthropic@2.0.112"),
    *("@ai-sdk/openai-compatible@1.0.61", "zod@4.6.7"),
)
_AI6 = (
    *("ai@6.0.318", "@ai-sdk/openai@3.0.139", "@ai-sdk/anthropic@3.0.137"),
    *("@ai-sdk/openai-compatible@2.0.87", "zod@4.6.7"),
)
_OPENAI_NODE = ("openai@7.53.0",)
_OPENAI_PY = ("openai==3.49.0",)
_BASE = "base URL with /v1"
_PROVIDERS: dict[Wire, str] = {
    "chat": "createOpenAICompatible",
    "responses": "createOpenAI",
    "messages": "createAnthropic",
}


def _ai(number: int, packages: tuple[str, ...]) -> list[Client]:
    wires: tuple[tuple[Wire, Wire], ...] = (("chat", "responses"), ("responses", "chat"), ("messages", "chat"))
    return [
        Client(
            f"ai{number}-{wire}",
            wire,
            other,
            f"ai{number}",
            packages,
            _sdk("ai_sdk.mjs", wire),
            _sdk_figure,
            f"`baseURL` with /v1 ({_PROVIDERS[wire]})",
        )
        for wire, other in wires
    ]


CLIENTS: tuple[Client, ...] = (
    Client(
        "claude-code",
        "messages",
        "chat",
        "claude-code",
        ("@anthropic-ai/claude-code@2.1.325",),
        _claude_code,
        _anthropic_figure,
        "`ANTHROPIC_BASE_URL` without /v1, `ANTHROPIC_API_KEY`, `ANTHROPIC_MODEL`",
    ),
    Client(
        "codex",
        "responses",
        "chat",
        "codex",
        ("@openai/codex@0.166.0",),
        _codex,
        _usage_of("turn.completed", "usage", "input_tokens"),
        '`[model_providers.X]` in config.toml: `base_url` with /v1, `wire_api = "responses"`, `env_key`',
    ),
    Client(
        "pi",
        "chat",
        "responses",
        "pi",
        ("@earendil-works/pi-coding-agent@0.87.1",),
        _pi,
        _usage_of("turn_end", "message", "usage", "input"),
        "a provider in ~/.pi/agent/models.json: `baseUrl` with /v1, `api`, `apiKey`, `models`",
    ),
    Client(
        "qwen-code",
        "chat",
        "responses",
        "qwen-code",
        ("@qwen-code/qwen-code@0.24.4",),
        _qwen_code,
        _anthropic_figure,
        "`OPENAI_BASE_URL` with /v1, `OPENAI_API_KEY`, `OPENAI_MODEL`, `--auth-type openai`",
    ),
    Client(
        "opencode",
        "chat",
        "responses",
        "opencode",
        ("opencode-ai@1.18.18",),
        _opencode,
        _usage_of("step_finish", "part", "tokens", "input"),
        "a provider in opencode.json: `npm`, `options.baseURL` with /v1, `options.apiKey`, `models`",
    ),
    Client(
        "openai-node-chat",
        "chat",
        "messages",
        "openai-node",
        _OPENAI_NODE,
        _sdk("openai_node.mjs", "chat"),
        _sdk_figure,
        _BASE,
    ),
    Client(
        "openai-node-responses",
        "responses",
        "chat",
        "openai-node",
        _OPENAI_NODE,
        _sdk("openai_node.mjs", "responses"),
        _sdk_figure,
        _BASE,
    ),
    *_ai(5, _AI5),
    *_ai(6, _AI6),
    Client(
        "openai-py-chat",
        "chat",
        "responses",
        "openai-py",
        _OPENAI_PY,
        _sdk("openai_py.py", "chat"),
        _sdk_figure,
        _BASE,
        "python",
    ),
    Client(
        "openai-py-responses",
        "responses",
        "messages",
        "openai-py",
        _OPENAI_PY,
        _sdk("openai_py.py", "responses"),
        _sdk_figure,
        _BASE,
        "python",
    ),
    Client(
        "anthropic-py",
        "messages",
        "responses",
        "anthropic-py",
        ("anthropic==2.8.0",),
        _sdk("anthropic_py.py", "messages", ""),
        _sdk_figure,
        "base URL without /v1",
        "python",
    ),
)
