"""A flight is one making for many, and belongs to its members: who waits, reads, leaves and fails."""

import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from structlog.testing import capture_logs

from gateway.adapters.memory.models import Gate
from gateway.answer.cache import AnswerKey
from gateway.answer.outcome import Ending, KeptAnswer, Opening
from gateway.answer.reuse.flight import Flight, LeftAlone, NotShared, Seat
from gateway.answer.reuse.flights import Flights
from gateway.context import Deadline
from gateway.errors import (
    DeadlineExceeded,
    GatewayError,
    KnowledgeBaseNotFound,
    Overloaded,
    PermissionsChanged,
    PrincipalRevoked,
    TokenExpired,
    UpstreamFailed,
)
from gateway.observe.metrics import Metrics
from gateway.observe.trace import Trace
from gateway.stream.channel import EventChannel
from gateway.stream.protocol import Usage
from gateway.stream.session import CloseReason, Session

PATIENCE_S = 10
KEY = AnswerKey("t", "kb", "r", "s", "d", 1, "q", "", "p", "c", "", "m", "en", "o", 100, "i", "g")
OPENING = Opening("model", (), frozenset())
ENDING = Ending((), (), Usage(1, 1, estimated=False))
METRICS = Metrics(close_reasons=(), statuses=())


class Place:
    """Something held for a making."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class Board:
    """A board of flights whose makings say ``pieces``, and what they wait at."""

    def __init__(self, *pieces: str, opening: Opening = OPENING) -> None:
        self.pieces = pieces
        self.opening = opening
        self.flights = Flights()
        self.place = Place()
        self.before_opening: Gate | None = None
        self.before: dict[int, Gate] = {}
        self.failing: dict[int, Exception] = {}
        self.fails_first: Exception | None = None
        self.begun = 0
        self.asked = 0
        self.over = 0

    async def make(self, flight: Flight) -> None:
        self.begun += 1
        flight.hold(self.place)
        try:
            await self._make(flight)
        finally:
            self.over += 1

    async def _make(self, flight: Flight) -> None:
        if self.before_opening is not None:
            await self.before_opening.wait()
        if self.fails_first is not None:
            raise self.fails_first
        flight.open(self.opening)
        await flight.wanted()
        self.asked += 1
        for number, piece in enumerate(self.pieces):
            await self._pass(number)
            await flight.write(piece)
        await self._pass(len(self.pieces))
        flight.land(ENDING)

    async def _pass(self, number: int) -> None:
        if number in self.before:
            await self.before[number].wait()
        if number in self.failing:
            raise self.failing[number]

    @asynccontextmanager
    async def seat(
        self,
        *,
        key: AnswerKey | None = KEY,
        seconds: float = 60,
        session: Session | None = None,
        make: Callable[[Flight], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Seat]:
        deadline = Deadline.after(seconds * 1000)
        trace = Trace("req", "trace", METRICS)
        make = make or self.make
        async with self.flights.aboard(key, session or asking(), trace, deadline, make) as seat:
            yield seat


def asking() -> Session:
    return Session("req", EventChannel(65_536, 0, 1))


async def read(seat: Seat) -> str:
    """All of it, by somebody who may see it."""
    await seat.opening()
    seat.want()
    said = ""
    while text := await seat.text():
        said += text
    await seat.ending()
    return said


async def test_a_lone_member_is_told_all_and_nothing_stays_behind() -> None:
    """What the making held is given back before he has left."""
    board = Board("The limit ", "is 42.")
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as seat:
            assert (seat.leads, seat.found_here) == (True, True)
            assert await read(seat) == "The limit is 42."
    assert (board.begun, board.over, board.place.released) == (1, 1, 1)


async def test_fifty_members_read_one_making_after_the_first_has_left() -> None:
    """It began with his question and goes on for them."""
    board = Board("The limit ", "is ", "42.")
    gate = board.before[1] = Gate()
    said: list[tuple[bool, str]] = []

    async def follow() -> None:
        async with board.seat() as seat:
            said.append((seat.leads, await read(seat)))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            async with board.seat():
                for _ in range(49):
                    tasks.start_soon(follow)
                await gate.reached.wait()
            gate.release.set()
    assert said == [(False, "The limit is 42.")] * 49
    assert (board.begun, board.asked) == (1, 1)


async def test_the_last_one_who_leaves_ends_it_and_everything_is_given_back_before_he_is_gone() -> None:
    """Not the first one who does."""
    board = Board("one")
    gate = board.before[0] = Gate()
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as last:
            async with board.seat():
                await last.opening()
                last.want()
                await gate.reached.wait()
            assert (board.over, board.place.released) == (0, 0)
        assert (board.over, board.place.released) == (1, 1)


async def test_who_leaves_before_it_has_begun_leaves_nothing_running() -> None:
    """Its task has had no turn yet."""
    board = Board("one")
    with anyio.fail_after(PATIENCE_S):
        async with board.seat():
            assert board.begun == 0
        assert (board.asked, board.over, board.place.released) == (0, board.begun, board.begun)


async def test_no_model_is_asked_before_a_member_has_looked() -> None:
    """Whoever may not see what was found doesn't let it out to a model either."""
    board = Board("one")
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as one, board.seat() as other:
            await one.opening()
            await other.opening()
            await anyio.wait_all_tasks_blocked()
            assert board.asked == 0
            other.want()
            assert await read(one) == "one"


async def test_the_fastest_reader_sets_the_pace() -> None:
    """A slow one holds nobody up, and has all of it to read when he comes."""
    board = Board(*["x" * 600] * 10)
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as slow:
            async with board.seat() as fast:
                await slow.opening()
                assert await read(fast) == "x" * 6000
            assert await read(slow) == "x" * 6000


async def test_the_making_waits_while_nobody_reads_fast_enough() -> None:
    """The others' leaving doesn't end the wait, reading does."""
    board = Board(*["x" * 600] * 10)
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as slow:
            async with board.seat() as gone:
                await gone.opening()
                gone.want()
                await gone.text()
            await anyio.wait_all_tasks_blocked()
            assert board.over == 0
            assert await read(slow) == "x" * 6000


async def test_what_came_whole_goes_whole_and_who_has_much_to_catch_up_with_gets_slices() -> None:
    """Each fits into what his session holds back by."""
    board = Board(*["x" * 100] * 100)
    large = Board("x" * 500, "y" * 50_000)
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as first, board.seat() as late:
            assert await read(first) == "x" * 10_000
            sizes = [len(await late.text()) for _ in range(4)]
        assert sizes == [4096, 4096, 1808, 0]
        async with large.seat() as seat:
            await seat.opening()
            seat.want()
            await anyio.wait_all_tasks_blocked()
            assert [len(await seat.text()) for _ in range(2)] == [50_000, 500]


async def test_a_late_member_gives_the_making_his_time() -> None:
    """It was begun by somebody who had less, and one with even less takes none away."""
    board = Board("one")
    flights: list[Flight] = []

    async def make(flight: Flight) -> None:
        flights.append(flight)
        await board.make(flight)

    with anyio.fail_after(PATIENCE_S):
        async with board.seat(seconds=40, make=make) as first:
            await first.opening()
            async with board.seat(seconds=60), board.seat(seconds=10):
                left_s = flights[0].cancel_scope.deadline - anyio.current_time()
                assert 50 < left_s < 61
                assert 50 < flights[0].deadline.remaining() < 61


async def test_time_that_is_up_is_told_as_such() -> None:
    """The making was cancelled by its own deadline."""
    board = Board("one")
    board.before_opening = Gate()
    with anyio.fail_after(PATIENCE_S), pytest.raises(DeadlineExceeded):
        async with board.seat(seconds=0.01) as seat:
            await seat.opening()
    assert (board.over, board.place.released) == (1, 1)


OWN = [PrincipalRevoked(), TokenExpired(), KnowledgeBaseNotFound(), PermissionsChanged()]


@pytest.mark.parametrize("error", OWN, ids=lambda error: error.code)
async def test_rights_of_the_leader_end_only_his_part(error: GatewayError) -> None:
    """He is told; the others begin another one, which the next to come join."""
    board = Board("one")
    gate = board.before_opening = Gate()
    board.fails_first = error
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as leader, board.seat() as follower:
            gate.release.set()
            with pytest.raises(type(error)):
                await leader.opening()
            with pytest.raises(LeftAlone):
                await follower.opening()
        board.fails_first = None
        async with board.seat() as again, board.seat() as joined:
            assert (again.leads, joined.leads) == (True, False)
            assert await read(again) == await read(joined) == "one"


async def test_time_of_the_leader_ends_only_his_part() -> None:
    """A stage that was begun in his last moment knows no other time; the others have more."""
    board = Board("one")
    gate = board.before_opening = Gate()
    board.fails_first = DeadlineExceeded("retrieval")
    with anyio.fail_after(PATIENCE_S):
        async with board.seat(seconds=0.3) as leader, board.seat(seconds=0.5) as follower:
            await gate.reached.wait()
            await anyio.sleep(0.3)  # his time
            gate.release.set()
            with pytest.raises(DeadlineExceeded):
                await leader.opening()
            with pytest.raises(LeftAlone):
                await follower.opening()


async def test_who_has_much_more_time_begins_a_making_of_his_own() -> None:
    """What runs in one that was begun with little knows no other time."""
    board = Board("one")
    gate = board.before_opening = Gate()
    with anyio.fail_after(PATIENCE_S):
        async with board.seat(seconds=20) as short, board.seat(seconds=60) as long, board.seat() as third:
            assert (short.leads, long.leads, third.leads) == (True, True, False)
            gate.release.set()
            assert await read(long) == await read(third) == "one"


async def test_nobody_joins_a_making_that_is_giving_back_what_it_held() -> None:
    """The last one has left it, and it takes its time to close its call."""
    board = Board("one")
    begun, closing, closed = anyio.Event(), anyio.Event(), anyio.Event()

    async def make(flight: Flight) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                closing.set()
                await closed.wait()

    async def leaves(scope: anyio.CancelScope) -> None:
        with scope:
            async with board.seat(make=make) as seat:
                await seat.opening()

    scope = anyio.CancelScope()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leaves, scope)
            await begun.wait()
            scope.cancel()
            await closing.wait()
            async with board.seat() as late:
                assert late.leads
                assert await read(late) == "one"
            closed.set()


async def test_a_defect_behind_the_landing_is_written_down() -> None:
    """Everybody has his answer by then, and nobody is there to raise it."""
    board = Board("one")

    async def make(flight: Flight) -> None:
        await board.make(flight)
        raise ZeroDivisionError

    with capture_logs() as said, anyio.fail_after(PATIENCE_S):
        async with board.seat(make=make) as seat:
            assert await read(seat) == "one"
    assert [line["event"] for line in said if line["log_level"] == "error"] == ["answer.defect"]


PARTS = [Overloaded("generation", retry_after_ms=1), DeadlineExceeded("retrieval"), UpstreamFailed()]


@pytest.mark.parametrize("error", PARTS, ids=lambda error: error.code)
async def test_a_part_that_fails_fails_for_all(error: GatewayError) -> None:
    """Asking it once more for each of them would make it worse."""
    board = Board("one")
    gate = board.before_opening = Gate()
    board.fails_first = error
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as leader, board.seat() as follower:
            gate.release.set()
            for seat in (leader, follower):
                with pytest.raises(type(error)):
                    await seat.opening()
    assert (board.begun, board.place.released) == (1, 1)


async def test_a_failure_comes_behind_the_text_before_it() -> None:
    """Also for a member who hasn't read it yet; the next question begins anew."""
    board = Board("The limit ", "is 42.")
    board.failing[1] = UpstreamFailed()
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as leader, board.seat() as follower:
            for seat in (leader, follower):
                await seat.opening()
                seat.want()
                assert (await seat.text(), await seat.text()) == ("The limit ", "")
                with pytest.raises(UpstreamFailed):
                    await seat.ending()
            async with board.seat() as new:
                assert new.leads


async def test_a_defect_is_raised_to_each_with_the_place_where_it_was() -> None:
    """And without the way that it took through the others; every one of them may log it."""
    board = Board("one")
    board.failing[0] = ZeroDivisionError("a defect")
    logged: list[str] = []
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as one, board.seat() as other:
            for seat in (one, other, one):
                await seat.opening()
                seat.want()
                with pytest.raises(ZeroDivisionError) as caught:
                    await seat.ending()
                logged.append("".join(traceback.format_exception(caught.value)))
    assert all("in _pass" in text for text in logged)
    assert len({text.count("in ending") for text in logged}) == 1


async def test_what_depends_on_who_asked_is_told_to_its_leader_only() -> None:
    """Nobody joins it any more."""
    board = Board("one", opening=replace(OPENING, shared=False))
    gate = board.before_opening = Gate()
    with anyio.fail_after(PATIENCE_S):
        async with board.seat() as leader, board.seat() as follower:
            gate.release.set()
            with pytest.raises(NotShared):
                await follower.opening()
            async with board.seat() as new:
                assert new.leads
            assert await read(leader) == "one"


async def test_without_a_key_nobody_joins() -> None:
    """He asked for an answer of his own."""
    board = Board("one")
    async with board.seat(key=None) as one, board.seat(key=None) as other, board.seat() as third:
        assert [seat.leads for seat in (one, other, third)] == [True] * 3
    assert board.begun == 3


async def test_a_part_in_which_the_keys_differ_keeps_them_apart() -> None:
    """The board goes by the whole key."""
    board = Board("one")
    async with board.seat() as one, board.seat(key=replace(KEY, acl_revision=2)) as other:
        assert (one.leads, other.leads) == (True, True)


async def test_a_lost_place_in_the_quota_ends_the_sessions_of_all() -> None:
    """Each is told in his own session; the call is over."""
    board = Board("one")
    gate = board.before[0] = Gate()
    sessions = [asking(), asking()]
    flights: list[Flight] = []

    async def make(flight: Flight) -> None:
        flights.append(flight)
        await board.make(flight)

    with anyio.fail_after(PATIENCE_S):
        async with (
            board.seat(session=sessions[0], make=make) as one,
            board.seat(session=sessions[1]) as other,
        ):
            one.want()
            await gate.reached.wait()
            assert flights[0].cancel(CloseReason.QUOTA_LOST)
            assert not flights[0].cancel(CloseReason.QUOTA_LOST)
            with pytest.raises(DeadlineExceeded):
                await other.ending()
    assert [session.close_reason for session in sessions] == [CloseReason.QUOTA_LOST] * 2
    assert (board.over, board.place.released) == (1, 1)


async def test_text_counts_as_late_from_the_end_of_the_last_session_on() -> None:
    """Its member may not have left yet."""
    board = Board("one")
    sessions = [asking(), asking()]
    flights: list[Flight] = []

    async def make(flight: Flight) -> None:
        flights.append(flight)
        await board.make(flight)

    with anyio.fail_after(PATIENCE_S):
        async with (
            board.seat(session=sessions[0], make=make) as one,
            board.seat(session=sessions[1]),
        ):
            await one.opening()
            sessions[0].cancel(CloseReason.CLIENT_STOP)
            assert flights[0].close_reason is None
            sessions[1].cancel(CloseReason.SHUTTING_DOWN)
            assert flights[0].close_reason is not None


async def test_whoever_comes_while_the_answer_is_being_kept_still_gets_it() -> None:
    """It has landed, and the store takes its time; the last reader waits for it."""
    board = Board("one")
    keeping = Gate()

    async def make(flight: Flight) -> None:
        await board.make(flight)
        await keeping.wait()

    with anyio.fail_after(PATIENCE_S):
        async with board.seat(make=make) as one:
            assert await read(one) == "one"
            await keeping.reached.wait()
            async with board.seat() as late:
                assert (late.leads, await read(late)) == (False, "one")
            keeping.release.set()
    assert (board.begun, board.over) == (1, 1)


async def test_what_another_process_made_was_found_for_nobody_here() -> None:
    """So its leader has to look at its documents like everybody else."""
    board = Board()
    kept = KeptAnswer(OPENING, "made elsewhere", ENDING, 1.0)

    async def make(flight: Flight) -> None:
        await flight.repeat(kept)

    with anyio.fail_after(PATIENCE_S):
        async with board.seat(make=make) as seat:
            await seat.opening()
            assert (seat.leads, seat.found_here) == (True, False)
            assert await read(seat) == "made elsewhere"
