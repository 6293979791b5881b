"""Contract of TaskStore: accepting work, and the lease, fence, attempts and end of a task."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef
from gateway.errors import (
    Conflict,
    IdempotencyMismatch,
    IllegalTransition,
    KnowledgeBaseNotFound,
    StaleFence,
)
from gateway.ingest.task import CANCELLED, Ending, TaskClaim, TaskDocument, TaskKind, TaskRecord, TaskState
from gateway.ingest.uploads import NewDocument
from gateway.release.model import ReleaseState, VersionState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import (
    CONFIG,
    HOSTILE_NAMES,
    PUBLIC,
    SALES,
    SPACE,
    World,
    built,
    import_of,
    upload,
)

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _task(world: World, task_id: str, tenant: str = "acme") -> TaskRecord:
    task = await world.catalog.task(tenant, task_id)
    assert task is not None
    return task


async def test_an_accepted_import_is_a_pending_task_with_its_documents(world: World) -> None:
    """The answer names every upload in order, the task shows the same."""
    world.clock.now = 1_900_000_000.25
    accepted = await world.catalog.accept_import(import_of(upload("b"), upload("a")))
    assert [(d.source, d.document_version) for d in accepted.documents] == [("b", 1), ("a", 1)]
    task = await _task(world, accepted.task_id)
    assert (task.task_id, task.tenant, task.kind) == (accepted.task_id, "acme", TaskKind.IMPORT)
    assert task.state is TaskState.PENDING
    assert (task.error_code, task.error_detail, task.release_id) == (None, None, None)
    assert task.created_at == task.updated_at == 1_900_000_000.25
    assert task.documents == tuple(
        TaskDocument(d.document_id, d.document_version, d.source, "PENDING", None) for d in accepted.documents
    )


async def test_the_same_source_is_the_same_document(world: World) -> None:
    """Other bytes are its next version; another source, knowledge base or tenant is another document."""
    first = (await world.accept(upload("a", "one"))).documents[0]
    second = (await world.accept(upload("a", "two"))).documents[0]
    others = [
        (await world.accept(upload("b"))).documents[0],
        (await world.accept(upload("a"), kb="wiki")).documents[0],
        (await world.accept(upload("a"), tenant="globex")).documents[0],
    ]
    assert second.document_id == first.document_id
    assert (first.document_version, second.document_version) == (1, 2)
    assert len({first.document_id, *(other.document_id for other in others)}) == 4
    assert {other.document_version for other in others} == {1}


async def test_an_identical_import_returns_the_version_that_stands(world: World) -> None:
    """It isn't built again, and is still listed by the new task."""
    [ref] = await world.import_ready(upload("a"))
    again = await world.accept(upload("a"))
    assert again.documents[0].document_version == ref.document_version
    task = await _task(world, again.task_id)
    assert [(d.document_id, d.document_version, d.state) for d in task.documents] == [
        (ref.document_id, 1, "READY")
    ]
    assert await world.catalog.unfinished_versions(await world.claim()) == []


async def test_an_identical_import_is_recognised_wherever_its_original_was_put(world: World) -> None:
    """The hash names the bytes; the key of their place doesn't count."""
    await world.accept(upload("a"))
    moved = replace(upload("a"), original_key="originals/another-place")
    assert (await world.accept(moved)).documents[0].document_version == 1


@pytest.mark.parametrize(
    "change",
    [
        upload("a", "other bytes"),
        upload("a", acl=SALES),
        upload("a", category="faq"),
        upload("a", valid_from=1),
        upload("a", valid_until=1),
        upload("a", sensitivity=1),
        replace(upload("a"), uri="https://example.org/a"),
        replace(upload("a"), media_type="text/markdown"),
        replace(upload("a"), author="another author"),
        replace(upload("a"), approval="approved"),
        replace(upload("a"), risk=()),
    ],
    ids=lambda new: next((f for f in new.__slots__ if getattr(new, f) != getattr(upload("a"), f)), ""),
)
async def test_other_bytes_metadata_or_acl_are_a_new_version(world: World, change: NewDocument) -> None:
    """Each part of the fingerprint counts by itself."""
    await world.accept(upload("a"))
    assert (await world.accept(change)).documents[0].document_version == 2


async def test_going_back_to_an_older_text_is_a_new_version(world: World) -> None:
    """Only the newest version that stands is compared."""
    await world.import_ready(upload("a", "one"))
    await world.import_ready(upload("a", "two"))
    assert (await world.accept(upload("a", "one"))).documents[0].document_version == 3


async def test_a_failed_version_is_not_returned_for_identical_bytes(world: World) -> None:
    """Importing again is how a person tries again."""
    accepted = await world.accept(upload("a"))
    claim = await world.claim()
    ref = DocumentRef(accepted.documents[0].document_id, 1)
    await world.catalog.fail_version(claim, ref, "corrupt", "its structure is damaged")
    await world.catalog.finish(claim, Ending(TaskState.FAILED, "documents_failed", "1 of 1 failed"))
    assert (await world.accept(upload("a"))).documents[0].document_version == 2


async def test_a_withdrawn_version_is_not_returned_for_identical_bytes(world: World) -> None:
    """After a rollback, importing is how a text comes back."""
    await world.import_ready(upload("a", "one"))
    await world.release()
    await world.import_ready(upload("a", "two"))
    await world.release()
    await world.catalog.roll_back("acme", "handbook")
    assert (await world.accept(upload("a", "two"))).documents[0].document_version == 3


async def test_a_deleted_document_is_revived_by_its_next_import_as_a_new_version(world: World) -> None:
    """Even with identical bytes."""
    [ref] = await world.import_ready(upload("a"))
    await world.catalog.delete_document("acme", ref.document_id)
    accepted = (await world.accept(upload("a"))).documents[0]
    assert (accepted.document_id, accepted.document_version) == (ref.document_id, 2)
    assert [d.source for d in await world.catalog.documents("acme", "handbook")] == ["a"]


async def test_an_import_with_another_acl_makes_it_the_current_one(world: World) -> None:
    """Before the new version is built, and also when a standing version is returned."""
    accepted = await world.accept(upload("a", "one", acl=PUBLIC))
    document_id = accepted.documents[0].document_id
    await world.build_versions(claim := await world.claim())
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    await world.accept(upload("a", "two", acl=SALES))
    standing = await world.standing(DocumentRef(document_id, 1))
    assert standing is not None
    assert (standing.document_acl, standing.version_acl) == (SALES, PUBLIC)
    claim = await world.claim()
    await world.catalog.fail_version(claim, DocumentRef(document_id, 2), "blank", "no text")
    again = await world.accept(upload("a", "one", acl=PUBLIC))
    assert again.documents[0].document_version == 1
    standing = await world.standing(DocumentRef(document_id, 1))
    assert standing is not None
    assert standing.document_acl == PUBLIC


async def test_one_import_may_hold_a_source_twice(world: World) -> None:
    """Different bytes are two versions, identical ones a single version named twice."""
    accepted = await world.accept(upload("a", "one"), upload("a", "two"), upload("b"), upload("b"))
    assert [(d.source, d.document_version) for d in accepted.documents] == [
        ("a", 1),
        ("a", 2),
        ("b", 1),
        ("b", 1),
    ]
    jobs = await world.catalog.unfinished_versions(await world.claim())
    assert [(job.source, job.ref.document_version) for job in jobs] == [("a", 1), ("a", 2), ("b", 1)]


async def test_a_revoked_knowledge_base_takes_no_imports(world: World) -> None:
    """Nothing is written: no document, no task; lifting opens it again."""
    await world.accept(upload("a"))
    record = await world.catalog.revoke("acme", RevocationKind.KNOWLEDGE_BASE, "handbook", "x", "olga")
    with pytest.raises(Conflict):
        await world.accept(upload("b"))
    assert [d.source for d in await world.catalog.documents("acme", "handbook")] == ["a"]
    await world.accept(upload("b"), tenant="globex")
    await world.catalog.lift("acme", record.revocation_id)
    await world.accept(upload("b"))


async def test_an_idempotency_key_returns_the_stored_answer(world: World) -> None:
    """A replay makes no second task and no second version."""
    request = import_of(upload("a"), key="k", request_hash="h")
    first = await world.catalog.accept_import(request)
    assert await world.catalog.accept_import(request) == first
    await world.accept(upload("a", "newer"))
    assert await world.catalog.accept_import(request) == first
    await world.catalog.request_cancel("acme", first.task_id)
    assert (await world.claim()).task_id != first.task_id
    assert await world.catalog.claim("worker", 30, 5) is None


async def test_an_idempotency_key_refuses_another_request(world: World) -> None:
    """And writes nothing of it."""
    await world.catalog.accept_import(import_of(upload("a"), key="k", request_hash="h"))
    with pytest.raises(IdempotencyMismatch):
        await world.catalog.accept_import(import_of(upload("b"), kb="wiki", key="k", request_hash="other"))
    assert await world.catalog.documents("acme", "wiki") == []
    assert len((await world.catalog.tenant_stamp("acme")).knowledge_bases) == 1


async def test_idempotency_keys_of_two_tenants_are_two_keys(world: World) -> None:
    """The other tenant's answer is never given out."""
    first = await world.catalog.accept_import(import_of(upload("a"), key="k", request_hash="h"))
    second = await world.catalog.accept_import(
        import_of(upload("a"), key="k", request_hash="h", tenant="globex")
    )
    assert second.task_id != first.task_id
    assert second.documents[0].document_id != first.documents[0].document_id


async def test_idempotency_keys_of_two_people_are_two_keys(world: World) -> None:
    """A key that somebody else used, too, tells nothing about what they sent."""
    first = await world.catalog.accept_import(import_of(upload("a"), key="k", request_hash="h"))
    other = replace(import_of(upload("b"), key="k", request_hash="other"), subject="another importer")
    assert (await world.catalog.accept_import(other)).task_id != first.task_id


async def test_a_release_task_needs_a_knowledge_base_of_the_tenant(world: World) -> None:
    """A foreign one looks missing."""
    await world.accept(upload("a"))
    for tenant, kb in (("globex", "handbook"), ("acme", "wiki"), ("acme", "")):
        with pytest.raises(KnowledgeBaseNotFound):
            await world.catalog.accept_release(tenant, kb, 60)


async def test_a_release_task_has_no_documents(world: World) -> None:
    """It is of its own kind and waits like any other."""
    await world.import_ready(upload("a"))
    accepted = await world.catalog.accept_release("acme", "handbook", 60)
    assert accepted.documents == ()
    task = await _task(world, accepted.task_id)
    assert (task.kind, task.state, task.documents) == (TaskKind.RELEASE, TaskState.PENDING, ())
    claim = await world.claim()
    assert (claim.task_id, claim.kind, claim.activate) == (accepted.task_id, TaskKind.RELEASE, False)


async def test_a_claim_carries_what_the_worker_must_know(world: World) -> None:
    """Lease and deadline are absolute, and both begin now; the flags are those of the import."""
    request = import_of(upload("a"), deadline_s=100, activate=True, allow_partial=True)
    accepted = await world.catalog.accept_import(request)
    start = world.clock()
    world.clock.advance(10)
    claim = await world.claim(lease_s=30)
    assert claim == TaskClaim(
        task_id=accepted.task_id,
        kind=TaskKind.IMPORT,
        tenant="acme",
        kb_id=await world.kb_id(),
        fence=claim.fence,
        lease_until=start + 40,
        deadline_at=start + 110,
        activate=True,
        allow_partial=True,
        release_id=None,
    )
    task = await _task(world, accepted.task_id)
    assert (task.state, task.updated_at) == (TaskState.RUNNING, start + 10)


async def test_the_oldest_task_is_claimed_first(world: World) -> None:
    """And nothing is claimed twice."""
    accepted = [(await world.accept(upload("a"), kb=kb)).task_id for kb in ("one", "two", "three")]
    claims = [await world.catalog.claim(f"worker-{n}", 30, 5) for n in range(4)]
    assert [claim and claim.task_id for claim in claims] == [*accepted, None]


async def test_one_task_runs_at_a_time_in_a_knowledge_base(world: World) -> None:
    """A younger task elsewhere goes ahead; the waiting one comes when the first has ended."""
    first, second = await world.accept(upload("a")), await world.accept(upload("b"))
    elsewhere = await world.accept(upload("a"), tenant="globex")
    claim = await world.claim()
    assert claim.task_id == first.task_id
    assert (await world.claim()).task_id == elsewhere.task_id
    assert await world.catalog.claim("worker", 30, 5) is None
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert (await world.claim()).task_id == second.task_id


async def test_a_task_is_taken_over_when_its_lease_runs_out(world: World) -> None:
    """Not a moment before; the fence rises, and the knowledge base's next task keeps waiting."""
    await world.accept(upload("a"))
    await world.accept(upload("b"))
    claim = await world.claim(lease_s=30)
    world.clock.advance(29.5)
    assert await world.catalog.claim("worker", 30, 5) is None
    world.clock.advance(0.5)
    taken = await world.claim(lease_s=30)
    assert taken.task_id == claim.task_id
    assert taken.fence > claim.fence
    assert await world.catalog.claim("worker", 30, 5) is None


async def test_a_heartbeat_extends_the_lease(world: World) -> None:
    """From now on, by the given length."""
    await world.accept(upload("a"))
    claim = await world.claim(lease_s=30)
    world.clock.advance(29)
    assert await world.catalog.heartbeat(claim, 30) is False
    world.clock.advance(29)
    assert await world.catalog.claim("worker", 30, 5) is None
    world.clock.advance(1)
    assert (await world.claim()).fence > claim.fence


async def test_a_late_heartbeat_keeps_a_task_nobody_took(world: World) -> None:
    """Only a newer fence ends a claim."""
    await world.accept(upload("a"))
    claim = await world.claim(lease_s=30)
    world.clock.advance(300)
    assert await world.catalog.heartbeat(claim, 30) is False
    assert await world.catalog.claim("worker", 30, 5) is None


async def test_progress_shows_on_the_task(world: World) -> None:
    """Stage and counts, as last reported."""
    accepted = await world.accept(upload("a"))
    claim = await world.claim()
    await world.catalog.progress(claim, "parse", 1, 3)
    world.clock.advance(5)
    await world.catalog.progress(claim, "embed", 2, 3)
    task = await _task(world, accepted.task_id)
    assert (task.stage, task.done, task.total) == ("embed", 2, 3)
    assert task.updated_at == world.clock()


@pytest.mark.parametrize("state", [TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED])
async def test_a_finished_task_keeps_its_outcome(world: World, state: TaskState) -> None:
    """It is never claimed again, and its claim is dead."""
    accepted = await world.accept(upload("a"))
    claim = await world.claim()
    await world.catalog.finish(claim, Ending(state, "a_code", "a detail"))
    task = await _task(world, accepted.task_id)
    assert (task.state, task.error_code, task.error_detail) == (state, "a_code", "a detail")
    world.clock.advance(3000)
    assert await world.catalog.claim("worker", 30, 5) is None
    with pytest.raises(StaleFence):
        await world.catalog.finish(claim, Ending(TaskState.FAILED, "late", "late"))
    assert await _task(world, accepted.task_id) == task


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.RUNNING])
async def test_finishing_needs_a_state_that_is_an_end(world: World, state: TaskState) -> None:
    """Giving back is release_claim's; the refusal changes nothing."""
    accepted = await world.accept(upload("a"))
    claim = await world.claim()
    with pytest.raises(IllegalTransition):
        await world.catalog.finish(claim, Ending(state))
    assert (await _task(world, accepted.task_id)).state is TaskState.RUNNING
    await world.catalog.heartbeat(claim, 30)


async def test_a_task_past_its_deadline_fails_instead_of_being_claimed(world: World) -> None:
    """Its worker vanished; the next one in its knowledge base goes on."""
    await world.catalog.accept_import(import_of(upload("a"), deadline_s=20))
    running = await world.claim(lease_s=30)
    next_up = await world.accept(upload("b"))
    world.clock.advance(29)
    assert (await world.claim()).task_id == next_up.task_id
    task = await _task(world, running.task_id)
    assert (task.state, task.error_code) == (TaskState.FAILED, "deadline_exceeded")
    with pytest.raises(StaleFence):
        await world.catalog.heartbeat(running, 30)


async def test_a_running_task_past_its_deadline_belongs_to_its_worker_while_the_lease_lasts(
    world: World,
) -> None:
    """The worker knows the deadline and ends by itself."""
    await world.catalog.accept_import(import_of(upload("a"), deadline_s=10))
    claim = await world.claim(lease_s=30)
    world.clock.advance(20)
    assert await world.catalog.claim("worker", 30, 5) is None
    await world.catalog.finish(claim, Ending(TaskState.FAILED, "deadline_exceeded", "too slow"))


async def test_a_task_is_tried_only_so_often(world: World) -> None:
    """After the last attempt's lease it is FAILED with a code of its own."""
    accepted = await world.accept(upload("a"))
    for _ in range(3):
        assert await world.catalog.claim("worker", 30, 3) is not None
        world.clock.advance(30)
    assert await world.catalog.claim("worker", 30, 3) is None
    task = await _task(world, accepted.task_id)
    assert (task.state, task.error_code) == (TaskState.FAILED, "attempts_exhausted")
    assert (task.error_detail or "").startswith("it was begun 3 times")
    assert (task.error_detail or "").endswith("last stage: accepted")


async def test_a_task_given_back_is_free_at_once_and_costs_no_attempt(world: World) -> None:
    """A shutdown must not use up anyone's tries; the old claim is dead all the same."""
    accepted = await world.accept(upload("a"))
    for _ in range(4):
        claim = await world.claim(attempts=1)
        await world.catalog.release_claim(claim)
        assert (await _task(world, accepted.task_id)).state is TaskState.PENDING
        with pytest.raises(StaleFence):
            await world.catalog.heartbeat(claim, 30)
    again = await world.claim(attempts=1)
    assert again.fence > claim.fence


async def test_cancelling_a_pending_task_ends_it_at_once(world: World) -> None:
    """Nobody gets to claim it."""
    accepted = await world.accept(upload("a"))
    assert await world.catalog.request_cancel("acme", accepted.task_id)
    assert (await _task(world, accepted.task_id)).state is TaskState.CANCELLED
    assert await world.catalog.claim("worker", 30, 5) is None
    assert not await world.catalog.request_cancel("acme", accepted.task_id)


async def test_cancelling_a_running_task_reaches_its_worker_by_heartbeat(world: World) -> None:
    """It stays RUNNING until the worker ends it."""
    accepted = await world.accept(upload("a"))
    claim = await world.claim(lease_s=30)
    assert await world.catalog.request_cancel("acme", accepted.task_id)
    assert (await _task(world, accepted.task_id)).state is TaskState.RUNNING
    assert await world.catalog.heartbeat(claim, 30) is True
    await world.catalog.finish(claim, Ending(TaskState.CANCELLED))
    assert not await world.catalog.request_cancel("acme", accepted.task_id)


@pytest.mark.parametrize("how", ["lease ran out", "given back"])
async def test_a_cancelled_task_without_a_worker_ends_instead_of_being_claimed(
    world: World, how: str
) -> None:
    """Nobody begins what nobody wants; the next task gets its turn in the same call."""
    accepted = await world.accept(upload("a"))
    claim = await world.claim(lease_s=30)
    await world.catalog.request_cancel("acme", accepted.task_id)
    next_up = await world.accept(upload("b"))
    if how == "given back":
        await world.catalog.release_claim(claim)
    else:
        world.clock.advance(30)
    assert (await world.claim()).task_id == next_up.task_id
    task = await _task(world, accepted.task_id)
    assert (task.state, task.error_code) == (TaskState.CANCELLED, "cancelled")


_ENDS = [Ending(TaskState.FAILED, "deadline_exceeded", "too slow"), CANCELLED]


@pytest.mark.parametrize("ending", _ENDS, ids=lambda ending: ending.code)
async def test_a_task_that_ends_badly_leaves_no_version_unbuilt(world: World, ending: Ending) -> None:
    """What is READY stays, the rest is FAILED with the task's reason; importing again makes new versions."""
    accepted = await world.accept(upload("a"), upload("b"), upload("c"))
    claim = await world.claim()
    a, b, _ = await world.catalog.unfinished_versions(claim)
    for state in (VersionState.BUILDING, VersionState.VALIDATING):
        await world.catalog.advance_versions(claim, [a.ref], state)
    await world.catalog.complete_versions(claim, [built(a.ref, "text")])
    await world.catalog.advance_versions(claim, [b.ref], VersionState.BUILDING)
    await world.catalog.finish(claim, ending)
    documents = (await _task(world, accepted.task_id)).documents
    assert [d.state for d in documents] == ["READY", "FAILED", "FAILED"]
    assert {d.error for d in documents} == {None, f"{ending.code}: {ending.detail}"}
    again = await world.accept(upload("a"), upload("b"))
    assert [d.document_version for d in again.documents] == [1, 2]


async def test_a_waiting_import_that_is_cancelled_leaves_no_version_unbuilt(world: World) -> None:
    """Nobody ever began it."""
    accepted = await world.accept(upload("a"))
    await world.catalog.request_cancel("acme", accepted.task_id)
    assert (await _task(world, accepted.task_id)).documents[0].state == "FAILED"


async def test_a_version_that_another_live_import_names_is_left_to_it(world: World) -> None:
    """Two people sent the same; one changes his mind."""
    first = await world.accept(upload("a"))
    second = await world.accept(upload("a"))
    assert second.documents == first.documents
    await world.catalog.request_cancel("acme", first.task_id)
    await world.build_versions(await world.claim())
    assert (await _task(world, second.task_id)).documents[0].state == "READY"


async def test_a_foreign_task_looks_missing(world: World) -> None:
    """To read and to cancel."""
    accepted = await world.accept(upload("a"))
    assert await world.catalog.task("globex", accepted.task_id) is None
    assert await world.catalog.task("acme", "no-such-id") is None
    assert not await world.catalog.request_cancel("globex", accepted.task_id)
    assert not await world.catalog.request_cancel("acme", "no-such-id")
    assert (await _task(world, accepted.task_id)).state is TaskState.PENDING


_Write = Callable[[World, TaskClaim, DocumentRef, str], Awaitable[object]]
_WRITES: dict[str, _Write] = {
    "heartbeat": lambda w, c, ref, rid: w.catalog.heartbeat(c, 999),
    "progress": lambda w, c, ref, rid: w.catalog.progress(c, "late", 9, 9),
    "finish": lambda w, c, ref, rid: w.catalog.finish(c, Ending(TaskState.SUCCEEDED)),
    "release_claim": lambda w, c, ref, rid: w.catalog.release_claim(c),
    "put_off": lambda w, c, ref, rid: w.catalog.put_off(c, "late", 9),
    "unfinished_versions": lambda w, c, ref, rid: w.catalog.unfinished_versions(c),
    "advance_versions": lambda w, c, ref, rid: w.catalog.advance_versions(c, [ref], VersionState.VALIDATING),
    "complete_versions": lambda w, c, ref, rid: w.catalog.complete_versions(c, [built(ref, "late")]),
    "fail_version": lambda w, c, ref, rid: w.catalog.fail_version(c, ref, "late", "late"),
    "begin_release": lambda w, c, ref, rid: w.catalog.begin_release(c, SPACE, CONFIG),
    "advance_release": lambda w, c, ref, rid: w.catalog.advance_release(c, rid, ReleaseState.VALIDATING),
    "store_terms": lambda w, c, ref, rid: w.catalog.store_terms(c, "any", []),
}


@pytest.mark.parametrize("write", _WRITES.values(), ids=_WRITES.keys())
@pytest.mark.parametrize("how", ["taken over", "given back", "finished", "forged", "unknown task"])
async def test_a_stale_claim_writes_nothing(world: World, write: _Write, how: str) -> None:
    """A frozen worker that wakes up finds its fence stale, whatever it tries."""
    accepted = await world.accept(upload("a"))
    ref = DocumentRef(accepted.documents[0].document_id, 1)
    claim = await world.claim(lease_s=30)
    await world.catalog.advance_versions(claim, [ref], VersionState.BUILDING)
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    if how == "taken over":
        world.clock.advance(30)
        await world.claim(lease_s=3000)
    elif how == "given back":
        await world.catalog.release_claim(claim)
    elif how == "finished":
        await world.catalog.finish(claim, Ending(TaskState.FAILED, "x", "y"))
    elif how == "forged":
        claim = replace(claim, fence=claim.fence + 1)
    else:
        claim = replace(claim, task_id="no-such-task")
    before = await _everything(world, accepted.task_id)
    with pytest.raises(StaleFence):
        await write(world, claim, ref, plan.release_id)
    assert await _everything(world, accepted.task_id) == before


async def _everything(world: World, task_id: str) -> tuple[object, ...]:
    return (
        await world.catalog.task("acme", task_id),
        await world.catalog.documents("acme", "handbook"),
        await world.catalog.releases("acme", "handbook"),
        await world.catalog.vector_places(
            SPACE.space_id, list(built(DocumentRef("x", 1), "late").new_vectors)
        ),
    )


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_names_pass_through_a_task_unchanged(world: World, name: str) -> None:
    """As source, category, key, detail and stage; as an id they find nothing."""
    request = import_of(upload(name, category=name), upload("plain"), key=name, request_hash=name)
    accepted = await world.catalog.accept_import(request)
    assert await world.catalog.accept_import(request) == accepted
    claim = await world.claim()
    jobs = await world.catalog.unfinished_versions(claim)
    assert [job.source for job in jobs] == [name, "plain"]
    await world.catalog.progress(claim, name, 1, 2)
    await world.catalog.finish(claim, Ending(TaskState.FAILED, "a_code", name))
    task = await _task(world, accepted.task_id)
    assert (task.stage, task.error_detail) == (name, name)
    assert [d.source for d in task.documents] == [name, "plain"]
    assert await world.catalog.task("acme", name) is None
    assert not await world.catalog.request_cancel("acme", name)
    with pytest.raises(KnowledgeBaseNotFound):
        await world.catalog.accept_release("acme", name, 60)
