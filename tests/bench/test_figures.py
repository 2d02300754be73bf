"""What is computed from a run: medians, ratios within a round, and goals."""

import math

import msgspec

from mustcall.bench.report.figures import peer_ratios, rows_of, verdicts
from mustcall.bench.report.results import BenchResults, Streams
from support.benching import flowing, measured, run_of, sample, whole_run


def verdict(run: BenchResults, begins: str) -> tuple[bool, str]:
    """The one goal whose line begins so."""
    found = [(one.met, one.text) for one in verdicts(run) if one.text.startswith(begins)]
    assert len(found) == 1
    return found[0]


def test_ratios_are_taken_within_a_round() -> None:
    """A round in which everything was slow changes no ratio: 0.3/0.2 and 3.0/2.0 are both 1.5."""
    run = run_of(measured("floor chat", "floor", 0.2, 2.0, 0.2), measured("chat -> chat", "same-wire", 0.3, 3.0, 0.3))
    row = rows_of(run)[1]
    assert row.cpu_ms == 0.3
    assert row.times_floor is not None
    assert math.isclose(row.times_floor, 1.5)


def test_floor_and_direct_have_no_ratio() -> None:
    """They are what others are measured by."""
    rows = rows_of(run_of(measured("direct chat", "direct", 0.1), measured("floor chat", "floor", 0.2)))
    assert [row.times_floor for row in rows] == [None, None]


def test_the_floor_of_another_wire_is_not_mine() -> None:
    """Ratios are to the floor of the same upstream wire."""
    other = msgspec.structs.replace(measured("floor messages", "floor", 9.0), upstream="messages")
    run = run_of(other, measured("floor chat", "floor", 0.2), measured("chat -> chat", "same-wire", 0.3))
    assert [round(row.times_floor or 0, 2) for row in rows_of(run)] == [0, 0, 1.5]


def test_cpu_per_event() -> None:
    """A stream's CPU is told per event: 200 of them."""
    run = run_of(measured("floor chat", "floor", 1.0, workload="stream"))
    assert rows_of(run)[0].event_us == 5.0
    assert rows_of(run_of(measured("floor chat", "floor", 1.0)))[0].event_us is None


def test_the_larger_of_both_limits_counts() -> None:
    """Same wire: 1.5 times the floor or 0.5 ms; across wires only the multiple of the floor counts."""
    floor = measured("floor chat", "floor", 0.1)
    assert verdict(run_of(floor, measured("chat -> chat", "same-wire", 0.45)), "same-wire")[0]
    assert not verdict(run_of(floor, measured("chat -> chat", "same-wire", 0.55)), "same-wire")[0]
    slow = measured("floor chat", "floor", 1.0)
    assert verdict(run_of(slow, measured("chat -> chat", "same-wire", 1.4)), "same-wire")[0]
    assert not verdict(run_of(floor, measured("messages -> chat", "translating", 0.25)), "translating")[0]
    assert verdict(run_of(floor, measured("messages -> chat", "translating", 0.19)), "translating")[0]


def test_the_weakest_pair_is_judged() -> None:
    """One pair that costs too much is enough, and is named."""
    run = run_of(
        measured("floor chat", "floor", 1.0),
        measured("messages -> chat", "translating", 1.2),
        measured("responses -> chat", "translating", 2.5),
    )
    met, text = verdict(run, "translating")
    assert not met
    assert "2.50x" in text
    assert "responses -> chat" in text


def test_paced_events_are_judged_above_the_floor() -> None:
    """What the floor takes for an event that comes alone is not the gateway's: 10 - 6 ms over 200 events is 20 us."""
    run = run_of(
        measured("floor chat", "floor", 6.0, workload="paced"),
        measured("chat -> chat", "same-wire", 10.0, workload="paced"),
    )
    met, text = verdict(run, "chat -> chat at 32")
    assert met
    assert "20.0 us" in text
    assert "floor's 30 us" in text


def test_peers_are_multiples_of_the_gateway() -> None:
    """A peer's CPU is told as a multiple of ours in the same round, against its own goal."""
    run = whole_run()
    assert [(one.contender, times) for one, times in peer_ratios(run)] == [("litellm", 100.0)]
    assert verdict(run, "litellm, call")[0]
    cheap = run_of(measured("chat -> chat", "same-wire", 1.0), measured("litellm", "peer", 19.0))
    assert not verdict(cheap, "litellm, call")[0]
    unknown = run_of(measured("chat -> chat", "same-wire", 1.0), measured("portkey", "peer", 0.1))
    assert verdict(unknown, "portkey, call") == (True, "portkey, call at 32: 0.1x the CPU of the gateway")


def test_new_connections_at_once() -> None:
    """The p99 of the gateway is judged, and told beside those of the floor and the other checkout."""
    floor = measured("floor chat", "floor", 1.0, workload="storm")
    old = measured("before chat", "before", 1.0, workload="storm")
    for p99, met in ((249.0, True), (251.0, False)):
        ours = msgspec.structs.replace(
            measured("chat -> chat", "same-wire", workload="storm"), samples=(sample(1.0, p99=p99),)
        )
        found, text = verdict(run_of(floor, old, ours), "chat -> chat, 256 new connections at once, 32 busy")
        assert found is met
        assert f"p99 {p99:.0f} ms" in text
        assert "floor 2, before 2" in text
    alone = verdict(run_of(ours), "chat -> chat, 256 new")
    assert "nobody else" in alone[1]


def test_another_checkout() -> None:
    """More CPU than the other checkout's by over 5 % is a miss."""
    before, floor = measured("before chat", "before", 1.0), measured("floor chat", "floor", 1.0)
    for cpu, met in ((1.04, True), (1.2, False)):
        run = run_of(floor, before, measured("chat -> chat", "same-wire", cpu))
        assert verdict(run, "chat -> chat, call")[0] is met


def test_another_checkout_is_compared_on_the_same_wires() -> None:
    """What the other checkout takes across wires is no measure of what passes on one, and the other way round."""
    across = msgspec.structs.replace(measured("before messages -> chat", "before", 2.0), caller="messages")
    ours = msgspec.structs.replace(measured("messages -> chat", "translating", 3.0), caller="messages")
    same, old = measured("chat -> chat", "same-wire", 0.9), measured("before chat", "before", 1.0)
    for others in ((across, old), (old, across)):
        run = run_of(*others, same, ours)
        assert verdict(run, "chat -> chat, call")[1].startswith("chat -> chat, call at 32: 0.90x")
        assert verdict(run, "messages -> chat, call")[1].startswith("messages -> chat, call at 32: 1.50x")
    assert [row.times_before for row in rows_of(run_of(old, ours))] == [None, None]


def test_sections_have_their_goals() -> None:
    """Long arguments by their median, starts by the clock, memory per stream and by its growth."""
    run = whole_run()
    met, text = verdict(run, "native argument")
    assert met
    assert "0.30 s CPU" in text
    assert "12.0 us per event" in text
    assert verdict(run, "`mustcall serve`")[0]
    assert not verdict(run, "`mustcall --help`")[0]
    assert "0.200 MB each" in verdict(run, "500 streams")[1]
    met, text = verdict(run, "memory over 100,000 requests")
    assert not met
    assert "+10.0 MB" in text


def test_calls_that_flow() -> None:
    """With a record the first byte is judged, without one the silence; floor and other checkouts are only shown."""
    call = "native call of 600 characters at 50 tokens/s, "
    run = whole_run()
    assert [(one.met, "goal" in one.text) for one in verdicts(run) if one.text.startswith(call)] == [
        (True, False),
        (True, True),
        (True, True),
    ]
    assert "2 keep-alives" in verdict(run, f"{call}gateway without a record")[1]
    assert "first argument byte 0.002 s" in verdict(run, f"{call}gateway with a record")[1]
    slow = BenchResults(
        circumstances=run.circumstances,
        flows=(
            flowing("before", record=True, first=3.6, silence=3.6),
            flowing("same-wire", record=False, first=3.6, silence=3.6),
            flowing("same-wire", record=True, first=1.1),
        ),
    )
    assert [one.met for one in verdicts(slow)] == [True, False, False]
    assert "other checkout with a record" in verdicts(slow)[0].text


def test_an_empty_run_has_no_goals() -> None:
    """What was not measured is not judged."""
    assert verdicts(run_of()) == []


def test_memory_of_one_stream() -> None:
    """Growth at the peak, shared among the streams."""
    assert Streams(streams=10, seconds=1, before_mb=50, peak_mb=90, after_mb=50).each_mb == 4.0
