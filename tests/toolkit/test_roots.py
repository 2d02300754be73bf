"""Which files a tool may see."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mustcall.core.errors import ConfigError, ToolError
from mustcall.toolkit.builtin.roots import Purpose, Roots, default_roots, roots_at


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with a file, beside a folder that is not allowed."""
    (tmp_path / "ours" / "in").mkdir(parents=True)
    (tmp_path / "ours" / "in" / "note.txt").write_text("inside")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "secret.txt").write_text("secret")
    (tmp_path / "ours" / "out").symlink_to(tmp_path / "theirs")
    (tmp_path / "ours" / "leak.txt").symlink_to(tmp_path / "theirs" / "secret.txt")
    (tmp_path / "ours" / "back").symlink_to(tmp_path / "ours" / "in")
    (tmp_path / "ours" / "loop").symlink_to(tmp_path / "ours" / "loop")
    (tmp_path / "ours" / ".env").write_text("KEY=1")
    return tmp_path


@pytest.mark.parametrize("path", ["in/note.txt", "./in/../in/note.txt", "back/note.txt", "{root}/in/note.txt"])
def test_what_is_inside_is_admitted(place: Path, path: str) -> None:
    """Relative, absolute, dotted and linked paths that end up inside are one and the same place."""
    root = place / "ours"
    roots = roots_at([root], root)
    assert roots.admit(path.format(root=root), Purpose.READ) == root / "in" / "note.txt"


@pytest.mark.parametrize(
    "path",
    [
        "../theirs/secret.txt",
        "in/../../theirs/secret.txt",
        "{place}/theirs/secret.txt",
        "{place}/ours/../theirs/secret.txt",
        "{place}/theirs",
        "out/secret.txt",
        "out",
        "leak.txt",
        "loop",
        "/etc/passwd",
        "/",
        "..",
        "//etc/passwd",
        "/proc/self/environ",
        "in/note.txt\0/../../theirs",
        "x" * 5000,
        "~/x",
    ],
)
def test_what_leads_out_is_not(place: Path, path: str) -> None:
    """`..`, absolute paths, sibling names, links and loops do not get out; nothing outside is admitted."""
    root = place / "ours"
    roots = roots_at([root], root)
    given_path = path.format(place=place)
    if path == "~/x":  # not expanded here: a name like any other, and it stays inside
        assert roots.admit(given_path, Purpose.READ) == root / "~" / "x"
        return
    with pytest.raises(ToolError):
        roots.admit(given_path, Purpose.READ)


def test_being_there_makes_no_difference(place: Path) -> None:
    """Nobody learns from the refusal whether something outside exists."""
    roots = roots_at([place / "ours"], place / "ours")
    messages: list[str] = []
    for name in ("secret.txt", "missin.txt"):
        with pytest.raises(ToolError) as raised:
            roots.admit(f"../theirs/{name}", Purpose.LIST)
        messages.append(raised.value.message.replace(name, "NAME"))
    assert messages[0] == messages[1]


def test_hidden_files_are_listed_and_not_read(place: Path) -> None:
    """A leading dot below the root keeps contents private; a root inside a hidden folder is the person's own choice."""
    root = place / "ours"
    roots = roots_at([root], root)
    assert roots.admit(".env", Purpose.LIST)
    with pytest.raises(ToolError, match="hidden"):
        roots.admit(".env", Purpose.READ)
    inner = place / ".hidden" / "docs"
    inner.mkdir(parents=True)
    assert roots_at([inner], inner).admit("a.txt", Purpose.READ) == inner / "a.txt"


def test_kernel_files_are_nobodys(place: Path) -> None:
    """Even with the whole file system as root, /proc, /sys and /dev stay closed: environments hold keys."""
    roots = Roots(base=place, listable=(Path("/"),), readable=(Path("/"),))
    for path in ("/proc/self/environ", "/sys", "/dev/zero"):
        for purpose in Purpose:
            with pytest.raises(ToolError):
                roots.admit(path, purpose)


def test_default_roots(place: Path) -> None:
    """Names in the current, temporary and home folders; contents in the current one."""
    home = place / "theirs"
    roots = default_roots(place / "ours", home)
    assert roots.admit("/tmp", Purpose.LIST) == Path("/tmp").resolve()  # noqa: S108  the question people ask
    assert roots.admit(tempfile.gettempdir(), Purpose.LIST)
    assert roots.admit(os.fspath(home), Purpose.LIST) == home
    assert roots.readable == (place / "ours",)
    with pytest.raises(ToolError, match="may be read"):
        roots.admit(os.fspath(home / "secret.txt"), Purpose.READ)


@pytest.mark.parametrize("here", ["", "theirs"])
def test_home_is_never_read_by_default(place: Path, here: str) -> None:
    """Started in the home, or above it, nothing is readable until `--root` says what."""
    roots = default_roots(place / here, place / "theirs")
    assert roots.readable == ()
    with pytest.raises(ToolError, match="--root"):
        roots.admit("secret.txt", Purpose.READ)


def test_the_whole_file_system_is_no_default() -> None:
    """Started in `/`, nothing is readable; a home of `/` allows nothing more."""
    assert default_roots(Path("/"), Path("/nowhere")).readable == ()
    assert Path("/") not in default_roots(Path("/usr"), Path("/")).listable


def test_chosen_roots_are_all_there_is(place: Path) -> None:
    """`--root` replaces the defaults; a relative path then starts in the current folder or the first root."""
    roots = roots_at([place / "theirs"], place / "ours")
    assert roots.admit("secret.txt", Purpose.READ) == place / "theirs" / "secret.txt"
    with pytest.raises(ToolError):
        roots.admit(tempfile.gettempdir() + "/..", Purpose.LIST)
    with pytest.raises(ConfigError, match="gone"):
        roots_at([place / "gone"])


@given(
    parts=st.lists(st.sampled_from(["..", ".", "in", "out", "back", "loop", "theirs", "ours", "secret.txt", "", "x"]))
)
@example(parts=["loop", "..", "out"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_no_path_gets_out(place: Path, parts: list[str]) -> None:
    """Whatever is made of names, dots and links, what is admitted lies inside the root."""
    root = place / "ours"
    for path in ("/".join(parts), f"{root}/" + "/".join(parts)):
        try:
            admitted = roots_at([root], root).admit(path, Purpose.READ)
        except ToolError:
            continue
        assert os.path.realpath(admitted).startswith(f"{root}{os.sep}") or admitted == root
