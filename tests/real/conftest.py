"""A real model for each module of this folder: the 135M on llama.cpp's own server, and a relay in front of it."""

from collections.abc import Generator

import pytest

from mustcall.testing import LlamaServer, RunningGateway
from support.embedded import readied
from support.relaying import Relay


@pytest.fixture(scope="module")
def server() -> Generator[LlamaServer]:
    """Run the server with its own defaults; the context bounds what a reply without end can cost."""
    readied()
    with LlamaServer("smollm2-135m", context=4096) as running:
        yield running


@pytest.fixture(scope="module")
def relay(server: LlamaServer) -> Generator[Relay]:
    """Count and keep what the server is asked."""
    with Relay(server.url) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(relay: Relay) -> Generator[RunningGateway]:
    """One gateway without any setting, on the server's chat wire."""
    with RunningGateway(f"chat={relay.base_url}") as running:
        yield running
