"""Whether a server silently cut the prompt: fewer input tokens reported than the prompt can have (rule 132).

Observed: Ollama drops the front of a prompt that does not fit its context, tools first, and answers 200; only
`usage.prompt_tokens` gives it away. The bound is deliberately low. It knows no tokenizer: natural language and code
come to 2 to 5 characters a token in every common one, so 8 leaves room for tables and indentation. What a
provider may leave out or count in its own way (images, reasoning of earlier turns, most of a tool's schema) counts as
nothing.

Cost: the sum of string lengths; no text is read.
"""

import msgspec

from mustcall.core.memo import Remembered
from mustcall.core.reply import Usage
from mustcall.core.request import Request
from mustcall.core.tools import ProviderTool, Tool
from mustcall.policy.history.in_order import written_length

__all__ = ["CHARACTERS_PER_TOKEN", "LEAST_BOUND", "estimate", "is_starved", "lower_bound", "prompt_bound"]

#: More characters than a token holds on average in any real prompt.
CHARACTERS_PER_TOKEN = 8
#: Prompts with a lower bound than this fit the smallest context in use (2,048 tokens) and are never called starved.
LEAST_BOUND = 1_000

#: Request fields by which the caller itself asked for a cut.
_ASKED_FOR = {"truncation": "auto", "context_management": None}


def prompt_bound(request: Request, written: int, usage: Usage | None) -> int:
    """Return what `is_starved` asks for; `written` is the size of the request's bytes.

    A character takes a byte at least, so the texts of most requests need not be looked at.
    """
    reported = usage.input_tokens if usage is not None else 0
    possible = 0 < reported < written // CHARACTERS_PER_TOKEN
    return lower_bound(request) if possible else 0


def lower_bound(request: Request) -> int:
    """Return a number of tokens the prompt has at least; 0 where the caller allows the server to cut it."""
    fields = request.origin.fields if request.origin is not None else None
    if fields and any(_is_asked(fields.get(name), word) for name, word in _ASKED_FOR.items()):
        return 0
    length, tools = written_length(request), request.tools
    if tools:
        length += _told.of(tools)
    return length // CHARACTERS_PER_TOKEN


def estimate(request: Request) -> int:
    """Return about how many tokens a prompt has, for an attempt whose server did not come to counting them."""
    tools = request.tools
    schemas = _schemas.of(tools) if tools else 0
    return (lower_bound(request) * CHARACTERS_PER_TOKEN + schemas) // _USUAL_CHARACTERS


#: Characters a token holds on average in English and JSON.
_USUAL_CHARACTERS = 4


def _schemas_length(tools: tuple[Tool | ProviderTool, ...]) -> int:
    return sum(len(msgspec.json.encode(tool.parameters)) for tool in tools if isinstance(tool, Tool))


def _tools_length(tools: tuple[Tool | ProviderTool, ...]) -> int:
    offered = [tool for tool in tools if isinstance(tool, Tool) and not tool.deferred]
    return sum(len(tool.name) + len(tool.description or "") for tool in offered)


_told = Remembered(_tools_length)
_schemas = Remembered(_schemas_length)


def is_starved(bound: int, usage: Usage | None) -> bool:
    """Tell whether the reported input is below what the prompt has at least. No report, or 0, tells nothing."""
    return usage is not None and bound >= LEAST_BOUND and 0 < usage.input_tokens < bound


def _is_asked(value: object, word: str | None) -> bool:
    return value is not None if word is None else value == word
