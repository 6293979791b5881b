"""One revision's life never touches another's: building, failing, reclaiming, on twins and real parts."""

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from gateway.adapters.memory.models import ScriptedModel
from gateway.errors import (
    IllegalTransition,
    InvariantViolated,
    NotFound,
    ObjectStoreUnavailable,
    VectorStoreUnavailable,
)
from gateway.ingest import chunkfile
from gateway.ingest.document import BuiltDocument
from gateway.ingest.task import TaskState
from gateway.release.model import ReleaseState
from gateway.retrieval.store import Row
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import Hold, World
from tests.integration.import_world import (
    KB,
    TENANT,
    TEXTS,
    Altered,
    DirectParser,
    ImportWorld,
    RecordingEmbedder,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

OLD = {name: TEXTS[name] for name in ("travel", "refund")}
NEW = {"travel": "# travel\n\nNobody travels any more.\n", "access": TEXTS["access"]}


async def half(write: Any, space: Any, revision: str, rows: Sequence[Row]) -> None:
    await write(space, revision, rows[: len(rows) // 2])
    raise VectorStoreUnavailable


async def gone(_: Any, *arguments: Any) -> None:
    raise VectorStoreUnavailable


async def objects_gone(get: Any, key: str) -> bytes:
    if key.startswith("vectors/"):
        raise ObjectStoreUnavailable
    content: bytes = await get(key)
    return content


async def vectors_cut(get: Any, key: str) -> bytes:
    content: bytes = await get(key)
    return content[:-4] if key.startswith("vectors/") else content


async def refused(_: Any, *arguments: Any) -> None:
    raise InvariantViolated("refused")


async def test_building_a_revision_never_changes_the_active_one(imports: ImportWorld) -> None:
    """Looked at after every write, seal and read of the build, and after the switch."""
    await imports.learn(OLD)
    active, before = await imports.active(), await imports.dump()
    looks = 0

    async def watched(call: Any, *arguments: Any) -> Any:
        nonlocal looks
        result = await call(*arguments)
        assert await imports.active() == active
        assert await imports.dump(active) == before
        looks += 1
        return result

    watching = Altered(
        imports.vectors, prepare=watched, write=watched, seal=watched, count=watched, dense=watched
    )
    task = await imports.work(await imports.accept(NEW), imports.worker(vectors=watching))
    assert task.state is TaskState.SUCCEEDED
    assert looks >= 5
    assert (await imports.active()).kb_revision != active.kb_revision
    assert await imports.dump(active) == before


@pytest.mark.parametrize(
    ("part", "method", "replacement", "ended"),
    [
        ("vectors", "write", half, False),
        ("vectors", "seal", gone, False),
        ("vectors", "count", gone, False),
        ("vectors", "dense", gone, False),
        ("vectors", "count", refused, True),
        ("objects", "get", objects_gone, False),
        ("objects", "get", vectors_cut, True),
        ("catalog", "store_terms", refused, True),
    ],
)
async def test_a_build_that_fails_leaves_the_active_release_and_no_rows(
    imports: ImportWorld, part: str, method: str, replacement: Any, ended: bool
) -> None:
    """Halfway through writing, while sealing, in validation, without objects; a later build succeeds."""
    await imports.learn(OLD)
    active, before = await imports.active(), await imports.dump()
    broken = Altered(getattr(imports, part), **{method: replacement})
    accepted = await imports.accept(NEW)
    parts: dict[str, Any] = {part: broken}
    task = await imports.work(accepted, imports.worker(**parts))
    assert task.state is (TaskState.FAILED if ended else TaskState.PENDING)
    failed = (await imports.releases())[0]
    assert failed.state is ReleaseState.RECLAIMED
    assert await imports.rows_left(failed.kb_revision) == 0
    assert (await imports.active(), await imports.dump()) == (active, before)
    imports.clock.advance(700)
    task = await (imports.build_release() if ended else imports.work(accepted))
    assert task.state is TaskState.SUCCEEDED
    assert await imports.dump(active) == before


async def test_rows_that_could_not_be_cleaned_up_are_swept_by_the_next_build(imports: ImportWorld) -> None:
    """The store goes away in the middle and stays away: the task comes back, and so does the sweep."""
    await imports.learn(OLD)
    active, before = await imports.active(), await imports.dump()
    broken = Altered(imports.vectors, write=half, drop=gone)
    accepted = await imports.accept(NEW)
    await imports.work(accepted, imports.worker(vectors=broken))
    failed = (await imports.releases())[0]
    assert failed.state is ReleaseState.FAILED
    assert await imports.rows_left(failed.kb_revision) > 0
    imports.clock.advance(700)
    task = await imports.work(accepted)
    assert task.state is TaskState.SUCCEEDED
    assert await imports.rows_left(failed.kb_revision) == 0
    assert [r.state for r in await imports.releases()] == [
        ReleaseState.ACTIVE,
        ReleaseState.RECLAIMED,
        ReleaseState.RETIRED,
    ]
    assert await imports.dump(active) == before


async def test_a_clean_up_that_fails_does_not_hide_why_the_build_did(imports: ImportWorld) -> None:
    """The revision was refused, then the store went away: the task ends with the refusal."""
    broken = Altered(imports.vectors, count=refused, drop=gone)
    task = await imports.work(await imports.accept(NEW), imports.worker(vectors=broken))
    assert (task.state, task.error_code) == (TaskState.FAILED, "internal_error")
    (failed,) = await imports.releases()
    assert (failed.state, failed.error) == (ReleaseState.FAILED, "internal_error")


async def test_rows_of_another_space_are_swept_from_their_own_collection(imports: ImportWorld) -> None:
    """The build that failed was of the space this gateway used before."""
    await imports.learn(OLD)
    old_space = imports.space
    broken = Altered(imports.vectors, seal=gone, drop=gone)
    await imports.work(await imports.accept(NEW), imports.worker(vectors=broken))
    failed = (await imports.releases())[0]
    assert await imports.vectors.count(old_space, failed.kb_revision) > 0
    imports.clock.advance(700)
    imports.embedder = RecordingEmbedder("fixed-32-v2")
    claim = await imports.claim()
    await imports.worker().work(claim)
    assert await imports.vectors.count(old_space, failed.kb_revision) == 0


async def test_reclaiming_a_revision_takes_its_rows_and_no_others(imports: ImportWorld) -> None:
    """The retired one goes; the active one can't be reclaimed at all."""
    await imports.learn(OLD)
    old = await imports.active()
    await imports.learn(NEW)
    active, before = await imports.active(), await imports.dump()
    await imports.releaser().reclaim(TENANT, old.release_id)
    assert await imports.rows_left(old.kb_revision) == 0
    with pytest.raises(IllegalTransition):
        await imports.releaser().reclaim(TENANT, active.release_id)
    with pytest.raises(NotFound):
        await imports.releaser().reclaim("another tenant", active.release_id)
    assert await imports.dump() == before


@pytest.mark.parametrize("left", [None, b"", b"[]", chunkfile.dump(BuiltDocument("t", "p", "s", ()))])
async def test_a_lost_chunk_file_is_made_again_from_the_original(
    imports: ImportWorld, left: bytes | None
) -> None:
    """Gone, empty, overwritten or another document's: the build puts it back and is what it was to be."""
    lost: dict[str, bytes] = {}

    async def damaged(get: Any, key: str) -> bytes:
        if not key.startswith("chunks/") or key in lost:
            return bytes(await get(key))
        lost[key] = await get(key)
        if left is None:
            await imports.objects.delete(key)
            raise NotFound
        await imports.objects.put(key, left)
        return left

    await imports.learn(OLD)
    await imports.learn(NEW, activate=False)
    task = await imports.build_release(imports.worker(objects=Altered(imports.objects, get=damaged)))
    assert (task.state, task.error_detail) == (TaskState.SUCCEEDED, None)
    assert len(lost) == 3
    assert {key: await imports.objects.get(key) for key in lost} == lost
    await imports.catalog.activate(TENANT, str(task.release_id), None)
    assert (await imports.dump()).sources == {"travel.md", "refund.md", "access.md"}


@pytest.mark.parametrize("original", ["lost", "other"])
async def test_a_document_that_cannot_be_cut_again_keeps_the_release_from_being_built(
    imports: ImportWorld, original: str
) -> None:
    """Its name is told, and what helps; the active release stays."""
    await imports.learn(OLD)
    active, before = await imports.active(), await imports.dump()
    await imports.learn(NEW, activate=False)

    async def without(get: Any, key: str) -> bytes:
        if key.startswith("chunks/") or (original == "lost" and key.startswith("originals/")):
            raise NotFound
        return bytes(await get(key))

    class OtherParser(DirectParser):
        async def build(self, source: str, media_type: str, content: bytes) -> BuiltDocument:
            return await super().build(source, media_type, b"# Other\n\nCut otherwise.\n")

    broken = Altered(imports.objects, get=without)
    parser = OtherParser() if original == "other" else DirectParser()
    task = await imports.build_release(imports.worker(objects=broken, parser=parser))
    assert (task.state, task.error_code) == (TaskState.FAILED, "document_unusable")
    assert task.error_detail is not None
    assert task.error_detail.startswith("access.md: its passages are lost, and ")
    assert ("import it again" if original == "other" else "upload it again") in task.error_detail
    assert (await imports.active(), await imports.dump()) == (active, before)


async def test_a_request_in_flight_finishes_on_the_release_it_was_bound_to() -> None:
    """A release that becomes active meanwhile is for the next question."""
    hold = Hold()
    world = World(model=ScriptedModel(["It is 42 [1]."]), holds={"vectors.dense": hold})
    await world.learn({"a.md": "# Limits\n\nThe upload limit is 42 megabytes.\n"}, knowledge_base=KB)
    (kb,) = (await world.catalog.tenant_stamp(TENANT)).knowledge_bases
    old = await world.catalog.active(TENANT, kb.kb_id)
    assert old is not None
    async with serving_world(world) as port:
        with anyio.fail_after(20):
            async with connected(port) as wire:
                await wire.ask(world.token(), "What is the upload limit?")
                await hold.gate.reached.wait()
                await world.learn({"b.md": "# Limits\n\nThe upload limit is 7 gigabytes.\n"})
                hold.gate.release.set()
                meta, *_, done = await wire.all_events()
            async with connected(port) as wire:
                await wire.ask(world.token(), "What is the upload limit?")
                next_meta, *_ = await wire.all_events()
    assert (meta.data["knowledge_revision"], meta.data["release_sequence"]) == (old.kb_revision, 1)
    assert [source["uri"] for source in meta.data["sources"]] == ["a.md"]
    assert done.data["status"] == "ANSWERED"
    assert next_meta.data["release_sequence"] == 2
    assert {source["uri"] for source in next_meta.data["sources"]} == {"a.md", "b.md"}
