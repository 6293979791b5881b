"""Two catalogs on one PostgreSQL at once: what SQLite's single writer means, several writers mean too."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio
import pytest

from gateway.access.classes import Acl
from gateway.adapters.sql.catalog import SqlCatalog, open_postgres
from gateway.errors import ReleaseConflict, StaleFence
from gateway.ingest.governance import AclChange, Decision, Verdict
from gateway.ingest.plan import Activation, ClassTerms
from gateway.ingest.task import Ending, TaskClaim, TaskKind, TaskState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import SALES, Clock, World, import_of, upload

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

_PATIENCE_S = 60.0


@pytest.fixture
async def both(postgres: "PostgresServer") -> AsyncIterator[tuple[SqlCatalog, SqlCatalog]]:
    """Two catalogs with pools of their own, as two processes have."""
    url = postgres.migrated()
    async with (
        open_postgres(url, connections=8, cap_s=20) as one,
        open_postgres(url, connections=8, cap_s=20) as other,
    ):
        yield one, other


async def test_each_task_is_claimed_by_one_worker(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """However many ask at once; and none is left over."""
    accepted = [await both[0].accept_import(import_of(upload("a"), kb=f"kb-{number}")) for number in range(6)]
    claims: list[TaskClaim] = []
    with anyio.fail_after(_PATIENCE_S):
        while len(claims) < len(accepted):
            found = await asyncio.gather(*(both[n % 2].claim(f"worker-{n}", 300, 5) for n in range(6)))
            claims += [claim for claim in found if claim is not None]
        assert await asyncio.gather(*(catalog.claim("late", 300, 5) for catalog in both)) == [None, None]
    assert Counter(claim.task_id for claim in claims) == Counter(task.task_id for task in accepted)
    assert {claim.fence for claim in claims} == {1}


async def test_one_knowledge_base_is_worked_on_by_one_worker(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """Several tasks of it are free and several workers ask."""
    for number in range(4):
        await both[0].accept_import(import_of(upload(f"{number}")))
    with anyio.fail_after(_PATIENCE_S):
        found = await asyncio.gather(*(both[n % 2].claim(f"worker-{n}", 300, 5) for n in range(6)))
    assert len([claim for claim in found if claim is not None]) == 1


async def test_an_expired_lease_goes_to_one_worker_and_the_old_one_is_stale(
    both: tuple[SqlCatalog, SqlCatalog],
) -> None:
    """The database's clock decides that it has expired."""
    await both[0].accept_import(import_of(upload("a")))
    old = await both[0].claim("slow", 0, 5)
    assert old is not None
    with anyio.fail_after(_PATIENCE_S):
        found = await asyncio.gather(*(both[n % 2].claim(f"worker-{n}", 300, 5) for n in range(4)))
    (new,) = [claim for claim in found if claim is not None]
    assert (new.task_id, new.fence) == (old.task_id, 2)
    with pytest.raises(StaleFence):
        await both[0].finish(old, Ending(TaskState.SUCCEEDED))


async def test_imports_at_once_lose_nothing(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """The same sources with other texts and ACLs: every version is there, numbered without a gap."""
    requests = [
        import_of(upload("shared", f"text {number}"), upload(f"own {number}", acl=SALES))
        for number in range(8)
    ]
    with anyio.fail_after(_PATIENCE_S):
        accepted = await asyncio.gather(
            *(both[number % 2].accept_import(request) for number, request in enumerate(requests))
        )
    shared = [task.documents[0] for task in accepted]
    assert len({document.document_id for document in shared}) == 1
    assert sorted(document.document_version for document in shared) == list(range(1, 9))
    listed = await both[0].documents("acme", "handbook")
    assert {document.source for document in listed} == {"shared", *(f"own {number}" for number in range(8))}
    kb = (await both[1].tenant_stamp("acme")).knowledge_bases[0]
    assert [c.number for c in await both[1].acl_classes("acme", kb.kb_id)] == [1, 2]


async def test_one_idempotency_key_makes_one_task(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """Every repetition gets the first one's answer."""
    request = import_of(upload("a"), key="the key", request_hash="same")
    with anyio.fail_after(_PATIENCE_S):
        accepted = await asyncio.gather(*(both[n % 2].accept_import(request) for n in range(6)))
    assert len({task.task_id for task in accepted}) == 1


async def test_one_of_several_activations_wins(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """Two releases of one base are ready; the loser is told and nothing of it is active."""
    world = World(both[0], Clock())
    await world.import_ready(upload("a"))
    first = await world.ready_release()
    await world.import_ready(upload("b"))
    second = await world.ready_release()
    with anyio.fail_after(_PATIENCE_S):
        answers = await asyncio.gather(
            *(
                catalog.activate("acme", plan.release_id, 0)
                for plan, catalog in zip((first, second), both, strict=True)
            ),
            return_exceptions=True,
        )
    assert Counter(type(answer) for answer in answers) == {Activation: 1, ReleaseConflict: 1}
    states = Counter(release.state.value for release in await both[1].releases("acme", "handbook"))
    assert states == {"ACTIVE": 1, "READY": 1}


async def test_revocations_at_once_are_all_in_force(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """Each raises the epoch once, and one person's is one however often it is asked for."""
    people = [f"user-{number % 6}" for number in range(12)]
    with anyio.fail_after(_PATIENCE_S):
        records = await asyncio.gather(
            *(
                both[number % 2].revoke("acme", RevocationKind.USER, person, "left", "admin")
                for number, person in enumerate(people)
            )
        )
    assert len({record.revocation_id for record in records}) == 6
    assert sorted({record.revocation_epoch for record in records}) == [1, 2, 3, 4, 5, 6]
    assert (await both[0].tenant_stamp("acme")).revocation_epoch == 6
    assert (await both[1].revocations("acme")).users == set(people)


async def test_deleting_and_rolling_back_never_wait_for_each_other_for_ever(
    both: tuple[SqlCatalog, SqlCatalog],
) -> None:
    """Both change the tenant's epoch and the knowledge base."""
    world = World(both[0], Clock())
    (ref, _) = await world.import_ready(upload("a"), upload("b"))
    await world.release()
    await world.import_ready(upload("c"))
    await world.release()
    with anyio.fail_after(_PATIENCE_S):
        deleted, _ = await asyncio.gather(
            both[0].delete_document("acme", ref.document_id), both[1].roll_back("acme", "handbook")
        )
    assert deleted
    assert (await both[0].tenant_stamp("acme")).revocation_epoch == 2


async def test_rights_that_change_from_all_sides_never_wait_for_each_other_for_ever(
    both: tuple[SqlCatalog, SqlCatalog],
) -> None:
    """ACLs, revocations and their lifts, imports, approvals and a mover, on one document at once: no
    deadlock, and in the end no row lies wrong.
    """
    world = World(both[0], Clock())
    [ref] = await world.import_ready(upload("a", acl=SALES))
    await world.release()
    acls = [Acl.parse([f"group:{name}"]) for name in ("sales", "hr", "it")]

    async def changes(catalog: SqlCatalog, number: int) -> None:
        change = AclChange("acme", ref.document_id, acls[number % 3], "olga", 600.0)
        await catalog.set_acl(change)

    async def revokes(catalog: SqlCatalog, number: int) -> None:
        kind = RevocationKind.DOCUMENT
        record = await catalog.revoke("acme", kind, ref.document_id, "leak", "olga")
        await catalog.lift("acme", record.revocation_id)

    async def imports(catalog: SqlCatalog, number: int) -> None:
        await catalog.accept_import(import_of(upload("a", f"text {number}", acl=acls[number % 3])))

    async def judges(catalog: SqlCatalog, number: int) -> None:
        decision = Decision.APPROVE if number % 2 else Decision.REJECT
        await catalog.judge(Verdict("acme", ref.document_id, 1, decision, "olga"))

    async def works(catalog: SqlCatalog, number: int) -> None:
        claim = await catalog.claim(f"worker-{number}", 300, 5)
        if claim is not None:
            await move(catalog, claim)
            await catalog.finish(claim, Ending(TaskState.SUCCEEDED))

    async def move(catalog: SqlCatalog, claim: TaskClaim) -> None:
        while claim.kind is TaskKind.MOVE and (plans := await catalog.begin_moves(claim)):
            for plan in plans:
                counted = ClassTerms(plan.documents[0].acl_class, 1, {"word": 1})
                await catalog.finish_move(claim, plan, counted)

    with anyio.fail_after(_PATIENCE_S):
        acts = (changes, revokes, imports, judges, works)
        await asyncio.gather(*(act(both[n % 2], n) for n in range(4) for act in acts))
        while (claim := await both[0].claim("last", 300, 5)) is not None:
            await move(both[0], claim)
            await both[0].finish(claim, Ending(TaskState.SUCCEEDED))
        # had any row been left where it doesn't belong, the same ACL from here on would ask for a move
        document = await both[0].document("acme", ref.document_id)
        assert document is not None
        other = next(acl for acl in acls if tuple(acl.allow) != document.allow)
        changed = await both[0].set_acl(AclChange("acme", ref.document_id, other, "olga", 600.0))
        back = AclChange("acme", ref.document_id, Acl.parse(document.allow), "olga", 600.0)
        assert (changed.task_id is not None, (await both[0].set_acl(back)).task_id) == (True, None)
