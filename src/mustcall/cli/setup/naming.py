"""How commands take the name of an upstream: one type for every `--upstream`, with the providers as completions.

What the text means is decided by `upstream.address`, and by whoever loads the settings.
"""

import click
from click.shell_completion import CompletionItem

from mustcall.upstream.providers import PROVIDERS

__all__ = ["UPSTREAM"]


class _UpstreamName(click.types.StringParamType):
    """Text that names an upstream."""

    name = "PROVIDER[:MODEL]|[NAME:]WIRE=URL"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002  click's signature
        """Return the providers that begin so."""
        return [
            CompletionItem(f"{provider.name}:", help=provider.title)
            for provider in PROVIDERS.values()
            if f"{provider.name}:".startswith(incomplete)
        ]


UPSTREAM = _UpstreamName()
