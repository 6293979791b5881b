"""A task's progress as a stream over a real socket: what is told, when it ends, and what it holds."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio import to_thread

from gateway.client import GatewayClient, StreamEvent
from gateway.errors import CatalogUnavailable
from gateway.ingest.task import Ending, TaskState
from gateway.stream.revocation import RevocationKind
from tests.contract.catalog_world import import_of, upload
from tests.harness.process import eventually
from tests.harness.serving import serving_world
from tests.harness.wire import Wire, connected, request
from tests.harness.world import World
from tests.integration.revocation_world import stopping_ground

PATIENCE_S = 30


def _world(**settings: Any) -> World:
    return World(ground=stopping_ground(), **settings)


async def _accepted(world: World) -> str:
    return str((await world.catalog.accept_import(import_of(upload("a"), upload("b")))).task_id)


async def _follow(wire: Wire, world: World, task_id: str, **token: Any) -> None:
    credential = world.token(scopes=["ingest"], **token)
    await wire.send("GET", f"/v1/tasks/{task_id}/events", token=credential)
    await wire.read_head()


async def _looked(world: World, times: int = 2) -> None:
    """That many looks at the task have begun since now."""
    before = world.catalog.calls["task"]

    async def look() -> bool:
        return bool(world.catalog.calls["task"] >= before + times)

    await eventually(look)


async def _free(world: World) -> None:
    async def look() -> bool:
        return world.services.task_streams.in_use == 0

    await eventually(look)


async def test_a_change_is_told_once_and_the_end_last() -> None:
    """A look that finds nothing new tells nothing; the stream is closed after the end."""
    world = _world()
    task_id = await _accepted(world)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id)
            assert wire.head is not None
            assert wire.head.headers["content-type"].startswith("text/event-stream")
            assert wire.head.headers["cache-control"] == "no-store"
            assert wire.head.headers["x-accel-buffering"] == "no"
            events, told = wire.events(), list[StreamEvent]()
            told.append(await anext(events))
            await _looked(world)
            claim = await world.catalog.claim("worker", 60, 5)
            told.append(await anext(events))
            await _looked(world)
            await world.catalog.put_off(claim, "embedder_unavailable", 0)
            told.append(await anext(events))
            claim = await world.catalog.claim("worker", 60, 5)
            await world.catalog.finish(claim, Ending(TaskState.FAILED, "a_code", "a detail"))
            told += [event async for event in events]
            whole = await request(port, "GET", f"/v1/tasks/{task_id}", token=world.token(scopes=["ingest"]))
    assert [event.name for event in told] == ["progress", "progress", "progress", "ended"]
    assert [event.sequence for event in told] == [1, 2, 3, 4]
    assert [event.data["state"] for event in told] == ["PENDING", "RUNNING", "PENDING", "FAILED"]
    assert [event.data["trouble"] for event in told] == [None, None, "embedder_unavailable", None]
    assert told[-1].data["documents"][0]["state"] == "FAILED"
    assert b'"error":{"code":"a_code","detail":"a detail"}' in whole[1]
    assert world.services.task_streams.in_use == 0


async def test_documents_that_change_are_told() -> None:
    """Though the task itself says the same as before; the client reads it event by event."""
    world = World()
    names: list[str] = []
    states: set[str] = set()
    async with serving_world(world) as port:
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as group:
                task_id = await _accepted(world)
                claim = await world.catalog.claim("worker", 60, 5)
                assert claim is not None
                begun = asyncio.Event()
                loop = asyncio.get_running_loop()

                def follow() -> None:
                    with GatewayClient(f"http://127.0.0.1:{port}", world.token(scopes=["ingest"])) as client:
                        for event in client.task_events(task_id):
                            names.append(event.name)
                            states.update(d["state"] for d in event.data["documents"])
                            loop.call_soon_threadsafe(begun.set)

                group.start_soon(to_thread.run_sync, follow)
                await begun.wait()
                job = (await world.catalog.unfinished_versions(claim))[0]
                await world.catalog.fail_version(claim, job.ref, "blank", "no text was found in it")

                async def told() -> bool:
                    return "FAILED" in states

                await eventually(told)
                await world.catalog.finish(claim, Ending(TaskState.CANCELLED))
    assert names == ["progress", "progress", "ended"]


async def test_a_task_that_has_ended_is_told_at_once() -> None:
    """One event and no more."""
    world = _world()
    task_id = await _accepted(world)
    await world.catalog.request_cancel("acme", task_id)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id)
            (event,) = await wire.all_events()
    assert (event.name, event.data["state"]) == ("ended", "CANCELLED")


async def test_a_foreign_task_looks_missing() -> None:
    """As one that doesn't exist; both as a problem, not as a stream."""
    world = _world()
    task_id = await _accepted(world)
    other = world.token(tenant="globex", scopes=["ingest"])
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:
            for name, token in ((task_id, other), ("no-such-task", world.token(scopes=["ingest"]))):
                head, _ = await request(port, "GET", f"/v1/tasks/{name}/events", token=token)
                assert head.status == 404
                assert head.headers["content-type"] == "application/problem+json"


async def test_a_revoked_reader_is_told_no_more() -> None:
    """Within a moment, and that is the last event."""
    world = _world()
    task_id = await _accepted(world)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id)
            events = wire.events()
            assert (await anext(events)).name == "progress"
            await world.catalog.revoke("acme", RevocationKind.USER, "ann", "left", "olga")
            (event,) = [event async for event in events]
    assert (event.name, event.data) == ("revoked", {"reason": "user"})


async def test_a_stream_ends_with_its_readers_token() -> None:
    """It was good when he came."""
    world = World(token_leeway_s=0)
    task_id = await _accepted(world)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id, ttl_s=2)
            first, last = await wire.all_events()
    assert (first.name, last.name, last.data) == ("progress", "revoked", {"reason": "token_expired"})


async def test_a_catalog_that_is_away_for_a_moment_ends_nothing() -> None:
    """The reader doesn't even hear of it."""
    world = _world(revocation_bound_ms=600_000)
    task_id = await _accepted(world)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id)
            events = wire.events()
            await anext(events)
            world.catalog.failing["task"] = CatalogUnavailable()
            await _looked(world)
            del world.catalog.failing["task"]
            await world.catalog.request_cancel("acme", task_id)
            (event,) = [event async for event in events]
    assert event.name == "ended"


async def test_a_catalog_that_stays_away_ends_the_stream() -> None:
    """Nobody can tell any more whether the reader may read it."""
    world = _world(revocation_bound_ms=1000)
    task_id = await _accepted(world)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id)
            events = wire.events()
            await anext(events)
            world.catalog.failing["task"] = CatalogUnavailable()
            (event,) = [event async for event in events]
    assert (event.name, event.data["code"]) == ("error", "catalog_unavailable")


async def test_a_draining_process_ends_its_streams() -> None:
    """So that it can stop in time; the reader may come back elsewhere."""
    world = _world()
    task_id = await _accepted(world)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id)
            events = wire.events()
            await anext(events)
            world.registry.draining = True
            (event,) = [event async for event in events]
    assert (event.name, event.data["code"]) == ("error", "shutting_down")


@pytest.mark.parametrize("leave", [Wire.close, Wire.abort, Wire.half_close], ids=lambda leave: leave.__name__)
async def test_a_reader_who_leaves_gives_his_place_back(leave: Callable[[Wire], None]) -> None:
    """There are so many places and no more; who finds none is told to come back."""
    world = _world(task_streams=1)
    task_id = await _accepted(world)
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port, connected(port) as wire:
            await _follow(wire, world, task_id)
            async with connected(port) as second:
                await _follow(second, world, task_id)
                assert second.head is not None
                assert second.head.status == 503
                assert "retry-after" in second.head.headers
            leave(wire)
            await _free(world)
            async with connected(port) as third:
                await _follow(third, world, task_id)
                assert (await anext(third.events())).name == "progress"
    world.assert_nothing_held()


async def test_tasks_are_listed_over_http() -> None:
    """In pages, newest first, ``next`` null at the end; a value that no field takes is refused."""
    world = _world()
    ids = [await _accepted(world) for _ in range(3)]
    token = world.token(scopes=["release"])
    with anyio.fail_after(PATIENCE_S):
        async with serving_world(world) as port:

            async def listed(query: str) -> tuple[int, Any]:
                async with connected(port) as wire:
                    await wire.send("GET", f"/v1/tasks?{query}", token=token)
                    return (await wire.read_head()).status, await wire.json()

            status, first = await listed("knowledge_base=handbook&state=PENDING&kind=import&limit=2")
            assert status == 200
            assert [task["task_id"] for task in first["tasks"]] == [ids[2], ids[1]]
            assert first["next"] == ids[1]
            assert "documents" not in first["tasks"][0]
            _, rest = await listed(f"limit=2&before={first['next']}")
            assert ([task["task_id"] for task in rest["tasks"]], rest["next"]) == ([ids[0]], None)
            for wrong in ("limit=0", "limit=1001", "limit=x", "state=pending", "kind=x", "before=x", "no=1"):
                status, problem = await listed(wrong)
                assert (status, problem["code"]) in {(400, "invalid_field"), (400, "unknown_field")}, wrong
