"""The process that `LlamaServer` starts: llama.cpp's HTTP server and nothing else. It ends when its input is closed.

It runs as a script, so that nothing of mustcall is loaded beside the model. Standard output carries one line: a JSON
object with the address and the version of the engine, written once the model is loaded. llama.cpp logs to standard
error.
"""

import importlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

__all__ = ["main"]

_LIBRARY = "xllamacpp"


def main(options: dict[str, Any]) -> None:
    """Serve a model until the parent closes our input, also by dying."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle; it closes our input
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    library: Any = importlib.import_module(_LIBRARY)
    server = library.Server(_parameters(library, options))  # holds the interpreter until the model is loaded
    print(json.dumps({"url": server.listening_address, "version": library.__version__}), flush=True)  # noqa: T201
    threading.Event().wait()


def _parameters(library: Any, options: dict[str, Any]) -> Any:
    """Return llama-server's own defaults with the options given; port 0 lets the system choose a free one."""
    parameters = library.CommonParams()
    parameters.model.path = options["path"]
    parameters.model_alias = {options["model"]}
    parameters.n_parallel = options["parallel"] or -1  # -1 is llama-server's own default: it decides
    parameters.use_jinja = options["jinja"]
    if options["context"] is not None:
        parameters.n_ctx = options["context"]
    if options["threads"] is not None:
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = options["threads"]
    if options["chat_template"] is not None:
        parameters.chat_template = Path(options["chat_template"]).read_text(encoding="utf-8")
    return parameters


def _leave_with_parent() -> None:
    # The descriptor itself: a buffered reader would be locked when the interpreter ends.
    while os.read(0, 1024):
        pass
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
