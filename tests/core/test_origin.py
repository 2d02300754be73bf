"""Values remember their exact form only while nobody changed them."""

from mustcall.core.origin import Origin, Wire
from mustcall.core.parts import Text

_RAW = {"type": "text", "text": "a", "x": 1}


def _text() -> Text:
    return Text(text="a", origin=Origin(Wire.CHAT, {"x": 1}, _RAW, {"text": "a"}))


def test_untouched_value_knows_its_exact_form() -> None:
    """The exact form, the unknown fields and the spelling are given out on the value's own wire."""
    text = _text()
    assert text.raw_for(Wire.CHAT) is _RAW
    assert text.fields_for(Wire.CHAT) == {"x": 1}
    assert text.spelling_for(Wire.CHAT) == {"text": "a"}


def test_no_other_wire_gets_any_of_it() -> None:
    """Nothing of an origin is sent on another wire."""
    text = _text()
    assert text.raw_for(Wire.MESSAGES) is None
    assert text.fields_for(Wire.MESSAGES) == {}
    assert text.spelling_for(Wire.MESSAGES) == {}


def test_evolve_drops_the_exact_form_only() -> None:
    """A changed copy keeps unknown fields and spelling; the first value is untouched."""
    text = _text()
    changed = text.evolve(text="b")
    assert (changed.text, changed.raw_for(Wire.CHAT)) == ("b", None)
    assert changed.fields_for(Wire.CHAT) == {"x": 1}
    assert changed.spelling_for(Wire.CHAT) == {"text": "a"}
    assert text.raw_for(Wire.CHAT) is _RAW
    assert changed.evolve(text="c").fields_for(Wire.CHAT) == {"x": 1}


def test_evolve_can_replace_the_origin() -> None:
    """An origin given to `evolve` is taken as it is."""
    assert _text().evolve(origin=None).origin is None
