"""Which clients try again by themselves."""

import pytest

from mustcall.policy.failures.client_retries import AGENTS, retries_itself


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ({}, False),
        ({"x-stainless-retry-count": "0"}, False),
        ({"x-stainless-retry-count": "1"}, True),
        ({"x-stainless-retry-count": "many"}, False),
        ({"user-agent": "OpenAI/Python 2.8.0", "x-stainless-retry-count": "0"}, False),
        ({"user-agent": "codex_cli_rs/0.60.0 (Linux; arm64)"}, True),
        ({"user-agent": "claude-cli/2.0.44 (external, cli)", "x-stainless-retry-count": "0"}, True),
        ({"user-agent": "QwenCode/0.2.1 (linux; arm64)"}, True),
        ({"user-agent": "pi (linux 6.18; arm64)", "x-stainless-retry-count": "0"}, True),
        ({"user-agent": "pip/26.0"}, False),
        ({"user-agent": "ai/5.0.93 ai-sdk/provider-utils/3.0.17 runtime/node.js/22"}, True),
        ({"user-agent": "python-httpx/0.28.1"}, False),
    ],
)
def test_clients_that_try_again_by_themselves(headers: dict[str, str], known: bool) -> None:
    """Rule 144: one that says it is a retry, or is known to make them; a count of 0 says nothing."""
    assert retries_itself(headers) is known


def test_agents_are_written_in_lower_case() -> None:
    """Rule 144: user agents are compared without regard to case."""
    assert [agent for agent in AGENTS if agent != agent.lower()] == []
