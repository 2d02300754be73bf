"""The gateway's budget: read from file and environment, shown by `config check`, and whose session a request is."""

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mustcall.cli.setup.config import command
from mustcall.core.errors import ConfigError, InvalidRequest
from mustcall.gateway.config.budget_settings import SessionBy, session_of
from mustcall.gateway.config.settings import Settings, load_settings
from mustcall.gateway.request_controls import take_controls
from mustcall.policy.facts.controls import Controls
from mustcall.policy.failures.breaker import BreakerRule
from mustcall.policy.limits.budget import CapMode, Caps, ModelPrice, Price, TurnCap

UPSTREAM = '[[upstream]]\nname = "a"\nwire = "chat"\nbase_url = "http://127.0.0.1:9000/v1"\n'

WHOLE = """
[budget]
mode = "warn"
cost_usd = 5
tokens = 1000
calls = 50
seconds = 3600
egress_bytes = 10
hosts = 2
turn_cost_usd = 0.25
turn_mode = "enforce"
expected_output_tokens = 10
by = "key"

[breaker]
failures = 3
cool_down = 5

[[price]]
model = "my-*"
input = 1
output = 2.5
cached = 0.1
"""


def load(folder: Path, text: str, **env: str) -> Settings:
    """Settings of a file and an environment."""
    file = folder / "mustcall.toml"
    file.write_text(UPSTREAM + text, encoding="utf-8")
    return load_settings(file, environment=env)


def test_a_whole_budget(tmp_path: Path) -> None:
    """Rule 120: every limit is a setting."""
    settings = load(tmp_path, WHOLE)
    budget = settings.operator.budget
    assert budget is not None
    assert budget.caps == Caps(cost_usd=5, tokens=1000, calls=50, seconds=3600, egress_bytes=10, hosts=2)
    assert (budget.mode, budget.turn) == (CapMode.WARN, TurnCap(cost_usd=0.25, mode=CapMode.ENFORCE))
    assert budget.breaker == BreakerRule(failures=3, cool_down=5)
    assert budget.prices == (ModelPrice(model="my-*", price=Price(input=1, output=2.5, cached=0.1)),)
    assert (budget.expected_output_tokens, settings.session_by) == (10, SessionBy.KEY)


def test_the_environment_over_the_file(tmp_path: Path) -> None:
    """Rule 120: every limit can be set by the environment, with a file or without."""
    env = {"MUSTCALL_BUDGET_COST_USD": "0.5", "MUSTCALL_BUDGET_BY": "session", "MUSTCALL_BREAKER_FAILURES": "9"}
    for text, calls, cool_down in ((WHOLE, 50, 5), ("", 0, 30)):
        settings = load(tmp_path, text, **env)
        budget = settings.operator.budget
        assert budget is not None
        assert (budget.caps.cost_usd, budget.caps.calls, settings.session_by) == (0.5, calls, SessionBy.SESSION)
        assert budget.breaker == BreakerRule(failures=9, cool_down=cool_down)


def test_nothing_configured_is_no_budget(tmp_path: Path) -> None:
    """Rule 94: without a budget nothing is counted; a price alone is reason enough to count."""
    assert load(tmp_path, "").operator.budget is None
    priced = load(tmp_path, '[[price]]\nmodel = "m"\ninput = 1\noutput = 1\n').operator.budget
    assert priced is not None
    assert (priced.caps, priced.breaker) == (Caps(), None)


@pytest.mark.parametrize(
    ("text", "env", "said"),
    [
        ("[budget]\ncost_usd = -1\n", {}, "budget: cost_usd must be 0 or more, got -1"),
        ("[budget]\ncost = 1\n", {}, "unknown field `cost`"),
        ("[budget]\nmode = 'sometimes'\n", {}, "Invalid enum value 'sometimes'"),
        ("[breaker]\ncool_down = -1\n", {}, "breaker cool_down must be 0 or more"),
        ("[[price]]\nmodel = 'm'\ninput = -1\noutput = 1\n", {}, "price of 'm': input must be 0 or more"),
        ("[[price]]\nmodel = ''\ninput = 1\noutput = 1\n", {}, "an empty pattern matches nothing"),
        ("[price]\nmodel = 'm'\ninput = 1\noutput = 1\n", {}, "write the table with two brackets"),
        ("", {"MUSTCALL_BUDGET_TOKENS": "many"}, "MUSTCALL_BUDGET_TOKENS: Expected `int`, got `str`"),
        ("", {"MUSTCALL_BUDGET_COST_USD": "nan"}, "cost_usd must be 0 or more, got nan"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, env: dict[str, str], said: str) -> None:
    """Rule 120: a wrong setting stops the gateway with its name."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **env)
    assert said in caught.value.message


def test_config_check_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 120: what is in force can be looked at."""
    monkeypatch.setenv("MUSTCALL_BUDGET_TOKENS", "77")
    file = tmp_path / "mustcall.toml"
    file.write_text(UPSTREAM + WHOLE, encoding="utf-8")
    shown = CliRunner().invoke(command, ["check", str(file)])
    assert shown.exit_code == 0
    assert [line for line in shown.output.splitlines() if line.startswith(("budget", "breaker"))] == [
        "budget       5 cost_usd, 77 tokens, 50 calls, 3600 seconds, 10 egress_bytes, 2 hosts for each key (warn)",
        "budget       0.25 cost_usd for each request (enforce)",
        "budget       my-* costs 1 in, 2.5 out",
        "breaker      3 failures in a row, then 5 s without calls",
    ]


@given(st.text(), st.text(min_size=1), st.sampled_from(SessionBy))
def test_keys_are_not_in_a_session(named: str, key: str, by: SessionBy) -> None:
    """Rule 136: an account goes by a digest of fixed length; the same key and name give the same one."""
    session = session_of(named, key, by)
    assert session is not None
    assert len(session) == 32
    assert session == session_of(named, key, by) != session_of(named, key + "x", by)
    assert (
        session
        == hashlib.sha256(
            f"{key}\0{'' if by is SessionBy.KEY else named}".encode(errors="surrogateescape")
        ).hexdigest()[:32]
    )


def test_no_key_and_no_name() -> None:
    """Rule 116: a request of nobody is its own session, unless accounts go by key: then those without share one."""
    assert session_of(None, None, SessionBy.SESSION) is None
    assert session_of("s", None, SessionBy.SESSION) == session_of("s", None, SessionBy.SESSION) is not None
    assert session_of("s", None, SessionBy.KEY) == session_of("t", None, SessionBy.KEY) is not None


def test_what_a_caller_may_say_of_it() -> None:
    """Rule 9: the session and a cap of the turn, by header and body."""
    headers = {"x-mustcall-session": " s ", "x-mustcall-turn-cost-usd": "0.5"}
    got, _ = take_controls(b"{}", headers, Controls())
    assert (got.session, got.turn_cost_usd) == ("s", 0.5)
    got, _ = take_controls(b'{"mustcall":{"session":"t","turn_cost_usd":2}}', headers, Controls())
    assert (got.session, got.turn_cost_usd) == ("t", 2.0)
    for wrong in (
        {"x-mustcall-turn-cost-usd": "-1"},
        {"x-mustcall-turn-cost-usd": "nan"},
        {"x-mustcall-session": "s" * 300},
    ):
        with pytest.raises(InvalidRequest):
            take_controls(b"{}", wrong, Controls())
