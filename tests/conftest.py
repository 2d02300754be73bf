"""What holds for every test."""

import os
import signal
import sys

from hypothesis import settings

# No test writes into the state directory of whoever runs it.
os.environ["MUSTCALL_LEDGER"] = "off"
os.environ.pop("DATABASE_URL", None)

# Nothing is timed in tests: how long an example takes says more about the machine than about the code.
settings.register_profile("house", deadline=None)
settings.load_profile("house")


def pytest_sessionfinish() -> None:
    """Stop the database of this process, if a test started one: workers of pytest-xdist leave without a word."""
    module = sys.modules.get("support.postgres")
    if module is not None:
        module.stop_server()


# A shell starts what runs in its background with Ctrl-C ignored, and programs inherit that: those under test would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):  # ignored under nohup, which programs inherit likewise
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
