"""`mustcall eval` as a person runs it: on a scripted upstream, through every path, stopped, resumed, scored again."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from mustcall.cli import main
from mustcall.evals.asking.journal import read_journal
from mustcall.evals.asking.rows import Arm
from mustcall.evals.bfcl.source import PACKAGE
from mustcall.evals.prompts import load_prompts
from mustcall.evals.report.summary import Column, EvalSummary
from mustcall.testing import Answer, Call, Fail, Hang, Recorded, RunningGateway, Say, ScriptedUpstream, Turn
from support import warm
from support.bfcl import perfect_calls, read_set, readied_package
from support.compared import leave, leave_all
from support.covering import pairwise
from support.evaluating import right_arguments
from support.warm import PATIENCE, Process

PROMPTS = {prompt.says: prompt for prompt in load_prompts()}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No configuration and no cache but the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTCALL_CACHE", str(tmp_path / "cache"))
    for name in ("MUSTCALL_CONFIG", "MUSTCALL_UPSTREAM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def benchmark(tmp_path: Path) -> None:
    """The benchmark's package in the test's own cache."""
    (tmp_path / "cache" / "evals").mkdir(parents=True)
    shutil.copy(readied_package(), tmp_path / "cache" / "evals" / PACKAGE.file)


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(["eval", *arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def summary_in(file: str) -> EvalSummary:
    """What `--json` wrote."""
    return msgspec.json.decode(Path(file).read_bytes(), type=EvalSummary)


def writes_fences(request: Recorded) -> Answer:
    """A model that writes every call into its text, fenced, as small ones do."""
    prompt = PROMPTS[json.loads(request.raw)["messages"][0]["content"]]
    written = json.dumps({"name": prompt.wants, "arguments": right_arguments(prompt)})
    return Turn(Say(f"```json\n{written}\n```"))


def knows_the_benchmark(request: Recorded) -> Answer:
    """A model that makes every right call of the benchmark, and talks where none is right."""
    said = json.loads(request.raw)["messages"][-1]["content"]
    for name in ("simple_python", "parallel", "irrelevance"):
        for entry in read_set(name):
            if entry.messages[-1].text == said:
                calls = [Call(function, arguments) for function, arguments in perfect_calls(entry)]
                return Turn(*calls) if calls else Turn(Say("I cannot look that up."))
    raise AssertionError(said)


def test_a_run_with_every_report(capsys: pytest.CaptureFixture[str]) -> None:
    """Table, page, picture, data and replies come of one run, and all of them have its numbers."""
    with ScriptedUpstream(writes_fences) as upstream:
        files = ["--html", "r.html", "--png", "r.png", "--json", "r.json", "--out", "r.jsonl"]
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--set", "auto", "--limit", "3"]
        code, out, _ = evaluate(capsys, "builtin", *flags, *files)
    assert code == 0
    summary = summary_in("r.json")
    assert [summary.sets[0].columns[column].right.hits for column in Column] == [0, 3, 3]
    assert len(upstream.requests) == 1 + 6  # the greeting, and each question in both arms
    sentence = "builtin, right answers: 0 of 3 bare, 3 of 3 through mustcall"
    assert sentence in out
    assert sentence in Path("r.html").read_text(encoding="utf-8")
    assert Path("r.png").read_bytes().startswith(b"\x89PNG")
    facts, rows = read_journal(Path("r.jsonl"))
    assert (facts, len(rows)) == (summary.facts, 6)
    assert [row.arm for row in rows] == [Arm.BARE, Arm.MUSTCALL, Arm.MUSTCALL, Arm.BARE, Arm.BARE, Arm.MUSTCALL]
    assert [row.turn for row in rows if row.arm is Arm.MUSTCALL] == [1, 2, 3]
    for file in ("wrote r.html", "wrote r.png", "wrote r.json", "replies kept in r.jsonl"):
        assert file in out
    assert "Partial" not in out


@pytest.mark.usefixtures("benchmark")
@pairwise(
    {
        "wire": ("chat", "responses", "messages"),
        "via": ("engine", "gateway", "address"),
        "stream": (False, True),
    }
)
def test_every_wire_and_path(wire: str, via: str, stream: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Through engine, own gateway and given gateway, on each caller's wire, streamed or not: the same right answers."""
    with ScriptedUpstream(knows_the_benchmark) as upstream:
        flag = f"chat={upstream.base_url}"
        flags = ["--upstream", flag, "--model", "m", "--wire", wire, "--json", "r.json", *(["--stream"] * stream)]
        flags += ["--limit", "2", "--set", "simple_python,parallel,irrelevance"]
        if via == "address":
            with RunningGateway(flag) as gateway:
                code, _, err = evaluate(capsys, "bfcl", *flags, "--gateway", gateway.url)
        else:
            code, _, err = evaluate(capsys, "bfcl", *flags, "--via", via)
    assert code == 0, err
    summary = summary_in("r.json")
    assert [figures.columns[Column.MUSTCALL].right.hits for figures in summary.sets] == [2, 2, 2, 6]
    assert [figures.columns[Column.BARE].right.hits for figures in summary.sets] == [2, 2, 2, 6]
    must = [each.row for each in summary.graded if each.column is Column.MUSTCALL]
    assert {row.wire for row in must} == {wire}
    # The headers of a stream leave before its end: a gateway somewhere else cannot tell what it took.
    assert {row.sends for row in must} == ({0} if via == "address" and stream else {1})
    assert all(row.input_tokens and row.output_tokens and row.seconds for row in must)
    assert {json.loads(request.raw).get("stream", False) for request in upstream.requests[1:]} == {stream}


@pytest.mark.usefixtures("benchmark")
def test_listed_questions(capsys: pytest.CaptureFixture[str]) -> None:
    """`--questions` asks what a file lists and nothing else, in whatever order it lists them; the report says so."""
    leave_all("which questions are asked is looked at; how they are written is tested elsewhere")
    Path("ids.txt").write_text("# two sets\n\nmultiple_7\n simple_python_40 \nsimple_python_3\nmultiple_7\n")
    with ScriptedUpstream(knows_the_benchmark) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--json", "r.json", "--out", "r.jsonl"]
        code, out, err = evaluate(capsys, "bfcl", *flags, "--questions", "ids.txt")
        assert code == 0, err
        summary = summary_in("r.json")
        assert {each.row.id for each in summary.graded} == {"multiple_7", "simple_python_3", "simple_python_40"}
        assert summary.facts.sets == ("simple_python", "multiple")
        assert (summary.asked, summary.facts.planned, summary.partial) == (3, 3, False)
        assert "the 3 questions of a list" in " ".join(out.split())
        Path("others.txt").write_text("simple_python_40\nsimple_python_4\nmultiple_7\n")
        asked = [request.raw for request in upstream.requests if b'"tools"' in request.raw]
        code, _, err = evaluate(capsys, "bfcl", *flags, "--questions", "others.txt")
        assert (code, [request.raw for request in upstream.requests if b'"tools"' in request.raw]) == (2, asked)
        assert "listed" in err


@pytest.mark.usefixtures("benchmark")
@pytest.mark.parametrize(
    ("listing", "more", "words"),
    [
        ("simple_python_4000\n", (), "bfcl has no question 'simple_python_4000'"),
        ("simple_python_4\n", ("--set", "multiple"), "none of the 1 listed questions is of the sets multiple"),
        ("# nothing\n", (), "lists no question"),
        ("simple_python_4\n", ("--limit", "2"), "leave out --limit"),
    ],
)
def test_listed_questions_that_cannot_be_asked(
    listing: str, more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list that names no such question is refused in a sentence before anybody is asked."""
    Path("ids.txt").write_text(listing)
    with ScriptedUpstream(knows_the_benchmark) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--questions", "ids.txt", *more]
        code, _, err = evaluate(capsys, "bfcl", *flags)
    assert (code, upstream.requests) == (2, [])
    assert words in " ".join(err.split())


@pytest.mark.usefixtures("benchmark")
@pytest.mark.parametrize("choice", ["required", "named"])
def test_a_demanded_call(choice: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The choice goes out as the wire writes it; sets without a right call are left out."""
    with ScriptedUpstream(knows_the_benchmark) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--choice", choice, "--limit", "1"]
        code, _, _ = evaluate(capsys, "bfcl", *flags, "--set", "simple_python", "--json", "r.json")
    assert code == 0
    sent = json.loads(upstream.requests[1].raw)["tool_choice"]
    assert sent == "required" if choice == "required" else sent["function"]["name"]
    assert summary_in("r.json").facts.choice == choice


def test_floors_decide_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """`--at-least` ends a run with 1 where a share is missed, and says which."""
    with ScriptedUpstream(writes_fences) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--set", "auto", "--limit", "2"]
        reached, _, _ = evaluate(capsys, "builtin", *flags, "--at-least", "auto=100%", "--at-least", "auto.bare=0")
        missed, _, err = evaluate(capsys, "builtin", *flags, "--at-least", "auto.bare=0.5")
    assert (reached, missed) == (0, 1)
    assert "below --at-least: auto, bare: 0 of 2 right (0.0%), wanted at least 50.0%" in err


def test_scoring_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Kept replies give the same figures without an upstream, compared with the run that kept them."""
    with ScriptedUpstream(writes_fences) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--limit", "2"]
        evaluate(capsys, "builtin", *flags, "--out", "kept.jsonl", "--json", "run.json")
    code, out, _ = evaluate(capsys, "score", "kept.jsonl", "--json", "again.json", "--compare", "run.json")
    assert code == 0
    assert Path("again.json").read_bytes() == Path("run.json").read_bytes()
    assert "since the earlier run" in out


def test_a_finished_run_is_not_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The same command on the same file asks nothing more; other circumstances are refused and leave the file."""
    with ScriptedUpstream(writes_fences) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--limit", "1", "--out", "kept"]
        assert evaluate(capsys, "builtin", *flags)[0] == 0
        (file,) = Path("kept").iterdir()
        asked, before = len(upstream.requests), file.read_bytes()
        assert evaluate(capsys, "builtin", *flags)[0] == 0
        assert len(upstream.requests) == asked + 1  # the greeting
        code, out, err = evaluate(capsys, "builtin", *flags, "--temperature", "0.5")
    assert (code, out) == (2, "")
    assert "holds the replies of another run (sampling" in err
    assert file.read_bytes() == before
    assert file.name == "builtin-m-chat.jsonl"


def test_replies_are_kept_without_asking(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without --out the replies are kept in the cache, each run in a file of its own."""
    with ScriptedUpstream(writes_fences) as upstream:
        _, out, _ = evaluate(
            capsys, "builtin", "--upstream", f"chat={upstream.base_url}", "--model", "m", "--limit", "1"
        )
    (file,) = (tmp_path / "cache" / "evals" / "runs").iterdir()
    assert f"replies kept in {file}" in out.replace("\n", "")


#: Limits the size of files, then becomes the command; a function run in the fork could wait for ever for a lock that
#: one of this process's threads held.
LIMITED = """
import os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


@contextmanager
def start(*arguments: str, most: int | None = None) -> Generator[Process]:
    """Start the command in a process of its own, which writes files of so many bytes at most, and see it end."""
    environment = {**os.environ, "COLUMNS": "200"}
    with (
        warm.start("eval", *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        if most is None
        else subprocess.Popen(  # noqa: S603  our own command
            [sys.executable, "-c", LIMITED, str(most), "-m", "mustcall", "eval", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_and_going_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C reports what is there and ends with 130; the same command goes on, and half a line is dropped."""
    count = 0

    def script(request: Recorded) -> Answer:
        nonlocal count
        count += request.method == "POST"
        return Hang(Turn(Say("…"))) if count == 6 else writes_fences(request) if count > 1 else Turn(Say("Hello"))

    with ScriptedUpstream(script) as upstream:
        leave(upstream, "one of the two runs is a process of its own, whose turns are not counted here")
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--choice", "auto", "--limit", "4"]
        with start("builtin", *flags, "--out", "r.jsonl") as process:
            upstream.wait_for_requests(6)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert "Partial: stopped after 2 of 4 questions." in out
        assert "Traceback" not in err
        kept = Path("r.jsonl").read_bytes()
        assert kept.count(b"\n") == 1 + 4
        Path("r.jsonl").write_bytes(kept + b'{"id":"weat')
        code, out, _ = evaluate(capsys, "builtin", *flags, "--out", "r.jsonl")
    assert code == 0
    assert "0 of 4 bare, 4 of 4 through mustcall" in out
    assert Path("r.jsonl").read_bytes().startswith(kept)
    assert len(read_journal(Path("r.jsonl"))[1]) == 8
    assert len(upstream.requests) == 6 + 1 + 4  # the greeting again, and what was not answered


def test_the_same_command_goes_on_without_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without --out a stopped run goes on with its file in the cache and says so; Ctrl-C prints the command; --new."""
    count = 0

    def script(request: Recorded) -> Answer:
        nonlocal count
        count += request.method == "POST"
        return Hang(Turn(Say("…"))) if count == 4 else writes_fences(request) if count > 1 else Turn(Say("Hello"))

    with ScriptedUpstream(script) as upstream:
        leave(upstream, "one of the two runs is a process of its own, whose turns are not counted here")
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--choice", "auto", "--limit", "2"]
        with start("builtin", *flags, "--new", "--json", "my report.json") as process:
            upstream.wait_for_requests(4)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        runs = tmp_path / "cache" / "evals" / "runs"
        (file,) = runs.iterdir()
        command = next(line for line in err.splitlines() if line.startswith("stopped; to go on: "))
        words = shlex.split(command.removeprefix("stopped; to go on: "))
        assert words == ["mustcall", "eval", "builtin", *flags, "--json", "my report.json", "--out", str(file)]
        copy = shutil.copy(file, tmp_path / "copy.jsonl")
        code, out, err = evaluate(capsys, "builtin", *flags)
        assert code == 0, err
        assert f"note: going on with {file}, which has 2 of 4 replies; --new starts a new run\n" in err
        assert "0 of 2 bare, 2 of 2 through mustcall" in out
        assert list(runs.iterdir()) == [file]
        shutil.copy(copy, file)  # stopped once more: the command that was printed goes on, too
        code, out, err = evaluate(capsys, *words[2:])
        assert (code, "going on" in err) == (0, False)
        assert len(read_journal(file)[1]) == 4
        # A complete run is not gone on with, and --new leaves an incomplete one alone.
        assert evaluate(capsys, "builtin", *flags)[0] == 0
        shutil.copy(copy, file)
        assert evaluate(capsys, "builtin", *flags, "--new")[0] == 0
    assert len(list(runs.iterdir())) == 3
    assert file.read_bytes() == Path(copy).read_bytes()


def test_new_is_for_the_cache(capsys: pytest.CaptureFixture[str]) -> None:
    """`--new` beside --out would leave open what is wanted."""
    code, _, err = evaluate(capsys, "builtin", "--new", "--out", "r.jsonl")
    assert code == 2
    assert "--new is for runs without --out" in err


def test_ctrl_c_before_anything() -> None:
    """Ctrl-C before the first reply says that there is nothing, and ends with 130."""
    with (
        ScriptedUpstream(lambda _: Hang(Turn(Say("…")))) as upstream,
        start("builtin", "--upstream", f"chat={upstream.base_url}", "--model", "m") as process,
    ):
        upstream.wait_for_requests(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "stopped before anything was measured" in err
    assert "Traceback" not in err


def test_a_full_disk(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no more can be written, one sentence says so; whole lines are kept and scored."""
    with ScriptedUpstream(writes_fences) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--choice", "auto", "--out", "r.jsonl"]
        with start("builtin", *flags, most=3000) as process:
            out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    (line,) = [line for line in err.splitlines() if line.startswith("mustcall:")]
    assert "cannot write r.jsonl: File too large; the replies before are kept" in line
    assert "Traceback" not in err
    whole = Path("r.jsonl").read_bytes()
    assert whole.endswith(b"}\n")
    assert evaluate(capsys, "score", "r.jsonl")[0] == 0


def test_a_report_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that is full when a report is written leaves the old report as it was, and no part of the new one."""
    with ScriptedUpstream(writes_fences) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--limit", "1", "--out", "r.jsonl"]
        assert evaluate(capsys, "builtin", *flags)[0] == 0
    Path("r.html").write_text("old", encoding="utf-8")
    with start("score", "r.jsonl", "--html", "r.html", most=3000) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (2, "", "mustcall: cannot write r.html: File too large\n")
    assert Path("r.html").read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in Path().iterdir()) == ["r.html", "r.jsonl"]
    assert evaluate(capsys, "score", "r.jsonl", "--json", os.devnull)[0] == 0


@pytest.mark.usefixtures("benchmark")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "there is no suite called 'nonsense'; there are: builtin, bfcl"),
        (["bfcl", "--set", "simple", "--upstream", "chat=http://127.0.0.1:9/v1"], "no set called 'simple'"),
        (["bfcl", "--set", "irrelevance", "--choice", "named", "--upstream", "chat=http://127.0.0.1:9/v1"], "--choice"),
        (["builtin", "--upstream", "chat=http://127.0.0.1:9/v1"], "cannot be asked for its models"),
        (["builtin", "--upstream", "chat=http://127.0.0.1:9/v1", "--model", "m"], "answered neither arm"),
        (["builtin", "--upstream", "nonsense"], "wire=URL"),
        (["builtin", "--at-least", "auto=2"], "--at-least"),
        (["builtin", "--at-least", "simple=1", "--upstream", "chat=http://127.0.0.1:9/v1"], "which is not asked"),
        (["builtin", "--compare", "gone.json"], "cannot read gone.json"),
        (["builtin", "--html", "gone/r.html"], "no directory"),
        (["builtin", "--temperature", "hot", "--upstream", "chat=http://127.0.0.1:9/v1"], "--temperature"),
        (["builtin", "--gateway-key-env", "NO_KEY", "--upstream", "chat=http://127.0.0.1:9/v1"], "NO_KEY"),
        (["score", "gone.jsonl"], "cannot read gone.jsonl"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be done is said in one line, with exit code 2, before anything is measured."""
    code, out, err = evaluate(capsys, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.strip().count("\n") == 0


def test_an_upstream_that_dies(capsys: pytest.CaptureFixture[str]) -> None:
    """Three questions in a row without an answer in any arm end the run; it goes on later, and asks them again."""
    works = True

    def script(request: Recorded) -> Answer:
        said = json.loads(request.raw)["messages"][0]["content"]
        dead = not works and said != "Hello" and len(upstream.requests) > 5
        return Fail(401, "the key has expired") if dead else writes_fences(request) if said in PROMPTS else Turn()

    with ScriptedUpstream(script) as upstream:
        flags = ["--upstream", f"chat={upstream.base_url}", "--model", "m", "--choice", "auto", "--out", "r.jsonl"]
        works = False
        code, out, err = evaluate(capsys, "builtin", *flags, "--limit", "6")
        assert (code, out) == (2, "")
        assert "answered neither arm of 3 questions in a row: the key has expired" in err
        assert len(read_journal(Path("r.jsonl"))[1]) == 4 + 6
        works = True
        code, out, _ = evaluate(capsys, "builtin", *flags, "--limit", "6")
    assert code == 0
    assert "6 of 6 through mustcall" in out


def test_a_damaged_download(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A package of the right name and size with one changed byte is refused in one line and not kept."""
    index = tmp_path / "index"
    index.mkdir()
    data = bytearray(readied_package().read_bytes())
    data[len(data) // 2] ^= 1
    (index / PACKAGE.file).write_bytes(data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    code, out, err = evaluate(capsys, "bfcl", "--upstream", "chat=http://127.0.0.1:9/v1", "--model", "m")
    assert (code, out) == (2, "")
    assert "cannot fetch the data of bfcl-eval 2026.3.23" in err
    assert "is not the file that was expected and was thrown away" in err
    assert err.strip().count("\n") == 0
    assert "Traceback" not in err
    assert not list((tmp_path / "cache" / "evals").glob("*.whl"))
