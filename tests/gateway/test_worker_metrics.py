"""The metrics of several processes: one page for all of them, and counts that outlive whoever counted."""

import contextlib
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

from gateway.test_workers import HELLO, serving, until, workers_of
from mustcall.telemetry import sharing
from mustcall.telemetry.sharing import SharedDirectory
from support.http import call, post
from support.metrics import samples


def count(url: str, name: str) -> float:
    """A sample of the page."""
    return samples(call("GET", f"{url}/metrics").body).get(name, 0.0)


def turns(url: str) -> float:
    """All turns of the page."""
    page = samples(call("GET", f"{url}/metrics").body)
    return sum(value for name, value in page.items() if name.startswith("mustcall_turns_total"))


def test_counts_survive_the_death_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 117: all workers are one page; after kill -9 of each its counts are still there, and its gauges are not.

    Nothing of the shared directory is left when the gateway has stopped.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with serving("--demo") as (url, process):
        for _ in range(12):
            assert post(f"{url}/v1/chat/completions", HELLO).status == 200
        until(lambda: turns(url) == 12)
        for killed in (1, 2):
            before = workers_of(process.pid)
            os.kill(before[0], signal.SIGKILL)
            until(lambda before=before: before[0] not in workers_of(process.pid) and len(workers_of(process.pid)) == 2)
            assert post(f"{url}/v1/chat/completions", HELLO).status == 200
            until(lambda killed=killed: turns(url) == 12 + killed)  # a worker hands its counts over twice a second
        assert count(url, 'mustcall_requests_total{route="chat",status="200"}') == 14
        assert count(url, 'mustcall_request_duration_seconds_count{route="chat"}') == 14
        until(lambda: count(url, "mustcall_requests_in_flight_limit") == 2000)
        (directory,) = tmp_path.glob("mustcall-metrics-*")
        assert directory.stat().st_mode & 0o077 == 0
        assert len(list(directory.glob("counter_*.db"))) == 3  # two that serve, and one for all that ended
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=180)
    assert list(tmp_path.glob("mustcall-metrics-*")) == []


def test_names_of_models_are_bounded_for_all_workers(tmp_path: Path) -> None:
    """Processes share the bound: what one of them has claimed counts for the others."""
    one, other = SharedDirectory(tmp_path), SharedDirectory(tmp_path)
    assert one.claim("a", 2) == {"a"}
    assert other.claim("b", 2) == {"a", "b"}
    assert one.claim("c", 2) == {"a", "b"}


def test_a_directory_without_room_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full costs the common page and no request: a mapped file would kill its process."""

    def full(_file: Path, _size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sharing, "_set_aside", full)
    assert not SharedDirectory(tmp_path).prepare(1)
    assert list(tmp_path.iterdir()) == []
    assert SharedDirectory(tmp_path / "gone").claim("a", 2) == set()


def test_room_is_set_aside_where_the_system_has_no_call_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS the bytes are written; a file that grows keeps what is in it."""
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    assert SharedDirectory(tmp_path).prepare(7)
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert len(sizes) == 5
    assert min(sizes.values()) >= 1 << 16
    counted = tmp_path / "counter_7.db"
    sharing._set_aside(counted, 1 << 16)
    assert counted.stat().st_size == sizes["counter_7.db"]
    sharing._set_aside(counted, 3 << 20)
    assert counted.stat().st_size == 3 << 20


@pytest.mark.parametrize("done", range(11))
def test_a_worker_may_be_killed_while_it_makes_its_files(
    tmp_path: Path, done: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed after any number of steps: each file that has its name can be read, and nothing of it is left."""
    script = """
import os, sys
from pathlib import Path
from mustcall.telemetry import sharing
left = int(sys.argv[2])
def counted(step):
    def take(*given):
        global left
        if not left:
            os.kill(os.getpid(), 9)
        left -= 1
        return step(*given)
    return take
sharing._set_aside, Path.replace = counted(sharing._set_aside), counted(Path.replace)
sharing.SharedDirectory(Path(sys.argv[1])).prepare(7)
"""
    given = [sys.executable, "-c", script, str(tmp_path), str(done)]
    ended = subprocess.run(given, check=False)  # noqa: S603  our own script
    assert ended.returncode == (0 if done == 10 else -signal.SIGKILL)
    assert len(list(tmp_path.glob("*.db"))) == max(0, done - 5)
    for file in tmp_path.glob("*.db"):
        assert list(MmapedDict.read_all_values_from_file(str(file))) == []
    SharedDirectory(tmp_path).bury(7)
    assert not caplog.messages
    assert [file.name for file in tmp_path.iterdir() if "_7." in file.name] == []


def entry(key: bytes, length: int | None = None, value: float = 1.0) -> bytes:
    """Return what a file has for a key that counts one, or something else."""
    padded = key + b" " * (8 - (len(key) + 4) % 8)
    return struct.pack(f"=i{len(padded)}sdd", len(key) if length is None else length, padded, value, 2.0)


def mapped(*entries: bytes, used: int | None = None) -> bytes:
    """Return a file with these entries, of which so many bytes are said to be in use."""
    content = b"".join(entries)
    return struct.pack("=ii", 8 + len(content) if used is None else used, 0) + content


FINE = entry(b'["a","a_total",{"model":"m"},"Text."]')
DAMAGED = [
    b"",
    b"\x7f" * 100_000,
    b"\xff" * 100_000,
    mapped(FINE, used=-1),
    mapped(FINE, used=4),
    mapped(FINE, used=8 + len(FINE) - 8),
    mapped(FINE, used=8 + len(FINE) + 8),
    mapped(FINE, entry(b"", length=-24)),
    mapped(FINE, entry(b"", length=99)),
    *(
        mapped(FINE, entry(key))
        for key in (
            b"\xff" * 12,
            b"no JSON here",
            b"12",
            b'["a", 1]',
            b'["a","b",[],"d"]',
            b'["a","a_bucket",{"le":"0,5"},"T"]',
            b'[["a"],"a",{},"T"]',
            b'["","a",{},"T"]',
            b'["a","a",{},5]',
            b'["a",5,{},"T"]',
            b'["a","a",{"x":null},"T"]',
            b'["a\\n","a",{},"T"]',
        )
    ),
    *(mapped(FINE, entry(b'["b","b",{},"T"]', value=value)) for value in (float("nan"), float("inf"), -1.0)),
]


@pytest.mark.parametrize("content", DAMAGED)
def test_counts_that_cannot_be_read_stop_nothing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged file of an ended worker costs its counts and a line in the log; the page goes on without them."""
    shared = SharedDirectory(tmp_path)
    assert shared.prepare(7)
    (tmp_path / "counter_7.db").write_bytes(content)
    shared.bury(7)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the counts of worker 7 are lost: counter_7.db cannot be read (")
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["histogram_ended.db"]
    collector = MultiProcessCollector(CollectorRegistry(), str(tmp_path))
    assert list(collector.collect()) == []


@pytest.mark.parametrize("content", DAMAGED)
def test_damaged_counts_of_all_ended_workers_are_begun_anew(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the counts of those that ended before cannot be read, those of the next one are still kept."""
    shared = SharedDirectory(tmp_path)
    assert shared.prepare(7)
    key = mmap_key("a", "a_total", ["model"], ["m"], "Text.")
    with contextlib.closing(MmapedDict(str(tmp_path / "counter_7.db"))) as counts:
        counts.write_value(key, 3.0, 0.0)
    (tmp_path / "counter_ended.db").write_bytes(content)
    shared.bury(7)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("the counts of ended workers are lost: counter_ended.db cannot be read (")
    found = list(MmapedDict.read_all_values_from_file(str(tmp_path / "counter_ended.db")))
    assert [(one, value) for one, value, _, _ in found] == [(key, 3.0)]
    assert [file.name for file in tmp_path.iterdir() if "_7." in file.name] == []


def test_what_the_dead_counted_is_added_up(tmp_path: Path) -> None:
    """The files of ended processes become one, however many there were; sums and buckets are added."""
    script = """
import sys
from mustcall.telemetry.events import TurnEnded
from mustcall.telemetry.prometheus import Gauges, Metrics
from mustcall.telemetry.sharing import shared_directory
import os
metrics = Metrics(1.0)
metrics.counts.take(TurnEnded(at=0.0, route="chat", status=200, seconds=0.2, upstream="up", class_="passed"))
metrics.update(Gauges(in_flight=7, limit=10))
print(os.getpid())
"""
    shared = SharedDirectory(tmp_path)
    for _ in range(3):
        ended = subprocess.run(  # noqa: S603  our own script
            [sys.executable, "-c", script],
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        shared.bury(int(ended.stdout))
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["counter_ended.db", "histogram_ended.db"]
    asking = script.replace("os.getpid())\n", "metrics.page(Gauges(in_flight=1, limit=9)).decode())\n")
    page = subprocess.run(  # noqa: S603  our own script
        [sys.executable, "-c", asking],
        env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.encode()
    counted = samples(page)
    assert counted['mustcall_requests_total{route="chat",status="200"}'] == 4
    assert counted['mustcall_request_duration_seconds_bucket{le="0.25",route="chat"}'] == 4
    assert counted['mustcall_request_duration_seconds_sum{route="chat"}'] == pytest.approx(0.8)
    assert counted["mustcall_requests_in_flight"] == 1
    assert counted["mustcall_requests_in_flight_limit"] == 9
