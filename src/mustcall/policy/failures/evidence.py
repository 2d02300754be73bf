"""Whether an upstream's words are its own: what it may have quoted from the request teaches nothing (rule 139).

An error often repeats what it refuses. A caller who writes "does not support tools" into a request that is refused for
any reason would otherwise decide what is believed of the upstream.

Cost: one walk through the request, and only where a refusal would teach something.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

__all__ = ["is_quoted"]


def is_quoted(words: Iterable[str], body: bytes, others: Iterable[str] = ()) -> bool:
    """Tell whether one of the words (lower case) stands in a text of the request, or in `others`.

    A field's name that is the word itself does not count (`tool_choice`): it is how the request says what was refused.
    Any other name that holds the word does. A body that cannot be read may hold anything.
    """
    looked_for = tuple(words)
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return True
    if any(word in text.lower() for text in others for word in looked_for):
        return True
    for text, is_name in _texts(document):
        lowered = text.lower()
        if any(word in lowered and not (is_name and word == lowered and " " not in word) for word in looked_for):
            return True
    return False


def _texts(document: Any) -> Iterator[tuple[str, bool]]:
    """Yield every string of a document and whether it is the name of a field."""
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value, False
        elif isinstance(value, Mapping):
            for name, held in cast("Mapping[str, Any]", value).items():
                yield name, True
                left.append(held)
        elif isinstance(value, list):
            left.extend(cast("list[Any]", value))
