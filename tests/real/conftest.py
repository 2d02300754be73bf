"""A real model for each module of this folder: the 135M on llama.cpp's own server, and a relay in front of it.

What the server itself does is observed on it with a model that is made for tests, unless `MUSTCALL_TEST_MODEL=real`.
"""

import os
from collections.abc import Generator

import pytest

from mustcall.testing import LlamaServer, RunningGateway
from support.relaying import Relay
from support.served import KeptServer
from support.tiny import tiny_model


@pytest.fixture(scope="module")
def kept() -> Generator[KeptServer]:
    """The server with what it has answered before; a module that asks nothing new does not start it."""
    server = KeptServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def server(kept: KeptServer, tmp_path_factory: pytest.TempPathFactory) -> Generator[LlamaServer]:
    """The server itself, running."""
    if os.environ.get("MUSTCALL_TEST_MODEL") == "real":
        yield kept.started()
        return
    with LlamaServer(tiny_model(tmp_path_factory.mktemp("models")), context=4096) as running:
        yield running


@pytest.fixture(scope="module")
def relay(kept: KeptServer) -> Generator[Relay]:
    """Count and keep what the server is asked."""
    with Relay(kept) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(relay: Relay) -> Generator[RunningGateway]:
    """One gateway without any setting, on the server's chat wire."""
    with RunningGateway(f"chat={relay.base_url}") as running:
        yield running
