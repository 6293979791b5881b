"""Contract of VersionStore: building versions, where vectors lie, listing and deleting documents."""

from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import Acl
from gateway.errors import IllegalTransition, NotFound
from gateway.ingest.task import Ending, TaskClaim, TaskState
from gateway.ingest.uploads import DocumentRecord
from gateway.ingest.version import VectorPlace, VersionJob
from gateway.release.model import VERSION_TRANSITIONS, VersionState
from tests.contract.catalog_world import CONFIG, HOSTILE_NAMES, SPACE, World, built, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

#: how a version gets into each state by legal steps
PATHS: dict[VersionState, tuple[VersionState, ...]] = {
    VersionState.PENDING: (),
    VersionState.BUILDING: (VersionState.BUILDING,),
    VersionState.VALIDATING: (VersionState.BUILDING, VersionState.VALIDATING),
    VersionState.READY: (VersionState.BUILDING, VersionState.VALIDATING, VersionState.READY),
    VersionState.FAILED: (VersionState.FAILED,),
}


async def _claimed(world: World) -> tuple[TaskClaim, DocumentRef]:
    accepted = await world.accept(upload("a"))
    return await world.claim(), DocumentRef(accepted.documents[0].document_id, 1)


async def _move(world: World, claim: TaskClaim, ref: DocumentRef, state: VersionState) -> None:
    if state is VersionState.READY:
        await world.catalog.complete_versions(claim, [built(ref, "passage")])
    elif state is VersionState.FAILED:
        await world.catalog.fail_version(claim, ref, "blank", "no text was found")
    else:
        await world.catalog.advance_versions(claim, [ref], state)


async def _state(world: World, ref: DocumentRef) -> VersionState:
    record = await world.catalog.document("acme", ref.document_id)
    assert record is not None
    return record.state


async def test_open_versions_are_handed_out_in_order_of_acceptance(world: World) -> None:
    """With everything a worker needs to build them."""
    uploads = (upload("b", "one"), upload("a", "two", sensitivity=2))
    accepted = await world.accept(*uploads)
    jobs = await world.catalog.unfinished_versions(await world.claim())
    assert jobs == [
        VersionJob(
            ref=DocumentRef(document.document_id, 1),
            source=new.source,
            media_type="text/plain",
            original_key=new.original_key,
            sensitivity=new.sensitivity,
            state=VersionState.PENDING,
        )
        for document, new in zip(accepted.documents, uploads, strict=True)
    ]


async def test_built_and_failed_versions_are_not_handed_out(world: World) -> None:
    """Only what is left."""
    await world.accept(upload("a"), upload("b"), upload("c"))
    claim = await world.claim()
    ready, failed, left = [job.ref for job in await world.catalog.unfinished_versions(claim)]
    for state in PATHS[VersionState.READY]:
        await _move(world, claim, ready, state)
    await _move(world, claim, failed, VersionState.FAILED)
    assert [job.ref for job in await world.catalog.unfinished_versions(claim)] == [left]


@pytest.mark.parametrize("state", [VersionState.BUILDING, VersionState.VALIDATING])
async def test_half_built_versions_are_handed_out_again_after_a_takeover(
    world: World, state: VersionState
) -> None:
    """And may be advanced to where they are, so that the new worker can begin there."""
    claim, ref = await _claimed(world)
    for step in PATHS[state]:
        await _move(world, claim, ref, step)
    world.clock.advance(30)
    taken = await world.claim()
    [job] = await world.catalog.unfinished_versions(taken)
    assert (job.ref, job.state) == (ref, state)
    await world.catalog.advance_versions(taken, [ref], state)
    await world.catalog.advance_versions(taken, [ref], VersionState.VALIDATING)
    await world.catalog.complete_versions(taken, [built(ref, "passage")])
    assert await _state(world, ref) is VersionState.READY


@pytest.mark.parametrize("after", list(VersionState))
@pytest.mark.parametrize("before", list(VersionState))
async def test_versions_move_only_as_the_table_allows(
    world: World, before: VersionState, after: VersionState
) -> None:
    """Staying is a replay and changes nothing; every other illegal step raises and changes nothing."""
    claim, ref = await _claimed(world)
    for step in PATHS[before]:
        await _move(world, claim, ref, step)
    if after in VERSION_TRANSITIONS[before]:
        await _move(world, claim, ref, after)
        assert await _state(world, ref) is after
        return
    task = await world.catalog.task("acme", claim.task_id)
    if after is before:
        await _move(world, claim, ref, after)
    else:
        with pytest.raises(IllegalTransition):
            await _move(world, claim, ref, after)
    assert await _state(world, ref) is before
    assert await world.catalog.task("acme", claim.task_id) == task


async def test_a_version_becomes_ready_with_its_manifest_only(world: World) -> None:
    """A READY version without chunks would be released as an empty document."""
    claim, ref = await _claimed(world)
    for state in (VersionState.BUILDING, VersionState.VALIDATING):
        await world.catalog.advance_versions(claim, [ref], state)
    with pytest.raises(IllegalTransition):
        await world.catalog.advance_versions(claim, [ref], VersionState.READY)
    assert await _state(world, ref) is VersionState.VALIDATING


async def test_versions_move_and_become_ready_together_or_not_at_all(world: World) -> None:
    """One that may not, or isn't the task's, keeps the others where they are."""
    await world.accept(upload("a"), upload("b"))
    claim = await world.claim()
    a, b = [job.ref for job in await world.catalog.unfinished_versions(claim)]
    nobodys = DocumentRef("no-such-id", 1)
    with pytest.raises(NotFound):
        await world.catalog.advance_versions(claim, [a, nobodys], VersionState.BUILDING)
    assert [await _state(world, ref) for ref in (a, b)] == [VersionState.PENDING] * 2
    await world.catalog.advance_versions(claim, [a, b], VersionState.BUILDING)
    await world.catalog.advance_versions(claim, [a], VersionState.VALIDATING)
    versions = [built(a, "one", "both"), built(b, "both", "two")]
    with pytest.raises(IllegalTransition):
        await world.catalog.complete_versions(claim, versions)
    assert [await _state(world, ref) for ref in (a, b)] == [VersionState.VALIDATING, VersionState.BUILDING]
    await world.catalog.advance_versions(claim, [a, b], VersionState.VALIDATING)
    await world.catalog.complete_versions(claim, versions)
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    assert [d.manifest for d in plan.documents] == [version.manifest for version in versions]


async def test_completing_twice_changes_nothing(world: World) -> None:
    """The first manifest stays, also when the replay brings another."""
    claim, ref = await _claimed(world)
    for state in PATHS[VersionState.VALIDATING]:
        await _move(world, claim, ref, state)
    first = built(ref, "one", "two", title="First")
    await world.catalog.complete_versions(claim, [first])
    await world.catalog.complete_versions(claim, [first])
    await world.catalog.complete_versions(claim, [built(ref, "three", title="Second")])
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    assert [(d.title, d.manifest) for d in plan.documents] == [("First", first.manifest)]


@pytest.mark.parametrize(
    ("given", "holds"),
    [((None, None), (10, 20)), ((5, None), (5, 20)), ((None, 30), (10, 30)), ((50, None), (50, None))],
)
async def test_a_version_holds_as_its_document_says_where_its_importer_said_nothing(
    world: World, given: tuple[int | None, int | None], holds: tuple[int | None, int | None]
) -> None:
    """For the re-check and for its chunks; the same upload again is still the same version."""
    new = upload("a", valid_from=given[0], valid_until=given[1])
    accepted = await world.accept(new)
    claim, ref = await world.claim(), DocumentRef(accepted.documents[0].document_id, 1)
    for state in PATHS[VersionState.VALIDATING]:
        await _move(world, claim, ref, state)
    said = replace(built(ref, "one"), valid_from=10, valid_until=20)
    await world.catalog.complete_versions(claim, [said])
    await world.catalog.complete_versions(claim, [replace(said, valid_from=11)])
    standing = await world.standing(ref)
    assert standing is not None
    assert (standing.valid_from, standing.valid_until) == holds
    [planned] = (await world.catalog.begin_release(claim, SPACE, CONFIG)).documents
    assert (planned.valid_from, planned.valid_until) == holds
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    [again] = (await world.accept(new)).documents
    assert again.document_version == 1


async def test_a_refused_completion_leaves_no_vectors(world: World) -> None:
    """Manifest, places and READY come together or not at all."""
    claim, ref = await _claimed(world)
    places = built(ref, "one").new_vectors
    with pytest.raises(IllegalTransition):
        await world.catalog.complete_versions(claim, [built(ref, "one")])
    assert await world.catalog.vector_places(SPACE.space_id, list(places)) == {}
    assert await _state(world, ref) is VersionState.PENDING


async def test_failing_twice_keeps_the_first_reason(world: World) -> None:
    """It is shown on the task and on the document, for a person."""
    claim, ref = await _claimed(world)
    await world.catalog.fail_version(claim, ref, "blank", "no text was found in it")
    await world.catalog.fail_version(claim, ref, "corrupt", "another reason")
    task = await world.catalog.task("acme", claim.task_id)
    record = await world.catalog.document("acme", ref.document_id)
    assert task is not None
    assert record is not None
    assert task.documents[0].state == "FAILED"
    for error in (task.documents[0].error, record.error):
        assert error is not None
        assert "no text was found in it" in error
        assert "another reason" not in error


async def test_a_claim_reaches_only_the_versions_of_its_own_task(world: World) -> None:
    """Others look missing: another task's, another knowledge base's, another tenant's, nobody's."""
    others = [
        *await world.import_ready(upload("b")),
        *await world.import_ready(upload("b"), kb="wiki"),
        *await world.import_ready(upload("b"), tenant="globex"),
        DocumentRef("no-such-id", 1),
    ]
    claim, ref = await _claimed(world)
    for other in [*others, DocumentRef(ref.document_id, 2)]:
        with pytest.raises(NotFound):
            await world.catalog.advance_versions(claim, [other], VersionState.BUILDING)
        with pytest.raises(NotFound):
            await world.catalog.complete_versions(claim, [built(other, "forged")])
        with pytest.raises(NotFound):
            await world.catalog.fail_version(claim, other, "forged", "forged")
    forged = built(ref, "forged").new_vectors
    assert await world.catalog.vector_places(SPACE.space_id, list(forged)) == {}


async def test_vectors_are_found_by_space_and_text(world: World) -> None:
    """Unknown texts are missing keys; another space never answers, whatever its dimension."""
    [ref] = await world.import_ready(upload("a"))
    accepted = await world.accept(upload("b"))
    claim = await world.claim()
    other = DocumentRef(accepted.documents[0].document_id, 1)
    for state in PATHS[VersionState.VALIDATING]:
        await world.catalog.advance_versions(claim, [other], state)
    version = built(other, "one", "two")
    await world.catalog.complete_versions(claim, [version])
    one, two = version.new_vectors
    assert await world.catalog.vector_places(SPACE.space_id, [one, "unknown", two, one]) == {
        one: VectorPlace(f"vectors/{other.document_id}/1", 0),
        two: VectorPlace(f"vectors/{other.document_id}/1", 1),
    }
    assert await world.catalog.vector_places("another-space", [one, two]) == {}
    assert await world.catalog.vector_places(SPACE.space_id, []) == {}
    assert ref != other


async def test_many_vectors_are_found_at_once(world: World) -> None:
    """More texts than any statement has parameters to spare."""
    claim, ref = await _claimed(world)
    for state in PATHS[VersionState.VALIDATING]:
        await world.catalog.advance_versions(claim, [ref], state)
    version = built(ref, *(f"text {n}" for n in range(2500)))
    await world.catalog.complete_versions(claim, [version])
    unknown = [f"unknown-{n}" for n in range(40_000)]
    found = await world.catalog.vector_places(SPACE.space_id, [*unknown, *version.new_vectors])
    assert found == version.new_vectors


async def test_documents_are_listed_by_source_with_their_newest_version(world: World) -> None:
    """Each knowledge base of each tenant for itself."""
    await world.import_ready(upload("b"), upload("a", "one"))
    await world.import_ready(upload("c"), kb="wiki")
    await world.import_ready(upload("d"), tenant="globex")
    world.clock.advance(100)
    await world.accept(upload("a", "two", Acl.parse(["user:ann", "group:hr"], ["user:bob"]), category="faq"))
    first, second = await world.catalog.documents("acme", "handbook")
    assert (first.source, first.document_version, first.state) == ("a", 2, VersionState.PENDING)
    assert (first.allow, first.deny) == (("group:hr", "user:ann"), ("user:bob",))
    assert (first.category, first.error) == ("faq", None)
    assert (second.source, second.document_version, second.state) == ("b", 1, VersionState.READY)
    assert (second.title, second.knowledge_base) == ("A title", "handbook")
    assert await world.catalog.document("acme", first.document_id) == first
    assert await world.catalog.document("acme", second.document_id) == second


async def test_an_unknown_or_foreign_knowledge_base_has_no_documents(world: World) -> None:
    """They look alike."""
    await world.accept(upload("a"))
    assert await world.catalog.documents("globex", "handbook") == []
    assert await world.catalog.documents("acme", "wiki") == []


async def test_a_foreign_document_looks_missing(world: World) -> None:
    """To read and to delete."""
    [ref] = await world.import_ready(upload("a"))
    epochs = [await world.epoch(tenant) for tenant in ("acme", "globex")]
    assert await world.catalog.document("globex", ref.document_id) is None
    assert await world.catalog.document("acme", "no-such-id") is None
    assert not await world.catalog.delete_document("globex", ref.document_id)
    assert not await world.catalog.delete_document("acme", "no-such-id")
    assert await world.catalog.document("acme", ref.document_id) is not None
    assert [await world.epoch(tenant) for tenant in ("acme", "globex")] == epochs


async def test_a_deleted_document_is_gone_and_the_epoch_rises(world: World) -> None:
    """Deleting again finds nothing and bumps nothing; other tenants notice nothing."""
    [ref] = await world.import_ready(upload("a"))
    before, foreign = await world.epoch(), await world.epoch("globex")
    assert await world.catalog.delete_document("acme", ref.document_id)
    assert await world.epoch() == before + 1
    assert await world.catalog.document("acme", ref.document_id) is None
    assert await world.catalog.documents("acme", "handbook") == []
    assert not await world.catalog.delete_document("acme", ref.document_id)
    assert (await world.epoch(), await world.epoch("globex")) == (before + 1, foreign)


async def test_a_version_in_the_making_does_not_outlive_its_deleted_document(world: World) -> None:
    """Its task may end as it likes; the document stays gone."""
    claim, ref = await _claimed(world)
    await world.catalog.delete_document("acme", ref.document_id)
    await world.build_versions(claim)
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert await world.catalog.document("acme", ref.document_id) is None
    await world.accept(upload("a", "a new text"))
    assert (await world.catalog.begin_release(await world.claim(), SPACE, CONFIG)).documents == ()


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_names_are_stored_and_found_literally(world: World, name: str) -> None:
    """As knowledge base, source, title, error and id."""
    await world.accept(upload("plain"))
    accepted = await world.accept(upload(name), upload("plain"), kb=name)
    assert await world.claim()
    claim = await world.claim()
    ref, other = (DocumentRef(d.document_id, 1) for d in accepted.documents)
    for state in PATHS[VersionState.VALIDATING]:
        await world.catalog.advance_versions(claim, [ref], state)
    await world.catalog.complete_versions(claim, [built(ref, "text", title=name)])
    await world.catalog.fail_version(claim, other, "corrupt", name)
    records = {record.source: record for record in await world.catalog.documents("acme", name)}
    assert set(records) == {name, "plain"}
    assert (records[name].title, records[name].knowledge_base) == (name, name)
    assert name in str(records["plain"].error)
    assert await world.catalog.document("acme", name) is None
    assert not await world.catalog.delete_document("acme", name)
    assert await world.catalog.vector_places(name, [name]) == {}


async def test_a_record_does_not_follow_later_changes(world: World) -> None:
    """What was read is a snapshot."""
    [ref] = await world.import_ready(upload("a"))
    record = await world.catalog.document("acme", ref.document_id)
    assert isinstance(record, DocumentRecord)
    await world.accept(upload("a", "newer"))
    assert (record.document_version, record.state) == (1, VersionState.READY)


async def _pages(world: World, size: int) -> list[list[str]]:
    """All pages of the handbook's documents; while they are turned, others arrive before and behind."""
    pages: list[list[str]] = []
    after = None
    while True:
        found = await world.catalog.documents("acme", "handbook", limit=size, after=after)
        if not found:
            return pages
        pages.append([document.source for document in found])
        after = pages[-1][-1]
        if len(pages) == 1:
            await world.accept(upload("!"), upload("￮"))


async def test_documents_come_in_pages_in_an_order_that_no_language_changes(world: World) -> None:
    """Each goes on behind the last one seen, whatever has come in between; others' aren't in it."""
    await world.accept(*(upload(source) for source in ("b", "A", "é", "Z", "手册", "a", "🙂")))
    await world.accept(upload("c"), kb="wiki")
    await world.accept(upload("d"), tenant="globex")
    assert await _pages(world, 2) == [["A", "Z"], ["a", "b"], ["é", "手册"], ["￮", "🙂"]]
    assert await world.catalog.documents("acme", "handbook", limit=2, after="🙂") == []
    assert await world.catalog.documents("acme", "nothing", limit=2, after="A") == []
    [wiki] = await world.catalog.documents("acme", "wiki", limit=2, after="A")
    assert wiki.source == "c"


async def test_a_deleted_document_is_a_place_to_go_on_from(world: World) -> None:
    """And takes no room of a page."""
    _, gone, *_ = await world.import_ready(*(upload(source) for source in "abcde"))
    await world.catalog.delete_document("acme", gone.document_id)
    for after, sources in {"a": ["c", "d"], "b": ["c", "d"], "c": ["d", "e"]}.items():
        found = await world.catalog.documents("acme", "handbook", limit=2, after=after)
        assert [document.source for document in found] == sources
