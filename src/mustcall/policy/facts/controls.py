"""What the operator and the caller may set about a turn: limits, what to hold, what to do when a force stays unmet.

Plain data with the defaults of `requirements.md`. Where the settings come from (file, environment, header, body
extension) is decided above this layer.
"""

from enum import StrEnum
from typing import Annotated

import msgspec

from mustcall.policy.facts.checking import check_kind, check_number, read_choices
from mustcall.policy.facts.profile import Protocol

__all__ = ["Controls", "Limits", "OnUnmet", "OtherTool", "Salvage", "ToolControls", "check_limits"]


class OnUnmet(StrEnum):
    """The result if no rung produced the demanded call: the unchanged reply, or a typed error (rule 27)."""

    ANSWER = "answer"
    ERROR = "error"


class OtherTool(StrEnum):
    """What a call of another tool than the named one is (rule 29)."""

    RETRY = "retry"
    ACCEPT = "accept"


class Salvage(StrEnum):
    """When a complete, offered and valid text call is promoted under `native` (rule 51)."""

    NEVER = "never"
    RELEASED = "released"  # only where text was already streamed, so that nothing can be tried again
    LAST = "last"  # also when the retries are spent


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The maximum of each remedy in one turn, and the limit over all of them (rules 38, 47, 69, 96, 97)."""

    #: Extra upstream calls in one turn, of any kind (rule 96).
    extra_calls: int = 4
    #: Calls to find a tool that the upstream refuses that may go beyond that ceiling (rule 130). They are bounded by
    #: log2 n + 2 for n tools anyway.
    refused_tool: int = 12
    text_call: int = 2
    empty: int = 2
    thinking_only: int = 2
    bad_arguments: int = 1
    unknown_tool: int = 2
    bad_answer: int = 2
    truncated: int = 1
    #: Firmer reminders for a model that can be neither forced nor stopped from reasoning (rule 28).
    reminders: int = 3
    #: No attempt starts with less than this many seconds left (rule 97).
    least_seconds: float = 1.0


def check_limits(limits: Limits, where: str = "limits") -> None:
    """Raise `ConfigError` for what are no limits, and for one below 0, or NaN, which no time ever reaches."""
    check_kind(where, limits, Limits)
    for name in Limits.__struct_fields__:
        check_number(f"{where}: {name}", getattr(limits, name), least=0)


class ToolControls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one tool: locked off (never forced), and when the same call again is blocked (rule 108; 0 never)."""

    #: Whether the tool can never be forced.
    locked_off: bool = False
    #: Consecutive rounds with the same call before it is reported; 0: only if the output was the same twice.
    loop_advice: Annotated[int, msgspec.Meta(ge=0)] = 3
    #: Consecutive rounds with the same call before the turn ends with `looping`; 0: never.
    loop_block: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: Whether the same call is blocked after the same output twice.
    loop_block_same: bool = False
    #: Characters of its results that the model sees (rule 92); None: the tool's own setting.
    result_cap: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Controls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one turn."""

    #: True: any tool must be called; a name: that tool (rule 9).
    force_tools: bool | str = False
    #: `native`, `prompt`, `hybrid` or `off` for every model; None: from the profile.
    protocol: Protocol | None = None
    #: The result if no rung produced the demanded call: `error`, or the unchanged reply (`answer`).
    on_unmet: OnUnmet = OnUnmet.ERROR
    #: If another tool than the named one was called: `retry`, or `accept` it.
    other_tool: OtherTool = OtherTool.RETRY
    #: True: a forced tool that is not offered is an error; False: the force is dropped and reported (rule 8).
    strict_force: bool = True
    #: Whether a force also applies after a tool result (rule 11); for agents whose every step is a call, also the final
    #: answer.
    force_after_results: bool = False
    #: When a complete, valid text call is converted under `native`: `never`, `released` or `last`.
    salvage: Salvage = Salvage.RELEASED
    #: Whether arguments that match only after a lossy repair are delivered after their retry failed (rule 141).
    salvage_arguments: bool = True
    #: Whether markup also counts in a reply with an ordinary finish reason (rule 44).
    broad: bool = True
    #: Whether every stream is held until the verdict.
    hold: bool = False
    #: Whether a prompt that the server cut is an error instead of a report (rule 132).
    refuse_starved: bool = False
    #: Maximum tool rounds after one user message; then `tool_choice` is `none` (rule 109; 0: no cap).
    step_cap: Annotated[int, msgspec.Meta(ge=0)] = 0
    #: Whether the record of the turn is added to the body.
    metadata: bool = False
    #: Seconds for which an identical request gets its typed failure without an upstream call (rule 144; 0: never).
    remember_failures: Annotated[float, msgspec.Meta(ge=0, le=600)] = 60.0
    #: The account that pays for the turn; the caller chooses the name (rule 93).
    session: Annotated[str, msgspec.Meta(max_length=256)] | None = None
    #: Maximum cost of this turn in US dollars, enforced (rule 95). It can only lower the operator's cap; 0: no change.
    turn_cost_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    #: Tool executions before an agent's structured answer (rule 82). The gateway executes no tools.
    hops: Annotated[int, msgspec.Meta(ge=0)] = 2
    #: Characters of a tool result that an agent sends to the model (rule 92).
    result_cap: Annotated[int, msgspec.Meta(ge=1)] = 4000
    #: Limits of extra upstream calls.
    limits: Limits = Limits()
    #: Settings of single tools, by name.
    tools: dict[str, ToolControls] = {}

    def __post_init__(self) -> None:
        """Take the words of settings; raise `ConfigError` for others."""
        read_choices(self, _CHOICES, optional="protocol")

    def shown_of_result(self, tool: str, own: int | None) -> int:
        """Return how many characters of a tool's result the model sees."""
        settings = self.tools.get(tool)
        for cap in (settings.result_cap if settings is not None else None, own):
            if cap is not None:
                return cap
        return self.result_cap


#: Settings that are one of a few words.
_CHOICES: dict[str, type[StrEnum]] = {
    "protocol": Protocol,
    "on_unmet": OnUnmet,
    "other_tool": OtherTool,
    "salvage": Salvage,
}
