"""Which profile a model has where. `ROWS` is the table of providers, row by row."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.origin import Wire
from mustcall.policy.facts.profile import Forcing, Profile, Protocol, ReasoningHabit, SchemaTarget
from mustcall.profiles import Observed, read_overrides, resolve
from mustcall.profiles.catalogue import load
from mustcall.upstream.providers import local_providers

UNKNOWN = "http://127.0.0.1:45678/v1"
CLAUDE = "https://api.anthropic.com/v1"
OPENAI = "https://api.openai.com/v1"
ROUTER = "https://openrouter.ai/api/v1"
OLLAMA = "http://localhost:11434/v1"
MSG, CHAT, RESP = Wire.MESSAGES, Wire.CHAT, Wire.RESPONSES
F, H = Forcing, ReasoningHabit

ROWS: list[tuple[str, str, Wire, dict[str, Any]]] = [
    (
        "claude-sonnet-4-5-20250929",
        CLAUDE,
        MSG,
        {"forced": F.WITHOUT_REASONING, "reasoning": H.ASKED, "reasoning_off": True, "prefill": True},
    ),
    ("claude-opus-4-20250514", CLAUDE, MSG, {"forced": F.WITHOUT_REASONING, "prefill": True, "schema_output": None}),
    ("claude-opus-4-8", CLAUDE, MSG, {"forced": F.WITHOUT_REASONING, "prefill": False, "schema_output": True}),
    ("claude-opus-5", CLAUDE, MSG, {"reasoning": H.DEFAULT, "reasoning_off": True, "prefix_bound": False}),
    ("claude-opus-5", UNKNOWN, CHAT, {"reasoning_off_fields": {"thinking": {"type": "disabled"}}}),
    ("claude-fable-5", CLAUDE, MSG, {"forced": F.ALWAYS, "reasoning_off": False, "prefix_bound": False}),
    (
        "claude-opus-5-5",
        CLAUDE,
        MSG,
        {
            "forced": F.NEVER,
            "reasoning": H.ALWAYS,
            "reasoning_off": False,
            "prefix_bound": True,
            "schema_output": True,
            "prefill": False,
        },
    ),
    ("claude-opus-5.5", UNKNOWN, CHAT, {"forced": F.NEVER, "reasoning_off": False, "reasoning_off_fields": {}}),
    ("claude-fable-5.1", CLAUDE, MSG, {"forced": F.NEVER, "reasoning_off": False, "prefix_bound": True}),
    ("claude-mythos-5.1", CLAUDE, MSG, {"forced": F.NEVER, "reasoning_off": False, "prefix_bound": False}),
    (
        "claude-sonnet-5-5",
        CLAUDE,
        MSG,
        {
            "forced": F.NEVER,
            "reasoning_off": True,
            "reasoning_off_fields": {"thinking": {"type": "between_tools"}},
            "prefix_bound": True,
        },
    ),
    ("claude-sonnet-5.5", ROUTER, CHAT, {"forced": F.NEVER, "reasoning_off": False, "reasoning_off_fields": {}}),
    ("claude-haiku-5-5", CLAUDE, MSG, {"forced": F.ALWAYS, "reasoning_off": True, "prefix_bound": True}),
    (
        "deepseek-v4-pro",
        "https://api.deepseek.com",
        CHAT,
        {
            "forced": F.WITHOUT_REASONING,
            "reasoning_off": True,
            "reasoning_off_fields": {"thinking": {"type": "disabled"}},
            "reasoning_field": "reasoning_content",
        },
    ),
    ("deepseek-v4-pro", UNKNOWN, CHAT, {"forced": F.WITHOUT_REASONING, "reasoning_off": None}),
    ("deepseek-reasoner", "https://api.deepseek.com/v1", CHAT, {"forced": F.NEVER, "reasoning_off": False}),
    ("deepseek-r1:14b", OLLAMA, CHAT, {"forced": F.IGNORED, "protocol": Protocol.PROMPT}),
    (
        "qwen3.5-plus",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
        CHAT,
        {"forced": F.WITHOUT_REASONING, "reasoning_off_fields": {"enable_thinking": False}},
    ),
    ("qwq-plus", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", CHAT, {"reasoning_off": False}),
    ("kimi-k2-0905-preview", "https://api.moonshot.ai/v1", CHAT, {"forced": F.NEVER}),
    ("kimi-k2.6", "https://api.moonshot.cn/v1", CHAT, {"forced": F.WITHOUT_REASONING, "reasoning_off": True}),
    ("kimi-k3", "https://api.moonshot.ai/v1", CHAT, {"forced": F.ALWAYS, "named": False}),
    ("Llama-4-Maverick", "https://api.llama.com/compat/v1", CHAT, {"forced": F.IGNORED}),
    ("gpt-oss-120b", UNKNOWN, CHAT, {"forced": F.IGNORED, "protocol": Protocol.HYBRID, "reasoning": H.ALWAYS}),
    ("meta-llama/Llama-3.3-70B-Instruct", "https://api.together.xyz/v1", CHAT, {"forced": F.IGNORED}),
    ("glm-4.6", "https://api.z.ai/api/paas/v4", CHAT, {"forced": F.IGNORED}),
    ("zai-org/GLM-4.6", UNKNOWN, CHAT, {"forced": F.IGNORED, "prompt_dialect": "glm"}),
    ("qwen3:8b", OLLAMA, CHAT, {"forced": F.IGNORED, "schema_output": True}),
    ("qwen3:8b", "http://gpu.lan:11434/v1", RESP, {"forced": F.IGNORED, "reasoning_off_fields": {}}),
    ("qwen/qwen3-30b-a3b", "http://localhost:1234/v1", CHAT, {"forced": F.ALWAYS, "named": False}),
    ("any", "http://llama-server:8080/v1", CHAT, {"forced": F.UNKNOWN, "named": False, "grammar_field": "json_schema"}),
    ("any", "http://vllm.lan:8000/v1", CHAT, {"forced": F.ALWAYS, "named": True, "grammar_field": "guided_json"}),
    ("any", "http://sglang:30000/v1", CHAT, {"forced": F.ALWAYS, "named": True}),
    (
        "gemini-2.5-flash",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        CHAT,
        {
            "forced": F.ALWAYS,
            "schema_target": SchemaTarget.GEMINI,
            "reasoning_off_fields": {"reasoning_effort": "none"},
        },
    ),
    (
        "deepseek/deepseek-v4-flash",
        ROUTER,
        CHAT,
        {"reasoning_off": True, "reasoning_off_fields": {"reasoning": {"exclude": True, "effort": "none"}}},
    ),
    ("mistral-large-latest", "https://api.mistral.ai/v1", CHAT, {"id_pattern": "^[a-zA-Z0-9]{9}$", "id_length": 9}),
    ("zai-glm-4.6", "https://api.cerebras.ai/v1", CHAT, {"reasoning_field": "reasoning"}),
    ("gpt-5.1", OPENAI, RESP, {"reasoning_off_fields": {"reasoning": {"effort": "none"}}}),
    ("gpt-5-2025-08-07", OPENAI, RESP, {"reasoning": H.ALWAYS, "reasoning_off": False}),
    ("gpt-4o", OPENAI, CHAT, {"schema_target": SchemaTarget.OPENAI, "most_tools": 128, "reasoning": H.NEVER}),
    ("o4-mini", OPENAI, CHAT, {"parallel": False, "protocol": Protocol.NATIVE}),
    ("o1-mini", OPENAI, CHAT, {"protocol": Protocol.PROMPT}),
    ("my-deployment", "https://x.openai.azure.com/openai/v1", CHAT, {"protocol": Protocol.NATIVE, "forced": F.ALWAYS}),
    ("SmolLM2-135M-Instruct", UNKNOWN, CHAT, {"protocol": Protocol.PROMPT, "constrain_first": True}),
]


@pytest.mark.parametrize(("model", "url", "wire", "expected"), ROWS, ids=[f"{row[0]}@{row[1]}" for row in ROWS])
def test_providers(model: str, url: str, wire: Wire, expected: dict[str, Any]) -> None:
    """Rule 75: the capability table knows what is known of each provider, and how."""
    found = resolve(model, url, wire)
    assert {field: getattr(found.profile, field) for field in expected} == expected
    for field, value in expected.items():
        if value != getattr(Profile(), field):
            assert found.facts[field].value == value
            assert found.facts[field].source


@pytest.mark.parametrize(
    ("model", "protocol"),
    [
        ("claude-opus-4-8", Protocol.NATIVE),
        ("anthropic/claude-3-haiku", Protocol.NATIVE),
        ("gpt-4o", Protocol.NATIVE),
        ("openai/gpt-5.4", Protocol.NATIVE),
        ("o3", Protocol.NATIVE),
        ("gemini-3-pro", Protocol.NATIVE),
        ("claude-2.1", Protocol.PROMPT),
        ("gemma3:4b", Protocol.PROMPT),
        ("llama2", Protocol.PROMPT),
        ("perplexity/sonar-pro", Protocol.PROMPT),
        ("llama-3.3-70b", Protocol.HYBRID),
        ("qwen3-coder-plus", Protocol.HYBRID),
        ("grok-4", Protocol.HYBRID),
        ("gpt-oss-20b", Protocol.HYBRID),
        ("something-new", Protocol.HYBRID),
        ("", Protocol.HYBRID),
    ],
)
@pytest.mark.parametrize("url", [UNKNOWN, ROUTER])
def test_default_protocols(model: str, protocol: Protocol, url: str) -> None:
    """Rule 70: native for Claude, GPT and Gemini, prompt where there is no tool API, hybrid for every other."""
    assert resolve(model, url, Wire.CHAT).profile.protocol is protocol


def test_unknown() -> None:
    """Rule 74: nothing known gives the defaults, which change nothing, and no facts."""
    found = resolve("something-new", "https://models.example/v1", Wire.CHAT)
    assert found.profile == Profile()
    assert not found.facts


@pytest.mark.parametrize(
    ("url", "local"),
    [
        (UNKNOWN, True),
        ("http://[::1]:9000/v1", True),
        ("http://192.168.3.4/v1", True),
        ("http://gpu-box:8000/v1", True),
        ("http://gpu.lan/v1", True),
        ("https://models.example/v1", False),
        ("http://8.8.8.8/v1", False),
        (OLLAMA, False),  # known, and what it has with it
        ("embedded:tiny", False),
    ],
)
def test_servers_of_ones_own(url: str, local: bool) -> None:
    """Rule 140: an unknown server on this machine or in its network is known by its address, unless it is said."""
    found = resolve("something-new", url, Wire.CHAT)
    assert found.profile.local is local
    assert ("local" in found.facts) is local
    said = read_overrides([{"models": ["*"], "local": False}])
    assert resolve("something-new", url, Wire.CHAT, said).profile.local is False


@pytest.mark.parametrize("provider", sorted(provider.name for provider in local_providers()))
def test_a_server_is_known_by_its_short_name(provider: str) -> None:
    """What is known of a kind of server holds at any address it is said to be at, and it stays on this machine."""
    url = "http://127.0.0.1:9999/v1"
    named = resolve("some-model", url, CHAT, server=provider).profile
    elsewhere = resolve("some-model", f"http://{provider}:9999/v1", CHAT).profile
    assert msgspec.structs.replace(named, local=elsewhere.local) == elsewhere
    assert (named.name == "unknown") is (provider == "litellm")  # a router: what is behind it is not known
    assert named.local


def test_asked_twice() -> None:
    """Rule 75: the second time the answer is the same object; names nobody has are not kept."""
    assert resolve("gpt-4o", OPENAI, Wire.CHAT) is resolve("gpt-4o", OPENAI, Wire.CHAT)
    assert resolve("gpt-4o", OPENAI, Wire.CHAT) is not resolve("gpt-4o", OPENAI, Wire.RESPONSES)
    long = "x" * 100_000
    assert resolve(long, OPENAI, Wire.CHAT) is not resolve(long, OPENAI, Wire.CHAT)


def test_names() -> None:
    """Rule 75: the profile's name says which model entry and which door it came from."""
    names = [
        resolve(model, url, Wire.CHAT).profile.name
        for model, url in (
            ("anthropic/claude-opus-5.5", ROUTER),
            ("claude-opus-5.5", UNKNOWN),
            ("new", OLLAMA),
            ("new", UNKNOWN),
        )
    ]
    assert names == ["claude-opus-5.5 via openrouter", "claude-opus-5.5", "unknown via ollama", "unknown"]


def test_overrides() -> None:
    """Rule 70: the operator's facts stand over all others, the later over the earlier, where they apply."""
    overrides = read_overrides(
        [
            {"models": ["claude-opus-*"], "protocol": "hybrid", "forced": "always"},
            {"endpoints": ["*.anthropic.com*"], "forced": "ignored"},
            {"upstreams": ["lab*"], "named": False},
            {"wires": ["responses"], "parallel": False},
        ]
    )
    found = resolve("claude-opus-5-5", CLAUDE, MSG, overrides)
    assert found.profile.protocol is Protocol.HYBRID
    assert found.profile.forced is Forcing.IGNORED
    assert found.profile.named is True
    assert found.profile.prefix_bound is True
    assert found.facts["forced"].observed is Observed.CONFIG
    assert found.facts["forced"].source == "mustcall.toml: profile 2"
    assert resolve("claude-opus-5-5", CLAUDE, MSG).profile.forced is Forcing.NEVER
    assert resolve("claude-opus-5-5", CLAUDE, MSG, overrides) is found
    alike = Profile(named=False, parallel=False, local=True)
    assert resolve("x", UNKNOWN, RESP, overrides, upstream="Lab2").profile == alike
    assert resolve("x", UNKNOWN, CHAT, overrides, upstream="other").profile == Profile(local=True)


@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from(list(Wire)))
def test_any_names(model: str, url: str, wire: Wire) -> None:
    """Design 2.8: any model and URL resolve, twice alike; unfinished arguments are never released by default."""
    found = resolve(model, url, wire)
    assert found == resolve(model, url, wire)
    assert not found.profile.trusted_arguments
    for field, fact in found.facts.items():
        assert getattr(found.profile, field) == fact.value


@given(st.sampled_from([row[0] for row in ROWS]), st.sampled_from(["", "vendor/", "a/b/", "eu.vendor."]))
def test_prefixes_change_nothing(model: str, prefix: str) -> None:
    """Rule 75: a vendor's prefix and the case of a name change nothing."""
    bare = model.rpartition("/")[2]
    assert resolve(prefix + bare.upper(), UNKNOWN, CHAT).profile == resolve(bare, UNKNOWN, CHAT).profile


@pytest.mark.parametrize(
    ("base_url", "inside", "small"),
    [
        ("embedded:smollm2-135m", True, True),
        ("embedded:", True, False),
        ("embedded:/models/SmolLM2-135M-Instruct.Q4_1.gguf", True, True),
        ("embedded:/models/my-smollm2-135m.gguf", True, True),
        ("embedded:qwen2.5-coder-0.5b", True, False),
        ("embedded:/blobs/6b86b273ff34", True, False),
        ("embedded:7b.gguf", True, False),
        ("embedded:/smollm2-135m-tests/qwen-7b.gguf", True, False),
        ("http://embedded:8000/v1", False, False),
        ("http://embedded:8000/smollm2-135m", False, False),
        ("https://embedded/v1", False, False),
    ],
)
def test_what_is_meant_for_the_smallest_model_stays_with_it(base_url: str, inside: bool, small: bool) -> None:
    """Rule 75: words choose only for the model that was measured, not for others in its folder or at a like address."""
    profile = resolve("local", base_url, CHAT).profile
    assert profile.bounded_schemas is inside
    assert (profile.words_choose, profile.arguments_from_message, profile.worked_examples) == (small, small, small)


def test_no_other_profile_lets_words_choose() -> None:
    """Heuristics on the message's words are off for every model and door but one."""
    facts = ("words_choose", "arguments_from_message", "worked_examples")
    assert {entry.name for entry in load() if not entry.facts.keys().isdisjoint(facts)} == {"embedded-smollm2-135m"}
    assert not any(getattr(Profile(), fact) for fact in facts)
