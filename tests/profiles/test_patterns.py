"""How patterns name models and endpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError
from mustcall.profiles.patterns import LONGEST_NAME, endpoint_pattern, model_pattern, place_of, spellings


@pytest.mark.parametrize(
    ("pattern", "model"),
    [
        ("claude-opus-5.5*", "claude-opus-5.5"),
        ("claude-opus-5.5*", "claude-opus-5-5"),
        ("claude-opus-5.5*", "Claude-Opus-5-5-20260922"),
        ("claude-opus-5.5*", "anthropic/claude-opus-5.5"),
        ("claude-opus-5.5*", "us.anthropic.claude-opus-5-5-v1:0"),
        ("claude-opus-5.5*", "claude-opus-5-5@20260922"),
        ("claude-opus-5.5*", "openrouter/anthropic/claude-opus-5.5:beta"),
        ("kimi-k2.5*", "accounts/fireworks/models/kimi-k2p5"),
        ("llama-3*", "meta-llama/Llama-3.3-70B-Instruct"),
        ("gpt-5*", "gpt-5-2025-08-07"),
        ("gpt-5*", "gpt-5.1"),
        ("gpt-5.?-codex*", "gpt-5.1-codex-max"),
        ("gpt-[0-9]*", "gpt-4o"),
        ("gpt-[!a-z]*", "gpt-4o"),
        ("*-thinking*", "qwen3-30b-a3b-thinking-2507"),
        ("*", "anything"),
    ],
)
def test_meant(pattern: str, model: str) -> None:
    """Rule 75: a pattern finds its model behind a vendor's prefix and in each spelling of its version."""
    assert model_pattern(pattern).matches(*spellings(model))


@pytest.mark.parametrize(
    ("pattern", "model"),
    [
        ("gpt-5.2*", "gpt-5-2025-08-07"),
        ("gpt-5*", "gpt-50"),
        ("gpt-[0-9]*", "gpt-oss-20b"),
        ("gpt-[!a-z]*", "gpt-oss-20b"),
        ("o1*", "o10"),
        ("claude-opus-4.1*", "claude-opus-4-20250514"),
        ("claude-opus-5", "claude-opus-5-5"),
        ("claude*", "not-claude"),
        ("llama-3-8b*", "llama-3.1-8b"),
    ],
)
def test_not_meant(pattern: str, model: str) -> None:
    """Rule 75: a number ends where the pattern ends it, and a name begins where the pattern begins."""
    assert not model_pattern(pattern).matches(*spellings(model))


@pytest.mark.parametrize(
    ("pattern", "url", "meant"),
    [
        ("*.anthropic.com*", "https://api.anthropic.com", True),
        ("*.anthropic.com*", "https://API.anthropic.com/v1/", True),
        ("localhost:11434*", "http://localhost:11434/v1", True),
        ("*:11434*", "http://127.0.0.1:11434", True),
        ("*:1234*", "http://127.0.0.1:12345/v1", False),
        ("*:1234*", "http://127.0.0.1:1234/v1", True),
        ("localhost:8000/v1", "http://localhost:8000/v1/", True),
        ("api.z.ai*", "https://api-z-ai.example", False),
        ("secret*", "https://secret:pass@host.example", False),
        ("embedded:*tiny*", "embedded:tiny", True),
        ("embedded:*tiny*", "embedded:/models/Tiny-1B.gguf", True),
        ("embedded:*tiny*", "embedded:C:\\models\\Tiny-1B.gguf", True),
        ("embedded:*tiny*", "embedded:/tiny-tests/large.gguf", False),
        ("embedded:/large.gguf", "embedded:/tiny-tests/large.gguf", True),
        ("localhost:8000/v1", "localhost:8000/v1", True),
    ],
)
def test_endpoints(pattern: str, url: str, meant: bool) -> None:
    """Rule 75: an endpoint is matched by host, port and path, a file by its name; dots and dashes differ."""
    assert endpoint_pattern(pattern).matches(place_of(url)) is meant


def test_specific_patterns_weigh_more() -> None:
    """Rule 75: what is literal in a pattern is its weight."""
    weights = [model_pattern(text).weight for text in ("*", "claude*", "claude-opus-5*", "claude-opus-5.5*")]
    assert weights == sorted(set(weights))
    assert model_pattern("gpt-[0-9]*").weight == model_pattern("gpt-?*").weight


@pytest.mark.parametrize("text", ["", "  ", "[z-a]"])
def test_unusable(text: str) -> None:
    """Rule 75: a pattern that can match nothing is an error that says so."""
    with pytest.raises(ConfigError, match="pattern"):
        model_pattern(text)


@given(st.text(alphabet="ab1*?[]!-.\\/", min_size=1), st.text(alphabet="ab1-./:@", max_size=300))
def test_any_pattern(pattern: str, name: str) -> None:
    """Design 2.8: any pattern compiles or is a `ConfigError`; any name can be asked."""
    try:
        compiled = model_pattern(pattern)
    except ConfigError:
        return
    assert compiled.matches(*spellings(name)) in (True, False)


@given(st.text(alphabet="ab1-.", min_size=1, max_size=40))
def test_a_name_is_its_own_pattern(name: str) -> None:
    """Rule 75: a pattern without wildcards means the name it is."""
    assert model_pattern(name).matches(*spellings(name))
    assert model_pattern(f"*{name}*").matches(*spellings(f"{name}-x"))


def test_many_stars_stay_linear() -> None:
    """Rule 75: a hostile name costs no more than a long one; with backtracking this would not end."""
    pattern = model_pattern("*a" * 30 + "*b")
    assert not pattern.matches(*spellings("a" * LONGEST_NAME))
