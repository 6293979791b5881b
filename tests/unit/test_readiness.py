"""Readiness: each part asked by itself, in time, not too often, and with a reason when it is down."""

import dataclasses
import json

import anyio
import pytest
from structlog.testing import capture_logs

from gateway.app import create_app
from gateway.errors import CatalogUnavailable
from gateway.web.readiness import Check, PartState, Readiness
from tests.harness.process import eventually
from tests.harness.serving import serving
from tests.harness.wire import request
from tests.harness.world import World


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Part:
    """A part that a test switches off and on, and that can keep a question waiting."""

    def __init__(self) -> None:
        self.up = True
        self.asked = 0
        self.at_once = 0
        self.most_at_once = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def ping(self) -> None:
        self.asked += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self.gate.wait()
        finally:
            self.at_once -= 1
        if not self.up:
            raise CatalogUnavailable("postgresql://gateway:secret@db refused us")


async def state_of(readiness: Readiness) -> PartState:
    """Of its one part."""
    with anyio.fail_after(10):
        (state,) = (await readiness.states()).values()
    return state


async def asked_again(readiness: Readiness, part: Part) -> PartState:
    """The state once the question that is due has been asked and answered."""
    before = part.asked
    await state_of(readiness)
    await anyio.wait_all_tasks_blocked()
    assert part.asked == before + 1
    return await state_of(readiness)


async def test_parts_are_asked_beside_each_other() -> None:
    """Each check returns only once the other one runs as well."""
    first, second = anyio.Event(), anyio.Event()

    async def one() -> None:
        first.set()
        await second.wait()

    async def other() -> bool:
        second.set()
        await first.wait()
        return True

    with anyio.fail_after(10):
        states = await Readiness({"one": one, "other": other}, cap_s=60).states()
    assert all(state.up for state in states.values())


async def test_a_part_that_does_not_answer_in_time_is_down() -> None:
    """Also one that can't be cancelled; it hangs nobody, and isn't asked anew while it hangs."""
    clock, let_go, good = Clock(), anyio.Event(), Part()
    asked = 0

    async def stuck() -> None:
        nonlocal asked
        asked += 1
        with anyio.CancelScope(shield=True):
            await let_go.wait()

    readiness = Readiness({"stuck": stuck, "good": good.ping}, cap_s=0.01, clock=clock)
    with anyio.fail_after(10):
        for _ in range(3):
            states = await readiness.states()
            assert states["good"].up
            assert (states["stuck"].up, states["stuck"].code) == (False, "deadline_exceeded")
            clock.now += 60
        assert asked == 1
        let_go.set()

        async def up() -> bool:
            clock.now += 60
            return (await readiness.states())["stuck"].up

        await eventually(up)
    assert asked == 2


async def test_a_good_answer_is_remembered_for_a_second() -> None:
    """A part is asked once a second, however many callers there are."""
    clock, part = Clock(), Part()
    readiness = Readiness({"part": part.ping}, clock=clock)
    for _ in range(3):
        assert (await state_of(readiness)).up
    assert part.asked == 1
    clock.now += 0.99
    await state_of(readiness)
    assert part.asked == 1
    clock.now += 0.02
    await state_of(readiness)
    assert part.asked == 2


async def test_a_part_is_never_asked_twice_at_a_time() -> None:
    """Fifty callers at once wait for one answer; the one that leaves takes it from nobody."""
    part = Part()
    part.gate = anyio.Event()
    readiness = Readiness({"part": part.ping}, cap_s=60)
    states: list[PartState] = []
    leaving = anyio.CancelScope()

    async def leaver() -> None:
        with leaving:
            await readiness.states()

    async def caller() -> None:
        states.append(await state_of(readiness))

    async with anyio.create_task_group() as callers:
        callers.start_soon(leaver)
        await anyio.wait_all_tasks_blocked()
        for _ in range(50):
            callers.start_soon(caller)
        leaving.cancel()
        await anyio.wait_all_tasks_blocked()
        part.gate.set()
    assert (part.asked, part.most_at_once) == (1, 1)
    assert [state.up for state in states] == [True] * 50


async def test_a_failing_part_is_asked_less_and_less_often() -> None:
    """After 1, 2, 4 and then each 5 seconds, and not a moment before."""
    clock, part = Clock(), Part()
    part.up = False
    readiness = Readiness({"part": part.ping}, clock=clock)
    assert not (await state_of(readiness)).up
    for wait_s in (1, 2, 4, 5, 5):
        asked = part.asked
        clock.now += wait_s - 0.01
        await state_of(readiness)
        await anyio.wait_all_tasks_blocked()
        assert part.asked == asked
        clock.now += 0.02
        assert not (await asked_again(readiness, part)).up


async def test_nobody_waits_for_a_part_that_is_known_to_be_down() -> None:
    """Callers get the last answer while it is asked behind their backs; its recovery needs no restart."""
    clock, part = Clock(), Part()
    part.up = False
    readiness = Readiness({"part": part.ping}, cap_s=60, clock=clock)
    await state_of(readiness)
    part.up, part.gate = True, anyio.Event()
    clock.now += 1.5
    for _ in range(3):
        assert await state_of(readiness) == PartState(False, 1.5, "catalog_unavailable")
    await anyio.wait_all_tasks_blocked()
    assert part.asked == 2
    part.gate.set()
    with anyio.fail_after(10):
        await readiness.until_up()
    clock.now += 0.5
    assert await state_of(readiness) == PartState(True, 0.5)


async def test_a_failure_starts_the_waits_anew_after_a_recovery() -> None:
    """Two outages, each asked again after a second."""
    clock, part = Clock(), Part()
    readiness = Readiness({"part": part.ping}, clock=clock)
    for _ in range(2):
        part.up = True
        clock.now += 2
        await state_of(readiness)
        part.up = False
        clock.now += 2
        assert not (await asked_again(readiness, part)).up
        clock.now += 1.01
        assert not (await asked_again(readiness, part)).up
        clock.now += 1.01
        asked = part.asked
        await state_of(readiness)
        await anyio.wait_all_tasks_blocked()
        assert part.asked == asked, "the second failure in a row waits longer"
        part.up = True
        clock.now += 1
        assert (await asked_again(readiness, part)).up


async def test_an_outage_is_two_lines_in_the_log() -> None:
    """One when it begins, one when it ends, whatever is asked in between; a good start is none."""
    clock, part = Clock(), Part()
    readiness = Readiness({"part": part.ping}, clock=clock)
    with capture_logs() as lines:
        await state_of(readiness)
        part.up = False
        for _ in range(4):
            clock.now += 6
            await asked_again(readiness, part)
        part.up = True
        clock.now += 6
        await asked_again(readiness, part)
    assert [(line["event"], line["part"], line["log_level"]) for line in lines] == [
        ("readiness.part_down", "part", "warning"),
        ("readiness.part_up", "part", "info"),
    ]
    assert lines[0]["code"] == "catalog_unavailable"
    assert lines[1]["down_s"] == 24
    assert "secret" not in str(lines)


async def refusing() -> bool:
    return False


async def broken() -> None:
    raise LookupError("a defect")


@pytest.mark.parametrize(
    ("check", "code"), [(refusing, "unavailable"), (broken, "internal_error")], ids=["no", "defect"]
)
async def test_whatever_a_check_does_is_a_state(check: Check, code: str) -> None:
    """A plain no, and a defect; neither is raised."""
    state = await state_of(Readiness({"part": check}))
    assert (state.up, state.code) == (False, code)


async def test_the_answer_says_since_when_and_why_a_part_is_down() -> None:
    """`/readyz`: 503, the parts as they are, details of those that are down, no text of their errors."""
    clock, part, good = Clock(), Part(), Part()
    part.up = False
    world = World()
    readiness = Readiness({"catalog": part.ping, "model": good.ping}, clock=clock)
    app = create_app(world.settings, dataclasses.replace(world.services, readiness=readiness))
    async with serving(app) as port:
        await request(port, "GET", "/readyz")
        clock.now += 0.5
        head, body = await request(port, "GET", "/readyz")
        assert head.status == 503
        assert json.loads(body) == {
            "ready": False,
            "parts": {"catalog": False, "model": True, "accepting": True},
            "details": {"catalog": {"since_s": 0.5, "code": "catalog_unavailable"}},
            "degraded": [],
        }
        part.up = True
        clock.now += 1
        with anyio.fail_after(10):
            await readiness.until_up()
        head, body = await request(port, "GET", "/readyz")
        assert (head.status, json.loads(body)["details"]) == (200, {})


async def test_a_part_that_is_not_needed_is_named_and_keeps_nobody_out() -> None:
    """`/readyz` stays 200: questions are answered without it."""
    part, good = Part(), Part()
    part.up = False
    world = World()
    readiness = Readiness({"catalog": good.ping}, optional={"reranker": part.ping})
    app = create_app(world.settings, dataclasses.replace(world.services, readiness=readiness))
    async with serving(app) as port:
        with anyio.fail_after(10):
            await readiness.until_up()
        head, body = await request(port, "GET", "/readyz")
    told = json.loads(body)
    assert (head.status, told["ready"], told["degraded"]) == (200, True, ["reranker"])
    assert told["parts"] == {"catalog": True, "reranker": False, "accepting": True}
    assert told["details"]["reranker"]["code"] == "catalog_unavailable"
