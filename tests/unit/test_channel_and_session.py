"""The channel joins text and holds a fast writer back; a session ends once, by whoever comes first."""

import itertools
import random
from collections.abc import Callable
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from gateway.access.principal import Principal
from gateway.errors import (
    DeadlineExceeded,
    GatewayError,
    InvalidField,
    Killed,
    PrincipalRevoked,
    ShuttingDown,
    Stopped,
    UpstreamFailed,
)
from gateway.stream.channel import EventChannel
from gateway.stream.protocol import (
    AnswerStatus,
    Delta,
    Done,
    Error,
    Event,
    Meta,
    Revoked,
    Source,
    Timings,
    Usage,
)
from gateway.stream.registry import SessionRegistry
from gateway.stream.session import CANCEL_REASONS, CLOSE_ERRORS, CloseReason, Session

PATIENCE_S = 10
META = Meta("req", "trace", "kb", "rev", 1, "space", "model", False, ())
DONE = Done(AnswerStatus.ANSWERED, (), (), Usage(1, 1, estimated=False), True, False, Timings(1.0, 1.0, 1.0))
REVOKED = Revoked("user", 1.0)


async def drained(channel: EventChannel) -> list[Event]:
    events = []
    with anyio.fail_after(PATIENCE_S):
        while (event := await channel.next()) is not None:
            events.append(event)
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


# -- the channel ---------------------------------------------------------------------------------


async def test_text_written_before_anybody_reads_is_one_delta() -> None:
    """A reader that was busy gets all of it at once."""
    channel = EventChannel(10_000, coalesce_ms=0, coalesce_bytes=1)
    for piece in ("a", "上", "👍", "b"):
        await channel.write(piece)
    channel.close(DONE)
    assert await drained(channel) == [Delta("a上👍b"), DONE]


async def test_text_is_gathered_until_there_is_enough_of_it() -> None:
    """Within the window after a delta, small pieces wait for each other; a full one leaves at once."""
    channel = EventChannel(10_000, coalesce_ms=60_000, coalesce_bytes=4)
    await channel.write("first")
    with anyio.fail_after(PATIENCE_S):
        assert await channel.next() == Delta("first")
    await channel.write("ab")
    with anyio.move_on_after(0) as scope:
        await channel.next()
    assert scope.cancelled_caught, "two bytes are not enough yet"
    await channel.write("上")
    with anyio.fail_after(PATIENCE_S):
        assert await channel.next() == Delta("ab上")


async def test_an_event_does_not_wait_for_the_window() -> None:
    """Whatever is to be said next pushes the text before it out."""
    channel = EventChannel(10_000, coalesce_ms=60_000, coalesce_bytes=1000)
    await channel.write("first")
    with anyio.fail_after(PATIENCE_S):
        assert await channel.next() == Delta("first")
    await channel.write("second")
    channel.close(DONE)
    assert await drained(channel) == [Delta("second"), DONE]


async def test_a_writer_waits_while_the_reader_is_behind() -> None:
    """At the limit nothing more is taken in, until something was read."""
    channel = EventChannel(8, coalesce_ms=0, coalesce_bytes=1)
    written: list[str] = []

    async def write() -> None:
        for piece in ("12345678", "9", "10"):
            await channel.write(piece)
            written.append(piece)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            await anyio.wait_all_tasks_blocked()
            assert written == ["12345678"]
            assert channel.unread_bytes == 8
            assert await channel.next() == Delta("12345678")
            await anyio.wait_all_tasks_blocked()
            assert written == ["12345678", "9", "10"]
    assert channel.unread_bytes == 3


@pytest.mark.parametrize("discard", [False, True])
async def test_closing_lets_a_waiting_writer_go(discard: bool) -> None:
    """It doesn't wait for a reader that will never come, and its text isn't taken."""
    channel = EventChannel(4, coalesce_ms=0, coalesce_bytes=1)
    await channel.write("1234")
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(channel.write, "late")
            await anyio.wait_all_tasks_blocked()
            channel.close(DONE, discard=discard)
    assert await drained(channel) == ([DONE] if discard else [Delta("1234"), DONE])


async def test_nothing_is_taken_after_the_last_event() -> None:
    """Neither text nor events, nor a second last one."""
    channel = EventChannel(100, coalesce_ms=0, coalesce_bytes=1)
    channel.close(DONE)
    channel.put(REVOKED)
    await channel.write("late")
    channel.close(REVOKED)
    assert await drained(channel) == [DONE]
    assert await channel.next() is None


async def test_what_is_discarded_has_another_last_event_in_its_place() -> None:
    """Also when it was the last event itself."""
    channel = EventChannel(100, coalesce_ms=0, coalesce_bytes=1)
    await channel.write("text")
    channel.close(DONE)
    channel.close(REVOKED, discard=True)
    channel.put(DONE)
    assert await drained(channel) == [REVOKED]


async def test_closing_wakes_a_reader_that_waits() -> None:
    """None means closed and empty."""
    channel = EventChannel(100, coalesce_ms=0, coalesce_bytes=1)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(drained, channel)
            await anyio.wait_all_tasks_blocked()
            channel.close()


@pytest.mark.parametrize("seed", range(40))
async def test_however_it_is_split_the_text_arrives_whole(seed: int) -> None:
    """Random pieces, limits, windows and turns: the joined deltas are the text, in order and bounded."""
    rng = random.Random(seed)
    limit = rng.choice([1, 7, 64, 4096])
    channel = EventChannel(limit, rng.choice([0, 1]), rng.choice([1, 16, 512]))
    pieces = ["".join(rng.choices("ab上👍\r\n\u2028", k=rng.randrange(6))) for _ in range(80)]
    largest = max(len(piece.encode()) for piece in pieces)

    async def write() -> None:
        for piece in pieces:
            await channel.write(piece)
            assert channel.unread_bytes < limit + largest
            if rng.random() < 0.4:
                await anyio.lowlevel.checkpoint()
        channel.close(DONE)

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write)
            events = await drained(channel)
    assert text_of(events) == "".join(pieces)
    assert events[-1] == DONE
    assert all(event.text for event in events[:-1] if isinstance(event, Delta))


# -- the session ------------------------------------------------------------------------------------


def session() -> Session:
    return Session("req_1", EventChannel(1000, 0, 1))


async def sent(ended: Session) -> list[Event]:
    with anyio.fail_after(PATIENCE_S):
        return [event async for _, event in ended.events()]


End = Callable[[Session], bool]
ENDS: dict[str, tuple[End, CloseReason]] = {
    "complete": (lambda s: s.complete(DONE), CloseReason.COMPLETED),
    "fail": (lambda s: s.fail(InvalidField("x")), CloseReason.FAILED),
    "deadline": (lambda s: s.fail(DeadlineExceeded("total")), CloseReason.DEADLINE),
    "upstream": (lambda s: s.fail(UpstreamFailed()), CloseReason.UPSTREAM),
    "revoke": (lambda s: s.revoke(REVOKED, PrincipalRevoked()), CloseReason.REVOKED),
    **{
        reason.value: (lambda s, reason=reason: s.cancel(reason), reason)  # type: ignore[misc]  # bound now
        for reason in CLOSE_ERRORS
    },
}


#: nothing of what was written leaves any more
RECALLS = frozenset({"revoke", "revocation_feed_stale"})
ABANDONED = RECALLS | {"client_gone", "slow_reader"}
STOPS = frozenset({"client_stop", "operator_kill"})
PAIRS = list(itertools.permutations(ENDS, 2))
#: (first, second): the second takes the place of the first while there is text that nobody has read
OVERTAKEN = [
    (first, second)
    for first, second in PAIRS
    if first not in ABANDONED and (second in RECALLS or (first == "complete" and second in STOPS))
]
FIRST_WINS = [(*pair, False) for pair in PAIRS]
FIRST_WINS += [(*pair, True) for pair in PAIRS if pair not in OVERTAKEN]


@pytest.mark.parametrize(("first", "second", "opened"), FIRST_WINS)
async def test_the_first_to_end_a_session_wins(first: str, second: str, opened: bool) -> None:
    """The second gets False and changes nothing: not the reason, not the failure, not the last event."""
    one = session()
    if opened:
        one.open(META)
        await one.write("text")
    end, reason = ENDS[first]
    assert end(one)
    kept = (one.close_reason, one.failure, one.status)
    assert not ENDS[second][0](one)
    assert not ENDS[first][0](one)
    assert (one.close_reason, one.failure, one.status) == kept
    assert one.close_reason is reason
    alone = session()
    if opened:
        alone.open(META)
        await alone.write("text")
    ENDS[first][0](alone)
    if opened or first != "complete":
        assert await sent(one) == await sent(alone)


@pytest.mark.parametrize(("first", "second"), OVERTAKEN)
async def test_what_nobody_has_read_yet_can_be_taken_back(first: str, second: str) -> None:
    """By a recall; a whole answer also by a stop. Then that is its end, in every respect, and it has one."""
    one, told = session(), 0

    def tell() -> None:
        nonlocal told
        told += 1

    one.when_ended(tell)
    one.open(META)
    events = one.events()
    with anyio.fail_after(PATIENCE_S):
        await anext(events)
        await one.write("text")
        assert ENDS[first][0](one)
        assert one.recallable
        assert ENDS[second][0](one)
        assert not ENDS[second][0](one)
        assert not ENDS[first][0](one)
        (last,) = [event async for _, event in events]
    assert type(last) is STREAMED[second][0][-1]
    assert not isinstance(last, Error) or last.code == STREAMED[second][1]
    assert (one.close_reason, one.status, told) == (ENDS[second][1], None, 2)
    assert not one.recallable


@pytest.mark.parametrize("unsent", [0, 1])
async def test_an_answer_can_be_revoked_until_all_of_it_has_left(unsent: int) -> None:
    """Its last event was taken: nothing more can be said, and what is on its way is for the connection to
    cut off. A stop has nothing to stop.
    """
    one = session()
    one.sent_by(lambda: unsent)
    one.open(META)
    one.complete(DONE)
    events = one.events()
    with anyio.fail_after(PATIENCE_S):
        assert [(await anext(events))[1] for _ in range(2)] == [META, DONE]
        assert not one.cancel(CloseReason.CLIENT_STOP)
        assert one.revoke(REVOKED, PrincipalRevoked()) is bool(unsent)
        assert [event async for event in events] == []
    assert one.recalled is bool(unsent)


async def test_an_answer_whose_response_is_over_can_not_be_revoked() -> None:
    """Whatever has not left by then is out of reach; what is written down of it holds."""
    one = session()
    one.sent_by(lambda: 1)
    one.open(META)
    one.complete(DONE)
    one.delivered()
    assert not one.recallable
    assert not one.revoke(REVOKED, PrincipalRevoked())
    assert one.close_reason is CloseReason.COMPLETED


async def test_a_stop_finds_an_answer_until_all_of_it_was_taken() -> None:
    """Afterwards there is nothing that it could end; asked twice it is the same stop."""
    registry = SessionRegistry()
    ann = Principal("acme", "ann", frozenset(), frozenset({"ask"}), 1e12)
    for taken in (False, True):
        one = session()
        one.principal = ann
        one.open(META)
        one.complete(DONE)
        with registry.registered(one):
            if taken:
                assert await sent(one) == [META, DONE]
            assert (registry.identified() == []) is taken
            assert [registry.stop(ann, "req_1") for _ in range(2)] == [not taken] * 2
            assert registry.kill(ann, "req_1") is not taken


STREAMED: dict[str, tuple[list[type[Event]], str | None]] = {
    "complete": ([Meta, Delta, Done], None),
    "fail": ([Meta, Delta, Error], "invalid_field"),
    "deadline": ([Meta, Delta, Error], "deadline_exceeded"),
    "upstream": ([Meta, Delta, Error], "upstream_failed"),
    "revoke": ([Meta, Revoked], None),
    "client_stop": ([Meta, Delta, Error], "stopped"),
    "operator_kill": ([Meta, Delta, Error], "killed"),
    "shutting_down": ([Meta, Delta, Error], "shutting_down"),
    "revocation_feed_stale": ([Meta, Error], "revocation_feed_stale"),
    "quota_lost": ([Meta, Delta, Error], "quota_unavailable"),
    "client_gone": ([], None),
    "slow_reader": ([], None),
}


@pytest.mark.parametrize("name", ENDS)
async def test_the_last_event_says_how_it_ended(name: str) -> None:
    """One terminal event, or none where nobody is left to read it."""
    one = session()
    one.open(META)
    await one.write("text")
    ENDS[name][0](one)
    events = await sent(one)
    kinds, code = STREAMED[name]
    assert [type(event) for event in events] == kinds
    if code is not None:
        assert isinstance(events[-1], Error)
        assert (events[-1].code, events[-1].partial) == (code, True)


async def test_a_revocation_drops_what_was_not_sent_yet() -> None:
    """The reader has the meta; the text that waits never leaves."""
    one = session()
    one.open(META)
    events = one.events()
    with anyio.fail_after(PATIENCE_S):
        assert await anext(events) == (1, META)
        await one.write("secret")
        assert one.revoke(REVOKED, PrincipalRevoked())
        assert [event async for event in events] == [(2, REVOKED)]


async def test_a_meta_that_was_revoked_before_it_left_names_no_source() -> None:
    """The order wants it, and nobody may see any longer what it would have cited."""
    source = Source(1, "chunk", "doc", 1, "Salary bands", "", 0, "hr.md", 0.1, 0.2, "rrf", "dense #1")
    one = session()
    one.open(replace(META, sources=(source,)))
    await one.write("secret")
    assert one.revoke(REVOKED, PrincipalRevoked())
    assert await sent(one) == [META, REVOKED]


BEFORE: dict[str, type[GatewayError] | None] = {
    "fail": InvalidField,
    "deadline": DeadlineExceeded,
    "upstream": UpstreamFailed,
    "revoke": PrincipalRevoked,
    "client_stop": Stopped,
    "operator_kill": Killed,
    "shutting_down": ShuttingDown,
    "client_gone": None,
    "slow_reader": None,
}


@pytest.mark.parametrize("name", BEFORE)
async def test_before_meta_an_end_is_a_status(name: str) -> None:
    """The response gets the error to answer with; opening later changes nothing."""
    one = session()
    ENDS[name][0](one)
    with anyio.fail_after(PATIENCE_S):
        failure = await one.opening()
    kind = BEFORE[name]
    assert failure is None if kind is None else isinstance(failure, kind)
    one.open(META)
    await one.write("text")
    assert not one.opened
    assert await sent(one) == []


async def test_an_error_without_text_is_not_partial() -> None:
    """Partial means that there is text to take back or to mark."""
    one = session()
    one.open(META)
    one.fail(UpstreamFailed(retry_after_ms=1500))
    last = (await sent(one))[-1]
    assert isinstance(last, Error)
    assert (last.partial, last.retry_after_ms) == (False, 1500)


@pytest.mark.parametrize("name", [name for name in ENDS if name != "complete"])
async def test_ending_early_cancels_the_pump(name: str) -> None:
    """Whatever the pump awaits is cancelled; also when the end comes before its scope is entered."""
    for early in (True, False):
        one = session()
        reached = anyio.Event()

        async def pump(one: Session = one, reached: anyio.Event = reached) -> None:
            with one.cancel_scope:
                reached.set()
                await anyio.sleep_forever()

        with anyio.fail_after(PATIENCE_S):
            if early:
                ENDS[name][0](one)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pump)
                await reached.wait()
                ENDS[name][0](one)
        assert one.cancel_scope.cancel_called


async def test_what_is_held_is_given_back_newest_first_and_once() -> None:
    """Leases before the places they needed; a second call finds nothing."""
    released: list[str] = []

    class Held:
        def __init__(self, name: str) -> None:
            self.name = name

        def release(self) -> None:
            released.append(self.name)

    one = session()
    for name in ("session", "generation", "lease"):
        one.hold(Held(name))
    one.release_all()
    one.release_all()
    assert released == ["lease", "generation", "session"]


def test_every_early_end_is_a_cancel_that_is_counted() -> None:
    """Only finished answers and requests that never began are not."""
    assert set(CloseReason) - CANCEL_REASONS == {CloseReason.COMPLETED, CloseReason.FAILED}
    assert set(CLOSE_ERRORS) < CANCEL_REASONS
