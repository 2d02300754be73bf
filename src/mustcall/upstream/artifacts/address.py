"""Takes a file from an http(s) address, each try from where the last one broke off.

An address that cannot be reached is given up within seconds, because another source may have the file.
"""

import http.client
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import IO, Any

from mustcall.core.errors import ConfigError
from mustcall.upstream.artifacts.part import Part, SourceFailed
from mustcall.upstream.artifacts.values import UrlSource

__all__ = ["take_url"]

_CHUNK = 256 * 1024
_TRIES = 4
#: Seconds until an answer must have begun: name lookup, connection, TLS and redirections together.
_ANSWER = 6.0
#: Seconds without a byte after which a transfer has broken off.
_SILENCE = 30.0


def take_url(source: UrlSource, part: Part) -> None:
    """Fill the part file; raise `SourceFailed` where the address does not give it. What arrived before is kept."""
    if not source.url.startswith(("https://", "http://")):
        raise ConfigError(f"files are fetched over http(s), not from {source.url}")
    problem = ""
    for _ in range(_TRIES):
        have = part.have
        if have == part.total:
            return
        if have > part.total:
            part.discard()
            have = 0
        part.need()
        problem = _append(source, part, have)
        if part.have == part.total:
            return
        if part.have == have:
            break  # a try without a byte: the next one would bring none either
    raise SourceFailed(problem)


def _append(source: UrlSource, part: Part, have: int) -> str:
    """Write what one request brings; return why it ended early, if it did."""
    request = urllib.request.Request(source.url, headers={"user-agent": "mustcall"})  # noqa: S310  checked above
    if have:
        request.add_header("range", f"bytes={have}-")
    try:
        answer = _answer(request)
    except urllib.error.HTTPError as error:
        with error:
            problem = f"{source.where} answered HTTP {error.code} {error.reason}"
            if error.code == 416:  # nothing is there from this place on: what we have is not the beginning of it
                part.discard()
                return problem
            raise SourceFailed(problem) from None
    except TimeoutError:
        raise SourceFailed(f"{source.where} did not answer within {_ANSWER:g} s") from None
    except (OSError, http.client.HTTPException) as error:
        raise SourceFailed(f"{source.where} cannot be reached ({_reason(error)})") from None
    with answer:
        goes_on = answer.status == 206
        done = have if goes_on else 0
        length = answer.headers.get("content-length", "")
        if length.isdecimal() and done + int(length) != part.total:
            raise SourceFailed(f"{source.where} has a file of {done + int(length)} bytes, not {part.total}")
        with part.path.open("ab" if goes_on else "wb") as out:
            return _copy(source, part, answer, out, done)


def _copy(source: UrlSource, part: Part, answer: Any, out: IO[bytes], done: int) -> str:
    """Write what comes. Only reading is the source's fault; what writing raises is the disk's, and leaves here."""
    while True:
        try:
            chunk: bytes = answer.read(_CHUNK)
        except (OSError, http.client.HTTPException) as error:
            return f"the transfer from {source.where} broke off ({_reason(error)})"
        if not chunk:
            return f"{source.where} ended the transfer early"
        out.write(chunk)
        done += len(chunk)
        part.tell(done)
        if done > part.total:
            return f"{source.where} has a larger file than {part.total} bytes"


def _answer(request: urllib.request.Request) -> Any:
    """Return the opened answer, or raise `TimeoutError`.

    The request runs in a thread, because a name lookup takes as long as the system likes. It is waited for by a queue:
    Ctrl-C at the wrong moment in the wait of a future ends in a `RuntimeError` of its lock.
    """
    opened: Future[Any] = Future()
    ended: SimpleQueue[None] = SimpleQueue()

    def ask() -> None:
        try:
            opened.set_result(urllib.request.urlopen(request, timeout=_SILENCE))  # noqa: S310  checked by the caller
        except Exception as error:  # noqa: BLE001  raised again where it is waited for
            opened.set_exception(error)
        ended.put(None)

    threading.Thread(target=ask, daemon=True).start()
    try:
        ended.get(timeout=_ANSWER)
    except Empty:
        opened.add_done_callback(_close_late)
        raise TimeoutError from None
    return opened.result()


def _close_late(opened: Future[Any]) -> None:
    if opened.exception() is None:
        opened.result().close()


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return str(getattr(cause, "strerror", None) or cause) or type(cause).__name__
