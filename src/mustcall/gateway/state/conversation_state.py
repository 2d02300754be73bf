"""State that a caller believes the server keeps, kept for upstreams that keep none (rule 78).

`previous_response_id` and item references of Responses, and the threads of Messages: what came before is taken from
the ledger and put before what is new, so that an upstream of any wire gets the whole conversation. A reply is stored
when it is final and before its last bytes go out, so that whoever has its id can continue it, at any replica; where
the ledger is late it is stored behind them, and whoever asks for it here waits for that (`response_writer`). Its ids
are ours (`renaming`), and those of a discarded attempt are never seen here. Nothing is decided about the
conversation itself.
"""

import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar, cast

import msgspec

from mustcall.core.adaptation import AdaptationLog
from mustcall.core.errors import InvalidRequest, LedgerError, MustcallError, UnknownState
from mustcall.core.memo import kept
from mustcall.core.origin import JsonObject, Wire
from mustcall.core.streams.assembler import Assembler
from mustcall.engine.exchange import StreamedReply, WholeReply
from mustcall.engine.off_loop import LARGE, heavily
from mustcall.gateway.state.references import is_reference, may_refer, references
from mustcall.gateway.state.response_ids import Renamer
from mustcall.gateway.state.response_writer import ResponseWriter
from mustcall.ledger import Ledger, StoredResponse
from mustcall.ledger.notices import Notices
from mustcall.upstream.endpoint import caller_key
from mustcall.wire.codec import Provenance, ReplyStamp
from mustcall.wire.registry import codec_for
from mustcall.wire.sse import SseDecoder

__all__ = ["Memory", "Remembering", "tenant_of", "tenant_of_key", "without_threads"]

T = TypeVar("T")

#: What an id can be made of.
_ID = re.compile(r"[!-~]{1,256}")
_BETA = "anthropic-beta"

_NOTHING = msgspec.Raw(b"null")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: Fields of a Messages request that belong to one turn; every other is carried on by its thread.
_OF_ONE_TURN = ("messages", "thread", "stream")


def tenant_of(headers: Mapping[str, str]) -> str:
    """Return whose state it is."""
    key = caller_key(headers)
    return tenant_of_key(key) if key else ""


@kept(most=256, most_bytes=None)
def tenant_of_key(key: str | None) -> str:
    """Return a digest of a caller's key, from which the key cannot be told; nothing for no key."""
    return hashlib.sha256(b"mustcall tenant\0" + key.encode("utf-8", "surrogateescape")).hexdigest()[:24] if key else ""


def without_threads(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers that announce no threads: the upstream is sent none."""
    named = headers.get(_BETA)
    if named is None or "message-threads" not in named:
        return headers
    left = ",".join(name for name in named.split(",") if not name.strip().startswith("message-threads"))
    kept = {name: value for name, value in headers.items() if name != _BETA}
    return {**kept, _BETA: left} if left.strip() else kept


class Memory:
    """The gateway's way to the ledger's responses."""

    def __init__(self, ledger: Ledger, notices: Notices) -> None:
        self.ledger = ledger
        self._notices = notices
        self._writer = ResponseWriter(ledger, notices)

    async def close(self) -> None:
        """Finish the writes that are under way."""
        await self._writer.close()

    async def recall_response(self, body: bytes, tenant: str, token: str) -> tuple["Remembering | None", bytes]:
        """Return a Responses body that says everything, and how its reply is to be kept; raise `UnknownState`."""
        fields = _read(body)
        previous = _text(fields, "previous_response_id")
        stores = bytes(fields.get("store", _NOTHING)) != b"false"
        given = _items(fields.get("input")) if stores or previous is not None or may_refer(body) else []
        referring = bool(references(given))
        if not stores and previous is None and not referring:
            return None, body
        chain = await self._chain(previous, tenant, Wire.RESPONSES) if previous else []
        items = await self._resolved(given, tenant)
        keeps = Remembering(
            writer=self._writer,
            wire=Wire.RESPONSES,
            tenant=tenant,
            token=token,
            stores=stores,
            parent=chain[-1] if chain else None,
            input=msgspec.json.encode(items),
        )
        if not chain and not referring:
            return keeps, body  # every byte as it came
        history = [item for one in chain for item in (*_list(one.input), *_output(one))]
        fields.pop("previous_response_id", None)
        fields["input"] = msgspec.Raw(msgspec.json.encode([*history, *items]))
        return keeps, msgspec.json.encode(fields)

    async def recall_thread(self, body: bytes, tenant: str, token: str) -> tuple["Remembering | None", bytes]:
        """Return a Messages body without its `thread`, with all the thread holds; raise `UnknownState`."""
        fields = _read(body)
        thread = fields.pop("thread", None)
        if thread is None or bytes(thread) == b"null":
            return None, body
        asked = _decode(thread, "thread")
        match asked:
            case {"type": "create"}:
                chain: list[StoredResponse] = []
            case {"type": "continue", "previous_message_id": str() as previous}:
                try:
                    chain = await self._chain(previous, tenant, Wire.MESSAGES)
                except LedgerError as error:  # the client can send everything, and does when it is told this
                    self._notices.failed("storing threads failed", error)
                    raise _unknown(previous, Wire.MESSAGES) from None
            case _:
                raise InvalidRequest('`thread` must be {"type": "create"} or {"type": "continue", …}', param="thread")
        new = fields.get("messages", msgspec.Raw(b"[]"))
        carried = _fields.decode(chain[-1].settings) if chain else {}
        fields = {**carried, **fields}
        keeps = Remembering(
            writer=self._writer,
            wire=Wire.MESSAGES,
            tenant=tenant,
            token=token,
            stores=True,
            parent=chain[-1] if chain else None,
            input=bytes(new),
            settings=msgspec.json.encode({name: fields[name] for name in fields if name not in _OF_ONE_TURN}),
        )
        if chain:
            history = [message for one in chain for message in (*_list(one.input), _message(one))]
            fields["messages"] = msgspec.Raw(msgspec.json.encode([*history, *_list(bytes(new))]))
        return keeps, msgspec.json.encode(fields)

    async def get(self, response: str, tenant: str) -> StoredResponse | None:
        """Return a stored response of the Responses wire; one that is being written is waited for."""
        await self._writer.settle(tenant, (response,))
        found = await self.ledger.get_response(response, tenant)
        return found if found is not None and found.wire == Wire.RESPONSES else None

    async def _chain(self, previous: str, tenant: str, wire: Wire) -> list[StoredResponse]:
        await self._writer.settle(tenant, (previous,))
        chain = await self.ledger.chain(previous, tenant) if _ID.fullmatch(previous) else None
        if chain is None or chain[-1].wire != wire:
            raise _unknown(previous, wire)
        return chain

    async def _resolved(self, items: list[Any], tenant: str) -> list[Any]:
        """Return items with every reference to a stored item replaced by the item."""
        referred = tuple(name for name in references(items) if _ID.fullmatch(name))
        await self._writer.settle(tenant, referred)
        found = await self.ledger.find_items(referred, tenant)
        return [_resolve(item, found) if is_reference(item) else item for item in items]


class Remembering(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a turn before its reply, and how the reply is kept."""

    writer: ResponseWriter
    wire: Wire
    tenant: str
    token: str
    #: Whether the caller wants it kept.
    stores: bool
    parent: StoredResponse | None
    input: bytes
    settings: bytes = b""

    async def keep(self, reply: WholeReply | StreamedReply) -> WholeReply | StreamedReply:
        """Return the reply, stored before its end reaches the caller. A ledger that fails does not fail the reply."""
        if not self.stores or reply.status != 200:
            return reply
        renamer = Renamer(self.wire, self.token)
        if isinstance(reply, WholeReply):
            reply = msgspec.structs.replace(reply, body=await _aside(renamer.body, reply.body))
            await self._store(reply.body)
            return reply
        listener = _ResponseListener() if self.wire is Wire.RESPONSES else _MessageListener(self.token)
        first = await _aside(renamer.events, reply.first)
        body = await _aside(listener.hear, first)
        if body is not None:
            await self._store(body)
        return msgspec.structs.replace(reply, first=first, chunks=self._listen(reply.chunks, listener, renamer))

    async def _listen(
        self, chunks: AsyncGenerator[bytes], listener: "_ResponseListener | _MessageListener", renamer: Renamer
    ) -> AsyncGenerator[bytes]:
        async with aclosing(chunks):
            async for chunk in chunks:
                if len(chunk) > LARGE:
                    renamed = await heavily(renamer.events, chunk)
                    body = await heavily(listener.hear, renamed)
                else:
                    renamed = renamer.events(chunk)
                    body = listener.hear(renamed)
                if body is not None:
                    await self._store(body)
                yield renamed

    async def _store(self, body: bytes) -> None:
        response = await _aside(self._response, body)
        if response is not None:
            await self.writer.put(response)

    def _response(self, body: bytes) -> StoredResponse | None:
        try:
            reply = msgspec.json.decode(body, type=_Reply)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        if reply.status not in (None, "completed", "incomplete") or not _ID.fullmatch(reply.id):
            return None
        parent = self.parent
        return StoredResponse(
            id=reply.id,
            conversation=parent.conversation if parent else f"conv_{self.token}",
            parent=parent.id if parent else None,
            depth=parent.depth + 1 if parent else 0,
            wire=str(self.wire),
            model=reply.model.replace("\0", ""),
            tenant=self.tenant,
            input=self.input,
            body=body,
            settings=self.settings,
            items=tuple(dict.fromkeys(item.id for item in reply.output if item.id and _ID.fullmatch(item.id))),
        )


async def _aside(function: Callable[[bytes], T], data: bytes) -> T:
    """Return what a function makes of data; in a thread where that may take long."""
    return await heavily(function, data) if len(data) > LARGE else function(data)


class _Item(msgspec.Struct):
    id: str | None = None


class _Reply(msgspec.Struct):
    id: str
    model: str = ""
    status: str | None = None
    output: list[_Item] = []


class _ResponseListener:
    """Hears a Responses stream for the event that has the whole response."""

    def hear(self, chunk: bytes) -> bytes | None:
        """Take whole events; return the response once it is there."""
        if b"response.completed" not in chunk and b"response.incomplete" not in chunk:
            return None
        for event in SseDecoder().feed(chunk):
            try:
                read = msgspec.json.decode(event.data, type=_Terminal)
            except (msgspec.DecodeError, ValueError, RecursionError):
                continue
            if read.type in ("response.completed", "response.incomplete") and read.response is not _NOTHING:
                return bytes(read.response)
        return None


class _Terminal(msgspec.Struct):
    type: str = ""
    response: msgspec.Raw = _NOTHING


class _MessageListener:
    """Hears a Messages stream to its end and writes the message it made."""

    def __init__(self, token: str) -> None:
        self._codec = codec_for(Wire.MESSAGES)
        self._sse = SseDecoder()
        self._decoder = self._codec.stream_decoder(Provenance(token=token))
        self._assembler = Assembler()
        self._stamp = ReplyStamp(token=token, created=0)
        #: Whether the message has ended, or failed.
        self._over = False

    def hear(self, chunk: bytes) -> bytes | None:
        """Take bytes; return the message once it has ended."""
        if self._over:
            return None
        try:
            for event in self._decoder.feed_all(self._sse.feed(chunk)):
                self._assembler.feed(event)
            if not self._assembler.ended:
                return None
            self._over = True
            reply = self._assembler.reply()
            caller = self._codec.decode_request(b'{"model":"","messages":[],"max_tokens":1}')
            return msgspec.json.encode(self._codec.encode_reply(reply, caller, self._stamp, AdaptationLog()))
        except (MustcallError, RecursionError):
            self._over = True  # an error event: there is nothing to go on from
            return None


def _unknown(identifier: str, wire: Wire) -> UnknownState:
    """Return the API's own answer for an id it does not know; of one that cannot be an id only the beginning."""
    identifier = identifier[:256]
    if wire is Wire.MESSAGES:
        return UnknownState(
            f"no thread is held under the message {identifier!r}; send the whole conversation with "
            '`thread: {"type": "create"}`',
            details={"error_code": "thread_not_found"},
            code="thread_not_found",
        )
    return UnknownState(
        f"Previous response with id '{identifier}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def _read(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        return _fields.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"the body is not a JSON object: {error}") from None


def _decode(raw: msgspec.Raw | bytes, name: str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InvalidRequest(f"`{name}` cannot be read: {error}", param=name) from None


def _text(fields: Mapping[str, msgspec.Raw], name: str) -> str | None:
    value = _decode(fields[name], name) if name in fields else None
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"`{name}` must be a string", param=name)
    return value or None


def _list(encoded: bytes) -> list[Any]:
    value = _decode(encoded, "messages")
    if not isinstance(value, list):
        raise InvalidRequest("`messages` must be an array", param="messages")
    return cast("list[Any]", value)


def _items(given: msgspec.Raw | None) -> list[Any]:
    """Return the new input as a list."""
    value = None if given is None else _decode(given, "input")
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise InvalidRequest("`input` must be a string or an array", param="input")
    return cast("list[Any]", value)


def _output(response: StoredResponse) -> list[Any]:
    return msgspec.json.decode(response.body).get("output", [])


def _message(response: StoredResponse) -> JsonObject:
    return {"role": "assistant", "content": msgspec.json.decode(response.body).get("content", [])}


def _resolve(item: JsonObject, found: Mapping[str, StoredResponse]) -> Any:
    identifier: str = item["id"]
    response = found.get(identifier)
    for known in _output(response) if response is not None else ():
        if known.get("id") == identifier:
            return known
    raise UnknownState(
        f"Item with id '{identifier[:256]}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input.",
        param="input",
    )
