"""Who may read which task over HTTP, and how many streams of them one tenant may hold."""

from contextlib import AsyncExitStack
from typing import Any

import anyio

from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import import_of, upload
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected
from tests.harness.world import World

PATIENCE_S = 30


async def _get(port: int, path: str, token: str) -> int:
    async with connected(port) as wire:
        await wire.send("GET", path, token=token)
        return (await wire.read_head()).status


async def test_who_may_only_revoke_reads_clean_ups_and_finds_no_other_task() -> None:
    """A revocation names its clean-up; ids of imports tell him nothing, and he ends no task."""
    world = World()
    imported = (await world.learn({"a.md": "# A\n\nSomething to know.\n"})).task_id
    [document] = await world.catalog.documents("acme", "handbook")
    revoked = await world.catalog.revoke(
        "acme", RevocationKind.DOCUMENT, document.document_id, "leak", "olga"
    )
    await world.work()
    revoker, importer = world.token(scopes=["revoke"]), world.token(scopes=["ingest"])
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            for path, expected in (("", 200), ("/events", 200)):
                assert await _get(port, f"/v1/tasks/{revoked.task_id}{path}", revoker) == expected
                assert await _get(port, f"/v1/tasks/{imported}{path}", revoker) == 404
                assert await _get(port, f"/v1/tasks/{imported}{path}", importer) == 200
            assert await _get(port, "/v1/tasks", revoker) == 403
            async with connected(port) as wire:
                await wire.send("DELETE", f"/v1/tasks/{revoked.task_id}", token=revoker)
                assert (await wire.read_head()).status == 403


async def test_one_tenants_streams_leave_places_for_the_others() -> None:
    """Beyond its share 429 with a Retry-After; a place is given back with the stream that held it."""
    world = World(task_streams=3, tenant_task_streams=2)
    tasks = {
        tenant: (await world.catalog.accept_import(import_of(upload("a"), tenant=tenant))).task_id
        for tenant in ("acme", "globex")
    }
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, AsyncExitStack() as stack:

            async def follow(tenant: str) -> tuple[Wire, Any]:
                wire = await stack.enter_async_context(connected(port))
                token = world.token(tenant, scopes=["ingest"])
                await wire.send("GET", f"/v1/tasks/{tasks[tenant]}/events", token=token)
                return wire, await wire.read_head()

            wires = [(await follow("acme"))[0] for _ in range(2)]
            _, refused = await follow("acme")
            assert refused.status == 429
            assert int(refused.headers["retry-after"]) > 0
            assert (await follow("globex"))[1].status == 200
            assert (await follow("globex"))[1].status == 503
            for tenant, task_id in tasks.items():
                assert await world.catalog.request_cancel(tenant, task_id)
            for wire in wires:
                assert (await wire.all_events())[-1].name == "ended"
            assert (await follow("acme"))[1].status == 200
