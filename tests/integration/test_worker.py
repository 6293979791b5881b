"""The worker, on twins and on SQLite: leases, cancels, deadlines, trouble, and a crash at every step."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest

from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.adapters.memory.models import Gate
from gateway.adapters.memory.objects import MemoryObjects
from gateway.adapters.memory.vectors import MemoryVectors
from gateway.admission.bulkhead import Bulkhead
from gateway.errors import (
    CatalogUnavailable,
    DeadlineExceeded,
    EmbedderUnavailable,
    GatewayError,
    Overloaded,
    Unavailable,
)
from gateway.ingest.task import WAIT_S, Ending, TaskClaim, TaskState
from gateway.release.model import ReleaseState, VersionState
from gateway.retrieval.chunk import chunk_id
from tests.harness.world import World
from tests.integration.import_world import (
    TENANT,
    TEXTS,
    Altered,
    Clock,
    Crash,
    Dump,
    Fuse,
    ImportWorld,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE_S = 30
ONE = {"travel": TEXTS["travel"]}


class VectorsBesideSqlite(MemoryVectors):
    """What a store of rows makes of crashes is seen in ``test_import_release``."""


@pytest.fixture(scope="module", params=["twins", "sqlite"])
def import_vectors(request: pytest.FixtureRequest) -> MemoryVectors:
    return MemoryVectors() if request.param == "twins" else VectorsBesideSqlite()


class HeldEmbedder:
    """The world's embedder, waiting at a gate before each batch."""

    def __init__(self, imports: ImportWorld) -> None:
        self.space = imports.space
        self.max_sensitivity = imports.embedder.max_sensitivity
        self.gate = Gate()
        self._embedder = imports.embedder

    async def embed(self, *arguments: Any) -> Any:
        await self.gate.wait()
        return await self._embedder.embed(*arguments)


# the lease


async def test_heartbeats_keep_the_lease_while_the_work_takes_its_time(imports: ImportWorld) -> None:
    """Long after the first lease would have ended nobody else can claim the task."""
    held, beaten = HeldEmbedder(imports), anyio.Event()

    async def beat(heartbeat: Any, claim: TaskClaim, _: float) -> bool:
        cancel: bool = await heartbeat(claim, 600.0)
        beaten.set()
        return cancel

    accepted = await imports.accept(ONE)
    claim = await imports.claim(lease_s=100)
    worker = imports.worker(catalog=Altered(imports.catalog, heartbeat=beat), embedder=held, lease_s=0.03)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.work, claim)
            await beaten.wait()
            imports.clock.advance(500)
            assert await imports.catalog.claim("other", 600, 5) is None
            held.gate.release.set()
    assert (await imports.task(accepted)).state is TaskState.SUCCEEDED


async def test_a_lost_lease_stops_the_work(imports: ImportWorld) -> None:
    """The next heartbeat finds another fence; the work is cancelled and the task left to its new owner."""
    held, taken = HeldEmbedder(imports), anyio.Event()

    async def late(heartbeat: Any, *arguments: Any) -> Any:
        await taken.wait()
        return await heartbeat(*arguments)

    accepted = await imports.accept(ONE)
    first = await imports.claim()
    worker = imports.worker(catalog=Altered(imports.catalog, heartbeat=late), embedder=held, lease_s=0.03)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.work, first)
            await held.gate.reached.wait()
            imports.clock.advance(700)
            second = await imports.claim()
            taken.set()
        # the group has ended: the first worker gave up by itself, still waiting at the gate
    assert second.fence == first.fence + 1
    task = await imports.task(accepted)
    assert (task.state, task.documents[0].state) == (TaskState.RUNNING, "BUILDING")
    await imports.worker().work(second)
    assert (await imports.task(accepted)).state is TaskState.SUCCEEDED


async def test_a_worker_that_comes_back_late_writes_nothing(imports: ImportWorld) -> None:
    """It slept past its lease, another one finished: its first write is refused, nothing changes."""
    held = HeldEmbedder(imports)
    accepted = await imports.accept(ONE)
    first = await imports.claim()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(imports.worker(embedder=held).work, first)
            await held.gate.reached.wait()
            imports.clock.advance(700)
            await imports.work(accepted)
            after = await imports.task(accepted), await imports.releases(), await imports.dump()
            held.gate.release.set()
    assert (await imports.task(accepted), await imports.releases(), await imports.dump()) == after
    assert after[0].state is TaskState.SUCCEEDED


async def test_a_late_build_leaves_the_release_of_the_new_owner_alone(imports: ImportWorld) -> None:
    """The first worker sleeps in the middle of writing rows: the active revision isn't its own."""
    gate = Gate()

    async def held(write: Any, *arguments: Any) -> None:
        await gate.wait()
        await write(*arguments)

    accepted = await imports.accept(ONE)
    first = await imports.claim()
    late = imports.worker(vectors=Altered(imports.vectors, write=held))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(late.work, first)
            await gate.reached.wait()
            imports.clock.advance(700)
            await imports.work(accepted)
            active, rows = await imports.active(), await imports.dump()
            gate.release.set()
    assert (await imports.active(), await imports.dump()) == (active, rows)
    states = [release.state for release in await imports.releases()]
    assert states.count(ReleaseState.ACTIVE) == 1


async def test_a_late_worker_activates_nothing_for_a_task_that_was_cancelled(imports: ImportWorld) -> None:
    """It slept right before the switch; its release is READY and valid, and still not wanted any more."""
    gate = Gate()

    async def held(activate: Any, *arguments: Any) -> Any:
        await gate.wait()
        return await activate(*arguments)

    accepted = await imports.accept(ONE)
    first = await imports.claim()
    late = imports.worker(catalog=Altered(imports.catalog, activate=held))
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(late.work, first)
            await gate.reached.wait()
            imports.clock.advance(700)
            assert await imports.catalog.request_cancel(TENANT, accepted.task_id)
            assert await imports.catalog.claim("other", 600, 5) is None
            gate.release.set()
    assert (await imports.task(accepted)).state is TaskState.CANCELLED
    assert await imports.catalog.active(TENANT, await imports.kb_id()) is None


async def test_a_catalog_that_misses_one_heartbeat_is_forgiven(imports: ImportWorld) -> None:
    """The lease is longer than a heartbeat: there is time to try again."""
    held, beats = HeldEmbedder(imports), 0

    async def beat(heartbeat: Any, claim: TaskClaim, _: float) -> bool:
        nonlocal beats
        beats += 1
        if beats == 1:
            raise CatalogUnavailable
        held.gate.release.set()
        kept: bool = await heartbeat(claim, 600.0)
        return kept

    accepted = await imports.accept(ONE)
    worker = imports.worker(catalog=Altered(imports.catalog, heartbeat=beat), embedder=held, lease_s=6)
    with anyio.fail_after(PATIENCE_S):
        task = await imports.work(accepted, worker)
    assert beats >= 2
    assert task.state is TaskState.SUCCEEDED


async def test_a_catalog_that_stays_away_stops_the_work(imports: ImportWorld) -> None:
    """Without heartbeats the lease is over some day: the work ends before that, and is tried again."""
    held = HeldEmbedder(imports)

    async def away(*_: Any) -> Any:
        raise CatalogUnavailable

    accepted = await imports.accept(ONE)
    catalog = Altered(imports.catalog, heartbeat=away, put_off=away)
    worker = imports.worker(catalog=catalog, embedder=held, lease_s=0.03)
    with anyio.fail_after(PATIENCE_S):
        task = await imports.work(accepted, worker)
    assert task.state is TaskState.RUNNING
    imports.clock.advance(700)
    assert (await imports.work(accepted)).state is TaskState.SUCCEEDED


# how a task ends


async def test_a_cancelled_task_stops_and_leaves_no_rows(imports: ImportWorld) -> None:
    """Asked to cancel in the middle of writing: CANCELLED, nothing active, and the next build sweeps."""
    gate = Gate()

    async def held(seal: Any, *arguments: Any) -> None:
        await gate.wait()

    accepted = await imports.accept(ONE)
    claim = await imports.claim()
    worker = imports.worker(vectors=Altered(imports.vectors, seal=held), lease_s=0.03)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.work, claim)
            await gate.reached.wait()
            assert await imports.catalog.request_cancel(TENANT, accepted.task_id)
    task = await imports.task(accepted)
    assert (task.state, task.error_code) == (TaskState.CANCELLED, "cancelled")
    assert await imports.catalog.active(TENANT, await imports.kb_id()) is None
    (orphan,) = await imports.releases()
    assert orphan.state is ReleaseState.FAILED
    await imports.learn(TEXTS)
    assert await imports.rows_left(orphan.kb_revision) == 0
    assert [r.state for r in await imports.releases()] == [ReleaseState.ACTIVE, ReleaseState.RECLAIMED]


async def test_a_task_past_its_deadline_fails(imports: ImportWorld) -> None:
    """Wherever it is; the document can be imported again."""
    held = HeldEmbedder(imports)
    accepted = await imports.accept(ONE)
    claim = replace(await imports.claim(), deadline_at=time.time() + 0.05)
    with anyio.fail_after(PATIENCE_S):
        await imports.worker(embedder=held).work(claim)
    task = await imports.task(accepted)
    assert (task.state, task.error_code) == (TaskState.FAILED, "deadline_exceeded")
    assert (await imports.learn(ONE)).state is TaskState.SUCCEEDED


TROUBLE: list[Callable[[], GatewayError]] = [
    EmbedderUnavailable,
    lambda: DeadlineExceeded("embedding"),
    lambda: Overloaded("offline_embedding", retry_after_ms=1000),
]


@pytest.mark.parametrize("trouble", TROUBLE, ids=["unavailable", "deadline", "overloaded"])
async def test_passing_trouble_is_tried_again(imports: ImportWorld, trouble: Any) -> None:
    """The task doesn't end: it rests and says why; the next attempt finishes it."""
    imports.embedder.error = error = trouble()
    accepted = await imports.accept(ONE)
    now = imports.clock()
    resting = await imports.work(accepted)
    assert (resting.state, resting.trouble) == (TaskState.PENDING, error.code)
    assert resting.retry_at is not None
    assert 0.5 <= resting.retry_at - now < PATIENCE_S
    assert await imports.catalog.claim("other", 600, 5) is None
    imports.embedder.error = None
    imports.clock.advance(700)
    task = await imports.work(accepted)
    assert (task.state, task.retry_at, task.trouble) == (TaskState.SUCCEEDED, None, None)


async def test_documents_before_the_trouble_are_kept(imports: ImportWorld) -> None:
    """They are read ahead of what is stored, and stored all the same; the next attempt begins behind them."""
    accepted = await imports.accept(TEXTS)
    last = (await imports.task(accepted)).documents[-1].source

    async def away(build: Any, source: str, *arguments: Any) -> Any:
        if source == last:
            raise Unavailable("the document reader could not be started")
        return await build(source, *arguments)

    resting = await imports.work(accepted, imports.worker(parser=Altered(imports.parser, build=away)))
    assert resting.state is TaskState.PENDING
    assert [document.state for document in resting.documents] == [*["READY"] * (len(TEXTS) - 1), "BUILDING"]
    imports.clock.advance(700)
    assert (await imports.work(accepted)).state is TaskState.SUCCEEDED


async def test_trouble_that_lasts_costs_no_attempt(imports: ImportWorld) -> None:
    """A part that is down for long kills no queued import, though a single attempt is allowed."""
    imports.embedder.error = EmbedderUnavailable()
    accepted = await imports.accept(ONE)
    rests = []
    for _ in range(8):
        claim = await imports.claim(attempts=1)
        now = imports.clock()
        await imports.worker().work(claim)
        rests.append(((await imports.task(accepted)).retry_at or 0) - now)
        imports.clock.advance(70)
    assert rests[-1] >= 30 > rests[3] > rests[0]
    imports.embedder.error = None
    await imports.worker().work(await imports.claim(attempts=1))
    assert (await imports.task(accepted)).state is TaskState.SUCCEEDED


async def test_trouble_that_outlasts_the_deadline_is_named(imports: ImportWorld) -> None:
    """Whether the task has rested for too long, or its time is used up while it runs."""
    imports.embedder.error = EmbedderUnavailable()
    resting = await imports.work(await imports.accept(ONE))
    imports.clock.advance(WAIT_S)
    assert await imports.catalog.claim("worker", 600, 5) is None
    held = HeldEmbedder(imports)
    running = await imports.accept({"refund": TEXTS["refund"]})
    claim = replace(await imports.claim(), deadline_at=time.time() + 0.05, trouble="embedder_unavailable")
    with anyio.fail_after(PATIENCE_S):
        await imports.worker(embedder=held).work(claim)
    ended = await imports.catalog.task(TENANT, resting.task_id), await imports.task(running)
    for task, code in zip(ended, ("waited_too_long", "deadline_exceeded"), strict=True):
        assert task is not None
        assert (task.state, task.error_code) == (TaskState.FAILED, code)
        assert (task.error_detail or "").endswith("; last trouble: embedder_unavailable")


async def test_a_defect_ends_its_task_and_not_the_worker(imports: ImportWorld) -> None:
    """A bug in a part is recorded as internal_error; the running worker goes on with the next task."""
    ended: list[TaskState] = []
    both = anyio.Event()

    async def build(real: Any, source: str, *arguments: Any) -> Any:
        if source == "bad.md":
            raise ZeroDivisionError
        return await real(source, *arguments)

    async def finish(real: Any, claim: TaskClaim, ending: Ending) -> None:
        await real(claim, ending)
        ended.append(ending.state)
        if len(ended) == 2:
            both.set()

    bad = await imports.accept({"bad": TEXTS["refund"]})
    good = await imports.accept(ONE)
    worker = imports.worker(
        catalog=Altered(imports.catalog, finish=finish), parser=Altered(imports.parser, build=build)
    )
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await both.wait()
            group.cancel_scope.cancel()
    task = await imports.task(bad)
    assert (task.state, task.error_code) == (TaskState.FAILED, "internal_error")
    assert (await imports.task(good)).state is TaskState.SUCCEEDED


async def test_new_work_wakes_an_idle_worker(imports: ImportWorld) -> None:
    """Nobody waits for the next poll; a catalog that is away for a moment ends nothing."""
    idle, failed, finished = anyio.Event(), anyio.Event(), anyio.Event()

    async def claim(real: Any, *arguments: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise CatalogUnavailable
        found = await real(*arguments)
        if found is None:
            idle.set()
        return found

    async def finish(real: Any, *arguments: Any) -> None:
        await real(*arguments)
        finished.set()

    worker = imports.worker(catalog=Altered(imports.catalog, claim=claim, finish=finish), poll_s=3600)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            await failed.wait()
            worker.wake()
            await idle.wait()
            await imports.accept(ONE)
            worker.wake()
            await finished.wait()
            group.cancel_scope.cancel()
    assert failed.is_set()


async def test_shutdown_gives_the_task_back_without_an_attempt(imports: ImportWorld) -> None:
    """With one attempt allowed it can be claimed again, and again, and then finishes."""
    accepted = await imports.accept(ONE)
    for _ in range(2):
        held = HeldEmbedder(imports)
        claim = await imports.claim(attempts=1)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(imports.worker(embedder=held).work, claim)
                await held.gate.reached.wait()
                group.cancel_scope.cancel()
        assert (await imports.task(accepted)).state is TaskState.PENDING
    await imports.worker().work(await imports.claim(attempts=1))
    assert (await imports.task(accepted)).state is TaskState.SUCCEEDED


async def test_embedding_takes_a_place_of_its_own_bulkhead(imports: ImportWorld) -> None:
    """One while a batch is embedded, none after it, also when it was cancelled; the gauge exists at 0."""
    held, bulkhead = HeldEmbedder(imports), Bulkhead("offline_embedding", 1, 60_000)
    await imports.accept(ONE)
    claim = await imports.claim()
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(imports.worker(embedder=held, bulkhead=bulkhead).work, claim)
            await held.gate.reached.wait()
            assert bulkhead.in_use == 1
            group.cancel_scope.cancel()
    assert bulkhead.in_use == 0
    exposed = World().services.metrics.exposition().decode()
    assert 'gateway_bulkhead_in_use{name="offline_embedding"} 0.0' in exposed


# rejected documents

MIXED = ONE | {"scan.pdf": "no PDF, and no format we read", "refund": TEXTS["refund"]}


async def test_a_rejected_document_keeps_the_others_ready_and_activates_nothing(
    imports: ImportWorld,
) -> None:
    """FAILED documents_failed, with a reason at the document."""
    await imports.learn({"access": TEXTS["access"]})
    active = await imports.active()
    task = await imports.learn(MIXED)
    assert (task.state, task.error_code) == (TaskState.FAILED, "documents_failed")
    assert [document.state for document in task.documents] == ["READY", "FAILED", "READY"]
    assert (task.documents[1].error or "").startswith("corrupt: ")
    assert await imports.active() == active


async def test_allow_partial_activates_the_good_ones(imports: ImportWorld) -> None:
    """The rejected document is in no release, and the task still says that not all went well."""
    task = await imports.learn(MIXED, allow_partial=True)
    assert (task.state, task.error_code) == (TaskState.FAILED, "documents_failed")
    assert (await imports.dump()).sources == {"travel.md", "refund.md"}


async def test_a_document_rejected_by_an_earlier_attempt_still_counts(imports: ImportWorld) -> None:
    """Rejected, then the worker dies: the second attempt has only good documents left, and still fails."""
    accepted = await imports.accept({"scan.pdf": "no PDF"} | ONE)
    imports.embedder.error = EmbedderUnavailable()
    assert (await imports.work(accepted)).state is TaskState.PENDING
    imports.embedder.error = None
    imports.clock.advance(700)
    task = await imports.work(accepted)
    assert (task.state, task.error_code) == (TaskState.FAILED, "documents_failed")
    assert await imports.catalog.active(TENANT, await imports.kb_id()) is None


# a stop at every step

OLD = {name: TEXTS[name] for name in ("travel", "refund")}
UPDATE = {
    "travel": "# travel\n\nNobody travels any more.\n",
    "scan.pdf": "no PDF, and no format we read",
    "access": TEXTS["access"],
}


def twins() -> ImportWorld:
    clock = Clock()
    return ImportWorld(MemoryCatalog(clock), MemoryVectors(), MemoryObjects(), clock, real=False)


async def run_until_stopped(imports: ImportWorld, fuse: Fuse) -> bool:
    """True when the fuse ended the work on the next task."""
    fuse.work = work = asyncio.create_task(imports.fused_worker(fuse).work(await imports.claim()))
    stopped = True
    try:
        await work
        stopped = False
    except* (Crash, asyncio.CancelledError):
        pass
    return stopped


async def interrupted(imports: ImportWorld, at: int | None, *, crash: bool) -> int:
    """Updates a knowledge base with an active release, stopped at call ``at``, then finished by another
    worker; returns the calls made. Checks all that must hold in between and at the end.
    """
    await imports.learn(OLD)
    old, old_rows = await imports.active(), await imports.dump()
    accepted = await imports.accept(UPDATE, allow_partial=True)
    fuse = Fuse(at, crash=crash)
    stopped = await run_until_stopped(imports, fuse)
    assert stopped is (at is not None)
    assert await imports.dump(old) == old_rows
    if stopped:
        imports.clock.advance(700)
        if (await imports.task(accepted)).state is not TaskState.FAILED:
            await imports.work(accepted)
    assert (await imports.task(accepted)).error_code == "documents_failed"
    assert await imports.dump(old) == old_rows
    check_rows(await imports.dump())
    await check_releases(imports)
    return fuse.calls


def check_rows(dump: Dump) -> None:
    """The new documents, each chunk once, under the ids that anyone would derive."""
    found = [(c.source_uri, c.document_version, c.chunk_index, c.content) for c in dump.chunks]
    assert found == EXPECTED
    assert len({chunk.row_id for chunk in dump.chunks}) == len(dump.chunks)
    for chunk in dump.chunks:
        assert chunk.chunk_id == chunk_id(
            TENANT,
            chunk.kb_id,
            chunk.document_id,
            chunk.document_version,
            chunk.parser_version,
            chunk.splitter_version,
            chunk.chunk_index,
        )


async def check_releases(imports: ImportWorld) -> None:
    """One active, one retired, and nothing left of whatever else was begun."""
    newest, *others, first = await imports.releases()
    assert (newest.state, first.state) == (ReleaseState.ACTIVE, ReleaseState.RETIRED)
    assert newest.sequence == 2
    for other in others:
        assert other.state is ReleaseState.RECLAIMED
        assert await imports.rows_left(other.kb_revision) == 0
    for document in await imports.catalog.documents(TENANT, "handbook"):
        assert document.state in {VersionState.READY, VersionState.FAILED}


EXPECTED = [
    ("file:access.md", 1, 0, "The access rule applies to everyone."),
    ("file:access.md", 1, 1, ("Each access has an owner, a limit and a date. " * 12).strip()),
    ("file:refund.md", 1, 0, "The refund rule applies to everyone."),
    ("file:refund.md", 1, 1, ("Each refund has an owner, a limit and a date. " * 12).strip()),
    ("file:travel.md", 2, 0, "Nobody travels any more."),
]


@pytest.mark.parametrize("crash", [True, False], ids=["killed", "told to stop"])
async def test_a_stop_at_any_call_of_any_part_loses_and_doubles_nothing(crash: bool) -> None:
    """For every single call of an import and its release, over the twins."""
    calls = await interrupted(twins(), None, crash=True)
    assert calls > 40
    for at in range(1, calls + 1):
        try:
            await interrupted(twins(), at, crash=crash)
        except BaseException as error:
            error.add_note(f"stopped at call {at} of {calls}")
            raise


@pytest.mark.parametrize("crash", [True, False], ids=["killed", "told to stop"])
@pytest.mark.parametrize("share", [0.2, 0.45, 0.6, 0.75, 0.9, 0.97])
async def test_a_stop_here_and_there_loses_nothing_on_the_parts_under_test(
    imports: ImportWorld, share: float, crash: bool
) -> None:
    """A few of the same places over SQLite, Milvus Lite and a folder."""
    calls = await interrupted(twins(), None, crash=True)
    await interrupted(imports, round(share * calls), crash=crash)


async def test_crashes_in_a_row_are_survived_too(imports: ImportWorld) -> None:
    """Each attempt comes a little further than the one before it."""
    await imports.learn(OLD)
    accepted = await imports.accept(UPDATE, allow_partial=True)
    for at in (7, 19, 28, 40):
        assert await run_until_stopped(imports, Fuse(at))
        imports.clock.advance(700)
    assert (await imports.work(accepted)).error_code == "documents_failed"
    check_rows(await imports.dump())
    await check_releases(imports)
