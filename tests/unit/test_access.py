"""Principals, scopes and the authorizer, over the in-memory catalog."""

from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.access.authorizer import (
    Authorizer,
    CatalogRecheck,
    DocumentRef,
    DocumentStanding,
    DropReason,
    RevocationSet,
    TenantStamp,
    drop_reason,
)
from gateway.access.classes import MAX_PERMITTED_CLASSES, Acl, AclClass, permitted_classes
from gateway.access.principal import Principal
from gateway.access.scope import AccessScope
from gateway.adapters.memory.catalog import MemoryCatalog
from gateway.errors import (
    AuthorizerUnavailable,
    CatalogUnavailable,
    GatewayError,
    InvalidField,
    KnowledgeBaseNotFound,
    KnowledgeBaseRequired,
    PrincipalRevoked,
    ScopeMissing,
    TokenInvalid,
    UnscopedAccess,
)
from gateway.ingest.uploads import ImportRequest, NewDocument
from gateway.stream.revocation import RevocationKind

PUBLIC = Acl(frozenset({"public"}))


def _person(
    subject: str = "ann", *groups: str, tenant: str = "acme", scopes: frozenset[str] = frozenset({"ask"})
) -> Principal:
    return Principal(tenant, subject, frozenset(groups), scopes, 2_000_000_000.0)


async def _import(catalog: MemoryCatalog, kb: str, *acls: Acl, tenant: str = "acme") -> list[DocumentRef]:
    """One document for each ACL, its source the ACL's place."""
    documents = tuple(
        NewDocument(f"{kb}-{n}", f"{n}", "text/plain", f"key-{n}", f"hash-{n}", 1, acl)
        for n, acl in enumerate(acls)
    )
    request = ImportRequest(tenant, kb, "importer", documents, False, False, 3600.0)
    accepted = await catalog.accept_import(request)
    return [DocumentRef(d.document_id, d.document_version) for d in accepted.documents]


async def _refusal(catalog: MemoryCatalog, principal: Principal, kb: str | None) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        await Authorizer(catalog).authorize(principal, kb)
    return raised.value


# principals


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " ann",
        "ann ",
        "ann\n",
        "a\nnn",
        "a\x00b",
        "a\u200bb",
        "a\u202eb",
        "\ufeffann",
        "a\ud800b",
        "a" * 257,
        None,
        7,
        ["ann"],
    ],
    ids=ascii,
)
def test_an_odd_name_makes_no_principal(name: str) -> None:
    """Neither as a tenant, nor as a subject, nor as a group."""
    with pytest.raises(TokenInvalid):
        replace(_person(), tenant=name)
    with pytest.raises(TokenInvalid):
        replace(_person(), subject=name)
    if not isinstance(name, list):
        with pytest.raises(TokenInvalid):
            replace(_person(), groups=frozenset({"sales", name}))


def test_names_are_not_normalised() -> None:
    """Two spellings of one name are two names, so that no folding can hit somebody else's."""
    composed, decomposed = _person("andr\u00e9"), _person("andre\u0301")
    assert composed.names.isdisjoint(decomposed.names - {"public"})
    assert _person("Ann").names != _person("ann").names


def test_a_principal_answers_to_its_subject_its_groups_and_public() -> None:
    """Kinds keep a user and a group of one name apart."""
    assert _person("sales", "hr").names == {"user:sales", "group:hr", "public"}


def test_a_subject_can_not_pass_for_a_group_by_its_spelling() -> None:
    """The kind stands before whatever the token says."""
    assert "group:admins" not in _person("group:admins").names
    assert "public" in _person("public").names
    assert "user:public" in _person("public").names


def test_a_missing_scope_is_named() -> None:
    """And a scope that doesn't exist makes no principal."""
    _person().require("ask")
    with pytest.raises(ScopeMissing, match="operate"):
        _person().require("operate")
    with pytest.raises(TokenInvalid):
        _person(scopes=frozenset({"ask", "root"}))


def test_a_principal_can_not_be_changed() -> None:
    """Its tenant least of all."""
    person = _person()
    with pytest.raises(FrozenInstanceError):
        person.tenant = "globex"  # type: ignore[misc]  # that it is refused is the point


# ACLs


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "ann",
        "user:",
        "group:",
        ":ann",
        "User:ann",
        "role:x",
        "user: ann",
        "user:ann ",
        "user:a\nb",
        "PUBLIC",
    ],
)
def test_an_odd_acl_entry_is_refused(entry: str) -> None:
    """On either side."""
    with pytest.raises(InvalidField):
        Acl.parse([entry])
    with pytest.raises(InvalidField):
        Acl.parse(["public"], [entry])


def test_an_acl_has_a_bounded_number_of_entries_of_bounded_length() -> None:
    """Both lists together."""
    entries = [f"user:{n}" for n in range(500)]
    assert len(Acl.parse(entries, entries).deny) == 500
    with pytest.raises(InvalidField):
        Acl.parse([*entries, "user:one-more"], entries)
    with pytest.raises(InvalidField):
        Acl.parse(["user:" + "a" * 300])


@pytest.mark.parametrize(
    ("allow", "deny", "permitted"),
    [
        ({"public"}, set(), True),
        ({"user:ann"}, set(), True),
        ({"group:sales"}, set(), True),
        ({"group:hr"}, set(), False),
        ({"user:sales"}, set(), False),
        (set(), set(), False),
        (set(), {"user:bob"}, False),
        ({"public"}, {"user:ann"}, False),
        ({"user:ann"}, {"group:sales"}, False),
        ({"user:ann"}, {"public"}, False),
        ({"user:ann"}, {"user:bob"}, True),
    ],
)
def test_deny_beats_allow_and_nothing_matches_nobody(
    allow: set[str], deny: set[str], permitted: bool
) -> None:
    """For Ann of sales."""
    acl = Acl(frozenset(allow), frozenset(deny))
    names = _person("ann", "sales").names
    assert acl.permits(names) is permitted
    assert permitted_classes([AclClass(3, acl)], names) == ({3} if permitted else set())


def test_the_class_of_nobody_is_never_permitted() -> None:
    """Whatever its ACL says."""
    assert permitted_classes([AclClass(0, PUBLIC), AclClass(1, PUBLIC)], {"public"}) == {1}


# scopes


def _scope(**parts: object) -> AccessScope:
    whole: dict[str, object] = {
        "tenant": "acme",
        "kb_id": "kb",
        "knowledge_base": "handbook",
        "acl_revision": 1,
        "revocation_epoch": 1,
        "incarnation": "inc",
        "principals": frozenset({"user:ann", "public"}),
        "permitted_classes": frozenset({1, 2}),
    }
    return AccessScope(**(whole | parts))  # type: ignore[arg-type]  # parts are named by the tests below


@pytest.mark.parametrize(
    "parts",
    [
        {"tenant": ""},
        {"kb_id": ""},
        {"incarnation": ""},
        {"principals": frozenset()},
        {"permitted_classes": frozenset()},
        {"permitted_classes": frozenset({0})},
        {"permitted_classes": frozenset({0, 1})},
    ],
    ids=str,
)
def test_an_empty_scope_can_not_exist(parts: dict[str, object]) -> None:
    """Nor one that reaches the class of nobody."""
    with pytest.raises(UnscopedAccess):
        _scope(**parts)


def test_the_digest_names_the_permission_and_not_the_person() -> None:
    """Two people with equal classes share it; names and counters don't count."""
    same = [
        _scope(principals=frozenset({"user:bob", "public"})),
        _scope(permitted_classes=frozenset({2, 1})),
        _scope(acl_revision=9, revocation_epoch=9),
    ]
    assert {scope.digest for scope in same} == {_scope().digest}


@pytest.mark.parametrize(
    "parts",
    [
        {"permitted_classes": frozenset({1})},
        {"permitted_classes": frozenset({1, 2, 3})},
        {"permitted_classes": frozenset({12})},
        {"tenant": "globex"},
        {"kb_id": "other"},
        {"incarnation": "restored"},
    ],
    ids=str,
)
def test_another_permission_has_another_digest(parts: dict[str, object]) -> None:
    """In every part that can tell two permissions apart."""
    assert _scope(**parts).digest != _scope().digest


def test_parts_of_a_digest_do_not_run_into_each_other() -> None:
    """Quotes and commas in a name stay in that name."""
    scopes = [_scope(tenant='a","b', kb_id="c"), _scope(tenant="a", kb_id='b","c')]
    assert scopes[0].digest != scopes[1].digest


def test_a_digest_can_not_be_given() -> None:
    """It is worked out, always."""
    with pytest.raises(TypeError):
        _scope(digest="forged")


# the authorizer


async def test_a_scope_holds_what_the_catalog_says() -> None:
    """Built from the principal and the stamp, and from nothing else."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC, Acl.parse(["group:hr"]), Acl.parse(["group:sales"]))
    scope = await Authorizer(catalog).authorize(_person("ann", "sales"), "handbook")
    stamp = await catalog.tenant_stamp("acme")
    [kb] = stamp.knowledge_bases
    assert scope == AccessScope(
        tenant="acme",
        kb_id=kb.kb_id,
        knowledge_base="handbook",
        acl_revision=kb.acl_revision,
        revocation_epoch=stamp.revocation_epoch,
        incarnation=stamp.incarnation,
        principals=frozenset({"user:ann", "group:sales", "public"}),
        permitted_classes=frozenset({1, 3}),
    )


async def test_missing_foreign_forbidden_and_revoked_knowledge_bases_look_the_same() -> None:
    """No difference in class, code, detail or title tells that one exists."""
    catalog = MemoryCatalog()
    await _import(catalog, "open", PUBLIC)
    await _import(catalog, "forbidden", Acl.parse(["group:hr"]))
    await _import(catalog, "denied", Acl.parse(["public"], ["user:ann"]))
    await _import(catalog, "nobody's", Acl(frozenset()))
    await _import(catalog, "revoked", PUBLIC)
    await _import(catalog, "foreign", PUBLIC, tenant="globex")
    await catalog.revoke("acme", RevocationKind.KNOWLEDGE_BASE, "revoked", "x", "olga")
    names = ["missing", "forbidden", "denied", "nobody's", "revoked", "foreign", "", "OPEN", "open "]
    refusals = [await _refusal(catalog, _person(), name) for name in names]
    assert {(type(r), r.code, r.detail, r.title, r.retry_after_ms) for r in refusals} == {
        (KnowledgeBaseNotFound, "knowledge_base_not_found", "", KnowledgeBaseNotFound.title, None)
    }


async def test_without_a_name_the_only_permitted_knowledge_base_is_meant() -> None:
    """Forbidden and revoked ones don't make the question ambiguous."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC)
    await _import(catalog, "salaries", Acl.parse(["group:hr"]))
    await _import(catalog, "old", PUBLIC)
    await _import(catalog, "handbook", PUBLIC, tenant="globex")
    await catalog.revoke("acme", RevocationKind.KNOWLEDGE_BASE, "old", "x", "olga")
    scope = await Authorizer(catalog).authorize(_person(), None)
    assert (scope.tenant, scope.knowledge_base) == ("acme", "handbook")


async def test_with_several_permitted_ones_a_name_is_required() -> None:
    """The refusal names those, and never one that the caller may not see."""
    catalog = MemoryCatalog()
    for name in ("wiki", "handbook"):
        await _import(catalog, name, PUBLIC)
    await _import(catalog, "salaries", Acl.parse(["group:hr"]))
    await _import(catalog, "globex-plans", PUBLIC, tenant="globex")
    refusal = await _refusal(catalog, _person(), None)
    assert isinstance(refusal, KnowledgeBaseRequired)
    assert refusal.detail == "name one of: handbook, wiki"
    permitted = await Authorizer(catalog).permitted(_person())
    assert sorted(scope.knowledge_base for scope in permitted) == ["handbook", "wiki"]


async def test_without_any_permitted_knowledge_base_there_is_none() -> None:
    """In an unknown tenant as in one that lets nobody in."""
    catalog = MemoryCatalog()
    await _import(catalog, "salaries", Acl.parse(["group:hr"]))
    for person in (_person(), _person(tenant="globex")):
        assert isinstance(await _refusal(catalog, person, None), KnowledgeBaseNotFound)
        assert await Authorizer(catalog).permitted(person) == []


async def test_a_revoked_user_is_refused_until_it_is_lifted() -> None:
    """Whatever groups the token brings; namesakes in other tenants are other people."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC)
    await _import(catalog, "handbook", PUBLIC, tenant="globex")
    authorizer = Authorizer(catalog)
    record = await catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
    for kb in ("handbook", "missing", None):
        assert isinstance(await _refusal(catalog, _person("ann", "sales"), kb), PrincipalRevoked)
    with pytest.raises(PrincipalRevoked):
        await authorizer.permitted(_person())
    await authorizer.authorize(_person("bob"), None)
    await authorizer.authorize(_person("ann", tenant="globex"), None)
    await catalog.lift("acme", record.revocation_id)
    await authorizer.authorize(_person(), "handbook")


async def test_a_revoked_group_lets_nobody_in() -> None:
    """Its members keep what they have without it."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC, Acl.parse(["group:sales"]))
    await _import(catalog, "deals", Acl.parse(["group:sales"]))
    authorizer = Authorizer(catalog)
    before = await authorizer.authorize(_person("ann", "sales"), "handbook")
    await catalog.revoke("acme", RevocationKind.GROUP, "sales", "dissolved", "olga")
    after = await authorizer.authorize(_person("ann", "sales"), "handbook")
    assert before.permitted_classes == {1, 2}
    assert after.permitted_classes == {1}
    assert after.principals == {"user:ann", "public"}
    assert isinstance(await _refusal(catalog, _person("ann", "sales"), "deals"), KnowledgeBaseNotFound)


async def test_a_caller_may_hold_only_so_many_classes() -> None:
    """Beyond it there is an error for the operator, never a wider or a cut filter."""
    catalog = MemoryCatalog()
    groups = ("sales", "hr")  # no entry alone has too many, but whoever is in both groups
    acls = [Acl.parse([f"group:{groups[n % 2]}", f"user:{n}"]) for n in range(MAX_PERMITTED_CLASSES)]
    await _import(catalog, "handbook", *acls)
    authorizer = Authorizer(catalog)
    both = _person("ann", *groups)
    scope = await authorizer.authorize(both, "handbook")
    assert len(scope.permitted_classes) == MAX_PERMITTED_CLASSES
    one_more = NewDocument("more", "more", "text/plain", "key", "hash", 1, Acl.parse(["group:hr", "user:x"]))
    await catalog.accept_import(
        ImportRequest("acme", "handbook", "importer", (one_more,), False, False, 3600.0)
    )
    with pytest.raises(AuthorizerUnavailable, match=str(MAX_PERMITTED_CLASSES)):
        await authorizer.authorize(both, "handbook")
    assert (await authorizer.authorize(_person("bob", "sales"), "handbook")).permitted_classes


_acls = st.builds(
    Acl,
    allow=st.frozensets(st.sampled_from(["public", "user:ann", "group:sales", "group:hr"])),
    deny=st.frozensets(st.sampled_from(["public", "user:ann", "group:sales"])),
)


@given(
    narrow=_acls, wide=_acls, names=st.frozensets(st.sampled_from(["user:ann", "group:sales", "group:hr"]))
)
@settings(derandomize=True, database=None, deadline=None)
def test_an_acl_covers_another_when_it_lets_everybody_of_it_in(
    narrow: Acl, wide: Acl, names: frozenset[str]
) -> None:
    """What isn't covered may be a narrowing, and what is covered never is one."""
    everybody = names | {"public"}
    if wide.covers(narrow):
        assert wide.permits(everybody) or not narrow.permits(everybody)
    assert narrow.covers(narrow)


class CountingCatalog(MemoryCatalog):
    """Counts the reads of ACL classes and of revocations."""

    class_reads = 0
    revocation_reads = 0

    async def revocations(self, tenant: str) -> RevocationSet:
        self.revocation_reads += 1
        return await super().revocations(tenant)

    async def acl_classes(self, tenant: str, kb_id: str) -> tuple[AclClass, ...]:
        self.class_reads += 1
        return await super().acl_classes(tenant, kb_id)


async def test_classes_are_read_once_for_each_revision() -> None:
    """The revision names their state, so a new class is seen at once."""
    catalog = CountingCatalog()
    await _import(catalog, "handbook", PUBLIC)
    authorizer = Authorizer(catalog)
    for person in (_person(), _person("bob", "hr"), _person()):
        await authorizer.authorize(person, "handbook")
    assert catalog.class_reads == 1
    await _import(catalog, "handbook", PUBLIC, Acl.parse(["group:hr"]))
    scope = await authorizer.authorize(_person("bob", "hr"), "handbook")
    assert scope.permitted_classes == {1, 2}
    assert catalog.class_reads == 2


async def test_revocations_are_read_once_for_each_epoch() -> None:
    """The epoch names their state: the next request after a revocation or a lift reads them again."""
    catalog = CountingCatalog()
    await _import(catalog, "handbook", PUBLIC)
    authorizer = Authorizer(catalog)
    for person in (_person(), _person("bob", "hr"), _person()):
        await authorizer.authorize(person, "handbook")
        await authorizer.refuse_revoked(person)
    assert catalog.revocation_reads == 1
    revoked = await catalog.revoke("acme", RevocationKind.USER, "bob", "left", "operator")
    for _ in range(2):
        with pytest.raises(PrincipalRevoked):
            await authorizer.refuse_revoked(_person("bob", "hr"))
    assert catalog.revocation_reads == 2
    await catalog.lift("acme", revoked.revocation_id)
    await authorizer.authorize(_person("bob", "hr"), "handbook")
    assert catalog.revocation_reads == 3


async def test_a_scope_that_still_holds_is_returned_as_it_is() -> None:
    """Nothing but the stamp is read again."""
    catalog = CountingCatalog()
    await _import(catalog, "handbook", PUBLIC)
    authorizer = Authorizer(catalog)
    scope = await authorizer.authorize(_person(), "handbook")
    assert await authorizer.still_holds(_person(), scope) is scope
    await _import(catalog, "other", Acl.parse(["group:hr"]))
    assert await authorizer.still_holds(_person(), scope) is scope
    assert catalog.class_reads == 1


async def test_a_scope_is_built_afresh_when_its_permissions_changed() -> None:
    """A new class, or any revocation in the tenant; other tenants' don't count."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC)
    authorizer = Authorizer(catalog)
    scope = await authorizer.authorize(_person("ann", "sales"), "handbook")
    await catalog.revoke("globex", RevocationKind.USER, "ann", "left", "olga")
    assert await authorizer.still_holds(_person("ann", "sales"), scope) is scope
    await _import(catalog, "handbook", PUBLIC, Acl.parse(["group:sales"]))
    wider = await authorizer.still_holds(_person("ann", "sales"), scope)
    assert wider.permitted_classes == {1, 2}
    assert wider.digest != scope.digest
    await catalog.revoke("acme", RevocationKind.GROUP, "sales", "dissolved", "olga")
    narrower = await authorizer.still_holds(_person("ann", "sales"), wider)
    assert narrower.permitted_classes == {1}
    assert narrower.digest == scope.digest
    assert narrower.revocation_epoch > scope.revocation_epoch


async def test_a_scope_of_another_incarnation_does_not_hold() -> None:
    """A restored catalog may count epochs and revisions from an older state."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC)
    authorizer = Authorizer(catalog)
    scope = await authorizer.authorize(_person(), "handbook")
    old = replace(scope, incarnation="before-the-restore")
    assert await authorizer.still_holds(_person(), old) == scope


@pytest.mark.parametrize(
    ("kind", "subject", "error"),
    [
        (RevocationKind.USER, "ann", PrincipalRevoked),
        (RevocationKind.KNOWLEDGE_BASE, "handbook", KnowledgeBaseNotFound),
    ],
)
async def test_a_revoked_scope_does_not_hold(
    kind: RevocationKind, subject: str, error: type[GatewayError]
) -> None:
    """It raises what a new request would meet."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC)
    authorizer = Authorizer(catalog)
    scope = await authorizer.authorize(_person(), "handbook")
    await catalog.revoke("acme", kind, subject, "x", "olga")
    with pytest.raises(error):
        await authorizer.still_holds(_person(), scope)


class FailingPrincipals:
    """A source of names that is down."""

    async def names(self, principal: Principal) -> frozenset[str]:
        raise AuthorizerUnavailable()


class FailingCatalog(MemoryCatalog):
    """Fails in one read, named at construction."""

    def __init__(self, failing: str) -> None:
        super().__init__()
        self.failing = failing

    def _fail(self, read: str) -> None:
        if read == self.failing:
            raise CatalogUnavailable()

    async def tenant_stamp(self, tenant: str) -> TenantStamp:
        self._fail("tenant_stamp")
        return await super().tenant_stamp(tenant)

    async def revocations(self, tenant: str) -> RevocationSet:
        self._fail("revocations")
        return await super().revocations(tenant)

    async def acl_classes(self, tenant: str, kb_id: str) -> tuple[AclClass, ...]:
        self._fail("acl_classes")
        return await super().acl_classes(tenant, kb_id)

    async def standings(
        self, tenant: str, kb_id: str, refs: Sequence[DocumentRef]
    ) -> Mapping[DocumentRef, DocumentStanding]:
        self._fail("standings")
        return await super().standings(tenant, kb_id, refs)


@pytest.mark.parametrize("failing", ["tenant_stamp", "revocations", "acl_classes"])
async def test_a_failing_catalog_gives_no_scope(failing: str) -> None:
    """Whichever read it is, nobody gets in on what was known before."""
    catalog = FailingCatalog(failing)
    await _import(catalog, "handbook", PUBLIC)
    with pytest.raises(CatalogUnavailable):
        await Authorizer(catalog).authorize(_person(), "handbook")


async def test_a_scope_does_not_hold_while_the_catalog_is_silent() -> None:
    """Silence is no permission."""
    catalog = FailingCatalog("nothing yet")
    await _import(catalog, "handbook", PUBLIC)
    authorizer = Authorizer(catalog)
    scope = await authorizer.authorize(_person(), "handbook")
    catalog.failing = "tenant_stamp"
    with pytest.raises(CatalogUnavailable):
        await authorizer.still_holds(_person(), scope)


async def test_a_failing_source_of_names_gives_no_scope() -> None:
    """The token's own names are no fallback."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC)
    with pytest.raises(AuthorizerUnavailable):
        await Authorizer(catalog, FailingPrincipals()).authorize(_person(), "handbook")


class OtherPrincipals:
    """An external source that knows Ann's groups better than her token."""

    async def names(self, principal: Principal) -> frozenset[str]:
        return frozenset({f"user:{principal.subject}", "group:hr", "group:sales"})


async def test_names_come_from_the_source_and_lose_revoked_groups() -> None:
    """Also those that the token never named."""
    catalog = MemoryCatalog()
    await _import(catalog, "handbook", PUBLIC, Acl.parse(["group:hr"]), Acl.parse(["group:sales"]))
    await catalog.revoke("acme", RevocationKind.GROUP, "sales", "dissolved", "olga")
    scope = await Authorizer(catalog, OtherPrincipals()).authorize(_person(), "handbook")
    assert scope.principals == {"user:ann", "group:hr"}
    assert scope.permitted_classes == {2}


# the re-check


def _standing(**parts: object) -> DocumentStanding:
    whole: dict[str, object] = {
        "document_acl": PUBLIC,
        "version_acl": PUBLIC,
        "deleted": False,
        "revoked": False,
        "withdrawn": False,
        "sensitivity": 0,
        "valid_from": None,
        "valid_until": None,
    }
    return DocumentStanding(**(whole | parts))  # type: ignore[arg-type]  # parts are named by the test below


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (None, DropReason.UNKNOWN),
        (_standing(), None),
        (_standing(deleted=True), DropReason.DELETED),
        (_standing(revoked=True), DropReason.REVOKED),
        (_standing(withdrawn=True), DropReason.WITHDRAWN),
        (_standing(document_acl=Acl.parse(["group:hr"])), DropReason.ACL),
        (_standing(version_acl=Acl.parse(["group:hr"])), DropReason.ACL),
        (_standing(version_acl=Acl.parse(["public"], ["user:ann"])), DropReason.ACL),
        (_standing(document_acl=Acl(frozenset())), DropReason.ACL),
        (_standing(valid_until=100.0), DropReason.EXPIRED),
        (_standing(valid_until=100.5), None),
        (_standing(valid_from=100.0), None),
        (_standing(valid_from=100.5), DropReason.NOT_YET_VALID),
        (_standing(deleted=True, revoked=True, withdrawn=True), DropReason.DELETED),
    ],
)
def test_a_document_is_dropped_for_the_first_reason_that_holds(
    standing: DocumentStanding | None, reason: DropReason | None
) -> None:
    """For Ann, at 100 seconds; both ACLs have to let her in."""
    assert drop_reason(_scope(), standing, 100.0) is reason


async def test_the_re_check_answers_for_every_ref_from_the_present_state() -> None:
    """Asked twice it is read twice; foreign and made-up refs are unknown."""
    catalog = MemoryCatalog()
    kept, revoked, hidden = await _import(catalog, "handbook", PUBLIC, PUBLIC, Acl.parse(["group:hr"]))
    [foreign] = await _import(catalog, "handbook", PUBLIC, tenant="globex")
    scope = await Authorizer(catalog).authorize(_person(), "handbook")
    recheck = CatalogRecheck(catalog)
    refs = [kept, revoked, hidden, foreign, kept, DocumentRef("made-up", 1)]
    before = await recheck.check(scope, refs, 100.0)
    await catalog.revoke("acme", RevocationKind.DOCUMENT, revoked.document_id, "leak", "olga")
    after = await recheck.check(scope, refs, 100.0)
    assert before == {
        kept: None,
        revoked: None,
        hidden: DropReason.ACL,
        foreign: DropReason.UNKNOWN,
        DocumentRef("made-up", 1): DropReason.UNKNOWN,
    }
    assert after == {**before, revoked: DropReason.REVOKED}


async def test_the_re_check_fails_closed_and_asks_nothing_for_nothing() -> None:
    """Without refs there is no read that could fail."""
    catalog = FailingCatalog("standings")
    [ref] = await _import(catalog, "handbook", PUBLIC)
    scope = await Authorizer(catalog).authorize(_person(), "handbook")
    recheck = CatalogRecheck(catalog)
    assert await recheck.check(scope, [], 100.0) == {}
    with pytest.raises(CatalogUnavailable):
        await recheck.check(scope, [ref], 100.0)


async def test_a_revoked_group_keeps_out_whom_it_was_denied() -> None:
    """Taking a group away never opens a document that the group was denied."""
    catalog = MemoryCatalog()
    refs = await _import(catalog, "handbook", PUBLIC, Acl.parse(["public"], ["group:contractors"]))
    ann = _person("ann", "contractors")
    before = await Authorizer(catalog).authorize(ann, "handbook")
    await catalog.revoke("acme", RevocationKind.GROUP, "contractors", "ended", "root")
    after = await Authorizer(catalog).authorize(ann, "handbook")
    assert after.permitted_classes == before.permitted_classes
    verdicts = await CatalogRecheck(catalog).check(after, refs, 0.0)
    assert [verdicts[ref] for ref in refs] == [None, DropReason.ACL]
