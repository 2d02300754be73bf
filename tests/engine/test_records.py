"""Records of a turn: what may be told of it, and that no contents are in it."""

import json

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.core.reply import Usage
from mustcall.core.verdict import OutcomeKind, Verdict
from mustcall.engine.records import AttemptRecord, TurnProgress, TurnRecord
from mustcall.policy.request.plan import Rung, RungKind
from mustcall.policy.turn.remedy import Remedy


def attempt(**fields: object) -> AttemptRecord:
    """An attempt that sent a secret."""
    record = AttemptRecord(rung=Rung(RungKind.SOFT, 1), body=b'{"messages": ["secret words"]}', started=1.0)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def test_a_summary_holds_no_contents() -> None:
    """Rules 114, 136: rung, verdict, remedy, time, usage and a digest; nothing of what was said."""
    record = attempt(
        verdict=Verdict.TEXT_CALL,
        remedy=Remedy.RESAMPLE,
        seconds=0.12345,
        usage=Usage(input_tokens=3, output_tokens=4),
        error="rate_limited",
    )
    summary = record.summary()
    assert summary == {
        "rung": "soft",
        "verdict": "text_call",
        "remedy": "resample",
        "request": record.digest,
        "seconds": 0.123,
        "error": "rate_limited",
        "usage": {"input": 3, "output": 4},
    }
    assert "secret" not in json.dumps(summary)


def test_equal_bytes_have_equal_digests() -> None:
    """Contract 6: a digest tells whether two attempts sent the same."""
    assert attempt().digest == attempt().digest
    other = AttemptRecord(rung=Rung(RungKind.SOFT), body=b"{}", started=0.0)
    assert other.digest != attempt().digest


def test_calls_count_transport_retries() -> None:
    """Rule 96: every upstream call is counted, not every attempt."""
    record = TurnRecord(protocol="native", attempts=[attempt(sends=3), attempt()])
    assert record.calls == 4


def test_the_turn_as_its_caller_may_see_it() -> None:
    """Rule 114: outcome, protocol, force, attempts and repairs, as JSON."""
    record = TurnRecord(
        protocol="native",
        force="met",
        outcome=OutcomeKind.CALLS,
        attempts=[attempt()],
        adaptations=(Adaptation(AdaptationKind.FORCE_SOFTENED, "tool_choice", "auto"),),
    )
    told = json.loads(json.dumps(record.summary()))
    assert (told["outcome"], told["protocol"], told["force"]) == ("calls", "native", "met")
    assert told["adaptations"] == [{"kind": "force_softened", "subject": "tool_choice", "detail": "auto"}]
    assert [entry["rung"] for entry in told["attempts"]] == ["soft"]
    assert TurnRecord(protocol="off").summary()["outcome"] is None


def test_progress_begins_unheld() -> None:
    """Rule 113: until a turn says that it holds, no sign of life is due."""
    progress = TurnProgress()
    assert (progress.holding, progress.record) == (False, None)
