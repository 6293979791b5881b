"""Contract of TaskStore and ReleaseStore: nothing is published for somebody who was revoked meanwhile."""

from dataclasses import replace
from typing import Protocol

import pytest

from gateway.access.act import Act
from gateway.access.apikey import ApiKey, ApiKeyStore
from gateway.errors import PrincipalRevoked
from gateway.ingest.task import Ending, TaskClaim, TaskState
from gateway.release.model import ReleaseState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import CONFIG, SPACE, Catalog, World, import_of, upload

#: a PostgreSQL database is kept for the whole module
pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = ApiKey(
    key_id="key_1",
    tenant="acme",
    name="robot",
    groups=frozenset({"staff"}),
    scopes=frozenset({"ingest"}),
    digest="a digest",
    created_by="ann",
    created_at=1.0,
    expires_at=None,
    revoked_at=None,
)


class KeyedCatalog(Catalog, ApiKeyStore, Protocol):
    """The catalog with its keys."""


async def revoke(world: World, subject: str, tenant: str = "acme") -> None:
    await world.catalog.revoke(tenant, RevocationKind.USER, subject, "left", "olga")


async def import_by(world: World, subject: str) -> str:
    request = replace(import_of(upload("a", subject)), subject=subject)
    return (await world.catalog.accept_import(request)).task_id


async def ended(world: World, task_id: str) -> tuple[TaskState, str | None, list[str]]:
    """How it ended, and its versions' states."""
    task = await world.catalog.task("acme", task_id)
    assert task is not None
    return task.state, task.error_code, [document.state for document in task.documents]


async def test_a_waiting_task_of_somebody_revoked_is_never_begun(world: World) -> None:
    """Its versions fail with it; one that rests, or whose worker went away, waits too."""
    waiting = await import_by(world, "eve")
    claim = await world.claim()
    await world.catalog.put_off(claim, "embedder_unavailable", 1.0)
    await revoke(world, "eve")
    other = await import_by(world, "mallory")
    assert (await world.claim()).task_id == other
    assert await ended(world, waiting) == (TaskState.FAILED, "principal_revoked", ["FAILED"])


async def test_a_running_task_of_somebody_revoked_goes_on_until_its_lease_is_over(world: World) -> None:
    """Nobody takes it over then."""
    task_id = await import_by(world, "eve")
    await world.claim(lease_s=30.0)
    await revoke(world, "eve")
    assert await world.catalog.claim("other", 30.0, 5) is None
    assert (await ended(world, task_id))[0] is TaskState.RUNNING
    world.clock.advance(30)
    assert await world.catalog.claim("other", 30.0, 5) is None
    assert await ended(world, task_id) == (TaskState.FAILED, "principal_revoked", ["FAILED"])


async def built(world: World, claim: TaskClaim) -> str:
    """A READY release of the claimed task."""
    await world.build_versions(claim)
    plan = await world.catalog.begin_release(claim, SPACE, CONFIG)
    for state in (ReleaseState.VALIDATING, ReleaseState.READY):
        await world.catalog.advance_release(claim, plan.release_id, state)
    return plan.release_id


async def test_a_running_task_of_somebody_revoked_activates_nothing(world: World) -> None:
    """What it has built stays unreleased; a lift in time lets it go on."""
    await import_by(world, "eve")
    claim = await world.claim()
    release_id = await built(world, claim)
    record = await world.catalog.revoke("acme", RevocationKind.USER, "eve", "left", "olga")
    with pytest.raises(PrincipalRevoked):
        await world.catalog.activate("acme", release_id, None, claim)
    assert [release.state for release in await world.catalog.releases("acme", "handbook")] == ["READY"]
    await world.catalog.lift("acme", record.revocation_id)
    await world.catalog.activate("acme", release_id, None, claim)


async def test_a_build_is_its_askers_too(world: World) -> None:
    """The act says whose; the gateway's own tasks are nobody's."""
    [ref] = await world.import_ready(upload("a"))
    act = Act("acme", "eve", "release.build")
    accepted = await world.catalog.accept_release("acme", "handbook", 3600.0, act=act)
    await revoke(world, "eve")
    await world.catalog.delete_document("acme", ref.document_id)
    cleanup = await world.catalog.claim("worker", 30.0, 5)
    assert cleanup is not None
    assert await ended(world, accepted.task_id) == (TaskState.FAILED, "principal_revoked", [])


async def test_others_of_that_name_and_revoked_groups_stop_no_task(world: World) -> None:
    """A user is one of his tenant's; a group isn't known of a task."""
    await revoke(world, "eve", tenant="globex")
    await world.catalog.revoke("acme", RevocationKind.GROUP, "eve", "left", "olga")
    task_id = await import_by(world, "eve")
    claim = await world.claim()
    assert claim.task_id == task_id
    await world.catalog.activate("acme", await built(world, claim), None, claim)


@pytest.mark.parametrize("lost", ["key", "maker"])
async def test_a_keys_task_ends_with_the_key_and_with_its_maker(
    catalog: KeyedCatalog, world: World, lost: str
) -> None:
    """A second key of the same name keeps it going when the first one is revoked."""
    await catalog.add_api_key(KEY)
    await catalog.add_api_key(replace(KEY, key_id="key_2"))
    task_id = await import_by(world, KEY.subject)
    await catalog.revoke_api_key("acme", "key_1")
    claim = await world.claim()
    assert claim.task_id == task_id
    await world.catalog.release_claim(claim)
    if lost == "key":
        await catalog.revoke_api_key("acme", "key_2")
    else:
        await revoke(world, "ann")
    assert await catalog.claim("worker", 30.0, 5) is None
    assert (await ended(world, task_id))[1] == "principal_revoked"
    await catalog.add_api_key(replace(KEY, key_id="key_3", name="other", created_by="bob"))
    other = await import_by(world, "apikey:other")
    claim = await world.claim()
    assert claim.task_id == other
    await catalog.finish(claim, Ending(TaskState.SUCCEEDED))
