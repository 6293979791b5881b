"""What the catalog needs no more: deletions and what they leave, objects nobody refers to, reclaim."""

from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.access.classes import Acl
from gateway.context import Deadline
from gateway.errors import NotFound, ObjectStoreUnavailable, ReleaseConflict, StaleFence
from gateway.ingest.governance import Decision, Verdict
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.references import TAKEOVER_S, DocumentTerms, ReclaimPolicy, Remains
from gateway.ingest.task import Ending, TaskClaim, TaskKind, TaskState
from gateway.ingest.version import VectorPlace
from gateway.release.model import ReleaseState, VersionState
from gateway.retrieval.query import ScopedQuery
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, SALES, SPACE, World, built, import_of, scope_of, upload

pytestmark = pytest.mark.asyncio(loop_scope="module")

SALES_AND_HR = Acl(frozenset({"group:sales", "group:hr"}))
WINDOW_S = 1_000.0
AFTERLIFE_S = 400.0
POLICY = ReclaimPolicy(WINDOW_S, releases=1, afterlife_s=AFTERLIFE_S)


async def claimed(world: World, kind: TaskKind) -> TaskClaim:
    """The next task of this kind; the ones before it end without having done anything."""
    while True:
        claim = await world.catalog.claim("worker", 30.0, 5)
        assert claim is not None
        if claim.kind is kind:
            return claim
        await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))


async def done(world: World, claim: TaskClaim) -> None:
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))


def chunks_of(ref: DocumentRef) -> str:
    return f"chunks/{ref.document_id}/{ref.document_version}"


def vectors_of(ref: DocumentRef) -> str:
    return f"vectors/space/{ref.document_id}/{ref.document_version}"


def original_of(content: str) -> str:
    return upload("x", content).original_key


async def ready(world: World, source: str, *texts: str, content: str = "") -> DocumentRef:
    """An imported document of these passages; those that are known have their vectors already."""
    await world.accept(upload(source, content or source))
    claim = await claimed(world, TaskKind.IMPORT)
    [job] = await world.catalog.unfinished_versions(claim)
    for state in (VersionState.BUILDING, VersionState.VALIDATING):
        await world.catalog.advance_versions(claim, [job.ref], state)
    version = built(job.ref, *texts)
    known = await world.catalog.vector_places(SPACE.space_id, list(version.new_vectors))
    own = {
        text: VectorPlace(vectors_of(job.ref), place.position)
        for text, place in version.new_vectors.items()
        if text not in known
    }
    await world.catalog.complete_versions(claim, [replace(version, new_vectors=own)])
    await done(world, claim)
    return job.ref


async def condemned(world: World, *keys: str) -> set[str]:
    """Those of the keys that nothing needs; they are buried at once."""
    sentence = await world.catalog.condemn(keys, WINDOW_S, TAKEOVER_S)
    assert {*sentence.condemned, *sentence.needed} == set(keys)
    await world.catalog.bury(sentence)
    return set(sentence.condemned)


# deletion


async def test_a_deletion_and_a_revocation_are_followed_by_a_clean_up(world: World) -> None:
    """One at a time for a document, made in the same transaction; people and groups need none."""
    ref = await ready(world, "a", "one")
    task_id = await world.catalog.delete_document("acme", ref.document_id)
    assert task_id is not None
    record = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "leak", "olga")
    assert record.task_id == task_id
    task = await world.catalog.task("acme", task_id)
    assert task is not None
    assert (task.kind, task.state, task.target) == (TaskKind.CLEANUP, TaskState.PENDING, ref.document_id)
    base = await world.catalog.revoke("acme", RevocationKind.KNOWLEDGE_BASE, "handbook", "leak", "olga")
    assert base.task_id not in {None, task_id}
    again = await world.catalog.revoke("acme", RevocationKind.KNOWLEDGE_BASE, "handbook", "leak", "olga")
    assert again == base
    assert base in await world.catalog.list_revocations("acme")
    for kind in (RevocationKind.USER, RevocationKind.GROUP):
        assert (await world.catalog.revoke("acme", kind, "x", "left", "olga")).task_id is None


async def test_a_version_stays_deleted_when_its_document_comes_back(world: World) -> None:
    """A stream that still shows it is told that it was deleted, and not only replaced."""
    old = await ready(world, "a", "one")
    await world.catalog.delete_document("acme", old.document_id)
    new = await ready(world, "a", "two")
    before, after = await world.standing(old), await world.standing(new)
    assert before is not None
    assert after is not None
    assert (before.deleted, after.deleted) == (True, False)


async def remains_of(world: World, ref: DocumentRef) -> tuple[TaskClaim, Remains]:
    claim = await claimed(world, TaskKind.CLEANUP)
    assert claim.target == ref.document_id
    remains = await world.catalog.remains(claim)
    assert remains is not None
    return claim, remains


async def test_remains_name_everything_a_deleted_document_left(world: World) -> None:
    """Its versions, every revision that isn't reclaimed, the files with vectors of its texts."""
    other = await ready(world, "other", "shared")
    old = await ready(world, "a", "one", "shared")
    first, _ = await world.release()
    new = await ready(world, "a", "two", "one", content="more")
    second, _ = await world.release()
    world.clock.advance(5)
    await world.catalog.delete_document("acme", old.document_id)
    claim, remains = await remains_of(world, old)
    assert [version.version for version in remains.versions] == [1, 2]
    assert [version.chunks_key for version in remains.versions] == [chunks_of(old), chunks_of(new)]
    assert {version.original_key for version in remains.versions} == {original_of("a"), original_of("more")}
    held = {holding.revision.kb_revision: holding.version for holding in remains.holdings}
    assert held == {first.kb_revision: 1, second.kb_revision: 2}
    assert all(holding.revision.space == SPACE for holding in remains.holdings)
    assert set(remains.vector_files) == {vectors_of(old), vectors_of(new), vectors_of(other)}
    assert remains.spaces == (SPACE.space_id,)
    assert remains.deleted_at == world.clock()
    await world.catalog.erase(claim, [1, 2])
    erased = await world.catalog.remains(claim)
    assert erased is not None
    assert [(v.title, v.chunks_key) for v in erased.versions] == [("", ""), ("", "")]
    assert erased.vector_files == ()


async def test_a_version_imported_after_the_deletion_is_no_remains(world: World) -> None:
    """Neither it nor the revisions that hold it."""
    old = await ready(world, "a", "one")
    first, _ = await world.release()
    await world.catalog.delete_document("acme", old.document_id)
    await ready(world, "a", "two")
    second, _ = await world.release()
    await world.catalog.delete_document("acme", (await ready(world, "b", "b")).document_id)
    task_id = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, old.document_id, "x", "olga")
    assert task_id is not None
    while (claim := await claimed(world, TaskKind.CLEANUP)).target != old.document_id:
        await done(world, claim)
    remains = await world.catalog.remains(claim)
    assert remains is not None
    assert [version.version for version in remains.versions] == [1]
    assert [holding.revision.kb_revision for holding in remains.holdings] == [first.kb_revision]
    assert second.kb_revision != first.kb_revision


async def test_nothing_remains_of_a_document_that_was_only_revoked(world: World) -> None:
    """It comes back with a lift."""
    ref = await ready(world, "a", "one")
    await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "leak", "olga")
    claim = await claimed(world, TaskKind.CLEANUP)
    assert await world.catalog.remains(claim) is None


async def counted(world: World, plan: ReleasePlan, *terms: str) -> tuple[int, dict[str, int]]:
    scope = scope_of("acme", plan.kb_id, [1])
    query = ScopedQuery(scope, plan.as_release(), int(world.clock()))
    statistics = await world.catalog.statistics(query, terms, Deadline.after(20_000))
    return statistics.passages, dict(statistics.frequencies)


async def release_with_terms(world: World, terms: ClassTerms) -> ReleasePlan:
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    await world.catalog.store_terms(claim, plan.kb_revision, [terms])
    for state in (ReleaseState.VALIDATING, ReleaseState.READY):
        await world.catalog.advance_release(claim, plan.release_id, state)
    await world.catalog.activate("acme", plan.release_id, None, claim)
    await done(world, claim)
    return plan


async def test_a_forgotten_document_is_counted_nowhere(world: World) -> None:
    """Once, however often it is forgotten; the others' counts stay."""
    gone = await ready(world, "a", "one", "two")
    await ready(world, "b", "three")
    plan = await release_with_terms(world, ClassTerms(1, 3, {"both": 2, "mine": 2, "theirs": 1}))
    await world.catalog.delete_document("acme", gone.document_id)
    claim, remains = await remains_of(world, gone)
    [holding] = remains.holdings
    for _ in range(2):
        await world.catalog.forget(claim, holding, DocumentTerms(2, {"both": 1, "mine": 2}))
        assert await counted(world, plan, "both", "mine", "theirs") == (1, {"both": 1, "theirs": 1})
        [release] = await world.catalog.releases("acme", "handbook")
        assert (release.documents, release.chunks) == (1, 1)
    after = await world.catalog.remains(claim)
    assert after is not None
    assert [holding.version for holding in after.holdings] == [None]


async def test_a_forgotten_document_leaves_the_hash_of_a_release_without_it(world: World) -> None:
    """As if it had never been taken in."""
    gone, _ = await ready(world, "a", "one", "two"), await ready(world, "b", "three")
    plan = await release_with_terms(world, ClassTerms(1, 3, {}))
    await world.catalog.delete_document("acme", gone.document_id)
    claim, remains = await remains_of(world, gone)
    await world.catalog.forget(claim, remains.holdings[0], None)
    await done(world, claim)
    [release] = await world.catalog.releases("acme", "handbook")
    other = replace(CONFIG, version="config/other")
    after = await world.catalog.begin_release(await world.release_claim(), SPACE, other)
    assert release.manifest_hash == after.manifest_hash != plan.manifest_hash


async def test_forgetting_rows_that_let_in_others_raises_the_acl_revision(world: World) -> None:
    """A document that was deleted and came back with another ACL was found by the class of its old rows."""
    [old] = await world.import_ready(upload("a", "v1", SALES))
    plan, _ = await world.release()
    await world.catalog.delete_document("acme", old.document_id)
    await world.accept(upload("a", "v2", SALES_AND_HR))
    claim, remains = await remains_of(world, old)
    [holding] = remains.holdings
    assert [known.number for known in await world.catalog.acl_classes("acme", plan.kb_id)] == [1, 2]
    before = await world.acl_revision()
    await world.catalog.forget(claim, holding, None)
    assert [known.number for known in await world.catalog.acl_classes("acme", plan.kb_id)] == [2]
    assert await world.acl_revision() > before


async def test_a_document_whose_terms_are_lost_is_forgotten_without_them(world: World) -> None:
    """Its words stay counted until the revision is reclaimed."""
    gone = await ready(world, "a", "one")
    plan = await release_with_terms(world, ClassTerms(1, 1, {"mine": 1}))
    await world.catalog.delete_document("acme", gone.document_id)
    claim, remains = await remains_of(world, gone)
    await world.catalog.forget(claim, remains.holdings[0], None)
    assert await counted(world, plan, "mine") == (1, {"mine": 1})
    [release] = await world.catalog.releases("acme", "handbook")
    assert release.documents == 0


async def test_a_clean_up_that_lost_its_claim_changes_nothing(world: World) -> None:
    """Somebody else does it now."""
    ref = await ready(world, "a", "one")
    await world.release()
    await world.catalog.delete_document("acme", ref.document_id)
    claim, remains = await remains_of(world, ref)
    await world.catalog.release_claim(claim)
    with pytest.raises(StaleFence):
        await world.catalog.remains(claim)
    with pytest.raises(StaleFence):
        await world.catalog.forget(claim, remains.holdings[0], None)
    with pytest.raises(StaleFence):
        await world.catalog.erase(claim, [1])


async def test_a_move_that_lost_its_claim_has_a_deleted_document_cleaned_up_once_more(world: World) -> None:
    """It may have written the document's rows after the clean-up had taken them away."""
    ref = await ready(world, "a", "one")
    plan, _ = await world.release()
    await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "leak", "olga")
    move = await claimed(world, TaskKind.MOVE)
    await world.catalog.release_claim(move)
    await done(world, await claimed(world, TaskKind.MOVE))
    await world.catalog.delete_document("acme", ref.document_id)
    claim, remains = await remains_of(world, ref)
    await world.catalog.forget(claim, remains.holdings[0], None)
    await done(world, claim)
    await world.catalog.distrust_moves(move)
    claim, remains = await remains_of(world, ref)
    assert [h.revision.kb_revision for h in remains.holdings] == [plan.kb_revision]


# objects


async def test_what_a_live_version_is_made_of_is_needed(world: World) -> None:
    """Its original, its chunk file and the files with its vectors, from its acceptance on."""
    await world.accept(upload("a", "waiting"))
    assert await condemned(world, original_of("waiting")) == set()
    await done(world, await claimed(world, TaskKind.IMPORT))  # and it is over, unbuilt
    first = await ready(world, "b", "one", content="b1")
    second = await ready(world, "c", "one", "two", content="c1")
    kept = [original_of("b1"), original_of("c1"), chunks_of(first), chunks_of(second)]
    kept += [vectors_of(first), vectors_of(second)]
    assert await condemned(world, *kept) == set()
    strays = [original_of("never accepted"), f"{chunks_of(first)}-other", f"{vectors_of(first)}-other"]
    strays += ["chunks/doc_nobody/1", "vectors/space/doc_nobody/1-x"]
    assert await condemned(world, *strays, *kept) == set(strays)


@pytest.mark.parametrize("key", ["readiness/x", "chunks/odd", "vectors/odd", "chunks/a/b/c", "elsewhere"])
async def test_objects_of_an_unknown_form_are_left_alone(world: World, key: str) -> None:
    """Somebody else may have put them there."""
    assert await condemned(world, key) == set()


async def test_a_version_is_needed_until_the_last_release_with_it_is_over(world: World) -> None:
    """Then its original and chunk file go, and its vectors unless a newer version has the same texts."""
    old = await ready(world, "a", "same", "old", content="v1")
    first, _ = await world.release()
    new = await ready(world, "a", "same", "new", content="v2")
    mine = [original_of("v1"), chunks_of(old), vectors_of(old)]
    assert await condemned(world, *mine) == set()
    await world.release()
    assert await condemned(world, *mine) == set()
    await world.catalog.mark_reclaimed("acme", first.release_id)
    assert await condemned(world, *mine) == {original_of("v1"), chunks_of(old)}
    last = await ready(world, "a", "last", content="v3")
    third, _ = await world.release()
    second = (await world.catalog.releases("acme", "handbook"))[1]
    await world.catalog.mark_reclaimed("acme", second.release_id)
    theirs = [original_of("v2"), chunks_of(new), vectors_of(new)]
    now = [original_of("v3"), chunks_of(last), vectors_of(last)]
    assert await condemned(world, *theirs, *mine, *now) == {*theirs, *mine}
    assert third.release_id != second.release_id


async def test_a_version_is_needed_for_a_while_after_a_rollback_withdrew_it(world: World) -> None:
    """Somebody may have it brought back."""
    await ready(world, "a", "one", content="v1")
    await world.release()
    new = await ready(world, "a", "two", content="v2")
    second, _ = await world.release()
    await world.catalog.roll_back("acme", "handbook")
    await world.catalog.mark_reclaimed("acme", second.release_id)
    mine = [original_of("v2"), chunks_of(new), vectors_of(new)]
    assert await condemned(world, *mine) == set()
    world.clock.advance(WINDOW_S + 1)
    assert await condemned(world, *mine) == set(mine)


async def test_a_deleted_version_needs_nothing_that_no_other_needs(world: World) -> None:
    """Equal originals and equal texts stay for the others."""
    gone = await ready(world, "a", "same", "mine", content="equal")
    left = await ready(world, "b", "same", content="equal")
    await world.release()
    await world.catalog.delete_document("acme", gone.document_id)
    mine = [original_of("equal"), chunks_of(gone), vectors_of(gone), chunks_of(left)]
    assert await condemned(world, *mine) == {chunks_of(gone)}
    await world.catalog.delete_document("acme", left.document_id)
    assert await condemned(world, *mine) == set(mine)


async def test_a_condemned_vector_file_is_found_no_more(world: World) -> None:
    """And a version that counted on it can't become READY: the next attempt embeds its texts again."""
    gone = await ready(world, "a", "same")
    await world.catalog.delete_document("acme", gone.document_id)
    await world.accept(upload("b"))
    claim = await claimed(world, TaskKind.IMPORT)
    [job] = await world.catalog.unfinished_versions(claim)
    for state in (VersionState.BUILDING, VersionState.VALIDATING):
        await world.catalog.advance_versions(claim, [job.ref], state)
    version = built(job.ref, "same")
    assert await world.catalog.vector_places(SPACE.space_id, list(version.new_vectors))
    assert await condemned(world, vectors_of(gone)) == {vectors_of(gone)}
    assert await world.catalog.vector_places(SPACE.space_id, list(version.new_vectors)) == {}
    with pytest.raises(ObjectStoreUnavailable):
        await world.catalog.complete_versions(claim, [replace(version, new_vectors={})])
    await world.catalog.complete_versions(claim, [version])


async def test_nobody_refers_to_an_object_that_is_being_taken_away(world: World) -> None:
    """Uploads and versions are told to put it again; once it is buried they may."""
    sentence = await world.catalog.condemn([original_of("a")], WINDOW_S, TAKEOVER_S)
    world.clock.advance(5)
    with pytest.raises(ObjectStoreUnavailable) as raised:
        await world.catalog.accept_import(import_of(upload("a", "a"), upload("b")))
    assert raised.value.retry_after_ms == (TAKEOVER_S - 5) * 1000
    assert await world.catalog.documents("acme", "handbook") == []
    await world.accept(upload("b"))
    claim = await claimed(world, TaskKind.IMPORT)
    [job] = await world.catalog.unfinished_versions(claim)
    version = built(job.ref, "text")
    own = {text: VectorPlace(vectors_of(job.ref), 0) for text in version.new_vectors}
    other = await world.catalog.condemn([vectors_of(job.ref)], WINDOW_S, TAKEOVER_S)
    assert other.condemned == (vectors_of(job.ref),)
    for state in (VersionState.BUILDING, VersionState.VALIDATING):
        await world.catalog.advance_versions(claim, [job.ref], state)
    with pytest.raises(ObjectStoreUnavailable):
        await world.catalog.complete_versions(claim, [replace(version, new_vectors=own)])
    with pytest.raises(ObjectStoreUnavailable):
        await world.catalog.add_vector_places(claim, SPACE.space_id, own)
    await world.catalog.bury(other)
    await world.catalog.complete_versions(claim, [replace(version, new_vectors=own)])
    await world.catalog.bury(sentence)
    await world.accept(upload("a", "a"))
    assert await condemned(world, original_of("a"), vectors_of(job.ref)) == set()


async def test_what_was_condemned_is_taken_over_when_nobody_buries_it(world: World) -> None:
    """Not before its time; and whoever comes back late buries nothing that somebody else has by now."""
    keys = [original_of("a"), original_of("b")]
    first = await world.catalog.condemn(keys, WINDOW_S, TAKEOVER_S)
    world.clock.advance(TAKEOVER_S - 1)
    assert (await world.catalog.condemn(keys, WINDOW_S, TAKEOVER_S)).busy == tuple(sorted(keys))
    assert await world.catalog.left_condemned(TAKEOVER_S) == []
    world.clock.advance(2)
    assert await world.catalog.left_condemned(TAKEOVER_S) == sorted(keys)
    second = await world.catalog.condemn(keys, WINDOW_S, TAKEOVER_S)
    assert (second.condemned, second.busy) == (tuple(sorted(keys)), ())
    await world.catalog.bury(first)
    with pytest.raises(ObjectStoreUnavailable):
        await world.accept(upload("a", "a"))
    await world.catalog.bury(second)
    await world.accept(upload("a", "a"))


async def test_an_upload_takes_over_what_nobody_came_to_bury(world: World) -> None:
    """After the time that its refusal names; a version doesn't: nobody looks again for its files."""
    ref = await ready(world, "b", "one")
    sentence = await world.catalog.condemn([original_of("a")], WINDOW_S, TAKEOVER_S)
    other = await world.catalog.condemn([vectors_of(replace(ref, document_version=2))], WINDOW_S, TAKEOVER_S)
    world.clock.advance(TAKEOVER_S)
    await world.accept(upload("a", "a"))
    await world.catalog.bury(sentence)
    assert await condemned(world, original_of("a")) == set()
    claim = await claimed(world, TaskKind.IMPORT)
    place = {"a text": VectorPlace(other.condemned[0], 0)}
    with pytest.raises(ObjectStoreUnavailable):
        await world.catalog.add_vector_places(claim, SPACE.space_id, place)


@pytest.mark.parametrize("kind", ["original", "chunks"])
async def test_no_release_falls_back_to_a_version_whose_files_are_gone(world: World, kind: str) -> None:
    """It left with its last release; then the newer one is rejected, and the document has none to show."""
    old = await ready(world, "a", "one", content="v1")
    new = await ready(world, "a", "two", content="v2")
    await ready(world, "b", "three")
    await world.release()
    key = original_of("v1") if kind == "original" else chunks_of(old)
    assert await condemned(world, key) == {key}
    await world.catalog.judge(Verdict("acme", new.document_id, 2, Decision.REJECT, "olga", "wrong"))
    plan, _ = await world.release()
    assert [planned.source for planned in plan.documents] == ["b"]
    assert await condemned(world, key, chunks_of(old)) == {key, chunks_of(old)}


# reclaim


async def reclaimed(world: World) -> list[str]:
    """The releases whose rows a reclaim drops now; nothing is due after it."""
    made = await world.catalog.schedule_reclaims(POLICY, 3600.0)
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0
    if not made:
        return []
    assert made == 1
    claim = await claimed(world, TaskKind.RECLAIM)
    revisions = await world.catalog.begin_reclaim(claim, POLICY)
    assert await world.catalog.begin_reclaim(claim, POLICY) == revisions  # as long as nobody has dropped them
    for revision in revisions:
        assert revision.space == SPACE
        await world.catalog.swept(claim, revision)
    assert await world.catalog.begin_reclaim(claim, POLICY) == []
    await done(world, claim)
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0
    return [revision.release_id for revision in revisions]


async def releases(world: World, number: int) -> list[str]:
    """So many releases, each activated after the other; the oldest first."""
    made = []
    for each in range(number):
        await ready(world, "a", f"text {each}", content=f"v{each}")
        plan, _ = await world.release()
        made.append(plan.release_id)
    return made


async def states(world: World) -> dict[str, ReleaseState]:
    return {r.release_id: r.state for r in await world.catalog.releases("acme", "handbook")}


async def test_a_retired_release_is_reclaimed_when_nobody_can_want_it(world: World) -> None:
    """Not within the window, and never among the newest that a rollback may go to."""
    first, second, third, active = await releases(world, 4)
    assert await reclaimed(world) == []
    world.clock.advance(WINDOW_S - 3)
    assert await reclaimed(world) == [first]
    world.clock.advance(10)
    assert set(await reclaimed(world)) == {second}
    assert await states(world) == {
        active: ReleaseState.ACTIVE,
        third: ReleaseState.RETIRED,
        second: ReleaseState.RECLAIMED,
        first: ReleaseState.RECLAIMED,
    }
    await world.catalog.roll_back("acme", "handbook")
    assert (await states(world))[third] is ReleaseState.ACTIVE
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook")


async def test_a_release_gone_back_from_is_no_way_back_and_only_waits(world: World) -> None:
    """It doesn't count among those that stay however old they are."""
    first, second = await releases(world, 2)
    await world.catalog.roll_back("acme", "handbook")
    world.clock.advance(WINDOW_S + 1)
    assert await reclaimed(world) == [second]
    assert (await states(world))[first] is ReleaseState.ACTIVE


async def test_a_release_that_nobody_activated_is_reclaimed_after_the_same_time(world: World) -> None:
    """From its build on."""
    await ready(world, "a", "one")
    plan = await world.ready_release()
    assert await reclaimed(world) == []
    world.clock.advance(WINDOW_S + 1)
    assert await reclaimed(world) == [plan.release_id]
    assert await states(world) == {plan.release_id: ReleaseState.RECLAIMED}


async def test_a_failed_build_is_reclaimed_at_once(world: World) -> None:
    """Its rows are nobody's."""
    await ready(world, "a", "one")
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0
    await world.catalog.finish(claim, Ending(TaskState.FAILED, "internal_error", "x"))
    assert await reclaimed(world) == [plan.release_id]


async def test_a_reclaimed_revision_is_swept_again_while_somebody_may_write_into_it(world: World) -> None:
    """By somebody who was frozen: now and then until its afterlife is over, and once after that."""
    await ready(world, "a", "one")
    plan = await world.ready_release()
    await world.catalog.mark_reclaimed("acme", plan.release_id)
    assert await reclaimed(world) == [plan.release_id]
    world.clock.advance(AFTERLIFE_S / 8)
    assert await reclaimed(world) == []
    for _ in range(3):
        world.clock.advance(AFTERLIFE_S / 4)
        assert await reclaimed(world) == [plan.release_id]
    world.clock.advance(AFTERLIFE_S)
    assert await reclaimed(world) == [plan.release_id]
    world.clock.advance(AFTERLIFE_S * 10)
    assert await reclaimed(world) == []


async def test_each_knowledge_base_is_reclaimed_by_a_task_of_its_own(world: World) -> None:
    """Of any tenant, and with its own releases only."""
    plans = {}
    for tenant, kb in (("acme", "handbook"), ("acme", "wiki"), ("globex", "handbook")):
        await world.import_ready(upload("a"), kb=kb, tenant=tenant)
        plans[tenant, kb] = await world.ready_release(kb, tenant)
    world.clock.advance(WINDOW_S + 1)
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 3
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0
    dropped = set()
    for _ in plans:
        claim = await claimed(world, TaskKind.RECLAIM)
        [revision] = await world.catalog.begin_reclaim(claim, POLICY)
        assert next(p for p in plans.values() if p.release_id == revision.release_id).kb_id == claim.kb_id
        dropped.add(revision.release_id)
        await done(world, claim)
    assert dropped == {plan.release_id for plan in plans.values()}


async def test_a_clean_up_that_was_lost_is_scheduled_again(world: World) -> None:
    """Whether it was cancelled or the version was built after it; until nothing is left to clean."""
    ref = await ready(world, "a", "one")
    task_id = await world.catalog.delete_document("acme", ref.document_id)
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0
    assert await world.catalog.request_cancel("acme", str(task_id))
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 1
    claim = await claimed(world, TaskKind.CLEANUP)
    assert claim.target == ref.document_id
    await world.catalog.erase(claim, [ref.document_version])
    await done(world, claim)
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0


async def test_one_of_many_sweeps_the_object_store(world: World) -> None:
    """Once in the time between two sweeps."""
    assert await world.catalog.claim_sweep(100.0)
    assert not await world.catalog.claim_sweep(100.0)
    world.clock.advance(101)
    assert await world.catalog.claim_sweep(100.0)


async def test_a_reclaim_that_lost_its_claim_changes_nothing(world: World) -> None:
    """Somebody else does it now."""
    await ready(world, "a", "one")
    plan = await world.ready_release()
    world.clock.advance(WINDOW_S + 1)
    await world.catalog.schedule_reclaims(POLICY, 3600.0)
    claim = await claimed(world, TaskKind.RECLAIM)
    await world.catalog.release_claim(claim)
    with pytest.raises(StaleFence):
        await world.catalog.begin_reclaim(claim, POLICY)
    assert await states(world) == {plan.release_id: ReleaseState.READY}
    with pytest.raises(NotFound):
        await world.catalog.mark_reclaimed("globex", plan.release_id)
