"""Carries the Dockerfile out without a daemon, and checks the container it makes (`make image-check`, Linux, root).

The steps are read from the Dockerfile, none is repeated here. `FROM debian:SUITE-slim` is debootstrap's minimal system
of that suite; everything after it runs as written, each RUN in a chroot in namespaces of its own. The image is then
started as `docker run --read-only --cap-drop ALL --security-opt no-new-privileges` would: its own user, a read-only
root, a tmpfs on /tmp, and its volume. It must answer a request with a forced tool call, pass its own HEALTHCHECK, fail
to write anywhere but the volume, and stop on its STOPSIGNAL. `MUSTCALL_CACHE` may hold the embedded model's weights.
"""

import argparse
import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from pathlib import Path

from dockerfile import Copy, Run, Stage, read

from mustcall.testing import Call, ScriptedUpstream, Turn
from mustcall.upstream.embedded.catalogue import FALLBACK, find_weights
from mustcall.upstream.embedded.store import WeightStore

ROOT = Path(__file__).resolve().parent.parent
_PATIENCE = 120.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHROOT = shutil.which("chroot", path=_PATH)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_TRUST = "/etc/ssl/certs/ca-certificates.crt"
_ASK = {
    "model": "local",
    "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
    "tool_choice": "required",
}


def main() -> None:
    """Build, start, check; exit with 1 and a sentence where something is not as promised."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", help="where Debian's packages come from")
    parser.add_argument("--bases", type=Path, default=Path(tempfile.gettempdir(), "mustcall-bases"))
    parser.add_argument("--pip-conf", type=Path, help="the build's secret `pip`: settings for another package index")
    chosen = parser.parse_args()
    if os.geteuid() != 0 or sys.platform != "linux":
        sys.exit("image-check needs Linux and root: it makes file systems and namespaces")
    if shutil.which("debootstrap") is None:
        sys.exit("image-check needs debootstrap: apt-get install debootstrap")
    stages = read(ROOT / "Dockerfile")
    with tempfile.TemporaryDirectory(prefix="mustcall-image-") as folder:
        image = build(stages, Path(folder), chosen.bases, chosen.mirror, chosen.pip_conf)
        size = sum(file.lstat().st_size for file in image.rglob("*") if file.is_file() and not file.is_symlink())
        print(f"built {stages[-1].name}: {size / 1e6:.0f} MB, of which /opt {_size(image / 'opt') / 1e6:.0f} MB")
        check_files(image, stages[-1])
        check_with_upstream(image, stages[-1], Path(folder))
        check_embedded(image, stages[-1], Path(folder))
    print("ok: the image's steps run, and its server answers as a non-root user on a read-only root")


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


# --- building ---------------------------------------------------------------------------------------------------------


def build(stages: list[Stage], folder: Path, bases: Path, mirror: str, pip_conf: Path | None) -> Path:
    """Carry the steps of every stage out; return the root of the last."""
    roots: dict[str, Path] = {}
    for stage in stages:
        origin = roots.get(stage.base) or _base(stage.base, bases, mirror)
        root = roots[stage.name] = folder / stage.name
        subprocess.run(["cp", "--archive", "--reflink=auto", origin, root], check=True)  # noqa: S603, S607
        print(f"stage {stage.name}: from {stage.base}, {len(stage.steps)} steps", flush=True)
        for step in stage.steps:
            if isinstance(step, Copy):
                _copy(step, root, roots)
            else:
                run_step(step, root, pip_conf)
    return roots[stages[-1].name]


def _base(image: str, bases: Path, mirror: str) -> Path:
    """Return Debian's minimal system for `debian:SUITE-slim`, made once."""
    suite = image.removeprefix("debian:").removesuffix("-slim")
    if image != f"debian:{suite}-slim":
        sys.exit(f"FROM {image}: only debian:SUITE-slim can be made without a registry")
    made = bases / suite
    if not (made / ".complete").exists():
        print(f"debootstrap {suite}, once, into {made}", flush=True)
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        subprocess.run(["debootstrap", "--variant=minbase", suite, made, mirror], check=True, stdout=subprocess.DEVNULL)  # noqa: S603, S607
        (made / ".complete").touch()
    return made


def _copy(step: Copy, root: Path, roots: dict[str, Path]) -> None:
    origin = roots[step.stage] if step.stage is not None else ROOT
    target = root / step.target.lstrip("/")
    for source in step.sources:
        found = origin / source.lstrip("/")
        into = target / found.name if step.target.endswith("/") else target
        into.parent.mkdir(parents=True, exist_ok=True)
        if found.is_dir():
            ignored = shutil.ignore_patterns("__pycache__") if step.stage is None else None
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy2(found, into)


def run_step(step: Run, root: Path, pip_conf: Path | None) -> None:
    """Run one command in the stage, with the network and the certificates of this machine."""
    print(f"  RUN {step.command[:100]}", flush=True)
    mounts = _system_mounts(root)
    mounts += _bound(Path("/etc/resolv.conf"), root)
    if (root / _TRUST.lstrip("/")).exists():  # the network here may be behind an authority of its own
        mounts += _bound(Path(os.environ.get("SSL_CERT_FILE", _TRUST)), root, _TRUST)
    if "pip" in step.secrets and pip_conf is not None:
        mounts += _bound(pip_conf, root, step.secrets["pip"])
    (root / step.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    inside = f"cd {shlex.quote(step.folder)} && {step.command}"
    script = [*mounts, f"exec {_CHROOT} {shlex.quote(str(root))} /bin/sh -ec {shlex.quote(inside)}"]
    done = subprocess.run(  # noqa: S603  the steps of our own Dockerfile
        _isolated("\n".join(script)),
        env={"PATH": _PATH, "HOME": "/root", **step.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the step failed with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")


def _isolated(script: str) -> list[str]:
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "/bin/sh", "-ec", script]


def _system_mounts(root: Path) -> list[str]:
    """Return the commands that mount what every process needs, and nothing of this machine's devices besides."""
    commands = [f"mount -t proc proc {root}/proc", f"mount -t tmpfs -o mode=755 tmpfs {root}/dev"]
    for device in _DEVICES:
        commands += (f"touch {root}/dev/{device}", f"mount --bind /dev/{device} {root}/dev/{device}")
    return [*commands, f"mkdir {root}/dev/shm", f"mount -t tmpfs -o mode=1777 tmpfs {root}/dev/shm"]  # noqa: S108


def _bound(file: Path, root: Path, at: str | None = None) -> list[str]:
    """Return the commands that show a file of this machine read-only in the root; its place is made now."""
    place = root / (at or str(file)).lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        place.touch()
    real = file.resolve()
    return [f"mount --bind {real} {place}", f"mount -o remount,bind,ro {place}"] if real.exists() else []


# --- running ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def container(
    image: Path, stage: Stage, volume: Path, environment: dict[str, str], *, arguments: tuple[str, ...] = ()
) -> Generator[tuple[int, "subprocess.Popen[str]"]]:
    """Start the image as a container: yield the process id of its server."""
    uid, gid = stage.user.split(":")
    if not volume.exists():  # a new volume has what the image has there, and its owner
        subprocess.run(["cp", "--archive", image / stage.volumes[0].lstrip("/"), volume], check=True)  # noqa: S603, S607
    commands = [f"mount --bind {image} {image}", f"mount -o remount,bind,ro {image}", *_system_mounts(image)]
    commands.append(f"mount -t tmpfs -o mode=1777 tmpfs {image}/tmp")  # noqa: S108  the container's own
    commands.append(f"mount --bind {volume} {image}{stage.volumes[0]}")
    started = shlex.join([*stage.entrypoint, *(arguments or stage.command)])
    inside = f"cd {stage.folder} && exec setpriv --reuid {uid} --regid {gid} --clear-groups --no-new-privs "
    inside += f"--bounding-set=-all --inh-caps=-all -- {started}"
    commands.append(f"exec {_CHROOT} {image} /bin/sh -ec {shlex.quote(inside)}")
    process = subprocess.Popen(  # noqa: S603  our own image
        _isolated("\n".join(commands)),
        env={"PATH": _PATH, **stage.environment, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    server = 0
    try:
        server = _first_child(process)
        yield server, process
    finally:
        if process.poll() is None:
            if server:  # `--kill-child` does not reach it: a change of user ends the tie to its parent
                os.kill(server, signal.SIGKILL)
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _first_child(process: "subprocess.Popen[str]") -> int:
    """Return the process that is number 1 in the container."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii").split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    sys.exit(f"the container did not start: {process.communicate()[0]}")


def _within(server: int, stage: Stage, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the container, as its user."""
    uid, gid = stage.user.split(":")
    entered = ["nsenter", "--target", str(server), "--mount", "--pid", "--root", "--wd"]
    dropped = ["setpriv", "--reuid", uid, "--regid", gid, "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
    return subprocess.run(  # noqa: S603
        [*entered, *dropped, "--", *words],
        env={"PATH": _PATH, **stage.environment, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def _answering(url: str, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5):  # noqa: S310
            return
        time.sleep(0.05)
    process.kill()
    sys.exit(f"the server did not answer: {process.communicate()[0]}")


def _calls(url: str) -> list[str]:
    """Ask with a forced tool; return the names of what was called."""
    body = json.dumps(_ASK).encode()
    request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"content-type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE) as reply:  # noqa: S310  loopback
            message = json.load(reply)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        sys.exit(f"not as promised: a request got {error.code}: {error.read().decode()}")
    return [call["function"]["name"] for call in message["tool_calls"]]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# --- checks -----------------------------------------------------------------------------------------------------------


def _must(holds: bool, sentence: str) -> None:
    if not holds:
        sys.exit(f"not as promised: {sentence}")
    print(f"  {sentence}", flush=True)


def check_files(image: Path, stage: Stage) -> None:
    """Check what the image holds, before anything of it runs."""
    uid = int(stage.user.split(":")[0])
    _must(uid != 0, f"the image's user is {uid}, not root")
    theirs = [file for file in image.rglob("*") if not file.is_symlink() and file.lstat().st_uid == uid]
    allowed = [image / volume.lstrip("/") for volume in stage.volumes]
    _must(theirs == allowed, f"of all files the user owns only {', '.join(stage.volumes)}")
    _must(not list(image.glob("opt/mustcall/bin/pip*")), "there is no installer in the image")
    _must(not (image / "usr/bin/gcc").exists(), "there is no compiler in the image")


def check_with_upstream(image: Path, stage: Stage, folder: Path) -> None:
    """Check a gateway that is configured by variables alone, on an upstream of this machine."""
    print("a container on an upstream named in MUSTCALL_UPSTREAM:")
    with ScriptedUpstream([Turn(Call("get_weather", {"city": "Oslo"}))]) as upstream:
        port = _free_port()
        environment = {"MUSTCALL_UPSTREAM": f"chat={upstream.base_url}", "MUSTCALL_PORT": str(port)}
        with container(image, stage, folder / "volume", environment) as (server, process):
            url = f"http://127.0.0.1:{port}"
            _answering(url, process)
            _must(_calls(url) == ["get_weather"], "a forced tool call came back")
            _check_confinement(server, stage, environment)
            healthy = _within(server, stage, environment, *stage.health)
            _must(healthy.returncode == 0, "HEALTHCHECK passes while it serves")
            os.kill(server, getattr(signal, stage.stop_signal))
            process.wait(_PATIENCE)
            _must("Traceback" not in process.communicate()[0], f"{stage.stop_signal} ends it without a traceback")
    _must((folder / "volume/state/mustcall/ledger.db").exists(), "the ledger is in the volume")
    with contextlib.suppress(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5)
        sys.exit("not as promised: the server is gone after its stop signal")


def _check_confinement(server: int, stage: Stage, environment: dict[str, str]) -> None:
    """Check what the running server may do, by the kernel's own account and by trying."""
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{server}/status").read_text(encoding="ascii").splitlines()
        if ":\t" in line
    )
    uid = stage.user.split(":")[0]
    _must(set(status["Uid"].split()) == {uid}, f"the server runs as {uid}")
    _must(int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, "it has no capability and can get none")
    _must(status["NoNewPrivs"] == "1", "it can gain no privileges")
    for place in ("/", "/opt/mustcall", "/etc", "/var/tmp"):  # noqa: S108
        tried = _within(server, stage, environment, "touch", f"{place}/written")
        _must("Read-only file system" in tried.stderr, f"{place} is read-only")
    tried = _within(server, stage, environment, "touch", f"{stage.volumes[0]}/written")
    _must(tried.returncode == 0, f"{stage.volumes[0]} can be written")


def check_embedded(image: Path, stage: Stage, folder: Path) -> None:
    """Check the image as it is started with nothing set: the model in the process, its weights in the volume."""
    weights = WeightStore().path(find_weights(FALLBACK))
    if not weights.exists():
        print(f"not checked: the embedded model; `mustcall models pull {FALLBACK}` fetches its weights")
        return
    print(f"a container with nothing set but the port, and {FALLBACK} in its volume:")
    into = folder / "volume/cache/models"
    into.mkdir(parents=True, exist_ok=True)
    shutil.copy2(weights, into)
    for path in (into.parent, into, into / weights.name):
        os.chown(path, *map(int, stage.user.split(":")))
    port = _free_port()
    with container(image, stage, folder / "volume", {"MUSTCALL_PORT": str(port)}) as (_, process):
        _answering(f"http://127.0.0.1:{port}", process)
        _must(_calls(f"http://127.0.0.1:{port}") == ["get_weather"], "the model made the forced call")


if __name__ == "__main__":
    main()
