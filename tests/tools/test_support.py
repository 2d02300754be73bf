"""What the tests themselves rest on: kept answers of the model, and the number of examples of a property test."""

import json
import os
from collections import Counter
from collections.abc import Callable
from itertools import accumulate, combinations, pairwise, product
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mustcall.upstream.embedded import engine
from support import misses, served
from support.answered import Answered, kept_answers
from support.examples import PROFILES, scaled, share
from support.ordering import LONG, SHORT, TESTS, is_long, rank, shuffled
from support.served import KeptServer, ServedAnswer
from support.splits import some_places, splits, text_splits
from support.thinning import cover, thinned

TEXT: dict[str, Any] = {"choices": [{"finish_reason": None, "index": 0, "delta": {"content": "Hé"}}]}
END: dict[str, Any] = {"choices": [{"finish_reason": "stop", "index": 0, "delta": {}}]}


class Model:
    """A model that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def handle_chat_completions(self, body: bytes, callback: Callable[[bytes], bool]) -> None:
        """Write two pieces."""
        self.asked.append(body)
        for piece in (TEXT, END):
            if callback(json.dumps({**piece, "id": "x", "created": 7, "model": "m", "object": "chunk"}).encode()):
                return


def answers(model: Answered, body: bytes, most: int = 9) -> list[object]:
    """Ask and return the choices of each piece, up to as many as are wanted."""
    said: list[object] = []

    def take(data: bytes) -> bool:
        said.append(json.loads(data)["choices"])
        return len(said) == most

    model.handle_chat_completions(body, take)
    return said


def test_an_answer_is_kept_under_all_that_made_it(tmp_path: Path) -> None:
    """The same request is answered from the file in the same pieces; another request or model is asked for."""
    real, file = Model(), tmp_path / "kept.jsonl"
    both = [TEXT["choices"], END["choices"]]
    for _ in range(2):
        kept = (
            {line["key"]: line["pieces"] for line in map(json.loads, file.read_text().splitlines())}
            if real.asked
            else {}
        )
        assert answers(Answered("one", lambda: real, kept, file), b"{}") == both
    assert len(real.asked) == 1
    assert [json.loads(line)["pieces"] for line in file.read_text().splitlines()] == [["Hé", END]]
    known = {json.loads(line)["key"]: json.loads(line)["pieces"] for line in file.read_text().splitlines()}
    assert answers(Answered("other", lambda: real, known, None), b"{}") == both
    assert answers(Answered("one", lambda: real, known, None), b"{ }") == both
    assert len(real.asked) == 3


def test_an_answer_that_was_given_up_is_not_kept(tmp_path: Path) -> None:
    """Nobody knows how it would have gone on; one that is told from the file can be given up as well."""
    real, file = Model(), tmp_path / "kept.jsonl"
    model = Answered("one", lambda: real, {}, file)
    assert len(answers(model, b"{}", 1)) == 1
    assert not file.exists()
    assert len(answers(model, b"{}")) == 2
    assert len(answers(model, b"{}", 1)) == 1
    assert len(real.asked) == 2


def test_the_model_itself_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`MUSTCALL_TEST_MODEL=real` leaves the engine as it is; otherwise it is replaced for so long as is said."""
    load = engine._load
    for mode, same in (("real", True), ("", False), ("record", False)):
        monkeypatch.setenv("MUSTCALL_TEST_MODEL", mode)
        with kept_answers():
            assert (engine._load is load) is same
        assert engine._load is load


def test_a_servers_answer_is_kept_under_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status, headers and pieces come back for the same request and context alone; none where `real` is set."""
    file, answer = tmp_path / "kept.jsonl", ServedAnswer(200, {"Server": "llama.cpp"}, (b"one ", "zwö".encode()))
    asked = ("POST", "/v1/chat/completions", b"{}")
    KeptServer(file=file).keep(*asked, answer)
    assert not file.exists()
    monkeypatch.setenv("MUSTCALL_TEST_MODEL", "record")
    KeptServer(file=file).keep(*asked, answer)
    monkeypatch.setattr(misses, "_asked", [])
    monkeypatch.setenv("MUSTCALL_TEST_MODEL", "")
    served._known.cache_clear()
    kept = KeptServer(file=file)
    assert kept.known(*asked) == answer
    assert misses.told() == []
    assert kept.known("POST", "/v1/chat/completions", b"{ }") is None
    assert KeptServer(context=512, file=file).known(*asked) is None
    assert misses.told()[0].startswith("2 requests went to a model")
    monkeypatch.setenv("MUSTCALL_TEST_MODEL", "real")
    assert KeptServer(file=file).known(*asked) is None
    assert misses.told()[0].startswith("2 requests went to a model")


def test_another_order_has_the_same_tests(request: pytest.FixtureRequest) -> None:
    """A seed is an order, another seed another; the tests of a module stay together."""
    items = request.session.items
    some = [item for item in items if item.path in {each.path for each in items[:: max(1, len(items) // 20)]}]
    one = shuffled(some, "1")
    assert one == shuffled(some, "1")
    assert {item.nodeid for item in one} == {item.nodeid for item in some}
    if len(some) > 100:
        assert one not in (some, shuffled(some, "2"))
    paths = [item.path for item in one]
    assert sum(a != b for a, b in pairwise(paths)) == len(set(paths)) - 1


GRID = [*product(range(8), range(3), range(3), range(2))]
WAYS = [*product(range(3), range(3), range(2))]


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize(("rows", "most"), [(WAYS, 10), (GRID, 36), ([(n, n, n) for n in range(5)], 5)])
def test_a_cover_holds_every_pair(rows: list[tuple[int, ...]], most: int, first: int) -> None:
    """Whatever two parameters are together in the grid they are in its cover, and a row that nothing else has stays."""
    kept = [rows[place] for place in sorted(cover(tuple(rows), first))]
    for one, other in combinations(range(len(rows[0])), 2):
        assert {(row[one], row[other]) for row in kept} == {(row[one], row[other]) for row in rows}
    assert len(kept) <= most
    if len(rows[0]) > 3:
        assert {row[1:] for row in kept} == {row[1:] for row in rows}
    assert rows[first % len(rows)] in kept


def test_covers_of_one_grid_hold_all_of_it_together() -> None:
    """Tests begin with different rows of the same grid: what one leaves out another one runs."""
    covers = [cover(tuple(WAYS), first) for first in range(len(WAYS))]
    assert set[int]().union(*covers) == {*range(len(WAYS))}
    assert max(map(len, covers)) < len(WAYS)


THINNED = """
    import pytest
    ways = pytest.mark.parametrize(("wire", "stream"), [(w, s) for w in "abc" for s in (False, True)])

    @pytest.mark.parametrize("upstream", "abc")
    @ways
    def test_grid(wire, stream, upstream): ...

    @pytest.mark.parametrize("upstream", "abc")
    @pytest.mark.parametrize("wire", "abc")
    def test_two(wire, upstream): ...

    @pytest.mark.parametrize(("a", "b", "told"), [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 0), (2, 2, 1)])
    def test_table(a, b, told): ...

    @pytest.mark.parametrize("case", [{"x": 1}, {"x": 2}])
    @ways
    def test_cases(wire, stream, case): ...
"""


def test_only_whole_products_of_three_are_thinned(tmp_path: Path) -> None:
    """Tables and grids of two parameters stay whole; a list of pairs that is a product counts as two parameters."""
    (tmp_path / "test_it.py").write_text(dedent(THINNED), encoding="utf-8")
    seen: list[pytest.Item] = []

    class Seeing:
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            seen.extend(session.items)

    plain = ["-c", os.devnull, "-p", "no:cacheprovider", "-p", "no:asyncio"]
    pytest.main(["--collect-only", "-qq", *plain, str(tmp_path)], [Seeing()])
    left = thinned(seen)
    count = Counter(item.nodeid.split("::")[1].split("[")[0] for item in seen if item not in left)
    assert len(seen) == 18 + 9 + 5 + 12
    assert (count["test_grid"], count["test_two"], count["test_table"]) == (9, 9, 5)
    assert 6 <= count["test_cases"] < 12


def test_splits_are_at_every_place() -> None:
    """Nothing is lost, every place is a cut, and a cut alone stands at the end of each line."""
    stream = b"".join(b"event: %d\ndata: {}\n\n" % number for number in range(40))
    ways = [*splits(stream)]
    assert {b"".join(way) for way in ways} == {stream}
    assert all(piece for way in ways for piece in way)
    some = [way for way in ways if 2 < len(way) < len(stream)]
    assert {place for way in some for place in accumulate(map(len, way))} == {*range(1, len(stream) + 1)}
    alone = {len(way[0]) for way in ways if len(way) == 2}
    assert alone >= {at + 1 for at in range(len(stream) - 1) if stream[at : at + 1] == b"\n"}


@pytest.mark.parametrize("text", ["", "a", "ab", '<tool_call>{"name": "f", "arguments": {}}</tool_call>' * 3])
def test_texts_are_split_at_every_place(text: str) -> None:
    """Nothing is lost, and every place is a cut among a few others; `deep` cuts alone at every place."""
    ways = {profile: [*text_splits(text, profile)] for profile in PROFILES}
    assert {"".join(way) for found in ways.values() for way in found} == {text}
    assert all(piece or not text for found in ways.values() for way in found for piece in way)
    assert {len(way[0]) for way in ways["deep"] if len(way) == 2} == {*range(1, len(text))}
    few = [way for way in ways["ci"] if len(way) <= len(text) // 13 + 2]
    assert {place for way in few for place in accumulate(map(len, way))} >= {*range(1, len(text))}
    if len(text) > 100:
        alone = {len(way[0]) for way in ways["ci"] if len(way) == 2}
        assert len(text) / 6 < len(alone) < len(text) / 4
        some = {len(way[0]) for way in text_splits(text, "ci", alone=20) if len(way) == 2}
        assert some == {*range(min(some), len(text), 20)}
        assert min(some) <= 20


def test_some_places_begin_where_the_key_says() -> None:
    """One in so many under `ci`, others for another key; all of them in depth."""
    found = [some_places(1, 40, 4, key, "ci") for key in "abcdefgh"]
    assert {place for places in found for place in places} == {*range(1, 40)}
    assert {len(places) for places in found} == {9, 10}
    assert some_places(1, 40, 4, "a", "deep") == range(1, 40)


def test_tests_that_share_cases_take_all_of_them() -> None:
    """Each case is taken by one test under `ci`, whatever the number of tests, and by every test in depth."""
    cases = [*range(10)]
    for tests in (1, 3, 4, 10, 12):
        assert sorted(case for place in range(tests) for case in share(cases, place, tests, "ci")) == cases
        assert all(share(cases, place, tests, "deep") == cases for place in range(tests))


@pytest.mark.parametrize(("profile", "own", "usual"), [("ci", 48, 16), ("deep", 3000, 1000)])
def test_a_number_of_examples_is_scaled_once(profile: str, own: int, usual: int) -> None:
    """300 examples are 48 in CI and 3,000 in depth; a test that names no number has the profile's."""

    @settings(PROFILES[profile], max_examples=300)
    @given(st.none())
    def named(_: None) -> None: ...

    @settings(PROFILES[profile])
    @given(st.none())
    def unnamed(_: None) -> None: ...

    for _ in range(2):
        scaled(named, profile)
        scaled(unnamed, profile)
    kept = [getattr(test, "_hypothesis_internal_use_settings").max_examples for test in (named, unnamed)]  # noqa: B009
    assert kept == [own, usual]


def test_ci_draws_the_same_every_time() -> None:
    """A failure in CI is one that can be seen again; depth draws others each time."""
    assert PROFILES["ci"].derandomize
    assert not PROFILES["deep"].derandomize


@pytest.mark.parametrize("profile", PROFILES)
def test_nothing_is_timed(profile: str) -> None:
    """A busy machine fails no property test: neither an example nor drawing it has a limit."""
    assert PROFILES[profile].deadline is None
    assert HealthCheck.too_slow in PROFILES[profile].suppress_health_check


def test_long_tests_are_first_and_short_ones_last() -> None:
    """What is named there exists; a file that nobody has named is between the two."""
    files = [TESTS / name for name in LONG]
    assert all(file.is_file() for file in files)
    assert all((TESTS / folder).is_dir() for folder in SHORT)
    other, short = TESTS / "gateway" / "test_new.py", TESTS / "wire" / "messages" / "test_new.py"
    assert sorted([short, other, *reversed(files)], key=rank) == [*files, other, short]
    assert [is_long(file) for file in (files[0], other, short)] == [True, False, False]
