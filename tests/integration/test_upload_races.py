"""An upload whose bytes are just being cleaned up: accepted and there, or refused."""

import anyio

from gateway.ingest.references import ORIGINALS
from gateway.ingest.task import TaskQuery, TaskState
from tests.acceptance.doors import MULTIPART, multipart
from tests.harness.serving import serving_world
from tests.harness.wire import connected
from tests.harness.world import Hold, World

PATIENCE_S = 30
_BODY = multipart(
    [
        ("file", "# Limits\n\nThe upload limit is 42 megabytes.\n", "limits.md"),
        ("file", "# Hours\n\nThe library opens at nine.\n", "hours.md"),
        ("knowledge_base", "handbook"),
        ("allow", "group:staff"),
    ]
)


async def _upload(port: int, world: World) -> int:
    async with connected(port) as wire:
        token = world.token(scopes=["ingest"])
        await wire.send("POST", "/v1/documents", token=token, body=_BODY, headers={"Content-Type": MULTIPART})
        return (await wire.read_head()).status


async def test_an_accepted_upload_has_its_originals() -> None:
    """Taken away and buried between the put and the acceptance, they are put again before the answer."""
    hold = Hold()
    world = World(holds={"catalog.accept_import": hold})
    statuses = []

    async def upload() -> None:
        statuses.append(await _upload(port, world))

    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, anyio.create_task_group() as group:
            group.start_soon(upload)
            await hold.gate.reached.wait()
            keys = [found.key async for found in world.objects.list(ORIGINALS)]
            assert len(keys) == 2
            await world.objects.delete(keys[1])
            hold.gate.release.set()
    assert statuses == [202]
    assert [await world.objects.exists(key) for key in keys] == [True, True]
    await world.work()
    (task,) = await world.catalog.tasks("acme", TaskQuery(10))
    assert task.state is TaskState.SUCCEEDED
