"""Several processes that reclaim and import at once, on one PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import anyio
import pytest

from gateway.adapters.sql.catalog import SqlCatalog, open_postgres
from gateway.errors import ObjectStoreUnavailable
from gateway.ingest.references import ReclaimPolicy, Sentence
from tests.contract.catalog_world import Clock, World, import_of, upload

if TYPE_CHECKING:
    from tests.harness.postgres import PostgresServer

_PATIENCE_S = 60.0


@pytest.fixture
async def both(postgres: "PostgresServer") -> AsyncIterator[tuple[SqlCatalog, SqlCatalog]]:
    """Two catalogs with pools of their own, as two processes have."""
    url = postgres.migrated()
    async with (
        open_postgres(url, connections=6, cap_s=20) as one,
        open_postgres(url, connections=6, cap_s=20) as other,
    ):
        yield one, other


async def test_one_of_many_schedules_a_reclaim_and_one_sweeps(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """All see at the same time that something is due."""
    world = World(both[0], Clock())
    await world.import_ready(upload("a"))
    plan = await world.ready_release()
    await both[0].mark_reclaimed("acme", plan.release_id)
    policy = ReclaimPolicy(0.0, 0)
    with anyio.fail_after(_PATIENCE_S):
        made = await asyncio.gather(*(both[n % 2].schedule_reclaims(policy, 3600.0) for n in range(8)))
        swept = await asyncio.gather(*(both[n % 2].claim_sweep(3600.0) for n in range(8)))
    assert sorted(made) == [0] * 7 + [1]
    assert sorted(swept) == [False] * 7 + [True]


async def test_an_original_is_never_both_accepted_and_condemned(both: tuple[SqlCatalog, SqlCatalog]) -> None:
    """Whoever comes second waits for the first and sees what he did."""
    outcomes = set()

    async def condemn(key: str, after: int) -> Sentence:
        for _ in range(after):
            await both[1].ping()
        return await both[1].condemn([key], 0.0, 120.0)

    with anyio.fail_after(_PATIENCE_S):
        for number in range(24):
            new = upload(f"source {number}", f"content {number}")
            found = await asyncio.gather(
                both[0].accept_import(import_of(new)),
                condemn(new.original_key, after=number % 12),
                return_exceptions=True,
            )
            [sentence] = [one for one in found if isinstance(one, Sentence)]
            [accepted] = [one for one in found if one is not sentence]
            refused = isinstance(accepted, ObjectStoreUnavailable)
            assert refused or not isinstance(accepted, BaseException)
            assert sentence.busy == ()
            assert refused == bool(sentence.condemned)
            outcomes.add(refused)
            await both[1].bury(sentence)
            if refused:
                await both[0].accept_import(import_of(new))
    assert outcomes == {True, False}
