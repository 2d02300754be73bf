"""Reads the answers of one HTTP/1.1 connection from its bytes, however they are cut into pieces.

The bytes are parsed by `httptools` (llhttp, in C); this decides what they mean for an exchange: when the answer begins,
when it is complete, whether the connection may be used again. It knows no socket, no time and no URL. Interim answers
and trailers are skipped. A change of protocol, a head that does not end, and bytes that nobody asked for are refused.
"""

from enum import Enum, auto

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from mustcall.core.http_headers import read_headers

__all__ = ["HEAD_LIMIT", "AnswerPhase", "AnswerReader", "Garbled", "Hangup"]

#: The most a head may have, interim answers included, in bytes. Model endpoints send about two thousand.
HEAD_LIMIT = 64 * 1024


class Hangup(Exception):
    """The connection ended before the answer was complete."""


class Garbled(Exception):
    """What came is not an answer in HTTP/1.1; the text says why, in words of the parser or ours."""


class AnswerPhase(Enum):
    """Where an exchange is. `DONE`: the answer has arrived whole; `BROKEN`: no more will come, see `error`."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DONE = auto()
    BROKEN = auto()


# A name is cheaper to look up than a member of an enum, and these are compared for every piece of every stream.
_IDLE, _HEAD, _BODY, _DONE, _BROKEN = AnswerPhase


class AnswerReader:
    """`expect` an answer, then `feed` what comes and `end` when no more will.

    `begun`: the whole head has arrived, and is in `status` and `headers`. `pieces`: what of the body was not taken yet.
    `keep`: nothing speaks against another exchange after this one.
    """

    __slots__ = (
        "_bodiless",
        "_interim",
        "_left",
        "_parser",
        "_raw",
        "_whole",
        "begun",
        "error",
        "headers",
        "keep",
        "on_body",
        "phase",
        "pieces",
        "status",
    )

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.on_body = self.pieces.append  # called by the parser, from C to C
        self._parser: HttpResponseParser | None = None
        self._bodiless = False
        self._interim = False
        self._left = HEAD_LIMIT
        self._whole = 0
        self.phase = AnswerPhase.IDLE
        self.begun = False
        self.keep = True
        self.error: Exception | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self._raw: list[tuple[bytes, bytes]] = []

    def expect(self, *, bodiless: bool) -> None:
        """A request is being sent. `bodiless`: whatever its headers say, the answer has no body (`HEAD`)."""
        if self._parser is None:
            self._parser = HttpResponseParser(self)
        self.phase = _HEAD
        self.begun = False
        self._raw.clear()
        self._bodiless = bodiless
        self._left = HEAD_LIMIT

    @property
    def answered(self) -> bool:
        """Whether any byte of an answer has arrived."""
        return self._left != HEAD_LIMIT

    def feed(self, data: bytes) -> None:
        """Take what came."""
        phase = self.phase
        if phase is _BODY:
            self._parse(data)
        elif phase is _HEAD:
            left = self._left
            self._left = left - len(data)
            if len(data) <= left:
                self._parse(data)
                return
            self._parse(data[:left])
            if self.phase is _HEAD:
                self.fail(Garbled(f"its head is larger than {HEAD_LIMIT} bytes"))
            else:
                self._parse(data[left:])
        elif phase is _DONE:
            self.keep = False
        else:
            self.fail(Garbled("it speaks without being asked"))

    def end(self, error: Exception | None) -> None:
        """No more will come: what can be complete now is, and the rest is broken."""
        if self.phase is _BODY and error is None and self._lasts_until_the_end():
            self.phase = _DONE
        if self.phase is _DONE:
            self.keep = False
        else:
            self.fail(error or Hangup())

    def fail(self, error: Exception) -> None:
        """Give the exchange up; the first reason stays."""
        self.keep = False
        if self.phase is not _BROKEN:
            self.phase = _BROKEN
            self.error = error

    def _lasts_until_the_end(self) -> bool:
        """Whether the body's end is the connection's: neither its length nor chunks say where it is."""
        coding = self.headers.get("transfer-encoding")
        if coding is not None:
            return coding.lower().rpartition(",")[2].strip() != "chunked"
        return "content-length" not in self.headers

    def _parse(self, data: bytes) -> None:
        """Parse, and settle what follows from it."""
        parser = self._parser
        if parser is None:  # the answer was a head only, and there is more
            self.keep = False
            return
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:
            self._spoil("it changes the protocol")
        except HttpParserError as error:
            cause = error.__context__
            self._spoil(str(cause if isinstance(cause, Garbled) else error))
        if self.phase is _DONE:
            if len(self.pieces) > self._whole:  # more than the answer: whatever it is, nobody asked for it
                del self.pieces[self._whole :]
                self.keep = False
            if self._bodiless:
                self._parser = None  # it still waits for the body that the headers may speak of

    def _spoil(self, why: str) -> None:
        """Bytes that are no HTTP: after the answer they end the use of the connection, within it they break it."""
        self.keep = False
        if self.phase is not _DONE:
            self.fail(Garbled(why))

    # What the parser calls, from within `_parse`.

    def on_message_begin(self) -> None:
        """An answer begins: the one that is waited for, or one that nobody asked for."""
        if self.phase is not _HEAD:
            self.keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; those of trailers are ignored."""
        if self.phase is _HEAD:
            self._raw.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Go on to the body, or to the next head after an interim answer."""
        parser = self._parser
        if self.phase is not _HEAD or parser is None:
            return
        status = self.status = parser.get_status_code()
        if status < 200:
            if status == 101 or status < 100:
                raise Garbled(f"status {status}")
            self._interim = True
            self._raw.clear()
            return
        self.headers = read_headers(self._raw)
        self._raw.clear()  # a connection may rest for long
        self.begun = True
        self.keep = parser.should_keep_alive()
        if status in _BODILESS:
            self._bodiless = True
        if self._bodiless:
            self.phase = _DONE
            self._whole = 0
        else:
            self.phase = _BODY

    def on_message_complete(self) -> None:
        """Note where the answer ends."""
        if self._interim:
            self._interim = False
        elif self.phase is _BODY:
            self.phase = _DONE
            self._whole = len(self.pieces)


#: Answers that have no body, whatever their headers say.
_BODILESS = frozenset({204, 304})
