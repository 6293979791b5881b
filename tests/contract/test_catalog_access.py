"""Contract of AccessCatalog: stamps, ACL classes, standings."""

import math

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gateway.access.authorizer import Authorizer, DocumentRef, DocumentStanding, DropReason, drop_reason
from gateway.access.classes import Acl, AclClass, permitted_classes
from gateway.access.principal import Principal
from gateway.errors import KnowledgeBaseNotFound
from gateway.ingest.task import Ending, TaskState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import (
    HOSTILE_NAMES,
    PUBLIC,
    SALES,
    World,
    import_of,
    scope_of,
    upload,
)

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

NOBODY = Acl(frozenset())


def _principal(subject: str, *groups: str) -> Principal:
    return Principal("acme", subject, frozenset(groups), frozenset(), math.inf)


async def test_the_catalog_answers_a_ping(world: World) -> None:
    """Readiness asks exactly this."""
    await world.catalog.ping()


async def test_a_tenant_that_was_never_written_to_has_an_empty_stamp(world: World) -> None:
    """Epoch 0, no knowledge bases, and still the incarnation of this catalog."""
    await world.accept(upload("a"))
    unknown, known = [await world.catalog.tenant_stamp(tenant) for tenant in ("globex", "acme")]
    assert (unknown.revocation_epoch, unknown.knowledge_bases) == (0, ())
    assert unknown.incarnation == known.incarnation != ""


async def test_the_first_import_makes_the_knowledge_base_in_its_own_tenant(world: World) -> None:
    """Equal names in two tenants are two knowledge bases."""
    await world.accept(upload("a"), kb="handbook")
    await world.accept(upload("a"), kb="handbook")
    await world.accept(upload("a"), kb="wiki")
    await world.accept(upload("a"), kb="handbook", tenant="globex")
    acme, globex = [await world.catalog.tenant_stamp(tenant) for tenant in ("acme", "globex")]
    assert sorted(kb.name for kb in acme.knowledge_bases) == ["handbook", "wiki"]
    assert [kb.name for kb in globex.knowledge_bases] == ["handbook"]
    assert len({kb.kb_id for kb in acme.knowledge_bases + globex.knowledge_bases}) == 3


async def test_classes_are_numbered_from_one_in_each_knowledge_base(world: World) -> None:
    """Equal ACLs share a number; another knowledge base counts for itself."""
    await world.accept(upload("a", acl=PUBLIC), upload("b", acl=SALES), upload("c", acl=PUBLIC))
    await world.accept(upload("a", acl=SALES), kb="wiki")
    classes = await world.catalog.acl_classes("acme", await world.kb_id())
    assert set(classes) == {AclClass(1, PUBLIC), AclClass(2, SALES)}
    assert await world.catalog.acl_classes("acme", await world.kb_id("wiki")) == (AclClass(1, SALES),)


async def test_a_class_number_is_never_given_to_another_acl(world: World) -> None:
    """Deleting the only document of a class frees nothing."""
    accepted = await world.accept(upload("a", acl=SALES))
    await world.catalog.delete_document("acme", accepted.documents[0].document_id)
    await world.accept(upload("b", acl=PUBLIC))
    await world.accept(upload("c", acl=SALES))
    classes = await world.catalog.acl_classes("acme", await world.kb_id())
    assert set(classes) == {AclClass(1, SALES), AclClass(2, PUBLIC)}


async def test_allow_and_deny_are_told_apart_in_a_class(world: World) -> None:
    """The same name on the other side is another class."""
    acls = [Acl.parse(["public"], ["group:sales"]), Acl.parse(["group:sales"], ["public"])]
    await world.accept(*(upload(f"{n}", acl=acl) for n, acl in enumerate(acls)))
    classes = await world.catalog.acl_classes("acme", await world.kb_id())
    assert {c.acl for c in classes} == set(acls)


async def test_classes_of_a_foreign_knowledge_base_look_missing(world: World) -> None:
    """Neither the other tenant nor an unknown id gets any."""
    await world.accept(upload("a"))
    kb_id = await world.kb_id()
    assert await world.catalog.acl_classes("globex", kb_id) == ()
    assert await world.catalog.acl_classes("acme", "no-such-id") == ()


async def test_only_classes_of_live_documents_are_listed(world: World) -> None:
    """A class left behind by a new ACL or a deletion is gone, and back with its next document."""
    await world.accept(upload("a", acl=PUBLIC))
    [ref] = await world.import_ready(upload("a", acl=SALES))
    kb_id = await world.kb_id()
    assert await world.catalog.acl_classes("acme", kb_id) == (AclClass(2, SALES),)
    await world.catalog.delete_document("acme", ref.document_id)
    assert await world.catalog.acl_classes("acme", kb_id) == ()
    await world.accept(upload("b", acl=PUBLIC))
    assert await world.catalog.acl_classes("acme", kb_id) == (AclClass(1, PUBLIC),)


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("change", ["narrow", "delete"])
async def test_who_lost_all_access_finds_no_knowledge_base(world: World, change: str, released: bool) -> None:
    """At once, however many classes there once were, and whatever the active release still holds."""
    authorizer = Authorizer(world.catalog)
    ann, hal = (_principal(name, group) for name, group in (("ann", "g"), ("hal", "h")))
    [ref] = await world.import_ready(upload("a", acl=PUBLIC))
    if released:
        await world.release()
    assert (await authorizer.authorize(ann, "handbook")).permitted_classes == {1}
    if change == "narrow":
        await world.accept(upload("a", acl=Acl.parse(["group:h"])))
        assert (await authorizer.authorize(hal, None)).permitted_classes == ({1, 2} if released else {2})
    else:
        await world.catalog.delete_document("acme", ref.document_id)
    assert await authorizer.permitted(ann) == []
    for name in ("handbook", None):
        with pytest.raises(KnowledgeBaseNotFound):
            await authorizer.authorize(ann, name)


async def test_a_document_under_a_new_acl_is_found_until_the_next_release(world: World) -> None:
    """Its chunks carry the old class, which lets in whom both ACLs let in; then it is forgotten."""
    sales_and_hr = Acl.parse(["group:sales", "group:hr"], ["user:bob"])
    await world.import_ready(upload("a", "one", acl=SALES))
    await world.release()
    await world.import_ready(upload("a", "two", acl=sales_and_hr))
    kb_id = await world.kb_id()
    classes = await world.catalog.acl_classes("acme", kb_id)
    assert permitted_classes(classes, {"group:sales", "user:ann"}) == {1, 2}
    assert permitted_classes(classes, {"group:sales", "user:bob"}) == frozenset()
    assert permitted_classes(classes, {"group:hr"}) == {2}
    await world.release()
    assert await world.catalog.acl_classes("acme", kb_id) == (AclClass(2, sales_and_hr),)
    await world.catalog.roll_back("acme", "handbook")
    assert await world.catalog.acl_classes("acme", kb_id) == classes


async def test_a_class_that_is_current_elsewhere_keeps_its_whole_acl(world: World) -> None:
    """Another document's new ACL takes nothing from it."""
    await world.import_ready(upload("a", acl=PUBLIC), upload("b", acl=PUBLIC))
    await world.release()
    await world.import_ready(upload("a", acl=SALES))
    classes = await world.catalog.acl_classes("acme", await world.kb_id())
    assert classes == (AclClass(1, PUBLIC), AclClass(2, SALES))


async def test_the_acl_revision_rises_whenever_the_classes_change(world: World) -> None:
    """Readers keep the classes by it: at no step may an old revision stand for new classes."""
    known: dict[int, tuple[AclClass, ...]] = {}

    async def look(*, changed: bool) -> None:
        classes = await world.catalog.acl_classes("acme", await world.kb_id())
        revision = await world.acl_revision()
        assert known.get(revision, classes) == classes
        assert (not known or known[max(known)] != classes) is changed
        known[revision] = classes

    [a] = await world.import_ready(upload("a", acl=PUBLIC))
    await look(changed=True)
    [b] = await world.import_ready(upload("b", acl=SALES))
    await look(changed=True)
    await world.catalog.delete_document("acme", b.document_id)
    await look(changed=True)
    await world.import_ready(upload("c", acl=SALES))
    await look(changed=True)
    await world.release()
    await look(changed=False)
    await world.import_ready(upload("a", acl=SALES))
    await look(changed=True)
    await world.import_ready(upload("d"))
    await look(changed=True)
    await world.release()
    await look(changed=False)
    await world.catalog.delete_document("acme", a.document_id)
    await look(changed=False)
    await world.import_ready(upload("a", acl=NOBODY))
    await look(changed=True)
    await world.import_ready(upload("d", acl=SALES))
    await look(changed=True)
    await world.import_ready(upload("d", "new", acl=SALES))
    await look(changed=False)
    await world.release()
    await look(changed=True)
    await world.catalog.roll_back("acme", "handbook")
    await look(changed=True)


async def test_a_new_class_raises_the_acl_revision(world: World) -> None:
    """And an import without news leaves it alone, so that indexes stay valid."""
    await world.accept(upload("a"))
    first = await world.acl_revision()
    await world.accept(upload("a"))
    assert await world.acl_revision() == first
    await world.accept(upload("b", acl=SALES))
    assert await world.acl_revision() > first


async def test_a_document_that_changes_its_class_raises_the_acl_revision(world: World) -> None:
    """Also when both classes were known before."""
    await world.accept(upload("a", acl=PUBLIC), upload("b", acl=SALES))
    before = await world.acl_revision()
    await world.accept(upload("a", acl=SALES))
    assert await world.acl_revision() > before


async def test_the_acl_revision_of_one_knowledge_base_leaves_the_others_alone(world: World) -> None:
    """A busy neighbour must not empty anyone's index."""
    await world.accept(upload("a"))
    await world.accept(upload("a"), kb="wiki")
    before = await world.acl_revision("wiki")
    await world.accept(upload("b", acl=SALES))
    assert await world.acl_revision("wiki") == before


async def test_an_empty_allow_list_matches_nobody(world: World) -> None:
    """It gets a class like any other, which lets nobody in."""
    [accepted] = (await world.accept(upload("a", acl=NOBODY))).documents
    classes = await world.catalog.acl_classes("acme", await world.kb_id())
    assert permitted_classes(classes, {"public", "user:ann", "group:sales"}) == frozenset()
    standing = await world.standing(DocumentRef(accepted.document_id, accepted.document_version))
    assert standing is not None
    assert standing.document_acl == standing.version_acl == NOBODY


_names = st.sampled_from(["public", "user:ann", "user:bob", "group:sales", "group:hr"])
_sets = st.frozensets(_names, max_size=4)
_acls = st.builds(Acl, allow=_sets, deny=_sets)


@settings(
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(acls=st.lists(_acls, min_size=1, max_size=6), principals=st.lists(_sets, min_size=1, max_size=5))
async def test_permitted_classes_are_the_acls_that_permit(
    world: World, acls: list[Acl], principals: list[frozenset[str]]
) -> None:
    """The stored classes decide exactly as the ACLs they stand for, whoever asks."""
    kb = f"kb-{len((await world.catalog.tenant_stamp('acme')).knowledge_bases)}"
    await world.accept(*(upload(f"{n}", acl=acl) for n, acl in enumerate(acls)), kb=kb)
    classes = await world.catalog.acl_classes("acme", await world.kb_id(kb))
    assert sorted(c.number for c in classes) == list(range(1, len(set(acls)) + 1))
    assert {c.acl for c in classes} == set(acls)
    for names in principals:
        permitted = permitted_classes(classes, names)
        assert {c.number for c in classes if c.acl.permits(names)} == permitted


@settings(
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(old=_acls, new=_acls, principals=st.lists(_sets, min_size=1, max_size=5))
async def test_a_stored_class_never_lets_in_whom_either_acl_keeps_out(
    world: World, old: Acl, new: Acl, principals: list[frozenset[str]]
) -> None:
    """And whoever is let in by one name in both finds the document until the next release."""
    assume(old != new)
    kb = f"kb-{len((await world.catalog.tenant_stamp('acme')).knowledge_bases)}"
    await world.import_ready(upload("a", acl=old), kb=kb)
    await world.release(kb)
    await world.accept(upload("a", acl=new), kb=kb)
    await world.catalog.finish(await world.claim(), Ending(TaskState.CANCELLED))
    classes = await world.catalog.acl_classes("acme", await world.kb_id(kb))
    for some in principals:
        names = some | {"public"}  # as everybody is
        permitted = permitted_classes(classes, names)
        both = old.permits(names) and new.permits(names)
        assert (2 in permitted) is new.permits(names)
        assert both or 1 not in permitted
        if both and (old.allow & new.allow & names or "public" in old.allow | new.allow):
            assert 1 in permitted


async def test_a_standing_carries_what_the_re_check_needs(world: World) -> None:
    """Both ACLs, sensitivity and validity come back as they were imported."""
    document = upload("a", acl=SALES, valid_from=100, valid_until=200, sensitivity=2)
    [ref, _] = await world.import_ready(document, upload("b"))
    assert await world.standing(ref) == DocumentStanding(
        document_acl=SALES,
        version_acl=SALES,
        deleted=False,
        revoked=False,
        withdrawn=False,
        sensitivity=2,
        valid_from=100,
        valid_until=200,
    )


async def test_standings_hold_only_what_exists_in_this_tenant_and_knowledge_base(world: World) -> None:
    """Foreign, misplaced and made-up refs are missing keys; the rest is answered."""
    [mine] = await world.import_ready(upload("a"))
    [elsewhere] = await world.import_ready(upload("a"), kb="wiki")
    [foreign] = await world.import_ready(upload("a"), tenant="globex")
    refs = [
        mine,
        elsewhere,
        foreign,
        DocumentRef(mine.document_id, 2),
        DocumentRef(mine.document_id, 0),
        DocumentRef(mine.document_id, -1),
        DocumentRef("no-such-id", 1),
    ]
    found = await world.catalog.standings("acme", await world.kb_id(), refs)
    assert list(found) == [mine]
    assert await world.catalog.standings("globex", await world.kb_id(), refs) == {}
    assert await world.catalog.standings("acme", await world.kb_id(), []) == {}


async def test_standings_answer_for_many_documents_at_once(world: World) -> None:
    """More refs than any statement has parameters to spare."""
    accepted = await world.accept(*(upload(f"doc-{n}") for n in range(60)))
    refs = [DocumentRef(d.document_id, version) for d in accepted.documents for version in range(1, 31)]
    found = await world.catalog.standings("acme", await world.kb_id(), refs)
    assert set(found) == {ref for ref in refs if ref.document_version == 1}


async def test_a_chunk_needs_the_documents_and_the_versions_acl(world: World) -> None:
    """Narrowing by a new version hides the old one, widening doesn't open it."""
    [old] = await world.import_ready(upload("a", "one", acl=SALES))
    [new] = await world.import_ready(upload("a", "two", acl=PUBLIC))
    first, second = await world.standing(old), await world.standing(new)
    assert first is not None
    assert second is not None
    assert (first.document_acl, first.version_acl) == (PUBLIC, SALES)
    anyone = scope_of("acme", await world.kb_id(), [1])
    assert drop_reason(anyone, first, world.clock()) is DropReason.ACL
    assert drop_reason(anyone, second, world.clock()) is None


async def test_a_deleted_document_is_marked_so_in_every_version(world: World) -> None:
    """Readers are blocked at once."""
    [one] = await world.import_ready(upload("a", "one"))
    [two] = await world.import_ready(upload("a", "two"))
    assert await world.catalog.delete_document("acme", one.document_id)
    for ref in (one, two):
        standing = await world.standing(ref)
        assert standing is not None
        assert standing.deleted


async def test_reviving_a_document_does_not_bring_its_deleted_versions_back(world: World) -> None:
    """What was deleted stays hidden, whatever is imported under its name later."""
    [old] = await world.import_ready(upload("a", "secret"))
    await world.catalog.delete_document("acme", old.document_id)
    [new] = await world.import_ready(upload("a", "harmless"))
    assert new == DocumentRef(old.document_id, 2)
    scope = scope_of("acme", await world.kb_id(), [1])
    assert drop_reason(scope, await world.standing(old), world.clock()) is not None
    assert drop_reason(scope, await world.standing(new), world.clock()) is None


async def test_a_revoked_document_is_revoked_in_every_version(world: World) -> None:
    """Also in versions that come after the revocation."""
    [one] = await world.import_ready(upload("a", "one"))
    record = await world.catalog.revoke("acme", RevocationKind.DOCUMENT, one.document_id, "leak", "olga")
    [two] = await world.import_ready(upload("a", "two"))
    for ref, revoked in ((one, True), (two, True)):
        standing = await world.standing(ref)
        assert standing is not None
        assert standing.revoked is revoked
    await world.catalog.lift("acme", record.revocation_id)
    standing = await world.standing(two)
    assert standing is not None
    assert not standing.revoked


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name[:12]))
async def test_hostile_names_are_compared_literally(world: World, name: str) -> None:
    """As tenant, knowledge base, source and ACL name they match themselves and nothing else."""
    acl = Acl(frozenset({f"group:{name}"}), frozenset({f"user:{name}"}))
    plain = await world.accept(upload("plain"))
    accepted = await world.catalog.accept_import(import_of(upload(name, acl=acl), kb=name, tenant=name))
    kb_id = await world.kb_id(name, name)
    assert await world.catalog.acl_classes(name, kb_id) == (AclClass(1, acl),)
    ref = DocumentRef(accepted.documents[0].document_id, 1)
    refs = [ref, DocumentRef(plain.documents[0].document_id, 1), DocumentRef(name, 1)]
    assert list(await world.catalog.standings(name, kb_id, refs)) == [ref]
    assert await world.catalog.acl_classes("acme", name) == ()
    assert await world.catalog.standings("acme", name, refs) == {}
