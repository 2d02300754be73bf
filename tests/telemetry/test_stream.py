"""The stream of events: bounded, never failing, never waiting; and what a finished turn is unfolded into."""

import asyncio
import threading
from contextlib import aclosing

import msgspec

from mustcall.core.adaptation import Adaptation, AdaptationKind
from mustcall.telemetry.events import AttemptEnd, BreakerChanged, Event, TurnEnded, unfold
from mustcall.telemetry.stream import EventStream


def attempt(verdict: str, remedy: str = "", *, sends: int = 1) -> AttemptEnd:
    """An attempt with this verdict."""
    return AttemptEnd(
        after=0.0,
        seconds=1.0,
        first_byte=0.5,
        rung="native",
        verdict=verdict,
        remedy=remedy,
        sends=sends,
        error="",
        tool="",
        input_tokens=1,
        output_tokens=1,
    )


ENDED = TurnEnded(
    at=5.0,
    request_id="req_1",
    session="s",
    upstream="up",
    model="m",
    wire="chat",
    attempt=2,
    class_="calls",
    attempts=(attempt("force_missed", "climb", sends=3), attempt("called", "accept")),
    adaptations=(
        Adaptation(AdaptationKind.ARGUMENTS_COERCED, "city"),
        Adaptation(AdaptationKind.FORCE_DROPPED, "any tool"),
        Adaptation(AdaptationKind.REPORTED, "settled"),
    ),
)


def test_each_thing_that_happened_is_one_event() -> None:
    """Rule 117: a detection, a retry, a repair and a dropped force are one event each, with the same identity."""
    events = list(unfold(ENDED))
    told = [(msgspec.to_builtins(event)["event"], event.class_, event.attempt) for event in events]
    assert told == [
        ("detected", "force_missed", 1),
        ("retried", "transport", 1),
        ("retried", "climb", 1),
        ("repaired", "arguments_coerced", 0),
        ("force_dropped", "force_dropped", 0),
        ("turn_ended", "calls", 2),
    ]
    for event in events:
        named = (event.request_id, event.session, event.upstream, event.model, event.wire)
        assert named == ("req_1", "s", "up", "m", "chat")


def test_an_error_before_a_verdict_is_a_refusal() -> None:
    """Rule 117: a refusal is told once; a failure of the model is its detections, not a refusal."""
    refused = TurnEnded(at=0.0, error="unauthorized", status=401)
    assert [(type(one).__name__, one.class_) for one in unfold(refused)] == [
        ("Refused", "unauthorized"),
        ("TurnEnded", ""),
    ]
    rejected = TurnEnded(at=0.0, error="upstream_rejected", attempts=(attempt("rejected"),))
    assert [type(one).__name__ for one in unfold(rejected)] == ["Detected", "Refused", "TurnEnded"]
    unmet = TurnEnded(at=0.0, error="force_unmet", attempts=(attempt("force_missed", "fail"),))
    assert [type(one).__name__ for one in unfold(unmet)] == ["Detected", "TurnEnded"]


def test_nobody_listening_is_known() -> None:
    """Those who tell can see that they need not build anything."""
    stream = EventStream()
    assert not stream.listening
    with stream.subscribe():
        assert stream.listening
    assert not stream.listening


def test_a_listener_that_fails_fails_nobody() -> None:
    """Telemetry never fails a request: what a listener raises is counted, and the next one still hears."""
    stream, heard = EventStream(), list[Event]()

    def fails(_: Event) -> None:
        raise OSError("disk full")

    stream.listen(fails)
    stream.listen(heard.append)
    stream.emit(ENDED)
    assert heard == [ENDED]
    assert stream.failed == 1


def test_a_slow_reader_loses_the_oldest_and_knows_how_many() -> None:
    """The queue is bounded: what does not fit pushes the oldest out."""
    stream = EventStream()
    with stream.subscribe(3) as subscription:
        for number in range(10):
            stream.emit(BreakerChanged(at=float(number)))
        assert [event.at for event in subscription.take()] == [7.0, 8.0, 9.0]
        assert subscription.dropped == 7
        assert subscription.take() == []


def test_whole_turns_or_each_event() -> None:
    """A reader that wants turns gets turns alone."""
    stream = EventStream()
    with stream.subscribe(whole=True) as turns, stream.subscribe() as each:
        stream.emit(ENDED)
        assert turns.take() == [ENDED]
        assert each.take() == list(unfold(ENDED))


async def test_an_event_loop_reads_until_the_end() -> None:
    """`async for` waits for events, from any thread, and ends when the subscription is closed."""
    stream = EventStream()
    subscription = stream.subscribe()
    heard: list[float] = []

    async def read() -> None:
        async with aclosing(aiter(subscription)) as events:
            async for event in events:
                heard.append(event.at)
                if event.at == 1.0:
                    subscription.close()

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    stream.emit(BreakerChanged(at=0.0))
    await asyncio.to_thread(stream.emit, BreakerChanged(at=1.0))
    await asyncio.wait_for(reading, 180)
    assert heard == [0.0, 1.0]


def test_a_thread_reads_when_there_is_something() -> None:
    """`take` waits for the first event; closing ends the waiting."""
    stream = EventStream()
    subscription = stream.subscribe()
    taken: list[list[Event]] = []

    def read() -> None:
        while batch := subscription.take(20.0):
            taken.append(batch)

    thread = threading.Thread(target=read)
    thread.start()
    stream.emit(ENDED)
    while not taken:
        pass
    subscription.close()
    thread.join(20)
    assert not thread.is_alive()
    assert [event for batch in taken for event in batch] == list(unfold(ENDED))
