"""Reclaim on twins and on the real parts: no row and no object stays that nobody needs."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from gateway.errors import ObjectStoreUnavailable
from gateway.ingest.reclaimer import ObjectSweep, ReclaimSchedule
from gateway.ingest.references import CHUNKS, ORIGINALS, TAKEOVER_S, VECTORS
from gateway.ingest.removal import Removal
from gateway.ingest.task import TaskState
from gateway.release.model import ReleaseState
from tests.integration.import_world import TENANT, TEXTS, WINDOW_S, Altered, Crash, Fuse, ImportWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

GRACE_S = 86_400.0


async def keys(imports: ImportWorld) -> set[str]:
    return {f.key for folder in (ORIGINALS, CHUNKS, VECTORS) async for f in imports.objects.list(folder)}


async def kept(imports: ImportWorld) -> dict[str, ReleaseState]:
    """Of the releases of this world that the store itself says it has rows of, the states."""
    listed = await imports.vectors.revisions(imports.space)
    return {r.release_id: r.state for r in await imports.releases() if r.kb_revision in listed}


def sweep(imports: ImportWorld, removal: Removal | None = None, later_s: float = GRACE_S + 10) -> ObjectSweep:
    """One that runs when a grace has passed since now."""
    return ObjectSweep(
        imports.objects, removal or imports.removal(), GRACE_S, clock=lambda: time.time() + later_s
    )


def schedule(imports: ImportWorld) -> ReclaimSchedule:
    return ReclaimSchedule(
        imports.catalog, imports.removal(), sweep(imports), imports.policy, poll_s=0.01, deadline_s=3600.0
    )


async def reclaim(imports: ImportWorld) -> None:
    """What is due becomes a task, and the tasks are done."""
    await schedule(imports).step()
    while (claim := await imports.catalog.claim("worker", 600.0, 5)) is not None:
        await imports.worker().work(claim)


async def version(imports: ImportWorld, number: int) -> None:
    text = TEXTS["travel"] + f"\n\nThis is edition {number} of it.\n"
    task = await imports.learn({"refund": TEXTS["refund"], "travel": text})
    assert task.state is TaskState.SUCCEEDED


async def test_rows_and_files_of_old_releases_go_when_nobody_can_want_them(imports: ImportWorld) -> None:
    """The active one and the newest way back stay whole; vectors that they share with old ones stay too."""
    for number in range(3):
        await version(imports, number)
    await reclaim(imports)
    assert list((await kept(imports)).values()) == [
        ReleaseState.ACTIVE,
        ReleaseState.RETIRED,
        ReleaseState.RETIRED,
    ]
    before = await keys(imports)
    imports.clock.advance(max(WINDOW_S, GRACE_S) + 1)
    await reclaim(imports)
    assert list((await kept(imports)).values()) == [ReleaseState.ACTIVE, ReleaseState.RETIRED]
    imports.clock.advance(GRACE_S)
    await reclaim(imports)  # the versions of the reclaimed release are nobody's now
    gone = before - await keys(imports)
    assert sorted(key.partition("/")[0] for key in gone) == [CHUNKS, ORIGINALS]
    whole = await imports.dump()
    assert whole.sources == {"refund.md", "travel.md"}
    await imports.catalog.roll_back(TENANT, "handbook")
    assert "edition 1" in str((await imports.dump()).contents)
    assert (await imports.learn(TEXTS)).state is TaskState.SUCCEEDED


async def test_rows_of_a_killed_worker_go(imports: ImportWorld) -> None:
    """Wherever it was killed: the store lists what the catalog retains and nothing else."""
    await imports.learn({"refund": TEXTS["refund"]})
    total = Fuse()
    await imports.work(await imports.accept({"x": TEXTS["access"]}), imports.fused_worker(total))
    for at in (total.calls - 6,) if imports.real else range(5, total.calls, 3):
        await imports.accept({"x": TEXTS["access"] + f"\n\nKilled at {at}.\n"})
        with pytest.raises(BaseExceptionGroup) as raised:
            await imports.fused_worker(Fuse(at)).work(await imports.claim())
        assert raised.group_contains(Crash)
        imports.clock.advance(1_000)
        await reclaim(imports)
        assert set((await kept(imports)).values()) <= {ReleaseState.ACTIVE, ReleaseState.RETIRED}
        assert (await imports.dump()).sources == {"refund.md", "x.md"}


async def test_a_frozen_worker_that_comes_back_leaves_no_rows(imports: ImportWorld) -> None:
    """It wakes up in a write, after others have finished its task and reclaimed its revision."""
    await imports.learn({"refund": TEXTS["refund"]})
    frozen, thawed = anyio.Event(), anyio.Event()

    async def write(real: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        frozen.set()
        await thawed.wait()
        return await real(*arguments)

    accepted = await imports.accept({"x": TEXTS["access"]})
    claim = await imports.claim()
    late = imports.worker(vectors=Altered(imports.vectors, write=write))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(late.work, claim)
            await frozen.wait()
            imports.clock.advance(1_000)
            assert (await imports.work(accepted)).state is TaskState.SUCCEEDED
            await reclaim(imports)
            assert set((await kept(imports)).values()) == {ReleaseState.ACTIVE, ReleaseState.RETIRED}
            thawed.set()
    assert set((await kept(imports)).values()) == {ReleaseState.ACTIVE, ReleaseState.RETIRED}
    assert (await imports.dump()).sources == {"refund.md", "x.md"}


async def test_what_a_worker_wrote_after_its_revision_was_dropped_goes_within_a_day(
    imports: ImportWorld,
) -> None:
    """One that was killed right after that write, so that it can't take it back."""
    await imports.learn({"refund": TEXTS["refund"]})
    written: list[tuple[Any, ...]] = []

    async def write(real: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        written.append(arguments)
        raise Crash

    await imports.accept({"x": TEXTS["access"]})
    with pytest.raises(BaseExceptionGroup):
        await imports.worker(vectors=Altered(imports.vectors, write=write)).work(await imports.claim())
    imports.clock.advance(1_000)
    await reclaim(imports)
    await imports.vectors.write(*written[0])
    assert ReleaseState.RECLAIMED in (await kept(imports)).values()
    imports.clock.advance(imports.policy.afterlife_s / 4 + 1)
    await reclaim(imports)
    assert ReleaseState.RECLAIMED not in (await kept(imports)).values()


async def test_stray_objects_go_after_their_grace(imports: ImportWorld) -> None:
    """Of uploads that were never accepted and of attempts that left files; what is young or in use stays."""
    await imports.learn(TEXTS)
    used = await keys(imports)
    some = next(key for key in used if key.startswith(CHUNKS))
    strays = {"originals/never-accepted", some.replace("1-", "1-0"), "vectors/a space/doc_x/1-0.f32"}
    for key in strays:
        await imports.objects.put(key, b"x")
    await imports.objects.put("elsewhere/object", b"x")
    assert await sweep(imports, later_s=GRACE_S - 60).run() == 0
    assert await keys(imports) == used | strays
    assert await sweep(imports).run() == len(strays)
    assert await keys(imports) == used
    assert await imports.objects.exists("elsewhere/object")
    assert await sweep(imports).run() == 0


async def test_an_upload_that_meets_a_sweep_is_told_to_come_again(imports: ImportWorld) -> None:
    """Between verdict and deletion nothing refers to what is about to go; the second try holds."""
    text = {"x": TEXTS["access"]}
    accepted = await imports.accept(text, activate=False)
    await imports.catalog.request_cancel(TENANT, accepted.task_id)
    key = next(iter(await keys(imports)))
    refused: list[ObjectStoreUnavailable] = []

    async def delete(real: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        try:
            await imports.accept(text)
        except ObjectStoreUnavailable as error:
            refused.append(error)
        return await real(*arguments)

    removal = Removal(imports.catalog, Altered(imports.objects, delete=delete), WINDOW_S)
    assert await sweep(imports, removal).run() == 1
    assert refused
    assert refused[0].retry_after_ms
    assert not await imports.objects.exists(key)
    task = await imports.work(await imports.accept(text))
    assert task.state is TaskState.SUCCEEDED
    assert await sweep(imports).run() == 0
    assert (await imports.dump()).sources == {"x.md"}


async def test_an_upload_that_is_accepted_before_the_verdict_keeps_its_original(imports: ImportWorld) -> None:
    """Whatever the sweep had seen of the object before."""
    text = {"x": TEXTS["access"]}
    accepted = await imports.accept(text, activate=False)
    await imports.catalog.request_cancel(TENANT, accepted.task_id)

    async def condemn(real: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        await imports.accept(text)
        return await real(*arguments)

    removal = Removal(Altered(imports.catalog, condemn=condemn), imports.objects, WINDOW_S)
    assert await sweep(imports, removal).run() == 0
    claim = await imports.claim()
    await imports.worker().work(claim)
    assert (await imports.dump()).sources == {"x.md"}


async def test_one_who_was_frozen_over_a_verdict_deletes_nothing(imports: ImportWorld) -> None:
    """Others may have taken it over since; they finish it, and then the object may come back."""
    await imports.objects.put("originals/stray", b"x")
    moments = iter([0.0, 11.0])
    frozen = Removal(imports.catalog, imports.objects, WINDOW_S, clock=lambda: next(moments))
    with pytest.raises(ObjectStoreUnavailable):
        await frozen.take_away(["originals/stray"])
    assert await imports.objects.exists("originals/stray")
    await imports.removal().finish()
    assert await imports.objects.exists("originals/stray")
    imports.clock.advance(21)
    await imports.removal().finish()
    assert not await imports.objects.exists("originals/stray")


async def test_what_was_deleted_is_buried_when_the_rest_must_wait(imports: ImportWorld) -> None:
    """However slow the store is, each turn gets further, and the next one begins where it ended."""
    strays = [f"originals/stray-{n}" for n in range(3)]
    for key in strays:
        await imports.objects.put(key, b"x")
    moments = iter([0.0, 1.0, 2.0, 11.0])
    slow = Removal(imports.catalog, imports.objects, WINDOW_S, clock=lambda: next(moments))
    with pytest.raises(ObjectStoreUnavailable):
        await slow.take_away(strays)
    imports.clock.advance(21)
    assert await imports.catalog.left_condemned(TAKEOVER_S) == strays[2:]


async def test_the_schedule_goes_on_when_a_part_is_down(imports: ImportWorld) -> None:
    """It says so and looks again."""
    looks = 0
    again = anyio.Event()

    async def look(real: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise ObjectStoreUnavailable()
        again.set()
        return await real(*arguments)

    catalog: Any = Altered(imports.catalog, schedule_reclaims=look)
    runs = ReclaimSchedule(
        catalog, imports.removal(), sweep(imports), imports.policy, poll_s=0.01, deadline_s=3600.0
    )
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runs.run)
            await again.wait()
            tasks.cancel_scope.cancel()
