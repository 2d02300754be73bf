"""The providers and servers that have a short name: where they are, which wire they speak, which variable has the key.

This table is the only place that knows them. It decides nothing about models; what models do is in `profiles`.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.upstream.embedded.store import SCHEME

__all__ = [
    "EMBEDDED",
    "PROVIDERS",
    "Provider",
    "find_key",
    "local_providers",
    "markdown",
    "provider_at",
    "server_name",
]


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """One short name. `key_env` is the variable that the provider's own tools read."""

    name: str
    title: str
    base_url: str
    wire: Wire = Wire.CHAT
    key_env: str | None = None
    #: Whether it answers nobody without a key.
    needs_key: bool = False

    @property
    def is_local(self) -> bool:
        """Whether it is a server on this machine."""
        return self.base_url.startswith("http://127.0.0.1:")

    @property
    def port(self) -> int | None:
        """The port its address names."""
        return urlsplit(self.base_url).port


def _hosted(name: str, title: str, base_url: str, key_env: str, wire: Wire = Wire.CHAT) -> Provider:
    return Provider(name=name, title=title, base_url=base_url, wire=wire, key_env=key_env, needs_key=True)


def _local(name: str, title: str, port: int, key_env: str | None = None) -> Provider:
    return Provider(name=name, title=title, base_url=f"http://127.0.0.1:{port}/v1", key_env=key_env)


#: The model in this process; what follows the colon is a name of `mustcall models list` or a file.
EMBEDDED = Provider(name=SCHEME, title="a model inside the process", base_url=f"{SCHEME}:")

_TABLE = (
    # Every OpenAI model is served on Responses, some on nothing else.
    _hosted("openai", "OpenAI", "https://api.openai.com/v1", "OPENAI_API_KEY", Wire.RESPONSES),
    _hosted("anthropic", "Anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", Wire.MESSAGES),
    _hosted("openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    _hosted("gemini", "Google Gemini", "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    _hosted("mistral", "Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    _hosted("groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    _hosted("deepseek", "DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    _hosted("xai", "xAI", "https://api.x.ai/v1", "XAI_API_KEY"),
    _hosted("together", "Together AI", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    _hosted("fireworks", "Fireworks AI", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _hosted("cerebras", "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    _hosted("moonshot", "Moonshot AI (Kimi)", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    _hosted("zai", "Z.AI (GLM)", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    _hosted(
        "dashscope",
        "Alibaba Cloud (Qwen)",
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        "DASHSCOPE_API_KEY",
    ),
    _hosted("nvidia", "NVIDIA NIM", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    _hosted("huggingface", "Hugging Face", "https://router.huggingface.co/v1", "HF_TOKEN"),
    _local("ollama", "Ollama", 11434),
    _local("vllm", "vLLM", 8000, "VLLM_API_KEY"),
    _local("sglang", "SGLang", 30000),
    _local("llamacpp", "llama.cpp server", 8080, "LLAMA_API_KEY"),
    _local("lmstudio", "LM Studio", 1234),
    _local("litellm", "LiteLLM proxy", 4000, "LITELLM_API_KEY"),
    EMBEDDED,
)

#: Every provider by its short name.
PROVIDERS: Mapping[str, Provider] = {provider.name: provider for provider in _TABLE}
_HOSTS = {urlsplit(provider.base_url).hostname: provider for provider in _TABLE if provider.needs_key}


def local_providers() -> tuple[Provider, ...]:
    """Return the servers that are looked for on this machine, each at its usual port."""
    return tuple(provider for provider in _TABLE if provider.is_local)


def server_name(provider: Provider | None, name: str) -> str:
    """Return the short name of an upstream's server: its provider's, or its own if that is a local server's."""
    if provider is not None:
        return provider.name
    return name if name in PROVIDERS and PROVIDERS[name].is_local else ""


def provider_at(base_url: str) -> Provider | None:
    """Return the provider whose own host an address names; without TLS nobody knows whose host it is."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return None
    return _HOSTS.get(parts.hostname) if parts.scheme == "https" and parts.hostname else None


def find_key(provider: Provider, where: str, environment: Mapping[str, str]) -> str | None:
    """Return the key of a provider, None where it needs none; raise `ConfigError` naming the variable that is unset."""
    key = environment.get(provider.key_env, "").strip() if provider.key_env else ""
    if not key and provider.needs_key:
        raise ConfigError(
            f"{where}: the environment variable {provider.key_env} is not set; put your {provider.title} key into it"
        )
    return key or None


def markdown() -> str:
    """Return the table for the docs."""
    lines = ["| shorthand | what | address | wire | key |", "|---|---|---|---|---|"]
    for one in _TABLE:
        key = "" if one.key_env is None else f"`{one.key_env}`" if one.needs_key else f"`{one.key_env}`, if set"
        lines.append(f"| `{one.name}:MODEL` | {one.title} | `{one.base_url}` | {one.wire} | {key} |")
    return "\n".join(lines) + "\n"
