"""Contract of Governance and MoveStore: current ACLs, approvals, and which rows have to move."""

from dataclasses import replace

import pytest

from gateway.access.authorizer import DocumentRef, DropReason, drop_reason
from gateway.access.classes import MAX_PERMITTED_CLASSES, Acl, AclClass
from gateway.errors import Conflict, NotFound, ReleaseConflict, StaleFence, TooManyAclClasses
from gateway.ingest.governance import AclChange, Approval, ChangedAcl, Decision, Verdict
from gateway.ingest.plan import ClassTerms, ReleasePlan
from gateway.ingest.references import ReclaimPolicy
from gateway.ingest.task import Ending, TaskClaim, TaskKind, TaskState
from gateway.ingest.uploads import DocumentRecord, NewDocument
from gateway.release.model import RetrievalConfig, VersionState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, PUBLIC, SALES, SPACE, World, built, scope_of, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY = ReclaimPolicy(window_s=1e6, releases=9, afterlife_s=1e6)
HR = Acl.parse(["group:hr"])
#: no active release has it, so there is always something to build
OTHER_CONFIG = replace(CONFIG, version="config/other")
SALES_AND_HR = Acl.parse(["group:sales", "group:hr"])


def change(ref: DocumentRef, acl: Acl, tenant: str = "acme") -> AclChange:
    return AclChange(tenant, ref.document_id, acl, "olga", 3600.0)


def verdict(
    ref: DocumentRef, decision: Decision = Decision.APPROVE, tenant: str = "acme", note: str = "read it"
) -> Verdict:
    return Verdict(tenant, ref.document_id, ref.document_version, decision, "olga", note)


async def record(world: World, ref: DocumentRef) -> DocumentRecord:
    found = await world.catalog.document("acme", ref.document_id)
    assert found is not None
    return found


async def import_risky(world: World, document: NewDocument, *found: str) -> DocumentRef:
    """Imports and builds a document in whose text these markers were found."""
    accepted = await world.accept(document)
    claim = await world.claim()
    ref = DocumentRef(accepted.documents[0].document_id, accepted.documents[0].document_version)
    for state in (VersionState.BUILDING, VersionState.VALIDATING):
        await world.catalog.advance_versions(claim, [ref], state)
    await world.catalog.complete_versions(claim, [replace(built(ref, document.content_sha256), risk=found)])
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    return ref


async def planned(world: World, config: RetrievalConfig = CONFIG) -> ReleasePlan:
    """What a build would make now."""
    claim = await world.release_claim()
    plan = await world.catalog.begin_release(claim, SPACE, config)
    await world.catalog.finish(claim, Ending(TaskState.CANCELLED))
    return plan


async def released(world: World) -> set[DocumentRef]:
    """The versions that a build would take in now."""
    return {document.ref for document in (await planned(world, OTHER_CONFIG)).documents}


# the current ACL


async def test_an_acl_is_in_force_at_once_for_every_version(world: World) -> None:
    """Document and class change together; what a version's own ACL forbids stays forbidden."""
    [old] = await world.import_ready(upload("a", "one", acl=SALES))
    [new] = await world.import_ready(upload("a", "two", acl=SALES_AND_HR))
    changed = await world.catalog.set_acl(change(new, HR))
    assert changed == ChangedAcl(new.document_id, HR, narrowed=True, task_id=None)
    kb_id = await world.kb_id()
    assert await world.catalog.acl_classes("acme", kb_id) == (AclClass(3, HR),)
    hr = scope_of("acme", kb_id, [3], ["public", "group:hr"])
    sales = scope_of("acme", kb_id, [3], ["public", "group:sales"])
    now = world.clock()
    assert drop_reason(hr, await world.standing(new), now) is None
    assert drop_reason(hr, await world.standing(old), now) is DropReason.ACL
    assert drop_reason(sales, await world.standing(new), now) is DropReason.ACL
    assert ((await record(world, new)).allow, (await record(world, new)).deny) == (("group:hr",), ())


@pytest.mark.parametrize(
    ("before", "after", "narrows"),
    [
        (PUBLIC, SALES, True),
        (SALES, PUBLIC, False),
        (SALES, SALES_AND_HR, False),
        (SALES_AND_HR, SALES, True),
        (SALES, HR, True),
        (SALES, Acl.parse(["group:sales"], ["user:bob"]), True),
        (Acl.parse(["group:sales"], ["user:bob"]), SALES, False),
        (Acl.parse(["group:sales"], ["user:bob"]), Acl.parse(["public"], ["user:bob"]), False),
    ],
)
async def test_a_narrowing_raises_the_epoch_and_is_left_for_the_journal(
    world: World, before: Acl, after: Acl, narrows: bool
) -> None:
    """So that running answers are looked at, and a restored backup doesn't widen it again."""
    [ref] = await world.import_ready(upload("a", acl=before))
    epoch, revision = await world.epoch(), await world.acl_revision()
    changed = await world.catalog.set_acl(change(ref, after))
    assert changed.narrowed is narrows
    assert await world.epoch() == epoch + narrows
    assert await world.acl_revision() > revision
    entries = await world.catalog.claim_journal(60.0, 10)
    assert [entry.kind for entry in entries] == ["acl"] * narrows
    if narrows:
        assert entries[0].payload == {
            "tenant": "acme",
            "kind": "acl",
            "document_id": ref.document_id,
            "allow": sorted(after.allow),
            "deny": sorted(after.deny),
            "at": world.clock(),
        }


async def test_an_import_that_narrows_is_left_for_the_journal_too(world: World) -> None:
    """A backup from before it holds the wider ACL; a widening and a new document are no matter."""
    await world.accept(upload("a", acl=SALES), upload("b", acl=SALES))
    await world.accept(upload("a", acl=PUBLIC))
    assert await world.catalog.claim_journal(60.0, 10) == []
    await world.accept(upload("a", acl=HR))
    [entry] = await world.catalog.claim_journal(60.0, 10)
    assert (entry.kind, entry.payload["allow"]) == ("acl", ["group:hr"])


async def test_the_same_acl_again_changes_nothing(world: World) -> None:
    """No epoch, no revision, no audit entry: whoever keeps things by them keeps them."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    first = await world.catalog.set_acl(change(ref, HR))
    before = await world.epoch(), await world.acl_revision(), await world.catalog.entries("acme", 10)
    again = await world.catalog.set_acl(change(ref, HR))
    assert again == ChangedAcl(ref.document_id, HR, narrowed=False, task_id=first.task_id)
    after = await world.epoch(), await world.acl_revision(), await world.catalog.entries("acme", 10)
    assert after == before


async def test_who_changed_an_acl_is_audited(world: World) -> None:
    """In the same transaction."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.catalog.set_acl(change(ref, HR))
    [entry] = await world.catalog.entries("acme", 10, "document.acl")
    assert (entry.subject, entry.at) == ("olga", world.clock())
    assert entry.details == {
        "document": ref.document_id,
        "allow": ["group:hr"],
        "deny": [],
        "narrowed": True,
    }


async def test_only_a_live_document_of_the_tenant_can_be_governed(world: World) -> None:
    """Foreign, unknown and deleted ones look alike, and nothing is written."""
    [ref] = await world.import_ready(upload("a"))
    for wrong in (change(ref, HR, tenant="globex"), change(DocumentRef("no-such-id", 1), HR)):
        with pytest.raises(NotFound):
            await world.catalog.set_acl(wrong)
    for foreign in (verdict(ref, tenant="globex"), verdict(DocumentRef("no-such-id", 1))):
        with pytest.raises(NotFound):
            await world.catalog.judge(foreign)
    await world.catalog.delete_document("acme", ref.document_id)
    with pytest.raises(NotFound):
        await world.catalog.set_acl(change(ref, HR))
    with pytest.raises(NotFound):
        await world.catalog.judge(verdict(ref))
    assert await world.catalog.entries("acme", 10, "document.acl") == []


# moves


async def claimed_move(world: World, ref: DocumentRef) -> TaskClaim:
    claim = await world.claim()
    assert (claim.kind, claim.target) == (TaskKind.MOVE, ref.document_id)
    return claim


def terms_of_one(acl_class: int) -> ClassTerms:
    return ClassTerms(acl_class, 1, {"word": 1})


async def test_a_change_of_a_released_document_makes_one_move(world: World) -> None:
    """Of each retained revision; a second change waits as the same task."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    first, _ = await world.release()
    await world.import_ready(upload("b", acl=SALES))
    second, _ = await world.release()
    changed = await world.catalog.set_acl(change(ref, HR))
    assert (await world.catalog.set_acl(change(ref, PUBLIC))).task_id == changed.task_id
    claim = await claimed_move(world, ref)
    assert claim.task_id == changed.task_id
    plans = await world.catalog.begin_moves(claim)
    assert {plan.kb_revision for plan in plans} == {first.kb_revision, second.kb_revision}
    for plan in plans:
        [document] = plan.documents
        assert (document.ref, document.acl_class) == (ref, 3)
        assert (plan.kb_id, plan.space, plan.knowledge_base) == (first.kb_id, first.space, "handbook")
        await world.catalog.finish_move(claim, plan, terms_of_one(3))
    assert await world.catalog.begin_moves(claim) == ()
    assert await world.catalog.acl_classes("acme", first.kb_id) == (AclClass(1, SALES), AclClass(3, PUBLIC))


async def test_a_move_leaves_the_hash_of_a_release_built_afterwards(world: World) -> None:
    """Documents that aren't moved count as they did."""
    moved, _ = await world.import_ready(upload("a", acl=SALES), upload("b"))
    plan, _ = await world.release()
    await world.catalog.set_acl(change(moved, HR))
    claim = await claimed_move(world, moved)
    [begun] = await world.catalog.begin_moves(claim)
    await world.catalog.finish_move(claim, begun, terms_of_one(begun.documents[0].acl_class))
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    [release] = await world.catalog.releases("acme", "handbook")
    assert release.manifest_hash == (await planned(world, OTHER_CONFIG)).manifest_hash != plan.manifest_hash


async def test_a_move_that_was_begun_is_done_even_when_its_class_is_right_again(world: World) -> None:
    """Nobody can tell from the catalog what the rows of a half-done move carry."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    await world.catalog.set_acl(change(ref, HR))
    claim = await claimed_move(world, ref)
    [begun] = await world.catalog.begin_moves(claim)
    await world.catalog.set_acl(change(ref, SALES))
    await world.catalog.finish_move(claim, begun, terms_of_one(2))
    [again] = await world.catalog.begin_moves(claim)
    assert again.documents[0].acl_class == 1
    await world.catalog.finish_move(claim, again, terms_of_one(1))
    assert await world.catalog.begin_moves(claim) == ()


async def test_a_revoked_document_moves_to_the_class_of_nobody_and_back(world: World) -> None:
    """Class 0 is in no scope and in no list of classes."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    plan, _ = await world.release()
    record = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "leak", "olga")
    claim = await claimed_move(world, ref)
    [away] = await world.catalog.begin_moves(claim)
    assert away.documents[0].acl_class == 0
    await world.catalog.finish_move(claim, away, terms_of_one(0))
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert await world.catalog.acl_classes("acme", plan.kb_id) == (AclClass(1, SALES),)
    await world.catalog.lift("acme", record.revocation_id)
    claim = await claimed_move(world, ref)
    [back] = await world.catalog.begin_moves(claim)
    assert back.documents[0].acl_class == 1


async def test_a_deleted_document_is_not_moved(world: World) -> None:
    """Its rows are the clean-up's."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    await world.catalog.set_acl(change(ref, HR))
    claim = await claimed_move(world, ref)
    await world.catalog.delete_document("acme", ref.document_id)
    assert await world.catalog.begin_moves(claim) == ()


async def test_a_stale_claim_moves_nothing(world: World) -> None:
    """And what its holder may have written late is moved once more, by a task of its own."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    await world.catalog.set_acl(change(ref, HR))
    stale = await claimed_move(world, ref)
    [plan] = await world.catalog.begin_moves(stale)
    await world.catalog.distrust_moves(stale)  # still held: nothing to distrust
    world.clock.advance(31)
    taken = await world.claim()
    assert taken.task_id == stale.task_id
    with pytest.raises(StaleFence):
        await world.catalog.begin_moves(stale)
    with pytest.raises(StaleFence):
        await world.catalog.finish_move(stale, plan, terms_of_one(2))
    [plan] = await world.catalog.begin_moves(taken)
    await world.catalog.finish_move(taken, plan, terms_of_one(2))
    await world.catalog.finish(taken, Ending(TaskState.SUCCEEDED))
    await world.catalog.distrust_moves(stale)
    again = await claimed_move(world, ref)
    assert again.task_id != stale.task_id
    assert len(await world.catalog.begin_moves(again)) == 1


async def moved(world: World, claim: TaskClaim) -> None:
    """Does what the claimed move has to do."""
    for plan in await world.catalog.begin_moves(claim):
        await world.catalog.finish_move(claim, plan, terms_of_one(plan.documents[0].acl_class))
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))


@pytest.mark.parametrize("state", [TaskState.CANCELLED, TaskState.FAILED])
async def test_a_move_that_ended_undone_is_owed_until_it_is_done(world: World, state: TaskState) -> None:
    """A person who may see the document would miss it for ever. Once it is queued it isn't queued again."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    await world.catalog.set_acl(change(ref, HR))
    await world.catalog.finish(await claimed_move(world, ref), Ending(state))
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 1
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0
    await moved(world, await claimed_move(world, ref))
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0


async def test_a_revocations_move_is_owed_too_and_an_imports_rows_are_not(world: World) -> None:
    """Rows of an older version follow nobody's act: the next release brings new ones."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    await world.import_ready(upload("a", "two", acl=HR))
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 0
    await world.catalog.revoke("acme", RevocationKind.DOCUMENT, ref.document_id, "leak", "olga")
    await world.catalog.finish(await claimed_move(world, ref), Ending(TaskState.FAILED))
    assert await world.catalog.schedule_reclaims(POLICY, 3600.0) == 1
    claim = await claimed_move(world, ref)
    [away] = await world.catalog.begin_moves(claim)
    assert away.documents[0].acl_class == 0


async def test_the_same_acl_again_moves_what_lies_wrong(world: World) -> None:
    """Whoever sees that a move was lost needn't wait for its turn."""
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    changed = await world.catalog.set_acl(change(ref, HR))
    await world.catalog.finish(await claimed_move(world, ref), Ending(TaskState.FAILED))
    again = await world.catalog.set_acl(change(ref, HR))
    assert (again.narrowed, again.task_id in {None, changed.task_id}) == (False, False)
    await moved(world, await claimed_move(world, ref))
    assert (await world.catalog.set_acl(change(ref, HR))).task_id is None


# approvals


async def test_an_approval_says_who_and_when(world: World) -> None:
    """The same again changes nothing; another decision is the last word."""
    ref = await import_risky(world, upload("a"), "injection-like")
    unread = await record(world, ref)
    assert (unread.approval, unread.approved_by, unread.approved_at) == ("unreviewed", None, None)
    assert unread.risk == ("external", "injection-like", "unreviewed")
    assert unread.awaiting_approval
    approved_at = world.clock()
    expected = Approval(
        ref.document_id, 1, "approved", "olga", approved_at, "read it", ("external", "injection-like")
    )
    assert await world.catalog.judge(verdict(ref)) == expected
    world.clock.advance(5)
    assert await world.catalog.judge(replace(verdict(ref), subject="mallory")) == expected
    known = await record(world, ref)
    assert (known.approval, known.approved_by, known.approved_at) == ("approved", "olga", approved_at)
    assert (known.risk, known.awaiting_approval) == (expected.risk, False)
    rejected = await world.catalog.judge(verdict(ref, Decision.REJECT, note="no"))
    assert (rejected.approval, rejected.note, rejected.approved_at) == ("rejected", "no", world.clock())
    actions = [
        entry.details["approval"] for entry in await world.catalog.entries("acme", 10, "document.approval")
    ]
    assert actions == ["rejected", "approved"]


async def test_a_high_risk_version_waits_while_the_one_before_stays(world: World) -> None:
    """Given or found; the approved one comes with the next release."""
    [good] = await world.import_ready(upload("a", "one"))
    found = await import_risky(world, upload("a", "two"), "injection-like")
    given = await import_risky(world, replace(upload("b", "three"), risk=("high-risk",)))
    assert await released(world) == {good}
    assert (await record(world, found)).awaiting_approval
    await world.catalog.judge(verdict(found))
    assert await released(world) == {found}
    await world.catalog.judge(verdict(given))
    assert await released(world) == {found, given}
    await world.catalog.judge(verdict(found, Decision.REJECT))
    assert await released(world) == {good, given}


async def test_other_markers_wait_for_nobody(world: World) -> None:
    """A person may keep such a version out all the same."""
    [ref] = await world.import_ready(upload("a"))
    known = await record(world, ref)
    assert (known.risk, known.awaiting_approval) == (("external", "unreviewed"), False)
    assert await released(world) == {ref}
    await world.catalog.judge(verdict(ref, Decision.REJECT))
    assert await released(world) == set()


async def test_a_release_with_a_version_rejected_meanwhile_is_not_activated(world: World) -> None:
    """It was built before the decision."""
    [ref] = await world.import_ready(upload("a"))
    plan = await world.ready_release()
    await world.catalog.judge(verdict(ref, Decision.REJECT))
    with pytest.raises(ReleaseConflict):
        await world.catalog.activate("acme", plan.release_id, None)


async def test_a_rejected_version_does_not_come_back_by_a_rollback(world: World) -> None:
    """The release gone back to holds it, and the re-check drops it. What else it holds is shown."""
    [bad, good] = await world.import_ready(upload("a"), upload("b", "other"))
    first, _ = await world.release()
    await world.catalog.judge(verdict(bad, Decision.REJECT))
    await world.release()
    back = await world.catalog.roll_back("acme", "handbook")
    assert back.knowledge_revision == first.kb_revision
    scope = scope_of("acme", await world.kb_id(), [1])
    now = world.clock()
    assert drop_reason(scope, await world.standing(bad), now) is DropReason.WITHDRAWN
    assert drop_reason(scope, await world.standing(good), now) is None
    assert await released(world) == {good}


async def test_a_rejected_version_stays_until_the_next_release(world: World) -> None:
    """A person's word on a version isn't a revocation; neither is a rollback of what holds it no more."""
    [ref] = await world.import_ready(upload("a"))
    await world.release()
    await world.catalog.judge(verdict(ref, Decision.REJECT))
    scope = scope_of("acme", await world.kb_id(), [1])
    assert drop_reason(scope, await world.standing(ref), world.clock()) is None
    await world.release()
    await world.catalog.judge(verdict(ref))
    assert await released(world) == {ref}


async def test_the_bytes_of_a_rejected_version_wait_for_a_person(world: World) -> None:
    """Under other metadata, another name; other bytes and other knowledge bases wait for nobody."""
    [bad] = await world.import_ready(upload("a", "poison"))
    await world.catalog.judge(verdict(bad, Decision.REJECT))
    [touched] = await world.import_ready(upload("a", "poison", category="x"))
    [copied, fine] = await world.import_ready(upload("b", "poison"), upload("c", "fine"))
    assert await released(world) == {fine}
    known = await record(world, copied)
    assert (known.awaiting_approval, known.risk) == (True, ("external", "rejected-before", "unreviewed"))
    await world.catalog.judge(verdict(copied))
    assert (await record(world, copied)).risk == ("external",)
    assert await released(world) == {copied, fine}
    assert touched.document_version == 2
    [elsewhere] = await world.import_ready(upload("a", "poison"), kb="wiki")
    assert not (await record(world, elsewhere)).awaiting_approval


async def test_a_version_whose_bytes_are_rejected_while_it_is_built_waits_too(world: World) -> None:
    """It was accepted before the decision."""
    [bad] = await world.import_ready(upload("a", "poison"))
    await world.accept(upload("b", "poison"))
    await world.catalog.judge(verdict(bad, Decision.REJECT))
    claim = await world.claim()
    await world.build_versions(claim)
    await world.catalog.finish(claim, Ending(TaskState.SUCCEEDED))
    assert await released(world) == set()


async def test_an_approval_is_news_for_a_release(world: World) -> None:
    """Its passages say whether somebody has read them."""
    [ref] = await world.import_ready(upload("a"))
    await world.release()
    assert (await planned(world)).unchanged_release is not None
    await world.catalog.judge(verdict(ref))
    plan = await planned(world)
    assert plan.unchanged_release is None
    assert (plan.documents[0].approval, plan.documents[0].risk) == ("approved", ("external",))


async def test_whoever_imports_as_approved_has_approved(world: World) -> None:
    """The door asks for the right; the catalog says who it was. The same upload again is the same version."""
    document = replace(upload("a"), approval="approved", risk=("high-risk",))
    [ref] = await world.import_ready(document)
    known = await record(world, ref)
    assert (known.approval, known.approved_by, known.awaiting_approval) == ("approved", "importer", False)
    assert await released(world) == {ref}
    [again] = (await world.accept(document)).documents
    assert again.document_version == 1


async def test_only_a_version_that_is_ready_can_be_judged(world: World) -> None:
    """Nobody can have read what isn't there yet, or is there no more."""
    accepted = await world.accept(upload("a"))
    ref = DocumentRef(accepted.documents[0].document_id, 1)
    with pytest.raises(Conflict):
        await world.catalog.judge(verdict(ref))
    for version in (0, 2):
        with pytest.raises(NotFound):
            await world.catalog.judge(verdict(DocumentRef(ref.document_id, version)))
    claim = await world.claim()
    await world.catalog.fail_version(claim, ref, "blank", "no text")
    with pytest.raises(Conflict):
        await world.catalog.judge(verdict(ref))


@pytest.mark.soak
async def test_an_importer_is_told_of_the_class_that_would_be_too_many(world: World) -> None:
    """Before any reader meets the cap; documents that share an ACL are as many as one likes."""
    acls = [Acl.parse(["public", f"user:{n}"]) for n in range(MAX_PERMITTED_CLASSES)]
    await world.accept(*(upload(f"{n}", acl=acl) for n, acl in enumerate(acls)))
    one_more = Acl.parse(["public", "user:one-more"])
    with pytest.raises(TooManyAclClasses):
        await world.accept(upload("x", acl=one_more))
    [accepted] = (await world.accept(upload("x", acl=acls[0]))).documents
    with pytest.raises(TooManyAclClasses):
        await world.catalog.set_acl(change(DocumentRef(accepted.document_id, 1), one_more))
    await world.accept(upload("x", acl=one_more), kb="wiki")


@pytest.mark.soak
async def test_a_class_that_comes_into_use_again_is_counted_like_a_new_one(world: World) -> None:
    """Its place may have been taken meanwhile."""
    acls = [Acl.parse(["public", f"user:{n}"]) for n in range(MAX_PERMITTED_CLASSES)]
    accepted = await world.accept(*(upload(f"{n}", acl=acl) for n, acl in enumerate(acls)))
    first = DocumentRef(accepted.documents[0].document_id, 1)
    await world.catalog.set_acl(change(first, acls[1]))
    await world.accept(upload("x", acl=Acl.parse(["public", "user:one-more"])))
    with pytest.raises(TooManyAclClasses):
        await world.catalog.set_acl(change(first, acls[0]))
    with pytest.raises(TooManyAclClasses):
        await world.accept(upload("y", acl=acls[0]))
    await world.accept(upload("y", acl=acls[2]))
