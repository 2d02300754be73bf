"""The file of replies: whole lines, resumed, refused, never half-written."""

from pathlib import Path

import msgspec
import pytest

from mustcall.core.errors import ConfigError
from mustcall.evals.asking.journal import ReplyJournal, find_unfinished, read_journal
from mustcall.evals.asking.rows import Arm, EvalRow
from support.evalrows import LIST, OSLO, facts, failed, row

ROWS = (row(OSLO, Arm.BARE), row(OSLO, Arm.MUSTCALL, right=True, verdicts=("called",)), row(LIST, Arm.BARE, turn=2))


def kept(file: Path, *rows: EvalRow) -> bytes:
    """Write a run's file; return its bytes."""
    with ReplyJournal(file, facts()) as journal:
        for each in rows:
            journal.add(each)
    return file.read_bytes()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Each reply is a line of JSON of its own, there as soon as it is added, and read back equal."""
    file = tmp_path / "r.jsonl"
    with ReplyJournal(file, facts()) as journal:
        for count, each in enumerate(ROWS, 2):
            journal.add(each)
            assert file.read_bytes().count(b"\n") == count
    assert read_journal(file) == (facts(), ROWS)
    assert msgspec.json.decode(file.read_bytes().splitlines()[2])["verdicts"] == ["called"]


def test_a_run_goes_on(tmp_path: Path) -> None:
    """Opened again under the same circumstances, at another time, the file gives its rows and takes more."""
    file = tmp_path / "r.jsonl"
    kept(file, *ROWS[:2])
    with ReplyJournal(file, facts(started="2027-01-01T00:00:00+00:00")) as journal:
        assert journal.rows == ROWS[:2]
        assert journal.done == {(OSLO.id, Arm.BARE), (OSLO.id, Arm.MUSTCALL)}
        journal.add(ROWS[2])
    assert read_journal(file) == (facts(), ROWS)


def test_a_run_goes_on_from_any_cut(tmp_path: Path) -> None:
    """Wherever the file was cut off, whole lines are kept, half a line is dropped, and nothing is glued together."""
    file = tmp_path / "r.jsonl"
    whole = kept(file, *ROWS)
    for cut in range(len(whole)):
        file.write_bytes(whole[:cut])
        with ReplyJournal(file, facts()) as journal:
            there = max(0, whole[:cut].count(b"\n") - 1)
            assert journal.rows == ROWS[:there]
            for each in ROWS[there:]:
                journal.add(each)
        assert file.read_bytes() == whole


def test_other_circumstances_are_refused(tmp_path: Path) -> None:
    """A file of another run is not touched, and the error says what differs and what to do."""
    file = tmp_path / "r.jsonl"
    before = kept(file, *ROWS)
    with pytest.raises(ConfigError, match=r'seed 0 instead of 1; model "tiny" instead of "big".*--out') as raised:
        ReplyJournal(file, facts(model="big", seed=1))
    assert "started" not in raised.value.message
    assert file.read_bytes() == before


def test_other_weights_are_refused(tmp_path: Path) -> None:
    """Rule 149: a run with another model file is another run; one whose weights were not recorded may be."""
    file = tmp_path / "r.jsonl"
    with ReplyJournal(file, facts(weights="aa11")) as journal:
        journal.add(ROWS[0])
    with pytest.raises(ConfigError, match=r"weights with the SHA-256 aa11 instead of with the SHA-256 bb22.*--out"):
        ReplyJournal(file, facts(weights="bb22"))
    with ReplyJournal(file, facts(weights="aa11")) as journal:
        assert journal.rows == ROWS[:1]
    with pytest.raises(ConfigError, match=r"aa11 instead of that were not recorded"):
        ReplyJournal(file, facts())


def test_files_without_weights_are_read(tmp_path: Path) -> None:
    """Rule 149: a file from before weights were recorded is read, and goes on where no model file is known."""
    file = tmp_path / "r.jsonl"
    first, *others = kept(file, *ROWS).splitlines(keepends=True)
    old = {name: value for name, value in msgspec.json.decode(first).items() if name != "weights"}
    file.write_bytes(b"".join([msgspec.json.encode(old), b"\n", *others]))
    assert read_journal(file) == (facts(), ROWS)
    with ReplyJournal(file, facts()) as journal:
        assert journal.rows == ROWS
    with pytest.raises(ConfigError, match="weights that were not recorded instead of with the SHA-256 aa11"):
        ReplyJournal(file, facts(weights="aa11"))


def test_one_process_writes_to_a_file(tmp_path: Path) -> None:
    """A second run on a file that is being written to is refused, and goes on once it is free."""
    file = tmp_path / "r.jsonl"
    with ReplyJournal(file, facts()) as journal:
        journal.add(ROWS[0])
        with pytest.raises(ConfigError, match="another run is writing to"):
            ReplyJournal(file, facts())
        journal.add(ROWS[1])
    with ReplyJournal(file, facts()) as again:
        assert again.rows == ROWS[:2]


def test_when_a_run_began_is_kept(tmp_path: Path) -> None:
    """A run that goes on is the run that was begun."""
    file = tmp_path / "r.jsonl"
    kept(file, *ROWS)
    with ReplyJournal(file, facts(started="2027-01-01T00:00:00+00:00")) as journal:
        assert journal.facts == facts()


def test_the_newest_incomplete_run_is_found(tmp_path: Path) -> None:
    """Of the runs with equal facts the newest that is not complete goes on; an outage counts as not answered."""
    assert find_unfinished(tmp_path / "gone", facts()) is None
    runs: dict[str, tuple[dict[str, str | int], tuple[EvalRow, ...]]] = {
        "older": ({"started": "2026-01-01"}, ROWS[:1]),
        "newer": ({"started": "2026-02-01"}, (*ROWS, failed(LIST, Arm.MUSTCALL, upstream=True))),
        "complete": ({"started": "2026-03-01"}, (*ROWS, failed(LIST, Arm.MUSTCALL))),
        "other": ({"started": "2026-04-01", "seed": 1}, ROWS[:1]),
        "weights": ({"started": "2026-05-01", "weights": "aa11"}, ROWS[:1]),
    }
    for name, (changes, rows) in runs.items():
        with ReplyJournal(tmp_path / f"{name}.jsonl", facts(**changes)) as journal:
            for each in rows:
                journal.add(each)
    (tmp_path / "broken.jsonl").write_bytes(b"{nonsense\n")
    (tmp_path / "folder.jsonl").mkdir()
    assert find_unfinished(tmp_path, facts()) == tmp_path / "newer.jsonl"
    assert find_unfinished(tmp_path, facts(weights="aa11")) == tmp_path / "weights.jsonl"
    with ReplyJournal(tmp_path / "newer.jsonl", facts()):
        assert find_unfinished(tmp_path, facts()) == tmp_path / "older.jsonl"
    assert find_unfinished(tmp_path, facts(seed=2)) is None


def test_the_later_word_counts(tmp_path: Path) -> None:
    """Of two replies to the same question in the same arm the later one counts."""
    file = tmp_path / "r.jsonl"
    again = row(OSLO, Arm.BARE, text="Rain.")
    kept(file, *ROWS, again)
    assert read_journal(file)[1] == (again, *ROWS[1:])


def test_what_the_upstream_did_not_answer_is_asked_again(tmp_path: Path) -> None:
    """An outage is no result when the run goes on; an error of the model is one."""
    file = tmp_path / "r.jsonl"
    kept(file, failed(OSLO, Arm.BARE, upstream=True), failed(OSLO, Arm.MUSTCALL))
    with ReplyJournal(file, facts()) as journal:
        assert journal.done == {(OSLO.id, Arm.MUSTCALL)}
    assert len(read_journal(file)[1]) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no whole line"),
        (b"{", "no whole line"),
        (b"hello\n", "line 1"),
        (b"\xff\xfe\n", "line 1"),
        (b'{"suite": "bfcl"}\n', "line 1"),
    ],
)
def test_files_that_are_none(content: bytes, words: str, tmp_path: Path) -> None:
    """A file of something else is one clear error."""
    file = tmp_path / "r.jsonl"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        read_journal(file)


def test_damage_in_the_middle_is_told(tmp_path: Path) -> None:
    """A broken line that is not the last was not left by a stop: the file is refused with the line's number."""
    file = tmp_path / "r.jsonl"
    lines = kept(file, *ROWS).splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], b"{nonsense\n", *lines[2:]]))
    for read in (lambda: read_journal(file), lambda: ReplyJournal(file, facts())):
        with pytest.raises(ConfigError, match="damaged at line 3"):
            read()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    """A directory, and a path below a file, are one clear error each."""
    (tmp_path / "plain").write_text("x", encoding="utf-8")
    for place in (tmp_path, tmp_path / "plain" / "r.jsonl"):
        with pytest.raises(ConfigError, match="cannot write"):
            ReplyJournal(place, facts())
    with pytest.raises(ConfigError, match="cannot read"):
        read_journal(tmp_path / "gone.jsonl")
