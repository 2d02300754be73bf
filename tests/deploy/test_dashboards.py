"""What the dashboard, the alert rules and the autoscaler read is what the gateway exports, names and labels."""

import json
import re
from pathlib import Path

import pytest
import yaml

from mustcall.core.verdict import OutcomeKind
from mustcall.testing import ScriptedUpstream
from mustcall.testing.gateway import RunningGateway
from support.http import call

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "mustcall.json"
RULES = DEPLOY / "prometheus" / "rules.yaml"
AUTOSCALER = DEPLOY / "helm" / "mustcall" / "templates" / "autoscaler.yaml"
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
#: What Prometheus adds to a histogram's name.
SUFFIXES = r"(?:_bucket|_sum|_count)?"


@pytest.fixture(scope="module")
def exported() -> dict[str, str]:
    """Every metric of a real gateway with what it says of it."""
    with ScriptedUpstream([]) as upstream, RunningGateway(f"chat={upstream.base_url}") as gateway:
        page = call("GET", f"{gateway.url}/metrics").body.decode()
    return dict(re.findall(r"^# HELP (\w+) (.*)$", page, re.MULTILINE))


def expressions() -> list[str]:
    """Every expression that is asked of Prometheus."""
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return asked + [rule["expr"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("file", [DASHBOARD, RULES, AUTOSCALER], ids=lambda file: file.name)
def test_every_metric_that_is_read_is_exported(file: Path, exported: dict[str, str]) -> None:
    """A name that the gateway does not export would be an empty panel, or an alert that never fires."""
    names = set(re.findall(r"mustcall_\w+", file.read_text(encoding="utf-8")))
    assert names
    for name in names:
        assert any(re.fullmatch(known + SUFFIXES, name) for known in exported), name


def test_the_dashboard_shows_everything(exported: dict[str, str]) -> None:
    """No metric is exported that nobody can look at."""
    text = DASHBOARD.read_text(encoding="utf-8")
    assert [name for name in exported if not re.search(rf"\b{name}", text)] == []


def test_every_label_that_is_read_is_exported() -> None:
    """Labels in expressions are the documented ones of that metric, or Prometheus' own."""
    rows = re.findall(r"^\| `(mustcall_\w+)` \| \w+ \|([^|]*)\|", PAGE, re.MULTILINE)
    labels = {name: set(re.findall(r"`(\w+)`", cell)) | {"instance", "job", "le"} for name, cell in rows}
    for expression in expressions():
        for name, inside in re.findall(r"(mustcall_\w+)\{([^}]*)\}", expression):
            known = labels[re.sub(r"_(?:bucket|sum|count)$", "", name)]
            assert set(re.findall(r"(\w+)(?:=~|!=|=)", inside)) <= known, expression
        assert expression.count("(") == expression.count(")")


def test_the_documented_metrics_are_the_exported_ones(exported: dict[str, str]) -> None:
    """docs/operations.md has each metric in the gateway's own words."""
    rows = re.findall(r"^\| `(mustcall_\w+)` \| \w+ \|[^|]*\| (.*) \|$", PAGE, re.MULTILINE)
    assert dict(rows) == exported


def test_words_in_expressions_are_real() -> None:
    """Outcomes and results that expressions pick are ones that exist."""
    picked = {word for one in expressions() for word in re.findall(r'(?:force|result|outcome)="(\w+)"', one)}
    assert picked <= {"met", "unmet", "dropped", "ok", "failed", *map(str, OutcomeKind)}


def test_panels_have_ids_of_their_own() -> None:
    """Grafana drops panels that share an id."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
