"""Starts the unit under a real systemd: `make unit-check`, as root on Linux, with debootstrap.

The system is the image of the Dockerfile (`tools/image_check.py` builds it) with systemd added, and the unit file as it
is in the repository. systemd runs as process 1 of namespaces of its own. The unit must become active only when requests
are answered, take over a new configuration on reload, keep the old one when the new one is wrong, and stop in time.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dockerfile import Run, read
from image_check import ROOT, build, run_step

_PATIENCE = 120.0
_PORT = 18484
_CONFIG = f"""\
[server]
port = {_PORT}
max_concurrency = LIMIT
[[upstream]]
name = "model"
wire = "chat"
base_url = "http://127.0.0.1:9/v1"
"""
#: What is asked of the service, inside. Each line must succeed.
_SCRIPT = f"""\
set -eu
say() {{ echo "  $*"; }}
metrics() {{ /opt/mustcall/bin/python -c "import urllib.request as u
print(u.urlopen('http://127.0.0.1:{_PORT}/metrics').read().decode())"; }}
systemctl start mustcall
metrics | grep -qx 'mustcall_requests_in_flight_limit 7.0'
say "active once requests are answered: $(systemctl show -p ActiveState,StatusText mustcall | tr '\\n' ' ')"
pid=$(systemctl show -p MainPID --value mustcall)
say "runs as $(ps -o user= -p $pid), $(grep NoNewPrivs /proc/$pid/status), $(grep CapEff /proc/$pid/status)"
test "$(ps -o user= -p $pid)" != root
sed -i 's/max_concurrency = 7/max_concurrency = 8/' /etc/mustcall/mustcall.toml
systemctl reload mustcall
until metrics | grep -qx 'mustcall_requests_in_flight_limit 8.0'; do sleep 0.1; done
say "reload took the new configuration over"
echo nonsense >> /etc/mustcall/mustcall.toml
systemctl reload mustcall
until metrics | grep -qx 'mustcall_config_reloads_total{{result="failed"}} 1.0'; do sleep 0.1; done
metrics | grep -qx 'mustcall_requests_in_flight_limit 8.0'
test "$(systemctl show -p MainPID --value mustcall)" = "$pid"
say "a wrong one was refused: $(systemctl show -p StatusText --value mustcall)"
test -f /var/lib/private/mustcall/mustcall/ledger.db
say "the ledger is in the state directory"
systemctl stop mustcall
systemctl is-failed mustcall && exit 1
say "stopped: $(systemctl show -p Result,ExecMainStatus mustcall | tr '\\n' ' ')"
systemd-analyze verify --man=no mustcall.service
say "$(systemd-analyze security --no-pager mustcall.service | tail -n 1)"
echo passed
"""
_CHECK = """\
[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/sh /check.sh
StandardOutput=file:/result
StandardError=file:/result.err
ExecStopPost=/bin/sh -c 'journalctl -u mustcall --no-pager > /result.log; systemctl --no-block poweroff --force'
"""


def main() -> None:
    """Build the system, start it, and print what the service did."""
    if os.geteuid() != 0 or sys.platform != "linux" or shutil.which("debootstrap") is None:
        sys.exit("unit-check needs Linux, root and debootstrap: it makes a file system and namespaces")
    with tempfile.TemporaryDirectory(prefix="mustcall-unit-") as folder:
        bases = Path(tempfile.gettempdir(), "mustcall-bases")
        system = build(read(ROOT / "Dockerfile"), Path(folder), bases, "http://deb.debian.org/debian", None)
        command = "apt-get update && apt-get install --yes --no-install-recommends systemd dbus procps"
        run_step(Run(command, {"DEBIAN_FRONTEND": "noninteractive"}, "/", {}), system, None)
        prepare(system)
        boot(system)
        show(system)


def prepare(system: Path) -> None:
    """Put the unit, its configuration and the check into the system."""
    shutil.copy(ROOT / "deploy" / "systemd" / "mustcall.service", system / "etc/systemd/system")
    for name in ("passwd", "shadow", "group", "gshadow"):  # the image's user: the unit must do with one made for it
        file = system / "etc" / name
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(line for line in lines if not line.startswith("mustcall:")), encoding="utf-8")
    (system / "etc/mustcall").mkdir()
    (system / "etc/mustcall/mustcall.toml").write_text(_CONFIG.replace("LIMIT", "7"), encoding="utf-8")
    (system / "check.sh").write_text(_SCRIPT, encoding="utf-8")
    (system / "etc/systemd/system/check.service").write_text(_CHECK, encoding="utf-8")
    (system / "etc/machine-id").write_text("", encoding="utf-8")


def boot(system: Path) -> None:
    """Run systemd as process 1 of new namespaces, until the check powers the system off."""
    quoted = shlex.quote(str(system))
    shared = f"{quoted}/dev/shm"  # noqa: S108  of the new system
    script = f"""
    mount --bind {quoted} {quoted}
    mount -t proc proc {quoted}/proc
    mount -t sysfs -o ro sysfs {quoted}/sys
    mount -t cgroup2 cgroup2 {quoted}/sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs {quoted}/dev
    for one in null zero full random urandom; do touch {quoted}/dev/$one; mount --bind /dev/$one {quoted}/dev/$one; done
    mkdir {quoted}/dev/pts {shared}
    mount -t tmpfs -o mode=1777 tmpfs {shared}
    mount -t devpts -o newinstance,ptmxmode=0666 devpts {quoted}/dev/pts
    ln -s pts/ptmx {quoted}/dev/ptmx
    mount -t tmpfs -o mode=755 tmpfs {quoted}/run
    cd {quoted}
    mkdir -p .old
    pivot_root . .old
    umount -l /.old
    exec env -i container=mustcall PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --unit=check.service --show-status=false
    """
    group = Path("/sys/fs/cgroup/unified" if Path("/sys/fs/cgroup/unified").is_dir() else "/sys/fs/cgroup")
    group /= f"mustcall-check-{os.getpid()}"
    group.mkdir()

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    started = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603
            [
                *("unshare", "--mount", "--pid", "--ipc", "--uts", "--cgroup", "--net", "--fork", "--kill-child"),
                *("/bin/sh", "-ec", f"ip link set lo up\n{script}"),
            ],
            preexec_fn=enter,  # noqa: PLW1509  no threads here
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        printed = process.communicate(timeout=_PATIENCE)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        printed = process.communicate()[0]
    finally:
        for child in sorted(group.rglob("*"), key=lambda path: -len(path.parts)):
            if child.is_dir():
                child.rmdir()
        group.rmdir()
    print(f"systemd ran for {time.monotonic() - started:.0f} s")
    if not (system / "result").exists():
        sys.exit(f"systemd did not come as far as the check:\n{printed[-3000:]}")


def show(system: Path) -> None:
    """Print what came of it; exit with 1 unless everything held."""
    result = (system / "result").read_text(encoding="utf-8")
    print(result, end="")
    if not result.endswith("passed\n"):
        print((system / "result.err").read_text(encoding="utf-8"))
        log = system / "result.log"
        sys.exit(log.read_text(encoding="utf-8") if log.exists() else "there is no journal")


if __name__ == "__main__":
    main()
