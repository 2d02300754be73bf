"""Measures a real model on llama.cpp's own server, bare and through a gateway, and writes both matrices.

`python tools/matrices.py FOLDER [MODEL] [quick|default|deep] [bare|gateway]`. It writes `bare.json`, `bare.html`,
`gateway.json` and `gateway.html`, and prints how long each took. The ledger of this machine is left alone.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from mustcall.probe import Level
from mustcall.testing import LlamaServer, RunningGateway

WAYS = ("bare", "gateway")


def probe(base_url: str, model: str, level: Level, file: Path) -> None:
    """Run the command as a user does."""
    began = time.monotonic()
    command = [Path(sys.executable).with_name("mustcall"), "probe", f"chat={base_url}", "--yes", "--model", model]
    options = [] if level is Level.DEFAULT else [f"--{level}"]
    written = ["--json", file.with_suffix(".json"), "--html", file.with_suffix(".html")]
    with file.with_suffix(".log").open("w", encoding="utf-8") as log:
        code = subprocess.call(  # noqa: S603  our own command
            [*map(str, command), *options, *map(str, written)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"MUSTCALL_LEDGER": "off"},
        )
    print(f"{file.name}: exit {code} after {time.monotonic() - began:.0f} s", flush=True)


def main(folder: Path, model: str, level: Level, ways: tuple[str, ...]) -> None:
    """Measure what is asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    with LlamaServer(model) as server:
        if "bare" in ways:
            probe(server.base_url, server.model, level, folder / "bare")
        if "gateway" in ways:
            with RunningGateway(f"chat={server.base_url}") as gateway:
                probe(gateway.base_url, server.model, level, folder / "gateway")


if __name__ == "__main__":
    words = sys.argv[2:]
    named = [word for word in words if word not in (*WAYS, *map(str, Level))]
    level = next((Level(word) for word in words if word in [str(one) for one in Level]), Level.DEFAULT)
    main(
        Path(sys.argv[1]),
        named[0] if named else "smollm2-135m",
        level,
        tuple(word for word in words if word in WAYS) or WAYS,
    )
