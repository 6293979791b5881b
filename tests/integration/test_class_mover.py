"""The class mover, on twins and on the real parts: rows follow their document's ACL, whatever happens."""

import time
from collections.abc import Iterable
from typing import Any

import pytest

from gateway.access.authorizer import Authorizer, CatalogRecheck, DocumentRef
from gateway.access.classes import Acl
from gateway.access.principal import Principal
from gateway.context import Deadline
from gateway.errors import KnowledgeBaseNotFound, VectorStoreUnavailable
from gateway.ingest.governance import AclChange, ChangedAcl
from gateway.ingest.task import TaskClaim, TaskKind, TaskRecord, TaskState
from gateway.ingest.worker import Worker
from gateway.release.model import ReleaseState
from gateway.retrieval.query import ScopedQuery
from gateway.stream.revocation import RevocationKind
from tests.integration.import_world import (
    KB,
    LEADS,
    STAFF,
    TENANT,
    TEXTS,
    Altered,
    Crash,
    Fuse,
    ImportWorld,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = Acl.parse(["group:staff", "group:leads"], [])
TRAVEL = {"travel": TEXTS["travel"]}
#: of every reader whose rights a test looks at
GROUPS = ("staff", "leads", "hr")


async def document_id(imports: ImportWorld, source: str = "travel.md") -> str:
    documents = await imports.catalog.documents(TENANT, KB)
    return next(d.document_id for d in documents if d.source == source)


async def set_acl(imports: ImportWorld, acl: Acl, source: str = "travel.md") -> ChangedAcl:
    target = await document_id(imports, source)
    return await imports.catalog.set_acl(AclChange(TENANT, target, acl, "olga", 3600.0))


async def move(imports: ImportWorld, worker: Worker | None = None) -> TaskRecord:
    """Runs the only task there is, which must be a move."""
    claim = await imports.claim()
    assert claim.kind is TaskKind.MOVE
    await (worker or imports.worker()).work(claim)
    task = await imports.catalog.task(TENANT, claim.task_id)
    assert task is not None
    return task


async def rest(imports: ImportWorld) -> None:
    """Whatever other tasks wait, such as the clean-up of a revocation."""
    while (claim := await imports.catalog.claim("worker", 600.0, 5)) is not None:
        await imports.worker().work(claim)


async def seen_by(imports: ImportWorld, group: str) -> set[str]:
    """The sources a member gets passages of: found by the store's filter, permitted by the re-check."""
    authorizer = Authorizer(imports.catalog)
    principal = Principal(TENANT, "ann", frozenset({group}), frozenset({"ask"}), 1e12)
    try:
        scope = await authorizer.authorize(principal, KB)
    except KnowledgeBaseNotFound:
        return set()
    release = await imports.active()
    query = ScopedQuery(scope, release, int(time.time()))
    probe = (1.0, *[0.0] * (imports.space.dimension - 1))
    hits = await imports.vectors.dense(query, probe, 1000, Deadline.after(20_000))
    refs = [DocumentRef(hit.chunk.document_id, hit.chunk.document_version) for hit in hits]
    verdicts = await CatalogRecheck(imports.catalog).check(scope, refs, time.time())
    return {
        hit.chunk.source_uri.removeprefix("file:")
        for hit, ref in zip(hits, refs, strict=True)
        if verdicts[ref] is None
    }


async def seen(imports: ImportWorld) -> dict[str, set[str]]:
    return {group: await seen_by(imports, group) for group in GROUPS}


async def statistics(imports: ImportWorld, classes: Iterable[int], term: str = "travel") -> tuple[int, int]:
    """Passages and passages with the term, as readers with these classes have them counted."""
    release = await imports.active()
    scope = await Authorizer(imports.catalog).authorize(
        Principal(TENANT, "ann", frozenset(GROUPS), frozenset({"ask"}), 1e12), KB
    )
    object.__setattr__(scope, "permitted_classes", frozenset(classes))
    counted: Any = imports.catalog
    found = await counted.statistics(ScopedQuery(scope, release, 1), [term], Deadline.after(20_000))
    return found.passages, found.frequencies.get(term, 0)


async def classes_of(imports: ImportWorld, source: str = "travel.md") -> set[int]:
    """The classes of a document's rows in the active release, as they are stored."""
    return {
        chunk.acl_class for chunk in (await imports.dump()).chunks if chunk.source_uri == f"file:{source}"
    }


# what a change does at once, and what its move does


async def test_a_narrowing_hides_a_document_at_once_and_its_rows_follow(imports: ImportWorld) -> None:
    """Before the move as after it nobody sees more than he may; who still may sees it again after it."""
    await imports.learn(TEXTS, acl=BOTH)
    assert await seen(imports) == {
        "staff": set(map("{}.md".format, TEXTS)),
        "leads": set(map("{}.md".format, TEXTS)),
        "hr": set(),
    }
    changed = await set_acl(imports, LEADS)
    assert changed.narrowed
    assert "travel.md" not in await seen_by(imports, "staff")
    assert "travel.md" in await seen_by(imports, "leads")
    before = (await imports.dump()).without_revision("travel.md")
    task = await move(imports)
    assert (task.task_id, task.state) == (changed.task_id, TaskState.SUCCEEDED)
    assert task.report == {"moved": {"rows": 2}}
    assert await classes_of(imports) == {2}
    assert await seen(imports) == {
        "staff": {"refund.md", "access.md"},
        "leads": set(map("{}.md".format, TEXTS)),
        "hr": set(),
    }
    assert (await imports.dump()).without_revision("travel.md") == before
    assert await imports.catalog.claim("worker", 600.0, 5) is None


async def test_a_widening_never_opens_a_version_beyond_what_it_was_imported_with(
    imports: ImportWorld,
) -> None:
    """Both ACLs must permit; a new import with the wider one opens its own version."""
    await imports.learn(TRAVEL, acl=STAFF)
    assert not (await set_acl(imports, BOTH)).narrowed
    await move(imports)
    assert await classes_of(imports) == {2}
    assert await seen(imports) == {"staff": {"travel.md"}, "leads": set(), "hr": set()}
    await imports.learn(TRAVEL, acl=BOTH)
    assert await seen(imports) == {"staff": {"travel.md"}, "leads": {"travel.md"}, "hr": set()}


async def test_who_is_let_in_by_another_name_finds_the_document_after_the_move(imports: ImportWorld) -> None:
    """One narrowed class can't ask for two names at once: that is what the move is for."""
    await imports.learn(TRAVEL, acl=BOTH)
    await set_acl(imports, Acl.parse(["group:leads"], []))
    await move(imports)
    assert await seen_by(imports, "leads") == {"travel.md"}
    await set_acl(imports, BOTH)
    await move(imports)
    assert await seen(imports) == {"staff": {"travel.md"}, "leads": {"travel.md"}, "hr": set()}
    assert await classes_of(imports) == {1}


async def test_term_statistics_move_with_the_rows(imports: ImportWorld) -> None:
    """They are summed over the caller's classes: a class must count what it holds, and nothing else."""
    await imports.learn(TEXTS, acl=BOTH)
    whole = await statistics(imports, {1})
    await set_acl(imports, LEADS)
    await move(imports)
    assert await statistics(imports, {1, 2}) == whole
    assert await statistics(imports, {2}) == (2, 2)
    assert await statistics(imports, {1}) == (whole[0] - 2, whole[1] - 2)
    await set_acl(imports, BOTH)
    await move(imports)
    assert await statistics(imports, {1}) == whole
    assert await statistics(imports, {2}) == (0, 0)


async def test_every_retained_revision_is_moved(imports: ImportWorld) -> None:
    """What a rollback or an operator may make active again is right when he does."""
    await imports.learn(TRAVEL, acl=BOTH)
    await imports.learn({"refund": TEXTS["refund"]}, acl=BOTH)
    await imports.learn({"access": TEXTS["access"]}, acl=BOTH, activate=False)
    await imports.build_release()
    states = {release.state for release in await imports.releases()}
    assert states == {ReleaseState.ACTIVE, ReleaseState.RETIRED, ReleaseState.READY}
    await set_acl(imports, LEADS)
    assert (await move(imports)).report == {"moved": {"rows": 6}}
    ready = (await imports.releases())[0]
    await imports.catalog.activate(TENANT, ready.release_id, None)
    assert await classes_of(imports) == {2}
    await imports.catalog.roll_back(TENANT, KB)
    await imports.catalog.roll_back(TENANT, KB)
    assert await classes_of(imports) == {2}
    assert await seen(imports) == {"staff": set(), "leads": {"travel.md"}, "hr": set()}


async def test_a_moved_release_is_known_as_what_it_is(imports: ImportWorld) -> None:
    """An import without news builds nothing after a move either."""
    await imports.learn(TRAVEL, acl=BOTH)
    active = await imports.active()
    await set_acl(imports, LEADS)
    await move(imports)
    await imports.build_release()
    assert await imports.active() == active
    assert len(await imports.releases()) == 1


async def test_a_revoked_document_goes_to_the_class_of_nobody_and_comes_back(imports: ImportWorld) -> None:
    """Until its revocation is lifted no scope contains its rows."""
    await imports.learn({name: TEXTS[name] for name in ("travel", "refund")}, acl=STAFF)
    whole = await statistics(imports, {1})
    record = await imports.catalog.revoke(
        TENANT, RevocationKind.DOCUMENT, await document_id(imports), "leak", "olga"
    )
    assert await seen_by(imports, "staff") == {"refund.md"}
    await rest(imports)
    assert await statistics(imports, {1}) == (whole[0] - 2, whole[1] - 2)
    release = await imports.active()
    assert await imports.rows_left(release.kb_revision) == 4
    assert await seen_by(imports, "staff") == {"refund.md"}
    await imports.catalog.lift(TENANT, record.revocation_id)
    await rest(imports)
    assert await seen_by(imports, "staff") == {"travel.md", "refund.md"}
    assert await statistics(imports, {1}) == whole
    assert await classes_of(imports) == {1}


async def test_an_unreleased_document_has_nothing_to_move(imports: ImportWorld) -> None:
    """No task for nothing; and several changes wait as one task."""
    await imports.learn(TRAVEL, acl=BOTH, activate=False)
    assert (await set_acl(imports, LEADS)).task_id is None
    await imports.learn(TRAVEL, acl=BOTH)
    tasks = {(await set_acl(imports, acl)).task_id for acl in (LEADS, STAFF, LEADS)}
    assert len(tasks) == 1
    assert None not in tasks
    await move(imports)
    assert await classes_of(imports) == {2}


# what goes wrong on the way


async def moved_through(imports: ImportWorld, fuse: Fuse) -> None:
    """A move whose parts are behind the fuse."""
    claim = await imports.claim()
    assert claim.kind is TaskKind.MOVE
    await imports.fused_worker(fuse).work(claim)


async def test_a_crash_at_any_step_and_another_run_leave_the_same(imports: ImportWorld) -> None:
    """Of each call to a part the work ends there; the next worker moves everything, once."""
    await imports.learn(TEXTS, acl=BOTH)
    expected = await statistics(imports, {1})
    acls = (LEADS, BOTH)
    counted = Fuse()
    await set_acl(imports, acls[0])
    await moved_through(imports, counted)
    rows = (await imports.dump()).without_revision("travel.md")
    for step in range(1, counted.calls + 1, 3 if imports.real else 1):
        acl = acls[step % 2]
        await set_acl(imports, acl)
        with pytest.raises((Crash, ExceptionGroup, BaseExceptionGroup)):
            await moved_through(imports, Fuse(step))
        others = {"staff", "leads"} if acl is BOTH else {"leads"}
        assert {group for group, sources in (await seen(imports)).items() if "travel.md" in sources} <= others
        imports.clock.advance(601)
        await rest(imports)
        number = 1 if acl is BOTH else 2
        assert await classes_of(imports) == {number}, step
        assert await statistics(imports, {1, 2}) == expected, step
        assert (await imports.dump()).without_revision("travel.md") == rows


async def test_a_move_that_another_change_overtakes_ends_at_the_last_word(imports: ImportWorld) -> None:
    """The document's ACL goes back to what it was while its rows are half way: they come back too."""
    await imports.learn(TRAVEL, acl=BOTH)
    await set_acl(imports, LEADS)

    async def write(real: Any, *arguments: Any) -> None:
        await real(*arguments)
        if await document_acl(imports) == LEADS:
            await set_acl(imports, BOTH)

    task = await move(imports, imports.worker(vectors=Altered(imports.vectors, write=write)))
    assert task.state is TaskState.SUCCEEDED
    await rest(imports)
    assert await classes_of(imports) == {1}
    assert await seen(imports) == {"staff": {"travel.md"}, "leads": {"travel.md"}, "hr": set()}


async def document_acl(imports: ImportWorld) -> Acl:
    document = await imports.catalog.document(TENANT, await document_id(imports))
    assert document is not None
    return Acl.parse(document.allow, document.deny)


async def test_a_frozen_worker_that_writes_too_late_is_found_out_and_mended(imports: ImportWorld) -> None:
    """Another has moved the rows in the meantime: the late write is undone by one more move."""
    await imports.learn(TRAVEL, acl=BOTH)
    await set_acl(imports, LEADS)
    overtaken = False

    async def write(real: Any, *arguments: Any) -> None:
        nonlocal overtaken
        if not overtaken:  # frozen here, right before the write
            overtaken = True
            imports.clock.advance(601)
            await set_acl(imports, STAFF)
            await rest(imports)
            assert await classes_of(imports) == {3}
        await real(*arguments)

    claim = await imports.claim()
    await imports.worker(vectors=Altered(imports.vectors, write=write)).work(claim)
    assert overtaken
    await rest(imports)
    assert await classes_of(imports) == {3}
    assert await seen(imports) == {"staff": {"travel.md"}, "leads": set(), "hr": set()}


async def test_a_store_that_is_down_puts_the_move_off(imports: ImportWorld) -> None:
    """It isn't over until the rows have moved; meanwhile the re-check holds."""
    await imports.learn(TRAVEL, acl=BOTH)
    await set_acl(imports, LEADS)

    async def write(real: Any, *arguments: Any) -> None:
        raise VectorStoreUnavailable()

    claim = await imports.claim()
    await imports.worker(vectors=Altered(imports.vectors, write=write)).work(claim)
    assert "travel.md" not in await seen_by(imports, "staff")
    imports.clock.advance(601)
    assert (await move(imports)).state is TaskState.SUCCEEDED
    assert await classes_of(imports) == {2}


async def test_a_move_waits_for_the_import_that_runs(imports: ImportWorld) -> None:
    """One running task a knowledge base: no build meets rows that change under it."""
    await imports.learn(TRAVEL, acl=BOTH)
    accepted = await imports.accept({"refund": TEXTS["refund"]}, acl=BOTH)
    importing: TaskClaim = await imports.claim()
    assert importing.task_id == accepted.task_id
    await set_acl(imports, LEADS)
    assert await imports.catalog.claim("another", 600.0, 5) is None
    await imports.worker().work(importing)
    assert (await imports.task(accepted)).state is TaskState.SUCCEEDED
    assert await seen(imports) == {"staff": {"refund.md"}, "leads": {"travel.md", "refund.md"}, "hr": set()}
    await rest(imports)
    assert await classes_of(imports) == {2}
