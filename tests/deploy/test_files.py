"""The Dockerfile, the compose file, the unit, the chart and the workflows say what they must, and agree."""

import configparser
import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def load(path: str) -> Any:
    """Read a YAML file."""
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


@pytest.fixture
def dockerfile() -> ModuleType:
    """The reader of Dockerfiles in tools/."""
    spec = importlib.util.spec_from_file_location("dockerfile", ROOT / "tools" / "dockerfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["dockerfile"] = module
    spec.loader.exec_module(module)
    return module


def test_the_image(dockerfile: ModuleType) -> None:
    """The last stage has a user that is not root, a volume, a health check and the command people expect."""
    final = dockerfile.read(ROOT / "Dockerfile")[-1]
    assert final.user == "10001:10001"
    assert (final.entrypoint, final.command, final.ports) == (("mustcall",), ("serve",), (8484,))
    assert final.environment["MUSTCALL_CACHE"].startswith(final.volumes[0])
    assert final.environment["XDG_STATE_HOME"].startswith(final.volumes[0])
    assert "MUSTCALL_PORT" in final.health[-1]
    assert final.stop_signal == "SIGTERM"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no FROM"),
        ("RUN true", "before the first FROM"),
        ("FROM debian:x-slim", "FROM base AS name"),
        ("FROM a AS b\nADD x /y", "ADD is not an instruction"),
        ("FROM a AS b\nRUN --network=none true", "only --mount=type=secret"),
        ("FROM a AS b\nCOPY --chown=1 x /y", "only --from=stage"),
        ("FROM a AS b\nCMD mustcall serve", "JSON list"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(dockerfile: ModuleType, text: str, problem: str, tmp_path: Path) -> None:
    """No step is skipped in silence."""
    (tmp_path / "Dockerfile").write_text(text, encoding="utf-8")
    with pytest.raises(dockerfile.DockerfileError, match=problem):
        dockerfile.read(tmp_path / "Dockerfile")


def test_a_stage_inherits(dockerfile: ModuleType, tmp_path: Path) -> None:
    """Arguments are filled in, lines joined, comments left out, and a stage goes on from the one it names."""
    (tmp_path / "Dockerfile").write_text(
        "ARG S=x\nFROM debian:${S}-slim AS a\nENV A=1 B=two\nWORKDIR /w\n# no\nRUN one \\\n    && two\n"
        'FROM a AS b\nENV C="$A$B"\nCOPY f g ./\nCOPY --from=a /p /q\nUSER 5:6\n',
        encoding="utf-8",
    )
    first, second = dockerfile.read(tmp_path / "Dockerfile")
    assert (first.base, first.steps[0].command, first.steps[0].folder) == ("debian:x-slim", "one && two", "/w")
    assert (second.base, second.environment) == ("a", {"A": "1", "B": "two", "C": "1two"})
    assert [(step.sources, step.target, step.stage) for step in second.steps] == [
        (("f", "g"), "/w/", None),
        (("/p",), "/q", "a"),
    ]


def test_what_the_image_copies_is_sent_to_the_daemon() -> None:
    """.dockerignore lets through what the Dockerfile copies, and nothing else."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]}
    let_through = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    assert copied == let_through
    assert all((ROOT / name).exists() for name in copied)


def test_the_compose_file() -> None:
    """The gateway is confined, reaches its database, and everything mounted from here exists."""
    services = load("compose.yaml")["services"]
    for name in ("gateway", "weights"):
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in services[name]["security_opt"]
    assert services["gateway"]["environment"]["DATABASE_URL"].startswith("postgresql://")
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (ROOT / volume.split(":")[0]).is_dir()
    scraped = load("deploy/prometheus/prometheus.yaml")["scrape_configs"][0]["static_configs"][0]["targets"]
    assert scraped == ["gateway:8484"]


def test_the_unit() -> None:
    """The unit waits until requests are answered, reloads with SIGHUP, and leaves time to stop."""
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # pyrefly: ignore[bad-assignment, method-assign]  names are case sensitive
    unit.read_string((ROOT / "deploy" / "systemd" / "mustcall.service").read_text(encoding="utf-8"))
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert int(service["TimeoutStopSec"]) > 10
    hardening = ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "RestrictNamespaces")
    assert [service[name] for name in hardening] == ["yes"] * len(hardening)
    assert service["ProtectSystem"] == "strict"


def test_the_chart() -> None:
    """The chart is of this version, runs as the image's user, and every value has a place in its schema."""
    chart, values = load("deploy/helm/mustcall/Chart.yaml"), load("deploy/helm/mustcall/values.yaml")
    assert chart["appVersion"] == PROJECT["version"]
    schema = json.loads((ROOT / "deploy" / "helm" / "mustcall" / "values.schema.json").read_text(encoding="utf-8"))
    assert set(values) == set(schema["properties"]) - {"global"}
    templates = {
        path.name: path.read_text(encoding="utf-8") for path in (ROOT / "deploy/helm/mustcall").rglob("*.yaml")
    }
    deployment = templates["deployment.yaml"]
    assert "runAsUser: 10001" in deployment
    assert "readOnlyRootFilesystem: true" in deployment
    for name in values:
        assert any(f".Values.{name}" in text for text in templates.values()), name


def test_the_workflows() -> None:
    """CI tests every Python that the project names, and only the publishing jobs may write or sign."""
    ci, release = load(".github/workflows/ci.yaml"), load(".github/workflows/release.yaml")
    named = [found[1] for one in PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", one))]
    for job in ("test", "installed"):
        assert ci["jobs"][job]["strategy"]["matrix"]["python"] == named
    assert ci["permissions"] == release["permissions"] == {"contents": "read"}
    assert not [name for name, job in ci["jobs"].items() if "permissions" in job]
    assert {name for name, job in release["jobs"].items() if job.get("permissions", {}).get("id-token")} == {
        "publish",
        "image",
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for step in (step for job in ci["jobs"].values() for step in job["steps"]):
        for target in re.findall(r"^make ([\w-]+)", step.get("run", "")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_no_action_follows_a_branch() -> None:
    """Every action is named by a version (one has release branches, as its authors ask)."""
    for path in (ROOT / ".github" / "workflows").glob("*.yaml"):
        for used in re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8")):
            assert used.startswith("./") or re.search(r"@(?:v\d+|release/v\d+)$", used), used


def test_lines_are_as_short_as_the_linter_wants_them() -> None:
    """`make deploy-lint` runs yamllint, which needs the package index; its most frequent finding is looked for here."""
    (most,) = re.findall(r"line-length: \{max: (\d+)\}", (ROOT / "tools" / "deploy_lint").read_text(encoding="utf-8"))
    files = [ROOT / "compose.yaml", *(ROOT / ".github").rglob("*.y*ml"), *(ROOT / "deploy").rglob("*.y*ml")]
    templates = ROOT / "deploy" / "helm" / "mustcall" / "templates"
    assert len(files) > 8
    for file in files:
        if not file.is_relative_to(templates):
            assert max(map(len, file.read_text(encoding="utf-8").splitlines())) <= int(most), file
