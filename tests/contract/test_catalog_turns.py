"""Contract of TaskStore: every act in every state, whose turn it is, rests, lists, and what is forgotten."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from gateway.errors import InvalidField, StaleFence
from gateway.ingest.task import CANCELLED, Ending, TaskClaim, TaskKind, TaskQuery, TaskRecord, TaskState
from tests.contract.catalog_world import World, import_of, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

_LEASE_S = 30.0
_REST_S = 10.0


async def _task(world: World, task_id: str) -> TaskRecord:
    task = await world.catalog.task("acme", task_id)
    assert task is not None
    return task


# every act in every state


async def _waiting(world: World, claim: TaskClaim) -> None:
    await world.catalog.release_claim(claim)


async def _resting(world: World, claim: TaskClaim) -> None:
    await world.catalog.put_off(claim, "embedder_unavailable", _REST_S)


async def _running(world: World, claim: TaskClaim) -> None:
    """As it was claimed."""


async def _lapsed(world: World, claim: TaskClaim) -> None:
    world.clock.advance(_LEASE_S)


def _ended(state: TaskState) -> Callable[[World, TaskClaim], Awaitable[None]]:
    async def end(world: World, claim: TaskClaim) -> None:
        await world.catalog.finish(claim, Ending(state, "a_code", "a detail"))

    return end


async def _claim(world: World, _: TaskClaim) -> object:
    return await world.catalog.claim("other", _LEASE_S, 5)


_ACTS: dict[str, Callable[[World, TaskClaim], Awaitable[object]]] = {
    "claim": _claim,
    "heartbeat": lambda w, c: w.catalog.heartbeat(c, _LEASE_S),
    "progress": lambda w, c: w.catalog.progress(c, "building", 1, 2),
    "release_claim": lambda w, c: w.catalog.release_claim(c),
    "put_off": lambda w, c: w.catalog.put_off(c, "embedder_unavailable", _REST_S),
    "succeed": lambda w, c: w.catalog.finish(c, Ending(TaskState.SUCCEEDED)),
    "fail": lambda w, c: w.catalog.finish(c, Ending(TaskState.FAILED, "a_code", "a detail")),
    "end as cancelled": lambda w, c: w.catalog.finish(c, CANCELLED),
    "ask to cancel": lambda w, c: w.catalog.request_cancel("acme", c.task_id),
}
_P, _R, _S, _F, _C = TaskState
_STALE = StaleFence
#: for each state, in the order of the acts: the state after it, or what is raised and changes nothing
_TABLE: dict[str, tuple[Callable[[World, TaskClaim], Awaitable[None]], list[TaskState | type[Exception]]]] = {
    "waiting": (_waiting, [_R, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _C]),
    "resting": (_resting, [_P, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _C]),
    "running": (_running, [_R, _R, _R, _P, _P, _S, _F, _C, _R]),
    "lapsed": (_lapsed, [_R, _R, _R, _P, _P, _S, _F, _C, _R]),
    "succeeded": (_ended(_S), [_S, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _S]),
    "failed": (_ended(_F), [_F, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _F]),
    "cancelled": (_ended(_C), [_C, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _STALE, _C]),
}


@pytest.mark.parametrize("state", _TABLE)
async def test_every_act_leads_where_the_table_says(world: World, state: str) -> None:
    """A claim that isn't held any more writes nothing, whatever it tries."""
    bring, outcomes = _TABLE[state]
    for (act, do), expected in zip(_ACTS.items(), outcomes, strict=True):
        accepted = await world.accept(upload("a"))
        claim = await world.claim(_LEASE_S)
        await bring(world, claim)
        before = await _task(world, accepted.task_id)
        if isinstance(expected, TaskState):
            await do(world, claim)
            assert (await _task(world, accepted.task_id)).state is expected, act
        else:
            with pytest.raises(expected):
                await do(world, claim)
            assert await _task(world, accepted.task_id) == before, act
        world.clock.advance(4000)  # too old by then: out of the way of the next one
        assert await world.catalog.claim("other", _LEASE_S, 5, 4000) is None


# rests


async def test_a_task_that_was_put_off_rests(world: World) -> None:
    """Not claimed a moment too early; it says until when and why, and costs no attempt."""
    accepted = await world.accept(upload("a"))
    for number in range(4):
        claim = await world.claim(attempts=1)
        assert (claim.put_offs, claim.trouble) == (number, "vector_store_unavailable" if number else None)
        await world.catalog.put_off(claim, "vector_store_unavailable", 10)
        task = await _task(world, accepted.task_id)
        assert (task.state, task.retry_at, task.trouble) == (
            TaskState.PENDING,
            world.clock() + 10,
            "vector_store_unavailable",
        )
        world.clock.advance(9.5)
        assert await world.catalog.claim("worker", 30, 1) is None
        world.clock.advance(0.5)
    claim = await world.claim(attempts=1)
    task = await _task(world, accepted.task_id)
    assert (task.state, task.retry_at, task.trouble) == (TaskState.RUNNING, None, None)
    await world.catalog.release_claim(claim)
    task = await _task(world, accepted.task_id)
    assert (task.state, task.retry_at, task.trouble) == (TaskState.PENDING, None, None)


async def test_a_resting_task_leaves_its_knowledge_base_to_others(world: World) -> None:
    """What it met may concern nobody else."""
    await world.accept(upload("a"))
    await world.catalog.put_off(await world.claim(), "embedder_unavailable", 60)
    second = await world.accept(upload("b"))
    assert (await world.claim()).task_id == second.task_id


async def test_waiting_uses_up_none_of_a_tasks_time(world: World) -> None:
    """Not for its turn, not at rest, not for somebody to take it over; all its starts share one deadline."""
    await world.catalog.accept_import(import_of(upload("a"), deadline_s=100))
    world.clock.advance(5_000)
    claim = await world.claim(_LEASE_S)
    assert claim.deadline_at == world.clock() + 100
    world.clock.advance(20)
    await world.catalog.progress(claim, "building", 0, 1)
    world.clock.advance(5)
    await world.catalog.put_off(claim, "embedder_unavailable", _REST_S)
    world.clock.advance(5_000)
    claim = await world.claim(_LEASE_S)
    assert claim.deadline_at == world.clock() + 75
    world.clock.advance(5_000)  # its worker is gone: what counts is its lease
    claim = await world.claim(_LEASE_S)
    assert claim.deadline_at == world.clock() + 75 - _LEASE_S
    await world.catalog.release_claim(claim)
    assert (await world.claim()).deadline_at == claim.deadline_at


async def test_a_task_whose_time_is_used_up_is_begun_no_more(world: World) -> None:
    """Its last trouble is named."""
    accepted = await world.catalog.accept_import(import_of(upload("a"), deadline_s=100))
    claim = await world.claim()
    world.clock.advance(100)
    await world.catalog.put_off(claim, "vector_store_unavailable", 3600)
    assert await world.catalog.claim("worker", 30, 5) is None
    task = await _task(world, accepted.task_id)
    assert (task.state, task.error_code) == (TaskState.FAILED, "deadline_exceeded")
    assert task.error_detail == "the task ran out of time; last trouble: vector_store_unavailable"


async def test_a_task_that_waits_too_long_is_given_up(world: World) -> None:
    """Its trouble didn't pass, or it never had its turn; who works on an old one finishes it."""
    resting = await world.accept(upload("a"), kb="one")
    await world.catalog.put_off(await world.claim(), "embedder_unavailable", 3600)
    running = await world.accept(upload("a"), kb="two")
    claim = await world.claim(lease_s=1_000)
    waiting = await world.accept(upload("b"), kb="two")
    world.clock.advance(490)
    assert await world.catalog.claim("worker", 30, 5, 500) is None
    assert {(await _task(world, t.task_id)).state for t in (resting, waiting)} == {TaskState.PENDING}
    world.clock.advance(10)
    assert await world.catalog.claim("worker", 30, 5, 500) is None
    tasks = [await _task(world, each.task_id) for each in (resting, waiting)]
    assert {(task.state, task.error_code) for task in tasks} == {(TaskState.FAILED, "waited_too_long")}
    assert tasks[0].error_detail == "it was accepted too long ago; last trouble: embedder_unavailable"
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert (await _task(world, running.task_id)).state is TaskState.SUCCEEDED


async def test_a_task_whose_workers_vanish_says_what_is_known(world: World) -> None:
    """How often it was begun, how far it came, and what it met."""
    accepted = await world.accept(upload("a"))
    await world.catalog.put_off(await world.claim(), "embedder_unavailable", 0)
    for _ in range(2):
        await world.catalog.progress(await world.claim(_LEASE_S, attempts=2), "building", 1, 2)
        world.clock.advance(_LEASE_S)
    assert await world.catalog.claim("worker", 30, 2) is None
    task = await _task(world, accepted.task_id)
    assert (task.state, task.error_code) == (TaskState.FAILED, "attempts_exhausted")
    assert task.error_detail == (
        "it was begun 2 times, and each time its worker went away without a word; "
        "last stage: building; last trouble: embedder_unavailable"
    )


# turns


async def test_a_long_queue_of_one_tenant_delays_no_other(world: World) -> None:
    """Only what runs already is waited for."""
    for number in range(12):
        await world.accept(upload("a"), kb=f"kb-{number}")
    for _ in range(2):
        await world.claim()
    other = await world.accept(upload("a"), tenant="globex")
    assert (await world.claim()).task_id == other.task_id
    assert (await world.claim()).tenant == "acme"


async def test_tenants_with_as_many_running_take_turns(world: World) -> None:
    """The one served longest ago is next, and who was never served before him; then order of arrival."""
    for tenant in ("acme", "globex", "initech"):
        for number in range(3):
            await world.accept(upload("a"), kb=f"kb-{number}", tenant=tenant)
    served = []
    for _ in range(9):
        world.clock.advance(1)
        claim = await world.claim()
        served.append(claim.tenant)
        await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert served == ["acme", "globex", "initech"] * 3


async def test_who_has_fewer_running_comes_first(world: World) -> None:
    """Also when he was served later."""
    for tenant in ("acme", "globex"):
        for number in range(2):
            await world.accept(upload("a"), kb=f"kb-{number}", tenant=tenant)
    await world.claim()
    world.clock.advance(1)
    await world.catalog.finish(await world.claim(), Ending(TaskState.SUCCEEDED))
    assert (await world.claim()).tenant == "globex"


async def test_a_lease_that_ran_out_is_no_running_task(world: World) -> None:
    """A crash doesn't cost its tenant his turn; the oldest work goes on first."""
    first = await world.accept(upload("a"), kb="one")
    await world.claim(_LEASE_S)
    world.clock.advance(_LEASE_S)
    await world.accept(upload("a"), kb="two")
    assert (await world.claim()).task_id == first.task_id


async def test_a_release_comes_after_the_imports_that_were_sent_before_it(world: World) -> None:
    """It would leave them out otherwise; and imports sent later wait for it."""
    first = await world.accept(upload("a"))
    release = await world.catalog.accept_release("acme", "handbook", 60)
    last = await world.accept(upload("b"))
    for expected in (first, release, last):
        claim = await world.claim()
        assert claim.task_id == expected.task_id
        await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))


async def test_a_clean_up_goes_before_imports(world: World) -> None:
    """What is removed doesn't wait behind what is added, however long that queue is."""
    [ref] = await world.import_ready(upload("a"))
    waiting = await world.accept(upload("b"))
    await world.catalog.delete_document("acme", ref.document_id)
    claim = await world.catalog.claim("worker", 30, 5)
    assert claim is not None
    assert (claim.kind, claim.target) == (TaskKind.CLEANUP, ref.document_id)
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert (await world.claim()).task_id == waiting.task_id


# lists


async def test_tasks_are_listed_newest_first_in_pages(world: World) -> None:
    """Each page goes on where the one before ended; other tenants' aren't in it."""
    accepted = [(await world.accept(upload(str(number)))).task_id for number in range(5)]
    await world.accept(upload("a"), tenant="globex")
    seen: list[str] = []
    before = None
    for size in (2, 2, 1, 0):
        page = await world.catalog.tasks("acme", TaskQuery(limit=2, before=before))
        assert len(page) == size
        seen += [task.task_id for task in page]
        before = seen[-1]
    assert seen == accepted[::-1]
    whole = await _task(world, accepted[0])
    (listed,) = await world.catalog.tasks("acme", TaskQuery(limit=1, before=accepted[1]))
    assert listed == replace(whole, documents=())


async def test_tasks_are_listed_by_knowledge_base_state_and_kind(world: World) -> None:
    """Each clause by itself and together; an unknown knowledge base has none."""
    await world.import_ready(upload("a"))
    await world.accept(upload("b"))
    await world.accept(upload("a"), kb="wiki")
    await world.catalog.accept_release("acme", "handbook", 60)

    async def found(query: TaskQuery) -> list[tuple[str, str, str]]:
        tasks = await world.catalog.tasks("acme", query)
        return [(task.knowledge_base, task.kind.value, task.state.value) for task in tasks]

    assert await found(TaskQuery(9, knowledge_base="wiki")) == [("wiki", "import", "PENDING")]
    assert await found(TaskQuery(9, kind=TaskKind.RELEASE)) == [("handbook", "release", "PENDING")]
    assert await found(TaskQuery(9, state=TaskState.SUCCEEDED)) == [("handbook", "import", "SUCCEEDED")]
    both = TaskQuery(9, knowledge_base="handbook", state=TaskState.PENDING, kind=TaskKind.IMPORT)
    assert await found(both) == [("handbook", "import", "PENDING")]
    assert await found(TaskQuery(9, knowledge_base="no such")) == []
    assert len(await found(TaskQuery(9))) == 4


async def test_a_list_goes_on_after_a_task_of_the_tenant_only(world: World) -> None:
    """A foreign one looks like one that doesn't exist."""
    foreign = await world.accept(upload("a"), tenant="globex")
    for before in (foreign.task_id, "no such task", ""):
        with pytest.raises(InvalidField):
            await world.catalog.tasks("acme", TaskQuery(limit=2, before=before))


# what is forgotten


async def test_ended_tasks_of_long_ago_are_forgotten(world: World) -> None:
    """But not those that made a version or a release, nor any that hasn't ended."""
    made = await world.accept(upload("a"))
    await world.build_versions(claim := await world.claim())
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    repeated = await world.accept(upload("a"))
    await world.catalog.finish(await world.claim(), Ending(TaskState.SUCCEEDED))
    _, activation = await world.release()
    empty = await world.catalog.accept_release("acme", "handbook", 1e9)
    await world.catalog.finish(await world.claim(), Ending(TaskState.FAILED, "a_code", "a detail"))
    waiting = await world.catalog.accept_release("acme", "handbook", 1e9)
    assert await world.catalog.purge(100, 100) == 0
    world.clock.advance(101)
    assert await world.catalog.purge(100, 100) == 2
    kept = {task.task_id for task in await world.catalog.tasks("acme", TaskQuery(limit=9))}
    assert {made.task_id, waiting.task_id} <= kept
    assert kept.isdisjoint({repeated.task_id, empty.task_id})
    assert await world.catalog.purge(100, 100) == 0
    assert (await world.catalog.releases("acme", "handbook"))[0].sequence == activation.release_sequence
