"""What a caller sees of a turn: the official SDKs' understanding of it, and every byte that came.

`Caller.take` never raises: an exception that is not the SDK's own error class is a `broken` outcome, which the checker
refuses. Nothing of mustcall is imported, so that agreement between the two sides is evidence.
"""

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import anthropic
import httpx2
import openai

from contract.asking import chat_options, messages_options, responses_options
from contract.scenario import COMBINATIONS, Scenario

__all__ = ["ROUNDS", "Caller", "Capture", "Outcome"]


@dataclass
class Capture:
    """One HTTP answer, byte for byte."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Outcome:
    """What the SDK made of a turn: `answered` (text or calls), `failed` (its own error) or `broken`.

    `calls` are id, name and arguments as the SDK gives them (text or object). `text` is what was said, also before a
    failure; `streamed` what its pieces added up to, where the wire says it twice. `error` is the wire's own error value
    where the SDK shows it.
    """

    kind: str
    text: str = ""
    streamed: str | None = None
    thinking: str = ""
    calls: tuple[tuple[str, str, Any], ...] = ()
    finish: str = ""
    refused: bool = False
    message: str = ""
    status: int | None = None
    error: Any = None
    capture: Capture = field(default_factory=Capture)


#: Each combination of wires and streaming is asked once in a round.
ROUNDS = 6

_capture: ContextVar[Capture] = ContextVar("capture")


class _TeeStream(httpx2.AsyncByteStream):
    """Copies what passes; a plain iterator, because a generator left half read is finalised in any thread."""

    def __init__(self, inner: Any, capture: Capture) -> None:
        self._inner = inner
        self._chunks = aiter(inner)
        self._capture = capture

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        chunk: bytes = await anext(self._chunks)
        self._capture.body += chunk
        return chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _TeeTransport(httpx2.AsyncBaseTransport):
    """Keeps a copy of every answer for the turn that asked."""

    def __init__(self) -> None:
        limits = httpx2.Limits(max_connections=64, max_keepalive_connections=64)
        self._inner = httpx2.AsyncHTTPTransport(limits=limits, verify=False)  # loopback: reading authorities costs most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        capture = _capture.get()
        capture.status = response.status_code
        capture.headers = {name.lower(): value for name, value in response.headers.items()}
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_TeeStream(response.stream, capture),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class Caller:
    """The SDK clients of one gateway."""

    def __init__(self, url: str, patience: float = 180.0, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._http = httpx2.AsyncClient(transport=transport or _TeeTransport(), timeout=patience)
        self._openai: Any = openai.AsyncOpenAI(
            base_url=f"{url}/v1", api_key="sk-test", max_retries=0, timeout=patience, http_client=self._http
        )
        self._anthropic: Any = anthropic.AsyncAnthropic(
            base_url=url, api_key="sk-test", max_retries=0, timeout=patience, http_client=self._http
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def take(self, scenario: Scenario) -> Outcome:
        """Make the turn's request and return what came of it."""
        capture = Capture()
        _capture.set(capture)
        asks = {"chat": self._chat, "responses": self._responses, "messages": self._messages}
        said: list[str] = []
        try:
            outcome: Outcome = await asks[scenario.caller](scenario, said)
        except (openai.APIConnectionError, anthropic.APIConnectionError) as error:
            outcome = Outcome("broken", message=f"{type(error).__name__}: {error!r} from {error.__cause__!r}")
        except (openai.APIStatusError, anthropic.APIStatusError) as error:
            outcome = Outcome("failed", message=error.message, status=error.status_code, error=error.body)
        except (openai.APIError, anthropic.APIError) as error:
            outcome = Outcome("failed", message=error.message, error=error.body)
        except Exception as error:  # noqa: BLE001  whatever it is, it is what the test is looking for
            outcome = Outcome("broken", message=f"{type(error).__name__}: {error}")
        return replace(outcome, capture=capture, text=outcome.text or "".join(said))

    async def _chat(self, scenario: Scenario, said: list[str]) -> Outcome:
        asked = _asked(scenario, chat_options(scenario), "model", "messages", "stream")
        answer = await self._openai.chat.completions.create(**asked, extra_headers=_controls(scenario))
        if scenario.stream:
            return await _read_chat(answer, said)
        message = answer.choices[0].message
        calls = tuple((call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ())
        return Outcome(
            "answered",
            text=(message.content or "") + (message.refusal or ""),
            thinking=getattr(message, "reasoning_content", None) or "",
            calls=calls,
            finish=answer.choices[0].finish_reason,
            refused=bool(message.refusal) or answer.choices[0].finish_reason == "content_filter",
        )

    async def _responses(self, scenario: Scenario, said: list[str]) -> Outcome:
        parsing = ("tools",) if scenario.stream else ()  # the SDK reads the calls of a stream by them
        asked = _asked(scenario, responses_options(scenario), "model", "input", *parsing)
        options = asked | {"extra_headers": _controls(scenario)}
        if not scenario.stream:
            return _responses_outcome(await self._openai.responses.create(**options))
        outcome = Outcome("broken", message="the stream ended without its last event")
        async with self._openai.responses.stream(**options) as events:
            async for event in events:  # to its very end: what follows the last event is part of the evidence
                match event.type:
                    case "response.output_text.delta":
                        said.append(event.delta)
                    case "response.failed":
                        problem = event.response.error
                        error = {"code": problem.code, "message": problem.message} if problem else None
                        outcome = Outcome("failed", message=problem.message if problem else "", error=error)
                    case "error":
                        outcome = Outcome("failed", message=event.message, error=event.model_dump())
                    case "response.completed" | "response.incomplete":
                        outcome = replace(_responses_outcome(event.response), streamed="".join(said))
                    case _:
                        pass
        return outcome

    async def _messages(self, scenario: Scenario, said: list[str]) -> Outcome:
        options = messages_options(scenario) | {"extra_headers": _controls(scenario)}
        if not scenario.stream:
            return _messages_outcome(await self._anthropic.messages.create(**options))
        async with self._anthropic.messages.stream(**options) as events:
            async for text in events.text_stream:
                said.append(text)  # noqa: PERF401  what was said before a failure is kept
            return _messages_outcome(await events.get_final_message())


def _asked(scenario: Scenario, options: dict[str, Any], *taken: str) -> dict[str, Any]:
    """Return the arguments of an OpenAI call, with all but those it must take as the body that the SDK sends as it is.

    The SDK walks through every argument along its types, which changes nothing of these and costs as much as the turn.
    The turns of every sixth round, each combination of wires and streaming once, are asked with all arguments.
    """
    if scenario.seed // len(COMBINATIONS) % ROUNDS == 0:
        return options
    kept = {name: value for name, value in options.items() if name in taken}
    empty: dict[str, Any] = {name: [] for name in ("messages", "input") if name in kept}
    return kept | empty | {"extra_body": options}


def _controls(scenario: Scenario) -> dict[str, str]:
    return {f"x-mustcall-{name}": value for name, value in scenario.controls.items()}


async def _read_chat(chunks: Any, said: list[str]) -> Outcome:
    """Add up a chat stream the way clients do: fragments by index, text in order."""
    thinking: list[str] = []
    refusal: list[str] = []
    calls: dict[int, list[str]] = {}
    finish = ""
    async for chunk in chunks:
        for choice in chunk.choices:
            delta = choice.delta
            said.append(delta.content or "")
            refusal.append(delta.refusal or "")
            thinking.append(getattr(delta, "reasoning_content", None) or "")
            for piece in delta.tool_calls or ():
                call = calls.setdefault(piece.index, ["", "", ""])
                call[0] = call[0] or piece.id or ""
                call[1] = call[1] or piece.function.name or ""
                call[2] += piece.function.arguments or ""
            finish = choice.finish_reason or finish
    declined = "".join(refusal)
    if not finish:
        return Outcome("broken", message="the stream ended without a finish reason")
    return Outcome(
        "answered",
        text="".join(said) + declined,
        thinking="".join(thinking),
        calls=tuple((one, two, three) for one, two, three in calls.values()),
        finish=finish,
        refused=bool(declined) or finish == "content_filter",
    )


def _responses_outcome(response: Any) -> Outcome:
    if response.status == "failed":
        problem = response.error
        return Outcome("failed", message=problem.message if problem else "", error=problem and problem.model_dump())
    text: list[str] = []
    thinking: list[str] = []
    calls: list[tuple[str, str, Any]] = []
    refused = False
    for item in response.output:
        if item.type == "message":
            for part in item.content:
                text.append(part.text if part.type == "output_text" else part.refusal)
                refused = refused or part.type == "refusal"
        elif item.type == "reasoning":
            thinking += [part.text for part in item.summary or ()]
            thinking += [part.text for part in item.content or ()]
        elif item.type == "function_call":
            calls.append((item.call_id, item.name, item.arguments))
    finish = "tool_calls" if calls else "stop"
    if response.status == "incomplete":
        finish = {"max_output_tokens": "length"}.get(response.incomplete_details.reason, "content_filter")
    return Outcome(
        "answered",
        text="".join(text),
        thinking="".join(thinking),
        calls=tuple(calls),
        finish=finish,
        refused=refused or finish == "content_filter",
    )


def _messages_outcome(message: Any) -> Outcome:
    reason: str = message.stop_reason
    return Outcome(
        "answered",
        text="".join(block.text for block in message.content if block.type == "text"),
        thinking="".join(block.thinking for block in message.content if block.type == "thinking"),
        calls=tuple((block.id, block.name, block.input) for block in message.content if block.type == "tool_use"),
        finish={"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}.get(reason, reason),
        refused=reason == "refusal",
    )
