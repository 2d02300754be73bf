"""A LangChain chat model on a mustcall `Upstream`, for LangGraph too.

Messages are written and read as Chat Completions by LangChain's own converters; the turn is the engine's, whatever the
upstream speaks. A failure is raised as mustcall's own error: `retryable` says whether trying again may help.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field

from mustcall.adapters.blocking import Driver
from mustcall.adapters.clients import contract_for
from mustcall.adapters.contract import ContractAnswer, ContractRequest
from mustcall.adapters.langchain_messages import ChunkReader, read_message, write_choice, write_messages
from mustcall.core.errors import UpstreamRejected
from mustcall.core.origin import Wire
from mustcall.engine.agent.upstream import Upstream
from mustcall.policy.facts.controls import Controls
from mustcall.policy.words.grounding import GroundingRule
from mustcall.wire.registry import codec_for

__all__ = ["ChatMustcall"]


class ChatMustcall(BaseChatModel):
    """`ChatMustcall(upstream=Upstream("ollama:qwen3")).bind_tools([…])`.

    `settings` are fields of Chat Completions for every request (`temperature`, `max_tokens`, …); what a call passes
    stands over them. `timeout` among them is how many seconds a call may take until its answer begins, retries
    included; after that `UpstreamTimeout` is raised. `controls` and `rules` are those of every turn.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    upstream: Upstream
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    controls: Controls | None = None
    rules: tuple[GroundingRule, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "mustcall"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"model": self.upstream.model, "endpoint": self.upstream.endpoint.base_url, **self.settings}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer tools. `tool_choice` is `auto`, `none`, `any`, the name of a tool, or a choice of Chat Completions."""
        offered = [convert_to_openai_tool(tool) for tool in tools]
        names = [tool["function"]["name"] for tool in offered if "function" in tool]
        choice = write_choice(tool_choice, names)
        return self.bind(tools=offered, **({} if choice is None else {"tool_choice": choice}), **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002  LangChain's own signature
        **kwargs: Any,
    ) -> ChatResult:
        asked = self._asked(messages, stop, kwargs)
        driver = Driver()
        try:
            return driver.run(lambda: self._whole(asked))
        finally:
            driver.close()

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002  as above
        **kwargs: Any,
    ) -> ChatResult:
        return await self._whole(self._asked(messages, stop, kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        pieces = _Pieces(self, self._asked(messages, stop, kwargs, stream=True))
        driver = Driver()
        try:
            driver.run(pieces.open)
            while (read := driver.run(pieces.next)) is not None:
                for chunk in read:
                    if run_manager is not None:
                        run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk
        finally:
            if not driver.closed:  # a caller who was interrupted beside a running loop has left both to it
                driver.run(pieces.close)
            driver.close()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        pieces = _Pieces(self, self._asked(messages, stop, kwargs, stream=True))
        try:
            await pieces.open()
            while (read := await pieces.next()) is not None:
                for chunk in read:
                    if run_manager is not None:
                        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk
        finally:
            await pieces.close()

    async def _whole(self, asked: ContractRequest) -> ChatResult:
        async with self.upstream.connected() as transport:
            answer = await contract_for(self.upstream, self.controls, self.rules).answer(asked, transport)
        message = read_message(_checked(answer).body, answer.headers)
        return ChatResult(generations=[ChatGeneration(message=message)], llm_output=message.response_metadata)

    def _asked(
        self,
        messages: Sequence[BaseMessage],
        stop: Sequence[str] | None,
        more: Mapping[str, Any],
        *,
        stream: bool = False,
    ) -> ContractRequest:
        body: dict[str, Any] = {
            "model": self.upstream.model,
            **self.settings,
            "messages": write_messages(messages),
            **more,
        }
        timeout = body.pop("timeout", None)
        if stop:
            body["stop"] = list(stop)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return ContractRequest(wire=Wire.CHAT, body=msgspec.json.encode(body), timeout=timeout)


class _Pieces:
    """One streamed reply, from its connection to the chunks of LangChain. It must be closed."""

    def __init__(self, model: ChatMustcall, asked: ContractRequest) -> None:
        self._model = model
        self._asked = asked
        self._stack = AsyncExitStack()
        self._answer: ContractAnswer | None = None
        self._reader = ChunkReader()
        self._first: bytes | None = None

    async def open(self) -> None:
        """Begin the turn; raise the error it ends in before anything could be seen."""
        model = self._model
        transport = await self._stack.enter_async_context(model.upstream.connected())
        answer = await contract_for(model.upstream, model.controls, model.rules).answer(self._asked, transport)
        if answer.chunks is not None:
            self._stack.push_async_callback(answer.chunks.close)
        self._answer, self._first = _checked(answer), answer.body
        self._reader.headers = answer.headers

    async def next(self) -> list[ChatGenerationChunk] | None:
        """Return what the next piece holds, None at the end; raise the error that a stream ends in."""
        piece, self._first = self._first, None
        chunks = self._answer.chunks if self._answer is not None else None
        if piece is None and chunks is not None:
            piece = await chunks.next()
        if chunks is not None and chunks.error is not None:
            raise chunks.error
        return None if piece is None else self._reader.read(piece)

    async def close(self) -> None:
        """Give up what is left, upstream included."""
        await self._stack.aclose()


def _checked(answer: ContractAnswer) -> ContractAnswer:
    """Return an answer that holds a reply; raise what any other tells of."""
    if answer.error is not None:
        raise answer.error
    if answer.status >= 400:
        raise UpstreamRejected(codec_for(Wire.CHAT).decode_error(answer.status, answer.body))
    return answer
