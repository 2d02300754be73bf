"""Reads a Dockerfile into its stages, for `tools/image_check.py`: as much of the format as this repository uses.

What it does not know it refuses by name; a step that is skipped would be a check that lies.
"""

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Copy", "DockerfileError", "Run", "Stage", "read"]


class DockerfileError(Exception):
    """The file has something that cannot be carried out here."""


@dataclass(frozen=True)
class Run:
    """A command of a stage, with the environment, the directory and the secrets it gets."""

    command: str
    environment: dict[str, str]
    folder: str
    #: Where each secret is mounted, by its id.
    secrets: dict[str, str]


@dataclass(frozen=True)
class Copy:
    """Files put into a stage: from the repository, or from an earlier stage."""

    sources: tuple[str, ...]
    target: str
    stage: str | None


@dataclass
class Stage:
    """One stage: what it starts from, its steps in order, and what a container of it is started with."""

    base: str
    name: str
    steps: list[Run | Copy] = field(default_factory=list[Run | Copy])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    folder: str = "/"
    user: str = "0:0"
    volumes: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    health: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"

    def child(self, name: str) -> "Stage":
        """Return a stage that goes on from this one."""
        return Stage(
            base=self.name,
            name=name,
            environment=dict(self.environment),
            folder=self.folder,
            user=self.user,
            volumes=self.volumes,
            ports=self.ports,
            entrypoint=self.entrypoint,
            command=self.command,
            health=self.health,
            stop_signal=self.stop_signal,
        )


def read(path: Path) -> list[Stage]:
    """Return the stages of a Dockerfile, the last being the image."""
    stages: list[Stage] = []
    arguments: dict[str, str] = {}
    for word, text in _instructions(path.read_text(encoding="utf-8")):
        if word == "ARG":
            name, _, value = text.partition("=")
            arguments[name] = value
        elif word == "FROM":
            found = re.fullmatch(r"(\S+) AS (\S+)", _filled(text, arguments))
            if found is None:
                raise DockerfileError(f"FROM {text}: write it as FROM base AS name")
            earlier = next((stage for stage in stages if stage.name == found[1]), None)
            stages.append(earlier.child(found[2]) if earlier else Stage(base=found[1], name=found[2]))
        else:
            if not stages:
                raise DockerfileError(f"{word} stands before the first FROM")
            _apply(stages[-1], word, text)
    if not stages:
        raise DockerfileError("there is no FROM")
    return stages


def _instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions, comments left out and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        found.append((word.upper(), re.sub(r" {2,}", " ", rest.strip())))
    return found


def _apply(stage: Stage, word: str, text: str) -> None:
    match word:
        case "RUN":
            stage.steps.append(_run(stage, text))
        case "COPY":
            stage.steps.append(_copy(stage, text))
        case "ENV":
            pairs = (pair.partition("=") for pair in shlex.split(_filled(text, stage.environment)))
            stage.environment |= {name: value for name, _, value in pairs}
        case "WORKDIR":
            stage.folder = text
        case "USER":
            stage.user = text
        case "VOLUME":
            stage.volumes = _words(text, word)
        case "EXPOSE":
            stage.ports = tuple(int(port) for port in text.split())
        case "ENTRYPOINT":
            stage.entrypoint = _words(text, word)
        case "CMD":
            stage.command = _words(text, word)
        case "HEALTHCHECK":
            options, _, command = text.partition("CMD ")
            if any(not option.startswith("--") for option in options.split()):
                raise DockerfileError(f"HEALTHCHECK {text}: write it as HEALTHCHECK --options CMD [...]")
            stage.health = _words(command, "HEALTHCHECK CMD")
        case "STOPSIGNAL":
            stage.stop_signal = text
        case "LABEL":
            pass
        case _:
            raise DockerfileError(f"{word} is not an instruction that can be carried out here")


def _run(stage: Stage, text: str) -> Run:
    secrets: dict[str, str] = {}
    while text.startswith("--"):
        flag, _, text = text.partition(" ")
        found = re.fullmatch(r"--mount=type=secret,id=(\w+),target=(\S+)", flag)
        if found is None:
            raise DockerfileError(f"RUN {flag}: only --mount=type=secret,id=…,target=… can be carried out here")
        secrets[found[1]] = found[2]
    return Run(text, dict(stage.environment), stage.folder, secrets)


def _copy(stage: Stage, text: str) -> Copy:
    origin = None
    while text.startswith("--"):
        flag, _, text = text.partition(" ")
        if not flag.startswith("--from="):
            raise DockerfileError(f"COPY {flag}: only --from=stage can be carried out here")
        origin = flag.removeprefix("--from=")
    *sources, target = text.split()
    if not target.startswith("/"):
        target = f"{stage.folder.rstrip('/')}/{target.removeprefix('./')}"
    return Copy(tuple(sources), target, origin)


def _words(text: str, word: str) -> tuple[str, ...]:
    try:
        return tuple(json.loads(text))
    except ValueError:
        raise DockerfileError(f'{word} {text}: write it as a JSON list, ["a", "b"]') from None


def _filled(text: str, values: dict[str, str]) -> str:
    """Put values in for `$NAME` and `${NAME}`; an unknown one is empty, as in Docker."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: values.get(found[1] or found[2], ""), text)
