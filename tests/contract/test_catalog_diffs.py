"""Contract of ReleaseStore and VersionStore: what differs between releases, and who made their vectors."""

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.errors import NotFound, StaleFence
from gateway.ingest.plan import ReleasePlan
from gateway.ingest.task import Ending, TaskState
from gateway.ingest.version import VectorPlace
from gateway.release.diff import ChunkCounts, DocumentList, NamedDocument
from gateway.release.model import KnowledgeBaseRecord, ReleaseState, VersionState
from tests.contract.catalog_world import CONFIG, PUBLIC, SALES, SPACE, World, built, upload

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOTHING = DocumentList(0, ())


async def imported(world: World, source: str, *texts: str) -> DocumentRef:
    """One document of these passages; its bytes are the passages'."""
    accepted = await world.accept(upload(source, " ".join(texts)))
    claim = await world.claim()
    ref = DocumentRef(accepted.documents[0].document_id, accepted.documents[0].document_version)
    for state in (VersionState.BUILDING, VersionState.VALIDATING):
        await world.catalog.advance_versions(claim, [ref], state)
    await world.catalog.complete_versions(claim, [built(ref, *texts, title=source)])
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    return ref


def named(*refs: tuple[DocumentRef, str]) -> DocumentList:
    documents = (NamedDocument(ref.document_id, ref.document_version, name, name) for ref, name in refs)
    return DocumentList(len(refs), tuple(sorted(documents, key=lambda document: document.document_id)))


async def test_documents_and_passages_are_told_apart(world: World) -> None:
    """Added, changed, removed; a passage counts by its document and text."""
    await imported(world, "same", "s1", "s2")
    await imported(world, "changed", "c1", "c2", "c2")
    gone = await imported(world, "gone", "g1")
    before, _ = await world.release()
    changed = await imported(world, "changed", "c2", "c3", "c4", "c4")
    added = await imported(world, "added", "s1")
    await world.catalog.delete_document("acme", gone.document_id)
    after = await world.ready_release()
    diff = await world.catalog.diff_releases("acme", after.release_id, before.release_id)
    assert (diff.release.release_id, diff.against) == (
        after.release_id,
        await world.catalog.release("acme", before.release_id),
    )
    assert diff.added == named((added, "added"))
    assert diff.changed == named((changed, "changed"))
    assert diff.removed == named((gone, "gone"))
    assert diff.moved == NOTHING
    assert diff.chunks == ChunkCounts(before=6, after=7, added=4, removed=3, unchanged=3)
    back = await world.catalog.diff_releases("acme", before.release_id, after.release_id)
    assert (back.added, back.removed.count, back.chunks.added) == (diff.removed, 1, 3)
    assert (await world.catalog.diff_releases("acme", after.release_id)).chunks == diff.chunks


async def test_a_document_under_another_class_is_moved(world: World) -> None:
    """Its version and its passages are the same."""
    [ref] = await world.import_ready(upload("a", acl=PUBLIC))
    before, _ = await world.release()
    await world.accept(upload("a", "two", acl=SALES))  # at once its current ACL, and not READY
    claim = await world.claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    diff = await world.catalog.diff_releases("acme", plan.release_id)
    assert diff.moved == DocumentList(1, (NamedDocument(ref.document_id, 1, "a", "A title"),))
    assert (diff.changed, diff.chunks) == (NOTHING, ChunkCounts(1, 1, 0, 0, 1))
    assert before.release_id == (diff.against.release_id if diff.against else None)
    assert diff.vectors is None


async def test_the_first_release_differs_from_nothing(world: World) -> None:
    """All of it is added."""
    await world.import_ready(upload("a"), upload("b"))
    plan = await world.ready_release()
    diff = await world.catalog.diff_releases("acme", plan.release_id)
    assert (diff.against, diff.added.count, diff.chunks) == (None, 2, ChunkCounts(0, 2, 2, 0, 0))


async def test_only_releases_of_one_knowledge_base_are_compared(world: World) -> None:
    """Another tenant's, and those of other knowledge bases, look missing."""
    await world.import_ready(upload("a"))
    plan = await world.ready_release()
    await world.import_ready(upload("a"), kb="wiki")
    other = await world.ready_release(kb="wiki")
    for tenant, release_id, against in (
        ("globex", plan.release_id, None),
        ("acme", "unknown", None),
        ("acme", plan.release_id, "unknown"),
        ("acme", plan.release_id, other.release_id),
        ("globex", plan.release_id, plan.release_id),
    ):
        with pytest.raises(NotFound):
            await world.catalog.diff_releases(tenant, release_id, against)


async def test_a_release_tells_how_its_vectors_came(world: World) -> None:
    """As the build recorded it beside what validation saw."""
    await world.import_ready(upload("a"))
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    await world.catalog.advance_release(claim, plan.release_id, ReleaseState.VALIDATING)
    barrier = {"rows": 1, "vectors": {"reused": 1, "embedded": 0}}
    await world.catalog.advance_release(claim, plan.release_id, ReleaseState.READY, barrier=barrier)
    record = await world.catalog.release("acme", plan.release_id)
    assert record is not None
    assert record.barrier == barrier
    diff = await world.catalog.diff_releases("acme", plan.release_id)
    assert diff.vectors == {"reused": 1, "embedded": 0}


async def test_a_build_keeps_the_places_of_vectors_as_it_makes_them(world: World) -> None:
    """For its space alone; a text that has a place keeps it, and who made it is known."""
    await world.import_ready(upload("a"))
    claim = await world.release_claim()
    first, second = {"t1": VectorPlace("one", 0)}, {"t1": VectorPlace("two", 0), "t2": VectorPlace("two", 1)}
    await world.catalog.add_vector_places(claim, "new-space", first)
    await world.catalog.add_vector_places(claim, "new-space", second)
    await world.catalog.add_vector_places(claim, "new-space", {})
    found = await world.catalog.vector_places("new-space", ["t1", "t2", "t3"])
    assert dict(found) == {"t1": VectorPlace("one", 0), "t2": VectorPlace("two", 1)}
    assert {place.made_by for place in found.values()} == {claim.task_id}
    assert await world.catalog.vector_places(SPACE.space_id, ["t1", "t2"]) == {}


async def test_a_build_that_lost_its_task_keeps_no_places(world: World) -> None:
    """The other worker's are being made."""
    await world.import_ready(upload("a"))
    claim = await world.release_claim()
    world.clock.advance(31)
    await world.claim()
    with pytest.raises(StaleFence):
        await world.catalog.add_vector_places(claim, "new-space", {"t1": VectorPlace("one", 0)})
    assert await world.catalog.vector_places("new-space", ["t1"]) == {}


async def test_an_import_is_known_as_the_maker_of_its_vectors(world: World) -> None:
    """A text that was there before keeps its maker."""
    ref = await imported(world, "a", "one")
    entry = built(ref, "one").manifest[0]
    maker = (await world.catalog.vector_places(SPACE.space_id, [entry.text_hash]))[entry.text_hash].made_by
    assert maker is not None
    await imported(world, "b", "one")
    again = await world.catalog.vector_places(SPACE.space_id, [entry.text_hash])
    assert again[entry.text_hash].made_by == maker


async def test_a_tenants_knowledge_bases_are_listed_with_what_is_active(world: World) -> None:
    """By name; nobody else's."""
    await world.import_ready(upload("a"), kb="wiki")
    await world.import_ready(upload("a"))
    plan: ReleasePlan = (await world.release())[0]
    await world.import_ready(upload("a"), tenant="globex")
    assert await world.catalog.knowledge_bases("acme") == [
        KnowledgeBaseRecord(plan.kb_id, "handbook", 1, plan.release_id, SPACE.space_id),
        KnowledgeBaseRecord(await world.kb_id("wiki"), "wiki", 0, None, None),
    ]
    assert await world.catalog.knowledge_bases("nobody") == []
