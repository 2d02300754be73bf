"""Which facts of a profile a probe settles: a table of fields, each with the cells it is read from. Pure.

A fact is only stated where enough tries say so. What a field means is said in `policy.facts.profile`.
"""

from collections.abc import Callable, Iterable
from typing import Any

from mustcall.evals.report.statistics import Share
from mustcall.policy.facts.profile import Forcing, Protocol, ReasoningPolicy
from mustcall.probe.results import CellResult, ProbeResult
from mustcall.probe.values import CellGroup, CellVerdict, Outcome, Owner
from mustcall.probe.verdicts import THRESHOLD, count, settle_verdict
from mustcall.profiles import MeasuredFact, MeasuredProfile

__all__ = ["RULES", "facts_of", "has_answers", "profile_of"]

#: Tries that a fact needs at least.
_LEAST = 2
#: What every server takes as the name of a tool.
_SHORT_NAME = 32
_PLAIN_NAME = "^[a-z0-9_]+$"
#: What call ids are narrowed to. Those of the probe's other cells have nine letters and digits, so that these are
#: known to be taken; hyphens and underscores are kept where only the length was refused.
_SHORT_ID = 9
_PLAIN_ID = "^[a-zA-Z0-9]+$"
_ANY_ID = "^[a-zA-Z0-9_-]+$"
_NINE_ID = "^[a-zA-Z0-9]{9}$"
_BAD = frozenset({CellVerdict.IGNORED, CellVerdict.FLAKY})


class _Cells:
    """The cells of a result, by id."""

    def __init__(self, result: ProbeResult) -> None:
        self._by_id = {cell.id: cell for cell in result.cells}

    def joined(self, *ids: str) -> tuple[CellVerdict, Share]:
        """Return the verdict and the share of all tries of some cells."""
        outcomes = [outcome for cell in self._some(ids) for outcome in cell.outcomes]
        return settle_verdict(outcomes), count(outcomes)

    def owners(self, *ids: str) -> set[Owner]:
        """Return whose fault some cells are."""
        return {cell.owner for cell in self._some(ids) if cell.owner is not None}

    def value(self, name: str) -> int | None:
        """Return the number that a cell measured."""
        return next((cell.value for cell in self._some((name,))), None)

    def _some(self, ids: Iterable[str]) -> list[CellResult]:
        return [self._by_id[each] for each in ids if each in self._by_id]


_Rule = Callable[[_Cells], tuple[Any, Share] | None]
_OFF = ("required", "required+stream")
_ON = ("required+reasoning", "required+reasoning+stream")


def _forced(cells: _Cells) -> tuple[Any, Share] | None:
    off, share = cells.joined(*_OFF)
    on, while_on = cells.joined(*_ON)
    if off in (CellVerdict.REFUSED, CellVerdict.CRASHED):
        return Forcing.NEVER, share
    if off in _BAD:
        return Forcing.IGNORED, share
    if off is not CellVerdict.HELD:
        return None
    if on is CellVerdict.HELD:
        return Forcing.ALWAYS, _sum(share, while_on)
    shown, _ = cells.joined("reasoning.shown")
    if on in _BAD or on is CellVerdict.REFUSED:
        return Forcing.WITHOUT_REASONING, share
    return (Forcing.ALWAYS, share) if shown is CellVerdict.IGNORED else None


def _named(cells: _Cells) -> tuple[Any, Share] | None:
    forced, _ = cells.joined(*_OFF)
    named, share = cells.joined("named", "named+stream")
    if forced is not CellVerdict.HELD or named in (CellVerdict.UNMEASURED, CellVerdict.CRASHED):
        return None
    return named is CellVerdict.HELD, share


def _streams_forced(cells: _Cells) -> tuple[Any, Share] | None:
    whole, _ = cells.joined("required")
    streamed, share = cells.joined("required+stream")
    if whole is not CellVerdict.HELD or streamed is CellVerdict.UNMEASURED:
        return None
    return streamed is CellVerdict.HELD, share


def _streams(cells: _Cells) -> tuple[Any, Share] | None:
    """Streams are broken where they never come and the same is answered whole."""
    whole, _ = cells.joined("auto", "none", "required")
    streamed, share = cells.joined("auto+stream", "none+stream", "required+stream")
    if whole in (CellVerdict.REFUSED, CellVerdict.CRASHED, CellVerdict.UNMEASURED):
        return None
    return (False, share) if streamed in (CellVerdict.REFUSED, CellVerdict.CRASHED) else None


def _stateful(cells: _Cells) -> tuple[Any, Share] | None:
    """Replies are not kept where one cannot be continued or fetched; the model alone may forget the word."""
    for name in ("previous_response", "stored_response"):
        verdict, share = cells.joined(name)
        forgotten = verdict in (CellVerdict.REFUSED, *_BAD) and cells.owners(name) != {Owner.MODEL}
        if forgotten:
            return False, share
    return None


def _protocol(cells: _Cells) -> tuple[Any, Share] | None:
    auto, share = cells.joined("auto", "auto+stream")
    return (Protocol.PROMPT, share) if auto is CellVerdict.REFUSED else None


def _parallel(cells: _Cells) -> tuple[Any, Share] | None:
    off, share = cells.joined("parallel.off")
    return None if off in (CellVerdict.UNMEASURED, CellVerdict.CRASHED) else (off is CellVerdict.HELD, share)


def _schema(name: str) -> _Rule:
    def rule(cells: _Cells) -> tuple[Any, Share] | None:
        verdict, share = cells.joined(name)
        if verdict in (CellVerdict.UNMEASURED, CellVerdict.CRASHED) or cells.owners(name) == {Owner.MODEL}:
            return None
        return verdict is CellVerdict.HELD, share

    return rule


def _most_tools(cells: _Cells) -> tuple[Any, Share] | None:
    many, share = cells.joined("tools.128")
    some, _ = cells.joined("tools.32")
    return (32, share) if many is CellVerdict.REFUSED and some is not CellVerdict.REFUSED else None


def _context_length(cells: _Cells) -> tuple[Any, Share] | None:
    """The tokens that a refusal named, or that were read of a prompt that was cut."""
    _, share = cells.joined("context")
    tokens = cells.value("context")
    return (tokens, share) if tokens is not None else None


def _name_length(cells: _Cells) -> tuple[Any, Share] | None:
    """A name of 64 characters that is refused or comes back otherwise: half of it is safe."""
    long, share = cells.joined("name.long")
    return (_SHORT_NAME, share) if _is_servers(cells, "name.long", long) else None


def _name_pattern(cells: _Cells) -> tuple[Any, Share] | None:
    """A name with hyphens and capitals that is refused or comes back otherwise."""
    odd, share = cells.joined("name.odd")
    return (_PLAIN_NAME, share) if _is_servers(cells, "name.odd", odd) else None


def _id_pattern(cells: _Cells) -> tuple[Any, Share] | None:
    """The letters of call ids, where ids are refused at all; a limit of the length needs a pattern beside it."""
    _, long_share = cells.joined("id.long")
    _, odd_share = cells.joined("id.odd")
    is_long_refused = _is_id_refused(cells, "id.long")
    if _is_id_refused(cells, "id.odd"):
        return (_NINE_ID if is_long_refused else _PLAIN_ID), odd_share
    return (_ANY_ID, long_share) if is_long_refused else None


def _id_length(cells: _Cells) -> tuple[Any, Share] | None:
    """An id of 64 characters that is refused."""
    _, share = cells.joined("id.long")
    return (_SHORT_ID, share) if _is_id_refused(cells, "id.long") else None


def _is_id_refused(cells: _Cells, name: str) -> bool:
    """Tell whether a call is refused for its id, and not because no call in the history is taken."""
    known = cells.joined("result.round_trip")[0]
    return cells.joined(name)[0] is CellVerdict.REFUSED and known not in (CellVerdict.REFUSED, CellVerdict.CRASHED)


def _reasoning_history(cells: _Cells) -> tuple[Any, Share] | None:
    """Reasoning is dropped where it is refused when handed back, and the same is answered without it."""
    returned, share = cells.joined("reasoning.returned")
    dropped, _ = cells.joined("reasoning.dropped")
    refused = returned is CellVerdict.REFUSED and dropped is CellVerdict.HELD
    return (ReasoningPolicy.DROP, share) if refused else None


def _is_servers(cells: _Cells, name: str, verdict: CellVerdict) -> bool:
    """Tell whether a cell with a named tool is broken by the server, and not because no tool may be named."""
    if verdict is CellVerdict.REFUSED and cells.joined("named", "named+stream")[0] is CellVerdict.REFUSED:
        return False
    return verdict in (CellVerdict.REFUSED, CellVerdict.IGNORED) and cells.owners(name) != {Owner.MODEL}


def _trusted(cells: _Cells) -> tuple[Any, Share] | None:
    _, arguments = cells.joined("arguments")
    strict, _ = cells.joined("strict")
    return (True, arguments) if strict is CellVerdict.HELD and arguments.low >= THRESHOLD else None


#: The field, its rule, and the tries it takes.
RULES: dict[str, tuple[_Rule, int]] = {
    "protocol": (_protocol, _LEAST),
    "forced": (_forced, 3),
    "named": (_named, 3),
    "stateful": (_stateful, 1),
    "streams": (_streams, 3),
    "streams_forced": (_streams_forced, 3),
    "parallel": (_parallel, _LEAST),
    "schema_output": (_schema("format"), _LEAST),
    "schema_with_tools": (_schema("format+tools"), _LEAST),
    "most_tools": (_most_tools, 1),
    "context_length": (_context_length, 1),
    "name_length": (_name_length, _LEAST),
    "name_pattern": (_name_pattern, _LEAST),
    "id_pattern": (_id_pattern, 1),
    "id_length": (_id_length, 1),
    "reasoning_history": (_reasoning_history, 1),
    "trusted_arguments": (_trusted, 1),
}


def has_answers(result: ProbeResult) -> bool:
    """Tell whether anything was answered. A key that is refused refuses every cell, which says nothing of any."""
    replied = (Outcome.HELD, Outcome.NOT_DONE)
    tried = (cell.outcomes for cell in result.cells if cell.group is not CellGroup.ERRORS)
    return any(outcome in replied for outcomes in tried for outcome in outcomes)


def facts_of(result: ProbeResult) -> tuple[MeasuredFact, ...]:
    """Return the facts that a result settles, in the order of the table; none where nothing was answered."""
    cells, found = _Cells(result), list[MeasuredFact]()
    if not has_answers(result):
        return ()
    for field, (rule, least) in RULES.items():
        said = rule(cells)
        if said is not None and said[1].of >= least:
            found.append(MeasuredFact(field=field, value=said[0], day=result.day, held=said[1].hits, of=said[1].of))
    return tuple(found)


def profile_of(result: ProbeResult) -> MeasuredProfile:
    """Return the profile that a result makes."""
    return MeasuredProfile.of(result.base_url, result.wire, result.model, facts_of(result), upstream=result.upstream)


def _sum(first: Share, second: Share) -> Share:
    outcomes = [Outcome.HELD] * (first.hits + second.hits)
    return count(outcomes + [Outcome.NOT_DONE] * (first.of + second.of - len(outcomes)))
