"""How much the words beside a call say, and whether they show or act."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dialects.scanning import scan
from mustcall.dialects import CallEnd
from mustcall.dialects.prose import acts, count_words, has_substance, shows

FENCE = '```json\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n```'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 0),
        ("…!", 0),
        ("Done.", 1),
        ("I will look.", 3),
        ("完成。", 2),
        ("这是一个示例", 6),
        ("お待ちください。", 4),
        ("완료했습니다.", 3),
        ("Готово.", 1),
        ("调用 get_weather", 3),
        ("รอสักครู่", 4),
    ],
)
def test_words_are_counted_in_any_script(text: str, words: int) -> None:
    """Rule 63: an ideograph is about a word, two syllables of a script without blanks are."""
    assert count_words(text) == words


@pytest.mark.parametrize(
    "text",
    ["Done.", "That is all.", "<|im_e", "完成。", "请稍候。", "以上です。", "완료했습니다.", "Fertig!", "Готово."],
)
def test_a_closing_word_has_no_substance(text: str) -> None:
    """Rule 63: a word or two behind a call leave it one."""
    assert not has_substance(text)


@pytest.mark.parametrize(
    "text",
    [
        "This asks for the weather.",
        "这是一个示例，请不要执行它。",
        "仅供参考。",
        "例です。",
        "이것은 예시입니다.",
        "Ein Beispiel.",
        "Un exemple.",
        "No lo ejecutes.",
        "Не выполняйте.",
        "Not executed.",
        "Don’t run it.",
        "Replace Oslo.",
    ],
)
def test_a_sentence_has_substance(text: str) -> None:
    """Rule 63: a sentence, and fewer words that say it is an example, make what stands before it text."""
    assert has_substance(text)
    assert not [event for event in scan([f"{FENCE}\n{text}"]) if isinstance(event, CallEnd)]


PIECES = (
    "例",
    "です",
    "这是",
    "样例",
    "exam",
    "ple",
    "not ",
    "run",
    " be",
    "e.g",
    "don’t ",
    "Done",
    ".",
    " ",
    "예",
    "시",
    "a",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_substance_is_never_lost(pieces: list[str]) -> None:
    """Rule 113: a text with substance has it with more behind it, so that where a stream is cut does not matter."""
    texts = list(itertools.accumulate(pieces, initial=""))
    told = [has_substance(text) for text in texts]
    assert told == sorted(told)


@given(st.lists(st.sampled_from(PIECES), max_size=6), st.integers(0, 10_000))
def test_a_cut_changes_nothing(pieces: list[str], seed: int) -> None:
    """Rule 113: the words behind a call are judged alike however they are cut."""
    text = f"{FENCE}\n{''.join(pieces)}"
    place = seed % (len(text) + 1)
    assert scan([text[:place], text[place:]]) == scan([text]) == scan(list(text))


def test_showing_and_acting() -> None:
    """Whole words count, in the script's own way."""
    assert shows("Here is an example.")
    assert shows("次のように書きます：")
    assert not shows("I'm supposed to look likely places up")
    assert acts("I’ll look it up")
    assert acts("正在查询")
    assert not acts("Je l'appellerais ainsi")
    assert not acts("Here is the tool call I made")
