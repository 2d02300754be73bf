"""What holds for every test.

Property tests run under one of two profiles: `ci` draws the same few examples every time, `deep` draws many and others
each time (`MUSTCALL_TEST_PROFILE=deep`, part of `make soak`). A test that names its own number of examples gets a share
of it under `ci` and a multiple under `deep`. Large grids of parameters are thinned under `ci`, to combinations in which
every pair of values meets; `deep` runs all of them.

`MUSTCALL_TEST_ORDER=7` runs the tests in another order, which this seed chooses.
"""

import gc
import os
import signal
import sys
from collections.abc import Generator
from functools import cache, lru_cache
from pathlib import Path

import pytest
from hypothesis import settings

from support import misses
from support.compiling import compile_ahead
from support.examples import PROFILE, PROFILES, scaled
from support.forking import Forking, can_fork, processors, usual_workers
from support.ordering import is_long, rank, shuffled
from support.thinning import thinned

# Collecting makes thousands of objects that live to the end of the run; `pytest_collection_finish` goes on.
gc.disable()

# No test writes into the state directory of whoever runs it.
os.environ["MUSTCALL_LEDGER"] = "off"
os.environ.pop("DATABASE_URL", None)

# Processes that tests start write their output as they do for users, not as this machine was told to.
os.environ.pop("PYTHONUNBUFFERED", None)
# Where bytecode is not kept, every process that a test starts compiles the packages it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_HERE = Path(__file__).parent
#: The folders whose tests compare the body of every upstream call once a turn came to several. What a test does not
#: compare it says with its reason (`support.compared.leave`).
_COMPARING = frozenset(
    {"cli", "contract", "docs", "engine", "evals", "gateway", "replay", "rules", "telemetry", "toolkit", "upstream"}
)

#: The folders whose tests take a turn through sockets, clients or an engine: a combination more costs as much as the
#: first one. The tests of pure code keep their whole grids.
_THINNED = frozenset({"adapters", "engine", "evals", "gateway", "probe", "rules", "telemetry", "testing", "upstream"})

for _name, _profile in PROFILES.items():
    settings.register_profile(_name, _profile)
settings.load_profile(PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer to run the tests in several processes."""
    words = "run the tests in N processes, forked after collecting where possible (auto: by the processors)"
    parser.addoption("--workers", metavar="N", default="0", help=words)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Leave the processes to pytest-xdist where they cannot be forked; it has yet to read its options."""
    option, workers = config.option, _workers(config)
    if workers != 0 and not can_fork() and option.numprocesses is None and not option.usepdb:
        option.numprocesses, option.dist = workers or usual_workers(), "worksteal"


def _workers(config: pytest.Config) -> int | None:
    """Return how many workers are asked for, None for as many as are usual when they start."""
    asked = str(config.getoption("--workers"))
    if asked == "auto":
        return None
    if not asked.isdecimal():
        raise pytest.UsageError(f"--workers takes a number or auto, not {asked}")
    return int(asked)


def pytest_configure(config: pytest.Config) -> None:
    """Fork workers, if they are asked for and can be had."""
    workers = _workers(config)
    if workers not in (0, 1) and can_fork() and not hasattr(config, "workerinput"):
        if config.args_source is not pytest.Config.ArgsSource.ARGS:  # all tests, which somebody has to compile
            compile_ahead(_HERE.parent)
        config.pluginmanager.register(Forking(workers, _prepare, lambda item: is_long(item.path)), "forking")


def _prepare() -> None:
    """Do once what each worker would do again: import the command line, compile what dialects look for."""
    warm = sys.modules.get("support.warm")
    if warm is not None:
        warm.warm_process()
    grammars = sys.modules.get("mustcall.dialects.scanning.grammar")
    if "dialects.scanning" in sys.modules and grammars is not None:
        from mustcall.dialects.catalogue import known, select  # noqa: PLC0415  only for tests of dialects

        for names in ("auto", *((dialect.name,) for dialect in known())):
            grammars.compile_grammar(select(names, loose=False), ())
        gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a property test that names its own number of examples as many as the profile allows it."""
    if isinstance(item, pytest.Function):
        scaled(item.obj)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Thin the grids of the profile `ci`, put long tests first and short ones last, or shuffle them all."""
    if PROFILE == "ci" and not config.option.keyword:
        left = thinned([item for item in items if _folder(item) in _THINNED])
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
    items.sort(key=lambda item: rank(item.path))
    seed = os.environ.get("MUSTCALL_TEST_ORDER", "")
    if seed:
        items[:] = shuffled(items, seed)


def _folder(item: pytest.Item) -> str:
    return _folder_of(item.path)


@cache
def _folder_of(path: Path) -> str:
    return path.relative_to(_HERE).parts[0]


def _compares(item: pytest.Item) -> bool:
    return _folder(item) in _COMPARING


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Watch the upstreams of a test before the first of them starts."""
    if _compares(item):
        from support.compared import watch_upstreams  # noqa: PLC0415  tests of other folders need not import it

        watch_upstreams()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Fail a test that made several upstream calls and did not compare the body of each (rule 118).

    In the folders of `_COMPARING` that holds for every upstream, elsewhere for those of the shared stages.
    """
    compared = sys.modules.get("support.compared")
    if compared is not None:
        compared.forget()
    result = yield
    compared = sys.modules.get("support.compared")
    if compared is not None:
        compared.check_compared(every=_compares(item))
    return result


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave what the tests of a folder keep for good out of garbage collection: modules, tables, what is remembered.

    Each full collection would walk through all of it again. In another order each test is followed by another folder's.
    """
    ordered = not os.environ.get("MUSTCALL_TEST_ORDER")
    if ordered and nextitem is not None and _folder(nextitem) != _folder(item):
        gc.collect()
        gc.freeze()


def pytest_collection_finish() -> None:
    """Leave what collecting made out of garbage collection: thousands of tests live to the end of the run.

    Its garbage stays, too: that is little, and finding it takes half a second.
    """
    gc.freeze()
    # The usual 700 new objects are a test's own few milliseconds; nothing that long tests leave behind is large.
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    grammars = sys.modules.get("mustcall.dialects.scanning.grammar")
    if grammars is not None:
        # A gateway has few sets of dialects. Tests have one for each dialect, and compiled all of them file by file.
        vars(grammars)["_MOST_COMPILED"] = 1024
    memo = sys.modules.get("mustcall.core.memo")
    if memo is not None:
        memo.owner.set(memo.Caches())  # of what tests call without a gateway or an agent around it
        # Each gateway compiles for itself what it looks for in texts, and each test of one has its own.
        vars(memo)["_compile"] = lru_cache(8192)(memo._compile)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run a worker more than there are processors: some tests wait. Each worker imports and collects all tests anew."""
    return processors() + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the database and the browser that tests started: workers leave without a word."""
    module = sys.modules.get("support.postgres")
    if module is not None:
        module.stop_server()
    module = sys.modules.get("support.browser")
    if module is not None:
        module.stop_browser()
    misses.hand_over(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Take over from a worker what only it has counted."""
    misses.take_over(node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what a run of the tests paid for that it need not have."""
    for line in misses.told():
        terminalreporter.write_line(line, yellow=True)


# A shell starts what runs in its background with Ctrl-C ignored, and programs inherit that: those under test would too.
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):  # ignored under nohup, which programs inherit likewise
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
