"""Other gateways beside ours: installs them outside the checkout, starts them on the scripted upstream, runs the bench.

    python benchmarks/peers.py install DIR [--python PYTHON]     # once; PYTHON must be 3.12 or later for forge
    python benchmarks/peers.py run DIR [--only NAME] -- --quick  # everything after -- goes to `mustcall bench`

Each gets a virtual environment of its own in DIR, the settings of its own documentation for an OpenAI-compatible
upstream, and no telemetry, database or log of requests. TensorZero comes as the gateway that its Python package
carries. `docs/benchmarks.md` says what was found.
"""

import argparse
import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

UPSTREAM_PORT = 9100
#: LiteLLM takes about a minute on a small machine.
START_SECONDS = 240.0
MODELS = ("text", "call", "groups", "paced", "burst")

LITELLM_SETTINGS = """\
model_list:
  - model_name: "*"
    litellm_params:
      model: "openai/*"
      api_base: "{upstream}"
      api_key: "sk-bench"
litellm_settings:
  telemetry: false
"""

TENSORZERO_MODEL = """\
[models.bench-{model}]
routing = ["bench"]
[models.bench-{model}.providers.bench]
type = "openai"
model_name = "bench-{model}"
api_base = "{upstream}/"
api_key_location = "none"
"""

#: Starts the HTTP gateway inside the package and says where it listens.
TENSORZERO_SCRIPT = """\
import sys, threading
from tensorzero import _start_http_gateway
gateway = _start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
)
print(gateway.base_url, flush=True)
threading.Event().wait()
"""


class Peer(NamedTuple):
    """One gateway: what pip installs, how it is started, and what `mustcall bench` must know."""

    name: str
    package: str
    command: tuple[str, ...]
    port: int
    model: str = "{model}"
    environment: tuple[tuple[str, str], ...] = ()


PEERS = (
    Peer(
        "litellm",
        "litellm[proxy]",
        ("bin/litellm", "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", "9101"),
        9101,
        environment=(
            ("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
            ("LITELLM_LOG", "ERROR"),
        ),
    ),
    Peer(
        "forge",
        "forge-guardrails",
        (
            *("bin/python", "-m", "forge.proxy", "--backend", "openai", "--backend-url", "{upstream}"),
            *("--host", "127.0.0.1", "--port", "9102"),
        ),
        9102,
    ),
    Peer(
        "tensorzero", "tensorzero", ("bin/python", "start.py", "tensorzero.toml"), 0, "tensorzero::model_name::{model}"
    ),
    Peer(
        "sglang-router",
        "sglang-router",
        (
            # The backend for any server of the OpenAI API: SGLang's own must answer for its health before it is used.
            *("bin/sglang-router", "launch", "--backend", "openai", "--worker-urls", "{origin}"),
            *("--disable-health-check", "--log-level", "error"),
            *("--host", "127.0.0.1", "--port", "9103", "--prometheus-port", "9104"),
        ),
        9103,
    ),
)


def settings(upstream: str) -> dict[str, str]:
    """Return the files that the peers read."""
    models = "\n".join(TENSORZERO_MODEL.format(model=model, upstream=upstream) for model in MODELS)
    return {
        "litellm.yaml": LITELLM_SETTINGS.format(upstream=upstream),
        "tensorzero.toml": f"[gateway.observability]\nenabled = false\n\n{models}",
        "start.py": TENSORZERO_SCRIPT,
    }


def wanted(names: list[str]) -> list[Peer]:
    """Return the peers of these names, all if none is named."""
    return [peer for peer in PEERS if not names or peer.name in names]


def install(folder: Path, names: list[str], python: str) -> int:
    """Make an environment for each peer; say which could not be had."""
    missing = 0
    for peer in wanted(names):
        home = folder / peer.name
        commands = [[python, "-m", "venv", str(home)], [str(home / "bin/pip"), "install", "-q", peer.package]]
        if all(subprocess.run(command, check=False).returncode == 0 for command in commands):
            print(f"{peer.name}: installed in {home}")
        else:
            missing += 1
            print(f"{peer.name}: cannot be installed with {python}; see above", file=sys.stderr)
    return 1 if missing else 0


@contextmanager
def started(peer: Peer, folder: Path, upstream: str) -> Generator[str]:
    """Start a peer and give its base URL once it answers; stop it at the end."""
    for name, text in settings(upstream).items():
        (folder / name).write_text(text, encoding="utf-8")
    log = folder / f"{peer.name}.log"
    program, *rest = (part.format(upstream=upstream, origin=upstream.removesuffix("/v1")) for part in peer.command)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    began = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str((folder / peer.name / program).absolute()), *rest],
            cwd=folder,
            env=kept | dict(peer.environment),
            stdout=output,
            stderr=output,
        )
    try:
        url = until_answering(peer, process, log)
        print(f"{peer.name}: answers at {url} after {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until_answering(peer: Peer, process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Wait until something answers where a peer listens, and return its base URL."""
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        url = f"http://127.0.0.1:{peer.port}/v1"
        if not peer.port:
            found = re.search(r"http://127\.0\.0\.1:\d+/\S+", log.read_text(encoding="utf-8", errors="replace"))
            url = found[0] if found else ""
        if url and answers(int(url.split(":")[2].split("/")[0])):
            return url
        time.sleep(0.1)
    last = log.read_text(encoding="utf-8", errors="replace")[-1500:]
    raise SystemExit(f"{peer.name} did not start:\n{last}")


def answers(port: int) -> bool:
    """Tell whether an HTTP server listens on a port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def run(folder: Path, names: list[str], arguments: list[str]) -> int:
    """Start what is installed and run `mustcall bench` with all of it."""
    upstream = f"http://127.0.0.1:{UPSTREAM_PORT}/v1"
    chosen = [peer for peer in wanted(names) if (folder / peer.name / "bin").is_dir()]
    if not chosen:
        raise SystemExit(f"no peer is installed in {folder}: run `python benchmarks/peers.py install {folder}`")
    flags = ["--upstream-port", str(UPSTREAM_PORT)]
    with ExitStack() as stack:
        for peer in chosen:
            url = stack.enter_context(started(peer, folder, upstream))
            flags += ["--peer", f"{peer.name}={url}", "--peer-model", f"{peer.name}={peer.model}"]
        command = [sys.executable, "-m", "mustcall", "bench", *flags, *arguments]
        return subprocess.run(command, check=False).returncode


def main() -> int:
    """Install or run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=("install", "run"))
    parser.add_argument("folder", type=Path, help="where the environments are; outside the checkout")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environments")
    parser.add_argument("--only", action="append", default=[], choices=[peer.name for peer in PEERS])
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:cut])
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.action == "install":
        return install(options.folder, options.only, options.python)
    return run(options.folder, options.only, given[cut + 1 :])


if __name__ == "__main__":
    sys.exit(main())
