"""Contract of RevocationCatalog: authoritative, epoch-bumping, liftable, one tenant's own."""

import pytest

from gateway.access.authorizer import DocumentRef, RevocationSet
from gateway.errors import InvalidField, KnowledgeBaseNotFound, NotFound
from gateway.stream.revocation import RevocationKind, RevocationRecord
from tests.contract.catalog_world import HOSTILE_NAMES, World, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _subject(world: World, kind: RevocationKind) -> str:
    accepted = await world.accept(upload("a"))
    return {
        RevocationKind.USER: "ann",
        RevocationKind.GROUP: "sales",
        RevocationKind.DOCUMENT: accepted.documents[0].document_id,
        RevocationKind.KNOWLEDGE_BASE: "handbook",
    }[kind]


def _set_of(kind: RevocationKind, subject: str) -> RevocationSet:
    names = {
        RevocationKind.USER: "users",
        RevocationKind.GROUP: "groups",
        RevocationKind.DOCUMENT: "documents",
        RevocationKind.KNOWLEDGE_BASE: "knowledge_bases",
    }
    return RevocationSet(**{names[kind]: frozenset({subject})})


@pytest.mark.parametrize("kind", list(RevocationKind))
async def test_a_revocation_is_in_force_at_once(world: World, kind: RevocationKind) -> None:
    """The record says who, why and when; the tenant's epoch rises with it."""
    subject = await _subject(world, kind)
    before = await world.epoch()
    record = await world.catalog.revoke("acme", kind, subject, "left the company", "olga")
    assert record == RevocationRecord(
        revocation_id=record.revocation_id,
        tenant="acme",
        kind=kind,
        subject=subject,
        reason="left the company",
        revoked_by="olga",
        revocation_epoch=before + 1,
        created_at=world.clock(),
        lifted_at=None,
        task_id=record.task_id,
    )
    assert await world.epoch() == before + 1
    assert await world.catalog.revocations("acme") == _set_of(kind, subject)
    assert await world.catalog.list_revocations("acme") == [record]


@pytest.mark.parametrize("kind", list(RevocationKind))
async def test_revoking_twice_returns_the_record_in_force(world: World, kind: RevocationKind) -> None:
    """Whoever asks the second time, for whatever reason."""
    subject = await _subject(world, kind)
    record = await world.catalog.revoke("acme", kind, subject, "left", "olga")
    world.clock.advance(60)
    assert await world.catalog.revoke("acme", kind, subject, "another reason", "otto") == record
    assert await world.catalog.list_revocations("acme") == [record]


@pytest.mark.parametrize("kind", list(RevocationKind))
async def test_lifting_ends_a_revocation_and_bumps_the_epoch(world: World, kind: RevocationKind) -> None:
    """The record stays, with its end."""
    subject = await _subject(world, kind)
    record = await world.catalog.revoke("acme", kind, subject, "left", "olga")
    epoch = await world.epoch()
    world.clock.advance(60)
    lifted = await world.catalog.lift("acme", record.revocation_id)
    assert (lifted.revocation_id, lifted.subject, lifted.created_at) == (
        record.revocation_id,
        subject,
        record.created_at,
    )
    assert lifted.lifted_at == world.clock()
    assert await world.epoch() == epoch + 1
    assert await world.catalog.revocations("acme") == RevocationSet()
    assert await world.catalog.list_revocations("acme") == [lifted]


async def test_lifting_twice_returns_the_record(world: World) -> None:
    """With the moment of the first time, and no further epoch."""
    record = await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
    lifted = await world.catalog.lift("acme", record.revocation_id)
    epoch = await world.epoch()
    world.clock.advance(60)
    assert await world.catalog.lift("acme", record.revocation_id) == lifted
    assert await world.epoch() == epoch


async def test_what_was_lifted_can_be_revoked_again(world: World) -> None:
    """As a new record with a higher epoch; lifting the old one again doesn't end it."""
    first = await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
    await world.catalog.lift("acme", first.revocation_id)
    second = await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left again", "olga")
    assert second.revocation_id != first.revocation_id
    assert second.revocation_epoch > first.revocation_epoch
    await world.catalog.lift("acme", first.revocation_id)
    assert (await world.catalog.revocations("acme")).users == {"ann"}
    assert len(await world.catalog.list_revocations("acme")) == 2


async def test_kinds_are_told_apart(world: World) -> None:
    """A user and a group of one name are two subjects."""
    user = await world.catalog.revoke("acme", RevocationKind.USER, "sales", "left", "olga")
    await world.catalog.revoke("acme", RevocationKind.GROUP, "sales", "dissolved", "olga")
    await world.catalog.lift("acme", user.revocation_id)
    assert await world.catalog.revocations("acme") == RevocationSet(groups=frozenset({"sales"}))


async def test_people_and_groups_need_not_be_known(world: World) -> None:
    """They live in the identity provider; even a tenant without knowledge can revoke."""
    await world.catalog.revoke("new-tenant", RevocationKind.USER, "ann", "left", "olga")
    assert (await world.catalog.revocations("new-tenant")).users == {"ann"}
    assert await world.epoch("new-tenant") == 1


async def test_documents_and_knowledge_bases_must_be_the_tenants_own(world: World) -> None:
    """Foreign ones look missing, and nothing is written."""
    accepted = await world.accept(upload("a"))
    document_id = accepted.documents[0].document_id
    for tenant, subject in (("globex", document_id), ("acme", "no-such-id"), ("acme", "a")):
        with pytest.raises(NotFound):
            await world.catalog.revoke(tenant, RevocationKind.DOCUMENT, subject, "x", "olga")
    kb_id = await world.kb_id()
    for tenant, subject in (("globex", "handbook"), ("acme", "wiki"), ("acme", kb_id)):
        with pytest.raises(KnowledgeBaseNotFound):
            await world.catalog.revoke(tenant, RevocationKind.KNOWLEDGE_BASE, subject, "x", "olga")
    for tenant in ("acme", "globex"):
        assert await world.catalog.list_revocations(tenant) == []
        assert await world.epoch(tenant) == 0


async def test_a_deleted_document_can_still_be_revoked(world: World) -> None:
    """So that it stays hidden when it is imported again."""
    accepted = await world.accept(upload("a"))
    document_id = accepted.documents[0].document_id
    await world.catalog.delete_document("acme", document_id)
    await world.catalog.revoke("acme", RevocationKind.DOCUMENT, document_id, "leak", "olga")
    assert (await world.catalog.revocations("acme")).documents == {document_id}


async def test_revocations_are_listed_in_pages_newest_first(world: World) -> None:
    """Lifted ones keep their places; another tenant's, and what is none, are no place to go on from."""
    made = [
        await world.catalog.revoke("acme", RevocationKind.USER, name, "left", "olga")
        for name in ("ann", "bob", "cai")
    ]
    foreign = await world.catalog.revoke("globex", RevocationKind.USER, "ann", "left", "olga")
    lifted = await world.catalog.lift("acme", made[1].revocation_id)
    newest = [made[2], lifted, made[0]]
    assert await world.catalog.list_revocations("acme", limit=2) == newest[:2]
    assert await world.catalog.list_revocations("acme", limit=2, before=lifted.revocation_id) == newest[2:]
    assert await world.catalog.list_revocations("acme", before=made[0].revocation_id) == []
    for before in (foreign.revocation_id, "rvk_none", ""):
        with pytest.raises(InvalidField):
            await world.catalog.list_revocations("acme", before=before)


async def test_revocations_of_another_tenant_are_out_of_sight_and_reach(world: World) -> None:
    """Equal names in two tenants are two people."""
    record = await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
    assert await world.catalog.revocations("globex") == RevocationSet()
    assert await world.catalog.list_revocations("globex") == []
    assert await world.epoch("globex") == 0
    for tenant, revocation_id in (("globex", record.revocation_id), ("acme", "no-such-id")):
        with pytest.raises(NotFound):
            await world.catalog.lift(tenant, revocation_id)
    assert (await world.catalog.revocations("acme")).users == {"ann"}


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_names_are_revoked_literally(world: World, name: str) -> None:
    """As subject, reason and author; as an id they find nothing."""
    await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
    record = await world.catalog.revoke("acme", RevocationKind.USER, name, name, name)
    assert (record.subject, record.reason, record.revoked_by) == (name, name, name)
    assert record in await world.catalog.list_revocations("acme")
    assert (await world.catalog.revocations("acme")).users == {"ann", name}
    for kind in (RevocationKind.DOCUMENT, RevocationKind.KNOWLEDGE_BASE):
        with pytest.raises(NotFound):
            await world.catalog.revoke("acme", kind, name, "x", "olga")
    with pytest.raises(NotFound):
        await world.catalog.lift("acme", name)


async def test_news_are_what_came_after_an_epoch_and_still_holds(world: World) -> None:
    """Oldest first, with the moment of the read on the clock of their own moments."""
    records = []
    for name in ("ann", "bob", "eve"):
        world.clock.advance(1)
        records.append(await world.catalog.revoke("acme", RevocationKind.USER, name, "left", "olga"))
    await world.catalog.lift("acme", records[1].revocation_id)
    first, _, last = records
    assert (await world.catalog.revocations_since("acme", 0)).records == (first, last)
    assert (await world.catalog.revocations_since("acme", first.revocation_epoch)).records == (last,)
    assert (await world.catalog.revocations_since("acme", last.revocation_epoch)).records == ()
    assert (await world.catalog.revocations_since("globex", 0)).records == ()
    assert (await world.catalog.revocations_since("acme", 0)).now > 0


async def test_news_say_which_documents_were_deleted_and_when(world: World) -> None:
    """Of the versions that are asked about; one that was imported after the deletion is another."""
    accepted = await world.accept(upload("a"), upload("b"), upload("c"))
    a, b, c = (DocumentRef(d.document_id, d.document_version) for d in accepted.documents)
    for ref in (a, b):
        await world.catalog.delete_document("acme", ref.document_id)
    deleted_at = world.clock()
    unknown = [DocumentRef("no-such-id", 1), DocumentRef(a.document_id, 2), DocumentRef(a.document_id, 0)]
    news = await world.catalog.revocations_since("acme", 0, [a, c, *unknown])
    assert news.deletions == {a: deleted_at}
    assert (await world.catalog.revocations_since("globex", 0, [a])).deletions == {}
    assert (await world.catalog.revocations_since("acme", 0)).deletions == {}
    await world.accept(upload("a"))
    again = DocumentRef(a.document_id, 2)
    assert (await world.catalog.revocations_since("acme", 0, [a, again])).deletions == {a: deleted_at}


async def test_the_stamps_of_many_tenants_are_each_ones_own(world: World) -> None:
    """As read one by one; for nobody too, and for tenants that were never written to."""
    await world.accept(upload("a"))
    await world.accept(upload("a"), kb="wiki", tenant="globex")
    await world.catalog.revoke("globex", RevocationKind.USER, "ann", "left", "olga")
    tenants = ["acme", "globex", "unknown"]
    stamps = await world.catalog.tenant_stamps(tenants)
    assert stamps == {tenant: await world.catalog.tenant_stamp(tenant) for tenant in tenants}
    assert await world.catalog.tenant_stamps([]) is not None
