"""Search over a folder of documents."""

from pathlib import Path

import pytest

from mustcall.core.errors import ToolError
from mustcall.toolkit.builtin.search import Documents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A few documents, one of them elsewhere, one hidden, one binary."""
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "cats.md").write_text("# Cats\n\nCats sleep.\n\n## Feeding\n\nA cat is fed twice a day with fish.\n")
    (docs / "dogs.txt").write_text("Dogs bark. A dog is walked every morning.")
    (docs / "deep" / "fish.rst").write_text("Fish swim in the pond.")
    (docs / ".secret.md").write_text("The password is swordfish.")
    (docs / "code.py").write_text("cats = 'not a document'")
    (docs / "bad.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "outside.md").write_text("Cats outside.")
    (docs / "link.md").symlink_to(tmp_path / "outside.md")
    return docs


def test_the_best_passage_comes_first(folder: Path) -> None:
    """The passage that is about the question wins, with its file, line and heading."""
    best = Documents(folder).search("how are cats fed?")[0]
    assert (best.file, best.line, best.heading) == ("cats.md", 7, "Feeding")
    assert "fish" in best.text
    assert Documents(folder).search("walking a dog")[0].file == "dogs.txt"
    assert Documents(folder).search("pond")[0].file == "deep/fish.rst"


def test_what_is_no_document(folder: Path) -> None:
    """Hidden files, code, and links that lead out are not searched; what cannot be read is counted."""
    documents = Documents(folder)
    assert documents.answer("password").startswith("nothing")
    assert "1 files were left out" in documents.answer("password")
    assert all(passage.file != "link.md" for passage in documents.search("cats outside", most=10))


def test_an_answer_has_its_places(folder: Path) -> None:
    """Each passage stands under its place."""
    assert "[cats.md:7 - Feeding]\nA cat is fed twice a day with fish." in Documents(folder).answer("feeding cats")


def test_the_folder_is_read_once_and_late(folder: Path) -> None:
    """Nothing is read before the first question; afterwards nothing again."""
    documents = Documents(folder)
    (folder / "new.md").write_text("Unicorns.")
    assert documents.search("unicorns")
    (folder / "newer.md").write_text("Griffins.")
    assert documents.search("griffins") == []


def test_long_documents_make_many_passages(folder: Path) -> None:
    """A passage stays small whatever the document, also when it is one line."""
    (folder / "long.txt").write_text(" ".join(f"word{number}" for number in range(20_000)))
    found = Documents(folder).search("word19999 word5")
    assert {passage.file for passage in found} == {"long.txt"}
    assert all(len(passage.text) <= 2000 for passage in found)


def test_a_query_needs_words(folder: Path) -> None:
    """A query of signs alone is refused; an empty folder answers that nothing matches."""
    with pytest.raises(ToolError, match="words"):
        Documents(folder).search("?!")
    assert Documents(folder / "deep" / "none").answer("fish") == "nothing in the documents matches"
