"""The very beginning of a reply: a header that the prompt began, and tokens that only count there."""

from typing import Any

import pytest

from dialects.scanning import TOOLS, calls_of, dialects_of, reasoning_of, reasons_of, scan, text_of
from mustcall.dialects import ScanEvent, ScannedText, Scanner

PARIS: dict[str, Any] = {"name": "get_weather", "arguments": {"city": "P"}}
OBJECT = '{"city":"P"}'
ATEM = (
    '<atem:function_calls>\n<atem:invoke name="get_weather">\n<atem:parameter name="city">P</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>"
)
HEADER = "<|im_start|>assistant"


def read(text: str, **options: Any) -> list[ScanEvent]:
    """Return the events of a text, the same at every split, and by character."""
    whole = scan([text], **options)
    assert scan(list(text), **options) == whole
    for position in range(len(text)):
        assert scan([text[:position], text[position:]], **options) == whole
    return whole


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        (f" to=functions.get_weather<|channel|>commentary<|message|>{OBJECT}<|call|>", "harmony"),
        (f"to=functions.get_weather<|channel|>commentary<|message|>{OBJECT}<|call|>", "harmony"),
        (f" to=functions.get_weather <|constrain|>json<|message|>{OBJECT}", "harmony"),
        (f"{HEADER} to=functions.get_weather<|channel|>commentary<|message|>{OBJECT}<|call|>", "harmony"),
        (f" to=get_weather<|message|>{ATEM}<|eom|>", "muse_glimmer"),
        (f" to=self<|message|>hm<|eom|><|start|>assistant to=get_weather<|message|>{ATEM}<|eom|>", "muse_glimmer"),
    ],
)
def test_a_header_the_prompt_began(text: str, dialect: str) -> None:
    """Rule 57: where the prompt ended with `<|start|>assistant`, the rest of the header is markup all the same."""
    events = read(text)
    assert (calls_of(events), dialects_of(events)) == ([PARIS], [dialect])
    assert (text_of(events), reasons_of(events)) == ("", [])


def test_only_muse() -> None:
    """Muse's own header needs no other dialect."""
    events = read(f" to=get_weather<|message|>{ATEM}<|eom|>", dialects=["muse_glimmer"])
    assert (calls_of(events), text_of(events)) == ([PARIS], "")


def test_addressed_to_itself_or_to_the_user() -> None:
    """Rule 65: what the model addresses to itself is reasoning, what it addresses to the user is text."""
    events = read(" to=self<|message|>hm<|eom|><|start|>assistant to=user<|message|>Hi.<|eom|>")
    assert (reasoning_of(events), text_of(events), reasons_of(events)) == ("hm", "Hi.", [])
    assert text_of(read(" to=user<|message|>Hi.<|eom|>")) == "Hi."


@pytest.mark.parametrize(
    "text",
    [
        " to",
        " to=",
        " to=you, my friend",
        "to=x is an assignment",
        "to=x <b>",
        " to=x<|mess",
        "to=" + "x" * 300,
        "  to=x y",
        "total",
    ],
)
def test_prose_that_begins_so(text: str) -> None:
    """What only begins like such a header is text, and no damage."""
    events = read(text)
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], text, [])


def test_nowhere_but_at_the_beginning() -> None:
    """A recipient in the middle of a reply is no header: what it calls is seen, but not called."""
    text = f"So\n to=functions.get_weather<|message|>{OBJECT}"
    events = read(text)
    left = text.replace("<|message|>", "")
    assert (calls_of(events), text_of(events), reasons_of(events)) == ([], left, ["unknown_markup"])


def test_damage_behind_a_header() -> None:
    """Rule 59: behind such a header a call that is none is reported as behind any other."""
    for text, reason in (
        (" to=rm<|message|>{}<|call|>", "unknown_tool"),
        (" to=functions.get_weather<|message|>[]", "arguments_not_object"),
        (" to=functions.get_weather<|channel|>commentary<|mess", "truncated"),
    ):
        events = read(text)
        assert (calls_of(events), reasons_of(events)) == ([], [reason])
        assert text_of(events) == text


@pytest.mark.parametrize("token", ["\ufeff", HEADER, HEADER + "\n", HEADER + "\r\n", "\ufeff" + HEADER + "\n"])
def test_tokens_at_the_beginning(token: str) -> None:
    """Rule 65: a byte order mark and the prompt's own header are no text where a reply begins; elsewhere they are."""
    assert text_of(read(token + "Hi.")) == "Hi."
    assert text_of(read(token)) == ""
    call = '{"name": "get_weather", "arguments": {"city": "P"}}'
    events = read(token + call)
    assert (calls_of(events), text_of(events)) == ([PARIS], "")
    assert reasoning_of(read(token + "<think>hm</think>Hi.")) == "hm"
    assert text_of(read("So. " + token)) == "So. " + token


@pytest.mark.parametrize("text", ["<|im_start|>user\nHi", "<|im_start|>assist", "<|im_start|>"])
def test_other_headers_are_text(text: str) -> None:
    """Another role's header is not the reply's own."""
    assert text_of(read(text)) == text


def test_prose_is_not_held_at_the_beginning() -> None:
    """A reply that begins with a word is out as soon as it can be no header."""
    scanner = Scanner(tools=TOOLS)
    assert [scanner.feed(character) for character in "tea"] == [[], [ScannedText("te")], [ScannedText("a")]]
