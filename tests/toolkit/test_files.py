"""Folders and text files, as a model is shown them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mustcall.core.errors import ToolError, ToolRefused
from mustcall.toolkit.builtin.files import list_directory, plain, read_file
from mustcall.toolkit.builtin.roots import Purpose, Roots, roots_at


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    """The test's own folder."""
    return roots_at([tmp_path], tmp_path)


def test_a_listing(tmp_path: Path, roots: Roots) -> None:
    """Folders have a slash, files a size, links are called links; sorted, with the folder and the count first."""
    (tmp_path / "b.txt").write_text("12345")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to("/etc")
    (tmp_path / "big").write_bytes(b"x" * 2500)
    assert list_directory(roots, ".").splitlines() == [
        f"4 entries in {tmp_path}:",
        "a/",
        "b.txt (5 bytes)",
        "big (2.5 kB)",
        "c (link)",
    ]
    assert list_directory(roots, "a") == f"{tmp_path}/a is empty"


def test_a_large_folder_is_cut(tmp_path: Path, roots: Roots) -> None:
    """The first hundred names are shown and the rest is counted."""
    for number in range(150):
        (tmp_path / f"{number:03}").touch()
    lines = list_directory(roots, ".").splitlines()
    assert lines[0].startswith("150 entries in ")
    assert lines[1:3] == ["000 (0 bytes)", "001 (0 bytes)"]
    assert lines[-1] == "… and 50 more"
    assert len(lines) == 102


def test_names_cannot_break_a_line(tmp_path: Path, roots: Roots) -> None:
    """Control characters and undecodable bytes in names are escaped."""
    (tmp_path / "a\nb\x1b[31m").touch()
    os.close(os.open(os.fsencode(tmp_path) + b"/\xff.txt", os.O_CREAT))
    listed = list_directory(roots, ".")
    assert len(listed.splitlines()) == 3
    assert "a\\x0ab\\x1b[31m" in listed
    assert "\\udcff.txt" in listed
    assert listed.encode()


def test_reading(tmp_path: Path, roots: Roots) -> None:
    """A text file comes back as it is; a byte order mark goes, an empty file is said to be empty."""
    (tmp_path / "a.txt").write_text("\ufeffone\n\ttwo\nthree ü\n", encoding="utf-8")
    (tmp_path / "empty").touch()
    assert read_file(roots, "a.txt") == "one\n\ttwo\nthree ü"
    assert read_file(roots, "empty") == "(the file is empty)"
    assert read_file(roots, "a.txt", first_line=3) == "three ü"


def test_reading_on(tmp_path: Path, roots: Roots) -> None:
    """A long file is read in pieces that fit a result, and following the mark gets every line."""
    lines = [f"line {number} " + "x" * 60 for number in range(1, 301)]
    (tmp_path / "long.txt").write_text("\n".join(lines))
    got: list[str] = []
    first = 1
    while True:
        piece = read_file(roots, "long.txt", first).splitlines()
        assert len("\n".join(piece)) < 4000
        if not piece[-1].startswith("[lines"):
            got += piece
            break
        got += piece[:-1]
        first = int(piece[-1].partition("first_line=")[2].partition(" ")[0])
    assert got == lines


def test_one_long_line_is_cut(tmp_path: Path, roots: Roots) -> None:
    """A line over a thousand characters is cut visibly."""
    (tmp_path / "min.js").write_text("y" * 50_000)
    assert read_file(roots, "min.js").endswith("… (50000 characters)")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("folder", "list_directory"),
        ("gone.txt", "there is no"),
        ("binary", "binary"),
        ("latin", "binary"),
        ("large", "at most"),
        ("pipe", "ordinary"),
        ("short.txt/x", "not a file"),
    ],
)
def test_what_is_not_read(tmp_path: Path, roots: Roots, name: str, word: str) -> None:
    """Folders, missing, binary, huge and special files are refused in one line, and nothing hangs."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "latin").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "short.txt").write_text("x")
    with (tmp_path / "large").open("wb") as large:
        large.truncate(3 * 1024 * 1024)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ToolError, match=word) as raised:
        read_file(roots, name)
    assert "\n" not in raised.value.message


def test_listing_what_is_no_folder(tmp_path: Path, roots: Roots) -> None:
    """A file or a missing folder is refused in one line, and so is a line beyond the end."""
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ToolError, match="not a folder"):
        list_directory(roots, "a.txt")
    with pytest.raises(ToolError, match="there is no"):
        list_directory(roots, "gone")
    with pytest.raises(ToolError, match="1 lines"):
        read_file(roots, "a.txt", first_line=2)


def test_plain_text() -> None:
    """Escapes that steer a terminal become visible; spaces of any script stay."""
    assert plain("a\x1b]0;x\x07b") == "a\\x1b]0;x\\x07b"
    assert plain("a\u202eb\u2028c") == "a\\u202eb\\u2028c"
    assert plain("a\u00a0b\tc", keep="\t") == "a\u00a0b\tc"


# --- between the look and the opening ---------------------------------------------------------------------------------


@pytest.fixture
def split(tmp_path: Path) -> tuple[Path, Path]:
    """A folder that may be read, and one beside it that may not, with a secret."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "a" / "b" / "f.txt").write_text("open")
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "f.txt").write_text("secret")
    return inside, outside


def _swap(inside: Path, outside: Path, step: str) -> None:
    """Put a link to the outside in the place of one step of the path."""
    real = inside / step
    target = {"a": outside, "a/b": outside / "b", "a/b/f.txt": outside / "b" / "f.txt"}[step]
    real.rename(inside / "moved")
    real.symlink_to(target)


@pytest.mark.parametrize(
    ("step", "use", "path"),
    [
        ("a", read_file, "a/b/f.txt"),
        ("a/b", read_file, "a/b/f.txt"),
        ("a/b/f.txt", read_file, "a/b/f.txt"),
        ("a", list_directory, "a/b"),
        ("a/b", list_directory, "a/b"),
    ],
)
def test_a_link_put_there_meanwhile(
    split: tuple[Path, Path], step: str, use: Callable[[Roots, str], str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that was judged and then replaced, at any of its steps, leads nowhere: neither read nor listed."""
    inside, outside = split
    roots = roots_at([inside], inside)
    locate = Roots.locate

    def raced(self: Roots, path: str, purpose: Purpose) -> tuple[Path, Path]:
        found = locate(self, path, purpose)
        _swap(inside, outside, step)
        return found

    monkeypatch.setattr(Roots, "locate", raced)
    with pytest.raises(ToolError):
        use(roots, path)


def test_hard_links_are_not_read(split: tuple[Path, Path]) -> None:
    """A second name for a file that lies outside is no way to read it."""
    inside, outside = split
    (inside / "mine.txt").hardlink_to(outside / "b" / "f.txt")
    roots = roots_at([inside], inside)
    with pytest.raises(ToolRefused, match="hard link"):
        read_file(roots, "mine.txt")
    assert "mine.txt (6 bytes)" in list_directory(roots, ".")


def test_nothing_stays_open(split: tuple[Path, Path]) -> None:
    """Every folder that was opened on the way is closed, also where the way ends early."""
    inside, _ = split
    roots = roots_at([inside], inside)
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        assert read_file(roots, "a/b/f.txt") == "open"
        list_directory(roots, "a")
        with pytest.raises(ToolError):
            read_file(roots, "a/b/none/f.txt")
        with pytest.raises(ToolError):
            list_directory(roots, "a/b/f.txt")
    assert len(list(Path("/dev/fd").iterdir())) == before
