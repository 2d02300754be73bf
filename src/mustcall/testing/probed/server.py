"""A server for probes: it reads any wire, answers as the honest model does, and lies where it is told to.

`LyingServer` is a transport without a socket, `LyingUpstream` the same on loopback HTTP. The strict rules of the
providers hold on both, but for those that forbid what a probe asks.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import urlsplit

import msgspec

from mustcall.core.errors import CallerError
from mustcall.core.message import Message, Role
from mustcall.core.origin import Wire
from mustcall.core.parts import Text
from mustcall.testing.delivery import plan_delivery
from mustcall.testing.issued import IssuedMemory, remember
from mustcall.testing.offers import as_object
from mustcall.testing.probed.honest import answer_turn
from mustcall.testing.probed.lying import Lie, ProbedRequest
from mustcall.testing.recording import End, Recorded
from mustcall.testing.render import Stamp
from mustcall.testing.render.stamp import to_json
from mustcall.testing.rules import SeenRequest, find_violation
from mustcall.testing.script import Answer, Fail, Raw, Say
from mustcall.testing.serving import PATHS, build_models, count_tokens
from mustcall.testing.upstream import ScriptedUpstream
from mustcall.upstream.seam import UpstreamCall
from mustcall.wire.registry import codec_for

__all__ = ["LyingServer", "LyingUpstream"]

#: Rules of single providers that a server may do without: forcing while it reasons, and reasoning handed back by id.
_WAIVED = frozenset({"never_forces_thinking", "keeps_reasoning", "needs_api_key", "limits_budget"})
_RESPONSES = "/v1/responses/"


class _Mind:
    """What a server is between requests: its lie, and what it remembers."""

    def __init__(self, lie: Lie | None, rate: float, seed: int, models: tuple[str, ...]) -> None:
        self.lie = lie
        self.models = models
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311  repeatable, no secret
        self.issued = IssuedMemory()
        self._stored: dict[str, tuple[Message, ...]] = {}
        self._kept: dict[str, Mapping[str, object]] = {}
        self.under_way = 0
        #: Whether a client left a stream lately.
        self.left = False
        self._memory: dict[str, object] = {}

    def answer(self, recorded: Recorded) -> Answer:
        """Return what is answered to a request on any path."""
        lie = self.lie if self._rate >= 1 or self._random.random() < self._rate else None
        if recorded.path in PATHS and not recorded.path.endswith("/count_tokens"):
            return self._turn(recorded, PATHS[recorded.path], lie)
        honest = self._other(recorded)
        return lie.path(recorded, honest) if lie is not None and lie.path is not None else honest

    def note(self, recorded: Recorded, reply: Mapping[str, object]) -> None:
        """Remember what a finished reply gave out."""
        assert recorded.wire is not None, "only turns are finished replies"
        body = as_object(recorded.body)
        remember(self.issued, recorded.wire, body, dict(reply))
        if recorded.wire is Wire.RESPONSES:
            said = tuple(part.text for part in getattr(recorded.answer, "parts", ()) if isinstance(part, Say))
            asked = codec_for(Wire.RESPONSES).decode_request(recorded.raw)
            before = self._stored.get(asked.previous_response_id or "", ())
            told = Message(role=Role.ASSISTANT, parts=tuple(Text(text=text) for text in said))
            self._stored[str(reply["id"])] = (*before, *asked.messages, told)
            self._kept[str(reply["id"])] = reply

    def _other(self, recorded: Recorded) -> Answer:
        """Answer what is no turn."""
        if recorded.path == "/v1/models" and recorded.method == "GET":
            return Raw(200, to_json(build_models(self.models, "anthropic-version" in recorded.headers)))
        if recorded.path.endswith("/count_tokens"):
            return Raw(200, to_json(count_tokens(recorded)))
        name = recorded.path.removeprefix(_RESPONSES)
        if recorded.path.startswith(_RESPONSES) and recorded.method == "GET" and name in self._kept:
            return Raw(200, to_json(self._kept[name]))
        return Fail(404, f"Invalid URL ({recorded.method} {recorded.path})")

    def _turn(self, recorded: Recorded, wire: Wire, lie: Lie | None) -> Answer:
        body = as_object(recorded.body)
        asked: ProbedRequest | None = None
        try:
            request = codec_for(wire).decode_request(recorded.raw)
        except CallerError as error:
            refused: Answer = Fail(400, error.message)
            return lie.path(recorded, refused) if lie is not None and lie.path is not None else refused
        asked = ProbedRequest(
            recorded=recorded,
            request=request,
            wire=wire,
            under_way=self.under_way,
            left=self.left,
            memory=self._memory,
        )
        self.left = False
        found = find_violation(wire, SeenRequest(body, recorded.headers, self.issued), _WAIVED)
        if found is not None:
            recorded.refused_by, answer = found[0], found[1]
        else:
            taken = request if lie is None or lie.reads is None else lie.reads(asked)
            earlier = self._stored.get(taken.previous_response_id or "", ())
            turn = answer_turn(taken, earlier)
            turn = turn if lie is None or lie.says is None else lie.says(asked, turn)
            answer = recorded.answer = turn
        return answer if lie is None or lie.sends is None else lie.sends(asked, answer)


class LyingServer:
    """A server without a socket, for a probe or a gateway in the same process: pass it as `transport`.

    Without a `lie` it is honest. At a `rate` under 1 it lies in that share of its answers, the same ones for the same
    `seed`. `requests` is what it was asked.
    """

    def __init__(
        self, lie: Lie | None = None, *, rate: float = 1.0, seed: int = 0, models: tuple[str, ...] = ("honest",)
    ) -> None:
        self.lie = lie
        self.requests: list[Recorded] = []
        self._mind = _Mind(lie, rate, seed, models)

    async def send(self, call: UpstreamCall) -> "_Reply":
        """Answer one request."""
        raw, path = call.body or b"", urlsplit(call.url).path
        try:
            body = msgspec.json.decode(raw) if raw else None
        except (msgspec.DecodeError, RecursionError):
            body = None
        recorded = Recorded(
            method=call.method,
            path=path,
            query={},
            wire=PATHS.get(path),
            headers={name.lower(): value for name, value in call.headers.items()},
            body=body,
            raw=raw,
            number=len(self.requests),
        )
        self.requests.append(recorded)
        mind = self._mind
        mind.under_way += 1
        try:
            await asyncio.sleep(0)  # requests that come together are under way together
            delivery = plan_delivery(
                mind.answer(recorded), recorded.wire, as_object(body), Stamp(recorded.number, "probed")
            )
            await asyncio.sleep(0)
        finally:
            mind.under_way -= 1
        if delivery.reply is not None:
            mind.note(recorded, delivery.reply)
        recorded.status = delivery.status
        return _Reply(recorded, delivery.writes, delivery.status, delivery.headers, mind)

    async def close(self) -> None:
        """Nothing is open."""


class _Reply:
    """An answer in pieces; one that is closed early was left."""

    arrived = False

    def __init__(
        self, recorded: Recorded, writes: tuple[bytes, ...], status: int, headers: Mapping[str, str], mind: _Mind
    ) -> None:
        self._recorded = recorded
        self._writes = writes
        self._mind = mind
        self.status = status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in headers.items()}

    async def read(self) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body in pieces."""
        for number, piece in enumerate(self._writes, 1):
            if number == len(self._writes):  # whoever has it all may close it
                self._recorded.ended = End.COMPLETE
            yield piece
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Note a client that leaves."""
        if self._recorded.ended is None:
            self._recorded.ended = End.DISCONNECTED
            self._mind.left = self.status == 200


class LyingUpstream(ScriptedUpstream):
    """The same on loopback HTTP: `with LyingUpstream(find_lie("ignores_required")) as upstream:`."""

    def __init__(
        self, lie: Lie | None = None, *, rate: float = 1.0, seed: int = 0, models: tuple[str, ...] = ("honest",)
    ) -> None:
        super().__init__(models=models)
        self.lie = lie
        self._mind = _Mind(lie, rate, seed, models)

    def _answer(self, recorded: Recorded) -> Answer:
        before = self.requests[: recorded.number]
        self._mind.under_way = 1 + sum(one.ended is None for one in before)
        self._mind.left = bool(before) and before[-1].ended is End.DISCONNECTED
        return self._mind.answer(recorded)

    def _remember(self, recorded: Recorded, reply: Mapping[str, object]) -> None:
        self._mind.note(recorded, reply)
