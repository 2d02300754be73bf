"""Dialects of one's own, as data: markers around a call that is written in a way mustcall knows (rules 43, 57).

A dialect with a grammar of its own is a `Dialect` in code; this is for the rest, which a configuration file can say.
"""

import re
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from mustcall.core.errors import ConfigError
from mustcall.dialects.dialect import A_NAME, Dialect, Opener, Parser, Renderer, Standing, WrittenCall
from mustcall.dialects.families.python_calls import any_in, write_python_call
from mustcall.dialects.families.xml_params import invoke_tags, read_calls, write_invoke
from mustcall.dialects.reading.envelope import dump, read_array, read_envelopes
from mustcall.dialects.reading.reader import Parse, ahead
from mustcall.dialects.reading.span import Span

__all__ = ["Body", "DialectSettings", "make_dialect"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_LEAST_MARKER = 3


class Body(StrEnum):
    """How a call is written between the markers."""

    JSON = "json"  # one object with a name and arguments, several, or an array of them
    PYTHON = "python"  # calls under each other, or a list of them
    INVOKE = "invoke"  # `<invoke name="…"><parameter name="…">…`


class DialectSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[dialect]]`: a text form of calls, by its markers and what stands between them."""

    name: str
    #: The marker before a call, and the one behind it, if there is one.
    open: str
    close: str = ""
    body: Body = Body.JSON
    #: When it is looked for: always (`auto`), under the prompt protocol (`loose`), there and where the call is the
    #: whole reply (`reply`), or where a profile names it (`named`).
    standing: Standing = Standing.AUTO
    #: How a tool's result is shown to the model, with `{name}` and `{content}` in it.
    result: str = "<tool_response>\n{content}\n</tool_response>"


def make_dialect(settings: DialectSettings) -> Dialect:
    """Return the dialect; raise `ConfigError` naming what is wrong with the settings."""
    where = f"dialect {settings.name!r}"
    if not _NAME.match(settings.name) or settings.name == "auto":
        raise ConfigError(f"{where}: name must be lower-case letters, digits and underscores, and not 'auto'")
    for field, marker in (("open", settings.open), ("close", settings.close)):
        if (marker or field == "open") and not _is_marker(marker):
            raise ConfigError(
                f"{where}: {field} must be {_LEAST_MARKER} or more characters without blanks at its ends, and more "
                f"than letters and digits; got {marker!r:.80}"
            )
    if "{content}" not in settings.result:
        raise ConfigError(f"{where}: result must have {{content}} in it, got {settings.result!r:.80}")
    closers = (settings.close,) if settings.close else ()
    starts, parser, render = _BODIES[settings.body]
    return Dialect(
        settings.name,
        "own",
        "configured",
        (Opener(settings.open, parser(closers), starts),),
        closers,
        render(settings.open, settings.close),
        settings.standing,
        settings.result,
    )


def _is_marker(text: str) -> bool:
    return len(text) >= _LEAST_MARKER and text == text.strip() and not text.isalnum() and text.isprintable()


def _json(closers: tuple[str, ...]) -> Parser:
    def read(span: Span) -> Parse[None]:
        if (yield from ahead(span.reader)) == "[":
            yield from read_array(span)
        else:
            yield from read_envelopes(span)
        if closers:
            yield from span.finish(*closers)

    return read


def _python(closers: tuple[str, ...]) -> Parser:
    return any_in(*closers)


def _invoke(closers: tuple[str, ...]) -> Parser:
    def read(span: Span) -> Parse[None]:
        yield from read_calls(span, invoke_tags(), *closers)

    return read


def _renderer(write: Callable[[WrittenCall], str]) -> Callable[[str, str], Renderer]:
    def make(before: str, after: str) -> Renderer:
        def render(calls: Sequence[WrittenCall]) -> str:
            return "\n".join(f"{before}\n{write(call)}\n{after}".rstrip("\n") for call in calls)

        return render

    return make


def _write_json(call: WrittenCall) -> str:
    return dump({"name": call.name, "arguments": call.arguments})


_BODIES: dict[Body, tuple[tuple[str, ...], Callable[[tuple[str, ...]], Parser], Callable[[str, str], Renderer]]] = {
    Body.JSON: (("{", "["), _json, _renderer(_write_json)),
    Body.PYTHON: (("[", A_NAME + "("), _python, _renderer(write_python_call)),
    Body.INVOKE: (("<invoke name=",), _invoke, _renderer(write_invoke)),
}
