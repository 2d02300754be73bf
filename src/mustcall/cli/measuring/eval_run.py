"""One run of `mustcall eval`: asks what is not answered yet, keeps each reply, and starts the servers that it needs."""

import asyncio
import contextlib
import hashlib
import itertools
import re
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mustcall import __version__
from mustcall.cli.measuring.options import open_subject
from mustcall.core.errors import ConfigError
from mustcall.core.origin import Wire
from mustcall.engine.turns import OperatorSettings
from mustcall.evals.asking.arms import EvalSubject, GatewayPath, make_askers
from mustcall.evals.asking.client_requests import Sampling
from mustcall.evals.asking.counting import CountedTransport
from mustcall.evals.asking.journal import ReplyJournal, RunFacts, find_unfinished
from mustcall.evals.asking.rows import EvalRow
from mustcall.evals.asking.runner import ask_all
from mustcall.evals.questions import AskedCall, Question
from mustcall.evals.suites import Suite
from mustcall.gateway.config.settings import Settings
from mustcall.upstream.artifacts.places import cache_directory
from mustcall.upstream.embedded.fingerprint import address_hash, weights_hash
from mustcall.upstream.embedded.store import locate
from mustcall.upstream.schemes import SchemeTransport

__all__ = ["EvalOptions", "EvalRun", "started_server"]


class EvalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is made with, as the command line gave it.

    `address` is what to call the upstream where its own is another one each time. `weights` is the SHA-256 of the model
    file of a server that was started for the run. Without `out`, a run that was stopped goes on unless `new` is set.
    """

    sets: tuple[str, ...]
    limit: int | None
    seed: int
    listed: str
    choice: AskedCall | None
    wire: Wire | None
    stream: bool
    gateway: str | None
    gateway_key: str | None
    via: str
    model: str | None
    key: str | None
    address: str | None
    weights: str
    sampling: Sampling
    out: Path | None
    new: bool


class Served(msgspec.Struct, frozen=True):
    """A server that was started for a run: its upstream flag, a name that stays the same, the hash of its model file.

    All are empty where none was started.
    """

    flag: str | None = None
    address: str | None = None
    weights: str = ""


@contextlib.contextmanager
def started_server(model: str | None) -> Generator[Served]:
    """Serve a model with llama.cpp for the length of a run; nothing is started where none is named."""
    if model is None:
        yield Served()
        return
    from mustcall.testing.llama import LlamaServer, LlamaServerFailed  # noqa: PLC0415  only here

    path = Path(model)
    source = str(path.absolute()) if path.suffix == ".gguf" else model
    server = LlamaServer(source)
    weights = weights_hash(locate(source).path)
    try:
        server.start()
    except LlamaServerFailed as error:
        raise ConfigError(" ".join(str(error).splitlines()[:2])) from None
    try:
        yield Served(f"llama:chat={server.base_url}", f"llama.cpp {server.version}".strip(), weights)
    finally:
        server.close()


class EvalRun:
    """One run: what was planned, and what is there so far. `say` is told what the user should know at once."""

    def __init__(
        self,
        suite: Suite,
        questions: tuple[Question, ...],
        settings: Settings,
        options: EvalOptions,
        say: Callable[[str], None],
    ) -> None:
        self.facts: RunFacts | None = None
        self.file: Path | None = None
        self.rows: dict[tuple[str, str], EvalRow] = {}
        self._suite = suite
        self._questions = questions
        self._settings = settings
        self._options = options
        self._say = say

    def measure(self) -> None:
        """Ask what is not answered yet; raise `KeyboardInterrupt` when stopped."""
        from mustcall.cli.measuring.eval_screen import progress_bar  # noqa: PLC0415  `--help` needs no rich

        with progress_bar(2 * len(self._questions), self._suite) as advance:
            asyncio.run(self._ask(advance))

    async def _ask(self, advance: Callable[[EvalRow, bool], None]) -> None:
        options = self._options
        async with (
            open_subject(
                self._settings,
                options.model,
                options.key,
                options.sampling,
                self._questions[0],
                wire=options.wire,
                stream=options.stream,
            ) as subject,
            self._path(subject) as path,
        ):
            facts = self._facts(subject)
            file = self.file = self._place(facts)
            with ReplyJournal(file, facts) as journal:
                self.facts = journal.facts
                if options.out is None and journal.rows:
                    self._say(
                        f"going on with {file}, which has {len(journal.rows)} of {2 * facts.planned} replies; --new "
                        "starts a new run"
                    )
                for row in journal.rows:
                    self.rows[row.id, row.arm] = row
                    advance(row, True)
                askers = make_askers(subject, path)
                asked = ask_all(self._questions, askers, name=subject.endpoint.name, done=journal.done)
                async with contextlib.aclosing(asked) as rows:
                    async for row in rows:
                        journal.add(row)
                        self.rows[row.id, row.arm] = row
                        advance(row, False)

    def _facts(self, subject: EvalSubject) -> RunFacts:
        options, endpoint = self._options, subject.endpoint
        return RunFacts(
            suite=self._suite.name,
            data=self._suite.version,
            sets=options.sets,
            limit=options.limit,
            seed=options.seed,
            listed=options.listed,
            choice=options.choice,
            model=subject.model,
            upstream=endpoint.name,
            address=options.address or endpoint.base_url,
            upstream_wire=endpoint.wire,
            wire=subject.caller_wire,
            stream=options.stream,
            via=options.gateway or options.via,
            form=subject.form,
            sampling=options.sampling,
            planned=len(self._questions),
            settings=_digest(self._settings.operator),
            weights=options.weights or address_hash(endpoint.base_url),
            version=__version__,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _place(self, facts: RunFacts) -> Path:
        """Return the file of a run: the one named, one in the directory named, or one in the user's cache.

        In the cache a run that was stopped goes on, unless a new one is asked for.
        """
        out, runs = self._options.out, cache_directory("evals") / "runs"
        if out is not None:
            file = out / f"{_stem(facts)}.jsonl" if out.is_dir() or not out.suffix else out
        else:
            stopped = None if self._options.new else find_unfinished(runs, facts)
            file = stopped or _new_file(runs, facts)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot write {file}: {error.strerror}") from None
        return file

    @contextlib.asynccontextmanager
    async def _path(self, subject: EvalSubject) -> AsyncGenerator[GatewayPath | None]:
        """Return the gateway the mustcall arm goes to, started here if it is to be its own; None for the engine."""
        options = self._options
        model = options.model or subject.model
        if options.gateway is not None:
            base = options.gateway.rstrip("/").removesuffix("/v1") + "/v1"
            yield GatewayPath(base_url=base, model=model, key=options.gateway_key)
        elif options.via == "gateway":
            from mustcall.testing.gateway import RunningGateway  # noqa: PLC0415  only here

            counted = CountedTransport(SchemeTransport)
            keyed = tuple(
                subject.endpoint if endpoint.name == subject.endpoint.name else endpoint
                for endpoint in self._settings.endpoints
            )
            settings = msgspec.structs.replace(self._settings, endpoints=keyed, ledger=None, client_keys=())
            with RunningGateway(settings=settings, transport=counted) as gateway:
                yield GatewayPath(base_url=gateway.base_url, model=model, sent=lambda: counted.sent)
        else:
            yield None


def _stem(facts: RunFacts) -> str:
    words = [facts.suite, facts.model, facts.choice or "", facts.wire, "stream" if facts.stream else ""]
    return re.sub(r"[^\w.]+", "-", "-".join(str(word) for word in words if word)).strip("-")


def _new_file(runs: Path, facts: RunFacts) -> Path:
    """Return a name for a new run that no file has."""
    stem = f"{_stem(facts)}-{re.sub(r'[^0-9]', '', facts.started)[:14]}"
    names = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
    return next(file for name in names if not (file := runs / f"{name}.jsonl").exists())


def _digest(operator: OperatorSettings) -> str:
    """Return a short name for the operator's settings of a turn; empty for the defaults."""
    return "" if operator == OperatorSettings() else hashlib.sha256(repr(operator).encode()).hexdigest()[:16]
