"""Contract of ReleaseStore and ReleaseCatalog: snapshot, activation, rollback, reclaim."""

from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.errors import (
    Conflict,
    IllegalTransition,
    InvalidField,
    KnowledgeBaseNotFound,
    NotFound,
    ReleaseConflict,
    StaleFence,
)
from gateway.ingest.plan import Activation, PlannedDocument, ReleasePlan
from gateway.ingest.task import Ending, TaskClaim, TaskState
from gateway.release.model import (
    RELEASE_TRANSITIONS,
    EmbeddingSpace,
    ReleaseRecord,
    ReleaseState,
    RetrievalConfig,
    RetrievalRelease,
    VersionState,
)
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, HOSTILE_NAMES, PUBLIC, SALES, SPACE, World, built, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

#: how a worker takes a release into each state it may reach
PATHS: dict[ReleaseState, tuple[ReleaseState, ...]] = {
    ReleaseState.BUILDING: (),
    ReleaseState.VALIDATING: (ReleaseState.VALIDATING,),
    ReleaseState.READY: (ReleaseState.VALIDATING, ReleaseState.READY),
    ReleaseState.FAILED: (ReleaseState.FAILED,),
}


async def _begun(world: World) -> tuple[TaskClaim, ReleasePlan]:
    claim = await world.release_claim()
    return claim, await world.catalog.begin_release(claim, SPACE, CONFIG)


async def _record(world: World, release_id: str) -> ReleaseRecord:
    record = await world.catalog.release("acme", release_id)
    assert record is not None
    return record


async def _active_id(world: World) -> str | None:
    release = await world.catalog.active("acme", await world.kb_id())
    return None if release is None else release.release_id


def _refs(plan: ReleasePlan) -> set[DocumentRef]:
    return {document.ref for document in plan.documents}


async def test_a_release_begins_as_a_snapshot_of_what_is_ready(world: World) -> None:
    """Every field a chunk needs is in the plan; the record says BUILDING."""
    document = upload("a", acl=SALES, category="faq", valid_from=1, valid_until=2, sensitivity=3)
    [ref] = await world.import_ready(document)
    claim, plan = await _begun(world)
    manifest = built(ref, f"passage of {document.original_key}").manifest
    assert plan.documents == (
        PlannedDocument(
            ref=ref,
            source="a",
            media_type="text/plain",
            original_key=document.original_key,
            title="A title",
            uri="file:a",
            category="faq",
            valid_from=1,
            valid_until=2,
            sensitivity=3,
            author="an author",
            approval="unreviewed",
            risk=("external", "unreviewed"),
            acl_class=1,
            parser_version="parser/1",
            splitter_version="splitter/1",
            chunks_key=f"chunks/{ref.document_id}/1",
            manifest=manifest,
        ),
    )
    assert (plan.tenant, plan.kb_id, plan.knowledge_base) == ("acme", await world.kb_id(), "handbook")
    assert (plan.base_sequence, plan.unchanged_release) == (0, None)
    assert (plan.space, plan.config) == (SPACE, CONFIG)
    assert plan.revocation_epoch == await world.epoch()
    assert await _record(world, plan.release_id) == ReleaseRecord(
        release_id=plan.release_id,
        tenant="acme",
        kb_id=plan.kb_id,
        knowledge_base="handbook",
        kb_revision=plan.kb_revision,
        state=ReleaseState.BUILDING,
        sequence=None,
        base_sequence=0,
        space_id=SPACE.space_id,
        config=CONFIG,
        manifest_hash=plan.manifest_hash,
        documents=1,
        chunks=1,
        created_at=world.clock(),
        activated_at=None,
        error=None,
    )
    task = await world.catalog.task("acme", claim.task_id)
    assert task is not None
    assert task.release_id == plan.release_id


async def test_a_snapshot_takes_the_newest_ready_version_of_each_document(world: World) -> None:
    """A newer one that failed or isn't built yet changes nothing."""
    await world.import_ready(upload("a", "one"))
    [newest] = await world.import_ready(upload("a", "two"))
    [other] = await world.import_ready(upload("b"))
    await world.import_ready(upload("a"), kb="wiki")
    await world.import_ready(upload("a"), tenant="globex")
    accepted = await world.accept(upload("a", "three"), upload("b", "broken"), upload("c", "never built"))
    claim = await world.claim()
    broken = DocumentRef(accepted.documents[1].document_id, 2)
    await world.catalog.fail_version(claim, broken, "corrupt", "its structure is damaged")
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    assert _refs(plan) == {newest, other}


async def test_a_snapshot_leaves_out_deleted_and_revoked_documents(world: World) -> None:
    """Lifting the revocation brings a document back, nothing brings a deletion back."""
    deleted, revoked, kept = await world.import_ready(upload("a"), upload("b"), upload("c"))
    await world.catalog.delete_document("acme", deleted.document_id)
    record = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, revoked.document_id, "x", "olga")
    assert _refs(await world.ready_release()) == {kept}
    await world.catalog.lift("acme", record.revocation_id)
    assert _refs(await world.ready_release()) == {revoked, kept}


async def test_a_snapshot_leaves_out_withdrawn_versions_and_falls_back_to_older_ones(world: World) -> None:
    """After a rollback the next build starts from what the rollback left."""
    [old] = await world.import_ready(upload("a", "one"))
    await world.release()
    await world.import_ready(upload("a", "two"), upload("b"))
    await world.release()
    await world.catalog.roll_back("acme", "handbook")
    [new] = await world.import_ready(upload("c"))
    _, plan = await _begun(world)
    assert _refs(plan) == {old, new}


async def test_a_snapshot_carries_the_documents_current_class(world: World) -> None:
    """Which an import still in the making has changed already."""
    await world.import_ready(upload("a", "one", acl=PUBLIC))
    await world.accept(upload("a", "two", acl=SALES))
    plan = await world.catalog.begin_release(await world.claim(), SPACE, CONFIG)
    assert [(d.ref.document_version, d.acl_class) for d in plan.documents] == [(1, 2)]


async def test_an_empty_knowledge_base_makes_an_empty_plan(world: World) -> None:
    """What to do with it is the builder's decision."""
    await world.accept(upload("a"))
    plan = await world.catalog.begin_release(await world.claim(), SPACE, CONFIG)
    assert plan.documents == ()
    assert (await _record(world, plan.release_id)).chunks == 0


async def test_a_plan_does_not_follow_later_imports(world: World) -> None:
    """What is activated is what was validated."""
    [ref] = await world.import_ready(upload("a", "one"))
    plan = await world.ready_release()
    await world.import_ready(upload("a", "two"), upload("b"))
    await world.catalog.activate("acme", plan.release_id, None)
    record = await _record(world, plan.release_id)
    assert (record.documents, record.chunks) == (1, 1)
    assert _refs(plan) == {ref}


async def test_beginning_again_fails_the_unfinished_release_of_the_same_task(world: World) -> None:
    """A takeover builds under a revision of its own."""
    await world.import_ready(upload("a"))
    claim, first = await _begun(world)
    await world.catalog.advance_release(claim, first.release_id, ReleaseState.VALIDATING)
    world.clock.advance(30)
    taken = await world.claim()
    assert taken.release_id == first.release_id
    second = await world.catalog.begin_release(taken, SPACE, CONFIG)
    assert second.kb_revision != first.kb_revision
    assert (await _record(world, first.release_id)).state is ReleaseState.FAILED
    assert (await _record(world, second.release_id)).state is ReleaseState.BUILDING
    task = await world.catalog.task("acme", claim.task_id)
    assert task is not None
    assert task.release_id == second.release_id


async def test_beginning_again_leaves_other_tasks_releases_alone(world: World) -> None:
    """Finished or not, they are not this task's to fail."""
    await world.import_ready(upload("a"))
    await world.import_ready(upload("a"), kb="wiki")
    elsewhere = await world.catalog.begin_release(await world.release_claim("wiki"), SPACE, CONFIG)
    ready = await world.ready_release()
    await _begun(world)
    assert (await _record(world, elsewhere.release_id)).state is ReleaseState.BUILDING
    assert (await _record(world, ready.release_id)).state is ReleaseState.READY


@pytest.mark.parametrize("ended", [TaskState.FAILED, TaskState.CANCELLED])
async def test_a_task_that_did_not_succeed_leaves_no_release_in_the_making(
    world: World, ended: TaskState
) -> None:
    """So that its rows can be swept; what was READY already stays."""
    await world.import_ready(upload("a"))
    claim, finished = await _begun(world)
    for state in PATHS[ReleaseState.READY]:
        await world.catalog.advance_release(claim, finished.release_id, state)
    unfinished = await world.catalog.begin_release(claim, SPACE, CONFIG)
    await world.catalog.finish(claim, Ending(ended, "a_code", "a detail"))
    assert (await _record(world, unfinished.release_id)).state is ReleaseState.FAILED
    assert (await _record(world, finished.release_id)).state is ReleaseState.READY


async def test_an_abandoned_task_leaves_no_release_in_the_making(world: World) -> None:
    """Its worker is gone, and nobody may try again."""
    await world.import_ready(upload("a"))
    _, plan = await _begun(world)
    world.clock.advance(8 * 86_400)
    assert await world.catalog.claim("worker", 30, 5) is None
    assert (await _record(world, plan.release_id)).state is ReleaseState.FAILED


async def test_a_release_task_knows_its_release_before_it_begins(world: World) -> None:
    """Whoever asked for it can be told at once; it exists only when building begins."""
    await world.import_ready(upload("a"))
    accepted = await world.catalog.accept_release("acme", "handbook", 60)
    task = await world.catalog.task("acme", accepted.task_id)
    assert task is not None
    assert task.release_id is not None
    assert accepted.release_id == task.release_id
    assert await world.catalog.release("acme", task.release_id) is None
    claim = await world.claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    assert plan.release_id == task.release_id
    assert (await world.catalog.begin_release(claim, SPACE, CONFIG)).release_id != plan.release_id


async def test_an_id_of_a_space_never_names_another_space(world: World) -> None:
    """Not even one of the same dimension: their vectors can't be compared."""
    await world.import_ready(upload("a"))
    claim, plan = await _begun(world)
    for changed in (
        replace(SPACE, model="another-model"),
        replace(SPACE, dimension=9),
        replace(SPACE, text_form="another/1"),
    ):
        with pytest.raises(Conflict):
            await world.catalog.begin_release(claim, changed, CONFIG)
    assert (await _record(world, plan.release_id)).state is ReleaseState.BUILDING


async def test_the_manifest_hash_covers_chunks_and_classes(world: World) -> None:
    """Equal content gives an equal hash; another document, version or class gives another."""
    await world.import_ready(upload("a", "one"))
    hashes = [(await world.ready_release()).manifest_hash for _ in range(2)]
    await world.import_ready(upload("b", "two"))
    hashes.append((await world.ready_release()).manifest_hash)
    await world.import_ready(upload("a", "three"))
    hashes.append((await world.ready_release()).manifest_hash)
    await world.import_ready(upload("a", "three", acl=SALES))
    hashes.append((await world.ready_release()).manifest_hash)
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 4


async def test_an_unchanged_manifest_names_the_active_release(world: World) -> None:
    """Then nothing is built. Only the active release counts, in its own space, with its own config."""
    await world.import_ready(upload("a"))
    idle = await world.ready_release()
    claim, plan = await _begun(world)
    assert plan.unchanged_release is None
    await world.catalog.finish(claim, Ending(TaskState.CANCELLED))
    await world.catalog.activate("acme", idle.release_id, None)
    claim, plan = await _begun(world)
    assert plan.unchanged_release == idle.release_id
    assert await world.catalog.release("acme", plan.release_id) is None
    task = await world.catalog.task("acme", claim.task_id)
    assert task is not None
    assert task.release_id == idle.release_id
    other_space = EmbeddingSpace("another-space", "another-model", 8)
    assert (await world.catalog.begin_release(claim, other_space, CONFIG)).unchanged_release is None
    for changed in (replace(CONFIG, version="config/2"), replace(CONFIG, bias=0.75)):
        assert (await world.catalog.begin_release(claim, SPACE, changed)).unchanged_release is None
    assert (await world.catalog.begin_release(claim, SPACE, CONFIG)).unchanged_release == idle.release_id
    await world.catalog.finish(claim, Ending(TaskState.CANCELLED))
    await world.import_ready(upload("b"))
    claim, plan = await _begun(world)
    assert plan.unchanged_release is None


@pytest.mark.parametrize("after", list(ReleaseState))
@pytest.mark.parametrize("before", PATHS)
async def test_a_builder_moves_a_release_only_as_the_table_allows(
    world: World, before: ReleaseState, after: ReleaseState
) -> None:
    """Staying is a replay; going live, retiring and reclaiming have methods of their own."""
    await world.import_ready(upload("a"))
    claim, plan = await _begun(world)
    for state in PATHS[before]:
        await world.catalog.advance_release(claim, plan.release_id, state)
    allowed = RELEASE_TRANSITIONS[before] - {ReleaseState.ACTIVE, ReleaseState.RECLAIMED}
    if after in allowed | {before}:
        await world.catalog.advance_release(claim, plan.release_id, after)
        assert (await _record(world, plan.release_id)).state is after
    else:
        with pytest.raises(IllegalTransition):
            await world.catalog.advance_release(claim, plan.release_id, after)
        assert (await _record(world, plan.release_id)).state is before
    assert await _active_id(world) is None


async def test_a_failed_release_says_why(world: World) -> None:
    """For the operator; a barrier is kept with what passed."""
    await world.import_ready(upload("a"))
    claim, plan = await _begun(world)
    barrier = {"consistency": "Strong", "rows": 1, "samples": ["a"]}
    await world.catalog.advance_release(claim, plan.release_id, ReleaseState.VALIDATING, barrier=barrier)
    await world.catalog.advance_release(claim, plan.release_id, ReleaseState.FAILED, error="rows are missing")
    record = await _record(world, plan.release_id)
    assert (record.state, record.error) == (ReleaseState.FAILED, "rows are missing")


async def test_a_claim_reaches_only_the_releases_of_its_own_task(world: World) -> None:
    """Another task's, another tenant's and an unknown one look missing."""
    await world.import_ready(upload("a"))
    await world.import_ready(upload("a"), tenant="globex")
    claim, earlier = await _begun(world)
    await world.catalog.finish(claim, Ending(TaskState.FAILED, "x", "y"))
    foreign = await world.catalog.begin_release(await world.release_claim(tenant="globex"), SPACE, CONFIG)
    claim, _ = await _begun(world)
    for release_id in (earlier.release_id, foreign.release_id, "no-such-id"):
        with pytest.raises(NotFound):
            await world.catalog.advance_release(claim, release_id, ReleaseState.VALIDATING)
    record = await world.catalog.release("globex", foreign.release_id)
    assert record is not None
    assert record.state is ReleaseState.BUILDING


async def test_nothing_is_active_before_the_first_activation(world: World) -> None:
    """Not even a READY release."""
    assert await world.catalog.active("acme", "no-such-id") is None
    await world.import_ready(upload("a"))
    await world.ready_release()
    assert await _active_id(world) is None


async def test_an_activated_release_is_what_requests_bind(world: World) -> None:
    """With the space and configuration it was built with."""
    await world.import_ready(upload("a"))
    config = RetrievalConfig("config/2", 0.1, 0.2, 0.3, 0.4)
    space = EmbeddingSpace("räum/1 🙂", "a model", 256, "form/2")
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, space, config)
    for state in PATHS[ReleaseState.READY]:
        await world.catalog.advance_release(claim, plan.release_id, state)
    world.clock.advance(5.5)
    activation = await world.catalog.activate("acme", plan.release_id, None)
    assert activation == Activation("handbook", plan.kb_revision, 1)
    assert await world.catalog.active("acme", plan.kb_id) == RetrievalRelease(
        release_id=plan.release_id,
        tenant="acme",
        kb_id=plan.kb_id,
        knowledge_base="handbook",
        kb_revision=plan.kb_revision,
        sequence=1,
        space=space,
        collection=space.collection,
        config=config,
    )
    record = await _record(world, plan.release_id)
    assert (record.state, record.sequence) == (ReleaseState.ACTIVE, 1)
    assert record.activated_at == world.clock()


async def test_a_foreign_release_looks_missing(world: World) -> None:
    """To read, bind, list, activate, roll back and reclaim."""
    await world.import_ready(upload("a"))
    live, _ = await world.release()
    await world.import_ready(upload("b"))
    plan = await world.ready_release()
    kb_id = await world.kb_id()
    assert await world.catalog.active("globex", kb_id) is None
    assert await world.catalog.active("acme", "handbook") is None
    assert await world.catalog.release("globex", plan.release_id) is None
    assert await world.catalog.release("acme", "no-such-id") is None
    assert await world.catalog.releases("globex", "handbook") == []
    assert await world.catalog.releases("acme", "wiki") == []
    for tenant, release_id in (("globex", plan.release_id), ("acme", "no-such-id")):
        with pytest.raises(NotFound):
            await world.catalog.activate(tenant, release_id, None)
        with pytest.raises(NotFound):
            await world.catalog.mark_reclaimed(tenant, release_id)
    for tenant, kb in (("globex", "handbook"), ("acme", "wiki")):
        with pytest.raises(KnowledgeBaseNotFound):
            await world.catalog.roll_back(tenant, kb)
    assert await _active_id(world) == live.release_id
    assert (await _record(world, plan.release_id)).state is ReleaseState.READY


async def test_activating_retires_the_release_before_it(world: World) -> None:
    """In one step, under the next sequence; releases are listed newest first."""
    await world.import_ready(upload("a"))
    first, _ = await world.release()
    await world.import_ready(upload("b"))
    second, activation = await world.release()
    assert activation.release_sequence == 2
    records = await world.catalog.releases("acme", "handbook")
    assert [(r.release_id, r.state, r.sequence) for r in records] == [
        (second.release_id, ReleaseState.ACTIVE, 2),
        (first.release_id, ReleaseState.RETIRED, 1),
    ]


async def test_knowledge_bases_have_sequences_of_their_own(world: World) -> None:
    """Activating in one leaves the other's release alone."""
    await world.import_ready(upload("a"))
    live, _ = await world.release()
    await world.import_ready(upload("a"), kb="wiki")
    _, activation = await world.release(kb="wiki")
    assert activation.release_sequence == 1
    assert await _active_id(world) == live.release_id


async def test_activating_the_active_release_is_a_no_op(world: World) -> None:
    """A replay gets the same answer and moves nothing."""
    await world.import_ready(upload("a"))
    plan, activation = await world.release()
    before = await _record(world, plan.release_id)
    world.clock.advance(60)
    assert await world.catalog.activate("acme", plan.release_id, None) == activation
    assert await _record(world, plan.release_id) == before


async def test_the_slower_of_two_builds_loses(world: World) -> None:
    """Both began on the same sequence; who comes second is refused, in either order."""
    await world.import_ready(upload("a", "one"))
    slow = await world.ready_release()
    await world.import_ready(upload("a", "two"))
    fast = await world.ready_release()
    assert slow.base_sequence == fast.base_sequence == 0
    await world.catalog.activate("acme", fast.release_id, None)
    with pytest.raises(ReleaseConflict):
        await world.catalog.activate("acme", slow.release_id, None)
    assert await _active_id(world) == fast.release_id
    assert (await _record(world, slow.release_id)).state is ReleaseState.READY
    _, later = await _begun(world)
    assert later.base_sequence == 1


async def test_an_operator_may_choose_the_slower_build_by_naming_the_sequence(world: World) -> None:
    """Having seen what is active now; its documents must still be as they were."""
    [ref] = await world.import_ready(upload("a", "one"))
    slow = await world.ready_release()
    await world.import_ready(upload("a", "two"))
    await world.release()
    activation = await world.catalog.activate("acme", slow.release_id, 1)
    assert activation == Activation("handbook", slow.kb_revision, 2)
    assert _refs(slow) == {ref}


async def test_a_worker_that_lost_its_task_activates_nothing(world: World) -> None:
    """With its claim an activation is fenced like every other write; an operator's has no claim."""
    await world.import_ready(upload("a.md"))
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    for state in (ReleaseState.VALIDATING, ReleaseState.READY):
        await world.catalog.advance_release(claim, plan.release_id, state)
    world.clock.advance(31)
    taken_over = await world.claim()
    with pytest.raises(StaleFence):
        await world.catalog.activate("acme", plan.release_id, None, claim)
    assert await world.catalog.active("acme", plan.kb_id) is None
    activation = await world.catalog.activate("acme", plan.release_id, None, taken_over)
    assert activation.release_sequence == 1


async def test_activation_can_demand_a_sequence(world: World) -> None:
    """An operator who saw another state is refused, and nothing moves."""
    await world.import_ready(upload("a"))
    plan = await world.ready_release()
    for wrong in (1, -1, 7):
        with pytest.raises(ReleaseConflict):
            await world.catalog.activate("acme", plan.release_id, wrong)
    assert await _active_id(world) is None
    activation = await world.catalog.activate("acme", plan.release_id, 0)
    assert activation.release_sequence == 1


@pytest.mark.parametrize("state", [ReleaseState.BUILDING, ReleaseState.VALIDATING, ReleaseState.FAILED])
async def test_only_a_ready_release_can_be_activated(world: World, state: ReleaseState) -> None:
    """Whatever sequence is named."""
    await world.import_ready(upload("a"))
    claim, plan = await _begun(world)
    for step in PATHS[state]:
        await world.catalog.advance_release(claim, plan.release_id, step)
    for sequence in (None, 0):
        with pytest.raises(IllegalTransition):
            await world.catalog.activate("acme", plan.release_id, sequence)
    assert (await _record(world, plan.release_id)).state is state


async def test_a_retired_release_comes_back_by_rollback_only(world: World) -> None:
    """Its sequence has passed."""
    await world.import_ready(upload("a"))
    first, _ = await world.release()
    await world.import_ready(upload("b"))
    second, _ = await world.release()
    for sequence in (None, 2):
        with pytest.raises(ReleaseConflict):
            await world.catalog.activate("acme", first.release_id, sequence)
    assert await _active_id(world) == second.release_id


@pytest.mark.parametrize("change", ["delete", "revoke", "another acl", "delete and import again"])
async def test_a_release_whose_documents_changed_is_refused(world: World, change: str) -> None:
    """Between validation and activation nothing may have narrowed; the active release stays."""
    kept, ref = await world.import_ready(upload("a"), upload("b", "one"))
    live, _ = await world.release()
    await world.import_ready(upload("c"))
    plan = await world.ready_release()
    if change == "revoke":
        await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "x", "olga")
    elif change == "another acl":
        await world.accept(upload("b", "one", acl=SALES))
    else:
        await world.catalog.delete_document("acme", ref.document_id)
        if change == "delete and import again":
            await world.accept(upload("b", "one"))
    for sequence in (None, 1):
        with pytest.raises(ReleaseConflict):
            await world.catalog.activate("acme", plan.release_id, sequence)
    assert await _active_id(world) == live.release_id
    assert kept in _refs(plan)


async def test_a_release_survives_imports_that_change_no_permission(world: World) -> None:
    """A newer text under the same ACL waits for the next release."""
    await world.import_ready(upload("a", "one"))
    plan = await world.ready_release()
    await world.import_ready(upload("a", "two"), upload("b", acl=SALES))
    activation = await world.catalog.activate("acme", plan.release_id, None)
    assert activation.knowledge_revision == plan.kb_revision


async def test_a_lifted_revocation_no_longer_blocks_activation(world: World) -> None:
    """The release is judged by what is in force."""
    [ref] = await world.import_ready(upload("a"))
    plan = await world.ready_release()
    record = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "x", "olga")
    with pytest.raises(ReleaseConflict):
        await world.catalog.activate("acme", plan.release_id, None)
    await world.catalog.lift("acme", record.revocation_id)
    await world.catalog.activate("acme", plan.release_id, None)
    assert await _active_id(world) == plan.release_id


async def test_a_rollback_goes_to_the_release_before_under_a_higher_sequence(world: World) -> None:
    """The one rolled back from is retired."""
    await world.import_ready(upload("a"))
    first, _ = await world.release()
    await world.import_ready(upload("b"))
    second, _ = await world.release()
    world.clock.advance(10)
    activation = await world.catalog.roll_back("acme", "handbook")
    assert activation == Activation("handbook", first.kb_revision, 3)
    release = await world.catalog.active("acme", await world.kb_id())
    assert release is not None
    assert (release.release_id, release.sequence) == (first.release_id, 3)
    before, now = await _record(world, second.release_id), await _record(world, first.release_id)
    assert (before.state, now.state, now.sequence) == (ReleaseState.RETIRED, ReleaseState.ACTIVE, 3)
    assert now.activated_at == world.clock()


async def test_a_rollback_goes_to_the_most_recently_retired_release(world: World) -> None:
    """Which isn't the oldest, nor the one built last."""
    await world.import_ready(upload("a"))
    plans = []
    for source in ("b", "c", "d"):
        await world.import_ready(upload(source))
        plans.append((await world.release())[0])
    await world.import_ready(upload("e"))
    await world.ready_release()
    activation = await world.catalog.roll_back("acme", "handbook")
    assert activation.knowledge_revision == plans[1].kb_revision


async def test_a_rollback_without_an_earlier_release_is_refused(world: World) -> None:
    """READY and reclaimed ones don't count."""
    await world.import_ready(upload("a"))
    await world.ready_release()
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook")
    first, _ = await world.release()
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook")
    await world.import_ready(upload("b"))
    second, _ = await world.release()
    await world.catalog.mark_reclaimed("acme", first.release_id)
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook")
    assert await _active_id(world) == second.release_id


async def test_a_rollback_withdraws_what_is_newer_than_its_snapshot(world: World) -> None:
    """Newer versions and newer documents alike; what it holds stays readable."""
    [old, same] = await world.import_ready(upload("a", "one"), upload("b"))
    await world.release()
    [newer, added] = await world.import_ready(upload("a", "two"), upload("c"))
    await world.release()
    [waiting] = await world.import_ready(upload("d"))
    await world.catalog.roll_back("acme", "handbook")
    expected = {old: False, same: False, newer: True, added: True, waiting: True}
    standings = await world.catalog.standings("acme", await world.kb_id(), list(expected))
    assert {ref: standing.withdrawn for ref, standing in standings.items()} == expected


async def test_a_rollback_does_not_withdraw_what_its_snapshot_left_out(world: World) -> None:
    """A version that was READY before, but revoked at that moment, isn't newer than the snapshot."""
    revoked, _ = await world.import_ready(upload("a"), upload("b"))
    record = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, revoked.document_id, "x", "olga")
    await world.release()
    await world.import_ready(upload("c"))
    await world.release()
    await world.catalog.lift("acme", record.revocation_id)
    await world.catalog.roll_back("acme", "handbook")
    standing = await world.standing(revoked)
    assert standing is not None
    assert not standing.withdrawn


async def test_a_rollback_leaves_versions_in_the_making_and_other_knowledge_bases_alone(
    world: World,
) -> None:
    """An import that ends after it counts as newer knowledge."""
    await world.import_ready(upload("a", "one"))
    await world.release()
    await world.import_ready(upload("b"))
    await world.release()
    [elsewhere] = await world.import_ready(upload("a"), kb="wiki")
    accepted = await world.accept(upload("a", "in the making"))
    claim = await world.claim()
    ref = DocumentRef(accepted.documents[0].document_id, 2)
    await world.catalog.advance_versions(claim, [ref], VersionState.BUILDING)
    await world.catalog.roll_back("acme", "handbook")
    await world.build_versions(claim)
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    assert _refs(plan) == {ref}
    standing = await world.standing(elsewhere, "wiki")
    assert standing is not None
    assert not standing.withdrawn


async def test_a_rollback_brings_no_deletion_revocation_or_narrowing_back(world: World) -> None:
    """Permissions only ever follow the catalog's present word."""
    deleted, revoked, narrowed = await world.import_ready(
        upload("a"), upload("b"), upload("c", "one", acl=PUBLIC)
    )
    await world.release()
    await world.import_ready(upload("c", "two", acl=SALES))
    await world.release()
    await world.catalog.delete_document("acme", deleted.document_id)
    await world.catalog.revoke("acme", RevocationKind.DOCUMENT, revoked.document_id, "x", "olga")
    await world.catalog.roll_back("acme", "handbook")
    standings = await world.catalog.standings("acme", await world.kb_id(), [deleted, revoked, narrowed])
    assert standings[deleted].deleted
    assert standings[revoked].revoked
    assert standings[narrowed].document_acl == SALES


async def test_a_build_begun_before_a_rollback_loses(world: World) -> None:
    """Rolling back moves the sequence as well."""
    await world.import_ready(upload("a"))
    await world.release()
    await world.import_ready(upload("b"))
    await world.release()
    await world.import_ready(upload("c"))
    plan = await world.ready_release()
    await world.catalog.roll_back("acme", "handbook")
    for sequence in (None, 3):
        with pytest.raises(ReleaseConflict):
            await world.catalog.activate("acme", plan.release_id, sequence)


async def test_rolling_back_again_goes_further_back(world: World) -> None:
    """Never to a release just rolled back from, whose newer versions are withdrawn, nor beyond the first."""
    plans = []
    for source in ("a", "b", "c"):
        await world.import_ready(upload(source))
        plans.append((await world.release())[0])
    for earlier, sequence in ((plans[1], 4), (plans[0], 5)):
        activation = await world.catalog.roll_back("acme", "handbook")
        assert activation == Activation("handbook", earlier.kb_revision, sequence)
        refs = [document.ref for document in earlier.documents]
        standings = await world.catalog.standings("acme", await world.kb_id(), refs)
        assert [standing.withdrawn for standing in standings.values()] == [False] * len(refs)
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook")
    assert await _active_id(world) == plans[0].release_id


async def test_a_rollback_passes_over_releases_it_would_find_withdrawn(world: World) -> None:
    """An older build, activated late, takes the releases before it along when it is gone back to."""
    await world.import_ready(upload("a"))
    first, _ = await world.release()
    late = await world.ready_release(config=replace(CONFIG, version="config/2"))
    await world.import_ready(upload("b"))
    await world.release()
    await world.catalog.activate("acme", late.release_id, 2)
    await world.import_ready(upload("c"))
    await world.release()
    for earlier in (late, first):
        activation = await world.catalog.roll_back("acme", "handbook")
        assert activation.knowledge_revision == earlier.kb_revision
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook")


async def test_a_release_built_after_a_rollback_can_be_rolled_back(world: World) -> None:
    """To where the rollback had gone."""
    await world.import_ready(upload("a"))
    first, _ = await world.release()
    await world.import_ready(upload("b"))
    await world.release()
    await world.catalog.roll_back("acme", "handbook")
    await world.import_ready(upload("c"))
    await world.release()
    activation = await world.catalog.roll_back("acme", "handbook")
    assert activation == Activation("handbook", first.kb_revision, 5)


async def test_a_deletion_stands_in_the_way_of_no_rollback(world: World) -> None:
    """Deleted documents stay hidden in the release gone back to, imported again or not."""
    deleted, again = await world.import_ready(upload("a"), upload("b"))
    first, _ = await world.release()
    await world.import_ready(upload("c"))
    await world.release()
    for ref in (deleted, again):
        await world.catalog.delete_document("acme", ref.document_id)
    await world.import_ready(upload("b"))
    activation = await world.catalog.roll_back("acme", "handbook")
    assert activation.knowledge_revision == first.kb_revision


async def test_a_rollback_can_demand_a_sequence(world: World) -> None:
    """So a retry after a lost answer is refused, and nothing moves."""
    await world.import_ready(upload("a"))
    first, _ = await world.release()
    await world.import_ready(upload("b"))
    second, _ = await world.release()
    for wrong in (0, 1, 3, -1):
        with pytest.raises(ReleaseConflict):
            await world.catalog.roll_back("acme", "handbook", wrong)
    assert await _active_id(world) == second.release_id
    activation = await world.catalog.roll_back("acme", "handbook", 2)
    assert activation == Activation("handbook", first.kb_revision, 3)
    epoch = await world.epoch()
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook", 2)
    assert await _active_id(world) == first.release_id
    assert await world.epoch() == epoch


async def test_a_rollback_raises_the_tenants_epoch(world: World) -> None:
    """Running requests notice that versions were withdrawn; a refused one and other tenants don't."""
    await world.import_ready(upload("a"), tenant="globex")
    await world.import_ready(upload("a"))
    await world.release()
    before, foreign = await world.epoch(), await world.epoch("globex")
    with pytest.raises(ReleaseConflict):
        await world.catalog.roll_back("acme", "handbook")
    await world.import_ready(upload("b"))
    await world.release()
    assert await world.epoch() == before
    await world.catalog.roll_back("acme", "handbook")
    assert (await world.epoch(), await world.epoch("globex")) == (before + 1, foreign)


async def test_releases_that_nobody_reads_can_be_reclaimed(world: World) -> None:
    """READY, RETIRED and FAILED ones."""
    await world.import_ready(upload("a"))
    retired, _ = await world.release()
    await world.import_ready(upload("b"))
    await world.release()
    await world.import_ready(upload("c"))
    ready = await world.ready_release()
    claim, failed = await _begun(world)
    await world.catalog.advance_release(claim, failed.release_id, ReleaseState.FAILED)
    for plan in (retired, ready, failed):
        await world.catalog.mark_reclaimed("acme", plan.release_id)
        assert (await _record(world, plan.release_id)).state is ReleaseState.RECLAIMED
        with pytest.raises(IllegalTransition):
            await world.catalog.activate("acme", plan.release_id, None)


async def test_active_and_unfinished_releases_cannot_be_reclaimed(world: World) -> None:
    """Somebody reads or writes them."""
    await world.import_ready(upload("a"))
    live, _ = await world.release()
    await world.import_ready(upload("b"))
    claim, plan = await _begun(world)
    for state in (None, ReleaseState.VALIDATING):
        if state is not None:
            await world.catalog.advance_release(claim, plan.release_id, state)
        for release_id in (plan.release_id, live.release_id):
            with pytest.raises(IllegalTransition):
                await world.catalog.mark_reclaimed("acme", release_id)
    assert await _active_id(world) == live.release_id


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_names_find_no_release(world: World, name: str) -> None:
    """And as a knowledge base they have one of their own."""
    await world.import_ready(upload("a"))
    await world.release()
    assert await world.catalog.releases("acme", name) == []
    assert await world.catalog.release("acme", name) is None
    assert await world.catalog.active("acme", name) is None
    with pytest.raises(NotFound):
        await world.catalog.activate("acme", name, None)
    with pytest.raises(NotFound):
        await world.catalog.mark_reclaimed("acme", name)
    with pytest.raises(KnowledgeBaseNotFound):
        await world.catalog.roll_back("acme", name)
    await world.import_ready(upload(name), kb=name)
    plan, activation = await world.release(kb=name)
    assert (activation.knowledge_base, activation.release_sequence) == (name, 1)
    assert len(await world.catalog.releases("acme", name)) == 1
    assert len(plan.documents) == 1


async def test_active_spaces_are_those_of_every_tenants_active_releases(world: World) -> None:
    """What the embedder of a process must be able to serve; ready and retired releases don't count."""
    assert await world.catalog.active_spaces() == frozenset()
    await world.import_ready(upload("a"))
    await world.ready_release()
    assert await world.catalog.active_spaces() == frozenset()
    for tenant in ("other", "third"):
        await world.import_ready(upload("a"), tenant=tenant)
        await world.release(tenant=tenant)
    assert await world.catalog.active_spaces() == {SPACE.space_id}


async def test_releases_come_in_pages_newest_first(world: World) -> None:
    """A newer one that arrives meanwhile moves nothing; a place in another list is none in this."""
    plans = []
    for text in "abcd":
        await world.import_ready(upload("a", text))
        plans.append(await world.ready_release())
    first = await world.catalog.releases("acme", "handbook", limit=2)
    await world.import_ready(upload("b"))
    await world.ready_release()
    second = await world.catalog.releases("acme", "handbook", limit=3, before=first[-1].release_id)
    ids = [release.release_id for release in (*first, *second)]
    assert ids == [plan.release_id for plan in reversed(plans)]
    assert await world.catalog.releases("acme", "handbook", before=ids[-1]) == []
    await world.import_ready(upload("c"), kb="wiki")
    elsewhere = await world.ready_release(kb="wiki")
    await world.import_ready(upload("c"), tenant="globex")
    foreign = await world.ready_release(tenant="globex")
    for before in (elsewhere.release_id, foreign.release_id, "no release", ""):
        with pytest.raises(InvalidField):
            await world.catalog.releases("acme", "handbook", limit=2, before=before)
