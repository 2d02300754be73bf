"""A pydantic-ai `Model` on a mustcall `Upstream`.

Which of pydantic-ai's own models writes the messages is decided by the upstream's wire, so that nothing is translated:
its settings, thinking parts, usage and errors (`ModelHTTPError`, `ModelAPIError`) are pydantic-ai's own.
"""

from collections.abc import Sequence
from typing import assert_never

from pydantic_ai.models import Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import ModelProfileSpec
from pydantic_ai.settings import ModelSettings

from mustcall.adapters.clients import anthropic_client, openai_client
from mustcall.core.origin import Wire
from mustcall.engine.agent.upstream import Upstream
from mustcall.policy.facts.controls import Controls
from mustcall.policy.words.grounding import GroundingRule

__all__ = ["MustcallModel"]


class MustcallModel(WrapperModel):
    """`Agent(MustcallModel(Upstream("ollama:qwen3")), tools=[…])`.

    `settings` and `profile` are pydantic-ai's; `controls` and `rules` are those of every turn.
    """

    def __init__(
        self,
        upstream: Upstream,
        *,
        settings: ModelSettings | None = None,
        profile: ModelProfileSpec | None = None,
        controls: Controls | None = None,
        rules: Sequence[GroundingRule] = (),
    ) -> None:
        self.upstream = upstream
        super().__init__(_model_for(upstream, settings, profile, controls, rules))


def _model_for(
    upstream: Upstream,
    settings: ModelSettings | None,
    profile: ModelProfileSpec | None,
    controls: Controls | None,
    rules: Sequence[GroundingRule],
) -> Model:
    """Return pydantic-ai's model of the upstream's wire, on a client whose requests are turns."""
    wire = upstream.endpoint.wire
    if wire is Wire.MESSAGES:
        from pydantic_ai.models.anthropic import AnthropicModel  # noqa: PLC0415  needs the SDK of this wire only
        from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: PLC0415  as above

        client = anthropic_client(upstream, controls=controls, rules=rules)
        provider = AnthropicProvider(anthropic_client=client)
        return AnthropicModel(upstream.model, provider=provider, settings=settings, profile=profile)
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: PLC0415  as above
    from pydantic_ai.providers.openai import OpenAIProvider  # noqa: PLC0415  as above

    openai = OpenAIProvider(openai_client=openai_client(upstream, controls=controls, rules=rules))
    match wire:
        case Wire.CHAT:
            return OpenAIChatModel(upstream.model, provider=openai, settings=settings, profile=profile)
        case Wire.RESPONSES:
            return OpenAIResponsesModel(upstream.model, provider=openai, settings=settings, profile=profile)
        case _:
            assert_never(wire)
