"""What old, running and new requests see at each moment: racing and late builds, rollbacks, revocations."""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest
import pytest_asyncio

from gateway.access.principal import Principal
from gateway.adapters.memory.models import Gate
from gateway.context import Deadline, RequestContext
from gateway.errors import ReleaseConflict
from gateway.ingest.task import TaskState
from gateway.observe.trace import Trace
from gateway.retrieval.store import Row
from gateway.settings import Settings
from gateway.stream.revocation import RevocationKind
from tests.harness.serving import followed
from tests.harness.world import World, twins
from tests.integration.import_world import KB, TENANT, Altered, ImportWorld

pytestmark = pytest.mark.asyncio(loop_scope="module")

STAFF = ("group:staff",)


def note(mark: str) -> str:
    return f"# Limits\n\nThe upload limit is {mark}.\n"


class Reader:
    """Someone of the staff who asks for every passage there is."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._who = Principal(TENANT, "ann", frozenset({"staff"}), frozenset({"ask"}), time.time() + 600)

    async def begin(self) -> RequestContext:
        """A request that is bound now."""
        return await self._world.services.orchestrator.bind(
            self._who, KB, self._trace(), Deadline.after(60_000)
        )

    async def sees(self, begun: RequestContext | None = None) -> set[str]:
        """What a request finds now: one that was begun earlier, or a new one."""
        context = replace(begun or await self.begin(), deadline=Deadline.after(60_000))
        result = await self._world.services.search.run(context, self._trace(), "What is the upload limit?")
        return {candidate.chunk.content.split()[-1].rstrip(".") for candidate in result.candidates}

    def _trace(self) -> Trace:
        return Trace("request", "trace", self._world.services.metrics)


@pytest_asyncio.fixture(loop_scope="module")
async def world(imports: ImportWorld) -> AsyncIterator[World]:
    """A gateway over the parts of the import world."""
    parts = {name: getattr(imports, name) for name in ("catalog", "vectors", "objects")}
    patient = ("retrieval_cap_ms", "catalog_cap_ms", "embed_cap_ms", "revocation_bound_ms")
    ground = replace(twins(Settings()), **parts)
    settings: dict[str, Any] = dict.fromkeys(patient, 20_000)
    made = World(ground=ground, **settings)
    async with followed(made):
        yield made


async def learn(world: World, **marks: str) -> None:
    """Imports ``source=mark`` documents and activates their release."""
    task = await world.learn({f"{name}.md": note(mark) for name, mark in marks.items()}, allow=STAFF)
    assert task.state is TaskState.SUCCEEDED


async def document(world: World, name: str) -> str:
    found = await world.catalog.documents(TENANT, KB)
    return next(str(one.document_id) for one in found if one.source == f"{name}.md")


async def built(world: World) -> str:
    """The id of a release of what is ready, not activated."""
    accepted = await world.catalog.accept_release(TENANT, KB, 600)
    await world.work()
    task = await world.catalog.task(TENANT, accepted.task_id)
    assert task is not None
    assert task.state is TaskState.SUCCEEDED
    return str(task.release_id)


async def test_of_two_racing_builds_the_slower_is_never_seen(imports: ImportWorld, world: World) -> None:
    """It holds less than the one that was activated meanwhile."""
    reader = Reader(world)
    await learn(world, a="a1")
    running = await reader.begin()
    await imports.learn({"b": note("b1")}, activate=False)
    slower = await built(world)
    assert await reader.sees() == {"a1"}
    await learn(world, c="c1")
    assert (await reader.sees(), await reader.sees(running)) == ({"a1", "b1", "c1"}, {"a1"})
    with pytest.raises(ReleaseConflict):
        await world.catalog.activate(TENANT, slower, None)
    assert (await reader.sees(), await reader.sees(running)) == ({"a1", "b1", "c1"}, {"a1"})


async def test_a_build_that_comes_back_late_is_never_seen(imports: ImportWorld, world: World) -> None:
    """Its worker was frozen in the middle of writing; another one took the task and finished it."""
    reader, frozen = Reader(world), Gate()
    await learn(world, a="a1")
    running = await reader.begin()

    async def slow(write: Any, space: Any, revision: str, rows: Sequence[Row]) -> None:
        await frozen.wait()
        await write(space, revision, rows)

    accepted = await imports.accept({"a": note("a2"), "b": note("b1")})
    late = imports.worker(vectors=Altered(imports.vectors, write=slow))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(late.work, await imports.claim())
            await frozen.reached.wait()
            imports.clock.advance(700)
            await imports.work(accepted)
            after = await imports.active()
            assert (await reader.sees(), await reader.sees(running)) == ({"a2", "b1"}, {"a1"})
            frozen.release.set()
    assert await imports.active() == after
    assert (await reader.sees(), await reader.sees(running)) == ({"a2", "b1"}, {"a1"})


async def test_a_rollback_takes_back_what_was_newer_for_everybody(imports: ImportWorld, world: World) -> None:
    """Running requests keep their release, and of it nothing that was withdrawn."""
    reader = Reader(world)
    await learn(world, a="a1", b="b1")
    old = await reader.begin()
    await learn(world, a="a2", c="c1")
    running = await reader.begin()
    assert await reader.sees(running) == {"a2", "b1", "c1"}
    await world.catalog.roll_back(TENANT, KB)
    assert await reader.sees(old) == {"a1", "b1"}
    assert await reader.sees(running) == {"b1"}
    assert await reader.sees() == {"a1", "b1"}
    await learn(world, d="d1")
    assert await reader.sees() == {"a1", "b1", "d1"}
    assert await reader.sees(running) == {"b1"}
    await learn(world, c="c1")  # imported again, it counts again
    assert await reader.sees() == {"a1", "b1", "c1", "d1"}


async def test_a_rollback_brings_nothing_back_that_was_revoked(imports: ImportWorld, world: World) -> None:
    """Not for old requests, nor for running or new ones; lifting it does."""
    reader = Reader(world)
    await learn(world, a="a1", b="b1")
    old = await reader.begin()
    await learn(world, c="c1")
    running = await reader.begin()
    revoked = await world.catalog.revoke(
        TENANT, RevocationKind.DOCUMENT, await document(world, "a"), "a leak", "olga"
    )
    assert (await reader.sees(old), await reader.sees(running)) == ({"b1"}, {"b1", "c1"})
    assert await reader.sees() == {"b1", "c1"}
    await world.catalog.roll_back(TENANT, KB)
    assert (await reader.sees(old), await reader.sees(running), await reader.sees()) == ({"b1"},) * 3
    await world.catalog.lift(TENANT, revoked.revocation_id)
    assert await reader.sees() == {"a1", "b1"}


async def test_a_document_that_was_deleted_comes_back_by_an_import_alone(
    imports: ImportWorld, world: World
) -> None:
    """As a new version: no request that holds the deleted one gets it back, and no rollback brings it."""
    reader = Reader(world)
    await learn(world, a="a1", b="b1")
    old = await reader.begin()
    await learn(world, c="c1")
    await world.catalog.delete_document(TENANT, await document(world, "a"))
    running = await reader.begin()
    assert (await reader.sees(old), await reader.sees(running)) == ({"b1"}, {"b1", "c1"})
    await learn(world, a="a1")
    assert await reader.sees() == {"a1", "b1", "c1"}
    assert (await reader.sees(old), await reader.sees(running)) == ({"b1"}, {"b1", "c1"})
    await world.catalog.roll_back(TENANT, KB)
    assert await reader.sees() == {"b1", "c1"}
    await learn(world, a="a2")
    assert await reader.sees() == {"a2", "b1", "c1"}
