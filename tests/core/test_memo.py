from mustcall.core.memo import Remembered


def test_the_same_object_is_looked_at_once() -> None:
    """Identity is what counts: an equal object is another one."""
    made: list[object] = []
    memo: Remembered[int] = Remembered()

    def make(of: object) -> int:
        made.append(of)
        return len(made)

    one, other = (1, [2]), (1, [2])
    assert [memo.get(one, make=lambda: make(one)) for _ in range(3)] == [1, 1, 1]
    assert memo.get(other, make=lambda: make(other)) == 2
    assert memo.get(one, "more", make=lambda: make(one)) == 3


def test_the_oldest_is_forgotten() -> None:
    """No more than `most` values are kept, and a forgotten one is made again."""
    memo: Remembered[list[int]] = Remembered(most=2)
    keys = [(number,) for number in range(3)]
    first = memo.get(keys[0], make=lambda: [0])
    for key in keys[1:]:
        memo.get(key, make=lambda: [1])
    assert memo.get(keys[2], make=lambda: [2]) == [1]
    assert memo.get(keys[0], make=lambda: [0]) is not first
