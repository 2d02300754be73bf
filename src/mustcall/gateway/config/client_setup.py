"""How clients are pointed at a gateway: the lines for each, from its address and a model. Pure text."""

import json
import shlex

import msgspec

from mustcall.gateway.config.first_config import quoted

__all__ = ["ClientLines", "client_lines"]

#: What clients send where the gateway asks for no key: they insist on having one.
_ANY_KEY = "any"


class ClientLines(msgspec.Struct, frozen=True):
    """What to type or to write down for one client. `where` is the file it belongs in, empty for the shell."""

    name: str
    where: str
    text: str


def client_lines(url: str, model: str) -> tuple[ClientLines, ...]:
    """Return the lines for every client; `url` is the gateway's, without `/v1`."""
    base, name = f"{url}/v1", quoted(model)
    return (
        ClientLines(
            "Claude Code",
            "",
            f"ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={_ANY_KEY} ANTHROPIC_MODEL={shlex.quote(model)} claude",
        ),
        ClientLines(
            "Codex",
            "~/.codex/config.toml",
            f"model = {name}\n"
            'model_provider = "mustcall"\n\n'
            "[model_providers.mustcall]\n"
            'name = "mustcall"\n'
            f'base_url = "{base}"\n'
            'wire_api = "responses"',
        ),
        ClientLines("opencode", "opencode.json", json.dumps(_opencode(base, model), indent=2, ensure_ascii=False)),
        ClientLines("OpenAI SDKs", "", f"export OPENAI_BASE_URL={base} OPENAI_API_KEY={_ANY_KEY}"),
        ClientLines("Anthropic SDKs", "", f"export ANTHROPIC_BASE_URL={url} ANTHROPIC_API_KEY={_ANY_KEY}"),
        ClientLines(
            "Python",
            "",
            "from openai import OpenAI\n"
            f'client = OpenAI(base_url="{base}", api_key="{_ANY_KEY}")\n'
            f'client.chat.completions.create(model={name}, messages=[{{"role": "user", "content": "Hello"}}])',
        ),
    )


def _opencode(base: str, model: str) -> dict[str, object]:
    provider: dict[str, object] = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mustcall",
        "options": {"baseURL": base, "apiKey": _ANY_KEY},
        "models": {model: {}},
    }
    return {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"mustcall": provider},
        "model": f"mustcall/{model}",
    }
