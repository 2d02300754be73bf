"""A model provider for the OpenAI Agents SDK on a mustcall `Upstream`.

The SDK's own models write the messages: Responses to an upstream of that wire, Chat Completions to any other.
"""

from collections.abc import Sequence

from agents import Model, ModelProvider, OpenAIChatCompletionsModel, OpenAIResponsesModel

from mustcall.adapters.clients import openai_client
from mustcall.core.origin import Wire
from mustcall.engine.agent.upstream import Upstream
from mustcall.policy.facts.controls import Controls
from mustcall.policy.words.grounding import GroundingRule

__all__ = ["MustcallProvider"]


class MustcallProvider(ModelProvider):
    """`RunConfig(model_provider=MustcallProvider(Upstream("ollama:qwen3")))`.

    A name that an agent asks for is sent on where the upstream has no model of its own. `controls` and `rules` are
    those of every turn.
    """

    def __init__(
        self, upstream: Upstream, *, controls: Controls | None = None, rules: Sequence[GroundingRule] = ()
    ) -> None:
        self.upstream = upstream
        self._client = openai_client(upstream, controls=controls, rules=rules)

    def get_model(self, model_name: str | None) -> Model:
        """Return the model of this name; without one the upstream's own."""
        name = model_name or self.upstream.model
        if self.upstream.endpoint.wire is Wire.RESPONSES:
            return OpenAIResponsesModel(name, self._client)
        return OpenAIChatCompletionsModel(name, self._client)

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.close()
