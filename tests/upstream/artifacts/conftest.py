from collections.abc import Generator
from pathlib import Path

import pytest

from support.artifacts import FileServer, index_environment, install_quick_pip, serving


@pytest.fixture
def server() -> Generator[FileServer]:
    """A server with no file yet."""
    with serving() as made:
        yield made


@pytest.fixture
def pip_index(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> FileServer:
    """The same server, as the package index of this user's configuration."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "UV_FIND_LINKS", "UV_NO_INDEX", "UV_INDEX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in index_environment(server).items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def index(
    pip_index: FileServer, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> FileServer:
    """The index, with a pip that does nothing but download."""
    folder: Path = tmp_path_factory.mktemp("pip")
    for name, value in install_quick_pip(folder / "site").items():
        monkeypatch.setenv(name, value)
    return pip_index
